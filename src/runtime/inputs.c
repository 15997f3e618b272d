// Inputs: found for each step, copied where the device has its own memory, and waited for where they come late.
#include "runtime/inputs.h"
#include "base/fault.h"
#include "runtime/bind.h"

static int find_inputs(Binding *b, const StepInputs *given, StepInput *input, Error *error) {
  const Graph *g = b->program->graph;
  for (int i = 0; i < g->input.count; i++) {
    const GraphInput *in = &g->input.data[i];
    input[i] = in->id < given->count ? given->of[in->id] : (StepInput){0};
    if (!input[i].base && FAULT(input_is_not_bound, 1, 0))
      return error_set(error, PLAIT_FAILED, "the graph reads the input %s (%s), and the step does not give it",
                       in->name, input_def(in->id)->what);
  }
  return PLAIT_OK;
}

const char *binding_input_address(const Binding *b, int input, int set, int microbatch) {
  const StepInput *in = &b->input[set].of[input];
  Rows rows = b->input_rows[input];
  const Shares *shares = b->program->shares;
  int64_t offset = microbatch * in->stride;
  if (in->lies && rows.count)
    offset = in->stride * (in->lies == LIES_BY_ROW
                               ? shares_rows_before(shares, microbatch, rows.first, rows.count)
                               : shares_first(shares, microbatch, FAULT(own_inputs_of_one_rank, rows.first, 0)));
  else if (in->lies) offset = 0;
  return (const char *)in->base + offset;
}

static int set_of_turn(const Binding *b) { return (int)(b->turn.step % b->program->schedule->steps); }

static char *copies_of_set(const Binding *b, int set) {
  const Program *p = b->program;
  return b->state->in[0].work + program_input_offset(p) + set * (p->input_bytes / p->schedule->steps);
}

// Where data ranks' rows begin ---------------------------------------------------------------------------------------

static int64_t begins_at(const Binding *b, int microbatch) {
  return microbatch * (int64_t)(b->program->shares->ranks + 1);
}

const int64_t *binding_host_begins(const Binding *b, int microbatch) {
  const int64_t *begins = b->input[set_of_turn(b)].begins;
  return begins ? begins + begins_at(b, microbatch) : NULL;
}

const int64_t *binding_rank_begins(const Binding *b, int microbatch) {
  const int64_t *host = binding_host_begins(b, microbatch);
  if (!host || FAULT(begins_stay_on_the_host, b->program->device->space[0].is_host, 1)) return host;
  const char *copy = copies_of_set(b, set_of_turn(b)) + b->program->begins_offset;
  return (const int64_t *)(const void *)copy + begins_at(b, microbatch);
}

// They may have changed since the last step.
static void find_begins(Binding *b, int set) {
  const Program *p = b->program;
  int64_t *begins = b->input[set].begins;
  for (int m = 0; begins && m < p->schedule->microbatches; m++)
    shares_begins(p->shares, m, begins + m * (p->shares->ranks + 1));
  if (begins && !p->device->space[0].is_host)
    device_copy(b->state->queue, DEVICE_FROM_HOST, 0, copies_of_set(b, set) + p->begins_offset, begins,
                program_begins_bytes(p));
}

// Inputs of the graph ------------------------------------------------------------------------------------------------

// The copies have a separate queue; kernels come after them.
static void copy_input(Binding *b, int set, int i) {
  const Program *p = b->program;
  int microbatches;
  int64_t bytes = program_input_bytes(p, i, &microbatches), stride = round_up(bytes, p->device->space[0].alignment);
  char *to = copies_of_set(b, set) + p->input_offset[i];
  StepInput from = b->input[set].of[i];
  int in_micro = p->graph->input.data[i].region == REGION_MICRO;
  for (int m = 0; m < microbatches && from.base; m++) {
    int64_t there = from.lies ? rows_valid(p, b->input_rows[i], in_micro ? m : -1) * from.stride : bytes;
    device_copy(b->state->queue, DEVICE_FROM_HOST, 0, to + m * stride, binding_input_address(b, i, set, m), there);
  }
  b->input[set].of[i] = (StepInput){from.base ? to : NULL, stride, LIES_BY_MICROBATCH};
}

// Those that are filled then.
static void copy_inputs(Binding *b, int set, InputFilled filled) {
  const Graph *g = b->program->graph;
  if (b->program->device->space[0].is_host) return;
  for (int i = 0; i < g->input.count; i++) {
    if (g->input.data[i].filled == filled) copy_input(b, set, i);
  }
  UNLESS_FAULT(kernels_come_before_inputs) device_follow(b->queue, device_record(b->state->queue));
}

int binding_inputs(Binding *b, const StepInputs *given, int64_t step, Error *error) {
  int set = (int)(step % b->program->schedule->steps);
  int code = find_inputs(b, given, b->input[set].of, error);
  if (code) return code;
  find_begins(b, set);
  copy_inputs(b, set, FILLED_BEFORE);
  b->input[set].late = &given->late;
  return PLAIT_OK;
}

int binding_wait_inputs(Binding *b, Error *error) {
  int set = set_of_turn(b), code = PLAIT_OK;
  const LateInputs *late = b->input[set].late;
  if (!late) return PLAIT_OK;
  if (late->wait) code = FAULT(late_input_is_not_awaited, late->wait(late->self, error), PLAIT_OK);
  if (code) return code;
  b->input[set].late = NULL;
  copy_inputs(b, set, FILLED_LATE);
  return PLAIT_OK;
}
