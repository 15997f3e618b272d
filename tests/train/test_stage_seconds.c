// tier 1; rooms machine; numbers
// Layers are cut into pipeline stages by seconds where a cluster is named, and by FLOPs elsewhere; whoever compiles the
// run has the same cut.
#include "base/file.h"
#include "machine/cluster.h"
#include "machine/cluster_machine.h"
#include "setup/setup.h"
#include "foresight/predict.h"
#include "foresight/search.h"
#include "foresight/search_extend.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { LAYERS = 12 };

// A head of 16,384 words on layers of 64: as many FLOPs as 64 layers' products. But layers read and write memory for
// norms, activations and dropout, and the head multiplies.
static const char config_text[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 16384, \"n_positions\": 128, \"n_embd\": 64, \"n_layer\": 12, "
    "\"n_head\": 4}";

typedef struct Case {
  ModelConfig config;
  Recipe recipe;
  Cluster *cluster;
} Case;

// `key`: one more, or NULL.
static Case make_case(const char *key) {
  static const char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 128}, run: {dir: /none}, "
                             "precision: bf16, mesh: {pp: 2}, batch: {global: 8, micro: 1}}";
  char path[1024];
  Case c;
  Error error = {0};
  if (model_config_parse(&c.config, config_text, strlen(config_text), "config.json", &error) ||
      recipe_parse("test", text, sizeof text - 1, "/", key != NULL, (char **)&key, &c.recipe, &error))
    fail_msg("%s", error.message);
  snprintf(path, sizeof path, "%s/clusters/h200-node.yaml", SOURCE_FOLDER);
  if (cluster_load(path, &c.cluster, &error)) fail_msg("%s", error.message);
  c.cluster->device.bandwidth /= 100;
  c.cluster->device.launch = 0;
  return c;
}

static void free_case(Case *c) {
  cluster_free(c->cluster);
  recipe_free(&c->recipe);
  model_config_free(&c->config);
}

// Layers of the first stage.
static int first_stage(const Recipe *r, const ModelConfig *config) {
  RunPlan plan;
  Graph *g;
  Error error = {0};
  if (resolve(r, config, &(RunSetting){0}, &plan, &error) || run_plan_graph(&plan, "stage", &g, &error))
    fail_msg("%s", error.message);
  int layers = g->cut[1];
  graph_destroy(g);
  run_plan_free(&plan);
  return layers;
}

static double simulated(const Case *c, const Recipe *r, int *first) {
  Prediction p;
  Error error = {0};
  SimulateOptions options = {.cluster = c->cluster};
  if (predict(r, &c->config, &options, &p, &error)) fail_msg("%s", error.message);
  double seconds = p.simulation->step;
  *first = job_train(p.job)->graph->cut[1];
  prediction_free(&p);
  return seconds;
}

static void seconds_cut_otherwise_and_better(void **state) {
  Case c = make_case(NULL);
  int by_flops = first_stage(&c.recipe, &c.config), by_seconds, fixed;
  double faster = simulated(&c, &c.recipe, &by_seconds);
  Recipe given = c.recipe;
  given.parallel.layers = (RecipeInts){2, {by_flops, LAYERS - by_flops}};
  double slower = simulated(&c, &given, &fixed);
  print_message("%d layers in the first stage by FLOPs, %.3g s; %d by seconds, %.3g s\n", by_flops, slower, by_seconds,
                faster);
  assert_int_equal(by_flops, fixed);
  assert_true(by_seconds < by_flops);
  assert_true(faster < 0.95 * slower);
  free_case(&c);
}

// A run names its cluster in the recipe, a prediction has it at hand, a search compiles with fewer layers.
static void all_have_one_cut(void **state) {
  char path[] = "/tmp/plait-cluster-XXXXXX", key[64];
  int file = mkstemp(path), by_seconds;
  Error error = {0};
  Case plain = make_case(NULL);
  assert_true(file >= 0);
  close(file);
  if (cluster_write(plain.cluster, "a test", path, &error)) fail_msg("%s", error.message);
  snprintf(key, sizeof key, "run.cluster=%s", path);
  Case c = make_case(key);
  Job *job;
  simulated(&plain, &plain.recipe, &by_seconds);
  assert_int_equal(first_stage(&c.recipe, &c.config), by_seconds);
  if (setup_job(&c.recipe, &c.config, NULL, &job, &error)) fail_msg("%s", error.message);
  assert_int_equal(job_train(job)->graph->cut[1], by_seconds);
  assert_null(job->options.times);
  job_destroy(job);
  unlink(path);
  assert_int_equal(setup_job(&c.recipe, &c.config, NULL, &job, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "run.cluster"));
  // Where nothing is cut nobody looks for the file.
  Recipe whole = c.recipe;
  whole.mesh.pp = 1;
  error = (Error){0};
  if (setup_job(&whole, &c.config, NULL, &job, &error)) fail_msg("%s", error.message);
  job_destroy(job);
  free_case(&c);
  free_case(&plain);
}

// Else a run would have other stages, and other last bits, because somebody has measured the machine before.
static void a_kept_probe_changes_no_stages(void **state) {
  char folder[] = "/tmp/plait-cache-XXXXXX", key[] = "run.cluster=probe";
  Error error = {0};
  Case plain = make_case(NULL), named = make_case(key);
  int by_flops = first_stage(&plain.recipe, &plain.config), by_seconds;
  simulated(&plain, &plain.recipe, &by_seconds);
  assert_non_null(mkdtemp(folder));
  setenv("XDG_CACHE_HOME", folder, 1);
  char *path = cluster_machine_path(), *inside = xstrdup(path);
  *strrchr(inside, '/') = 0;
  assert_int_equal(mkdir(inside, 0777), 0);
  if (cluster_write(plain.cluster, "a test", path, &error)) fail_msg("%s", error.message);
  assert_int_equal(first_stage(&plain.recipe, &plain.config), by_flops);
  assert_int_equal(first_stage(&named.recipe, &named.config), by_seconds);
  assert_int_not_equal(by_flops, by_seconds);
  unlink(path);
  rmdir(inside);
  rmdir(folder);
  unsetenv("XDG_CACHE_HOME");
  free(path);
  free(inside);
  free_case(&plain);
  free_case(&named);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(seconds_cut_otherwise_and_better), cmocka_unit_test(all_have_one_cut),
      cmocka_unit_test(a_kept_probe_changes_no_stages)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
