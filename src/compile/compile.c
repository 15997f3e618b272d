// Runs the passes in order, verifying between them.
#include "compile/compile.h"
#include "base/shares.h"
#include "compile/verify.h"
#include <string.h>

static const struct {
  const char *name;
  int (*run)(Graph **, const CompileOptions *, Error *);
  GraphForm takes, leaves;
} passes[] = {
#define PASS(name, takes, leaves, meaning) {#name, pass_##name, GRAPH_##takes, GRAPH_##leaves},
#include "compile/passes.def"
};

const char *const *compile_passes(void) {
  static const char *const names[] = {
#define PASS(name, takes, leaves, meaning) #name,
#include "compile/passes.def"
      NULL};
  return names;
}

void compile_set_batch(CompileOptions *o, int64_t samples, int64_t micro) {
  StepBatch *batch = &o->step.batch;
  Shares shares = shares_balanced(samples, parallel_data_ranks(&o->parallel), micro, &batch->balance);
  batch->samples = samples;
  batch->micro = micro;
  o->micro_samples = shares.bound * shares.ranks;
  o->microbatches = shares.microbatches;
}

int compile_graph(const ModelConfig *config, const CompileOptions *o, Graph **out, Error *error) {
  Graph *g = graph_create();
  ModelOutputs outputs = {-1, -1};
  ModelOptions model = {.batch = o->micro_samples,
                        .page = o->step.batch.page,
                        .mode = o->mode,
                        .one_document = o->step.batch.one_document,
                        .capacity = o->step.transform.capacity,
                        .chunks = o->mode == MODEL_GENERATE ? 1 : o->step.transform.chunks,
                        .router_bias = o->step.update.bias_rate > 0};
  memcpy(model.length, o->step.batch.length, sizeof model.length);
  int code = model_build(g, config, &model, &outputs, error);
  if (!code) return compile_built(g, outputs.loss_sum, o, out, error);
  graph_destroy(g);
  return code;
}

int compile_built(Graph *g, int loss_sum, const CompileOptions *o, Graph **out, Error *error) {
  int code = PLAIT_OK;
  g->loss = loss_sum;
  for (size_t i = 0; i < sizeof passes / sizeof *passes && !code; i++) {
    CHECK(g->form == passes[i].takes, "%s: the graph is not of its form", passes[i].name);
    code = passes[i].run(&g, o, error);
    if (!code) g->form = passes[i].leaves;
    if (!code) code = graph_verify(g, passes[i].name, error);
    if (o->after && !strcmp(o->after, passes[i].name)) break;
  }
  if (code) graph_destroy(g);
  else *out = g;
  return code;
}
