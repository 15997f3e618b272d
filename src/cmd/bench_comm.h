// Inside of plait bench comm: one collective of one size, as a call of comm.h and as a plain MPI call.
#pragma once
#include "plait/comm.h"

// One rank's side of one measurement. The rank owns the memory.
typedef struct BenchCall {
  PlaitComm *comm;
  int rank, ranks;
  PlaitDtype dtype;
  size_t count;         // elements, as the collective counts them
  size_t element;       // bytes of one
  char *memory, *other; // (ranks · count) where the collective has parts, else (count)
  size_t *counts;       // (ranks) all `count`, for the _v calls
} BenchCall;

typedef struct BenchKind {
  const char *name;
  int parts;   // a rank's memory is ranks · count elements, else count
  int reduces;
  int halves;  // two transfers one after the other: a transfer takes half the time
  int (*run)(const BenchCall *call); // 0 or a negative code
} BenchKind;

extern const BenchKind bench_kinds[];
extern const int bench_kind_count;

// The same by the MPI call of that name, on all processes. 1: MPI has no such call for this dtype, or there is no MPI.
int bench_plain(const BenchKind *kind, const BenchCall *call);
