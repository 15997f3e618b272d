// Steps of the memory plan, in the order in which program_create takes them.
#pragma once
#include "program/program.h"

void memory_place_variables(Program *p);
int64_t memory_variable_bytes(const Program *p, int64_t elements, Dtype dtype); // of one instance
int64_t memory_tensor_bytes(const Program *p, const Tensor *t); // on one rank, rounded up to the alignment
void memory_place_tensors(Program *p);                    // areas
void memory_place_rings(Program *p);                      // offsets in slots and staging buffers, and of these
void memory_place_body(Program *p, const Body *body);     // offsets in the workspace
// When a tensor must stay in memory: from the first to the last of these instructions of a body. The plan packs by it.
typedef struct Life {
  int tensor;
  int64_t bytes, offset; // offset: in its area; bytes: rounded up to the device's alignment
  int first, last;
  uint64_t weight; // for the order in which the plan places them
} Life;
typedef Vec(Life) LifeList;
// Appends the tensors of a placed body that lie in the workspace, with their offsets in it. The caller frees the list
// with vec_free.
void memory_body_lives(const Program *p, const Body *body, LifeList *list);
void memory_place_reduced(Program *p);                    // buffers of the results of REDUCE
void memory_place_inputs(Program *p); // copies of inputs, for a device that cannot read the host's memory
void memory_total(Program *p);
