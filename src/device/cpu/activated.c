// A product and its activation, which `fuse` joins for other devices, and which come here where one of those sends them
// to the host: the level's kernel of the one and then that of the other, with the bits of two nodes.
#include "device/cpu/activated.h"

// The call's two parts. in: operands of the activation.
typedef struct Parts {
  KernelCall product, activation;
  ActivationAttr kind;
  Operand in[2];
  Op second;
} Parts;

static void find_parts(const KernelCall *call, Parts *p) {
  const MatmulActivationAttr *attr = call->attr;
  const int is_slope = attr->product.kind == MATMUL_NN;
  p->product = p->activation = *call;
  p->kind.kind = attr->kind;
  p->second = is_slope ? OP_ACTIVATION_GRAD : OP_ACTIVATION;
  p->product.attr = &attr->product;
  p->product.noutput = p->activation.noutput = 1;
  if (is_slope) p->product.ninput--;
  if (attr->keeps) p->product.output = &call->output[1];
  p->activation.attr = &p->kind;
  p->activation.ninput = 1 + is_slope;
  p->activation.input = p->in;
  p->in[is_slope] = p->product.output[0];
  if (is_slope) p->in[0] = call->input[2];
}

static void run_part(const KernelCall *call, CpuLevel level, Op op) {
  const KernelEntry *entry = cpu_find(level, op, call->input[0].dtype);
  if (entry) entry->kernel(call);
  else op_def(op)->reference(call);
}

static void run(const KernelCall *call, CpuLevel level) {
  Parts p;
  find_parts(call, &p);
  run_part(&p.product, level, OP_MATMUL);
  run_part(&p.activation, level, p.second);
}

static size_t bytes_of_part(const KernelCall *call, CpuLevel level, Op op, int threads) {
  const KernelEntry *entry = cpu_find(level, op, call->input[0].dtype);
  return entry && entry->workspace ? entry->workspace(call->input, call->output, call->attr, threads) : 0;
}

// They use it one after the other.
static size_t bytes_of(const Operand *input, const Operand *output, const void *attr, int threads, CpuLevel level) {
  const MatmulActivationAttr *both = attr;
  const int is_slope = both->product.kind == MATMUL_NN;
  const KernelCall call = {.ninput = is_slope ? 3 : 2 + both->product.bias, .noutput = 1 + both->keeps, .input = input,
                           .output = output, .attr = attr};
  Parts p;
  find_parts(&call, &p);
  const size_t product = bytes_of_part(&p.product, level, OP_MATMUL, threads),
               activation = bytes_of_part(&p.activation, level, p.second, threads);
  return product > activation ? product : activation;
}

#define LEVEL(level)                                                                                                   \
  static void run_##level(const KernelCall *call) { run(call, level); }                                                \
  static size_t bytes_##level(const Operand *input, const Operand *output, const void *attr, int threads) {            \
    return bytes_of(input, output, attr, threads, level);                                                              \
  }
LEVEL(CPU_PORTABLE)
LEVEL(CPU_AVX2)
LEVEL(CPU_AVX512)
LEVEL(CPU_AVX512_BF16)
LEVEL(CPU_AMX)
#undef LEVEL

const KernelEntry *cpu_activated(CpuLevel level, Op op) {
#define LEVEL(level) [level] = {OP_MATMUL_ACTIVATION, DTYPE_F32, run_##level, bytes_##level}
  static const KernelEntry entries[CPU_LEVELS] = {LEVEL(CPU_PORTABLE), LEVEL(CPU_AVX2), LEVEL(CPU_AVX512),
                                                  LEVEL(CPU_AVX512_BF16), LEVEL(CPU_AMX)};
#undef LEVEL
  if (level == CPU_LEVELS || (op != OP_MATMUL_ACTIVATION && op != OP_MATMUL_ACTIVATION_GRAD)) return NULL;
  return &entries[level];
}
