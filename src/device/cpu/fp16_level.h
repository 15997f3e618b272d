// The table of one level; fp16.c defines LEVEL and CONVERSION and includes this for each.
#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)

static const HalfLevel NAME(level, LEVEL) = {NAME(cpu_table, LEVEL), &CONVERSION};

#define ENTRY(op, inputs, outputs)                                                                                     \
  static void NAME(wide_##op, LEVEL)(const KernelCall *call) {                                                         \
    run_wide(call, &NAME(level, LEVEL), op, inputs, outputs);                                                          \
  }                                                                                                                    \
  static size_t NAME(bytes_##op, LEVEL)(const Operand *in, const Operand *out, const void *attr, int threads) {        \
    return wide_workspace(&NAME(level, LEVEL), op, inputs, outputs, in, out, attr, threads);                           \
  }
#include "device/cpu/fp16_entries.def"
#undef ENTRY
#define OWN(op, run)                                                                                                   \
  static void NAME(own_##op, LEVEL)(const KernelCall *call) { run(call, &NAME(level, LEVEL), op); }
OWN(OP_ADD, run_sum)
OWN(OP_IDENTITY, run_sum)
OWN(OP_CAST, run_cast)
OWN(OP_ACCUMULATE, run_sum)
OWN(OP_FILL, run_fill)
OWN(OP_SUM_SQUARES, run_squares)
#undef OWN

// The bf16 entries are of accumulators in bf16; the fp32 one makes fp16 Copies.
const KernelEntry NAME(cpu_fp16, LEVEL)[] = {
#define ENTRY(op, inputs, outputs) {op, DTYPE_F16, NAME(wide_##op, LEVEL), NAME(bytes_##op, LEVEL)},
#include "device/cpu/fp16_entries.def"
#undef ENTRY
    {OP_ADD, DTYPE_F16, NAME(own_OP_ADD, LEVEL), NULL},
    {OP_IDENTITY, DTYPE_F16, NAME(own_OP_IDENTITY, LEVEL), NULL},
    {OP_CAST, DTYPE_F16, NAME(own_OP_IDENTITY, LEVEL), NULL},
    {OP_CAST, DTYPE_F32, NAME(own_OP_CAST, LEVEL), NULL},
    {OP_ACCUMULATE, DTYPE_F16, NAME(own_OP_ACCUMULATE, LEVEL), NULL},
    {OP_ACCUMULATE, DTYPE_BF16, NAME(own_OP_ACCUMULATE, LEVEL), NULL},
    {OP_FILL, DTYPE_F16, NAME(own_OP_FILL, LEVEL), NULL},
    {OP_FILL, DTYPE_BF16, NAME(own_OP_FILL, LEVEL), NULL},
    {OP_SUM_SQUARES, DTYPE_F16, NAME(own_OP_SUM_SQUARES, LEVEL), squares_workspace},
    {OP_SUM_SQUARES, DTYPE_BF16, NAME(own_OP_SUM_SQUARES, LEVEL), squares_workspace},
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#undef NAME
#undef NAME_
#undef LEVEL
#undef CONVERSION
