// Times of kernels on devices that nobody here has: published times of products and attention, waves, what collectives
// hold, and what must never happen when something gets faster.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "machines.h"
#include "op/attributes.h"
#include "machine/kernel_time.h"

static double product(const DeviceFacts *d, double m, double n, double k, int held) {
  OpProduct p = {m, n, k, 1};
  return product_seconds(d, DTYPE_BF16, &p, 2 * (m * k + k * n + m * n), held, NULL);
}

// (tokens, in) · (in, out), with the gradients of its input and of its weight.
static double linear(const DeviceFacts *d, double tokens, double in, double out) {
  return product(d, tokens, out, in, 0) + product(d, tokens, in, out, 0) + product(d, in, out, tokens, 0);
}

static void check_products(double tokens, double width, int layers, double linears_ms, double head_ms) {
  DeviceFacts d = h200();
  double block = linear(&d, tokens, width, 3 * width) + linear(&d, tokens, width, width) +
                 linear(&d, tokens, width, 4 * width) + linear(&d, tokens, 4 * width, width);
  double ms[2] = {1e3 * layers * block, 1e3 * linear(&d, tokens, width, 50304)}, measured[2] = {linears_ms, head_ms};
  for (int i = 0; i < 2; i++) {
    double error = ms[i] / measured[i] - 1;
    printf("%s of width %g: %.1f ms, measured %.1f (%+.1f%%)\n", i ? "head" : "linears", width, ms[i], measured[i],
           100 * error);
    assert_true(fabs(error) < 0.1);
  }
}

// TFLOP/s of one H100 (cuBLASLt 13.1, the best of eight kernels; short runs, in which a product of 8192 x 8192 x 8192
// reaches 797): rows of the model are within a sixth, and their mean within a twelfth.
static void products_of_an_h100(void **state) {
  static const struct { double m, n, k, measured; int kind; } row[] = {
      {32768, 3072, 768, 765, MATMUL_NT},   {32768, 2304, 768, 760, MATMUL_NT},   {32768, 50304, 768, 761, MATMUL_NT},
      {32768, 768, 3072, 726, MATMUL_NN},   {32768, 768, 2304, 733, MATMUL_NN},   {32768, 768, 50304, 810, MATMUL_NN},
      {50304, 768, 32768, 812, MATMUL_TN},  {3072, 768, 32768, 751, MATMUL_TN},   {32768, 768, 3072, 710, MATMUL_NT},
      {8192, 50304, 768, 770, MATMUL_NT},   {16384, 16384, 2048, 722, MATMUL_NT}, {16384, 2048, 8192, 758, MATMUL_NT},
      {16384, 2048, 16384, 738, MATMUL_NN}, {16384, 8192, 2048, 717, MATMUL_NN},  {2048, 8192, 16384, 705, MATMUL_TN}};
  enum { ROWS = sizeof row / sizeof *row };
  DeviceFacts d = h100();
  d.sustained = 0.829; // 797
  double sum = 0;
  for (int i = 0; i < ROWS; i++) {
    OpProduct p = {row[i].m, row[i].n, row[i].k, 1, row[i].kind};
    double seconds = product_seconds(&d, DTYPE_BF16, &p, 2 * (p.m * p.k + p.k * p.n + p.m * p.n), 0, NULL),
           reached = 2 * p.m * p.n * p.k / seconds / 1e12, error = reached / row[i].measured - 1;
    printf("%g x %g x %g: %.0f TFLOP/s, measured %.0f (%+.1f%%)\n", p.m, p.n, p.k, reached, row[i].measured,
           100 * error);
    assert_true(fabs(error) < 1 / 6.);
    sum += error;
  }
  assert_true(fabs(sum / ROWS) < 1 / 12.);
}

// The dims in which operands and result are contiguous must be multiples of 16 bytes for the full rate: 50,257 columns
// reach 105 TFLOP/s on an H100, as many rows of a gradient of the weight 155; multiples of 4 and 8 bytes 249 and 244 of
// 653. Other dims do not matter.
static void odd_products(void **state) {
  DeviceFacts d = h100();
  d.sustained = 0.829;
  static const struct { double m, n, k, bf16, f32; int kind; } row[] = {
      {32768, 50257, 768, 0.14, 0.38, MATMUL_NT}, {8192, 768, 50257, 0.14, 0.38, MATMUL_NN},
      {50257, 768, 8192, 0.21, 0.38, MATMUL_TN},  {768, 50257, 8192, 0.14, 0.38, MATMUL_TN},
      {8193, 768, 768, 1, 1, MATMUL_NT},          {768, 768, 8193, 1, 1, MATMUL_TN},
      {8192, 768, 764, 0.38, 1, MATMUL_NT},       {8192, 768, 766, 0.38, 0.38, MATMUL_NT},
      {8192, 768, 776, 1, 1, MATMUL_NT}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    OpProduct p = {row[i].m, row[i].n, row[i].k, 1, row[i].kind}, even = p;
    even.m = ceil(p.m / 8) * 8, even.n = ceil(p.n / 8) * 8, even.k = ceil(p.k / 8) * 8;
    d.launch = 0, d.bandwidth = 1e30;
    d.matrix[DTYPE_F32] = d.matrix[DTYPE_BF16];
    double best = product_seconds(&d, DTYPE_BF16, &even, 0, 0, NULL);
    double bf16 = best / product_seconds(&d, DTYPE_BF16, &p, 0, 0, NULL);
    double f32 = best / product_seconds(&d, DTYPE_F32, &p, 0, 0, NULL); // fills 16 bytes with four elements
    if (fabs(bf16 / row[i].bf16 - 1) > 0.02 || fabs(f32 / row[i].f32 - 1) > 0.02)
      fail_msg("%g x %g x %g: %g of the rate in bf16, %g in fp32", p.m, p.n, p.k, bf16, f32);
  }
  OpProduct mean = {1000.7, 768, 768, 8, MATMUL_NT}, whole = {1001, 768, 768, 8, MATMUL_NT}; // rows of experts
  assert_true(product_seconds(&d, DTYPE_BF16, &mean, 0, 0, NULL) ==
              product_seconds(&d, DTYPE_BF16, &whole, 0, 0, NULL));
}

// Cross entropy and its gradient in place on 8,192 rows of 50,304 logits in bf16: 0.705 ms on an H100.
static void rows_of_logits(void **state) {
  DeviceFacts d = h100();
  OpWork work = {.matrix = 2e9, .products = 1, .product[0] = {1000, 1000, 1000, 1}};
  double product = kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL);
  work.rows_read = work.rows_written = 8192. * 50304 * 2;
  double seconds = kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL) - product - d.launch;
  assert_true(fabs(seconds / 0.705e-3 - 1) < 0.01);
}

static void measured_products(void **state) {
  check_products(32 * 1024, 768, 12, 23.2, 10.4);
  check_products(16 * 1024, 1600, 48, 189.4, 11.0);
}

// 132 tiles of 256 × 128 fill an H100 once; beside 24 blocks of a collective the same tiles come in two waves.
static void waves(void **state) {
  DeviceFacts d = h100();
  Constants one = constants_default(); // that tile alone, k never split
  one.value[CONSTANT_TILE_128_128] = one.value[CONSTANT_TILE_128_64] = one.value[CONSTANT_TILE_64_64] = 1e-3;
  one.value[CONSTANT_TILE_SPLITS] = 1;
  OpProduct p = {12 * 256, 11 * 128, 8192, 1};
  d.launch = 0;
  double alone = product_seconds(&d, DTYPE_BF16, &p, 0, 0, &one);
  double beside = product_seconds(&d, DTYPE_BF16, &p, 0, 24, &one);
  assert_true(fabs(beside / alone - 2) < 1e-12);
  p.m = 11 * 256; // 121 tiles: the last units were idle
  assert_true(fabs(product_seconds(&d, DTYPE_BF16, &p, 0, 0, &one) / alone - 1) < 1e-12);
  assert_true(fabs(product_seconds(&d, DTYPE_BF16, &p, 0, 11, &one) / alone - 1) < 1e-12);
  // exactly the formula
  double rate = 989.4e12 * 0.8 / 132, seconds = 2. * 256 * 128 * (8192 + one.value[CONSTANT_TILE_START]) / rate;
  assert_true(fabs(alone / seconds - 1) < 1e-9);
  // with all tiles to choose from it slows less, but not by nothing
  p.m = 12 * 256;
  double free_choice =
      product_seconds(&d, DTYPE_BF16, &p, 0, 24, NULL) / product_seconds(&d, DTYPE_BF16, &p, 0, 0, NULL);
  assert_true(free_choice > 1.1 && free_choice <= 2);
}

// What waits for memory slows by 19% beside a collective; what the cache holds costs nothing.
static void memory(void **state) {
  DeviceFacts d = h100();
  OpWork copy = {.read = 1e9, .written = 1e9};
  double alone = kernel_seconds(&d, NULL, DTYPE_BF16, &copy, 0, 0, NULL);
  assert_true(fabs(alone - (2e9 / (0.85 * 3.35e12) + 2e-6)) < 1e-15);
  double beside = kernel_seconds(&d, NULL, DTYPE_BF16, &copy, 0, 24, NULL);
  assert_true(fabs((beside - 2e-6) / (alone - 2e-6) - 1.19) < 1e-9);
  double cached = kernel_seconds(&d, NULL, DTYPE_BF16, &copy, 1e9, 0, NULL);
  assert_true(fabs((cached - 2e-6) / (alone - 2e-6) - 0.5) < 1e-9);
  assert_true(kernel_seconds(&d, NULL, DTYPE_BF16, &copy, 9e9, 0, NULL) == 2e-6);
  SoftwareFacts many = {.launches_per_op = 3};
  assert_true(fabs(kernel_seconds(&d, &many, DTYPE_BF16, &copy, 0, 0, NULL) - alone - 4e-6) < 1e-15);
}

// FLOPs that the op counts without saying what products they are.
static void products_without_shapes(void **state) {
  DeviceFacts d = h100();
  OpWork work = {.matrix = 1e12, .read = 1};
  double rate_of_products = 989.4e12 * 0.8;
  assert_true(fabs(kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL) - (1e12 / rate_of_products + 2e-6)) < 1e-12);
  work.products = 1, work.product[0] = (OpProduct){1024, 1024, 1024, 1};
  double one = product_seconds(&d, DTYPE_BF16, &work.product[0], 1, 0, NULL);
  double rest = (1e12 - 2 * pow(1024, 3)) / rate_of_products;
  assert_true(fabs(kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL) - one - rest) < 1e-12);
  work.matrix = 2 * pow(1024, 3);
  assert_true(kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL) == one);
  assert_true(kernel_seconds(&d, NULL, DTYPE_F64, &work, 0, 0, NULL) == INFINITY); // a rate that is not given
}

static double rate(const DeviceFacts *d, int cudnn, double width, double length, int causal, int backward) {
  OpAttention a = {.pairs = 1, .width = width, .length = length, .backward = backward, .causal = causal};
  SoftwareFacts s = {.attention = cudnn ? ATTENTION_CUDNN : ATTENTION_FLASH};
  return attention_rate(d, &s, DTYPE_BF16, &a, NULL) / 1e12;
}

static void published_attention(void **state) {
  static const double flash[] = {309, 350, 362, 368, 370, 370}, cudnn[] = {497, 574, 617, 609, 600, 595};
  DeviceFacts d = h100();
  for (int i = 0; i < 6; i++) {
    assert_true(fabs(rate(&d, 0, 128, 512 << i, 0, 0) - flash[i]) < 1e-6);
    assert_true(fabs(rate(&d, 1, 128, 512 << i, 0, 0) - cudnn[i]) < 1e-6);
  }
  assert_true(fabs(rate(&d, 0, 128, 724.0773439350246, 0, 0) - (309 + 350) / 2.) < 1e-6); // 512·√2
  assert_true(fabs(rate(&d, 0, 64, 2048, 1, 0) - 262) < 1e-6);
  assert_true(fabs(rate(&d, 0, 128, 2048, 0, 1) - 291) < 1e-6);
  assert_true(fabs(rate(&d, 0, 128, 2048, 1, 1) - 291 * 298 / 362.) < 1e-6);
  assert_true(fabs(rate(&d, 0, 128, 1 << 20, 0, 0) - 370) < 1e-6 && fabs(rate(&d, 0, 128, 7, 0, 0) - 309) < 1e-6);
  assert_true(fabs(rate(&d, 0, 32, 2048, 0, 0) - 318 / 2.) < 1e-6);
  for (int k = 0; k < 8; k++) // a head of 108 is computed as one of 128
    assert_true(fabs(rate(&d, k & 1, 108, 2048, k >> 1 & 1, k >> 2) / rate(&d, k & 1, 128, 2048, k >> 1 & 1, k >> 2) -
                     108 / 128.) < 1e-9);
  // An A100 by what FlashAttention-2's paper says: forward 230 of 312, and by the ratio of an H100 backward 63%
  d.matrix[DTYPE_BF16] = 312e12, d.attention = 0.73, d.sustained = 0.9;
  assert_true(fabs(rate(&d, 0, 128, 16384, 0, 0) - 230) < 3);
  assert_true(fabs(rate(&d, 0, 128, 16384, 0, 1) / 312 - 0.63) < 0.02);
}

// 16 heads of 128, 8 sequences of 2,048: FLOPs over the rate; materialised takes what its passes take.
static void attention(void **state) {
  DeviceFacts d = h100();
  double scores = 8. * 16 * 2048 * 2048;
  OpAttention a = {.pairs = scores, .width = 128, .length = 2048, .scores = 2 * scores};
  double seconds = attention_seconds(&d, NULL, DTYPE_BF16, &a, 0, 0, NULL);
  assert_true(fabs(seconds - (4 * scores * 128 / 362e12 + 2e-6)) < 1e-12);
  SoftwareFacts materialised = {.attention = ATTENTION_MATERIALISED};
  double slow = attention_seconds(&d, &materialised, DTYPE_BF16, &a, 0, 0, NULL);
  assert_true(slow > 2 * seconds);
  OpWork work = {.attention = a, .read = 1e6, .written = 1e6};
  assert_true(kernel_seconds(&d, NULL, DTYPE_BF16, &work, 0, 0, NULL) == seconds);
  a.backward = 1;
  assert_true(fabs(attention_seconds(&d, NULL, DTYPE_BF16, &a, 0, 0, NULL) - (10 * scores * 128 / 291e12 + 2e-6)) <
              1e-12);
  double pass = memory_seconds(&d, 2 * scores, 0, NULL); // one over the scores
  double back = attention_seconds(&d, &materialised, DTYPE_BF16, &a, 0, 0, NULL);
  assert_true(slow > 5 * pass && slow < 8 * pass && back > 10 * pass && back < 2.5 * slow);
}

// Standard attention of PyTorch on an H100, 16,384 tokens of 2,048 elements (FlashAttention-3, figures 5 and 6), in
// TFLOP/s. With few keys its kernels wait for more than the scores, which this does not know.
static void materialised_attention(void **state) {
  static const double measured[2][2][5] = {{{52, 63, 67, 72, 73}, {74, 100, 119, 133, 139}},
                                           {{68, 76, 88, 92, 95}, {104, 131, 159, 174, 181}}};
  DeviceFacts d = h100();
  SoftwareFacts materialised = {.attention = ATTENTION_MATERIALISED};
  for (int i = 0; i < 20; i++) {
    int backward = i / 10, wide = i / 5 % 2, length = 512 << i % 5, width = 64 << wide;
    double pairs = 16384. * length * 2048 / width;
    OpAttention a = {.pairs = pairs, .width = width, .length = length, .scores = 2 * pairs, .backward = backward};
    double seconds = attention_seconds(&d, &materialised, DTYPE_BF16, &a, 0, 0, NULL);
    double reached = (backward ? 10 : 4) * pairs * width / seconds / 1e12, published = measured[backward][wide][i % 5];
    double error = reached / published - 1;
    printf("materialised %s, width %d, %d keys: %.0f TFLOP/s, measured %.0f (%+.0f%%)\n",
           backward ? "backward" : "forward", width, length, reached, published, 100 * error);
    assert_true(error > -0.1 && error < (length >= 4096 ? 0.15 : 1));
  }
}

static DeviceFacts random_device(Random *r) {
  return (DeviceFacts){.matrix[DTYPE_BF16] = random_between(r, 1e12, 1e15),
                       .vector[DTYPE_BF16] = random_between(r, 1e11, 1e14),
                       .sustained = random_between(r, 0.5, 1),
                       .units = random_int(r, 1, 200),
                       .bandwidth = random_between(r, 1e10, 1e13),
                       .launch = random_between(r, 1e-7, 1e-5)};
}

static OpWork random_work(Random *r) {
  OpWork w = {
      .read = random_between(r, 1, 1e10), .written = random_between(r, 1, 1e10), .vector = random_between(r, 1, 1e12)};
  int kind = random_int(r, 1, 4);
  if (kind == 1) {
    w.products = random_int(r, 1, 3);
    for (int i = 0; i < w.products; i++)
      w.product[i] = (OpProduct){ceil(random_between(r, 1, 1e5)), ceil(random_between(r, 1, 1e4)),
                                 ceil(random_between(r, 1, 1e4)), 1};
  } else if (kind == 2) {
    w.attention = (OpAttention){random_between(r, 1, 1e10), random_between(r, 8, 512), random_between(r, 1, 1e5), 0,
                                random_int(r, 0, 1), random_int(r, 0, 1)};
  }
  return w;
}

// All rates × k and all latencies ÷ k: the time ÷ k. One rate more: never slower. More bytes, more units held: never
// faster.
static void laws(void **state) {
  Random r = {philox_key(7, 0, 0)};
  for (int i = 0; i < 3000; i++) {
    DeviceFacts d = random_device(&r), e = d;
    OpWork w = random_work(&r), more = w;
    SoftwareFacts s = {.attention = i % ATTENTION_KINDS, .launches_per_op = 2};
    int held = i % 3 ? 0 : random_int(&r, 1, 100);
    double seconds = kernel_seconds(&d, &s, DTYPE_BF16, &w, 0, held, NULL), k = random_between(&r, 0.1, 10);
    assert_true(isfinite(seconds) && seconds > 0);
    e.matrix[DTYPE_BF16] *= k, e.vector[DTYPE_BF16] *= k, e.bandwidth *= k, e.launch /= k;
    assert_true(fabs(kernel_seconds(&e, &s, DTYPE_BF16, &w, 0, held, NULL) * k / seconds - 1) < 1e-9);
    double limit = seconds * (1 + 1e-12);
    e = d, e.matrix[DTYPE_BF16] *= 1.3;
    assert_true(kernel_seconds(&e, &s, DTYPE_BF16, &w, 0, held, NULL) <= limit);
    e = d, e.bandwidth *= 1.3;
    assert_true(kernel_seconds(&e, &s, DTYPE_BF16, &w, 0, held, NULL) <= limit);
    assert_true(kernel_seconds(&d, &s, DTYPE_BF16, &w, random_between(&r, 1, 1e10), held, NULL) <= limit);
    more.read *= 1.5;
    assert_true(kernel_seconds(&d, &s, DTYPE_BF16, &more, 0, held, NULL) >= seconds * (1 - 1e-12));
    assert_true(kernel_seconds(&d, &s, DTYPE_BF16, &w, 0, held + 9, NULL) >= seconds * (1 - 1e-12));
  }
}

static void spread(void **state) {
  assert_true(slowest_of(0.02, 1) == 1 && slowest_of(0, 512) == 1);
  assert_true(fabs(slowest_of(0.02, 512) - (1 + 0.02 * sqrt(2 * log(512)))) < 1e-15);
}

// Every constant has a name of its own, a value and a source; one of them is changed without the others.
static void table_of_constants(void **state) {
  Constants c = constants_default();
  for (int i = 0; i < CONSTANTS; i++) assert_true(c.value[i] > 0 && constant(NULL, i) == c.value[i]);
  assert_int_equal(constants_scale(&c, "memory.share", 1.1), 0);
  assert_int_equal(constants_scale(&c, "attention.flash.forward.128", 2), 0);
  assert_int_equal(constants_scale(&c, "memory.shar", 2), -1);
  int changed = 0;
  for (int i = 0; i < CONSTANTS; i++) changed += c.value[i] != constant(NULL, i);
  assert_int_equal(changed, 7);
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  constants_print(&c, out);
  fclose(out);
  assert_non_null(strstr(text, "tile.k0"));
  assert_non_null(strstr(text, "6.18e+14 7e+14 7.24e+14 7.36e+14 7.4e+14 7.4e+14 FLOP/s (Shah"));
  int lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
  int names = 0;
  for (int i = 0; i < CONSTANTS; i++) names += constant_by_name(constant_name(i)) == i;
  assert_int_equal(lines, names);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(measured_products),
                                     cmocka_unit_test(products_of_an_h100),
                                     cmocka_unit_test(odd_products),
                                     cmocka_unit_test(rows_of_logits),
                                     cmocka_unit_test(waves),
                                     cmocka_unit_test(memory),
                                     cmocka_unit_test(published_attention),
                                     cmocka_unit_test(attention),
                                     cmocka_unit_test(materialised_attention),
                                     cmocka_unit_test(laws),
                                     cmocka_unit_test(products_without_shapes),
                                     cmocka_unit_test(spread),
                                     cmocka_unit_test(table_of_constants)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
