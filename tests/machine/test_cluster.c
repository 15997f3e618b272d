// Cluster files: the shipped ones, writing and reading back bit by bit, what-if changes, measurements.
#include "base/file.h"
#include "machine/cluster_find.h"
#include "machine/cluster_keys.h"
#include "machine/kernel_time.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char rich[] =
    "name: \"all \\u00e9 \\\"keys\\\" \\\\ \\n two lines\"\n"
    "device: &\n"; // refused: an anchor
static const char whole[] =
    "name: \"all keys: \\\"quoted\\\" \\\\ \\n two \\u2028 lines\"\n"
    "device:\n"
    "  {name: a, matrix: {fp64: 1.1, fp32: 3.3e12, bf16: 123456789012345678, fp16: 7e19}, vector: {fp32: 1e9},\n"
    "   sustained: 0.30000000000000004, attention: 0.7, units: 3, cache: 0.1, memory: 80000000001, bandwidth: "
    "2.039e12, reserved: 7,\n"
    "   launch: 1e-300, host: 0.1, source: s}\n"
    "spaces:\n"
    "  - {name: disk, memory: 1e12, bandwidth: 3.3333333333333333e9, latency: 1.7e-5, shared_by: 16, source: d}\n"
    "  - {name: host, memory: 2e12, bandwidth: 1, latency: 0, source: \"#, [x]: {}\"}\n"
    "levels:\n"
    "  - {name: in, count: 2, kind: mesh, ports: 3, bandwidth: 1e9, latency: 1e-6, source: l}\n"
    "  - {name: mid_1, count: 3, kind: ring, bandwidth: 1.1e9, latency: 3e-6, source: l}\n"
    "  - {name: bus-2, count: 1, kind: bus, bandwidth: 2e9, latency: 5e-6, source: l}\n"
    "  - {name: out, count: 4, bandwidth: 3e9, latency: 7e-6, oversubscription: 1.5, reduces: true, source: l}\n"
    "software: {attention: materialised, fusions: false, launches_per_op: 2.5, blocking_sends: true,\n"
    "           parameter_bytes: 14.5, source: w}\n"
    "spread: 0.021\n"
    "base: [7e-6, 8.1e-6]\n"
    "measured: |\n"
    "  # kinds in the order of words\n"
    "  kind,ranks,nodes,bytes,seconds\n"
    "  all_gather,8,1,1e3,1.1e-5\n"
    "  all_reduce,8,1,1e3,1.3e-5\n"
    "\n"
    "  all_reduce,8,1,12345678.9,0.30000000000000004\n"
    "  all_reduce,8,2,100,2e-5\n"
    "  all_reduce,24,3,1,1e-6\n"
    "islands:\n"
    "  - {first: 2, count: 2, device: {name: b, matrix: {fp32: 2}, vector: {fp32: 1}, units: 1, memory: 1,\n"
    "                                  bandwidth: 1, launch: 0, host: 0, source: i}}\n"
    "  - {first: 23, count: 1, device: {name: c, matrix: {fp32: 2, bf16: 9}, vector: {fp32: 1}, units: 1, memory: 1,\n"
    "                                  bandwidth: 1, launch: 0, host: 0, source: i}}\n"
    "source: t\n";

static Cluster *parse(const char *text) {
  Cluster *cluster;
  Error error = {0};
  if (cluster_parse(text, "c.yaml", &cluster, &error)) fail_msg("%s", error.message);
  return cluster;
}

static Cluster *load(const char *name) {
  Cluster *cluster;
  Error error = {0};
  if (cluster_load(name, &cluster, &error)) fail_msg("%s", error.message);
  return cluster;
}

static void same_bits(const void *a, const void *b, size_t size, const char *what) {
  if (memcmp(a, b, size)) fail_msg("%s differs", what);
}
#define SAME(a, b, field) same_bits(&(a)->field, &(b)->field, sizeof(a)->field, #field)

static void same_text(const char *a, const char *b, const char *instead) {
  if (!a) a = instead;
  assert_int_equal(a == NULL, b == NULL);
  if (a) assert_string_equal(a, b);
}

static void same_device(const DeviceFacts *a, const DeviceFacts *b) {
  same_text(a->name, b->name, NULL);
  SAME(a, b, matrix), SAME(a, b, vector), SAME(a, b, sustained), SAME(a, b, attention), SAME(a, b, units),
      SAME(a, b, cache);
  SAME(a, b, memory), SAME(a, b, bandwidth), SAME(a, b, reserved), SAME(a, b, launch), SAME(a, b, host);
  same_text(a->source, b->source, "given");
}

// b was written from a, with the source "given".
static void same_cluster(const Cluster *a, const Cluster *b) {
  same_text(a->name, b->name, NULL);
  same_device(&a->device, &b->device);
  SAME(a, b, spaces), SAME(a, b, levels), SAME(a, b, spread), SAME(a, b, base);
  for (int i = 0; i < a->spaces; i++) {
    const SpaceFacts *x = &a->space[i], *y = &b->space[i];
    same_text(x->name, y->name, NULL), same_text(x->source, y->source, "given");
    SAME(x, y, memory), SAME(x, y, bandwidth), SAME(x, y, latency), SAME(x, y, shared_by);
  }
  for (int i = 0; i < a->levels; i++) {
    const LevelFacts *x = &a->level[i], *y = &b->level[i];
    same_text(x->name, y->name, NULL), same_text(x->source, y->source, "given");
    SAME(x, y, kind), SAME(x, y, count), SAME(x, y, ports), SAME(x, y, bandwidth), SAME(x, y, latency);
    SAME(x, y, oversubscription), SAME(x, y, reduces);
  }
  SAME(&a->software, &b->software, attention), SAME(&a->software, &b->software, fusions);
  SAME(&a->software, &b->software, launches_per_op), SAME(&a->software, &b->software, blocking_sends);
  SAME(&a->software, &b->software, parameter_bytes);
  assert_int_equal(a->measured.count, b->measured.count);
  for (int i = 0; i < a->measured.count; i++) {
    const MeasuredCollective *x = &a->measured.data[i], *y = &b->measured.data[i];
    assert_string_equal(x->kind, y->kind);
    SAME(x, y, ranks), SAME(x, y, nodes), SAME(x, y, bytes), SAME(x, y, seconds);
  }
  assert_int_equal(a->island.count, b->island.count);
  for (int i = 0; i < a->island.count; i++) {
    SAME(&a->island.data[i], &b->island.data[i], first), SAME(&a->island.data[i], &b->island.data[i], count);
    same_device(&a->island.data[i].device, &b->island.data[i].device);
  }
}

static void written_and_read(const Cluster *cluster) {
  char path[] = "/tmp/plait-cluster-XXXXXX";
  close(mkstemp(path));
  Error error = {0};
  if (cluster_write(cluster, "given", path, &error)) fail_msg("%s", error.message);
  Cluster *again = load(path);
  same_cluster(cluster, again);
  cluster_free(again);
  unlink(path);
}

static void test_all_keys(void **state) {
  Cluster *c = parse(whole), *none;
  Error error = {0};
  assert_int_equal(cluster_parse(rich, "c.yaml", &none, &error), PLAIT_BAD_INPUT);
  assert_null(none);
  assert_string_equal(c->name, "all keys: \"quoted\" \\ \n two \xe2\x80\xa8 lines");
  assert_int_equal(cluster_devices(c), 24);
  assert_true(c->device.matrix[DTYPE_BF16] == 123456789012345678.0 && c->device.vector[DTYPE_BF16] == 0);
  assert_true(c->device.sustained == 0.1 + 0.2);
  assert_string_equal(c->space[0].name, "disk");
  assert_int_equal(c->space[1].shared_by, 1);
  assert_int_equal(c->level[0].kind, LEVEL_MESH);
  assert_int_equal(c->level[1].kind, LEVEL_RING);
  assert_int_equal(c->level[2].kind, LEVEL_BUS);
  assert_int_equal(c->level[3].kind, LEVEL_SWITCH);
  assert_int_equal(c->level[3].ports, 1);
  assert_true(c->level[3].oversubscription == 1.5 && c->level[0].oversubscription == 1);
  assert_true(c->level[3].reduces && !c->level[0].reduces && c->device.attention == 0.7);
  assert_true(c->software.attention == ATTENTION_MATERIALISED && !c->software.fusions &&
              c->software.launches_per_op == 2.5 && c->software.blocking_sends && c->software.parameter_bytes == 14.5);
  assert_true(c->spread == 0.021 && c->base[0] == 7e-6 && c->base[1] == 8.1e-6);
  assert_int_equal(c->measured.count, 5);
  assert_string_equal(c->measured.data[3].kind, "all_reduce");
  assert_true(c->measured.data[3].nodes == 2 && c->measured.data[3].bytes == 100);
  assert_int_equal(c->island.count, 2);
  assert_true(c->island.data[1].first == 23 && c->island.data[1].device.matrix[DTYPE_BF16] == 9);
  written_and_read(c);
  cluster_free(c);
}

// Facts that no file has been the source of, as a probe makes them.
static void test_written_without_sources(void **state) {
  Cluster c = {.name = "probed",
               .path = "none",
               .levels = 1,
               .base = {-1, -1},
               .software = {.fusions = 1, .launches_per_op = 1}};
  c.device = (DeviceFacts){.name = "cpu", .sustained = 1, .units = 2, .memory = 3e9, .bandwidth = 1e10};
  c.device.matrix[DTYPE_F32] = 1e11 / 3, c.device.vector[DTYPE_F32] = 1e10 / 7;
  c.level[0] = (LevelFacts){.name = "memory", .kind = LEVEL_BUS, .count = 2, .ports = 1, .bandwidth = 1e10 / 3,
                            .latency = 1e-6 / 3, .oversubscription = 1};
  written_and_read(&c);
  c.base[0] = 1e-6 / 7, c.base[1] = 0;
  vec_push(&c.measured, (MeasuredCollective){"all_reduce", 2, 1, 4096, 1e-5 / 3});
  written_and_read(&c);
  vec_free(&c.measured);
  Error error = {0};
  assert_int_equal(cluster_write(&c, NULL, "/nowhere/at/all.yaml", &error), PLAIT_FAILED);
  assert_non_null(strstr(error.message, "/nowhere/at/all.yaml"));
}

// A file of plait probe that has lost lines, or whose end is cut off, says so, and what to do.
static void test_damaged_kernels(void **state) {
  static const char head[] = "name: here\ndevice:\n  name: a CPU\n  backend: cpu\n  matrix: {fp32: 1e11}\n"
                             "  vector: {fp32: 1e10}\n  units: 1\n  memory: 1e9\n  bandwidth: 1e10\n  launch: 0\n"
                             "  host: 1e-6\n  source: measured\n";
  static const char table[] = "kernels: |\n  op,dtype,threads,active,kind,a,b,c,d,flops,bytes,seconds\n";
  static const char product[] = "  matmul,fp32,1,1,12,8,8,8,1,1024,768,1e-6\n",
                    attention[] = "  attention,fp32,1,1,16,64,8,8,0,2048,1024,1e-6\n",
                    mover[] = "  add,fp32,1,1,6,64,32,0,0,16,96,1e-6\n";
  static const struct { const char *rows; const char *line[3]; const char *end, *sentence;
  } file[] = {{"kernel_rows: 3\n", {product, attention, mover}, "source: measured\n", NULL},
              {"", {product, attention, mover}, "source: measured\n", NULL},
              {"kernel_rows: 3\n",
               {product, attention, ""},
               "source: measured\n",
               "here.yaml: kernel_rows says that 3 kernels were measured, but kernels has 2; measure again with plait "
               "probe --out "
               "here.yaml"},
              {"",
               {attention, mover, ""},
               "source: measured\n",
               "here.yaml: kernels has no products, and times of a CPU are known by measurements only; measure again "
               "with plait "
               "probe --out here.yaml"},
              {"", {product, mover, ""}, "source: measured\n", "kernels has no attention"},
              {"", {product, attention, ""}, "source: measured\n", "kernels has no calls that only move bytes"},
              {"kernel_rows: 3\n",
               {product, attention, "  add,fp32,1,1,6,64,3"},
               "",
               "measure again with plait probe --out here.yaml"},
              {"kernel_rows: 3\n",
               {product, attention, "  add,fp32,1,1,6,64,3"},
               "\nsource: measured\n",
               "here.yaml:18: a line has twelve values, op,dtype,threads,active,kind,a,b,c,d,flops,bytes,seconds; "
               "measure again"},
              {"kernel_rows: 3\n",
               {product, "  \x01\x02\n", mover},
               "source: measured\n",
               "measure again with plait probe --out here.yaml"}};
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    char text[2048];
    Cluster *c;
    Error error = {0};
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", head, file[i].rows, table, file[i].line[0], file[i].line[1],
             file[i].line[2], file[i].end);
    int code = cluster_parse(text, "here.yaml", &c, &error);
    if (!file[i].sentence) {
      if (code) fail_msg("%zu: %s", i, error.message);
      written_and_read(c);
      assert_int_equal(c->kernel.count, 3);
      cluster_free(c);
    } else if (code != PLAIT_BAD_INPUT || !strstr(error.message, file[i].sentence)) {
      fail_msg("%zu: %d, %s", i, code, error.message);
    }
  }
  Cluster *c;
  Error error = {0}; // without a table a CPU's times are not known at all
  assert_int_equal(cluster_parse(head, "here.yaml", &c, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "kernels has no products"));
}

// Doubles of any size: what is written is read as the same bits.
static void test_bits(void **state) {
  uint64_t seed = 88172645463325252u;
  Cluster *c = parse(whole);
  for (int i = 0; i < 200; i++) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    double part = (double)(seed >> 11) / 9007199254740992.0;
    c->device.matrix[DTYPE_F32] = 1 + part * 1e15;
    c->device.launch = part / 1e6;
    c->level[3].bandwidth = 1 + part * 1e11;
    c->level[3].latency = part * part;
    c->spread = part;
    if (i % 10 == 0) written_and_read(c);
    char text[64];
    snprintf(text, sizeof text, "out.latency=%.17g", part);
    Error error = {0};
    if (cluster_change(c, text, &error)) fail_msg("%s", error.message);
    assert_true(c->level[3].latency == part);
  }
  cluster_free(c);
}

static void test_shipped(void **state) {
  ClusterList list = cluster_list();
  assert_int_equal(list.count, 6);
  for (int i = 0; i < list.count; i++) {
    Cluster *c = load(list.names[i]);
    written_and_read(c);
    assert_true(c->device.matrix[DTYPE_F16] > 0 && c->device.vector[DTYPE_F32] > 0);
    assert_non_null(c->source);
    cluster_free(c);
  }
  cluster_list_free(&list);
  char names[256];
  cluster_names(names, sizeof names);
  assert_string_equal(names, "aws-p4d, dgx-2, dgx-a100-superpod, h100-400g, h200-node, pcie-10g");

  Cluster *c = load("dgx-a100-superpod");
  assert_int_equal(cluster_devices(c), 4480);
  assert_true(c->device.matrix[DTYPE_BF16] == 312e12 && c->device.matrix[DTYPE_F32] == 19.5e12);
  assert_true(c->level[1].ports * c->level[1].bandwidth == 200e9); // of a node: 8 × 200 Gb/s
  assert_true(c->level[0].bandwidth == 300e9 && c->level[0].ports == 1);
  Error error = {0};
  assert_int_equal(cluster_check_ranks(c, 4480, &error), PLAIT_OK);
  assert_int_equal(cluster_check_ranks(c, 4481, &error), PLAIT_BAD_INPUT);
  assert_non_null(
      strstr(error.message, "superpod.yaml has 4480 devices, too few for 4481 ranks; at most 4480 ranks fit"));
  cluster_free(c);
  c = load("aws-p4d");
  assert_true(c->level[1].ports * c->level[1].bandwidth == 400e9 / 8);
  cluster_free(c);
}

// A source that names a product says what it reaches, and so does the model. Who knows no product has sustained 1.
static void product_of_the_source(const char *name, const DeviceFacts *d) {
  const char *at = d->source ? strstr(d->source, "a product of ") : NULL;
  char dtype[8];
  double m, n, k, published;
  if (!at) {
    if (d->sustained < 1) fail_msg("%s: sustained is %g, and its source names no product", name, d->sustained);
    return;
  }
  if (sscanf(at, "a product of %lf x %lf x %lf in %7[a-z0-9] reaches %lf TFLOP/s", &m, &n, &k, dtype, &published) != 5)
    fail_msg("%s: \"%.80s\" is not of the form: a product of M x N x K in DTYPE reaches T TFLOP/s", name, at);
  assert_string_equal(dtype, "bf16");
  OpProduct p = {m, n, k, 1};
  double seconds = product_seconds(d, DTYPE_BF16, &p, 2 * (m * k + k * n + m * n), 0, NULL),
         reached = 2 * m * n * k / seconds / 1e12;
  if (fabs(reached / published - 1) > 0.001) fail_msg("%s: %.1f TFLOP/s instead of %g", name, reached, published);
}

static void test_products_of_sources(void **state) {
  ClusterList list = cluster_list();
  for (int i = 0; i < list.count; i++) {
    Cluster *c = load(list.names[i]);
    product_of_the_source(list.names[i], &c->device);
    for (int k = 0; k < c->island.count; k++) product_of_the_source(list.names[i], &c->island.data[k].device);
    cluster_free(c);
  }
  cluster_list_free(&list);
}

static void test_dtypes(void **state) {
  Cluster *c = load("dgx-2");
  Error error = {0};
  assert_int_equal(cluster_check_dtype(c, DTYPE_F16, &error), PLAIT_OK);
  assert_int_equal(cluster_check_dtype(c, DTYPE_BF16, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message,
                         "dgx-2.yaml: V100-SXM3-32GB has no rate of products in bf16; it has fp64, fp32, "
                         "fp16; the nearest is fp16"));
  cluster_free(c);
  c = parse(whole); // the device has bf16, the first island has not
  error = (Error){0};
  assert_int_equal(cluster_check_dtype(c, DTYPE_BF16, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "c.yaml: b has no rate of products in bf16; it has fp32; the nearest is fp32");
  cluster_free(c);
}

static void changed(Cluster *c, const char *change) {
  Error error = {0};
  if (cluster_change(c, change, &error)) fail_msg("%s", error.message);
}

static void test_change(void **state) {
  Cluster *c = parse(whole);
  changed(c, "device.memory=40e9");
  assert_true(c->device.memory == 40e9);
  assert_string_equal(c->device.source, "s; changed: device.memory=40e9");
  assert_int_equal(c->measured.count, 5); // of links that are still the same
  changed(c, "in.bandwidth=2x");
  assert_true(c->level[0].bandwidth == 2e9 && c->level[1].bandwidth == 1.1e9);
  assert_int_equal(c->measured.count, 0);
  changed(c, "mid_1.latency=0.5x");
  assert_true(c->level[1].latency == 1.5e-6);
  changed(c, "out.count=2x");
  assert_int_equal(cluster_devices(c), 48);
  changed(c, "out.kind=ring");
  assert_int_equal(c->level[3].kind, LEVEL_RING);
  changed(c, "device.matrix=2x");
  assert_true(c->device.matrix[DTYPE_F32] == 6.6e12 && c->device.matrix[DTYPE_F64] == 2.2 &&
              c->device.matrix[DTYPE_I64] == 0);
  changed(c, "device.matrix.bf16=5e12");
  assert_true(c->device.matrix[DTYPE_BF16] == 5e12 && c->device.matrix[DTYPE_F32] == 6.6e12);
  changed(c, "device.vector.fp32=3x");
  assert_true(c->device.vector[DTYPE_F32] == 3e9);
  changed(c, "device.matrix={fp32: 1e12}");
  assert_true(c->device.matrix[DTYPE_F32] == 1e12 && c->device.matrix[DTYPE_BF16] == 0);
  changed(c, "host.bandwidth=7");
  assert_true(c->space[1].bandwidth == 7);
  changed(c, "software.attention=flash");
  assert_true(c->software.attention == ATTENTION_FLASH);
  changed(c, "spread=0");
  assert_true(c->spread == 0);
  changed(c, "base=0.5x");
  assert_true(c->base[0] == 3.5e-6 && c->base[1] == 4.05e-6);
  changed(c, "base=[1e-6, 2e-6]");
  assert_true(c->base[0] == 1e-6 && c->base[1] == 2e-6);
  cluster_free(c);
}

// A change that is refused leaves everything as it was.
static void test_wrong_change(void **state) {
  static const char *const wrong[][2] = {
      {"in.bandwith=2x", "in.bandwith=2x: in.bandwith: unknown key; did you mean in.bandwidth?"},
      {"bandwidth", "\"bandwidth\" is not of the form key=value, as in nvlink.bandwidth=2x or device.memory=40e9"},
      {"=2x", "\"=2x\" is not of the form key=value, as in nvlink.bandwidth=2x or device.memory=40e9"},
      {"in.count=", "\"in.count=\" is not of the form key=value, as in nvlink.bandwidth=2x or device.memory=40e9"},
      {"zzz=1",
       "zzz=1: zzz: unknown key; it is one of device, as device.bandwidth, of a level (in, mid_1, bus-2, out), "
       "of a space, of software, or spread or base"},
      {"mid_1.count=0.5x",
       "mid_1.count=0.5x: mid_1.count must be an integer from 1 to 1048576, not \"1.5\"; the nearest "
       "is 2"},
      {"in.count=0x", "in.count=0x: in.count must be an integer from 1 to 1048576, not \"0\"; the nearest is 1"},
      {"device.memory=0x",
       "device.memory=0x: device.memory must be a number of at least 1 B, not \"0\"; the nearest is "
       "1"},
      {"device.memory=5", "device.memory=5: device.reserved is 7 B, which leaves nothing of the memory of 5 B"},
      {"device.matrix=1e9x", "device.matrix=1e9x: device.matrix.fp32 must be a number of at least 1 FLOP/s, not "
                             "\"3.3e+21\"; the nearest is 1e+21"},
      {"device.vector.bf16=2x",
       "device.vector.bf16=2x: the cluster has no device.vector.bf16 to multiply; give a number"},
      {"device.vector={bf16: 2}", "device.vector={bf16: 2}: device.vector has no rate for fp32, in which some of every "
                                  "step is computed; write vector: {fp32: RATE}"},
      {"software.attention=2x",
       "software.attention=2x: software.attention is not a number and cannot be multiplied; give "
       "a value"},
      {"software.attention=flesh", "software.attention=flesh: software.attention must be flash, materialised or "
                                   "cudnn, not \"flesh\"; did you mean flash?"},
      {"base=[1]", "base=[1]: base must be auto, or a list of two numbers from 0 to 1 s, not a list"},
      {"base=1e9x", "base=1e9x: base must be auto, or a list of two numbers from 0 to 1 s, but it contains \"7000\""},
      {"out.count=1048576", "out.count=1048576: islands"}, // replaced below
      {"out.count=1", "out.count=1: islands[1] is devices 23 to 23, but the cluster has 6, 0 to 5"},
      {"device.name=x", "device.name=x: device.name: unknown key; did you mean device.cache?"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Cluster *c = parse(whole), *same = parse(whole);
    Error error = {0};
    int code = cluster_change(c, wrong[i][0], &error);
    if (!strcmp(wrong[i][0], "out.count=1048576")) {
      assert_int_equal(code, PLAIT_OK); // 6 · 2^20 devices are allowed
      error = (Error){0};
      assert_int_equal(cluster_change(c, "mid_1.count=30", &error), PLAIT_BAD_INPUT);
      assert_string_equal(
          error.message,
          "mid_1.count=30: the counts of the levels make 62914560 devices; at most 16777216 are allowed");
    } else {
      assert_int_equal(code, PLAIT_BAD_INPUT);
      assert_string_equal(error.message, wrong[i][1]);
      same_cluster(same, c);
    }
    cluster_free(c), cluster_free(same);
  }
}

// The page is the one that is committed, and its example is a cluster file.
static void test_docs(void **state) {
  char *made, *kept;
  size_t size, kept_size;
  FILE *out = open_memstream(&made, &size);
  Error error = {0};
  if (cluster_print_docs(out, &error)) fail_msg("%s", error.message);
  fclose(out);
  assert_int_equal(file_read(SOURCE_FOLDER "/docs/clusters.md", 1 << 20, &kept, &kept_size, &error), PLAIT_OK);
  if (strcmp(made, kept))
    fail_msg("docs/clusters.md is out of date; run: build/plait cluster --docs > docs/clusters.md");
  char *start = strstr(made, "```yaml\n") + 8, *end = strstr(start, "```");
  *end = 0;
  Cluster *c = parse(start);
  assert_int_equal(cluster_devices(c), 8);
  assert_int_equal(c->measured.count, 2);
  cluster_free(c);
  free(made), free(kept);
}

int main(void) {
  setenv("PLAIT_CLUSTERS", SOURCE_FOLDER "/clusters", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_keys),
                                     cmocka_unit_test(test_written_without_sources),
                                     cmocka_unit_test(test_damaged_kernels),
                                     cmocka_unit_test(test_bits),
                                     cmocka_unit_test(test_shipped),
                                     cmocka_unit_test(test_products_of_sources),
                                     cmocka_unit_test(test_dtypes),
                                     cmocka_unit_test(test_change),
                                     cmocka_unit_test(test_wrong_change),
                                     cmocka_unit_test(test_docs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
