// Steps of the memory plan, in the order in which program_create takes them.
#pragma once
#include "program/program.h"

void memory_place_variables(Program *p);
int64_t memory_variable_bytes(const Program *p, int64_t elements, Dtype dtype); // of one instance
void memory_place_tensors(Program *p);                    // areas
void memory_place_rings(Program *p);                      // offsets in slots and staging buffers, and of these
void memory_place_body(Program *p, const Body *body);     // offsets in the workspace
void memory_place_reduced(Program *p);                    // buffers of the results of REDUCE
void memory_place_inputs(Program *p); // copies of inputs, for a device that cannot read the host's memory
void memory_total(Program *p);
