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
  return state_tensors(&nowhere, CHECKPOINT_KINDS, out);
}

static bool same_box(const CheckpointTensor *a, const CheckpointTensor *b) {
  return !strcmp(a->name, b->name) && dims_equal(a->rank, a->offset, b->offset) &&
         dims_equal(a->rank, a->local, b->local);
}

static bool among(const CheckpointTensor *t, const CheckpointTensor *pieces, int count) {
  for (int i = 0; i < count; i++)
    if (same_box(t, &pieces[i])) return true;
  return false;
}

void machine_mark_spare(const Job *job, int first, int rank, CheckpointTensor *pieces, int count) {
  for (int i = 0; i < count; i++) pieces[i].spare = !pieces[i].primary;
  for (int other = first; other < rank; other++) {
    CheckpointTensor *theirs;
    int n = pieces_of(job, other, &theirs);
    for (int i = 0; i < count; i++)
      if (pieces[i].spare && among(&pieces[i], theirs, n)) pieces[i].spare = 0;
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

static bool is_covered(const Variable *v, const CheckpointTensor *pieces, int count) {
  Box *boxes = xcalloc((size_t)count + 1, sizeof *boxes);
  int n = 0;
  Error ignored = {0};
  for (int i = 0; i < count; i++)
    if (!strcmp(pieces[i].name, v->name)) boxes[n++] = checkpoint_box(&pieces[i]);
  bool covered = n && !boxes_cover(v->name, boxes, n, v->shape.rank, v->shape.size, &ignored);
  free(boxes);
  return covered;
}

bool machine_has_all(const Job *job, int first, int count) {
  const Graph *g = job->train.graph;
  CheckpointTensor *pieces;
  int n = all_pieces(job, first, count, &pieces);
  bool all = true;
  for (int i = 0; i < g->variable.count && all; i++)
    if (CHECKPOINT_KINDS >> g->variable.data[i].kind & 1) all = is_covered(&g->variable.data[i], pieces, n);
  free(pieces);
  return all;
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
