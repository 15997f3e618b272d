// Steps of the memory plan, in the order in which program_create takes them.
#pragma once
#include "program/program.h"

void memory_place_variables(Program *p);
int64_t memory_variable_bytes(const Program *p, const Variable *v, int copy); // of one instance
int64_t memory_tensor_bytes(const Program *p, const Tensor *t); // on one rank, rounded up to the alignment
void memory_place_tensors(Program *p); // areas
void memory_place_reduced(Program *p); // area COMM: results of REDUCE
void memory_pack(Program *p);          // instances and offsets in the working memory, and what is in use when
void memory_place_inputs(Program *p);  // copies of inputs, for a device that cannot read the host's memory
void memory_total(Program *p);
// When a tensor must stay in memory: from the first to the last of these instructions of a body, in which it is made.
typedef struct Life {
  int tensor;
  int64_t bytes, offset; // offset: of its first instance, in the working memory; bytes: rounded up to the alignment
  int first, last;
} Life;
typedef Vec(Life) LifeList;
// Bytes of a stage's slot in use, tick by tick: 0 before its bodies, then these one after the other, one tick an
// instruction and one after each body. The caller frees it.
int64_t *memory_slot_needed(const Program *p, int stage);
// Appends the tensors of a placed body that live within it, those in the memory of others of them as one. The caller
// frees the list with vec_free.
void memory_body_lives(const Program *p, const Body *body, LifeList *list);
