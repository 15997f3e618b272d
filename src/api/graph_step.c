// Half by hand: steps, and the graph forward. See plait/graph.h.
#include "api/graph_build.h"
#include "base/fault.h"
#include "runtime/outputs.h"
#include <math.h>
#include <string.h>

// One call: what all ranks read, and where they write.
typedef struct Call {
  const PlaitTraining *t;
  const Graph *g; // training's or forward's
  const Shares *shares;
  const void *const *inputs;
  double learning_rate;
  uint64_t number;
  const OutputCopy *output;
} Call;

enum { CALL_INPUTS = INPUT_COUNT + API_GRAPH_INPUTS };

// Input i of those of the graph's own: the user's, or what stands for it.
static StepInput find_input(const Call *s, int i, const Tensor *x) {
  const PlaitTraining *t = s->t;
  int64_t row = shape_elements(&x->shape) / x->shape.size[0] * (int64_t)dtype_size(x->dtype);
  if (t->input[i].user < 0) return (StepInput){t->constant[i], row, LIES_BY_ROW_OF_ALL};
  const void *given = s->inputs[t->input[i].user];
  return given ? (StepInput){given, row, LIES_BY_ROW_OF_ALL} : (StepInput){.base = t->none};
}

// Ranks read their rows out of the whole step. BEGIN counts labels: of all of them every rank of dp takes as many as it
// has rows, whichever they are.
static StepInputs find_inputs(const Call *s, int rank, StepInput of[CALL_INPUTS]) {
  const PlaitTraining *t = s->t;
  StepInputs all = {.of = of, .count = INPUT_COUNT + t->inputs};
  of[INPUT_LEARNING_RATE] = (StepInput){.base = &s->learning_rate};
  for (int i = 0; i < s->g->input.count; i++) {
    const GraphInput *in = &s->g->input.data[i];
    if (input_own(in) >= 0) of[in->id] = find_input(s, input_own(in), graph_tensor(s->g, in->tensor));
  }
  if (t->labels < 0) return all;
  int64_t before =
      FAULT(labels_of_one_rank,
            shares_rows_before(s->shares, s->shares->microbatches, 0, mesh_coordinate(&t->at.mesh, rank, t->at.dp)), 0);
  StepInput *labels = &of[INPUT_STEP_TARGETS];
  *labels = of[INPUT_COUNT + t->labels];
  labels->lies = LIES_BY_ROW;
  labels->base = (const char *)labels->base + before * labels->stride;
  return all;
}

static int step_rank(Rank *r, void *step, Error *error) {
  const Call *s = step;
  StepInput of[CALL_INPUTS] = {0};
  StepInputs inputs = find_inputs(s, r->rank, of);
  return executor_run(r->train, s->number, &inputs, 0, error);
}

// Integers that are numbers of rows or classes: kernels take for granted that there is one.
static int check_integers(const PlaitTraining *t, const GraphInput *in, const Tensor *x, const int32_t *data,
                          Error *error) {
  int64_t limit = t->input[input_own(in)].limit, width = shape_elements(&x->shape) / x->shape.size[0];
  for (int64_t i = 0; limit && i < t->samples * width; i++)
    if (data[i] < -1 || data[i] >= limit)
      return error_set(error, PLAIT_BAD_INPUT,
                       "sample %lld of the input %s has %d; allowed: 0 to %lld, and -1 for none",
                       (long long)(i / width), in->name, data[i], (long long)limit - 1);
  return PLAIT_OK;
}

// targets: those that the loss alone reads are wanted too.
static int check_inputs(const PlaitTraining *t, const void *const *inputs, int targets, Error *error) {
  const Graph *g = job_train(t->job)->graph;
  int code = PLAIT_OK;
  for (int i = 0; i < g->input.count && !code; i++) {
    const GraphInput *in = &g->input.data[i];
    int own = input_own(in), user = own >= 0 ? t->input[own].user : -1;
    if (user < 0) continue;
    const Tensor *x = graph_tensor(g, in->tensor);
    if (inputs[user]) code = dtype_is_float(x->dtype) ? PLAIT_OK : check_integers(t, in, x, inputs[user], error);
    else if (targets || t->input[own].needed_forward)
      code = error_set(error, PLAIT_BAD_INPUT, "input %s of the step is NULL", in->name);
  }
  return code;
}

int plait_training_step(PlaitTraining *t, const void *const *inputs, double learning_rate, PlaitStepResult *result,
                        PlaitError *error) {
  int code = api_graph_usable(t, error);
  if (!code) code = check_inputs(t, inputs, 1, error);
  if (code) return code;
  if (!isfinite(learning_rate)) return error_set(error, PLAIT_BAD_INPUT, "the learning rate is not finite");
  const State *state = api_graph_rank(t)->state;
  const Compiled *c = job_train(t->job);
  Call s = {.t = t,
            .g = c->graph,
            .shares = &c->shares,
            .inputs = inputs,
            .learning_rate = learning_rate,
            .number = (uint64_t)state_scalar(state, KNOWN_OPTIMIZER_STEP) + 1};
  if ((code = session_run(t->session, step_rank, &s, error))) return code;
  if (result)
    *result = (PlaitStepResult){.loss = state_scalar(state, KNOWN_LOSS),
                                .gradient_norm = state_scalar(state, KNOWN_GRAD_NORM),
                                .skipped = state_scalar(state, KNOWN_SKIP) != 0};
  return PLAIT_OK;
}

int64_t plait_training_steps(const PlaitTraining *t) {
  return (int64_t)state_scalar(api_graph_rank(t)->state, KNOWN_OPTIMIZER_STEP);
}

// Forward ------------------------------------------------------------------------------------------------------------

// Of ranks that have the same samples, the first gives them.
static int gives(const PlaitTraining *t, int rank) {
  for (int a = 0; a < t->at.mesh.naxis; a++)
    if (a != t->at.dp && a != mesh_pipeline(&t->at.mesh) && mesh_coordinate(&t->at.mesh, rank, a)) return 0;
  return 1;
}

static int forward_rank(Rank *r, void *step, Error *error) {
  const Call *s = step;
  StepInput of[CALL_INPUTS] = {0};
  StepInputs inputs = find_inputs(s, r->rank, of);
  Outputs outputs = {s->shares, s->output, s->t->outputs};
  Executor *e = rank_executor(r, &role_evaluate);
  if (gives(s->t, r->rank)) executor_observe(e, OBSERVER_OUTPUTS, &outputs);
  int code = executor_run(e, s->number, &inputs, 0, error);
  executor_observe(e, OBSERVER_OUTPUTS, NULL);
  return code;
}

// Every sample is where one process has it, and 0 in the others.
static int share_outputs(PlaitTraining *t, const OutputCopy *output, Error *error) {
  PlaitDtype dtype = t->storage == DTYPE_F64 ? PLAIT_FP64 : PLAIT_FP32;
  for (int i = 0; i < t->outputs && t->comm; i++) {
    if (!output[i].data) continue;
    PlaitBuffer buffer = {output[i].data, output[i].data, (size_t)(t->samples * t->output_width[i])};
    if (!plait_all_reduce(t->comm, &buffer, 1, dtype, PLAIT_SUM, NULL, NULL)) continue;
    t->failed = 1;
    return plait_comm_failure(t->comm, error);
  }
  return PLAIT_OK;
}

// Whether an input is missing, so that there is no loss.
static int without_target(const PlaitTraining *t, const void *const *inputs) {
  for (int i = 0; i < t->inputs; i++)
    if (t->input[i].user >= 0 && !inputs[t->input[i].user]) return 1;
  return 0;
}

int plait_training_forward(PlaitTraining *t, const void *const *inputs, void *const *outputs, double *loss,
                           PlaitError *error) {
  int code = api_graph_usable(t, error);
  if (!code) code = check_inputs(t, inputs, 0, error);
  if (code) return code;
  const Compiled *c = job_find(t->job, &role_evaluate);
  OutputCopy *output = xcalloc((size_t)t->outputs + 1, sizeof *output);
  for (int i = 0; i < t->outputs && outputs; i++) {
    output[i] = (OutputCopy){t->output[i], outputs[i], t->storage};
    if (outputs[i]) memset(outputs[i], 0, (size_t)(t->samples * t->output_width[i]) * dtype_size(t->storage));
  }
  Call s = {.t = t, .g = c->graph, .shares = &c->shares, .inputs = inputs, .output = output};
  code = session_run(t->session, forward_rank, &s, error);
  if (!code) code = share_outputs(t, output, error);
  free(output);
  if (!code && loss) *loss = without_target(t, inputs) ? NAN : state_scalar(api_graph_rank(t)->state, KNOWN_LOSS);
  return code;
}
