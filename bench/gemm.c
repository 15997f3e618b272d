// Speed of the matrix products of training steps, beside MKL's, oneDNN's and OpenBLAS' where they are installed
// (bench/gemm_peers.h): bench_gemm [THREADS [DTYPE [LEVEL [SHAPE]]]].
//   THREADS  a number, or several as 1,2
//   LEVEL    best: the one that training uses; peak: that one, and only what its instructions can do
//   SHAPE    only this: products of a shape as 1024x3072x768, one of them as NT1024x3072x768 (NN, TN), a head as
//            head1024x50304x768 (rows, vocabulary, width)
// Rounds of plait and of the libraries alternate. Each figure is the best of many calls, so that a machine that others
// share disturbs little, in wall time: packing, waiting and imbalance count as in training. Beside it stand its percent
// of the measured peak, and plait's speed divided by the library's, which adds no bias and writes products of bf16 in
// fp32. oneDNN has no call for its number of threads: it takes all cores.
#include "gemm_peak.h"
#include "gemm_peers.h"
#include "base/clock.h"
#include "device/host.h"
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

typedef struct Bench {
  CpuLevel level;
  Dtype dtype;
  Team *team;
  double peak; // GF/s of all threads; 0: unknown
} Bench;

// Zeros in huge pages, as the arena of a training run, with room for a scalar, whose operand_bytes are 0. Given back by
// give_back, with the same `bytes`.
enum { SCALAR = 8 };
static void *take(size_t bytes) {
  char *memory;
  Error error = {0};
  if (host_map(NULL, (int64_t)bytes + SCALAR, &memory, &error)) abort();
  return memory;
}
static void give_back(void *memory, size_t bytes) { munmap(memory, bytes + SCALAR); }

static void fill_within(Operand *x, double most) {
  int64_t count = operand_elements(x);
  x->data = take((size_t)operand_bytes(x));
  for (int64_t e = 0; e < count; e++)
    dtype_store(x->data, x->dtype, e, most * (2.0 * (double)(e * 37 % 101) / 101 - 1));
}
static void fill(Operand *x) { fill_within(x, 0.5); }

static const char *const kinds[] = {"NT", "NN", "TN"};

// A call of a kernel with its workspace. Freed by prepared_free, operands too.
typedef struct Prepared { KernelCall call; DeviceQueue queue; const KernelEntry *entry; } Prepared;

static void prepare(Prepared *p, const Bench *b, Op op, Operand *input, int inputs, Operand *output, int outputs,
                    const void *attr) {
  p->entry = cpu_find(b->level, op, b->dtype);
  size_t bytes = p->entry->workspace ? p->entry->workspace(input, output, attr, team_slots(b->team)) : 0;
  p->queue = (DeviceQueue){.team = b->team};
  p->call = (KernelCall){.ninput = inputs, .noutput = outputs, .input = input, .output = output, .attr = attr,
                         .queue = &p->queue, .workspace = take(bytes),
                         .workspace_size = bytes};
  p->entry->kernel(&p->call);
}

static void prepared_free(Prepared *p) {
  for (int i = 0; i < p->call.ninput; i++) give_back(p->call.input[i].data, (size_t)operand_bytes(&p->call.input[i]));
  for (int i = 0; i < p->call.noutput; i++) { // an output may be an input
    int shared = 0;
    for (int j = 0; j < p->call.ninput; j++) shared |= p->call.output[i].data == p->call.input[j].data;
    if (!shared) give_back(p->call.output[i].data, (size_t)operand_bytes(&p->call.output[i]));
  }
  give_back(p->call.workspace, p->call.workspace_size);
}

static void note(double *best, double before) {
  double took = clock_seconds() - before;
  if (!*best || took < *best) *best = took;
}

// Least seconds of a call: of plait's at [0], of the libraries' after it; 0: it cannot. product NULL: plait alone.
static void race(Prepared *p, const Bench *b, const PeerProduct *product, double best[1 + PEERS]) {
  int is_bf16 = b->dtype == DTYPE_BF16, threads = team_size(b->team), racing = 1;
  memset(best, 0, sizeof *best * (1 + PEERS));
  for (int i = 0; i < PEERS; i++)
    if (product && peer_can(&peers[i], is_bf16)) {
      if (peers[i].set_threads) peers[i].set_threads(threads);
      peer_multiply(&peers[i], is_bf16, product);
      racing++;
    }
  enum { ROUNDS = 5 };
  for (int round = 0; round < ROUNDS; round++)
    for (int i = -1; i < PEERS; i++) {
      if (i >= 0 && !(product && peer_can(&peers[i], is_bf16))) continue;
      if (racing > 1) peers_sleep();
      for (double begin = clock_seconds(); clock_seconds() - begin < 0.15 / ROUNDS;) {
        double before = clock_seconds();
        if (i < 0) p->entry->kernel(&p->call);
        else peer_multiply(&peers[i], is_bf16, product);
        note(&best[1 + i], before);
      }
    }
}

static void print(const Bench *b, const char *what, int64_t m, int64_t n, int64_t k, double flops,
                  const double best[1 + PEERS]) {
  printf("%-11s %s %d %-8s %5ld x %5ld x %5ld  %7.1f GF/s", cpu_level_name(b->level), dtype_name(b->dtype),
         team_size(b->team), what, (long)m, (long)n, (long)k, 1e-9 * flops / best[0]);
  if (b->peak) printf(" %3.0f%%", 100e-9 * flops / best[0] / b->peak);
  for (int i = 0; i < PEERS; i++)
    if (best[1 + i])
      printf("  %s %7.1f %3.0f%% %5.2f", peers[i].name, 1e-9 * flops / best[1 + i],
             b->peak ? 100e-9 * flops / best[1 + i] / b->peak : 0, best[1 + i] / best[0]);
  puts("");
  fflush(stdout);
}

// extra: NT adds a bias, TN adds to its output. Returns GF/s; what NULL: prints nothing.
static double dense(const Bench *b, MatmulKind kind, int extra, int64_t m, int64_t n, int64_t k, const char *what) {
  MatmulAttr attr = {.kind = kind, .m = 1, .n = 1, .k = 1, .bias = extra && kind == MATMUL_NT,
                     .accumulate = extra && kind == MATMUL_TN};
  Dtype wide = b->dtype == DTYPE_BF16 ? DTYPE_F32 : b->dtype;
  Operand x = {.dtype = b->dtype, .rank = 2, .size = {m, k}}, w = {.dtype = b->dtype, .rank = 2, .size = {n, k}},
          y = {.dtype = b->dtype, .rank = 2, .size = {m, n}}, bias = {.dtype = wide, .rank = 1, .size = {n}};
  if (kind == MATMUL_TN) w.dtype = wide; // gradients of weights stay wide
  fill(&x), fill(&w), fill(&y);
  Operand output = kind == MATMUL_NT ? y : kind == MATMUL_NN ? x : w;
  Operand input[3] = {kind == MATMUL_NT ? x : y, kind == MATMUL_TN ? x : w, attr.accumulate ? output : bias};
  if (attr.bias) fill(&input[2]);
  int64_t rows = kind == MATMUL_TN ? n : m, columns = kind == MATMUL_NT ? n : k,
          depth = kind == MATMUL_NT ? k : kind == MATMUL_NN ? n : m;
  PeerProduct product = {.m = (int)rows, .n = (int)columns, .k = (int)depth, .a_transposed = kind == MATMUL_TN,
                         .b_transposed = kind == MATMUL_NT, .add = attr.accumulate, .a = input[0].data,
                         .b = input[1].data, .c = take((size_t)(rows * columns) * sizeof(float))};
  Prepared p;
  double best[1 + PEERS], flops = 2.0 * (double)m * (double)n * (double)k;
  prepare(&p, b, OP_MATMUL, input, 2 + (attr.bias || attr.accumulate), &output, 1, &attr);
  race(&p, b, what && b->dtype != DTYPE_F64 ? &product : NULL, best);
  if (what) print(b, what, m, n, k, flops, best);
  prepared_free(&p);
  give_back(product.c, (size_t)(rows * columns) * sizeof(float));
  return 1e-9 * flops / best[0];
}

// Eight experts with 64 to 256 rows, beside a dense product of as many rows.
static void measure_grouped(const Bench *b, MatmulKind kind, int64_t n, int64_t k) {
  enum { EXPERTS = 8 };
  int64_t tokens = 0, rows[EXPERTS], at = 0;
  for (int x = 0; x < EXPERTS; x++) tokens += rows[x] = 64 + 192 * x / (EXPERTS - 1);
  GroupedAttr attr = {.kind = kind};
  Operand x = {.dtype = b->dtype, .rank = 4, .size = {tokens, 1, 1, k}}, w = {.dtype = b->dtype, .rank = 3,
          .size = {EXPERTS, n, k}}, y = {.dtype = b->dtype, .rank = 4, .size = {tokens, 1, 1, n}},
          mask = {.dtype = DTYPE_U8, .rank = 3, .size = {1, tokens, EXPERTS}};
  if (kind == MATMUL_TN && b->dtype == DTYPE_BF16) w.dtype = DTYPE_F32;
  fill(&x), fill(&w), fill(&y);
  mask.data = take((size_t)operand_bytes(&mask));
  for (int e = 0; e < EXPERTS; at += rows[e++])
    for (int64_t r = at; r < at + rows[e]; r++) ((uint8_t *)mask.data)[r * EXPERTS + e] = 1;
  Operand input[3] = {kind == MATMUL_NT ? x : y, kind == MATMUL_TN ? x : w, mask},
          output = kind == MATMUL_NT ? y : kind == MATMUL_NN ? x : w;
  Prepared p;
  double best[1 + PEERS], flops = 2.0 * (double)tokens * (double)n * (double)k;
  prepare(&p, b, kind == MATMUL_TN ? OP_GROUPED_WEIGHT : OP_GROUPED, input, 3, &output, 1, &attr);
  race(&p, b, NULL, best);
  prepared_free(&p);
  printf("%-11s %s %d %-8s %5ld x %5ld x %5ld  %7.1f GF/s in %d groups, %.0f%% of a dense product\n",
         cpu_level_name(b->level), dtype_name(b->dtype), team_size(b->team), kinds[kind], (long)tokens, (long)n,
         (long)k, 1e-9 * flops / best[0], EXPERTS, 100e-9 * flops / best[0] / dense(b, kind, 0, tokens, n, k, NULL));
}

// The head with its loss and both gradients: three products of rows × vocabulary × width, and the exponentials. dw is
// overwritten.
static void measure_head(const Bench *b, int64_t rows, int64_t vocabulary, int64_t width) {
  CrossEntropyAttr attr = {.gradient = 1};
  Dtype wide = b->dtype == DTYPE_BF16 ? DTYPE_F32 : b->dtype;
  Operand input[4] = {{.dtype = b->dtype, .rank = 3, .size = {1, rows, width}},
                      {.dtype = b->dtype, .rank = 2, .size = {vocabulary, width}},
                      {.dtype = DTYPE_I32, .rank = 2, .size = {1, rows}},
                      {.dtype = DTYPE_F64}};
  Operand output[3] = {{.dtype = DTYPE_F64}, input[0], {.dtype = wide, .rank = 2, .size = {vocabulary, width}}};
  for (int i = 0; i < 4; i++) fill_within(&input[i], i == 1 ? 0.02 : 0.5); // no exponential is a denormal number
  for (int i = 0; i < 3; i++) fill(&output[i]);
  for (int64_t row = 0; row < rows; row++) ((int32_t *)input[2].data)[row] = (int32_t)(row * 37 % vocabulary);
  input[1].map[0] = (IndexMap){.local = vocabulary, .valid = vocabulary, .global = vocabulary, .runs = 1};
  Prepared p;
  double best[1 + PEERS], flops = 6.0 * (double)rows * (double)vocabulary * (double)width;
  prepare(&p, b, OP_LINEAR_CROSS_ENTROPY, input, 4, output, 3, &attr);
  race(&p, b, NULL, best);
  print(b, "head", rows, vocabulary, width, flops, best);
  prepared_free(&p);
}

// The products of a block of the shapes A and B (2048 tokens) and C (1024 tokens) of docs/performance.md, of Llama with
// 2048 and 4096 columns (512 tokens; gate and up, down, keys of grouped queries), and small ones.
static const int64_t sizes[][3] = {{512, 192, 192},    {2048, 1152, 384}, {2048, 384, 384},  {2048, 1536, 384},
                                   {2048, 384, 1536},  {2048, 512, 384},  {1024, 2304, 768}, {1024, 768, 768},
                                   {1024, 3072, 768},  {1024, 768, 3072}, {512, 4096, 1024}, {512, 1024, 4096},
                                   {512, 2048, 2048},  {512, 5632, 2048}, {512, 2048, 5632}, {512, 512, 2048},
                                   {512, 11008, 4096}, {512, 4096, 4096}};

// Rows, vocabulary and width of the heads of A, B and C.
static const int64_t heads[][3] = {{2048, 50304, 384}, {2048, 512, 384}, {1024, 50304, 768}};

// Inside and outside of an expert: shape B's with experts of 512, and back, and larger ones.
static const int64_t expert_sizes[][2] = {{512, 384}, {384, 512}, {1536, 768}};

static void measure_product(const Bench *b, const int64_t z[3]) {
  dense(b, MATMUL_NT, 0, z[0], z[1], z[2], "NT");
  dense(b, MATMUL_NT, 1, z[0], z[1], z[2], "NT bias");
  dense(b, MATMUL_NN, 0, z[0], z[1], z[2], "NN");
  dense(b, MATMUL_TN, 0, z[0], z[1], z[2], "TN");
  dense(b, MATMUL_TN, 1, z[0], z[1], z[2], "TN add");
}

// `wish` as SHAPE above.
static void measure_one(const Bench *b, const char *wish) {
  char what[5] = "";
  int64_t z[3];
  sscanf(wish, "%4[A-Za-z]", what);
  if (sscanf(wish + strlen(what), "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &z[0], &z[1], &z[2]) != 3) return;
  if (!strcmp(what, "head")) measure_head(b, z[0], z[1], z[2]);
  else if (!*what) measure_product(b, z);
  for (int kind = MATMUL_NT; kind <= MATMUL_TN; kind++)
    if (!strcmp(what, kinds[kind])) dense(b, (MatmulKind)kind, 0, z[0], z[1], z[2], what);
}

static void measure_all(const Bench *b) {
  for (int s = 0; s < (int)(sizeof sizes / sizeof *sizes); s++) measure_product(b, sizes[s]);
  for (int s = 0; s < (int)(sizeof heads / sizeof *heads); s++) measure_head(b, heads[s][0], heads[s][1], heads[s][2]);
  for (int s = 0; s < (int)(sizeof expert_sizes / sizeof *expert_sizes); s++)
    for (int kind = MATMUL_NT; kind <= MATMUL_TN; kind++)
      measure_grouped(b, (MatmulKind)kind, expert_sizes[s][0], expert_sizes[s][1]);
}

// bf16 computes at the best level that has instructions for it, the others at most at AVX-512's.
static int is_wanted(CpuLevel level, Dtype dtype, const char *wish) {
  CpuLevel best = dtype != DTYPE_BF16 && cpu_simd_level() > CPU_AVX512 ? CPU_AVX512 : cpu_simd_level();
  if (!cpu_level_available(level)) return 0;
  if (!strcmp(wish, "best") || !strcmp(wish, "peak")) return level == best;
  return *wish ? !strcmp(wish, cpu_level_name(level)) : level <= CPU_AVX512 || dtype == DTYPE_BF16;
}

int main(int argc, char **argv) {
  unsetenv("OPENBLAS_CORETYPE"); // some machines choose kernels of an old CPU by these
  unsetenv("OPENBLAS_L2_SIZE");
  peers_load();
  for (const char *threads = argc > 1 ? argv[1] : "1"; *threads;
       threads += strcspn(threads, ","), threads += *threads == ',') {
    Bench b = {0};
    if (team_create(atoi(threads), &b.team, NULL)) return fprintf(stderr, "that many threads cannot be started\n"), 1;
    for (b.level = CPU_LEVELS; b.level-- > 0;)
      for (b.dtype = DTYPE_F64; b.dtype <= DTYPE_BF16; b.dtype++) {
        if (argc > 2 && strcmp(argv[2], dtype_name(b.dtype))) continue;
        if (!is_wanted(b.level, b.dtype, argc > 3 ? argv[3] : "")) continue;
        b.peak = core_peak(b.level, b.dtype) * team_size(b.team);
        printf("%s %s, %d threads: at most %.1f GF/s\n", cpu_level_name(b.level), dtype_name(b.dtype),
               team_size(b.team), b.peak);
        if (argc > 4) measure_one(&b, argv[4]);
        else if (argc < 4 || strcmp(argv[3], "peak")) measure_all(&b);
      }
    team_destroy(b.team);
  }
  return 0;
}
