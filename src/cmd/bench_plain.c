// The plain MPI calls that plait bench comm measures beside plait's own.
#include "cmd/bench_comm.h"
#include "base/error.h"
#include <stdlib.h>
#include <string.h>

#ifndef PLAIT_MPI
int bench_plain(const BenchKind *kind, const BenchCall *call) { return 1; }
#else
#include <mpi.h>

// MPI has neither bf16 nor fp16: it can move them as 16 bits, and not add them.
static MPI_Datatype type_of(PlaitDtype dtype) {
  switch (dtype) {
  case PLAIT_FP64: return MPI_DOUBLE;
  case PLAIT_FP32: return MPI_FLOAT;
  case PLAIT_INT64: return MPI_INT64_T;
  case PLAIT_INT32: return MPI_INT32_T;
  case PLAIT_UINT8: return MPI_UINT8_T;
  default: return MPI_UINT16_T;
  }
}

static int ping_pong(const BenchCall *c, MPI_Datatype type, int count) {
  int last = c->ranks - 1, status = MPI_SUCCESS;
  if (!last || (c->rank && c->rank != last)) return status;
  if (c->rank) status = MPI_Recv(c->other, count, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (!status) status = MPI_Send(c->memory, count, type, last - c->rank, 0, MPI_COMM_WORLD);
  if (!status && !c->rank) status = MPI_Recv(c->other, count, type, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return status;
}

static int around(const BenchCall *c, MPI_Datatype type, int count) {
  int next = (c->rank + 1) % c->ranks, previous = (c->rank + c->ranks - 1) % c->ranks;
  return MPI_Sendrecv(c->memory, count, type, next, 0, c->other, count, type, previous, 0, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
}

static int with_counts(const BenchCall *c, int all_to_all, MPI_Datatype type, int count) {
  int *counts = xcalloc(2 * (size_t)c->ranks, sizeof *counts), *offsets = counts + c->ranks;
  for (int r = 0; r < c->ranks; r++) counts[r] = count, offsets[r] = r * count;
  int status = all_to_all
                   ? MPI_Alltoallv(c->memory, counts, offsets, type, c->other, counts, offsets, type, MPI_COMM_WORLD)
                   : MPI_Allgatherv(MPI_IN_PLACE, 0, type, c->memory, counts, offsets, type, MPI_COMM_WORLD);
  free(counts);
  return status;
}

int bench_plain(const BenchKind *kind, const BenchCall *c) {
  MPI_Datatype type = type_of(c->dtype);
  MPI_Comm all = MPI_COMM_WORLD;
  int n = (int)c->count, root = c->rank == 0, status;
  char *part = c->memory + (size_t)c->rank * c->count * c->element;
  if (kind->reduces && (c->dtype == PLAIT_BF16 || c->dtype == PLAIT_FP16)) return 1;
#define IS(word) (!strcmp(kind->name, word))
  if (IS("all_reduce")) status = MPI_Allreduce(MPI_IN_PLACE, c->memory, n, type, MPI_SUM, all);
  else if (IS("reduce_scatter")) status = MPI_Reduce_scatter_block(MPI_IN_PLACE, c->memory, n, type, MPI_SUM, all);
  else if (IS("all_gather")) status = MPI_Allgather(MPI_IN_PLACE, 0, type, c->memory, n, type, all);
  else if (IS("broadcast")) status = MPI_Bcast(c->memory, n, type, 0, all);
  else if (IS("reduce")) status = MPI_Reduce(root ? MPI_IN_PLACE : c->memory, c->memory, n, type, MPI_SUM, 0, all);
  else if (IS("gather")) status = MPI_Gather(root ? MPI_IN_PLACE : part, n, type, c->memory, n, type, 0, all);
  else if (IS("scatter")) status = MPI_Scatter(c->memory, n, type, root ? MPI_IN_PLACE : part, n, type, 0, all);
  else if (IS("all_to_all")) status = MPI_Alltoall(c->memory, n, type, c->other, n, type, all);
  else if (IS("shift")) status = around(c, type, n);
  else if (IS("all_gather_v")) status = with_counts(c, 0, type, n);
  else if (IS("all_to_all_v")) status = with_counts(c, 1, type, n);
  else if (IS("send_recv")) status = ping_pong(c, type, n);
  else status = MPI_Barrier(all);
#undef IS
  return status == MPI_SUCCESS ? 0 : PLAIT_FAILED;
}
#endif
