// The CPU as a device: chooses a SIMD level at run time and looks kernels up in its table.
#include "device/cpu/cpu.h"
#include "base/clock.h"
#include "device/cpu/copies.h"
#include "device/cpu/fp16.h"
#include "device/cpu/split.h"
#include "device/cpu/update_copy.h"
#include "device/cpu/states.h"
#include "device/host.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
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

// Intel's dot products of bf16 pairs take two cycles (measured: Sapphire Rapids), so that fp32 arithmetic does as much
// and waits less for operands; AMD's take half of one.
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
  if (level == CPU_AVX2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && fp16_has_instructions();
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
    snprintf(text, size, "PLAIT_SIMD asks for %s, which this CPU cannot run; %s runs instead", wish,
             cpu_level_name(cpu_simd_level()));
    return CPU_WISH_UNABLE;
  }
  snprintf(text, size, "PLAIT_SIMD is \"%.40s\"; allowed: reference", wish);
  for (int l = CPU_PORTABLE; l < CPU_LEVELS; l++) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", l + 1 < CPU_LEVELS ? ", " : " or ", cpu_level_name((CpuLevel)l));
  }
  return CPU_WISH_UNKNOWN;
}

static const KernelEntry *find_in(const KernelEntry *const table[5], Op op, Dtype dtype) {
  for (int i = 0; i < 5; i++)
    for (const KernelEntry *e = table[i]; e->kernel; e++)
      if (e->op == op && e->dtype == dtype) return e;
  return NULL;
}
// A cast from fp32 is looked for among fp16's kernels first: it may be to fp16. Optimizers on fp32 may write a Copy.
#define FIND(name, bf16)                                                                                               \
  find_in((const KernelEntry *const[]){cpu_copy_##name, dtype == DTYPE_BF16  ? bf16                                    \
                                       : op == OP_CAST && dtype == DTYPE_F32 ? cpu_fp16_##name                         \
                                                                             : cpu_table_##name,                       \
                                       cpu_fp16_##name, cpu_split_##name, cpu_states_##name},                          \
          op, dtype)
const KernelEntry *cpu_find(CpuLevel level, Op op, Dtype dtype) {
  for (const KernelEntry *e = cpu_copies; e->kernel && level != CPU_LEVELS; e++)
    if (e->op == op) return e;
  switch (level) {
#if defined(__x86_64__)
  case CPU_AVX2: return FIND(avx2, cpu_bf16_avx2);
  case CPU_AVX512: return FIND(avx512, cpu_bf16_avx512);
  case CPU_AVX512_BF16: return FIND(avx512, cpu_bf16_dot);
  case CPU_AMX: return FIND(avx512, cpu_bf16_amx);
#endif
  case CPU_LEVELS: return NULL; // reference kernels only
  default: return FIND(portable, cpu_bf16_portable);
  }
}

// ---- as a device

static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  const KernelEntry *entry = cpu_find(*(const CpuLevel *)device->own, op, dtype);
  if (entry) *kernel = (DeviceKernel){.host = entry->kernel, .workspace = entry->workspace};
  else *kernel = (DeviceKernel){.host = op_def(op)->reference, .is_reference = 1};
  return kernel->host != NULL;
}

// Contiguous, without padding or data.
static Operand operand_of(Dtype dtype, int64_t rows, int64_t columns) {
  Operand x = {.dtype = dtype, .rank = 2, .size = {rows, columns}};
  for (int i = 0; i < 2; i++) x.map[i] = index_range(0, x.size[i], x.size[i]);
  return x;
}

// The best of some products: short enough that a few are not disturbed, and smaller by reference kernels, which take
// long. Allocates and frees.
static double peak_flops(const Device *device, Dtype dtype, Team *team) {
  DeviceKernel kernel = {0};
  if (!find(device, OP_MATMUL, dtype, &kernel)) return 0;
  // Enough rows for each thread that waking it up does not count.
  const int64_t m = kernel.is_reference ? 32 : 1344 * team_slots(team), n = kernel.is_reference ? 32 : 256, k = n;
  DeviceQueue queue = {device, team};
  MatmulAttr attr = {.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1};
  Operand input[2 + DEVICE_OPTIONAL_OPERANDS] = {operand_of(dtype, m, k), operand_of(dtype, n, k)},
          output[1 + DEVICE_OPTIONAL_OPERANDS] = {operand_of(dtype, m, n)};
  size_t workspace = kernel.workspace ? kernel.workspace(input, output, &attr, team_slots(team)) : 0;
  size_t bytes = dtype_size(dtype) * (size_t)(m * k + n * k + m * n);
  char *memory =
      aligned_alloc(HOST_ALIGNMENT, (bytes + workspace + 2 * HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT);
  if (!memory) return 0;
  memset(memory, 0, bytes);
  input[0].data = memory;
  input[1].data = memory + dtype_size(dtype) * (size_t)(m * k);
  output->data = memory + dtype_size(dtype) * (size_t)(m * k + n * k);
  KernelCall call = {.ninput = 2, .noutput = 1, .input = input, .output = output, .attr = &attr, .queue = &queue,
                     .workspace = memory + bytes, .workspace_size = workspace};
  double best = 0, product = 2.0 * (double)(m * n * k);
  kernel.host(&call); // touches the memory
  for (double begin = clock_seconds(), now = begin, end = begin + 0.05; now < end && now - begin < 0.5;) {
    double before = now, speed;
    kernel.host(&call);
    now = clock_seconds();
    speed = product / (now - before);
    if (speed > 1.02 * best) end = now + 0.05; // a machine that does other things as well leaves it alone at times
    if (speed > best) best = speed;
  }
  free(memory);
  return best;
}

// Terms of a sum that are not rounded on their own are nothing for the reference, which rounds what the dtypes say.
#define FUSES(level)                                                                                                   \
  (DEVICE_FUSES_ACCUMULATE | DEVICE_FUSES_BIAS | DEVICE_FUSES_NARROW_ACCUMULATE | DEVICE_FUSES_NORM_SUM |              \
   DEVICE_FUSES_COPY | ((level) == CPU_LEVELS ? 0 : DEVICE_FUSES_SUM))
// Those that multiply bf16 as such; others widen it to fp32 first.
#define FAST(level) ((level) == CPU_AVX512_BF16 || (level) == CPU_AMX ? 1u << DTYPE_BF16 : 0)
// Two vectors: a register tile's columns (gemm.h).
#define PANEL_BYTES(level) ((level) == CPU_LEVELS ? 0 : (level) == CPU_PORTABLE ? 32 : (level) == CPU_AVX2 ? 64 : 128)
#define LEVEL(device_name, level)                                                                                      \
  {                                                                                                                    \
    .kind = DEVICE_CPU, .name = device_name, .spaces = 1, .space = {{1, HOST_PAGE, HOST_ALIGNMENT}},                   \
    .dtypes = 1u << DTYPE_F64 | 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, .fuses = FUSES(level),           \
    .widens_weights = 1, .find = find, .peak_flops = peak_flops, .own = &levels[level], .variant = &#level[4],         \
    .fast_dtypes = FAST(level), .panel_bytes = PANEL_BYTES(level), .implementation = &device_host                                                         \
  }

static const CpuLevel levels[] = {CPU_PORTABLE, CPU_AVX2, CPU_AVX512, CPU_AVX512_BF16, CPU_AMX, CPU_LEVELS};
static const Device plain[] = {LEVEL("cpu", CPU_PORTABLE),    LEVEL("cpu", CPU_AVX2), LEVEL("cpu", CPU_AVX512),
                               LEVEL("cpu", CPU_AVX512_BF16), LEVEL("cpu", CPU_AMX),  LEVEL("reference", CPU_LEVELS)};

static Device (*const make[])(const Device *) = {
#define SPACE(name) device_in_##name,
#include "device/spaces.def"
};
enum { SPACES = sizeof make / sizeof *make };
static Device made[SPACES][CPU_LEVELS + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_all(void) {
  for (int s = 0; s < SPACES; s++)
    for (int l = 0; l <= CPU_LEVELS; l++) made[s][l] = make[s](&plain[l]);
}

Device device_in_host(const Device *of) { return *of; }

const Device *device_cpu_at(CpuLevel level) {
  char text[160];
  int space = device_space_wish(text, sizeof text);
  pthread_once(&once, make_all);
  return &made[space < 0 ? 0 : space][level];
}

const Device *device_cpu(void) { return device_cpu_at(cpu_simd_level()); }

const Device *device_reference(void) { return device_cpu_at(CPU_LEVELS); }

Operand cpu_operand_part(const Operand *x, int64_t from, int64_t n) {
  Operand part = *x;
  if (!x->data || !x->rank) return part;
  part.data = (char *)x->data + from * (int64_t)dtype_size(x->dtype);
  part.rank = 1;
  part.size[0] = n;
  part.map[0] = index_whole(n);
  return part;
}

MatmulShape cpu_matmul_shape(const Operand *input, const MatmulAttr *attr) {
  const Operand *a = &input[0], *b = &input[1];
  int64_t rows = operand_extent(a, 0, attr->m), columns = operand_extent(a, attr->m, a->rank), n, k;
  switch (attr->kind) {
  case MATMUL_NT: // x (m, k), w (n, k) → (m, n)
    n = operand_extent(b, 0, attr->n);
    return (MatmulShape){
        .m = rows, .n = n, .k = columns, .a_row = columns, .a_column = 1, .b_row = 1, .b_column = columns};
  case MATMUL_NN: // dy (m, n), w (n, k) → (m, k): the sum is over n
    k = operand_extent(b, attr->n, b->rank);
    return (MatmulShape){.m = rows, .n = k, .k = columns, .a_row = columns, .a_column = 1, .b_row = k, .b_column = 1};
  default: // dy (m, n), x (m, k) → (n, k): the sum is over m
    k = operand_extent(b, attr->m, b->rank);
    return (MatmulShape){.m = columns, .n = k, .k = rows, .a_row = 1, .a_column = columns, .b_row = k, .b_column = 1};
  }
}

// Chunks of c rows take words · c logits of memory, for the whole step, and move rows / c · words · e weights. The sum
// is least at the square root below, whatever the number of words. Never less for more rows: a call may have fewer than
// its workspace was planned for.
int64_t cpu_head_rows(int64_t rows, int64_t words, int64_t e, size_t logit_bytes, size_t again_bytes) {
  enum {
    PRICE = 24,
    UNIT = 128,
    MOST = 1024,
    MOST_LOGITS = 1 << 26
  }; // PRICE: bytes moved that a byte of memory is worth
  double best = sqrt((double)rows * (double)e * (double)again_bytes / (PRICE * (double)logit_bytes));
  int64_t chunk = (int64_t)ceil(best / UNIT) * UNIT, most = MOST_LOGITS / (words + 1) / 64 * 64;
  if (chunk < UNIT) chunk = UNIT;
  if (chunk > MOST) chunk = MOST;
  if (chunk > most) chunk = most < 64 ? 64 : most;
  return chunk < rows ? chunk : rows;
}

int64_t cpu_head_chunk(int64_t left, int64_t most) {
  enum { WHOLE = 16 }; // rows of register tiles
  if (left <= most) return left;
  int64_t chunks = (left + most - 1) / most, n = (left + chunks - 1) / chunks;
  return (n + WHOLE - 1) / WHOLE * WHOLE;
}

int cpu_one_dtype(const KernelCall *call, Op op, Dtype dtype) {
  for (int i = 0; i < call->ninput + call->noutput; i++) {
    const Operand *x = i < call->ninput ? &call->input[i] : &call->output[i - call->ninput];
    if (i >= call->ninput && op == OP_CAST) break;
    if (i == 1 && op_def(op)->widens_weight && dtype == DTYPE_F32 && x->dtype == DTYPE_BF16) continue;
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
    if (!index_is_range(m) || index_map(m, 0) || m->global != x->size[i]) return -1;
    stride *= m->global;
  }
  if (x->rank < 3) return 0;
  return index_is_range(&x->map[2]) ? index_map(&x->map[2], 0) * stride : -1;
}
