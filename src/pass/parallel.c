// From what is asked for to what passes read.
#include "pass/parallel.h"
#include <string.h>

int parallel_row_has(const ParallelOptions *o, LayoutRow row, const char *axis) {
  for (int i = 0; i < o->layout.row[row].count; i++)
    if (!strcmp(o->layout.row[row].axis[i], axis)) return 1;
  return 0;
}

int parallel_kv_ranks(const Workload *w, int tp) {
  int64_t a = w->size[DIM_KV_HEADS], b = tp;
  while (b) { // the greatest common divisor
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return (int)a;
}

// Axes of users → atoms. The axis keeps its name as the outer or the inner one of two; the other is there where it has ranks.
static Mesh atoms(const ParallelOptions *o, const Workload *w) {
  const char *name[MAX_AXES];
  int size[MAX_AXES], n = 0;
  for (int a = 0; a < o->mesh.naxis; a++) {
    const Axis *axis = &o->mesh.axis[a];
    Axis outer = {"replica", 1, AXIS_DATA}, own = *axis, inner = {"tp_group", 1, AXIS_TENSOR};
    if (!strcmp(axis->name, "dp") && o->shard_group) outer.size = axis->size / o->shard_group, own.size = o->shard_group;
    if (!strcmp(axis->name, "tp") && parallel_row_has(o, LAYOUT_ROW_HEADS, "tp")) {
      own.size = parallel_kv_ranks(w, axis->size);
      inner.size = axis->size / own.size;
    }
    const Axis parts[] = {outer, own, inner};
    for (int i = 0; i < 3; i++) {
      if (i != 1 && parts[i].size == 1) continue;
      CHECK(n < MAX_AXES, "more than %d axes", MAX_AXES);
      name[n] = parts[i].name;
      size[n++] = parts[i].size;
    }
  }
  return mesh_create(n, name, size);
}

Parallel parallel_create(const ParallelOptions *o, const Workload *w) {
  Parallel p = {.overlap = o->overlap};
  p.mesh = atoms(o, w);
  p.layout = layout_from_table(&o->layout, &p.mesh);
  p.layout.annotations = o->annotations;
  p.layout.annotation = o->annotation;
  p.layout.propagate = o->propagate;
  p.storage = (Storage){o->zero, o->reshard, o->unsplit, 1u << mesh_axis(&p.mesh, "dp")};
  int pp = parallel_pipeline_ranks(&p);
  // With one rank there is nothing to fill: backward follows forward, and one slot serves all microbatches.
  p.pipeline = (Pipeline){.schedule = pp > 1 ? o->schedule : &schedules[SCHEDULE_1F1B], .stages = pp * o->stages_per_rank, .cut_given = o->cut > 0};
  for (int s = 0; s < o->cut; s++) p.pipeline.layers[s] = o->layers[s];
  return p;
}

int parallel_row_ranks(const ParallelOptions *o, LayoutRow row) {
  int n = 1;
  for (int i = 0; i < o->layout.row[row].count; i++) {
    int a = mesh_axis(&o->mesh, o->layout.row[row].axis[i]);
    n *= a < 0 ? 1 : o->mesh.axis[a].size;
  }
  return n;
}

ParallelOptions parallel_default(int pp, int dp, int tp, int zero) {
  return (ParallelOptions){.mesh = mesh_create(3, (const char *[]){"pp", "dp", "tp"}, (int[]){pp, dp, tp}),
                           .layout = layout_shipped(LAYOUT_SHIPPED_TENSOR),
                           .zero = zero,
                           .reshard = 1,
                           .overlap = {.on = 1, .bucket_bytes = 25000000, .read_ahead = 1},
                           .schedule = &schedules[SCHEDULE_1F1B],
                           .stages_per_rank = 1};
}

int parallel_pipeline_ranks(const Parallel *p) { return mesh_pipeline_ranks(&p->mesh); }

int parallel_data_ranks(const Parallel *p) { return mesh_size(&p->mesh, layout_data_axes(&p->layout)); }
