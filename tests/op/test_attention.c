// tier 1 2; rooms device; numbers
// Attention in parts: a rank's queries in zigzag order against all keys, and against one block of keys at a time with
// MERGE, equal attention of the whole sequence, forward and backward. Reference and fast kernels of every level and
// dtype; documents that begin and end inside of chunks, dropout by global positions, grouped queries.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cpu/cpu.h"
#include "check/evaluate.h"
#include "op/op.h"
#include "parts.h"
#include "tier.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, DOCUMENTS, KEY_DOCUMENTS, OUT, LOGSUMEXP, DOUT, INPUTS, REFERENCE = -1 };

// A whole sequence on one device: inputs, what the reference makes of them (statistics' dtype), gradients.
typedef struct Whole {
  int ranks, level; // level: of the kernels that compute parts, or REFERENCE
  AttentionAttr attr;
  CallParameters parameters;
  Operand input[INPUTS], gradient[3];
} Whole;

static Operand random_operand(Dtype dtype, int rank, const int64_t *size, int salt) {
  Operand x = {.dtype = dtype, .rank = rank};
  for (int d = 0; d < rank; d++) x.size[d] = size[d], x.map[d] = index_whole(size[d]);
  operand_allocate(&x);
  for (int64_t i = operand_elements(&x) - 1; i >= 0; i--)
    operand_store(&x, i, philox_normal((PhiloxKey){{(uint32_t)salt, 17}}, (uint64_t)i));
  return x;
}

static Operand like(const Operand *x, Dtype dtype) {
  Operand y = *x;
  y.dtype = dtype;
  operand_allocate(&y);
  for (int64_t i = operand_elements(&y) - 1; i >= 0; i--) operand_store(&y, i, NAN);
  return y;
}

static void run(const Whole *w, Op op, const Operand *input, int ninput, Operand *output, int noutput) {
  const KernelEntry *entry = w->level == REFERENCE ? NULL : cpu_find((CpuLevel)w->level, op, input[0].dtype);
  DeviceQueue queue = {0};
  KernelCall call = {.ninput = ninput, .noutput = noutput, .input = input, .output = output, .attr = &w->attr,
                     .parameters = &w->parameters, .queue = &queue};
  if (entry && entry->workspace) call.workspace_size = entry->workspace(input, output, &w->attr, 1);
  call.workspace = aligned_alloc(64, (call.workspace_size + 127) / 64 * 64);
  (entry ? entry->kernel : op_def(op)->reference)(&call);
  free(call.workspace);
}

// q (b, s, g, r, d), documents (b, s) → room for logsumexp (b, g, r, s)
static Operand rows_of(const Operand *q, Dtype dtype) {
  static const int dim[] = {0, 2, 3, 1};
  Operand x = {.dtype = dtype, .rank = 4};
  for (int d = 0; d < 4; d++) x.size[d] = q->size[dim[d]], x.map[d] = q->map[dim[d]];
  return like(&x, dtype);
}

static Whole whole_of(int level, Dtype dtype, int ranks, int64_t chunk, double dropout, int causal) {
  enum { SAMPLES = 2, HEADS = 2, GROUP = 2, WIDTH = 18 };
  int64_t s = 2 * ranks * chunk;
  Whole w = {.ranks = ranks, .level = level, .attr = {0.3, dropout, causal, 1, 77}};
  w.parameters = (CallParameters){.seed = 5, .step = 3, .sample_base = 4};
  w.input[Q] = random_operand(dtype, 5, (int64_t[]){SAMPLES, s, HEADS, GROUP, WIDTH}, 1);
  w.input[K] = random_operand(dtype, 4, (int64_t[]){SAMPLES, s, HEADS, WIDTH}, 2);
  w.input[V] = random_operand(dtype, 4, (int64_t[]){SAMPLES, s, HEADS, WIDTH}, 3);
  w.input[DOCUMENTS] = random_operand(DTYPE_I32, 2, (int64_t[]){SAMPLES, s}, 4);
  for (int64_t i = 0; i < SAMPLES * s; i++) // one document; three, that end within chunks
    ((int32_t *)w.input[DOCUMENTS].data)[i] = i < s ? 0 : i - s < chunk / 2 + 1 ? 0 : i - s < 3 * chunk - 1 ? 1 : 2;
  w.input[KEY_DOCUMENTS] = w.input[DOCUMENTS];
  Dtype wide = op_statistics_dtype(dtype);
  w.input[DOUT] = random_operand(dtype, 5, w.input[Q].size, 5);
  w.input[OUT] = like(&w.input[Q], wide);
  w.input[LOGSUMEXP] = rows_of(&w.input[Q], wide);
  for (int k = 0; k < 3; k++) w.gradient[k] = like(&w.input[k], wide);
  w.level = REFERENCE;
  run(&w, OP_ATTENTION, w.input, 5, &w.input[OUT], 2);
  Operand out = like(&w.input[OUT], dtype); // as the backward pass of a model has it
  for (int64_t i = operand_elements(&out) - 1; i >= 0; i--) operand_store(&out, i, operand_load(&w.input[OUT], i));
  Operand input[INPUTS];
  memcpy(input, w.input, sizeof input);
  input[OUT] = out;
  run(&w, OP_ATTENTION_GRAD, input, INPUTS, w.gradient, 3);
  free(out.data);
  w.level = level;
  return w;
}

static void whole_free(Whole *w) {
  w->input[KEY_DOCUMENTS].data = NULL;
  for (int k = 0; k < INPUTS; k++) free(w->input[k].data);
  for (int k = 0; k < 3; k++) free(w->gradient[k].data);
}

static IndexMap zigzag(const Whole *w, int rank) {
  int64_t s = w->input[Q].size[1], chunk = s / (2 * w->ranks);
  return (IndexMap){.local = 2 * chunk, .valid = 2 * chunk, .global = s, .runs = 2,
                    .run = {{0, rank * chunk}, {chunk, (2 * w->ranks - 1 - rank) * chunk}}};
}

// The queries of one map against the keys of another: inputs of a call; logsumexp has its positions in dim 3.
static void take_inputs(const Whole *w, IndexMap queries, IndexMap keys, Operand *input) {
  for (int k = 0; k < INPUTS; k++) {
    Operand from = w->input[k];
    IndexMap map[MAX_RANK];
    memcpy(map, from.map, sizeof map);
    map[k == LOGSUMEXP ? 3 : 1] = k == K || k == V || k == KEY_DOCUMENTS ? keys : queries;
    input[k] = take_part(&from, map);
    if (k != OUT) continue;
    Operand narrow = like(&input[k], w->input[Q].dtype);
    for (int64_t i = operand_elements(&narrow) - 1; i >= 0; i--) operand_store(&narrow, i, operand_load(&input[k], i));
    free(input[k].data);
    input[k] = narrow;
  }
}

static void free_all(Operand *x, int n) {
  for (int k = 0; k < n; k++) free(x[k].data);
}

// out and logsumexp of a call's inputs.
static void forward(const Whole *w, const Operand *input, Operand part[2]) {
  Dtype wide = op_statistics_dtype(input[Q].dtype);
  part[0] = like(&input[Q], wide);
  part[1] = rows_of(&input[Q], wide);
  run(w, OP_ATTENTION, input, 5, part, 2);
}

static void expect(const Whole *w, const double *got, const Operand *expected, double tolerance, const char *what) {
  double largest = 0.1;
  int64_t n = operand_elements(expected);
  for (int64_t i = 0; i < n; i++)
    if (isfinite(operand_load(expected, i))) largest = fmax(largest, fabs(operand_load(expected, i)));
  for (int64_t i = 0; i < n; i++)
    if (got[i] != operand_load(expected, i) && !(fabs(got[i] - operand_load(expected, i)) <= tolerance * largest))
      fail_msg("%s of %d ranks, %s %s [%lld]: %.15g, whole %.15g", what, w->ranks,
               w->level == REFERENCE ? "reference" : cpu_level_name((CpuLevel)w->level),
               dtype_name(w->input[Q].dtype), (long long)i, got[i], operand_load(expected, i));
}

static double tolerance_of(const Whole *w) {
  Dtype dtype = w->input[Q].dtype; // bf16: probabilities are rounded for the products that read them
  if (w->level == REFERENCE) return dtype == DTYPE_F64 ? 1e-13 : 1e-5;
  return dtype == DTYPE_F64 ? 1e-12 : dtype == DTYPE_BF16 ? 0x1p-6 : 2e-5;
}

// A rank's queries against all keys: forward results and dq are parts of the whole, and parts of dk and dv add up to
// it. Bit for bit in the reference, dropout included.
static void check_all_keys(const Whole *w) {
  const Operand *expected[] = {&w->input[OUT], &w->input[LOGSUMEXP], &w->gradient[0], &w->gradient[1], &w->gradient[2]};
  static const char *const name[] = {"out", "logsumexp", "dq", "dk", "dv"};
  double *got[5];
  for (int k = 0; k < 5; k++) got[k] = xcalloc((size_t)operand_elements(expected[k]), sizeof(double));
  for (int rank = 0; rank < w->ranks; rank++) {
    Operand input[INPUTS], part[5];
    take_inputs(w, zigzag(w, rank), index_whole(w->input[K].size[1]), input);
    forward(w, input, part);
    for (int k = 0; k < 3; k++) part[2 + k] = like(&input[k], op_statistics_dtype(input[k].dtype));
    run(w, OP_ATTENTION_GRAD, input, INPUTS, part + 2, 3);
    for (int k = 0; k < 5; k++) add_part(got[k], &part[k], 1, name[k]);
    free_all(input, INPUTS);
    free_all(part, 5);
  }
  for (int k = 0; k < 5; k++) {
    expect(w, got[k], expected[k], w->level == REFERENCE && k < 3 ? 0 : tolerance_of(w), name[k]);
    free(got[k]);
  }
}

// As a ring: a rank's queries against the blocks of all ranks, its own first, merged one after the other; gradients of
// all blocks added up.
static void check_blocks(const Whole *w) {
  const Operand *expected[] = {&w->input[OUT], &w->input[LOGSUMEXP], &w->gradient[0], &w->gradient[1], &w->gradient[2]};
  static const char *const name[] = {"merged out", "merged logsumexp", "dq of blocks", "dk of blocks", "dv of blocks"};
  double *got[5];
  for (int k = 0; k < 5; k++) got[k] = xcalloc((size_t)operand_elements(expected[k]), sizeof(double));
  for (int rank = 0; rank < w->ranks; rank++) {
    Operand sum[2] = {{0}};
    for (int step = 0; step < w->ranks; step++) {
      int from = (rank - step + w->ranks) % w->ranks;
      Operand input[INPUTS], part[2], gradient[3];
      take_inputs(w, zigzag(w, rank), zigzag(w, from), input);
      forward(w, input, part);
      for (int k = 0; k < 3; k++) gradient[k] = like(&input[k], op_statistics_dtype(input[k].dtype));
      run(w, OP_ATTENTION_GRAD, input, INPUTS, gradient, 3);
      for (int k = 0; k < 3; k++) add_part(got[2 + k], &gradient[k], 1, name[2 + k]);
      if (step) {
        Operand both[] = {sum[0], sum[1], part[0], part[1]};
        run(w, OP_MERGE, both, 4, sum, 2); // in place
        free_all(part, 2);
      } else memcpy(sum, part, sizeof sum);
      free_all(input, INPUTS);
      free_all(gradient, 3);
    }
    for (int k = 0; k < 2; k++) add_part(got[k], &sum[k], 1, name[k]);
    free_all(sum, 2);
  }
  for (int k = 0; k < 5; k++) {
    expect(w, got[k], expected[k], tolerance_of(w), name[k]);
    free(got[k]);
  }
}

// The parts by the kernels of these levels, which this machine need not have.
static void check(int from, int to, Dtype dtype, int64_t chunk, int most_ranks) {
  for (int ranks = 2; ranks <= most_ranks; ranks++)
    for (int way = 0; way < 3; way++) { // causal, with dropout, and neither
      Whole w = whole_of(REFERENCE, dtype, ranks, chunk, way == 1 ? 0.3 : 0, way < 2);
      for (w.level = from; w.level <= to; w.level++) {
        if (w.level != REFERENCE && !cpu_level_available((CpuLevel)w.level)) continue;
        check_all_keys(&w);
        check_blocks(&w);
      }
      whole_free(&w);
    }
}

static void reference_parts_equal_the_whole(void **state) {
  check(REFERENCE, REFERENCE, DTYPE_F64, 3, 4);
  check(REFERENCE, REFERENCE, DTYPE_F32, 5, 4);
  check(REFERENCE, REFERENCE, DTYPE_BF16, 4, 4);
}

// Chunks that fit into tiles of the kernels, of two ranks and of three, whose middle one has blocks before and after;
// and chunks that do not fit. In make test the level that this machine takes, of two ranks.
static void fast_parts_equal_the_whole(void **state) {
  static const Dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  int taken = (int)cpu_simd_level();
  for (int k = 0; k < 4; k++) {
    if (test_tier() < 2) {
      check(taken, taken, dtypes[k], 7, 2);
      check(taken, taken, dtypes[k], 64, 2);
      continue;
    }
    check(0, CPU_LEVELS - 1, dtypes[k], 7, 4);
    check(CPU_PORTABLE, CPU_PORTABLE, dtypes[k], 37, 4);
    check(CPU_PORTABLE + 1, CPU_LEVELS - 1, dtypes[k], 64, 3);
  }
}

// Keys that the causal mask hides from a whole tile of queries are not computed: what is in them does not matter.
static void hidden_blocks_are_not_computed(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int dtype = 0; dtype < 3 && cpu_level_available((CpuLevel)level); dtype++) {
      Whole w = whole_of(level, (Dtype[]){DTYPE_F64, DTYPE_F32, DTYPE_BF16}[dtype], 2, 64, 0, 1);
      Operand input[INPUTS], part[2], gradient[3];
      take_inputs(&w, zigzag(&w, 0), zigzag(&w, 1), input); // chunks 0 and 3 of queries, 1 and 2 of keys
      for (int k = K; k <= V; k++)
        for (int64_t i = operand_elements(&input[k]) - 1; i >= 0; i--) operand_store(&input[k], i, NAN);
      forward(&w, input, part);
      for (int k = 0; k < 3; k++) gradient[k] = like(&input[k], op_statistics_dtype(input[k].dtype));
      run(&w, OP_ATTENTION_GRAD, input, INPUTS, gradient, 3);
      int64_t row = operand_extent(&input[Q], 2, 5);
      for (int64_t i = 0; i < 64 * row; i++) { // of the first sample, chunk 0
        assert_true(operand_load(&part[0], i) == 0);
        assert_true(operand_load(&gradient[0], i) == 0);
        assert_true(isnan(operand_load(&part[0], 64 * row + i))); // chunk 3 sees them
      }
      for (int64_t i = 0; i < 64; i++) assert_true(operand_load(&part[1], i) == -INFINITY);
      free_all(input, INPUTS);
      free_all(part, 2);
      free_all(gradient, 3);
      whole_free(&w);
    }
}

// FLOPs are those of the pairs that positions let queries see: in zigzag order equally many on every rank, in
// contiguous order the last of P ranks has (2P - 1)/P times the mean.
static double pairs_of(const IndexMap *queries, const IndexMap *keys) {
  Operand input[2] = {{.rank = 5, .size = {1, queries->local, 1, 1, 1}}, {.rank = 4, .size = {1, keys->local, 1, 1}}};
  AttentionAttr attr = {.causal = 1};
  input[0].map[1] = *queries;
  input[1].map[1] = *keys;
  double pairs = op_def(OP_ATTENTION)->pairs(input, NULL, &attr),
         flops = op_work(op_def(OP_ATTENTION), input, 2, NULL, 0, &attr).matrix;
  assert_true(flops == 4 * pairs); // two products of width 1
  return pairs;
}

static void flops_count_visible_pairs(void **state) {
  for (int ranks = 2; ranks <= 8; ranks++) {
    int64_t chunk = 13, s = 2 * ranks * chunk;
    Whole w = {.ranks = ranks, .input = {[Q] = {.rank = 5, .size = {1, s}}}};
    for (int a = 0; a < ranks; a++)
      for (int b = 0; b < ranks; b++) {
        IndexMap queries = zigzag(&w, a), keys = zigzag(&w, b);
        int64_t count = 0;
        for (int64_t i = 0; i < queries.local; i++)
          for (int64_t j = 0; j < keys.local; j++) count += index_map(&keys, j) <= index_map(&queries, i);
        assert_true(pairs_of(&queries, &keys) == (double)count);
      }
  }
  for (int ranks = 2; ranks <= 64; ranks *= 2) {
    int64_t s = 8192, part = s / ranks;
    Whole w = {.ranks = ranks, .input = {[Q] = {.rank = 5, .size = {1, s}}}};
    IndexMap keys = index_whole(s), last = index_range(s - part, part, s);
    double mean = (double)s * (double)(s + 1) / 2 / ranks;
    assert_true(pairs_of(&keys, &keys) == mean * ranks);
    for (int rank = 0; rank < ranks; rank++) {
      IndexMap queries = zigzag(&w, rank);
      assert_true(pairs_of(&queries, &keys) == mean);
    }
    assert_true(fabs(pairs_of(&last, &keys) / mean - (2 * ranks - 1.0) / ranks) < 1e-3);
  }
}

// However great scores are, backward computes the probabilities of forward: those of a query have the sum 1, so over
// all keys dv has the sum of dout.
static void great_scores_keep_probabilities(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int dtype = 0; dtype < 2 && cpu_level_available((CpuLevel)level); dtype++) {
      Whole w = whole_of(level, (Dtype[]){DTYPE_F64, DTYPE_F32}[dtype], 1, 40, 0, 1);
      for (int64_t i = operand_elements(&w.input[Q]) - 1; i >= 0; i--)
        operand_store(&w.input[Q], i, 1e12 * operand_load(&w.input[Q], i));
      run(&w, OP_ATTENTION, w.input, 5, &w.input[OUT], 2);
      run(&w, OP_ATTENTION_GRAD, w.input, INPUTS, w.gradient, 3);
      double all = 0, seen = 0;
      for (int64_t i = operand_elements(&w.input[DOUT]) - 1; i >= 0; i--) all += operand_load(&w.input[DOUT], i);
      for (int64_t i = operand_elements(&w.gradient[V]) - 1; i >= 0; i--) seen += operand_load(&w.gradient[V], i);
      assert_true(fabs(seen - all) < 1e-3 * sqrt((double)operand_elements(&w.input[DOUT])));
      for (int k = Q; k <= K; k++)
        for (int64_t i = operand_elements(&w.gradient[k]) - 1; i >= 0; i--)
          assert_true(isfinite(operand_load(&w.gradient[k], i)));
      whole_free(&w);
    }
}

// Exponentials in fp32 are off by roundings alone, whatever x is beside the next multiple of ln 2: a bias would not
// cancel, since x is less the maximum in forward and less logsumexp in backward. Two keys with scores 0 and x < 0, of
// values 0 and 1, give e^x / (1 + e^x). Its relative error in units of roundoff has a deviation of 0.6; here are means
// of 2,000.
static void exponentials_have_no_bias(void **state) {
  enum { SAMPLES = 256, QUERIES = 64, BINS = 8 };
  for (int level = 0; level < CPU_LEVELS && cpu_level_available((CpuLevel)level); level++) {
    Whole w = {.level = level, .attr = {.scale = 1}};
    w.input[Q] = random_operand(DTYPE_F32, 5, (int64_t[]){SAMPLES, QUERIES, 1, 1, 1}, 1);
    w.input[K] = random_operand(DTYPE_F32, 4, (int64_t[]){SAMPLES, 2, 1, 1}, 2);
    w.input[DOCUMENTS] = random_operand(DTYPE_I32, 2, (int64_t[]){SAMPLES, QUERIES}, 3);
    w.input[KEY_DOCUMENTS] = random_operand(DTYPE_I32, 2, (int64_t[]){SAMPLES, 2}, 4);
    for (int i = 0; i < SAMPLES * QUERIES; i++) {
      ((int32_t *)w.input[DOCUMENTS].data)[i] = 0;
      ((float *)w.input[Q].data)[i] = (float)(-8 * (double)((uint32_t)i * 2654435761u) / 0x1p32);
    }
    for (int i = 0; i < SAMPLES * 2; i++) {
      ((int32_t *)w.input[KEY_DOCUMENTS].data)[i] = 0;
      ((float *)w.input[K].data)[i] = (float)(i % 2);
    }
    w.input[V] = w.input[K];
    w.input[OUT] = like(&w.input[Q], DTYPE_F32);
    w.input[LOGSUMEXP] = rows_of(&w.input[Q], DTYPE_F32);
    run(&w, OP_ATTENTION, w.input, 5, &w.input[OUT], 2);
    double error[BINS] = {0}, count[BINS] = {0};
    for (int i = 0; i < SAMPLES * QUERIES; i++) {
      double x = operand_load(&w.input[Q], i), p = exp(x) / (1 + exp(x)), n = x / log(2);
      int bin = (int)((n - floor(n)) * BINS);
      error[bin] += (operand_load(&w.input[OUT], i) - p) / p * 0x1p24;
      count[bin]++;
    }
    for (int bin = 0; bin < BINS; bin++)
      if (fabs(error[bin]) > 0.1 * count[bin])
        fail_msg("%s: a bias of %.2f roundoffs in bin %d", cpu_level_name((CpuLevel)level), error[bin] / count[bin],
                 bin);
    w.input[V].data = NULL; // is K's
    free(w.input[KEY_DOCUMENTS].data); // which whole_free takes for those of the queries
    whole_free(&w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reference_parts_equal_the_whole),
      cmocka_unit_test(fast_parts_equal_the_whole),
      cmocka_unit_test(hidden_blocks_are_not_computed),
      cmocka_unit_test(great_scores_keep_probabilities),
      cmocka_unit_test(exponentials_have_no_bias),
      cmocka_unit_test(flops_count_visible_pairs),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
