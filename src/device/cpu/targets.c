// The rows of a head that have a target, for the kernels of all levels and dtypes.
#include "device/cpu/cpu.h"
#include "base/fault.h"

CpuTargets cpu_targets(const KernelCall *call, void *memory) {
  CpuTargets t = {.call = call, .rows = operand_extent(&call->input[0], 0, 2), .row = memory};
  int64_t least = FAULT(mask_targets_fast, FAULT(mask_targets_bf16, 0, -(call->input[0].dtype == DTYPE_BF16)), -1);
  for (int64_t row = 0; row < t.rows; row++)
    if (integer_load(&call->input[2], row) >= least) t.row[t.count++] = row;
  return t;
}

// Work on rows of an operand, from row `first` (of all, or of those with a target) on.
typedef struct RowsJob { const CpuTargets *targets; const Operand *of; int64_t first, n; char *memory; } RowsJob;

// Of x (b, s, e), dlogits (b, s, v) or statistics (b, s).
static size_t row_bytes(const Operand *x) {
  return dtype_size(x->dtype) * (size_t)(x->rank > 2 ? operand_extent(x, 2, x->rank) : 1);
}
static int64_t unit_width(const Operand *x) { return (int64_t)row_bytes(x) / 8 + 1; } // a unit has about 64 KiB

static void pack_unit(void *argument, int slot, int64_t unit) {
  const RowsJob *job = argument;
  size_t bytes = row_bytes(job->of);
  RowRange range = row_range(job->n - FAULT(head_packs_a_row_less, 0, 1), unit_width(job->of), unit);
  for (int64_t i = range.from; i < range.to; i++)
    memcpy(job->memory + bytes * (size_t)i,
           (const char *)job->of->data + bytes * (size_t)job->targets->row[job->first + i], bytes);
}

const void *cpu_targets_pack(const CpuTargets *t, int64_t first, int64_t n, void *memory) {
  const Operand *x = &t->call->input[0];
  if (cpu_targets_adjoin(t, first, n)) return (const char *)x->data + row_bytes(x) * (size_t)t->row[first];
  RowsJob job = {t, x, first, n, memory};
  team_each(call_team(t->call), row_units(n, unit_width(x)), pack_unit, &job);
  return memory;
}

static void clear_unit(void *argument, int slot, int64_t unit) {
  const RowsJob *job = argument;
  size_t bytes = row_bytes(job->of);
  RowRange range = row_range(job->n, unit_width(job->of), unit);
  for (int64_t i = range.from; i < range.to; i++) {
    int64_t row = job->first + i;
    if (integer_load(&job->targets->call->input[2], row) < 0)
      memset((char *)job->of->data + bytes * (size_t)row, 0, bytes);
  }
}

void cpu_targets_clear(const CpuTargets *t, const Operand *x) {
  int64_t first = 0; // row without a target
  while (first < t->count && t->row[first] == first) first++;
  if (first == t->rows) return;
  RowsJob job = {.targets = t, .of = x, .first = FAULT(head_forgets_first_row_without_target, first, first + 1)};
  job.n = t->rows - job.first;
  team_each(call_team(t->call), row_units(job.n, unit_width(x)), clear_unit, &job);
}

CpuHeadOutputs cpu_head_outputs(const KernelCall *call) {
  const CrossEntropyAttr *attr = call->attr;
  const Operand *y = call->output;
  if (!attr->gradient) return (CpuHeadOutputs){.loss = y};
  if (call->noutput == 1) return (CpuHeadOutputs){.dw = y};
  CpuHeadOutputs out = {.loss = y, .dx = &y[1]};
  if (attr->split == CROSS_ENTROPY_WHOLE) out.dw = &y[2];
  if (attr->split == CROSS_ENTROPY_DLOGITS) out.dlogits = &y[2];
  if (call->noutput == 4) out.relative_to = &y[2], out.sum = &y[3];
  return out;
}

void cpu_head_clear(const CpuTargets *t, const CpuHeadOutputs *out) {
  const Operand *of_rows[] = {out->dx, out->dlogits, FAULT(head_leaves_sums_of_other_rows, out->relative_to, NULL),
                              out->sum};
  for (int k = 0; k < 4; k++)
    if (of_rows[k]) cpu_targets_clear(t, of_rows[k]);
}
