// An update that writes the Copy goes chunk by chunk through the level's kernel and then, while the new weights are in
// the cache, through its CAST: so the Copy has the bits of a separate CAST, which would read all weights again.
#include "device/cpu/update_copy.h"
#include "base/fault.h"
#include "op/optimizer.h"

typedef struct Update {
  const KernelCall *call;
  Kernel kernel, cast; // of fp32
} Update;

static void run_unit(void *argument, int slot, int64_t unit) {
  const Update *u = argument;
  const KernelCall *call = u->call;
  RowRange r = chunk_range(operand_elements(&call->output[0]), unit);
  Operand input[OPTIMIZER_OPERANDS], output[OPTIMIZER_OPERANDS];
  KernelCall part = *call, cast = {.ninput = 1, .noutput = 1, .parameters = call->parameters};
  part.noutput--; // without the Copy
  part.input = input;
  part.output = output;
  part.queue = NULL;
  for (int k = 0; k < call->ninput; k++) input[k] = cpu_operand_part(&call->input[k], r.from, r.to - r.from);
  for (int k = 0; k < call->noutput; k++) output[k] = cpu_operand_part(&call->output[k], r.from, r.to - r.from);
  u->kernel(&part);
  cast.input = output;
  cast.output = &output[part.noutput];
  UNLESS_FAULT(update_leaves_the_copy) u->cast(&cast);
}

static void run(const KernelCall *call, const KernelEntry *table, CpuLevel level, Op op) {
  while (table->op != op || table->dtype != DTYPE_F32) table++;
  Update u = {call, table->kernel, cpu_find(level, OP_CAST, DTYPE_F32)->kernel};
  if (!optimizer_copy(call)) u.kernel(call);
  else team_each(call_team(call), chunk_units(operand_elements(&call->output[0])), run_unit, &u);
}

#define TABLE cpu_copy
#define TABLE_DTYPE DTYPE_F32
#define LEVEL portable
#define RUN(call, op) run(call, cpu_table_portable, CPU_PORTABLE, op)
#include "device/cpu/optimizer_level.h"
#if defined(__x86_64__)
#define LEVEL avx2
#define RUN(call, op) run(call, cpu_table_avx2, CPU_AVX2, op)
#include "device/cpu/optimizer_level.h"
#define LEVEL avx512
#define RUN(call, op) run(call, cpu_table_avx512, CPU_AVX512, op)
#include "device/cpu/optimizer_level.h"
#endif
