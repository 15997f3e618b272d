// Gathers the boxes of all ranks, threads or processes, in rank 0's memory: for files that one process writes.
#pragma once
#include "checkpoint/checkpoint.h"
#include "plait/comm.h"

typedef struct Gathered {
  CheckpointTensor *boxes; // (count) of all ranks; on rank 0 only
  int count;
  char **received; // (ranks) what the boxes point into
  int ranks;
} Gathered;

// Every rank of comm calls it. Only primary boxes travel; those of rank 0 itself are not copied.
int gather_boxes(PlaitComm *comm, const CheckpointTensor *mine, int count, Gathered *out, Error *error);

void gather_free(Gathered *gathered); // zeroed is fine
