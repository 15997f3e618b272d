#include "runtime/mask_rows.h"
#include "base/fault.h"

// A mask on its way to the host.
struct MaskCopy {
  uint8_t *byte;
  int64_t bytes;
  DeviceEvent copied;
  int64_t *rows; // where their number is wanted; NULL: nothing is on its way
};

enum { NOT_COUNTED = -1 };

// Whose rows an exchange of rows counts: of the tokens that a rank sends, of its experts that others send to; bits.
enum { MASK_OF_TOKENS = 1, MASK_OF_EXPERTS = 2 };

static void find_exchanged(Binding *b) {
  const Graph *g = b->program->graph;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!node_calls(n, COMM_ALL_TO_ALL_V)) continue;
    const int home = ((const ExchangeAttr *)(const void *)n->attr)->parts.home;
    CHECK(b->mask[n->input[1]] && b->mask[n->input[2]], "%s exchanges rows of no mask", n->name);
    b->mask_exchanged[b->mask[n->input[1]] - 1] |= home ? MASK_OF_EXPERTS : MASK_OF_TOKENS;
    b->mask_exchanged[b->mask[n->input[2]] - 1] |= home ? MASK_OF_TOKENS : MASK_OF_EXPERTS;
  }
}

// The most rows of a token, of masks whose rows need not be counted when they are written: those of all experts, of
// which each token has as many as it has choices, and those that an exchange counts.
static void bind_bounds(Binding *b) {
  const Graph *g = b->program->graph;
  for (int i = 0; i < g->tensor.count; i++) {
    const Tensor *t = &g->tensor.data[i];
    if (!tensor_is_compact(t)) continue;
    const int mask = b->mask[t->mask] - 1;
    const int64_t here = tensor_local(g, graph_tensor(g, t->mask))[2];
    if (here == t->shape.size[2] || b->mask_exchanged[mask] & MASK_OF_TOKENS)
      b->mask_most[mask] = t->choices < here ? t->choices : here;
  }
}

// Masks are numbered as compact tensors name them.
void mask_rows_bind(Binding *b) {
  const Graph *g = b->program->graph;
  const Schedule *s = b->program->schedule;
  int count = 0;
  b->mask = arena_array(&b->arena, int, g->tensor.count + 1);
  for (int i = 0; i < g->tensor.count; i++)
    if (tensor_is_compact(&g->tensor.data[i]) && !b->mask[g->tensor.data[i].mask])
      b->mask[g->tensor.data[i].mask] = ++count;
  b->mask_tensor = arena_array(&b->arena, int, count + 1);
  for (int i = 0; i < g->tensor.count; i++)
    if (b->mask[i]) b->mask_tensor[b->mask[i] - 1] = i;
  b->mask_rows = arena_array(&b->arena, int64_t, s->steps * count * s->microbatches + 1);
  b->mask_exchanged = arena_array(&b->arena, uint8_t, count + 1);
  find_exchanged(b);
  if (b->program->device->space[0].is_host) return;
  b->mask_copy = arena_array(&b->arena, MaskCopy, count + 1);
  b->mask_most = arena_array(&b->arena, int64_t, count + 1);
  if (b->program->device->bounds_rows) bind_bounds(b);
  for (int i = 0; i < g->tensor.count; i++)
    if (b->mask[i] && !b->mask_most[b->mask[i] - 1] && !(b->mask_exchanged[b->mask[i] - 1] & MASK_OF_EXPERTS))
      b->mask_copy[b->mask[i] - 1].byte = arena_array(&b->arena, uint8_t, tensor_local_elements(g, &g->tensor.data[i]));
}

static int64_t *rows_in(const Binding *b, int mask, int microbatch) {
  const Schedule *s = b->program->schedule;
  return &b->mask_rows[((int64_t)mask * s->steps + b->turn.step % s->steps) * s->microbatches + microbatch];
}

static int64_t sum(const uint8_t *byte, int64_t n) {
  int64_t rows = 0;
  for (int64_t i = 0; i < n; i++) rows += byte[i];
  return rows;
}

static void note(int64_t *at, int64_t rows) { *at = FAULT(one_row_too_few, rows, rows > 0 ? rows - 1 : 0); }

static int finish(MaskCopy *copy, Error *error) {
  int code = FAULT(rows_are_counted_before_they_come, device_wait(copy->copied, error), PLAIT_OK);
  if (!code) note(copy->rows, sum(copy->byte, copy->bytes));
  copy->rows = NULL;
  return code;
}

// At once, piece by piece.
static int count_now(const Binding *b, const char *mask, int64_t n, int64_t *at, Error *error) {
  enum { AT_ONCE = 1 << 12 };
  uint8_t piece[AT_ONCE];
  int64_t rows = 0;
  for (int64_t from = 0; from < n; from += AT_ONCE) {
    int64_t count = n - from < AT_ONCE ? n - from : AT_ONCE;
    device_copy(b->queue, DEVICE_TO_HOST, 0, piece, mask + from, count);
    int code = device_drain(b->queue, error);
    if (code) return code;
    rows += sum(piece, count);
  }
  note(at, rows);
  return PLAIT_OK;
}

int mask_rows_count(Binding *b, const Bound *bound, Error *error) {
  int code = PLAIT_OK;
  for (int k = 0; k < bound->node->noutput && !code; k++) {
    int mask = b->mask[bound->node->output[k]] - 1;
    if (mask < 0) continue;
    int64_t *rows = rows_in(b, mask, (int)b->parameters.microbatch);
    if (b->mask_exchanged[mask] & MASK_OF_EXPERTS) {
      *rows = NOT_COUNTED;
      continue;
    }
    if (!b->mask_copy) {
      code = count_now(b, bound->output[k].data, operand_elements(&bound->output[k]), rows, error);
      continue;
    }
    if (b->mask_most[mask]) {
      *rows = operand_extent(&bound->output[k], 0, 2) * b->mask_most[mask];
      continue;
    }
    MaskCopy *copy = &b->mask_copy[mask];
    if (copy->rows) code = finish(copy, error); // of another microbatch
    copy->bytes = operand_elements(&bound->output[k]);
    copy->rows = rows;
    device_copy(b->queue, DEVICE_TO_HOST, 0, copy->byte, bound->output[k].data, copy->bytes);
    copy->copied = device_record(b->queue);
  }
  return code;
}

int mask_rows_known(const Binding *b, int mask) {
  return *rows_in(b, mask, (int)b->parameters.microbatch) != NOT_COUNTED;
}

void mask_rows_note(Binding *b, int mask, int64_t rows) {
  note(rows_in(b, mask, (int)b->parameters.microbatch), rows);
}

int mask_rows(Binding *b, int mask, int microbatch, int64_t *rows, Error *error) {
  const int64_t *at = rows_in(b, mask, microbatch);
  MaskCopy *copy = b->mask_copy ? &b->mask_copy[mask] : NULL;
  int code = copy && copy->rows == at ? finish(copy, error) : PLAIT_OK;
  *rows = *at;
  if (code || *at != NOT_COUNTED) return code;
  // Something other than an exchange asks first: in no graph of plait's, but where a test has replaced the exchange.
  const Graph *g = b->program->graph;
  const int tensor = b->mask_tensor[mask];
  return count_now(b, binding_address(b, tensor, microbatch, b->turn),
                   tensor_local_elements(g, graph_tensor(g, tensor)), rows, error);
}
