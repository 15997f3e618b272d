// tier 1 2; rooms device; numbers
// Fast kernels against the reference kernels: every row of the table of cases, every SIMD level of this machine, every
// floating-point dtype, sharded and padded operands, in place, and the same bits for any number of threads.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "cases.h"
#include "device/cpu/fp16.h"
#include "tier.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// EMPTY: the call lacks its accumulator; of a shard; of no rows at all.
typedef enum Variant { WHOLE, SHARDED, EMPTY, EMPTY_SHARDED, EMPTY_NO_ROWS, IN_PLACE, SUM_IN_PLACE, VARIANTS } Variant;
static const char *const variant_name[] = {
    "", " sharded", " empty", " empty sharded", " empty of no rows", " in place", " sum in place"};

// ---- variants of a case

static void zero_tail(Operand *x, int64_t valid) {
  int64_t row = operand_extent(x, 1, x->rank);
  for (int64_t i = valid * row; i < x->size[0] * row; i++) operand_store(x, i, 0);
}

// The table of an embedding or head as one shard of a larger, padded one.
static void shard_rows(Operand *x, int zero) {
  int64_t n = x->size[0];
  x->map[0] = (IndexMap){.local = n, .valid = n - 2, .global = 2 * n, .runs = 1, .run = {{0, 3}}};
  if (zero) zero_tail(x, n - 2);
}

// A sequence dim as one of two shards in zigzag order.
static void zigzag(Operand *x, int dim) {
  int64_t n = x->size[dim];
  x->map[dim] =
      (IndexMap){.local = n, .valid = n, .global = 2 * n, .runs = n > 1 ? 2 : 1, .run = {{0, n}, {n / 2, 2 * n + 3}}};
}

// What a gradient reads of the forward pass, by the maps that its operands have now.
static void attention_again(OpCase *c) {
  KernelCall call = op_case_call(c);
  call.ninput = 5;
  call.noutput = 2;
  call.output = &c->input[5];
  op_def(OP_ATTENTION)->reference(&call);
}

// 0: the op has no such variant.
static int make_sharded(OpCase *c) {
  switch (c->op) {
  case OP_EMBEDDING: shard_rows(&c->input[0], 1); return 1;
  case OP_EMBEDDING_GRAD: shard_rows(&c->output[0], 0); return 1;
  case OP_LOGITS:
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: shard_rows(&c->input[1], 1); return 1;
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD:
    for (int k = 0; k < 3; k++) zigzag(&c->input[k], 1);
    c->input[0].map[2].run[0].global = 5;
    c->input[0].map[2].global = 9;
    if (c->op == OP_ATTENTION_GRAD) attention_again(c);
    return 1;
  case OP_DROPOUT:
    zigzag(&c->input[0], 1);
    if (c->input[0].rank > 2) {
      c->input[0].map[2].run[0].global = 3;
      c->input[0].map[2].global = c->input[0].size[2] + 9;
    }
    return 1;
  case OP_FILL:
  case OP_SUM_SQUARES:
    c->input[0].map[0].valid = c->output[0].map[0].valid =
        c->input[0].size[0] - 1; // the garbage after them must not count
    return 1;
  default: return 0;
  }
}

static void drop_rows(Operand *x) { x->size[0] = 0; }

static int make_rowless(OpCase *c) {
  switch (c->op) {
  case OP_MATMUL:
    if (node_attr(&c->graph->node.data[c->node], MatmulAttr)->kind != MATMUL_TN) return 0;
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_EMBEDDING_GRAD:
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_GROUPED_WEIGHT:
    for (int k = 0; k < 3; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY:
    for (int k = 0; k < c->ninput - 1; k++)
      if (c->input[k].rank > 1 && k != 1) drop_rows(&c->input[k]);
    if (c->op != OP_CROSS_ENTROPY_WEIGHT) drop_rows(&c->output[1]);
    return 1;
  default: return 0;
  }
}

// Whatever the output holds, all of it is stored.
static int make_empty(OpCase *c, int sharded, int rows) {
  if (!op_case_empty(c)) return 0;
  for (int k = 0; k < c->noutput; k++)
    memset(c->output[k].data, 0xff, (size_t)operand_elements(&c->output[k]) * dtype_size(c->output[k].dtype));
  return (!sharded || make_sharded(c)) && (rows || make_rowless(c));
}

static int make_in_place(OpCase *c) {
  int pairs = op_def(c->op)->in_place;
  if (!pairs || c->op == OP_CAST) return 0;
  for (int k = 0; k < pairs && k < c->noutput; k++) {
    if (c->output[k].data == c->input[k].data || c->output[k].dtype != c->input[k].dtype) return 0;
    free(c->output[k].data);
    c->output[k].data = c->input[k].data;
  }
  return 1;
}

// What the last input is added to lies in its memory, and what else may in that of other inputs.
static int make_sum_in_place(OpCase *c) {
  const OpDef *op = op_def(c->op);
  int sum = op->accumulated ? op->accumulated(&c->graph->node.data[c->node]) : -1, last = c->ninput - 1;
  if (sum < 0 || c->output[sum].data == c->input[last].data || c->output[sum].dtype != c->input[last].dtype) return 0;
  for (int k = 0; k < c->noutput; k++) {
    int from = k == sum ? last : k < op->in_place ? k : -1;
    if (from < 0) continue;
    free(c->output[k].data);
    c->output[k].data = c->input[from].data;
  }
  return 1;
}

// A copy of the case as that variant of it. 0: it has none.
static int get(const OpCase *whole, Variant variant, OpCase *c) {
  op_case_copy(whole, c);
  if (variant == WHOLE || (variant == SHARDED    ? make_sharded(c)
                           : variant < IN_PLACE  ? make_empty(c, variant == EMPTY_SHARDED, variant != EMPTY_NO_ROWS)
                           : variant == IN_PLACE ? make_in_place(c)
                                                 : make_sum_in_place(c)))
    return 1;
  op_case_free(c);
  return 0;
}

// ---- comparison

// About how many terms the sums of the case have.
static double reduction(const OpCase *c) {
  const Operand *a = &c->input[0], *b = &c->input[1];
  double n = (double)operand_elements(a);
  switch (c->op) {
  case OP_MATMUL: return sqrt(n * (double)operand_elements(b) / (double)operand_elements(&c->output[0]));
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: return (double)(a->size[1] * a->size[3] + a->size[4]);
  case OP_LOGITS: return (double)(b->size[0] + b->size[1]);
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: return (double)(a->size[0] * a->size[1] + b->size[0] + b->size[1]);
  case OP_GROUPED: return (double)a->size[3];
  case OP_GROUPED_WEIGHT: return (double)a->size[0];
  case OP_COMBINE: return (double)c->input[0].size[2];
  case OP_COMBINE_GRAD: return (double)a->size[2];
  case OP_REDUCE: return n / (double)operand_elements(&c->output[0]);
  case OP_EMBEDDING_GRAD: return n;
  case OP_LAYER_NORM:
  case OP_RMS_NORM:
  case OP_LAYER_NORM_GRAD:
  case OP_RMS_NORM_GRAD: return n;
  default: return 1;
  }
}

static Dtype kernel_dtype(const OpCase *c) {
  for (int k = 0; k < c->ninput; k++)
    if (c->input[k].data && dtype_is_float(c->input[k].dtype)) return c->input[k].dtype;
  return c->output[0].dtype;
}

// Whether bf16 kernels round values between two products of the op: probabilities, gradients of scores and logits.
static int rounds_factors(Op op) {
  return op == OP_ATTENTION || op == OP_ATTENTION_GRAD || op == OP_CACHE_ATTENTION || op == OP_LINEAR_CROSS_ENTROPY ||
         op == OP_CROSS_ENTROPY_APPLY || op == OP_CROSS_ENTROPY_WEIGHT;
}

static float joined(const OpCase *c, int64_t i) {
  return bf16_join(((const uint16_t *)c->output[0].data)[i],
                   ((const uint16_t *)c->output[c->noutput - 1].data)[i]);
}

static void compare_split(const OpCase *fast, const OpCase *slow, const char *where) {
  for (int64_t i = 0, n = operand_elements(&slow->output[0]); i < n; i++) {
    double got = joined(fast, i), expected = joined(slow, i);
    if (!(fabs(got - expected) <= 0x1p-20 * (fabs(expected) + 1)))
      fail_msg("%s weight [%lld]: %.12g, reference %.12g", where, (long long)i, got, expected);
  }
}

// What a row's sum is relative to is free: the logarithm of the sum counts. Rows without a target have two zeros.
static void compare_sums(const OpCase *fast, const OpCase *slow, double tolerance, const char *where) {
  for (int64_t i = 0, n = operand_elements(&slow->output[2]); i < n; i++) {
    double a = operand_load(&fast->output[2], i), b = operand_load(&fast->output[3], i),
           c = operand_load(&slow->output[2], i), d = operand_load(&slow->output[3], i);
    if (d > 0 ? !(b > 0 && fabs(a + log(b) - c - log(d)) <= tolerance * (fabs(c) + 1)) : a != 0 || b != 0)
      fail_msg("%s sum [%lld]: e^%.12g · %.12g, reference e^%.12g · %.12g", where, (long long)i, a, b, c, d);
  }
}

// Rounding errors of a sum of n terms grow like its square root; they are relative to the largest element (the inputs
// are about 1, and where all cancels, their rounding stays).
static void compare(const OpCase *fast, const OpCase *slow, const char *where) {
  int split = slow->noutput && slow->output[slow->noutput - 1].dtype == DTYPE_U16; // its halves are compared together
  for (int k = 0; k < slow->noutput - split; k++) {
    const Operand *x = &fast->output[k], *y = &slow->output[k];
    if (!y->data) continue;
    if (split && !k) {
      compare_split(fast, slow, where);
      continue;
    }
    double unit = x->dtype == DTYPE_BF16                                                       ? 0x1p-8
                  : kernel_dtype(slow) == DTYPE_F64 ? 2e-14 : 0x1p-23;
    if (slow->op == OP_ORTHOGONALIZE) unit *= 485; // 3.4445⁵: so much rounding is amplified near singular values of 0
    if (slow->op == OP_EMBEDDING_GRAD && y->dtype == DTYPE_F32) unit = 0x1p-23;
    double terms = reduction(slow), tolerance = unit * (8 + 4 * sqrt(terms)), largest = 0;
    if (kernel_dtype(slow) ==
        DTYPE_BF16) { // one rounding of what is stored, sums in fp32, and bf16 factors of some products
      double store = x->dtype == DTYPE_BF16 ? 0x1.1p-8 : 0, factors = rounds_factors(slow->op) ? 0x1p-7 : 0;
      tolerance = store + factors + 0x1p-23 * (8 + 4 * sqrt(terms));
    }
    if (kernel_dtype(slow) == DTYPE_F16)
      tolerance = (x->dtype == DTYPE_F16 ? 0x1.1p-11 : 0) + 0x1p-23 * (8 + 4 * sqrt(terms)); // fp32 inside
    if (slow->op == OP_LINEAR_CROSS_ENTROPY && slow->noutput == 4 && k >= 2) {
      if (k == 2) compare_sums(fast, slow, tolerance, where);
      continue;
    }
    if (slow->op == OP_REORDER_ROWS || slow->op == OP_SPLIT_POSITIONS || slow->op == OP_JOIN_POSITIONS) tolerance = 0;
    int64_t n = operand_elements(y);
    for (int64_t i = 0; i < n; i++)
      if (isfinite(operand_load(y, i))) largest = fmax(largest, fabs(operand_load(y, i)));
    for (int64_t i = 0; i < n; i++) {
      double got = operand_load(x, i), expected = operand_load(y, i);
      if (got != expected && !(fabs(got - expected) <= tolerance * (fabs(expected) + largest + 0.1)))
        fail_msg("%s output %d [%lld]: %.12g, reference %.12g, largest %.3g, tolerance %.2g", where, k, (long long)i,
                 got, expected, largest, tolerance);
    }
  }
}

static void same_bits(const OpCase *a, const OpCase *b, const char *where) {
  for (int k = 0; k < a->noutput; k++)
    if (a->output[k].data && memcmp(a->output[k].data, b->output[k].data,
                                    (size_t)operand_elements(&a->output[k]) * dtype_size(a->output[k].dtype)))
      fail_msg("%s: output %d has other bits", where, k);
}

enum { GUARD = 256 };

// Runs with just the workspace that the kernel asked for; nothing after it may be written.
static void run(const KernelEntry *entry, KernelCall *call, Team *team, const char *where) {
  DeviceQueue queue = {.team = team};
  call->queue = &queue;
  call->workspace_size =
      entry->workspace ? entry->workspace(call->input, call->output, call->attr, team_slots(team)) : 0;
  size_t bytes = (call->workspace_size + GUARD + 63) / 64 * 64;
  unsigned char *workspace = aligned_alloc(64, bytes);
  memset(workspace, 0xFF, bytes); // NaN, if read before it is written
  call->workspace = workspace;
  entry->kernel(call);
  for (size_t i = call->workspace_size; i < bytes; i++)
    if (workspace[i] != 0xFF) fail_msg("%s writes past its workspace", where);
  free(workspace);
}

// None, three threads, which part products, five, which make them together, and one that another thread helps now and
// then.
enum { TOGETHER = 2, TEAMS = 4 };

typedef struct Helper { TeamGroup *group; pthread_t thread; atomic_int stop; } Helper;
static Team *create_team(TeamGroup *group, int threads) {
  Team *team;
  CHECK(!team_create_in(group, threads, &team, NULL));
  return team;
}

static void *help(void *argument) {
  Helper *h = argument;
  Team *team = create_team(h->group, 1);
  while (!atomic_load(&h->stop))
    if (!team_help(team)) sched_yield();
  team_destroy(team);
  return NULL;
}

// What the reference makes in the memory of inputs is what it makes elsewhere.
static void check_reference_in_place(const OpCase *whole, Dtype dtype, const OpCase *slow) {
  OpCase elsewhere;
  char where[160];
  snprintf(where, sizeof where, "the reference of %s %s in place", slow->name, dtype_name(dtype));
  op_case_copy(whole, &elsewhere);
  op_case_run(&elsewhere);
  same_bits(slow, &elsewhere, where);
  op_case_free(&elsewhere);
}

// 0 when the back end has no kernel for it.
static int check_case(CpuLevel level, const OpCase *whole, Dtype dtype, Variant variant, Team **team) {
  OpCase slow, fast[TEAMS];
  char where[160];
  if (!get(whole, variant, &slow)) return 0;
  const KernelEntry *entry = cpu_find(level, slow.op, kernel_dtype(&slow));
  snprintf(where, sizeof where, "%s %s %s%s", cpu_level_name(level), slow.name, dtype_name(dtype),
           variant_name[variant]);
  if (entry) {
    for (int t = 0; t < TEAMS; t++) {
      fast[t] = (OpCase){0};
      if (t == TOGETHER && !op_def(slow.op)->expensive) continue; // makes no product
      op_case_copy(&slow, &fast[t]);
    }
    op_case_run(&slow);
    if (variant >= IN_PLACE && level == CPU_PORTABLE) check_reference_in_place(whole, dtype, &slow);
    for (int t = 0; t < TEAMS; t++) {
      if (!fast[t].graph) continue;
      KernelCall call = op_case_call(&fast[t]);
      run(entry, &call, team[t], where);
      if (t == 0) compare(&fast[0], &slow, where);
      else same_bits(&fast[0], &fast[t], where); // whatever the threads
    }
    for (int t = 0; t < TEAMS; t++)
      if (fast[t].graph) op_case_free(&fast[t]);
  }
  op_case_free(&slow);
  return entry != NULL;
}

// Does make test leave the level to make check: is there a better one that has kernels of its own for the type?
static int has_better(CpuLevel level, Dtype dtype) {
  int most = dtype == DTYPE_BF16 ? CPU_AMX : CPU_AVX512, better = 0;
  for (int k = level + 1; k <= most; k++) better |= cpu_level_available((CpuLevel)k);
  return test_tier() < 2 && better;
}

static void check_level(CpuLevel level, Dtype from, Dtype to) {
  if (!cpu_level_available(level) || has_better(level, from)) skip();
  Helper helper = {.group = team_group_create(2, 2)};
  Team *team[TEAMS] = {NULL, create_team(NULL, 3), create_team(NULL, 5), create_team(helper.group, 1)};
  assert_int_equal(pthread_create(&helper.thread, NULL, help, &helper), 0);
  int done[VARIANTS] = {0};
  const char *only = getenv("CASE"); // for debugging
  int dtypes = to - from + 1;
  // make test has every row of small operands, and one in five of large ones.
  int large = test_tier() < 2 ? 5 : 1, least = test_tier() < 2 ? 4 : 1;
  for (int i = 0; i < op_cases_with_large(); i += i < op_cases_count() ? 1 : large)
    for (int dtype = from; dtype <= (int)to; dtype++) {
      if (only && !strstr(op_case_name(i), only)) continue;
      OpCase whole; // its numbers are drawn once
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; variant < VARIANTS; variant++)
        done[variant] += check_case(level, &whole, (Dtype)dtype, (Variant)variant, team);
      op_case_free(&whole);
    }
  atomic_store(&helper.stop, 1);
  pthread_join(helper.thread, NULL);
  for (int t = 0; t < TEAMS; t++) team_destroy(team[t]);
  team_group_destroy(helper.group);
  if (only) return;
  assert_true(done[WHOLE] >= 85 * dtypes / least);
  assert_true(done[SHARDED] >= 20 * dtypes / least);
  assert_true(done[EMPTY] >= 20 * dtypes / least);
  assert_true(done[EMPTY_SHARDED] >= 8 * dtypes / least);
  assert_true(done[EMPTY_NO_ROWS] >= 12 * dtypes / least);
  assert_true(done[IN_PLACE] >= 25 * dtypes / least);
  assert_true(done[SUM_IN_PLACE] >= 8 * dtypes / least);
}

static void portable_kernels_match_the_reference(void **state) { check_level(CPU_PORTABLE, DTYPE_F64, DTYPE_F32); }
static void avx2_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_F64, DTYPE_F32); }
static void avx512_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_F64, DTYPE_F32); }
static void portable_bf16_kernels_match_the_reference(void **state) {
  check_level(CPU_PORTABLE, DTYPE_BF16, DTYPE_BF16);
}
static void avx2_bf16_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_BF16, DTYPE_BF16); }
static void avx512_bf16_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_BF16, DTYPE_BF16); }
static void avx512_dot_product_kernels_match_the_reference(void **state) {
  check_level(CPU_AVX512_BF16, DTYPE_BF16, DTYPE_BF16);
}
static void amx_kernels_match_the_reference(void **state) { check_level(CPU_AMX, DTYPE_BF16, DTYPE_BF16); }
static void portable_fp16_kernels_match_the_reference(void **state) { check_level(CPU_PORTABLE, DTYPE_F16, DTYPE_F16); }
static void avx2_fp16_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_F16, DTYPE_F16); }
static void avx512_fp16_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_F16, DTYPE_F16); }

// The rows of a head in two chunks, of which the last has fewer rows and therefore packs more columns. Equal logits, so
// that the gradient of a word's weights is (rows / words - how often it is the target) at every column.
static void last_chunks_fit_into_the_workspace(void **state) {
  enum { BATCH = 8, SEQ = 217, TOKENS = BATCH * SEQ, EMBED = 1250, WORDS = 5 };
  float *x = xcalloc(TOKENS * EMBED, sizeof *x), *dx = xcalloc(TOKENS * EMBED, sizeof *dx), loss;
  static float w[WORDS * EMBED], dw[WORDS * EMBED];
  static int32_t ids[TOKENS];
  double seed = 1;
  for (int i = 0; i < TOKENS * EMBED; i++) x[i] = 1;
  for (int i = 0; i < TOKENS; i++) ids[i] = i % 10 ? i % 3 : 4;
#define OPERAND(memory, type, ...)                                                                                     \
  {                                                                                                                    \
    .data = memory, .dtype = type, .rank = sizeof(int[]){__VA_ARGS__} / sizeof(int), .size = { __VA_ARGS__ }           \
  }
  Operand input[] = {OPERAND(x, DTYPE_F32, BATCH, SEQ, EMBED),
                     OPERAND(w, DTYPE_F32, WORDS, EMBED),
                     OPERAND(ids, DTYPE_I32, BATCH, SEQ),
                     {.data = &seed, .dtype = DTYPE_F64}};
  Operand output[] = {{.data = &loss, .dtype = DTYPE_F32},
                      OPERAND(dx, DTYPE_F32, BATCH, SEQ, EMBED),
                      OPERAND(dw, DTYPE_F32, WORDS, EMBED)};
#undef OPERAND
  input[1].map[0] = output[2].map[0] = index_whole(WORDS);
  CrossEntropyAttr attr = {.gradient = 1};
  for (int level = 0; level <= CPU_AVX512; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    KernelCall call = {.ninput = 4, .noutput = 3, .input = input, .output = output, .attr = &attr};
    run(cpu_find((CpuLevel)level, OP_LINEAR_CROSS_ENTROPY, DTYPE_F32), &call, NULL, cpu_level_name((CpuLevel)level));
    assert_true(fabs(loss / (TOKENS * log(WORDS)) - 1) < 1e-6);
    for (int word = 0; word < WORDS; word++) {
      int targets = 0;
      for (int i = 0; i < TOKENS; i++) targets += ids[i] == word;
      for (int i = 0; i < EMBED; i++)
        assert_true(fabs(dw[word * EMBED + i] - ((double)TOKENS / WORDS - targets)) < 1e-2);
    }
  }
  free(x);
  free(dx);
}

// A bias in fp16, which products expect in fp32: the workspace has no room to widen it.
static void fp16_operands_without_room_are_read_too(void **state) {
  enum { ROWS = 3, DEPTH = 7, COLUMNS = 40 };
  static uint16_t x[ROWS * DEPTH], w[COLUMNS * DEPTH], bias[COLUMNS], got[ROWS * COLUMNS], expected[ROWS * COLUMNS];
  for (int i = 0; i < COLUMNS * DEPTH; i++)
    w[i] = f16_from_float((float)sin(i)), x[i % (ROWS * DEPTH)] = w[i], bias[i % COLUMNS] = f16_from_float((float)i);
  Operand input[] = {{.data = x, .dtype = DTYPE_F16, .rank = 2, .size = {ROWS, DEPTH}},
                     {.data = w, .dtype = DTYPE_F16, .rank = 2, .size = {COLUMNS, DEPTH}},
                     {.data = bias, .dtype = DTYPE_F16, .rank = 1, .size = {COLUMNS}}};
  Operand output = {.data = expected, .dtype = DTYPE_F16, .rank = 2, .size = {ROWS, COLUMNS}};
  MatmulAttr attr = {.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1, .bias = 1};
  KernelCall call = {.ninput = 3, .noutput = 1, .input = input, .output = &output, .attr = &attr};
  op_def(OP_MATMUL)->reference(&call);
  output.data = got;
  run(cpu_find(CPU_PORTABLE, OP_MATMUL, DTYPE_F16), &call, NULL, "fp16 bias");
  assert_memory_equal(got, expected, sizeof got);
}

// Every fp16 number, and of fp32 what lies at and between them, by the readable conversions of base.
static void fp16_conversions_are_exact(void **state) {
  const HalfConversion *both[] = {&fp16_portable, cpu_level_available(CPU_AVX2) ? &fp16_f16c : &fp16_portable};
  static uint16_t half[65536], back[65536];
  static float wide[65536];
  for (int way = 0; way < 2; way++) {
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    both[way]->widen(wide, half, 65536);
    for (int i = 0; i < 65536; i++) {
      float expected = f16_to_float((uint16_t)i);
      assert_true(isnan(expected) ? isnan(wide[i]) : wide[i] == expected && signbit(wide[i]) == signbit(expected));
    }
    for (int shift = -3; shift <= 3; shift++) { // at, a little beside and half way between
      for (int i = 0; i < 65536; i++) {
        float x = f16_to_float((uint16_t)i), next = f16_to_float((uint16_t)(i + 1));
        wide[i] = shift % 2 ? x + (next - x) / 2 : x;
        for (int s = 0; s < abs(shift) / 2; s++) wide[i] = nextafterf(wide[i], shift < 0 ? -INFINITY : INFINITY);
      }
      both[way]->narrow(back, wide, 65536);
      for (int i = 0; i < 65536; i++) {
        uint16_t expected = f16_from_float(wide[i]);
        if (isnan(wide[i]) ? !isnan(f16_to_float(back[i])) : back[i] != expected)
          fail_msg("way %d: %a becomes %04x, expected %04x", way, (double)wide[i], back[i], expected);
      }
    }
  }
}

// Accumulators of gradients in bf16: each addition is rounded once, sums of squares are those of what is stored.
static void bf16_accumulators_match_the_reference(void **state) {
  enum { N = 40000 };
  static const Op ops[] = {OP_ACCUMULATE, OP_FILL, OP_SUM_SQUARES, OP_ACCUMULATE, OP_ACCUMULATE,
                           OP_ACCUMULATE}; // of the last three the first and last add fp32, and two to nothing
  static uint16_t a[N], b[N], got[N], expected[N];
  static double workspace[64];
  static float wide[N];
  for (int i = 0; i < N; i++) wide[i] = (float)cos(3 * i) / 64;
  for (int i = 0; i < N; i++) a[i] = bf16_from_float((float)sin(i)), b[i] = bf16_from_float((float)cos(3 * i) / 64);
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int k = 0; k < 6; k++) {
      if (!cpu_level_available((CpuLevel)level)) continue;
      double sum[2] = {0};
      FillAttr zero = {0};
      for (int fast = 0; fast < 2; fast++) {
        Operand in[2] = {{.data = a, .dtype = DTYPE_BF16, .rank = 1, .size = {N}, .map = {index_whole(N)}}},
                out = in[0];
        in[1] = in[0];
        in[1].data = k % 2 ? (void *)wide : b;
        if (k % 2) in[1].dtype = DTYPE_F32;
        if (k > 3) in[0].data = NULL;
        out.data = fast ? got : expected;
        if (ops[k] == OP_SUM_SQUARES) out = (Operand){.data = &sum[fast], .dtype = DTYPE_F64};
        KernelCall call = {.ninput = ops[k] == OP_ACCUMULATE ? 2 : 1,
                           .noutput = 1,
                           .input = in,
                           .output = &out,
                           .attr = &zero,
                           .workspace = workspace,
                           .workspace_size = sizeof workspace};
        const KernelEntry *entry = cpu_find((CpuLevel)level, ops[k], DTYPE_BF16);
        assert_non_null(entry);
        if (entry->workspace) assert_true(entry->workspace(in, &out, NULL, 1) <= sizeof workspace);
        (fast ? entry->kernel : op_def(ops[k])->reference)(&call);
      }
      assert_true(ops[k] == OP_SUM_SQUARES ? fabs(sum[0] - sum[1]) < 1e-12 * sum[0]
                                           : !memcmp(got, expected, sizeof got));
    }
}

// ---- functions over their whole range

static void check_activation(CpuLevel level, Dtype dtype, int kind) {
  enum { N = 4001 };
  double x[N], y[N];
  float xf[N], yf[N];
  ActivationAttr attr = {.kind = kind};
  for (int i = 0; i < N; i++) xf[i] = (float)(x[i] = (double)(float)((i - N / 2) * 0.0101));
  Operand in = {.data = dtype == DTYPE_F64 ? (void *)x : xf,
                .dtype = dtype,
                .rank = 1,
                .size = {N},
                .map = {index_whole(N)}},
          out = in;
  out.data = dtype == DTYPE_F64 ? (void *)y : yf;
  KernelCall call = {.ninput = 1, .noutput = 1, .input = &in, .output = &out, .attr = &attr};
  cpu_find(level, OP_ACTIVATION, dtype)->kernel(&call);
  double got[N];
  for (int i = 0; i < N; i++) got[i] = operand_load(&out, i);
  op_def(OP_ACTIVATION)->reference(&call);
  for (int i = 0; i < N; i++) {
    double expected = operand_load(&out, i), unit = dtype == DTYPE_F64 ? 0x1p-52 : 0x1p-23;
    if (!(fabs(got[i] - expected) <= 6 * unit * fabs(expected) + 6 * unit * fmin(1, fabs(x[i]))))
      fail_msg("%s activation %d of %g: %.12g, expected %.12g", dtype_name(dtype), kind, x[i], got[i], expected);
  }
}

static void activations_are_exact_to_a_few_ulp(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int kind = ACTIVATION_GELU; kind <= ACTIVATION_SIGMOID; kind++)
      if (cpu_level_available((CpuLevel)level)) {
        check_activation((CpuLevel)level, DTYPE_F32, kind);
        check_activation((CpuLevel)level, DTYPE_F64, kind);
      }
}

// A NaN or an infinity must come out, not vanish: the skip flag depends on it.
static void not_a_number_stays(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    float x[40], y[40];
    for (int i = 0; i < 40; i++) x[i] = NAN;
    for (int kind = ACTIVATION_GELU; kind <= ACTIVATION_SILU; kind++) {
      ActivationAttr attr = {.kind = kind};
      Operand in = {.data = x, .dtype = DTYPE_F32, .rank = 1, .size = {40}, .map = {index_whole(40)}}, out = in;
      out.data = y;
      KernelCall call = {.ninput = 1, .noutput = 1, .input = &in, .output = &out, .attr = &attr};
        cpu_find((CpuLevel)level, OP_ACTIVATION, DTYPE_F32)->kernel(&call);
      for (int i = 0; i < 40; i++) assert_true(isnan(y[i]));
      uint16_t half[40], out_half[40];
      for (int i = 0; i < 40; i++) half[i] = bf16_from_float(i % 2 ? NAN : -1e20f);
      in = (Operand){.data = half, .dtype = DTYPE_BF16, .rank = 1, .size = {40}, .map = {index_whole(40)}};
      out = in;
      out.data = out_half;
      cpu_find((CpuLevel)level, OP_ACTIVATION, DTYPE_BF16)->kernel(&call);
      for (int i = 0; i < 40; i++)
        assert_true(i % 2 ? isnan(bf16_to_float(out_half[i])) : fabsf(bf16_to_float(out_half[i])) < 1e-6f);
    }
  }
}

// ---- choosing

static void reference_kernels_are_a_device(void **state) {
  const Device *device = device_reference();
  Error error = {0};
  DeviceKernel kernel;
  assert_int_equal(device->find(device, OP_MATMUL, DTYPE_F32, &kernel), 1);
  assert_true(kernel.is_reference && kernel.host == op_def(OP_MATMUL)->reference);
  assert_int_equal(device_kernel(device, OP_CUSTOM, DTYPE_F32, "mine", &kernel, &error), PLAIT_INFEASIBLE);
  assert_string_equal(error.message, "mine: the device reference has no kernel for the op custom in fp32");
}

static void plait_simd_chooses_the_level(void **state) {
  setenv("PLAIT_SIMD", "reference", 1);
  assert_ptr_equal(device_cpu(), device_reference());
  setenv("PLAIT_SIMD", "portable", 1);
  assert_int_equal(cpu_simd_level(), CPU_PORTABLE);
  setenv("PLAIT_SIMD", "avx2", 1);
  assert_int_equal(cpu_simd_level(), cpu_level_available(CPU_AVX2) ? CPU_AVX2 : CPU_PORTABLE);
  setenv("PLAIT_SIMD", "amx", 1);
  CpuLevel best = CPU_AMX;
  while (!cpu_level_available(best)) best--;
  assert_int_equal(cpu_simd_level(), best);
  unsetenv("PLAIT_SIMD");
  for (int level = 0; level < CPU_LEVELS; level++) // Intel's dot products of bf16 are slow: those alone are passed over
    assert_true(!cpu_level_available((CpuLevel)level) || (int)cpu_simd_level() >= level || level == CPU_AVX512_BF16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(portable_kernels_match_the_reference),
      cmocka_unit_test(avx2_kernels_match_the_reference),
      cmocka_unit_test(avx512_kernels_match_the_reference),
      cmocka_unit_test(portable_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx2_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx512_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx512_dot_product_kernels_match_the_reference),
      cmocka_unit_test(amx_kernels_match_the_reference),
      cmocka_unit_test(portable_fp16_kernels_match_the_reference),
      cmocka_unit_test(avx2_fp16_kernels_match_the_reference),
      cmocka_unit_test(avx512_fp16_kernels_match_the_reference),
      cmocka_unit_test(last_chunks_fit_into_the_workspace),
      cmocka_unit_test(fp16_operands_without_room_are_read_too),
      cmocka_unit_test(fp16_conversions_are_exact),
      cmocka_unit_test(bf16_accumulators_match_the_reference),
      cmocka_unit_test(activations_are_exact_to_a_few_ulp),
      cmocka_unit_test(not_a_number_stays),
      cmocka_unit_test(reference_kernels_are_a_device),
      cmocka_unit_test(plait_simd_chooses_the_level),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
