// The table of one level that has a kernel of each optimizer: what the including file's RUN(call, op) does with the
// optimizer's op. A file defines TABLE (cpu_copy) and TABLE_DTYPE once, LEVEL (suffix) and RUN for each level, and
// includes this for each.
#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)

#define OPTIMIZER(id, name) static void NAME(name, LEVEL)(const KernelCall *call) { RUN(call, OP_##id); }
#include "ir/optimizers.def"
const KernelEntry NAME(TABLE, LEVEL)[] = {
#define OPTIMIZER(id, name) {OP_##id, TABLE_DTYPE, NAME(name, LEVEL), NULL},
#include "ir/optimizers.def"
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#undef NAME
#undef NAME_
#undef LEVEL
#undef RUN
