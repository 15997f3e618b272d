// The BEGIN and END regions of a step: what is done once for all microbatches.
#include "base/fault.h"
#include "op/build.h"
#include "op/optimizer.h"
#include "compile/delay.h"
#include "compile/losses.h"
#include "compile/update.h"

static void enter(Graph *g, Region region) {
  g->region = region;
  g->phase = PHASE_FORWARD;
  g->layer = -1;
  g->scope = region == REGION_BEGIN ? "begin" : region == REGION_END ? "end" : "loss";
}

static int count_targets(Graph *g, const CompileOptions *o, int variable) {
  InputSizes sizes = {.step_samples = o->microbatches * o->micro_samples, .length = o->step.batch.length};
  int targets = graph_known_input(g, INPUT_STEP_TARGETS, &sizes);
  int counted = op_count_targets(g, "count_targets", targets);
  graph_bind(g, counted, variable, -1);
  return counted;
}

// BEGIN's count of target tokens, MICRO's sum of losses, END's mean: shared by training
// and evaluation.
static int build_loss(Graph *g, int loss_sum, const CompileOptions *o) {
  int sum = graph_known(g, KNOWN_LOSS_SUM), count = graph_known(g, KNOWN_TARGET_COUNT);
  int loss = graph_known(g, KNOWN_LOSS);
  enter(g, REGION_BEGIN);
  double fixed = o->step.update.count;
  int counted = fixed > 0 ? op_fill(g, "count", count, fixed) : count_targets(g, o, count);
  op_fill(g, "zero_loss", sum, 0);
  enter(g, REGION_MICRO);
  g->layer = g->node.data[graph_tensor(g, loss_sum)->producer].layer;
  op_accumulate(g, "accumulate", graph_read(g, sum), loss_sum);
  enter(g, REGION_END);
  graph_bind(g, op_mean_loss(g, "mean_loss", graph_read(g, sum), graph_read(g, count)), loss, -1);
  return counted;
}

void evaluation_build(Graph *g, int loss_sum, const CompileOptions *o) {
  build_loss(g, loss_sum, o);
  enter(g, REGION_MICRO);
  g->scope = "";
}

// Inputs that all updates of a region share: () each.
typedef struct UpdateInputs { int lr, factor, skip, step; } UpdateInputs;

static void update_parameter(Graph *g, int w, int gradient, const UpdateInputs *in, const CompileOptions *o) {
  const StepUpdate *u = &o->step.update;
  const Variable *parameter = &g->variable.data[graph_tensor(g, w)->variable];
  OptimizerAttr attr = {u->beta1, u->beta2, u->epsilon, u->momentum, parameter->weight_decay ? u->decay : 0,
                        u->muon_scale};
  int lr = parameter->learning_rate == 1 ? in->lr : op_scale(g, "learning_rate", in->lr, parameter->learning_rate);
  op_optimizer(g, u->optimizer, w, gradient, lr, in->factor, in->skip, in->step, &attr);
}

// The loss scale as a Variable that checkpoints hold: where the run starts says nothing about where the scale is. -1:
// none.
static int loss_scale(Graph *g, const CompileOptions *o) {
  if (o->step.update.loss_scale <= 0) return -1;
  int scale = graph_known(g, KNOWN_LOSS_SCALE);
  g->variable.data[scale].init = (Init){INIT_CONSTANT, o->step.update.loss_scale};
  return graph_read(g, scale);
}

// One gradient, complete and placed as its parameter's storage. When asked a dump of it is kept, without the loss
// scale.
static int reduced_gradient(Graph *g, int gradient, int parameter, int scale, int dump) {
  int reduced = op_identity(g, "gradient", gradient);
  graph_tensor(g, reduced)->role = ROLE_WEIGHT_GRADIENT;
  graph_tensor(g, reduced)->parameter = parameter;
  if (dump)
    graph_bind(g, scale < 0 ? op_identity(g, "dump", reduced) : op_unscale(g, "dump", reduced, scale),
               graph_known_of(g, OF_DUMP, parameter), -1);
  return reduced;
}

// ---- updates in backward --------------------------------------------------------------------------------------------

// MICRO reads from these Variables, which BEGIN has set, the learning rate and the number of the step. As the norm is
// known only when everything has been applied, the gradients' factor is 1 and no step is skipped.

static UpdateInputs inputs_in_backward(Graph *g) {
  return (UpdateInputs){.lr = graph_read(g, graph_known(g, KNOWN_UPDATE_RATE)),
                        .factor = graph_read(g, graph_known(g, KNOWN_UPDATE_FACTOR)),
                        .skip = graph_read(g, graph_known(g, KNOWN_UPDATE_SKIP)),
                        .step = graph_read(g, graph_known(g, KNOWN_OPTIMIZER_STEP))};
}

void update_in_backward(Graph *g, int parameter, int gradient, const CompileOptions *o) {
  const char *scope = g->scope;
  UpdateInputs inputs = inputs_in_backward(g);
  g->update = 1;
  g->scope = arena_format(&g->arena, "update.%s", g->variable.data[parameter].name);
  int reduced = reduced_gradient(g, gradient, parameter, -1, o->step.update.dump_gradients);
  graph_bind(g, op_sum_squares(g, "sum_squares", reduced), graph_known_of(g, OF_SQUARE, parameter), -1);
  update_parameter(g, graph_read_apart(g, parameter), reduced, &inputs, o);
  g->update = 0;
  g->scope = scope;
}

static void begin_in_backward(Graph *g) {
  int lr = graph_known_input(g, INPUT_LEARNING_RATE, &(InputSizes){0});
  graph_bind(g, op_identity(g, "rate", lr), graph_known(g, KNOWN_UPDATE_RATE), -1);
  op_advance(g, "advance", graph_read(g, graph_known(g, KNOWN_OPTIMIZER_STEP)),
             graph_read(g, graph_known(g, KNOWN_UPDATE_SKIP)));
}

// ---- the whole update ----------------------------------------------------------------------------------------------

// Terms of the norm: of what is in `gradient`, and of what was applied in backward.
static int sum_of_squares(Graph *g, const int *gradient, int n) {
  Vec(int) squares = {0};
  for (int i = 0; i < n; i++) {
    g->scope = arena_format(&g->arena, "norm.%s", g->variable.data[graph_tensor(g, gradient[i])->parameter].name);
    vec_push(&squares,
             op_sum_squares(g, "sum_squares", FAULT(norm_counts_a_term_twice, gradient[i], gradient[i ? i : n - 1])));
  }
  for (int v = 0; v < g->variable.count; v++) {
    int square = graph_find_of(g, OF_SQUARE, v);
    if (square >= 0) vec_push(&squares, graph_read(g, square));
  }
  g->scope = "end";
  int terms = FAULT(norm_lacks_a_term, squares.count, squares.count - 1);
  int sum = terms == 1 ? squares.data[0] : terms ? op_add(g, "norm", squares.data, terms) : -1;
  vec_free(&squares);
  return sum;
}

// Gradients that MICRO adds to, not those that it stores.
static void zero_accumulators(Graph *g) {
  char *added = xcalloc((size_t)g->variable.count + 1, 1);
  for (int i = 0; i < g->node.count; i++) {
    int v = node_is(&g->node.data[i], ROLE_ACCUMULATE) ? graph_tensor(g, g->node.data[i].output[0])->variable : -1;
    if (v >= 0) added[v] = g->variable.data[v].kind == VARIABLE_GRADIENT;
  }
  for (int v = 0, n = g->variable.count; v < n; v++) {
    if (!added[v]) continue;
    g->scope = arena_format(&g->arena, "begin.%s", g->variable.data[v].name);
    UNLESS_FAULT(accumulate_not_zeroed) op_fill(g, "zero", v, 0);
  }
  free(added);
}

static void begin(Graph *g, int counted, int delayed, const CompileOptions *o) {
  enter(g, REGION_BEGIN);
  int scale = loss_scale(g, o);
  graph_bind(g, op_gradient_seed(g, "seed", counted, scale), graph_known(g, KNOWN_GRADIENT_SEED), -1);
  losses_begin(g, scale, o);
  g->scope = "begin";
  if (o->step.update.in_backward) begin_in_backward(g);
  zero_accumulators(g);
  g->scope = "begin";
  if (delayed) delay_begin(g);
}

// Norm, and what follows from it; returns what END's updates read.
static UpdateInputs end_inputs(Graph *g, int sum_squares, int scale, const CompileOptions *o) {
  const ScheduleGenerator *schedule = o->parallel.pipeline.schedule;
  int norm, factor, skip,
      lr = o->step.update.in_backward ? -1 : graph_known_input(g, INPUT_LEARNING_RATE, &(InputSizes){0});
  op_clip(g, "clip", sum_squares, scale, o->step.update.trials ? lr : -1, o->step.update.clip, &norm, &factor, &skip);
  graph_bind(g, norm, graph_known(g, KNOWN_GRAD_NORM), -1);
  graph_bind(g, skip, graph_known(g, KNOWN_SKIP), -1);
  if (o->step.update.in_backward) return inputs_in_backward(g); // as those that were applied already
  if (FAULT(at_once_waits_for_the_norm, schedule && schedule->at_once, 0)) {
    factor = graph_read(g, graph_known(g, KNOWN_UPDATE_FACTOR));
    skip = graph_read(g, graph_known(g, KNOWN_UPDATE_SKIP));
  }
  return (UpdateInputs){lr, factor, skip,
                        op_advance(g, "advance", graph_read(g, graph_known(g, KNOWN_OPTIMIZER_STEP)), skip)};
}

int update_build(Graph *g, int loss_sum, const CompileOptions *o, Error *error) {
  const ScheduleGenerator *schedule = o->parallel.pipeline.schedule;
  int counted = build_loss(g, loss_sum, o), delayed = delay_parameters(g, &o->step.update.delay);
  enter(g, REGION_MICRO);
  losses_micro(g);
  begin(g, counted, delayed, o);
  enter(g, REGION_END);
  int *gradient = arena_array(&g->arena, int, g->variable.count), n = 0, scale = loss_scale(g, o);
  for (int v = 0, count = g->variable.count; v < count; v++) {
    if (g->variable.data[v].kind != VARIABLE_GRADIENT) continue;
    int parameter = g->variable.data[v].parameter;
    g->scope = arena_format(&g->arena, "reduce.%s", g->variable.data[parameter].name);
    gradient[n++] = reduced_gradient(g, graph_read(g, v), parameter, scale, o->step.update.dump_gradients);
  }
  int sum = sum_of_squares(g, gradient, n);
  if (sum < 0) return error_set(error, PLAIT_BAD_INPUT, "the model has no parameter that the loss depends on");
  UpdateInputs inputs = end_inputs(g, sum, scale, o);
  if (delayed) delay_end(g, inputs.skip, schedule && schedule->streams);
  for (int i = 0; i < n; i++) {
    int parameter = graph_tensor(g, gradient[i])->parameter;
    g->scope = arena_format(&g->arena, "update.%s", g->variable.data[parameter].name);
    update_parameter(g, graph_read(g, parameter), gradient[i], &inputs, o);
  }
  g->scope = "end";
  if (scale >= 0) // also where it stays, so that a run may continue with a scale that moves
    op_loss_scale(g, "loss_scale", scale, graph_read(g, graph_known(g, KNOWN_LOSS_SCALE_GOOD_STEPS)), inputs.skip,
                  o->step.update.loss_scale_interval);
  losses_end(g, inputs.skip, o);
  enter(g, REGION_MICRO);
  g->scope = "";
  return PLAIT_OK;
}
