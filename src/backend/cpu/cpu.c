// The CPU back end: chooses a SIMD level at run time and looks kernels up in its table.
#include "backend/cpu/cpu.h"
#include "backend/cpu/fp16.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

const char *cpu_level_name(CpuLevel level) {
  static const char *const name[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx", "reference"};
  return name[level];
}

#if defined(__x86_64__)
static int has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

static int has_bf16(void) {
  unsigned a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 5;
}

// AMX tiles are 8 KB of registers that Linux saves only for processes that asked (arch_prctl, Linux 5.16).
static int has_amx(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  if (!has_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 22) || !(d & 1u << 24)) return 0;
#ifdef __linux__
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
  return 0;
#endif
}
#endif

// Intel's dot products of bf16 pairs take two cycles (measured: Sapphire Rapids), so that fp32 arithmetic does as much and waits
// less for operands; AMD's take half of one.
static int has_slow_dot(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return 0;
#endif
}

int cpu_level_available(CpuLevel level) {
#if defined(__x86_64__)
  if (level == CPU_AMX) return has_amx();
  if (level == CPU_AVX512_BF16) return has_bf16();
  if (level == CPU_AVX512) return has_avx512();
  if (level == CPU_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && fp16_has_instructions();
#endif
  return level == CPU_PORTABLE;
}

CpuLevel cpu_simd_level(void) {
  CpuLevel level = CPU_LEVELS - 1;
  const char *wish = getenv("PLAIT_SIMD");
  if (wish && !strcmp(wish, "reference")) return CPU_LEVELS;
  for (int l = CPU_PORTABLE; wish && l < CPU_LEVELS; l++)
    if (!strcmp(wish, cpu_level_name((CpuLevel)l))) level = (CpuLevel)l;
  while (level > CPU_PORTABLE && !cpu_level_available(level)) level--;
  return level == CPU_AVX512_BF16 && !wish && has_slow_dot() ? CPU_AVX512 : level;
}

CpuWish cpu_simd_wish(char *text, size_t size) {
  const char *wish = getenv("PLAIT_SIMD");
  if (!wish || !strcmp(wish, "reference")) return CPU_WISH_FINE;
  for (int l = CPU_PORTABLE; l < CPU_LEVELS; l++) {
    if (strcmp(wish, cpu_level_name((CpuLevel)l))) continue;
    if (cpu_level_available((CpuLevel)l)) return CPU_WISH_FINE;
    snprintf(text, size, "PLAIT_SIMD asks for %s, which this CPU cannot run; %s runs instead", wish, cpu_level_name(cpu_simd_level()));
    return CPU_WISH_UNABLE;
  }
  snprintf(text, size, "PLAIT_SIMD is \"%.40s\"; allowed: reference", wish);
  for (int l = CPU_PORTABLE; l < CPU_LEVELS; l++) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", l + 1 < CPU_LEVELS ? ", " : " or ", cpu_level_name((CpuLevel)l));
  }
  return CPU_WISH_UNKNOWN;
}

static const KernelEntry *find_in(const KernelEntry *fp16, const KernelEntry *table, Op op, Dtype dtype) {
  for (int i = 0; i < 2; i++, table = fp16)
    for (const KernelEntry *e = table; e->kernel; e++)
      if (e->op == op && e->dtype == dtype) return e;
  return NULL;
}
// A cast from fp32 is looked for among fp16's kernels first: it may be to fp16.
#define FINDER(name, table, bf16, fp16)                                                                                \
  static const KernelEntry *name(const Backend *b, Op op, Dtype dtype) {                                               \
    return find_in(fp16, dtype == DTYPE_BF16 ? bf16 : op == OP_CAST && dtype == DTYPE_F32 ? fp16 : table, op, dtype);  \
  }
FINDER(find_portable, cpu_table_portable, cpu_bf16_portable, cpu_fp16_portable)
#if defined(__x86_64__)
FINDER(find_avx2, cpu_table_avx2, cpu_bf16_avx2, cpu_fp16_avx2)
FINDER(find_avx512, cpu_table_avx512, cpu_bf16_avx512, cpu_fp16_avx512)
FINDER(find_dot, cpu_table_avx512, cpu_bf16_dot, cpu_fp16_avx512)
FINDER(find_amx, cpu_table_avx512, cpu_bf16_amx, cpu_fp16_avx512)
#else
#define find_avx2 find_portable
#define find_avx512 find_portable
#define find_dot find_portable
#define find_amx find_portable
#endif

const Backend *backend_cpu_at(CpuLevel level) {
  static const Backend backend[] = {{"cpu", find_portable}, {"cpu", find_avx2}, {"cpu", find_avx512}, {"cpu", find_dot}, {"cpu", find_amx}};
  return level >= CPU_LEVELS ? backend_reference() : &backend[level];
}

const Backend *backend_cpu(void) { return backend_cpu_at(cpu_simd_level()); }

MatmulShape cpu_matmul_shape(const Operand *input, const MatmulAttr *attr) {
  const Operand *a = &input[0], *b = &input[1];
  int64_t rows = operand_extent(a, 0, attr->m), columns = operand_extent(a, attr->m, a->rank), n, k;
  switch (attr->kind) {
  case MATMUL_NT: // x (m, k), w (n, k) → (m, n)
    n = operand_extent(b, 0, attr->n);
    return (MatmulShape){.m = rows, .n = n, .k = columns, .a_row = columns, .a_column = 1, .b_row = 1, .b_column = columns};
  case MATMUL_NN: // dy (m, n), w (n, k) → (m, k): the sum is over n
    k = operand_extent(b, attr->n, b->rank);
    return (MatmulShape){.m = rows, .n = k, .k = columns, .a_row = columns, .a_column = 1, .b_row = k, .b_column = 1};
  default: // dy (m, n), x (m, k) → (n, k): the sum is over m
    k = operand_extent(b, attr->m, b->rank);
    return (MatmulShape){.m = columns, .n = k, .k = rows, .a_row = 1, .a_column = columns, .b_row = k, .b_column = 1};
  }
}

int cpu_one_dtype(const KernelCall *call, Op op, Dtype dtype) {
  for (int i = 0; i < call->ninput + call->noutput; i++) {
    const Operand *x = i < call->ninput ? &call->input[i] : &call->output[i - call->ninput];
    if (i >= call->ninput && op == OP_CAST) break;
    if (x->data && x->rank && dtype_is_float(x->dtype) && x->dtype != dtype) return 0;
  }
  return 1;
}

int cpu_dtypes_fit(const KernelCall *call, const char *inputs, const char *outputs) {
  for (int side = 0; side < 2; side++) {
    const char *letter = side ? outputs : inputs;
    for (int i = 0; i < (side ? call->noutput : call->ninput) && letter[i]; i++) {
      const Operand *x = side ? &call->output[i] : &call->input[i];
      if (x->data && letter[i] != '*' && x->dtype != (letter[i] == 'h' ? DTYPE_BF16 : DTYPE_F32)) return 0;
    }
  }
  return 1;
}

int operand_is_whole(const Operand *x) {
  for (int i = 0; i < x->rank; i++)
    if (x->map[i].valid < x->size[i]) return 0;
  return 1;
}

int64_t operand_valid_prefix(const Operand *x) {
  for (int i = 1; i < x->rank; i++)
    if (x->map[i].valid < x->size[i]) return -1;
  return x->rank ? x->map[0].valid * operand_extent(x, 1, x->rank) : 1;
}

int64_t dropout_first_feature(const Operand *x) {
  int64_t stride = 1;
  for (int i = x->rank - 1; i > 2; i--) {
    const IndexMap *m = &x->map[i];
    if (m->runs > 1 || m->run[0].global || m->global != x->size[i]) return -1;
    stride *= m->global;
  }
  if (x->rank < 3) return 0;
  return x->map[2].runs > 1 ? -1 : x->map[2].run[0].global * stride;
}
