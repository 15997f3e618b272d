// What follows from a parallel configuration.
#include "pass/parallel.h"

int parallel_pipeline_ranks(const Parallel *p) { return p->mesh.axis[mesh_axis(&p->mesh, "pp")].size; }

int parallel_data_ranks(const Parallel *p) { return mesh_size(&p->mesh, layout_data_axes(&p->layout)); }

Parallel parallel_standard(const Mesh *mesh, int zero, int64_t bucket_bytes) {
  LayoutTable table = layout_shipped(LAYOUT_SHIPPED_TENSOR);
  int overlap = bucket_bytes > 0;
  Parallel p = {.mesh = *mesh,
                .layout = layout_from_table(&table, mesh),
                .storage = {.zero = zero, .reshard = 1, .shard_axes = 1u << mesh_axis(mesh, "dp")},
                .overlap = {overlap, bucket_bytes, overlap},
                .pipeline = {.schedule = &schedules[SCHEDULE_1F1B]}};
  p.pipeline.stages = parallel_pipeline_ranks(&p);
  return p;
}
