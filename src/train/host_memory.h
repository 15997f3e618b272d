// Memory of a rank outside of its arena: what binding a Program takes, and the loaders' batches. For the plan.
#pragma once
#include "runtime/rank.h"

// Bytes of the operands, buffers and tables of the executors (training, evaluation) of a pipeline coordinate.
int64_t host_memory_executors(const Job *job, int coordinate);
