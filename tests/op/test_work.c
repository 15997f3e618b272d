// What calls cost: for every case sound numbers, for some ops by formulas; and which ops have a cost of their own.
#include "check/op_case.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

// Planners have no data.
static OpWork work_of(const OpCase *c) {
  Operand input[CASE_INPUTS] = {{0}}, output[CASE_OUTPUTS] = {{0}};
  KernelCall call = op_case_call(c);
  for (int k = 0; k < c->ninput; k++) input[k] = c->input[k], input[k].data = NULL;
  for (int k = 0; k < c->noutput; k++) output[k] = c->output[k], output[k].data = NULL;
  return op_work(op_def(c->op), input, c->ninput, output, c->noutput, call.attr);
}

// `empty`: the call lacks its accumulator, which looks like a scalar then.
static OpWork work_of_call(const char *name, Dtype dtype, int empty) {
  for (int i = 0; i < op_cases_with_large(); i++) {
    if (strcmp(op_case_name(i), name)) continue;
    OpCase c;
    op_case_get(i, dtype, &c);
    if (empty) {
      assert_true(op_case_empty(&c));
      c.input[op_def(c.op)->role == ROLE_ACCUMULATE ? 0 : c.ninput - 1] = (Operand){0};
    }
    OpWork work = work_of(&c);
    op_case_free(&c);
    return work;
  }
  fail_msg("no case %s", name);
  abort();
}
static OpWork work_named(const char *name, Dtype dtype) { return work_of_call(name, dtype, 0); }

// ---- which ops have a cost of their own

enum { PRODUCTS = 1, BYTES = 2 }; // counts products or attention; other bytes than the operands' once each

static const struct { Op op; int own; } own_work[] = {
    {OP_MATMUL, PRODUCTS},
    {OP_MATMUL_ACTIVATION, PRODUCTS},
    {OP_MATMUL_ACTIVATION_GRAD, PRODUCTS},
    {OP_EINSUM, PRODUCTS},
    {OP_GROUPED, PRODUCTS},
    {OP_GROUPED_WEIGHT, PRODUCTS},
    {OP_ATTENTION, PRODUCTS},
    {OP_ATTENTION_GRAD, PRODUCTS},
    {OP_LOGITS, PRODUCTS},
    {OP_CROSS_ENTROPY_STATISTICS, PRODUCTS},
    {OP_LINEAR_CROSS_ENTROPY, PRODUCTS | BYTES}, // rows of logits go through memory
    {OP_CROSS_ENTROPY_APPLY, PRODUCTS | BYTES},
    {OP_CROSS_ENTROPY_WEIGHT, PRODUCTS | BYTES},
    {OP_ORTHOGONALIZE, PRODUCTS | BYTES},        // several steps
    {OP_EMBEDDING, BYTES},                       // some rows of a table
    {OP_EMBEDDING_GRAD, BYTES},
    {OP_TAKE, BYTES},
    {OP_CACHE_WRITE, BYTES}, // the rows that are new
    {OP_CACHE_ATTENTION, PRODUCTS | BYTES}, // of the cache no more than the requests may have
    {OP_SLICE, BYTES},        // a part of the input
    {OP_FILL, BYTES},         // nothing is read
    {OP_NEXT_VERSION, BYTES}, // one of three is read
};
enum { OWN = sizeof own_work / sizeof *own_work };

static int own_work_of(Op op) {
  for (int i = 0; i < OWN; i++)
    if (own_work[i].op == op) return own_work[i].own;
  return 0;
}

// All others, updates in place among them, read each input and write each output once.
static void the_table_names_all_ops_with_their_own(void **state) {
  for (int op = 0; op < OP_COUNT; op++)
    if (!own_work_of((Op)op) != !op_def((Op)op)->work)
      fail_msg("%s: the table says %d, the op %s", op_name((Op)op), own_work_of((Op)op),
               op_def((Op)op)->work ? "has its own work" : "has the default");
}

// Selective recomputation keeps what products and attention have made. What looks rows up multiplies by no parameter.
static void traits_name_the_same_ops(void **state) {
  for (int op = 0; op < OP_COUNT; op++) {
    if (!op_def((Op)op)->expensive != !(own_work_of((Op)op) & PRODUCTS)) fail_msg("expensive: %s", op_name((Op)op));
    if (!op_def((Op)op)->looks_up != (op != OP_EMBEDDING && op != OP_TAKE)) fail_msg("looks_up: %s", op_name((Op)op));
  }
}

// ---- every case

static double bytes_of(const Operand *operand, int n) {
  double bytes = 0;
  for (int k = 0; k < n; k++)
    if (operand[k].rank) bytes += (double)operand_elements(&operand[k]) * (double)dtype_size(operand[k].dtype);
  return bytes;
}

static void close_to(const char *name, const char *what, double x, double y) {
  if (!(fabs(x - y) <= 1e-12 * fabs(y))) fail_msg("%s: %s is %.17g, expected %.17g", name, what, x, y);
}

static double products_of(const OpWork *w) {
  const OpAttention *a = &w->attention;
  double flops = (a->backward ? 10 : 4) * a->pairs * a->width;
  for (int i = 0; i < w->products; i++)
    flops += 2 * w->product[i].c * w->product[i].m * w->product[i].n * w->product[i].k;
  return flops;
}

// As keys of a rank that has none: nothing is multiplied.
static int has_empty_input(const OpCase *c) {
  for (int k = 0; k < c->ninput; k++)
    if (!operand_elements(&c->input[k])) return 1;
  return 0;
}

static void check_case(const OpCase *c) {
  OpWork w = work_of(c);
  const double numbers[] = {w.matrix, w.vector, w.read, w.written, w.attention.scores, products_of(&w)};
  int own = own_work_of(c->op), sums = c->op == OP_EINSUM && c->ninput == 1; // of one operand: additions, no product
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!isfinite(numbers[i]) || numbers[i] < 0) fail_msg("%s: number %zu is %g", c->name, i, numbers[i]);
  assert_in_range(w.products, 0, MAX_PRODUCTS);
  if ((own & PRODUCTS && !has_empty_input(c)) != (w.matrix > 0)) fail_msg("%s: %g FLOPs", c->name, w.matrix);
  if (!sums) close_to(c->name, "FLOPs of its products", products_of(&w), w.matrix);
  if (!(own & BYTES)) {
    close_to(c->name, "bytes read", w.read, bytes_of(c->input, c->ninput));
    close_to(c->name, "bytes written", w.written, bytes_of(c->output, c->noutput));
  }
  int adds_rows = (c->op == OP_EMBEDDING_GRAD && c->ninput == 3) || c->op == OP_CACHE_WRITE; // to what is there
  if (!adds_rows && w.written < bytes_of(c->output, c->noutput))
    fail_msg("%s: %g bytes written are fewer than its outputs'", c->name, w.written);
}

static void every_case_costs_something_sound(void **state) {
  static const Dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
  for (int i = 0; i < op_cases_with_large(); i++)
    for (int d = 0; d < 3; d++) {
      OpCase c;
      op_case_get(i, dtypes[d], &c);
      check_case(&c);
      op_case_free(&c);
    }
}

// ---- formulas

static void is_product(const OpWork *w, int i, double m, double n, double k, double c) {
  OpProduct p = w->product[i];
  if (i >= w->products || p.m != m || p.n != n || p.k != k || p.c != c)
    fail_msg("product %d of %d is %g %g %g, %g times", i, w->products, p.m, p.n, p.k, p.c);
}

static void is_cost(const char *name, const OpWork *w, double matrix, double read, double written) {
  close_to(name, "FLOPs", w->matrix, matrix);
  close_to(name, "bytes read", w->read, read);
  close_to(name, "bytes written", w->written, written);
}

static void products_by_their_formulas(void **state) {
  OpWork w = work_named("matmul nt to heads", DTYPE_F32); // (10, 7) · (7, 24)
  is_product(&w, 0, 10, 24, 7, 1);
  is_cost("nt", &w, 2 * 10 * 24 * 7, 4 * (10 * 7 + 24 * 7), 4 * 10 * 24);
  w = work_named("matmul nn from heads", DTYPE_BF16); // (10, 24) · (24, 7)
  is_product(&w, 0, 10, 7, 24, 1);
  is_cost("nn", &w, 2 * 10 * 24 * 7, 2 * (10 * 24 + 24 * 7), 2 * 10 * 7);
  w = work_named("matmul tn accumulate", DTYPE_BF16); // (13, 18) · (18, 7), added to fp32
  is_product(&w, 0, 13, 7, 18, 1);
  is_cost("tn", &w, 2 * 13 * 18 * 7, 2 * (18 * 13 + 18 * 7) + 4 * 13 * 7, 4 * 13 * 7);
  w = work_named("einsum scores", DTYPE_F32); // b 2 and g 2 times (3, 5) · (5, 4)
  is_product(&w, 0, 3, 4, 5, 4);
  w = work_named("einsum transpose", DTYPE_F32);
  assert_int_equal(w.products, 0);
  w = work_named("grouped nt", DTYPE_F32); // 19 rows of 7 for 4 experts, w (4, 5, 7)
  is_product(&w, 0, 19.0 / 4, 5, 7, 4);
  w = work_named("orthogonalize wide", DTYPE_F32); // (5, 9): five steps
  is_product(&w, 0, 5, 5, 9, 5);
  is_product(&w, 1, 5, 5, 5, 5);
  is_product(&w, 2, 5, 9, 5, 5);
}

// b 2, 7 queries and keys, 2 · 3 heads of 5 elements: a query sees itself and what is before it.
static void attention_by_its_formulas(void **state) {
  double pairs = 2 * 6 * (7 * 8 / 2), q = 2 * 7 * 6 * 5, k = 2 * 7 * 2 * 5, documents = 2 * 7, rows = 2 * 6 * 7;
  OpWork w = work_named("attention causal documents", DTYPE_BF16);
  assert_true(w.attention.pairs == pairs && w.attention.width == 5 && w.attention.length == 7);
  assert_true(w.attention.scores == 2 * (2 * 6 * 7 * 7) && w.attention.causal && !w.attention.backward && !w.products);
  is_cost("attention", &w, 4 * 5 * pairs, 2 * (q + 2 * k) + 4 * 2 * documents, 2 * q + 4 * rows);
  w = work_named("attention_grad causal documents", DTYPE_BF16);
  assert_true(w.attention.pairs == pairs && w.attention.backward);
  is_cost("attention_grad", &w, 10 * 5 * pairs, 2 * (3 * q + 2 * k) + 4 * 2 * documents + 4 * rows, 2 * (q + 2 * k));
}

static void lookups_read_rows(void **state) {
  OpWork w = work_named("embedding", DTYPE_F32); // 10 of 37 rows of 6
  is_cost("embedding", &w, 0, 4 * 10 + 4 * 10 * 6, 4 * 10 * 6);
  w = work_named("embedding positions", DTYPE_F32); // 21 positions of 9, of which each is in the cache then
  is_cost("positions", &w, 0, 4 * 21 + 4 * 9 * 5, 4 * 21 * 5);
  w = work_named("embedding_grad", DTYPE_BF16); // 24 tokens into 37 rows of 6 in fp32, zero before
  is_cost("embedding_grad", &w, 0, 4 * 24 + 2 * 24 * 6 + 4 * 24 * 6, 4 * 24 * 6 + 4 * 37 * 6);
  w = work_named("embedding_grad accumulate", DTYPE_BF16);
  is_cost("embedding_grad accumulate", &w, 0, 4 * 24 + 2 * 24 * 6 + 4 * 24 * 6, 4 * 24 * 6);
  w = work_named("cache_attention one token", DTYPE_F32); // of a cache of 24 positions at most a request's 12
  is_cost("cache_attention", &w, 4 * 4 * 6 * 12, 4 * 6 * 4 + 2 * 4 * 12 * 2 * 4 + 4 * (1 + 1 + 3), 4 * 6 * 4);
  w = work_named("take", DTYPE_F32);
  assert_true(w.read < 2 * w.written);
}

// What would be added to is not read; a table whose rows are added up is set to zero first.
static void calls_that_store_read_less(void **state) {
  OpWork w = work_of_call("matmul tn accumulate", DTYPE_BF16, 1);
  is_cost("tn", &w, 2 * 13 * 18 * 7, 2 * (18 * 13 + 18 * 7), 4 * 13 * 7);
  w = work_of_call("embedding_grad accumulate", DTYPE_BF16, 1);
  is_cost("embedding_grad", &w, 0, 4 * 24 + 2 * 24 * 6 + 4 * 24 * 6, 4 * 24 * 6 + 4 * 37 * 6);
  w = work_of_call("accumulate", DTYPE_F32, 1);
  is_cost("accumulate", &w, 0, 4 * 35, 4 * 35);
}

// A quarter of 40 words lies here, and so a quarter of 80 ids does; rows of 8.
static void shards_look_up_their_own(void **state) {
  Operand input[2] = {
      {.dtype = DTYPE_F32, .rank = 2, .size = {10, 8}, .map = {index_range(10, 10, 40), index_whole(8)}},
      {.dtype = DTYPE_I32, .rank = 1, .size = {80}, .map = {index_whole(80)}}};
  Operand output = {.dtype = DTYPE_F32, .rank = 2, .size = {80, 8}};
  OpWork w = op_work(op_def(OP_EMBEDDING), input, 2, &output, 1, NULL);
  is_cost("more ids than rows", &w, 0, 4 * 80 + 4 * 10 * 8, 4 * 80 * 8);
  input[1].size[0] = output.size[0] = 20;
  w = op_work(op_def(OP_EMBEDDING), input, 2, &output, 1, NULL);
  is_cost("fewer", &w, 0, 4 * 20 + 4 * 5 * 8, 4 * 20 * 8);
}

static void updates_read_and_write_in_place(void **state) {
  OpWork w = work_named("adamw", DTYPE_F32); // w, two moments, the gradient, of 35 elements
  is_cost("adamw", &w, 0, 4 * 4 * 35, 3 * 4 * 35);
  w = work_named("sgd", DTYPE_F32); // without momentum
  is_cost("sgd", &w, 0, 2 * 4 * 35, 4 * 35);
  w = work_named("accumulate", DTYPE_F32);
  is_cost("accumulate", &w, 0, 2 * 4 * 35, 4 * 35);
  w = work_named("fill", DTYPE_F32);
  is_cost("fill", &w, 0, 0, 4 * 35);
  w = work_named("next_version", DTYPE_F32);
  is_cost("next_version", &w, 0, 4 * 35, 4 * 35);
}

// 10 rows of 6, 37 words. Logits in the dtype of x, written twice and read three times.
static void heads_by_their_formulas(void **state) {
  double logits = 10 * 37, x = 10 * 6, w37 = 37 * 6, targets = 10, product = 2 * logits * 6;
  OpWork w = work_named("linear_cross_entropy accumulate", DTYPE_BF16);
  is_product(&w, 0, 10, 37, 6, 1);
  is_product(&w, 1, 10, 6, 37, 1);
  is_product(&w, 2, 37, 6, 10, 1);
  is_cost("head", &w, 3 * product, 2 * (x + w37) + 4 * targets + 4 * w37 + 2 * 2 * logits,
          2 * x + 4 * w37 + 2 * logits);
  w = work_named("cross_entropy_apply split", DTYPE_F32); // the maximum, sum and target of a row are known
  assert_int_equal(w.products, 2);
  is_cost("apply", &w, 2 * product, 4 * (x + w37 + targets + 3 * 10) + 2 * 4 * logits, 4 * (x + logits) + 4 * logits);
  w = work_named("cross_entropy_apply loss only", DTYPE_F32);
  is_cost("loss", &w, product, 4 * (x + w37 + targets + 3 * 10), 0); // but for a scalar
  w = work_named("cross_entropy_weight", DTYPE_F32);
  is_product(&w, 1, 37, 6, 10, 1);
  is_cost("weight", &w, 2 * product, 4 * (x + w37 + targets + 2 * 10) + 2 * 4 * logits, 4 * w37 + 2 * 4 * logits);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_names_all_ops_with_their_own),
      cmocka_unit_test(traits_name_the_same_ops),
      cmocka_unit_test(every_case_costs_something_sound),
      cmocka_unit_test(products_by_their_formulas),
      cmocka_unit_test(attention_by_its_formulas),
      cmocka_unit_test(lookups_read_rows),
      cmocka_unit_test(calls_that_store_read_less),
      cmocka_unit_test(shards_look_up_their_own),
      cmocka_unit_test(updates_read_and_write_in_place),
      cmocka_unit_test(heads_by_their_formulas),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
