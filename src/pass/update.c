// The BEGIN and END regions of a step: what is done once for all microbatches.
#include "op/build.h"
#include "pass/pass.h"
#include <string.h>

static const Shape scalar = {0};

static int find_or_add(Graph *g, const char *name, VariableKind kind) {
  int v = graph_find_variable(g, name);
  return v >= 0 ? v : graph_variable(g, name, kind, DTYPE_F64, scalar, (Init){0});
}

static void enter(Graph *g, Region region) {
  g->region = region;
  g->phase = PHASE_FORWARD;
  g->layer = -1;
  g->scope = region == REGION_BEGIN ? "begin" : region == REGION_END ? "end" : "loss";
}

static int count_targets(Graph *g, int64_t samples, int64_t seq, int variable) {
  int targets = graph_input(g, "step_targets", DTYPE_I32, shape_of(2, (int64_t[]){samples, seq}, (DimName[]){DIM_BATCH, DIM_SEQ}));
  int counted = op_count_targets(g, "count_targets", targets);
  graph_bind(g, counted, variable, -1);
  return counted;
}

// BEGIN's count of target tokens (`fixed`, where it is not 0), MICRO's sum of losses, END's mean: shared by training and evaluation.
static int build_loss(Graph *g, int loss_sum, int64_t samples, int64_t seq, double fixed) {
  int sum = find_or_add(g, "loss_sum", VARIABLE_METRIC), count = find_or_add(g, "target_count", VARIABLE_METRIC);
  int loss = find_or_add(g, "loss", VARIABLE_METRIC);
  enter(g, REGION_BEGIN);
  int counted = fixed > 0 ? op_fill(g, "count", count, fixed) : count_targets(g, samples, seq, count);
  op_fill(g, "zero_loss", sum, 0);
  enter(g, REGION_MICRO);
  g->layer = g->node.data[graph_tensor(g, loss_sum)->producer].layer;
  op_accumulate(g, "accumulate", graph_read(g, sum), loss_sum);
  enter(g, REGION_END);
  graph_bind(g, op_mean_loss(g, "mean_loss", graph_read(g, sum), graph_read(g, count)), loss, -1);
  return counted;
}

int pass_evaluate(Graph *g, int loss_sum, int64_t samples, int64_t seq, Error *error) {
  build_loss(g, loss_sum, samples, seq, 0);
  enter(g, REGION_MICRO);
  g->scope = "";
  return PLAIT_OK;
}

static int like_parameter(Graph *g, const char *prefix, int parameter, VariableKind kind) {
  const Variable *p = &g->variable.data[parameter];
  int v = graph_variable(g, arena_format(&g->arena, "%s.%s", prefix, p->name), kind, p->dtype, p->shape, (Init){0});
  g->variable.data[v].parameter = parameter;
  return v;
}

static void update_parameter(Graph *g, int parameter, int gradient, int lr, int factor, int skip, int step, const UpdateOptions *o) {
  double decay = g->variable.data[parameter].decay ? o->decay : 0;
  g->scope = arena_format(&g->arena, "update.%s", g->variable.data[parameter].name);
  if (!strcmp(o->optimizer, "sgd")) {
    SgdAttr attr = {o->momentum, decay};
    int momentum = o->momentum ? graph_read(g, like_parameter(g, "momentum", parameter, VARIABLE_OPTIMIZER)) : -1;
    op_sgd(g, "sgd", graph_read(g, parameter), momentum, gradient, lr, factor, skip, &attr);
    return;
  }
  AdamwAttr attr = {o->beta1, o->beta2, o->epsilon, decay};
  int m = like_parameter(g, "moment1", parameter, VARIABLE_OPTIMIZER), v = like_parameter(g, "moment2", parameter, VARIABLE_OPTIMIZER);
  op_adamw(g, "adamw", graph_read(g, parameter), graph_read(g, m), graph_read(g, v), gradient, lr, factor, skip, step, &attr);
}

// The loss scale as a Variable that checkpoints hold: where the run starts says nothing about where the scale is. -1: none.
static int loss_scale(Graph *g, const UpdateOptions *o) {
  if (!(o->loss_scale > 0)) return -1;
  int v = graph_find_variable(g, "loss_scale");
  if (v < 0) v = graph_variable(g, "loss_scale", VARIABLE_COUNTER, DTYPE_F64, scalar, (Init){INIT_CONSTANT, o->loss_scale});
  return graph_read(g, v);
}

// One gradient, complete and placed as its parameter's storage; also kept for a dump when asked, without the loss scale.
static int reduced_gradient(Graph *g, int accumulator, int scale, int dump) {
  int parameter = g->variable.data[accumulator].parameter;
  g->scope = arena_format(&g->arena, "reduce.%s", g->variable.data[parameter].name);
  int gradient = op_identity(g, "gradient", graph_read(g, accumulator));
  graph_tensor(g, gradient)->role = ROLE_WEIGHT_GRADIENT;
  graph_tensor(g, gradient)->parameter = parameter;
  if (dump) graph_bind(g, scale < 0 ? op_identity(g, "dump", gradient) : op_unscale(g, "dump", gradient, scale), like_parameter(g, "dump", parameter, VARIABLE_METRIC), -1);
  return gradient;
}

int pass_update(Graph *g, int loss_sum, const UpdateOptions *o, Error *error) {
  int counted = build_loss(g, loss_sum, o->samples, o->seq, o->count);
  int variables = g->variable.count;
  enter(g, REGION_BEGIN);
  graph_bind(g, op_gradient_seed(g, "seed", counted, loss_scale(g, o)), find_or_add(g, "gradient_seed", VARIABLE_METRIC), -1);
  for (int v = 0; v < variables; v++)
    if (g->variable.data[v].kind == VARIABLE_GRADIENT) {
      g->scope = arena_format(&g->arena, "begin.%s", g->variable.data[v].name);
      op_fill(g, "zero", v, 0);
    }
  enter(g, REGION_END);
  int *gradient = arena_array(&g->arena, int, variables), *squares = arena_array(&g->arena, int, variables), n = 0;
  int scale = loss_scale(g, o);
  for (int v = 0; v < variables; v++) {
    if (g->variable.data[v].kind != VARIABLE_GRADIENT) continue;
    gradient[n] = reduced_gradient(g, v, scale, o->dump_gradients);
    n++;
  }
  if (!n) return error_set(error, PLAIT_BAD_INPUT, "the model has no parameter that the loss depends on");
  for (int i = 0; i < n; i++) {
    g->scope = arena_format(&g->arena, "norm.%s", g->variable.data[graph_tensor(g, gradient[i])->parameter].name);
    squares[i] = op_sum_squares(g, "sum_squares", gradient[i]);
  }
  g->scope = "end";
  int norm, factor, skip, lr = graph_input(g, "learning_rate", DTYPE_F64, scalar);
  op_clip(g, "clip", n > 1 ? op_add(g, "norm", squares, n) : squares[0], scale, o->clip, &norm, &factor, &skip);
  graph_bind(g, norm, find_or_add(g, "grad_norm", VARIABLE_METRIC), -1);
  graph_bind(g, skip, find_or_add(g, "skip", VARIABLE_METRIC), -1);
  int step = op_advance(g, "advance", graph_read(g, find_or_add(g, "optimizer_step", VARIABLE_COUNTER)), skip);
  for (int i = 0; i < n; i++) update_parameter(g, graph_tensor(g, gradient[i])->parameter, gradient[i], lr, factor, skip, step, o);
  g->scope = "end";
  if (scale >= 0) // also where it stays, so that a run may go on with a scale that moves
    op_loss_scale(g, "loss_scale", scale, graph_read(g, find_or_add(g, "loss_scale_good_steps", VARIABLE_COUNTER)), skip, o->loss_scale_interval);
  enter(g, REGION_MICRO);
  g->scope = "";
  return PLAIT_OK;
}
