#include "runtime/exchanged_rows.h"
#include "base/fault.h"
#include "op/expert_rows.h"
#include "runtime/mask_rows.h"

// Of the exchanges between two masks: that of a rank's tokens, and that of its experts.
struct ExchangedRows {
  int tokens, experts; // their numbers (Binding.mask)
  int ranks;
  DeviceBound kernel; // of the op that counts
  KernelCall call;
  Operand mask[2], out;
  double *count; // (steps under way, microbatches, 2, ranks)
  ExchangedRows *next;
};

static const RowParts *parts_of(const Bound *b) {
  return &((const ExchangeAttr *)(const void *)b->node->attr)->parts;
}

// The inputs of an exchange: 1 is the mask of what it sends, 2 that of what it receives.
static int tokens_input(const Bound *b) { return parts_of(b)->home ? 2 : 1; }
static int experts_input(const Bound *b) { return parts_of(b)->home ? 1 : 2; }

static int bind_kernel(Binding *binding, const Bound *b, ExchangedRows *x, Error *error) {
  const Device *device = binding->queue->device;
  DeviceKernel kernel;
  x->mask[0] = b->input[tokens_input(b)];
  x->mask[1] = b->input[experts_input(b)];
  x->out =
      (Operand){.dtype = DTYPE_F64, .rank = 2, .size = {2, x->ranks}, .map = {index_whole(2), index_whole(x->ranks)}};
  x->call = (KernelCall){.ninput = 2,
                         .noutput = 1,
                         .input = x->mask,
                         .output = &x->out,
                         .attr = parts_of(b),
                         .parameters = &binding->parameters,
                         .queue = binding->queue};
  int code = device_kernel(device, op_def(b->node->op)->counts, DTYPE_F64, b->node->name, &kernel, error);
  return code ? code : device->implementation->bind(device, &kernel, &x->call, &binding->arena, &x->kernel, error);
}

int exchanged_rows_bind(Binding *binding, Bound *b, int64_t ranks, Error *error) {
  const Schedule *s = binding->program->schedule;
  const int tokens = binding->mask[b->tensor[tokens_input(b)]] - 1,
            experts = binding->mask[b->tensor[experts_input(b)]] - 1;
  CHECK(ranks == row_parts(parts_of(b)), "%s: an exchange of %d parts over %lld ranks", b->node->name,
        row_parts(parts_of(b)), (long long)ranks);
  for (ExchangedRows *x = binding->exchanged; x; x = x->next)
    if (x->tokens == tokens && x->experts == experts) return b->exchanged = x, PLAIT_OK;
  ExchangedRows *x = b->exchanged = arena_array(&binding->arena, ExchangedRows, 1);
  *x = (ExchangedRows){.tokens = tokens, .experts = experts, .ranks = (int)ranks, .next = binding->exchanged};
  x->count = arena_array(&binding->arena, double, s->steps * s->microbatches * 2 * ranks);
  binding->exchanged = x;
  return bind_kernel(binding, b, x, error);
}

// Of the microbatch under way.
static double *counts(const Binding *b, const ExchangedRows *x) {
  const Schedule *s = b->program->schedule;
  return x->count + (b->turn.step % s->steps * s->microbatches + b->parameters.microbatch) * 2 * x->ranks;
}

int exchanged_rows_count(Binding *binding, const Bound *b, Error *error) {
  ExchangedRows *x = b->exchanged;
  if (!x || FAULT(rows_are_counted_again, mask_rows_known(binding, x->experts), 0)) return PLAIT_OK;
  double *count = counts(binding, x);
  x->mask[0] = b->input[tokens_input(b)];
  x->mask[1] = b->input[experts_input(b)];
  x->out.data = b->call.workspace;
  device_run(binding->queue, &x->kernel, &x->call);
  device_copy(binding->queue, DEVICE_TO_HOST, 0, count, x->out.data, 2 * x->ranks * (int64_t)sizeof *count);
  int code = FAULT(counts_are_read_before_they_come, device_drain(binding->queue, error), PLAIT_OK);
  if (code) return code;
  int64_t rows[2] = {0};
  for (int k = 0; k < 2 * x->ranks; k++) rows[k / x->ranks] += (int64_t)count[k];
  mask_rows_note(binding, x->tokens, rows[0]);
  mask_rows_note(binding, x->experts, rows[1]);
  return PLAIT_OK;
}

void exchanged_rows(const Binding *binding, const Bound *b, const double **sent, const double **received) {
  const double *count = counts(binding, b->exchanged);
  const int home = parts_of(b)->home, ranks = b->exchanged->ranks;
  *sent = count + home * ranks;
  *received = count + !home * ranks;
}
