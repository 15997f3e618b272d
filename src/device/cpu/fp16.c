// fp16 kernels by way of fp32: operands are widened into the workspace, the level's fp32 kernel runs, results are
// rounded. Correct, not fast: fp16 is for GPUs; on a CPU it is there so that what will run there can be tested here.
// Ops without products (sums, casts, accumulators of gradients, these in bf16 too) have separate loops.
#include "device/cpu/fp16.h"
#include <string.h>

enum { BLOCK = 512 }; // elements that are widened on the stack at a time

// One SIMD level's way to do it.
typedef struct HalfLevel {
  const KernelEntry *fp32; // its table
  const HalfConversion *fp16;
} HalfLevel;

static int64_t round_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
static int64_t wide_bytes(const Operand *x) {
  return x->dtype == DTYPE_F16 ? round_64(operand_elements(x) * (int64_t)sizeof(float)) : 0;
}

// Of a cache the kernel reads a few rows, and widens them itself.
static int stays_narrow(Op op, int k) { return op == OP_CACHE_ATTENTION && (k == 1 || k == 2); }

static const KernelEntry *entry_of(const HalfLevel *level, Op op) {
  for (const KernelEntry *e = level->fp32; e->kernel; e++)
    if (e->op == op && e->dtype == DTYPE_F32) return e;
  return NULL;
}

// ---- through fp32

typedef struct Conversion { const HalfConversion *by; float *wide; uint16_t *half; int64_t n; } Conversion;

static void widen_unit(void *argument, int slot, int64_t unit) {
  const Conversion *c = argument;
  RowRange r = chunk_range(c->n, unit);
  c->by->widen(c->wide + r.from, c->half + r.from, r.to - r.from);
}
static void narrow_unit(void *argument, int slot, int64_t unit) {
  const Conversion *c = argument;
  RowRange r = chunk_range(c->n, unit);
  c->by->narrow(c->half + r.from, c->wide + r.from, r.to - r.from);
}

static size_t wide_workspace(const HalfLevel *level, Op op, int inputs, int outputs, const Operand *input,
                             const Operand *output, const void *attr, int threads) {
  Operand in[8], out[8];
  int64_t bytes = 0;
  const KernelEntry *entry = entry_of(level, op);
  for (int k = 0; k < inputs; k++) in[k] = input[k], bytes += wide_bytes(&input[k]), in[k].dtype = DTYPE_F32;
  for (int k = 0; k < outputs; k++)
    out[k] = output[k], bytes += wide_bytes(&output[k]), out[k].dtype = DTYPE_F32;
  return (size_t)bytes + (entry->workspace ? entry->workspace(in, out, attr, threads) : 0);
}

static void run_sum(const KernelCall *call, const HalfLevel *level, Op op);
static void run_wide(const KernelCall *call, const HalfLevel *level, Op op, int inputs, int outputs);

// A norm that adds first reads the sum as it is rounded.
static void run_norm_of_sum(const KernelCall *call, const HalfLevel *level, Op op, int inputs, int outputs) {
  NormAttr attr = *(const NormAttr *)call->attr;
  Operand input[4] = {call->input[0], call->input[call->ninput - 1]};
  const Operand *made = &call->output[call->noutput - 1];
  CHECK(call->ninput <= 4);
  attr.sum = 0;
  KernelCall sum = *call, norm = *call;
  sum.input = norm.input = input;
  sum.ninput = 2;
  sum.output = made;
  sum.noutput = 1;
  run_sum(&sum, level, OP_ADD);
  input[0] = *made;
  for (int k = 1; k < call->ninput - 1; k++) input[k] = call->input[k];
  norm.attr = &attr;
  norm.ninput--;
  norm.noutput--;
  run_wide(&norm, level, op, inputs, outputs);
}

static void run_wide(const KernelCall *call, const HalfLevel *level, Op op, int inputs, int outputs) {
  if (op_def(op)->add_first && ((const NormAttr *)call->attr)->sum) {
    run_norm_of_sum(call, level, op, inputs, outputs);
    return;
  }
  int operands = call->ninput + call->noutput;
  Operand x[operands];
  for (int k = 0; k < operands; k++) {
    int is_input = k < call->ninput;
    x[k] = is_input ? call->input[k] : call->output[k - call->ninput];
    if (!x[k].data || x[k].dtype != DTYPE_F16 || (is_input ? k < inputs : k - call->ninput < outputs)) continue;
    if (is_input && stays_narrow(op, k)) continue;
    op_def(op)->reference(call); // the workspace has no room for this one
    return;
  }
  char *at = call->workspace;
  for (int k = 0; k < operands; k++) {
    if (!x[k].data || x[k].dtype != DTYPE_F16 || (k < call->ninput && stays_narrow(op, k))) continue;
    Conversion c = {level->fp16, (float *)(void *)at, x[k].data, operand_elements(&x[k])};
    at += wide_bytes(&x[k]);
    x[k].data = c.wide;
    x[k].dtype = DTYPE_F32;
    if (k < call->ninput) team_each(call_team(call), chunk_units(c.n), widen_unit, &c);
  }
  KernelCall wide = *call;
  wide.input = x;
  wide.output = x + call->ninput;
  wide.workspace = at;
  wide.workspace_size = call->workspace_size - (size_t)(at - (char *)call->workspace);
  entry_of(level, op)->kernel(&wide);
  for (int k = 0; k < call->noutput; k++) {
    const Operand *out = &call->output[k];
    if (!out->data || out->dtype != DTYPE_F16) continue;
    Conversion c = {level->fp16, wide.output[k].data, out->data, operand_elements(out)};
    team_each(call_team(call), chunk_units(c.n), narrow_unit, &c);
  }
}

// ---- separate loops, block by block

// n elements of an operand from `at` on, as floats: where they lie, or in the buffer.
static const float *load_block(const HalfConversion *by, const Operand *x, int64_t at, int64_t n, float *buffer) {
  const uint16_t *half = (const uint16_t *)x->data + at;
  if (x->dtype == DTYPE_F32) return (const float *)x->data + at;
  if (x->dtype == DTYPE_F16) by->widen(buffer, half, n);
  else
    for (int64_t i = 0; i < n; i++) buffer[i] = bf16_to_float(half[i]);
  return buffer;
}
static void store_block(const HalfConversion *by, const Operand *x, int64_t at, int64_t n, const float *from) {
  uint16_t *half = (uint16_t *)x->data + at;
  if (x->dtype == DTYPE_F32) memmove((float *)x->data + at, from, (size_t)n * sizeof *from);
  else if (x->dtype == DTYPE_F16) by->narrow(half, from, n);
  else
    for (int64_t i = 0; i < n; i++) half[i] = bf16_from_float(from[i]);
}

static int of_floats(const KernelCall *call) { // fp32, bf16 or fp16, all of one size
  for (int k = 0; k < call->ninput + call->noutput; k++) {
    const Operand *x = k < call->ninput ? &call->input[k] : &call->output[k - call->ninput];
    if (!dtype_is_float(x->dtype) || x->dtype == DTYPE_F64 || operand_elements(x) != operand_elements(&call->output[0]))
      return 0;
  }
  return 1;
}

typedef struct Blocks { const KernelCall *call; const HalfConversion *by; double *partial; } Blocks;

// The sum of the inputs, as often as there are: ADD, ACCUMULATE, and of one IDENTITY and CAST.
static void sum_unit(void *argument, int slot, int64_t unit) {
  const Blocks *b = argument;
  const Operand *out = &b->call->output[0];
  RowRange r = chunk_range(operand_elements(out), unit);
  float sum[BLOCK], buffer[BLOCK];
  for (int64_t at = r.from; at < r.to; at += BLOCK) {
    int64_t n = r.to - at < BLOCK ? r.to - at : BLOCK;
    memcpy(sum, load_block(b->by, &b->call->input[0], at, n, buffer), (size_t)n * sizeof *sum);
    for (int k = 1; k < b->call->ninput; k++) {
      const float *x = load_block(b->by, &b->call->input[k], at, n, buffer);
      for (int64_t i = 0; i < n; i++) sum[i] += x[i];
    }
    store_block(b->by, out, at, n, sum);
  }
}

static void run_sum(const KernelCall *call, const HalfLevel *level, Op op) {
  KernelCall added = cpu_call_without_absent(call);
  Blocks b = {&added, level->fp16, NULL};
  if (of_floats(call)) team_each(call_team(call), chunk_units(operand_elements(&call->output[0])), sum_unit, &b);
  else op_def(op)->reference(call);
}

// CAST from fp32 is the level's own but for what becomes fp16.
static void run_cast(const KernelCall *call, const HalfLevel *level, Op op) {
  if (call->output[0].dtype == DTYPE_F16) run_sum(call, level, op);
  else entry_of(level, OP_CAST)->kernel(call);
}

static void run_fill(const KernelCall *call, const HalfLevel *level, Op op) {
  if (((const FillAttr *)call->attr)->value != 0) op_def(op)->reference(call);
  else memset(call->output[0].data, 0, (size_t)operand_elements(&call->output[0]) * sizeof(uint16_t));
}

// A partial sum for each chunk, added in their order, so that threads do not matter.
static void squares_unit(void *argument, int slot, int64_t unit) {
  const Blocks *b = argument;
  RowRange r = chunk_range(operand_valid_prefix(&b->call->input[0]), unit);
  double sum = 0, lane[8] = {0};
  float buffer[BLOCK];
  for (int64_t at = r.from; at < r.to; at += BLOCK) {
    int64_t n = r.to - at < BLOCK ? r.to - at : BLOCK, i = 0;
    const float *x = load_block(b->by, &b->call->input[0], at, n, buffer);
    for (; i + 8 <= n; i += 8)
      for (int k = 0; k < 8; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
  }
  for (int k = 0; k < 8; k++) sum += lane[k];
  b->partial[unit] = sum;
}

static size_t squares_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)(chunk_units(operand_elements(&input[0])) + 1);
}

static void run_squares(const KernelCall *call, const HalfLevel *level, Op op) {
  int64_t n = operand_valid_prefix(&call->input[0]), units = n < 0 ? 0 : chunk_units(n);
  if (n < 0) {
    op_def(op)->reference(call);
    return;
  }
  Blocks b = {call, level->fp16, call->workspace};
  team_each(call_team(call), units, squares_unit, &b);
  double sum = 0;
  for (int64_t i = 0; i < units; i++) sum += b.partial[i];
  operand_store(&call->output[0], 0, sum);
}

// ---- tables

#define LEVEL portable
#define CONVERSION fp16_portable
#include "device/cpu/fp16_level.h"
#if defined(__x86_64__)
#define LEVEL avx2
#define CONVERSION fp16_f16c
#include "device/cpu/fp16_level.h"
#define LEVEL avx512
#define CONVERSION fp16_f16c
#include "device/cpu/fp16_level.h"
#endif
