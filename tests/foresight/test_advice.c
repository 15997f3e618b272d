// tier 2; rooms machine; numbers
// Advice: which rules apply on which machines (tests/foresight/advice.golden, written by scripts/advice-golden), and
// that the sentences and verdicts follow from the rows.
#include "foresight/advice.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { NODE = 8 };
static const char recipe[] = SOURCE_FOLDER "/tests/foresight/advice.yaml";

// Four nodes of eight devices with this memory; NVLink or a PCIe bus, and this bandwidth between nodes.
static Cluster *machines(double memory, int nvlink, double network) {
  char *text = xformat(
      "name: a test\n"
      "device: {name: GPU, matrix: {fp32: 100e12, bf16: 300e12}, vector: {fp32: 20e12, bf16: 40e12}, units: 100,\n"
      "  cache: 40e6, memory: %.0f, reserved: 0, bandwidth: 2e12, launch: 2e-6, host: 5e-6, source: made up}\n"
      "spaces: [{name: host, memory: 1e12, bandwidth: 25e9, latency: 1e-5, shared_by: 2, source: made up}]\n"
      "levels:\n"
      "  - {name: inner, count: 8, kind: %s, bandwidth: %g, latency: 3e-6, source: made up}\n"
      "  - {name: outer, count: 4, kind: switch, ports: 1, bandwidth: %g, latency: 1e-5, source: made up}\n"
      "source: made up\n",
      memory, nvlink ? "switch" : "bus", nvlink ? 300e9 : 31.5e9, network);
  Cluster *cluster;
  Error error = {0};
  if (cluster_parse(text, "test.yaml", &cluster, &error)) fail_msg("%s", error.message);
  free(text);
  return cluster;
}

static void compare_on(const Cluster *cluster, int ranks, Comparison *out) {
  CompareOptions options = {.path = recipe, .ranks = ranks, .cluster = cluster};
  Error error = {0};
  if (compare(&options, out, &error)) fail_msg("%s", error.message);
}

// ---- which rules ----------------------------------------------------------------------------------------------------

typedef enum Room { FITS, DOES_NOT, LAYER_DOES_NOT, ROOMS } Room;

// Bytes of a device in which the model has that room. One device says what it takes.
static double memory_of(Room room) {
  Comparison one;
  Cluster *cluster = machines(1e12, 1, 50e9);
  compare_on(cluster, 1, &one);
  cluster_free(cluster);
  double all = one.row[STRATEGY_ONE].number.bytes;
  assert_true(one.layer > 0 && one.layer < 0.5 * all);
  return room == FITS ? 1.1 * all : room == DOES_NOT ? 0.6 * all : 0.8 * one.layer;
}

static char *all_rules(void) {
  static const char *const rooms[ROOMS] = {"fits", "does not", "largest layer does not"};
  static const int ranks[] = {1, NODE, 4 * NODE};
  static const char *const places[] = {"one device", "one node", "many nodes"};
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  for (int room = 0; room < ROOMS; room++) {
    double memory = memory_of((Room)room);
    for (int place = 0; place < 3; place++)
      for (int pcie = 0; pcie < 2; pcie++)
        for (int slow = 0; slow < 2; slow++) {
          Comparison c;
          Advice advice[ADVICES];
          Cluster *cluster = machines(memory, !pcie, slow ? 1.25e9 : 50e9);
          compare_on(cluster, ranks[place], &c);
          int n = advice_of(&c, advice);
          fprintf(out, "%s, %s, %s, %s:", places[place], rooms[room], pcie ? "PCIe" : "NVLink",
                  slow ? "10 Gb/s" : "400 Gb/s");
          for (int i = 0; i < n; i++) fprintf(out, " %s", advice_names[advice[i].rule]);
          fputc('\n', out);
          cluster_free(cluster);
        }
  }
  fclose(out);
  return text;
}

static void rules_are_the_golden_ones(void **state) {
  char *got = all_rules(), *path = getenv("ADVICE_GOLDEN"), golden[8192];
  FILE *file = fopen(path ? path : SOURCE_FOLDER "/tests/foresight/advice.golden", path ? "w" : "r");
  assert_non_null(file);
  if (path) fputs(got, file);
  size_t n = path ? 0 : fread(golden, 1, sizeof golden - 1, file);
  fclose(file);
  golden[n] = 0;
  if (!path && strcmp(golden, got)) fail_msg("advice.golden is not what comes out (scripts/advice-golden):\n%s", got);
  free(got);
}

// ---- sentences ------------------------------------------------------------------------------------------------------

static const Advice *of_rule(const Advice *advice, int n, AdviceRule rule) {
  for (int i = 0; i < n; i++)
    if (advice[i].rule == rule) return &advice[i];
  fail_msg("%s is not said", advice_names[rule]);
  return advice;
}

static void numbers_are_those_of_the_rows(void **state) {
  Cluster *cluster = machines(memory_of(DOES_NOT), 1, 50e9);
  Comparison c;
  Advice advice[ADVICES];
  compare_on(cluster, 4 * NODE, &c);
  c.row[STRATEGY_PP_ZERO_2].number.step = 4321;
  c.row[STRATEGY_PP_ZERO_2].number.bytes = 123e12;
  c.row[STRATEGY_TP_ACROSS].number.tp_exposed = 0.77;
  c.row[STRATEGY_HSDP].number.step = 98765;
  int n = advice_of(&c, advice);
  assert_non_null(strstr(of_rule(advice, n, ADVICE_PP_ZERO)->text, "a step takes 1h 12m instead of"));
  assert_non_null(strstr(of_rule(advice, n, ADVICE_PP_ZERO)->text, "a rank needs 123 TB instead of"));
  assert_non_null(strstr(of_rule(advice, n, ADVICE_TP_ACROSS)->text, "for 77 % of a step of"));
  assert_non_null(strstr(of_rule(advice, n, ADVICE_FAST)->text, "HSDP 1d 03h"));
  assert_non_null(strstr(of_rule(advice, n, ADVICE_FAST)->text, "a node sends 50.0 GB/s"));
  cluster_free(cluster);
}

static void verdicts_follow_from_the_rows(void **state) {
  Cluster *cluster = machines(memory_of(FITS), 1, 50e9);
  Comparison c;
  Advice advice[ADVICES];
  compare_on(cluster, NODE, &c);
  for (int i = 0; i < STRATEGIES; i++)
    if (comparison_has(&c, (Strategy)i)) c.row[i].number.step = 10;
  c.row[STRATEGY_ZERO_1].number.step = 9;
  const Advice *data = of_rule(advice, advice_of(&c, advice), ADVICE_DATA);
  assert_int_equal(data->verdict, ADVICE_CONFIRMED);
  assert_non_null(strstr(data->text, "ZeRO 1 is the fastest that fits"));
  c.row[STRATEGY_PP].number.step = 6.3;
  data = of_rule(advice, advice_of(&c, advice), ADVICE_DATA);
  assert_int_equal(data->verdict, ADVICE_CONTRADICTED);
  assert_non_null(strstr(data->text, "but pp takes 6.30 s, 30 % less than ZeRO 1"));
  c.row[STRATEGY_PP].number.fits = 0; // what does not fit contradicts nothing
  assert_int_equal(of_rule(advice, advice_of(&c, advice), ADVICE_DATA)->verdict, ADVICE_CONFIRMED);
  cluster_free(cluster);
}

static void a_change_that_fits_goes_before_offload(void **state) {
  Cluster *cluster = machines(memory_of(LAYER_DOES_NOT), 1, 50e9);
  Comparison c;
  Advice advice[ADVICES];
  compare_on(cluster, 1, &c);
  CompareRow *row = &c.row[STRATEGY_ONE];
  const Advice *offload = of_rule(advice, advice_of(&c, advice), ADVICE_OFFLOAD);
  assert_null(strstr(offload->text, "Without it"));
  snprintf(row->change, sizeof row->change, "micro 1");
  snprintf(row->change_settings, sizeof row->change_settings, "batch.micro=1");
  row->changed = (CompareNumbers){.fits = 1, .step = 7};
  offload = of_rule(advice, advice_of(&c, advice), ADVICE_OFFLOAD);
  assert_non_null(strstr(offload->text, ". Without it, one device with batch.micro=1 fits and takes 7.00 s"));
  cluster_free(cluster);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

static void memory_adds_up_and_rows_differ(void **state) {
  Cluster *cluster = machines(memory_of(DOES_NOT), 1, 50e9);
  Comparison c;
  compare_on(cluster, 4 * NODE, &c);
  for (int i = 0; i < STRATEGIES; i++) {
    const CompareNumbers *n = &c.row[i].number;
    double sum = 0;
    if (!comparison_has(&c, (Strategy)i)) continue;
    for (int k = 0; k < MEMORY_PARTS; k++) sum += n->memory[k];
    assert_true(fabs(sum - n->bytes) < 1 && n->step > 0 && n->bubble >= 0 && n->bubble < 1);
    if (i > STRATEGY_ONE) assert_int_equal(c.row[i].pp * c.row[i].dp * c.row[i].tp, 4 * NODE);
    if (c.row[i].pp == 1) assert_true(n->bubble < 1e-9);
  }
  assert_true(c.row[STRATEGY_ZERO_1].number.memory[MEMORY_OPTIMIZER] <
              c.row[STRATEGY_DDP].number.memory[MEMORY_OPTIMIZER] / 16);
  assert_true(c.row[STRATEGY_ZERO_3].number.memory[MEMORY_PARAMETERS] <
              c.row[STRATEGY_ZERO_2].number.memory[MEMORY_PARAMETERS] / 4);
  assert_int_equal(c.row[STRATEGY_HSDP].number.sent[0] > 0 && c.row[STRATEGY_HSDP].number.sent[1] > 0, 1);
  assert_false(c.row[STRATEGY_ONE].number.fits);
  assert_true(c.row[STRATEGY_PP_ZERO_2].pp == c.row[STRATEGY_PP_ZERO_1].pp);
  cluster_free(cluster);
}

// cp is in the names of meshes where a row has it, and the columns stay below each other.
static void contexts_are_named(void **state) {
  Cluster *cluster = machines(memory_of(FITS), 1, 50e9);
  Comparison c;
  compare_on(cluster, NODE, &c);
  for (int contexts = 0; contexts < 2; contexts++) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (contexts) c.row[STRATEGY_DDP].cp = 4, c.row[STRATEGY_DDP].dp = 2;
    comparison_print(&c, out);
    fclose(out);
    assert_int_equal(strstr(text, "pp·dp·cp·tp") != NULL, contexts);
    assert_non_null(strstr(text, contexts ? "1·2·4·1" : "1·8·1"));
    free(text);
  }
  cluster_free(cluster);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_are_the_golden_ones), cmocka_unit_test(numbers_are_those_of_the_rows),
      cmocka_unit_test(verdicts_follow_from_the_rows),
      cmocka_unit_test(a_change_that_fits_goes_before_offload), cmocka_unit_test(memory_adds_up_and_rows_differ),
      cmocka_unit_test(contexts_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
