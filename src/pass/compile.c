// Runs the passes in order, verifying between them.
#include "pass/compile.h"
#include <string.h>

const char *const *compile_passes(void) {
  static const char *const names[] = {
#define X(name) #name,
      PASSES(X)
#undef X
          NULL};
  return names;
}

typedef struct Compile {
  const CompileOptions *o;
  Graph *g;
  int loss_sum;
} Compile;

static int run_autodiff(Compile *c, Error *error) {
  const CompileOptions *o = c->o;
  if (o->mode == MODEL_GENERATE) return PLAIT_OK;
  if (o->mode == MODEL_EVALUATE) return pass_evaluate(c->g, c->loss_sum, o->step_samples, o->seq, error);
  UpdateOptions update = o->update;
  update.samples = o->step_samples;
  update.seq = o->seq;
  update.one_microbatch = o->micro_samples == o->step_samples;
  int code = pass_autodiff(c->g, c->loss_sum, &update, error);
  return code ? code : pass_update(c->g, c->loss_sum, &update, error);
}

static int run_stage(Compile *c, Error *error) { return pass_stage(c->g, c->o->stages, c->o->cut_given ? c->o->layers : NULL, error); }
static int run_precision(Compile *c, Error *error) {
  if (c->o->bf16_gradients) pass_precision_gradients(c->g, DTYPE_BF16);
  return pass_precision(c->g, c->o->precision, error);
}
static int run_place(Compile *c, Error *error) { return pass_place(c->g, &c->o->mesh, &c->o->layout, error); }
static int run_zero(Compile *c, Error *error) { return pass_zero(c->g, &c->o->mesh, &c->o->layout, error); }

static int run_recompute(Compile *c, Error *error) {
  return c->o->mode == MODEL_TRAIN ? pass_recompute(c->g, c->o->recompute, c->o->recompute_layers, error) : PLAIT_OK;
}

static int replace(Compile *c, int code, Graph **next) {
  if (code) return code;
  graph_destroy(c->g);
  c->g = *next;
  return PLAIT_OK;
}

static int run_partition(Compile *c, Error *error) {
  Graph *next = NULL;
  return replace(c, pass_partition(c->g, &c->o->mesh, &next, error), &next);
}

static int run_fuse(Compile *c, Error *error) {
  Graph *next = NULL;
  return replace(c, pass_fuse(c->g, &next, error), &next);
}

static int run_ahead(Compile *c, Error *error) {
  if (!c->o->layout.bucket_bytes) return PLAIT_OK;
  Graph *next = NULL;
  return replace(c, pass_ahead(c->g, &next, error), &next);
}

static int run_bucket(Compile *c, Error *error) {
  Graph *next = NULL;
  return replace(c, pass_bucket(c->g, c->o->layout.bucket_bytes, &next, error), &next);
}

static const struct { const char *name; int (*run)(Compile *, Error *); } passes[] = {
#define X(name) {#name, run_##name},
    PASSES(X)
#undef X
};

int compile_graph(const ModelConfig *config, const CompileOptions *o, Graph **out, Error *error) {
  Graph *g = graph_create();
  ModelOutputs outputs = {-1, -1};
  ModelOptions model = {.batch = o->micro_samples, .seq = o->seq, .mode = o->mode};
  int code = model_build(g, config, &model, &outputs, error);
  if (!code) return compile_built(g, outputs.loss_sum, o, out, error);
  graph_destroy(g);
  return code;
}

int compile_built(Graph *g, int loss_sum, const CompileOptions *o, Graph **out, Error *error) {
  Compile c = {o, g, loss_sum};
  int code = PLAIT_OK;
  for (size_t i = 0; i < sizeof passes / sizeof *passes && !code; i++) {
    code = passes[i].run(&c, error);
    if (!code) code = graph_verify(c.g, passes[i].name, error);
    if (o->after && !strcmp(o->after, passes[i].name)) break;
  }
  if (code) graph_destroy(c.g);
  else *out = c.g;
  return code;
}
