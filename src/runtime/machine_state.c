// Looking for boxes that ranks have in common.
#include "runtime/machine_state.h"
#include "base/vec.h"
#include "checkpoint/memory_image.h"
#include "runtime/state_tensors.h"
#include <string.h>

// Nothing is read of it: the pieces say which boxes there are.
static int pieces_of(const Job *job, int rank, CheckpointTensor **out) {
  int coordinate = mesh_pipeline_coordinate(&job->options.parallel.mesh, rank);
  State nowhere = {.program = job_program(job, coordinate), .rank = rank};
  return state_tensors(&nowhere, variable_is_saved, out);
}

static int by_box(const void *a, const void *b) {
  const CheckpointTensor *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  if (!order) order = memcmp(x->offset, y->offset, sizeof *x->offset * (size_t)x->rank);
  return order ? order : memcmp(x->local, y->local, sizeof *x->local * (size_t)x->rank);
}

void machine_mark_spare(const Job *job, int first, int rank, CheckpointTensor *pieces, int count) {
  for (int i = 0; i < count; i++) pieces[i].spare = !pieces[i].primary;
  for (int other = first; other < rank; other++) {
    CheckpointTensor *theirs;
    int n = pieces_of(job, other, &theirs);
    qsort(theirs, (size_t)n, sizeof *theirs, by_box);
    for (int i = 0; i < count; i++)
      if (pieces[i].spare && bsearch(&pieces[i], theirs, (size_t)n, sizeof *theirs, by_box)) pieces[i].spare = 0;
    free(theirs);
  }
}

// Each box once: those that a rank of the machine writes, or has as a spare.
static int all_pieces(const Job *job, int first, int count, CheckpointTensor **out) {
  Vec(CheckpointTensor) all = {0};
  vec_reserve(&all, 1);
  for (int rank = first; rank < first + count; rank++) {
    CheckpointTensor *own;
    int n = pieces_of(job, rank, &own);
    machine_mark_spare(job, first, rank, own, n);
    for (int i = 0; i < n; i++)
      if (own[i].primary || own[i].spare) vec_push(&all, own[i]);
    free(own);
  }
  *out = all.data;
  return all.count;
}

// Of all that a checkpoint holds: Variables of the job.
static int variables(const Job *job) {
  const Graph *g = job_train(job)->graph;
  int count = 0;
  for (int i = 0; i < g->variable.count; i++) count += variable_is_saved(&g->variable.data[i]);
  return count;
}

bool machine_has_all(const Job *job, int first, int count) {
  CheckpointTensor *pieces;
  int n = all_pieces(job, first, count, &pieces), covered = 0;
  Box *boxes = xcalloc((size_t)n + 1, sizeof *boxes);
  Error ignored = {0};
  qsort(pieces, (size_t)n, sizeof *pieces, by_box);
  for (int i = 0, end; i < n; i = end) {
    const CheckpointTensor *t = &pieces[i];
    for (end = i; end < n && !strcmp(pieces[end].name, t->name); end++) boxes[end - i] = checkpoint_box(&pieces[end]);
    covered += !boxes_cover(t->name, boxes, end - i, t->rank, t->global, &ignored);
  }
  free(boxes);
  free(pieces);
  return covered == variables(job);
}

int64_t machine_spare_bytes(const Job *job, int first, int count) {
  CheckpointTensor *pieces;
  int n = all_pieces(job, first, count, &pieces), spare = 0;
  for (int i = 0; i < n; i++)
    if (pieces[i].spare) pieces[spare++] = pieces[i];
  int64_t bytes = memory_image_bytes(pieces, spare);
  free(pieces);
  return bytes;
}
