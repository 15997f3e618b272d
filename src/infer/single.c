// One rank, without communication.
#include "infer/single.h"
#include <string.h>

static CompileOptions single_options(int mode, int64_t batch, int64_t seq) {
  Mesh mesh = mesh_create(4, (const char *[]){"pp", "dp", "cp", "tp"}, (int[]){1, 1, 1, 1});
  return (CompileOptions){.mode = mode,
                          .micro_samples = batch,
                          .step_samples = batch,
                          .seq = seq,
                          .precision = DTYPE_F32,
                          .mesh = mesh,
                          .layout = layout_standard(&mesh, 0, 25000000),
                          .stages = 1};
}

int single_create(Single *single, const ModelSource *source, int mode, int64_t batch, int64_t seq, int threads,
                  Error *error) {
  *single = (Single){.logits = -1};
  CompileOptions options = single_options(mode, batch, seq);
  int code = compile_graph(&source->config, &options, &single->graph, &single->logits, error);
  if (!code)
    code = program_create(single->graph, &options.mesh, &(ProgramOptions){.schedule = &schedule_forward, .microbatches = 1, .backend = backend_cpu(), .threads = threads},
                          &single->program, error);
  if (!code) code = state_create(single->program, program_work_bytes(single->program), 0, &single->state, error);
  if (!code) code = model_source_load(source, single->state, error);
  if (code) return code;
  single->team = threads > 1 ? team_create(threads) : NULL;
  return executor_create(single->program, single->state, backend_cpu(), single->team, NULL, 0, &single->executor,
                         error);
}

void single_destroy(Single *single) {
  executor_destroy(single->executor);
  team_destroy(single->team);
  state_destroy(single->state);
  program_destroy(single->program);
  graph_destroy(single->graph);
  *single = (Single){.logits = -1};
}

int single_run(Single *single, const SingleInput *inputs, int count, Error *error) {
  StepInput bound[16] = {{0}};
  const Graph *g = single->graph;
  CHECK(g->input.count <= 16);
  for (int i = 0; i < g->input.count; i++) {
    for (int k = 0; k < count; k++)
      if (!strcmp(g->input.data[i].name, inputs[k].name)) bound[i].base = inputs[k].data;
    CHECK(bound[i].base, "input %s has no value", g->input.data[i].name);
  }
  return executor_run(single->executor, 0, bound, error);
}
