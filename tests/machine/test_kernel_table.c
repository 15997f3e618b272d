// Measured kernels: what a table says of calls that were measured, that lie between them, and that never were.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "machine/cluster.h"
#include "machine/kernel_table.h"
#include <math.h>
#include <string.h>

static double seconds_of(double m, double n, double k, int threads) {
  return 2e-6 + (2 * m * n * k / 2e11 + 4 * (m * n + n * k + m * k) / 5e10) / threads;
}

static MeasuredKernel product(double m, double n, double k, int threads, int active) {
  return (MeasuredKernel){.op = "matmul", .dtype = DTYPE_F32, .threads = threads, .active = active, .kind = 12,
                          .size = {m, n, k, 1}, .flops = 2 * m * n * k, .bytes = 4 * (m * n + n * k + m * k),
                          .seconds = seconds_of(m, n, k, threads) * (active > threads ? 1.2 : 1)};
}

static MeasuredKernel mover(const char *op, double bytes, int kind) {
  return (MeasuredKernel){.op = op, .dtype = DTYPE_F32, .threads = 1, .active = 1, .kind = kind,
                          .size = {bytes, bytes / 2}, .bytes = 1.5 * bytes, .seconds = 1e-6 + bytes / 1e10};
}

static Cluster measured(void) {
  Cluster c = {.name = "test"};
  static const int combination[][2] = {{1, 1}, {1, 2}, {2, 2}};
  c.device.matrix[DTYPE_F32] = 2e11;
  c.device.bandwidth = 1e10;
  for (int i = 0; i < 3; i++)
    for (double m = 128; m <= 2048; m *= 4)
      for (double n = 128; n <= 2048; n *= 4)
        for (double k = 128; k <= 2048; k *= 4)
          vec_push(&c.kernel, product(m, n, k, combination[i][0], combination[i][1]));
  for (double bytes = 1e3; bytes < 1e8; bytes *= 10) vec_push(&c.kernel, mover("add", bytes, 6));
  c.table = kernel_table_create(&c);
  return c;
}

static void forget(Cluster *c) {
  vec_free(&c->kernel);
  kernel_table_free(c->table);
}

static double told(const Cluster *c, MeasuredKernel call, int threads, int active, int *guessed) {
  return kernel_table_seconds(c->table, &c->device, &call, threads, active, guessed);
}

static void near(double got, double expected, double relative) {
  if (!(fabs(got / expected - 1) <= relative)) fail_msg("%.6g instead of %.6g", got, expected);
}

// The times follow the model's own terms here, so that calls between the measured ones are known as well.
static void calls_between_measured_ones(void **state) {
  Cluster c = measured();
  int guessed = 0;
  for (double m = 200; m < 1500; m *= 1.7)
    for (double n = 160; n < 1500; n *= 2.1)
      for (int threads = 1; threads <= 2; threads++)
        near(told(&c, product(m, n, 700, threads, threads), threads, threads, &guessed),
             seconds_of(m, n, 700, threads), 0.01);
  near(told(&c, mover("add", 3.3e5, 6), 1, 1, &guessed), 1e-6 + 3.3e-5, 0.01);
  assert_int_equal(guessed, 0);
  forget(&c);
}

// A call that was measured slower than its neighbours is told as it was measured, and far from it nothing changes.
static void what_stands_out_stays_where_it_is(void **state) {
  Cluster c = measured();
  int guessed = 0;
  for (int i = 0; i < c.kernel.count; i++) {
    MeasuredKernel *k = &c.kernel.data[i];
    if (k->threads == 1 && k->active == 1 && k->size[0] == 512 && k->size[1] == 512 && k->size[2] == 512)
      k->seconds *= 1.5;
  }
  kernel_table_free(c.table);
  c.table = kernel_table_create(&c);
  near(told(&c, product(512, 512, 512, 1, 1), 1, 1, &guessed), 1.5 * seconds_of(512, 512, 512, 1), 0.06);
  near(told(&c, product(2048, 2048, 2048, 1, 1), 1, 1, &guessed), seconds_of(2048, 2048, 2048, 1), 0.04);
  forget(&c);
}

static void threads_that_were_not_measured(void **state) {
  Cluster c = measured();
  int guessed = 0;
  double one = told(&c, product(512, 512, 512, 1, 1), 1, 1, &guessed),
         beside = told(&c, product(512, 512, 512, 1, 2), 1, 2, &guessed),
         four = told(&c, product(512, 512, 512, 4, 4), 4, 4, &guessed);
  near(beside, 1.2 * one, 0.01);
  near(four, told(&c, product(512, 512, 512, 2, 2), 2, 2, &guessed) / 2, 1e-9); // twice the threads of the nearest
  forget(&c);
}

static void ops_that_were_not_measured(void **state) {
  Cluster c = measured();
  int guessed = 0;
  near(told(&c, mover("add", 1e5, 8), 1, 1, &guessed), 1e-6 + 1e-5, 0.01); // with another number of operands
  assert_int_equal(guessed, 0);
  near(told(&c, mover("layer_norm", 1e5, 6), 1, 1, &guessed), 1e-6 + 1e-5, 0.01); // as whoever moves as many bytes
  assert_int_equal(guessed, 1);
  forget(&c);
}

// A kind with a single call grows with its work, and not as a constant.
static void one_call_tells_of_larger_ones(void **state) {
  Cluster c = {.name = "test"};
  int guessed = 0;
  vec_push(&c.kernel, product(256, 256, 256, 1, 1));
  c.table = kernel_table_create(&c);
  near(told(&c, product(512, 512, 512, 1, 1), 1, 1, &guessed), 8 * seconds_of(256, 256, 256, 1), 0.2);
  forget(&c);
}

static void rates_that_change_change_times(void **state) {
  Cluster c = measured();
  int guessed = 0;
  double before = told(&c, product(512, 512, 512, 1, 1), 1, 1, &guessed);
  double moved = told(&c, mover("add", 1e6, 6), 1, 1, &guessed);
  c.device.matrix[DTYPE_F32] *= 2;
  near(told(&c, product(512, 512, 512, 1, 1), 1, 1, &guessed), before / 2, 1e-9);
  near(told(&c, mover("add", 1e6, 6), 1, 1, &guessed), moved, 1e-9);
  forget(&c);
}

static void lines_are_read_back(void **state) {
  static const char *const wrong[] = {"op,dtype\n",
                                      KERNEL_COLUMNS "\n",
                                      KERNEL_COLUMNS "\nmatmull,fp32,1,1,12,1,1,1,1,2,12,1e-6\n",
                                      KERNEL_COLUMNS "\nmatmul,fp33,1,1,12,1,1,1,1,2,12,1e-6\n",
                                      KERNEL_COLUMNS "\nmatmul,fp32,2,1,12,1,1,1,1,2,12,1e-6\n",
                                      KERNEL_COLUMNS "\nmatmul,fp32,1,1,12,1,1,1,1,2,12,0\n",
                                      KERNEL_COLUMNS "\nmatmul,fp32,1,1,12,1,1,1,1,2,12\n"};
  static const char *const sentences[] = {"must name the columns", "holds no kernels", "did you mean matmul?",
                                          "not a dtype", "active must be an integer from 2", "seconds must be",
                                          "twelve values"};
  char text[512];
  MeasuredKernel k = product(100, 200, 300, 1, 2);
  FILE *out = fmemopen(text, sizeof text, "w");
  fputs(KERNEL_COLUMNS "\n", out);
  kernel_line_print(&k, out);
  fclose(out);
  Cluster c = {.name = "test"};
  Error error = {0};
  assert_int_equal(kernel_lines_parse(&c, "t.csv", 1, text, &error), 0);
  assert_int_equal(c.kernel.count, 1);
  assert_string_equal(c.kernel.data[0].op, "matmul");
  assert_int_equal(c.kernel.data[0].active, 2);
  assert_memory_equal(c.kernel.data[0].size, k.size, sizeof k.size);
  vec_free(&c.kernel);
  for (int i = 0; i < 7; i++) {
    Cluster none = {.name = "test"};
    error = (Error){0};
    assert_int_equal(kernel_lines_parse(&none, "t.csv", 1, wrong[i], &error), PLAIT_BAD_INPUT);
    if (!strstr(error.message, sentences[i])) fail_msg("%d: %s", i, error.message);
    vec_free(&none.kernel);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_between_measured_ones), cmocka_unit_test(what_stands_out_stays_where_it_is),
      cmocka_unit_test(threads_that_were_not_measured), cmocka_unit_test(ops_that_were_not_measured),
      cmocka_unit_test(one_call_tells_of_larger_ones), cmocka_unit_test(rates_that_change_change_times),
      cmocka_unit_test(lines_are_read_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
