// tier 1 2 3; rooms device; numbers
// A row has the same bits whatever else is computed with it: products and attention of 1 to 300 rows, the head with and
// without gradients, and documents at any offset of a row. Every SIMD level of this machine, every dtype, one thread
// and several.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/team.h"
#include "device/cpu/cpu.h"
#include "op/op.h"
#include "check/evaluate.h"
#include "tier.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const Dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, MOST_ROWS = 300 };

typedef struct Call {
  CpuLevel level;
  Team *team;
  Op op;
  const void *attr;
  int ninput, noutput;
  Operand input[8], output[5];
} Call;

static Operand operand_of(Dtype dtype, int rank, const int64_t *size) {
  Operand x = {.dtype = dtype, .rank = rank};
  for (int d = 0; d < rank; d++) x.size[d] = size[d], x.map[d] = index_whole(size[d]);
  operand_allocate(&x);
  return x;
}
#define OPERAND(dtype, ...)                                                                                            \
  operand_of(dtype, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

// Between -1 and 1; many are needed, so not Philox.
static double number(int salt, int64_t row, int64_t column) {
  uint64_t x = (uint64_t)(row * 100003 + column + 1) * 0x9e3779b97f4a7c15u + (uint64_t)salt * 0xd1b54a32d192ed03u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return (double)(int64_t)(x ^ x >> 32) * 0x1p-63;
}

// Rows [first, first + rows) of a matrix of random numbers; columns: what follows the first `lead` dims.
static void fill_rows(Operand *x, int lead, int salt, int64_t first) {
  int64_t columns = operand_extent(x, lead, x->rank), rows = operand_extent(x, 0, lead);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) operand_store(x, i * columns + j, number(salt, first + i, j));
}

static void run(Call *c) {
  const KernelEntry *entry = cpu_find(c->level, c->op, c->input[0].dtype);
  assert_non_null(entry);
  CallParameters parameters = {.seed = 5, .step = 3};
  DeviceQueue queue = {.team = c->team};
  KernelCall call = {.ninput = c->ninput, .noutput = c->noutput, .input = c->input, .output = c->output,
                     .attr = c->attr, .parameters = &parameters, .queue = &queue};
  int slots = c->team ? team_slots(c->team) : 1;
  if (entry->workspace) call.workspace_size = entry->workspace(c->input, c->output, c->attr, slots);
  call.workspace = aligned_alloc(64, (call.workspace_size + 127) / 64 * 64);
  memset(call.workspace, 0xff, call.workspace_size);
  entry->kernel(&call);
  free(call.workspace);
}

static void call_free(Call *c) {
  for (int k = 0; k < c->ninput; k++) free(c->input[k].data);
  for (int k = 0; k < 5; k++) free(c->output[k].data); // some ops make fewer than there is room for
}

// `n` elements from `at` on of one operand, and from `other_at` on of another.
static void same_bits(const Call *c, const Operand *x, int64_t at, const Operand *y, int64_t other_at, int64_t n,
                      const char *what, int64_t rows) {
  size_t size = dtype_size(x->dtype);
  for (int64_t i = 0; i < n; i++)
    if (memcmp((const char *)x->data + (size_t)(at + i) * size, (const char *)y->data + (size_t)(other_at + i) * size,
               size))
      fail_msg("%s of %lld, %s %s, %d threads [%lld]: %.17g, alone %.17g", what, (long long)rows,
               cpu_level_name(c->level), dtype_name(c->input[0].dtype), c->team ? team_size(c->team) : 1, (long long)i,
               operand_load(x, at + i), operand_load(y, other_at + i));
}

// The next count of rows that is tried. In tier 2 each up to 40, which is past the rows that a kernel takes at once,
// and then every seventh: tiles have even numbers of rows, and so an edge of each width is met.
static int64_t next_count(int64_t rows) {
  static const int64_t sample[] = {2, 3, 4, 5, 7, 8, 13, 15, 29, 33, 64, 66, 97, 129, 300};
  const int64_t step = test_tier() > 2 || rows < 40 ? 1 : 7;
  if (test_tier() > 1) return rows < MOST_ROWS && rows + step > MOST_ROWS ? MOST_ROWS : rows + step;
  for (size_t i = 0; i < sizeof sample / sizeof *sample; i++)
    if (sample[i] > rows) return sample[i];
  return MOST_ROWS + 1;
}

// In tier 1 with several threads in fp32 and bf16, and with one in the others.
static void each_level(void (*test)(CpuLevel level, Dtype dtype, Team *team)) {
  Team *team;
  Error error = {0};
  int all = test_tier() > 1;
  assert_int_equal(team_create(all ? 3 : 2, &team, &error), PLAIT_OK);
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int d = 0; d < DTYPES && cpu_level_available((CpuLevel)level); d++) {
      int together = dtypes[d] == DTYPE_F32 || dtypes[d] == DTYPE_BF16;
      if (all || !together) test((CpuLevel)level, dtypes[d], NULL);
      if (all || together) test((CpuLevel)level, dtypes[d], team);
    }
  team_destroy(team);
}

// ---- products

typedef struct ProductCase { MatmulAttr attr; int wide; int64_t k; } ProductCase; // wide: sums have statistics' dtype

// Rows [first, first + rows) of the product of a (MOST_ROWS, k) and w.
static Call product_of(CpuLevel level, Team *team, const ProductCase *p, const Operand *a, const Operand *w,
                       int64_t first, int64_t rows) {
  Call c = {level, team, OP_MATMUL, &p->attr, 2, 1, {{0}}, {{0}}};
  size_t size = dtype_size(a->dtype);
  int tn = p->attr.kind == MATMUL_TN;
  c.input[0] = tn ? OPERAND(a->dtype, p->k, rows) : OPERAND(a->dtype, rows, p->k);
  c.input[1] = *w;
  char *to = c.input[0].data;
  const char *from = (const char *)a->data + (size_t)(first * p->k) * size;
  if (!tn) memcpy(to, from, (size_t)(rows * p->k) * size);
  for (int64_t i = 0; tn && i < rows; i++)
    for (int64_t j = 0; j < p->k; j++)
      memcpy(to + (size_t)(j * rows + i) * size, from + (size_t)(i * p->k + j) * size, size);
  c.output[0] = OPERAND(p->wide ? op_statistics_dtype(a->dtype) : a->dtype, rows, operand_elements(w) / p->k);
  if (p->attr.accumulate) { // a call that lacks it stores the product
    c.input[2] = c.output[0];
    c.input[2].data = NULL;
    c.ninput = 3;
  }
  run(&c);
  c.input[1].data = NULL;
  return c;
}

static void product_case(CpuLevel level, Dtype dtype, Team *team, const ProductCase *p) {
  Operand a = OPERAND(dtype, MOST_ROWS, p->k),
          w = p->attr.kind == MATMUL_NT ? OPERAND(dtype, 70, p->k) : OPERAND(dtype, p->k, 70);
  fill_rows(&a, 1, 1, 0);
  fill_rows(&w, 1, 2, 0);
  Call one = product_of(level, NULL, p, &a, &w, 0, 1);
  for (int64_t rows = next_count(1); rows <= MOST_ROWS; rows = next_count(rows)) {
    Call all = product_of(level, team, p, &a, &w, 0, rows), last = product_of(level, NULL, p, &a, &w, rows - 1, 1);
    int64_t n = all.output[0].size[1];
    same_bits(&all, &all.output[0], 0, &one.output[0], 0, n, "the first row of a product", rows);
    same_bits(&all, &all.output[0], (rows - 1) * n, &last.output[0], 0, n, "the last row of a product", rows);
    call_free(&all);
    call_free(&last);
  }
  call_free(&one);
  free(a.data);
  free(w.data);
}

static void product_rows(CpuLevel level, Dtype dtype, Team *team) {
  static const ProductCase of[] = {
      {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 40},
      {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 1100},
      {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 1024}, // columns of B collide in a cache
      {{.kind = MATMUL_NN, .m = 1, .n = 1, .k = 1}, 0, 1100},
      {{.kind = MATMUL_NN, .m = 1, .n = 1, .k = 1, .accumulate = 1}, 1, 1100},
      {{.kind = MATMUL_TN, .m = 1, .n = 1, .k = 1}, 1, 1100},
  };
  for (size_t p = 0; p < sizeof of / sizeof *of; p++) product_case(level, dtype, team, &of[p]);
}

static void rows_of_products_do_not_depend_on_others(void **state) { each_level(product_rows); }

// ---- attention

// `rows` queries from position FIRST on against all keys.
static Call attention_of(CpuLevel level, Dtype dtype, Team *team, const AttentionAttr *attr, int64_t rows) {
  enum { FIRST = 150, KEYS = FIRST + MOST_ROWS, HEADS = 2, GROUP = 2, WIDTH = 18, BORDER = 37 };
  Dtype wide = op_statistics_dtype(dtype);
  Call c = {level, team, OP_ATTENTION, attr, 5, 2, {{0}}, {{0}}};
  c.input[0] = OPERAND(dtype, 1, rows, HEADS, GROUP, WIDTH);
  c.input[1] = OPERAND(dtype, 1, KEYS, HEADS, WIDTH);
  c.input[2] = OPERAND(dtype, 1, KEYS, HEADS, WIDTH);
  for (int k = 0; k < 3; k++) fill_rows(&c.input[k], 2, k, 0);
  c.input[3] = OPERAND(DTYPE_I32, 1, rows);
  c.input[4] = OPERAND(DTYPE_I32, 1, KEYS);
  for (int64_t i = 0; i < rows; i++) ((int32_t *)c.input[3].data)[i] = 1;
  for (int64_t i = 0; i < KEYS; i++) ((int32_t *)c.input[4].data)[i] = i >= BORDER;
  c.output[0] = OPERAND(dtype, 1, rows, HEADS, GROUP, WIDTH);
  c.output[1] = OPERAND(wide, 1, HEADS, GROUP, rows);
  c.input[0].map[1] = c.output[0].map[1] =
      (IndexMap){.local = rows, .valid = rows, .global = KEYS, .runs = 1, .run = {{0, FIRST}}};
  run(&c);
  return c;
}

static void attention_rows(CpuLevel level, Dtype dtype, Team *team) {
  for (int causal = 0; causal < 2; causal++) {
    const AttentionAttr attr = {.scale = 0.3, .causal = causal};
    Call one = attention_of(level, dtype, NULL, &attr, 1);
    for (int64_t rows = next_count(1); rows <= MOST_ROWS; rows = next_count(rows)) {
      Call all = attention_of(level, dtype, team, &attr, rows);
      int64_t n = operand_elements(&one.output[0]), heads = operand_elements(&one.output[1]);
      same_bits(&all, &all.output[0], 0, &one.output[0], 0, n, "the first query", rows);
      for (int64_t h = 0; h < heads; h++)
        same_bits(&all, &all.output[1], h * rows, &one.output[1], h, 1, "the first query's logsumexp", rows);
      call_free(&all);
    }
    call_free(&one);
  }
}

static void queries_do_not_depend_on_others(void **state) { each_level(attention_rows); }

// ---- documents

enum { Q, K, V, DOCUMENTS, KEY_DOCUMENTS, OUT, LOGSUMEXP, DOUT, INPUTS };

// A row with a document of LENGTH tokens after `offset` others and before `more`; with its gradients, which follow
// OUT and LOGSUMEXP in `output`.
static Call documents_of(CpuLevel level, Dtype dtype, Team *team, const AttentionAttr *attr, int64_t length,
                         int64_t offset, int64_t more) {
  enum { HEADS = 2, GROUP = 2, WIDTH = 18, OTHERS = 53 }; // tokens of each of the documents before it
  int64_t s = offset + length + more;
  Call c = {level, team, OP_ATTENTION, attr, 5, 2, {{0}}, {{0}}}, gradient;
  c.input[Q] = OPERAND(dtype, 1, s, HEADS, GROUP, WIDTH);
  c.input[K] = OPERAND(dtype, 1, s, HEADS, WIDTH);
  c.input[V] = OPERAND(dtype, 1, s, HEADS, WIDTH);
  c.input[DOCUMENTS] = OPERAND(DTYPE_I32, 1, s);
  c.input[KEY_DOCUMENTS] = OPERAND(DTYPE_I32, 1, s);
  c.input[OUT] = OPERAND(dtype, 1, s, HEADS, GROUP, WIDTH);
  c.input[LOGSUMEXP] = OPERAND(op_statistics_dtype(dtype), 1, HEADS, GROUP, s);
  c.input[DOUT] = OPERAND(dtype, 1, s, HEADS, GROUP, WIDTH);
  for (int k = Q; k <= V; k++) fill_rows(&c.input[k], 2, k, -offset);
  fill_rows(&c.input[DOUT], 2, DOUT, -offset);
  int32_t last = (int32_t)(offset / OTHERS) + 1;
  for (int64_t i = 0; i < s; i++)
    ((int32_t *)c.input[DOCUMENTS].data)[i] = ((int32_t *)c.input[KEY_DOCUMENTS].data)[i] =
        i < offset ? (int32_t)(i / OTHERS) : i < offset + length ? last : last + 1;
  c.output[0] = c.input[OUT];
  c.output[1] = c.input[LOGSUMEXP];
  run(&c);
  gradient = c;
  gradient.op = OP_ATTENTION_GRAD;
  gradient.ninput = INPUTS;
  gradient.noutput = 3;
  for (int k = 0; k < 3; k++) {
    gradient.output[k] = c.input[k];
    operand_allocate(&gradient.output[k]);
  }
  run(&gradient);
  return gradient;
}

static void one_document(CpuLevel level, Dtype dtype, Team *team, const AttentionAttr *attr, int64_t length) {
  static const int64_t sample[] = {1, 63, 64, 106, 199};
  Call alone = documents_of(level, dtype, NULL, attr, length, 0, 0);
  int64_t heads = alone.input[Q].size[2] * alone.input[Q].size[3];
  const int count = sizeof sample / sizeof *sample;
  for (int64_t i = 0, offset = 1, s; test_tier() > 1 ? offset <= 200 : i < count; i++) {
    if (test_tier() == 1) offset = sample[i];
    Call c = documents_of(level, dtype, team, attr, length, offset, offset % 3 * 40);
    s = c.input[Q].size[1];
    for (int64_t h = 0; h < heads; h++)
      same_bits(&c, &c.input[LOGSUMEXP], h * s + offset, &alone.input[LOGSUMEXP], h * length, length,
                "logsumexp of a document at an offset", offset);
    static const char *const what[] = {"dq of a document at an offset", "dk of a document at an offset",
                                       "dv of a document at an offset", "out of a document at an offset"};
    for (int k = 0; k < 4; k++) {
      const Operand *x = k < 3 ? &c.output[k] : &c.input[OUT], *y = k < 3 ? &alone.output[k] : &alone.input[OUT];
      int64_t width = operand_extent(x, 2, x->rank);
      same_bits(&c, x, offset * width, y, 0, length * width, what[k], offset);
    }
    call_free(&c);
    offset += test_tier() > 2 || offset < 20 ? 1 : 3; // 3 divides no width of a tile
  }
  call_free(&alone);
}

static void documents_at_offsets(CpuLevel level, Dtype dtype, Team *team) {
  for (int causal = 0; causal < 2; causal++) {
    const AttentionAttr attr = {.scale = 0.3, .causal = causal};
    one_document(level, dtype, team, &attr, 200);
    if (test_tier() > 1) one_document(level, dtype, team, &attr, 30);
  }
}

static void documents_are_the_same_anywhere(void **state) { each_level(documents_at_offsets); }

// ---- the head

enum { WORDS = 600, EMBED = 600 };

// One of the head's ops on the first `rows` rows of x, with w: LOGITS, STATISTICS, or the loss, which leaves dw to
// WEIGHT.
static Call head_of(CpuLevel level, Team *team, const Operand *x, const Operand *w, Op op, const CrossEntropyAttr *attr,
                    int64_t rows) {
  Dtype dtype = x->dtype;
  Call c = {level, team, op, attr, 3, 3, {{0}}, {{0}}};
  Dtype wide = op_statistics_dtype(dtype);
  c.input[0] = OPERAND(dtype, 1, rows, EMBED);
  memcpy(c.input[0].data, x->data, (size_t)(rows * EMBED) * dtype_size(dtype));
  c.input[1] = *w;
  c.input[2] = OPERAND(DTYPE_I32, 1, rows); // targets, or positions that are wanted
  for (int64_t i = 0; i < rows; i++) ((int32_t *)c.input[2].data)[i] = (int32_t)(i * 37 % WORDS);
  int loss = op == OP_LINEAR_CROSS_ENTROPY;
  for (int k = loss ? 2 : op == OP_LOGITS; k < 3; k++) c.output[k] = OPERAND(wide, 1, rows);
  if (op == OP_LOGITS) c.output[0] = OPERAND(wide, 1, rows, WORDS);
  if (loss) {
    c.input[c.ninput++] = OPERAND(DTYPE_F64, 1);
    c.input[3].rank = 0;
    operand_store(&c.input[3], 0, 1);
    c.noutput = attr->gradient ? 4 : 1;
    c.output[0] = OPERAND(DTYPE_F64, 1);
    c.output[0].rank = 0;
    c.output[1] = OPERAND(dtype, 1, rows, EMBED);
    c.output[3] = OPERAND(wide, 1, rows);
  }
  run(&c);
  c.input[1].data = NULL;
  return c;
}

static void head_rows(CpuLevel level, Dtype dtype, Team *team) {
  const CrossEntropyAttr trains = {.gradient = 1, .split = CROSS_ENTROPY_SUMS}, evaluates = {0};
  Operand x = OPERAND(dtype, MOST_ROWS, EMBED), w = OPERAND(dtype, WORDS, EMBED);
  fill_rows(&x, 1, 1, 0);
  fill_rows(&w, 1, 2, 0);
  Call one = head_of(level, NULL, &x, &w, OP_LOGITS, NULL, 1);
  Call one_dx = head_of(level, NULL, &x, &w, OP_LINEAR_CROSS_ENTROPY, &trains, 1);
  const int64_t most = test_tier() > 1 ? MOST_ROWS : 130;
  for (int64_t rows = next_count(1); rows <= most; rows = next_count(rows + (test_tier() > 1 ? 10 : 60))) {
    Call logits = head_of(level, team, &x, &w, OP_LOGITS, NULL, rows),
         statistics = head_of(level, team, &x, &w, OP_CROSS_ENTROPY_STATISTICS, NULL, rows),
         loss = head_of(level, team, &x, &w, OP_LINEAR_CROSS_ENTROPY, &trains, rows),
         eval = head_of(level, team, &x, &w, OP_LINEAR_CROSS_ENTROPY, &evaluates, rows);
    same_bits(&logits, &logits.output[0], 0, &one.output[0], 0, WORDS, "the first row of logits", rows);
    for (int64_t row = 0; row < rows; row++)
      same_bits(&logits, &logits.output[0], row * WORDS + row * 37 % WORDS, &statistics.output[2], row, 1,
                "a target's logit", rows);
    for (int k = 0; k < 2; k++) {
      same_bits(&logits, &logits.output[1 + k], 0, &statistics.output[k], 0, rows, "a sum of logits, of statistics",
                rows);
      same_bits(&logits, &logits.output[1 + k], 0, &loss.output[2 + k], 0, rows, "a sum of logits, of training", rows);
    }
    same_bits(&loss, &loss.output[0], 0, &eval.output[0], 0, 1, "the loss of training, of evaluation", rows);
    same_bits(&loss, &loss.output[1], 0, &one_dx.output[1], 0, EMBED, "the first row of dx", rows);
    call_free(&logits);
    call_free(&statistics);
    call_free(&loss);
    call_free(&eval);
  }
  call_free(&one);
  call_free(&one_dx);
  free(x.data);
  free(w.data);
}

static void the_head_is_the_same_for_training_eval_and_generation(void **state) { each_level(head_rows); }

// ---- weights in bf16 that fp32 products widen

// The same numbers in both dtypes.
static void weights_of(Operand *narrow, Operand *wide) {
  fill_rows(narrow, 1, 2, 0);
  for (int64_t i = 0; i < operand_elements(narrow); i++) operand_store(wide, i, operand_load(narrow, i));
}

static void same_outputs(Call *narrow, Call *wide, const char *what, int64_t rows) {
  for (int k = 0; k < wide->noutput; k++) {
    if (!wide->output[k].data) continue;
    same_bits(narrow, &narrow->output[k], 0, &wide->output[k], 0, operand_elements(&wide->output[k]), what, rows);
  }
  call_free(narrow);
  call_free(wide);
}

static void widened_products(CpuLevel level, Team *team) {
  static const ProductCase of[] = {{{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 43},
                                   {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 1100},
                                   {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, 1024}, // lines of B are copied
                                   {{.kind = MATMUL_NN, .m = 1, .n = 1, .k = 1}, 0, 1100}};
  for (size_t p = 0; p < sizeof of / sizeof *of; p++) {
    int nt = of[p].attr.kind == MATMUL_NT;
    Operand a = OPERAND(DTYPE_F32, MOST_ROWS, of[p].k);
    Operand narrow = nt ? OPERAND(DTYPE_BF16, 70, of[p].k) : OPERAND(DTYPE_BF16, of[p].k, 70), wide = narrow;
    wide.dtype = DTYPE_F32;
    operand_allocate(&wide);
    fill_rows(&a, 1, 1, 0);
    weights_of(&narrow, &wide);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows = next_count(rows)) {
      Call x = product_of(level, team, &of[p], &a, &narrow, 0, rows),
           y = product_of(level, team, &of[p], &a, &wide, 0, rows);
      same_outputs(&x, &y, "a product with a widened weight", rows);
    }
    free(a.data);
    free(narrow.data);
    free(wide.data);
  }
}

static void widened_head(CpuLevel level, Team *team) {
  static const Op ops[] = {OP_LOGITS, OP_CROSS_ENTROPY_STATISTICS, OP_LINEAR_CROSS_ENTROPY};
  const CrossEntropyAttr evaluates = {0};
  Operand x = OPERAND(DTYPE_F32, MOST_ROWS, EMBED), narrow = OPERAND(DTYPE_BF16, WORDS, EMBED),
          wide = OPERAND(DTYPE_F32, WORDS, EMBED);
  fill_rows(&x, 1, 1, 0);
  weights_of(&narrow, &wide);
  for (int k = 0; k < 3; k++)
    for (int64_t rows = 5; rows < 100; rows += 60) {
      Call a = head_of(level, team, &x, &narrow, ops[k], &evaluates, rows),
           b = head_of(level, team, &x, &wide, ops[k], &evaluates, rows);
      same_outputs(&a, &b, "a head with a widened weight", rows);
    }
  free(x.data);
  free(narrow.data);
  free(wide.data);
}

// Three experts with 11 rows, none and 5.
static Call grouped_of(CpuLevel level, Team *team, const GroupedAttr *attr, const Operand *w) {
  enum { EXPERTS = 3, ROWS = 16, FIRST = 11 };
  int64_t n = w->size[1], k = w->size[2], nt = attr->kind == MATMUL_NT;
  Call c = {level, team, OP_GROUPED, attr, 3, 1, {{0}}, {{0}}};
  c.input[0] = OPERAND(DTYPE_F32, 1, ROWS, EXPERTS, nt ? k : n);
  c.input[1] = *w;
  c.input[2] = OPERAND(DTYPE_U8, 1, ROWS, EXPERTS);
  c.output[0] = OPERAND(DTYPE_F32, 1, ROWS, EXPERTS, nt ? n : k);
  fill_rows(&c.input[0], 3, 1, 0);
  for (int64_t i = 0; i < ROWS; i++) ((uint8_t *)c.input[2].data)[i * EXPERTS + (i < FIRST ? 0 : 2)] = 1;
  run(&c);
  c.input[1].data = NULL;
  return c;
}

static void widened_experts(CpuLevel level, Team *team) {
  Operand narrow = OPERAND(DTYPE_BF16, 3, 70, 90), wide = OPERAND(DTYPE_F32, 3, 70, 90);
  weights_of(&narrow, &wide);
  for (int nn = 0; nn < 2; nn++) {
    const GroupedAttr attr = {.kind = nn ? MATMUL_NN : MATMUL_NT};
    Call a = grouped_of(level, team, &attr, &narrow), b = grouped_of(level, team, &attr, &wide);
    assert_true(fabs(operand_load(&b.output[0], 15 * (nn ? 90 : 70))) > 1e-3); // the last row of the last expert
    same_outputs(&a, &b, "experts with widened weights", 16);
  }
  free(narrow.data);
  free(wide.data);
}

static void widened_weights(CpuLevel level, Dtype dtype, Team *team) {
  if (dtype != DTYPE_F32) return;
  widened_products(level, team);
  widened_head(level, team);
  widened_experts(level, team);
}

static void weights_in_bf16_are_widened_exactly(void **state) { each_level(widened_weights); }

// ---- weights in panels

// The same numbers, by rows and in panels of as many as the level wants.
static Operand in_panels(const Operand *rows, CpuLevel level, Dtype computes) {
  Operand x = *rows;
  x.panels = (Panels){device_cpu_at(level)->panel_bytes / (int)dtype_size(computes), 1};
  operand_allocate(&x);
  for (int64_t i = 0; i < operand_elements(rows); i++)
    dtype_store(x.data, x.dtype, operand_place(&x, i), operand_load(rows, i));
  return x;
}

static void products_in_panels(CpuLevel level, Dtype dtype, Dtype weight, Team *team) {
  static const int64_t depths[] = {43, 1100};
  for (int i = 0; i < 2; i++) {
    const ProductCase p = {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, depths[i]};
    Operand a = OPERAND(dtype, MOST_ROWS, depths[i]), w = OPERAND(weight, 70, depths[i]);
    fill_rows(&a, 1, 1, 0);
    fill_rows(&w, 1, 2, 0);
    Operand panels = in_panels(&w, level, dtype);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows = rows < 10 ? rows + 1 : next_count(rows)) {
      Call x = product_of(level, team, &p, &a, &panels, 0, rows), y = product_of(level, team, &p, &a, &w, 0, rows);
      same_outputs(&x, &y, "a product with a weight in panels", rows);
    }
    free(a.data);
    free(w.data);
    free(panels.data);
  }
}

// valid: of the words; the others are padding, within a panel.
static void head_in_panels(CpuLevel level, Dtype dtype, Dtype weight, Team *team, int64_t valid) {
  Operand x = OPERAND(dtype, MOST_ROWS, EMBED), w = OPERAND(weight, WORDS, EMBED);
  fill_rows(&x, 1, 1, 0);
  fill_rows(&w, 1, 2, 0);
  w.map[0] = index_range(0, valid, valid);
  w.map[0].local = WORDS;
  Operand panels = in_panels(&w, level, dtype);
  for (int64_t rows = 5; rows < 100; rows += 60) {
    Call a = head_of(level, team, &x, &panels, OP_LOGITS, NULL, rows),
         b = head_of(level, team, &x, &w, OP_LOGITS, NULL, rows);
    same_outputs(&a, &b, "logits with words in panels", rows);
  }
  free(x.data);
  free(w.data);
  free(panels.data);
}

static Call lookup_of(CpuLevel level, Team *team, const Operand *table) {
  Call c = {level, team, OP_EMBEDDING, NULL, 2, 1, {{0}}, {{0}}};
  c.input[0] = *table;
  c.input[1] = OPERAND(DTYPE_I32, 1, 70);
  c.output[0] = OPERAND(table->dtype, 1, 70, table->size[1]);
  for (int i = 0; i < 70; i++) ((int32_t *)c.input[1].data)[i] = 69 - i;
  run(&c);
  c.input[0].data = NULL;
  return c;
}

static void lookups_in_panels(CpuLevel level, Dtype dtype, Dtype weight, Team *team) {
  Operand w = OPERAND(weight, 70, 90);
  fill_rows(&w, 1, 2, 0);
  Operand panels = in_panels(&w, level, dtype);
  Call a = lookup_of(level, team, &panels), b = lookup_of(level, team, &w);
  same_outputs(&a, &b, "rows of a table in panels", 70);
  free(w.data);
  free(panels.data);
}

// As many columns as threads share, for more rows than the kernel of few rows takes. The last of them fill part of a
// panel.
static void wide_products_in_panels(CpuLevel level, Dtype dtype, Dtype weight, Team *team) {
  enum { ROWS = 40, COLUMNS = 1030, DEPTH = 43 };
  const ProductCase p = {{.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1}, 0, DEPTH};
  Operand a = OPERAND(dtype, ROWS, DEPTH), w = OPERAND(weight, COLUMNS, DEPTH);
  fill_rows(&a, 1, 1, 0);
  fill_rows(&w, 1, 2, 0);
  Operand panels = in_panels(&w, level, dtype);
  Call x = product_of(level, team, &p, &a, &panels, 0, ROWS), y = product_of(level, team, &p, &a, &w, 0, ROWS);
  same_outputs(&x, &y, "a wide product with a weight in panels", ROWS);
  free(a.data);
  free(w.data);
  free(panels.data);
}

static void weights_lie_in_panels(CpuLevel level, Dtype dtype, Team *team) {
  for (int narrow = 0; narrow < 2; narrow++) {
    if (dtype != DTYPE_F32 && (narrow || dtype != DTYPE_F64)) continue;
    const Dtype weight = narrow ? DTYPE_BF16 : dtype;
    products_in_panels(level, dtype, weight, team);
    wide_products_in_panels(level, dtype, weight, team);
    head_in_panels(level, dtype, weight, team, WORDS);
    head_in_panels(level, dtype, weight, team, WORDS - 13);
    lookups_in_panels(level, dtype, weight, team);
  }
}

static void weights_in_panels_give_the_same_bits(void **state) { each_level(weights_lie_in_panels); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_products_do_not_depend_on_others),
      cmocka_unit_test(queries_do_not_depend_on_others),
      cmocka_unit_test(documents_are_the_same_anywhere),
      cmocka_unit_test(the_head_is_the_same_for_training_eval_and_generation),
      cmocka_unit_test(weights_in_bf16_are_widened_exactly),
      cmocka_unit_test(weights_in_panels_give_the_same_bits),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
