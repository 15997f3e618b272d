// tier 1 2 3; rooms machine; numbers
// The search: bounds are bounds, estimates are near, given keys stay, and what it finds is what trying all finds.
// PLAIT_SEARCH_SPACES: how many random spaces are searched and tried whole, seconds each. Without it 1 in tier 1, 4 in
// tier 2 and with sanitizers, 24 in tier 3.
#include "machine/cluster.h"
#include "base/philox.h"
#include "base/units.h"
#include "setup/setup.h"
#include "tier.h"
#include "foresight/search.h"
#include "foresight/search_bounds.h"
#include "foresight/search_extend.h"
#include "foresight/search_progress.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

// Of a number of cases those that this tier tries.
static int sample(int first, int second, int third) {
  int tier = test_tier();
  return tier == 1 ? first : tier == 2 || SANITIZED ? second : third;
}

// What takes too long for a tier, unless it is asked for by name.
static int only_from(int tier) { return test_tier() < tier && !getenv("TEST_ONLY"); }

static int random_below(uint32_t *drawn, int n) {
  uint32_t bits[4];
  philox4x32((PhiloxKey){{7, 11}}, (*drawn)++, 0, 0, 0, bits);
  return (int)(bits[0] % (uint32_t)n);
}

static void load_config(int layers, ModelConfig *config) {
  char text[512];
  Error error = {0};
  snprintf(text, sizeof text,
           "{\"model_type\": \"gpt2\", \"vocab_size\": 512, \"n_positions\": 128, \"n_embd\": 256, \"n_layer\": %d, "
           "\"n_head\": 4, \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0}",
           layers);
  if (model_config_parse(config, text, strlen(text), "config.json", &error)) fail_msg("%s", error.message);
}

static void load_recipe(const char *const *keys, int count, Recipe *r) {
  static const char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 128}, run: {dir: /none}, "
                             "precision: bf16, batch: {global: 16}}";
  Error error = {0};
  if (recipe_parse("test", text, sizeof text - 1, "/", count, (char **)keys, r, &error)) fail_msg("%s", error.message);
}

// One of the shipped clusters, with links and products of other speeds, so that other things limit.
static Cluster *random_cluster(uint32_t *drawn) {
  static const char *const names[] = {"h200-node", "pcie-10g", "h100-400g", "dgx-a100-superpod"};
  char path[1024];
  Error error = {0};
  Cluster *c;
  snprintf(path, sizeof path, "%s/clusters/%s.yaml", SOURCE_FOLDER, names[random_below(drawn, 4)]);
  if (cluster_load(path, &c, &error)) fail_msg("%s", error.message);
  for (int l = 0; l < c->levels; l++) c->level[l].bandwidth /= 1 << random_below(drawn, 6);
  for (int d = 0; d < DTYPE_COUNT; d++) c->device.matrix[d] /= 1 << random_below(drawn, 6);
  c->device.host /= 1 << random_below(drawn, 8);
  return c;
}

// Some keys given, so that a space has tens of plans.
static int random_keys(uint32_t *drawn, const char **keys) {
  static const char *const some[][3] = {
      {"parallel.recompute=none", "parallel.recompute=full", NULL},
      {"parallel.pipeline=1f1b", "parallel.pipeline=gpipe", "parallel.pipeline=zb-h1"},
      {"batch.micro=1", "batch.micro=2", "batch.micro=4"},
      {"parallel.tensor=1d", "parallel.tensor=1d", NULL},
      {"parallel.shard_group=0", "parallel.shard_group=0", NULL},
      {"parallel.zero=0", "parallel.zero=1", NULL},
      {"mesh.cp=1", "mesh.cp=1", "mesh.cp=1"},
      {"parallel.overlap=false", "parallel.bucket_mb=0", "parallel.bucket_mb=1"}};
  int n = 0;
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    const char *key = some[i][random_below(drawn, 3)];
    if (key) keys[n++] = key;
  }
  return n;
}

typedef struct Case {
  uint32_t drawn;
  int ranks;
  Recipe recipe;
  ModelConfig config;
  Cluster *cluster;
} Case;

static Case make_case(uint32_t number, int layers) {
  const char *keys[16];
  Case c = {.drawn = number * 1000};
  c.ranks = 1 << random_below(&c.drawn, 4);
  c.cluster = random_cluster(&c.drawn);
  load_config(layers, &c.config);
  load_recipe(keys, random_keys(&c.drawn, keys), &c.recipe);
  return c;
}

// With every key open: contexts, 2-D and 3-D tensors, all schedules.
static Case make_open_case(uint32_t number, int layers) {
  Case c = {.drawn = number * 1000};
  c.ranks = 4 << random_below(&c.drawn, 3);
  c.cluster = random_cluster(&c.drawn);
  load_config(layers, &c.config);
  load_recipe(NULL, 0, &c.recipe);
  return c;
}

static void free_case(Case *c) {
  cluster_free(c->cluster);
  model_config_free(&c->config);
  recipe_free(&c->recipe);
}

// Bounds and estimates ------------------------------------------------------------------------------------------------

typedef struct Judged {
  Bounds bounds;
  Extension extension;
  const Case *of;
  int seen, every, checked, wrong, extended;
  double time_off, memory_off;
} Judged;

static int is_above(double bound, double value) { return bound > value * (1 + 1e-9); }

static void compare(void *context, const Candidate *candidate, const Recipe *r) {
  Judged *j = context;
  if (j->seen++ % j->every) return;
  PlanBound first = bound_by_arithmetic(&j->bounds, candidate, r), second = bound_by_layers(&j->bounds, candidate, r);
  SimulateOptions options = {.cluster = j->of->cluster};
  Prediction p;
  Estimated e;
  Error error = {0};
  if (predict(r, &j->of->config, &options, &p, &error)) return;
  double seconds = p.simulation->step;
  if (is_above(first.seconds, seconds) || is_above(second.seconds, seconds) || is_above(first.bytes, p.bytes) ||
      is_above(second.bytes, p.bytes)) {
    char *text = recipe_differences(&j->of->recipe, r);
    print_message("%s: bounds %.6g and %.6g s of %.6g, %.6g and %.6g MB of %.6g  WRONG\n", text, first.seconds,
                  second.seconds, seconds, first.bytes / 1e6, second.bytes / 1e6, p.bytes / 1e6);
    free(text);
    j->wrong++;
  }
  if (!extension_estimate(&j->extension, r, &e, &error) && e.extended) {
    double time = fabs(e.seconds / seconds - 1), memory = fabs(e.bytes / p.bytes - 1);
    if (time > 0.02 || memory > 0.01) {
      char *text = recipe_differences(&j->of->recipe, r);
      print_message("%s: extended by %d layers a stage: time off by %.2f %%, memory by %.2f %%\n", text, e.extended,
                    100 * time, 100 * memory);
      free(text);
    }
    j->extended++;
    j->time_off = fmax(j->time_off, time);
    j->memory_off = fmax(j->memory_off, memory);
  }
  j->checked++;
  prediction_free(&p);
}

// Adds to *all.
static void judge_case(Case *c, int every, Judged *all) {
  Space space;
  Error error = {0};
  if (space_create(&c->recipe, &c->config, c->cluster, c->ranks, &space, &error)) fail_msg("%s", error.message);
  Judged j = {.of = c, .every = every};
  bounds_create(&space, c->cluster, &j.bounds);
  extension_create(&space, c->cluster, &j.extension);
  space_each(&space, compare, &j);
  all->checked += j.checked, all->wrong += j.wrong, all->extended += j.extended;
  all->time_off = fmax(all->time_off, j.time_off), all->memory_off = fmax(all->memory_off, j.memory_off);
  bounds_free(&j.bounds);
  extension_free(&j.extension);
  space_free(&space);
  free_case(c);
}

static void bounds_are_below_and_estimates_near(void **state) {
  Judged all = {.of = NULL};
  for (uint32_t n = 0; n < 12; n++) {
    Case c = make_case(n, 12);
    judge_case(&c, 7, &all);
  }
  print_message("%d plans; %d extended, time off by at most %.2f %%, memory by %.2f %%\n", all.checked, all.extended,
                100 * all.time_off, 100 * all.memory_off);
  assert_int_equal(all.wrong, 0);
  assert_true(all.checked > 30 && all.extended > 10);
  assert_true(all.time_off < 0.02);
  assert_true(all.memory_off < 0.01);
}

static void bounds_hold_where_all_is_open(void **state) {
  if (only_from(2)) skip();
  Judged all = {.of = NULL};
  for (uint32_t n = 0; n < (uint32_t)sample(2, 2, 6); n++) {
    Case c = make_open_case(n + 40, 6);
    judge_case(&c, 97, &all);
  }
  print_message("%d plans\n", all.checked);
  assert_int_equal(all.wrong, 0);
  assert_true(all.checked > 40);
}

// Parameters that MICRO reads where they are stored, in the same dtype, have no copy, and little else takes memory
// here.
static void bounds_count_no_copy_in_fp32(void **state) {
  static const char *const zero[] = {"mesh.dp=4", "mesh.dp=1"}, *const stage[] = {"parallel.zero=3", "parallel.zero=1"};
  Judged all = {.of = NULL};
  for (int i = 0; i < 2; i++) {
    const char *keys[] = {"precision=fp32", zero[i], stage[i], "mesh.pp=1", "mesh.tp=1", "mesh.cp=1", "batch.global=4",
                          "batch.micro=1", "data.seq_len=8", "parallel.recompute=full", "parallel.tensor=1d"};
    uint32_t drawn = 0;
    Case c = {.ranks = i ? 1 : 4, .cluster = random_cluster(&drawn)};
    load_config(24, &c.config);
    load_recipe(keys, sizeof keys / sizeof *keys, &c.recipe);
    judge_case(&c, 1, &all);
  }
  assert_int_equal(all.wrong, 0);
  assert_true(all.checked > 1);
}

static void bound_one(void *context, const Candidate *candidate, const Recipe *r) {
  Judged *j = context;
  PlanBound bound = bound_by_arithmetic(&j->bounds, candidate, r);
  assert_true(bound.seconds > 0 && bound.bytes > 0);
  j->checked++;
}

// Some schedules take multiples of the pipeline ranks, and what is in flight is counted for the first few hundred only.
static void many_microbatches_are_bounded(void **state) {
  static const char *const keys[] = {"mesh.pp=3", "batch.global=768", "batch.micro=1", "parallel.pipeline=interleaved"};
  uint32_t drawn = 0;
  Case c = {.ranks = 3};
  Space space;
  Error error = {0};
  c.cluster = random_cluster(&drawn);
  load_config(6, &c.config);
  load_recipe(keys, 4, &c.recipe);
  if (space_create(&c.recipe, &c.config, c.cluster, c.ranks, &space, &error)) fail_msg("%s", error.message);
  Judged j = {.of = &c};
  bounds_create(&space, c.cluster, &j.bounds);
  space_each(&space, bound_one, &j);
  assert_true(j.checked > 0);
  bounds_free(&j.bounds);
  space_free(&space);
  free_case(&c);
}

// Searches ------------------------------------------------------------------------------------------------------------

// With more layers than those of models whose plans are all compiled.
static void as_good_as_trying_all(void **state) {
  const char *asked = getenv("PLAIT_SEARCH_SPACES");
  int spaces = asked ? atoi(asked) : sample(1, 4, 24), wrong = 0;
  double worst = 0;
  int64_t plans = 0, compiled = 0;
  for (int n = 0; n < spaces; n++) {
    Case c = make_case((uint32_t)n + 100, 9);
    SearchOptions options = {.cluster = c.cluster, .ranks = c.ranks, .top = 1};
    Search found, all;
    Error error = {0};
    if (search_plans(&c.recipe, &c.config, &options, &found, &error)) fail_msg("%s", error.message);
    options.exhaustive = true;
    if (search_plans(&c.recipe, &c.config, &options, &all, &error)) fail_msg("%s", error.message);
    double more = found.plan[0].seconds / all.plan[0].seconds - 1;
    worst = fmax(worst, more);
    plans += all.count.plans, compiled += found.count.compiled;
    if (more > 0.005) {
      print_message("space %d, %d ranks: found %s, %.2f %% slower than %s\n", n, c.ranks, found.plan[0].keys,
                    100 * more, all.plan[0].keys);
      wrong++;
    }
    search_free(&found);
    search_free(&all);
    free_case(&c);
  }
  print_message("%d spaces of %lld plans, of which the search compiled %lld: at most %.3f %% slower\n", spaces,
                (long long)plans, (long long)compiled, 100 * worst);
  assert_true(2 * compiled < plans); // else nothing was searched
  assert_int_equal(wrong, 0);
}

static void count_plan(void *plans, const Candidate *candidate, const Recipe *r) { ++*(int64_t *)plans; }

// Few plans of a model with few layers are compiled whole, but for those that a bound finds too large. (Neighbours of
// the best are not among them.)
static void few_plans_are_all_compiled(void **state) {
  int64_t all = 0;
  for (uint32_t n = 0; n < 4; n++) {
    Case c = make_case(n + 100, 4);
    SearchOptions options = {.cluster = c.cluster, .ranks = c.ranks, .top = 1};
    Search found;
    Space space;
    Error error = {0};
    int64_t plans = 0;
    if (space_create(&c.recipe, &c.config, c.cluster, c.ranks, &space, &error) ||
        search_plans(&c.recipe, &c.config, &options, &found, &error))
      fail_msg("%s", error.message);
    space_each(&space, count_plan, &plans);
    assert_true(plans <= 256);
    all += plans;
    assert_true(found.count.compiled + found.count.too_large >= plans);
    space_free(&space);
    search_free(&found);
    free_case(&c);
  }
  assert_true(all > 30);
}

typedef struct Given { const Recipe *asked; int seen, wrong; } Given;

static void look_at_given(void *context, const Candidate *candidate, const Recipe *r) {
  Given *g = context;
  g->seen++;
  for (int i = 0; i < recipe_key_count; i++) {
    if (!recipe_is_given(g->asked, recipe_keys[i].path)) continue;
    if (!recipe_value_equal(&recipe_keys[i], g->asked, r)) g->wrong++;
  }
}

static void given_keys_stay(void **state) {
  static const char *const keys[] = {"mesh.tp=2", "parallel.zero=1", "parallel.recompute=full", "batch.micro=2"};
  Recipe recipe;
  ModelConfig config;
  Space space;
  Error error = {0};
  uint32_t drawn = 0;
  Cluster *cluster = random_cluster(&drawn);
  load_config(4, &config);
  load_recipe(keys, 4, &recipe);
  Given g = {.asked = &recipe};
  if (space_create(&recipe, &config, cluster, 8, &space, &error)) fail_msg("%s", error.message);
  space_each(&space, look_at_given, &g);
  assert_true(g.seen > 5);
  assert_int_equal(g.wrong, 0);
  space_free(&space);
  assert_int_equal(space_create(&recipe, &config, cluster, 9, &space, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "do not divide 9"));
  cluster_free(cluster);
  model_config_free(&config);
  recipe_free(&recipe);
}

typedef struct Beside { const Recipe *asked; Candidate from; int any, overlap, micro, recomputed, wrong; } Beside;

static void take_first(void *context, const Candidate *c, const Recipe *r) {
  Beside *b = context;
  if (!b->any && c->micro == 2 && c->mesh[0] == 2) b->from = *c, b->any = 1;
}

static void look_beside(void *context, const Candidate *c, const Recipe *r) {
  Beside *b = context;
  b->overlap += r->parallel.overlap != b->asked->parallel.overlap;
  b->micro += r->batch.micro == 3;
  b->recomputed += r->parallel.recompute_layers > 0;
  b->wrong += r->batch.global % (r->batch.micro * recipe_data_ranks(r)) != 0;
}

// Good plans are tried without overlap, with microbatches that are not a power of two, and with fewer recomputed
// layers, where the recipe leaves these open.
static void neighbours_vary_what_is_open(void **state) {
  static const char *const open[] = {"parallel.recompute=full", "batch.global=12", "batch.micro=null"},
                           *const given[] = {"parallel.recompute=full", "batch.global=12", "batch.micro=2",
                                             "parallel.overlap=true", "parallel.recompute_layers=2"};
  for (int fixed = 0; fixed < 2; fixed++) {
    Recipe recipe;
    ModelConfig config;
    Space space;
    Error error = {0};
    uint32_t drawn = 0;
    Cluster *cluster = random_cluster(&drawn);
    load_config(8, &config);
    load_recipe(fixed ? given : open, fixed ? 5 : 3, &recipe);
    Beside b = {.asked = &recipe};
    if (space_create(&recipe, &config, cluster, 2, &space, &error)) fail_msg("%s", error.message);
    space_each(&space, take_first, &b);
    assert_true(b.any);
    space_beside(&space, &b.from, look_beside, &b);
    assert_int_equal(b.overlap, !fixed);
    assert_int_equal(b.micro, !fixed);
    assert_true(fixed || b.recomputed == 3);
    assert_int_equal(b.wrong, 0);
    space_free(&space);
    cluster_free(cluster);
    model_config_free(&config);
    recipe_free(&recipe);
  }
}

// Two settings that say the same, such as a group of all ranks for sharding, are one plan.
static void no_plan_twice(void **state) {
  if (only_from(2)) skip();
  int plans = 0, spaces = sample(1, 1, 4);
  for (uint32_t n = 0; n < (uint32_t)spaces; n++) {
    Case c = make_open_case(n + 70, 3);
    SearchOptions options = {.cluster = c.cluster, .ranks = c.ranks, .top = 12};
    Search found;
    Error error = {0};
    if (search_plans(&c.recipe, &c.config, &options, &found, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < found.plans; i++)
      for (int k = 0; k < i; k++)
        if (search_twins(&found.plan[i], &found.plan[k]))
          fail_msg("%s is %s", found.plan[i].keys, found.plan[k].keys);
    plans += found.plans;
    search_free(&found);
    free_case(&c);
  }
  assert_true(plans > 7 * spaces);
}

static void what_does_not_fit_is_said(void **state) {
  uint32_t drawn = 0;
  Recipe recipe;
  ModelConfig config;
  Search found;
  Error error = {0};
  Cluster *cluster = random_cluster(&drawn);
  static const char *const keys[] = {"parallel.tensor=1d", "parallel.pipeline=1f1b", "batch.micro=1"};
  load_config(4, &config);
  load_recipe(keys, 3, &recipe);
  SearchOptions options = {.cluster = cluster, .ranks = 1, .top = 1, .room = 100e6};
  assert_int_equal(search_plans(&recipe, &config, &options, &found, &error), PLAIT_INFEASIBLE);
  print_message("%s\n", error.message);
  assert_true(found.nearest.found && found.nearest.plan.bytes > options.room);
  assert_non_null(strstr(error.message, "too much"));
  assert_non_null(strstr(error.message, "ranks of this cluster would do"));
  assert_non_null(strstr(error.message, "; 1 rank would do with a device of "));
  search_free(&found);
  cluster_free(cluster);
  model_config_free(&config);
  recipe_free(&recipe);
}

// Of recipes/7b.yaml on a cluster of two A10: more ranks than it has, the memory that two would need, and who has it.
static void the_smallest_machine_is_said(void **state) {
  if (only_from(2)) skip();
  static char *const keys[] = {"mesh={pp: 1, dp: 1, cp: 1, tp: 2}", "batch.micro=1", "parallel.tensor=1d",
                               "parallel.recompute=full"},
                     *const more[] = {"mesh=null", "batch.micro=1", "parallel=null", "parallel.pipeline=1f1b"};
  for (int open = 0; open < sample(1, 1, 2); open++) {
    Recipe recipe;
    ModelConfig config;
    Cluster *cluster;
    Search found;
    Error error = {0};
    if (recipe_load(SOURCE_FOLDER "/recipes/7b.yaml", 4, (char **)(open ? more : keys), &recipe, &error) ||
        setup_model_config(&recipe, &config, &error) || cluster_load("pcie-10g", &cluster, &error))
      fail_msg("%s", error.message);
    cluster->level[0].count = 2;
    cluster->levels = 1;
    SearchOptions options = {.cluster = cluster, .ranks = 2, .top = 1};
    assert_int_equal(search_plans(&recipe, &config, &options, &found, &error), PLAIT_INFEASIBLE);
    print_message("%s\n", error.message);
    assert_true(found.nearest.found && found.nearest.plan.bytes > found.room);
    if (open) { // and it is true: on that many devices something fits
      int ranks = found.nearest.by.ranks;
      assert_true(ranks > 2);
      assert_non_null(strstr(error.message, " ranks of A10-PCIe-24GB would do, but this cluster has 2; "));
      Cluster larger = nearest_enlarged(cluster, ranks);
      options = (SearchOptions){.cluster = &larger, .ranks = ranks, .top = 1};
      search_free(&found);
      assert_int_equal(search_plans(&recipe, &config, &options, &found, &error), PLAIT_OK);
    } else {
      double bytes = found.nearest.plan.bytes;
      char sentence[128];
      snprintf(sentence, sizeof sentence, "; 2 ranks would do with devices of %s, as ",
               units_bytes(bytes + cluster->device.reserved).s);
      assert_non_null(strstr(error.message, "no number of ranks that was tried would do with the keys that are given"));
      assert_non_null(strstr(error.message, sentence));
      options.room = bytes; // and it is true: with so much memory it fits
      search_free(&found);
      assert_int_equal(search_plans(&recipe, &config, &options, &found, &error), PLAIT_OK);
    }
    search_free(&found);
    cluster_free(cluster);
    model_config_free(&config);
    recipe_free(&recipe);
  }
}

// Nothing in the first two seconds, then a line that says how far the search is.
static void progress_is_said_late(void **state) {
  char text[400] = "";
  FILE *out = tmpfile();
  Search search = {.count = {.plans = 1234, .estimated = 7}};
  SearchProgress progress;
  search_progress_begin(&progress, out);
  search_progress(&progress, &search, false);
  assert_int_equal(ftell(out), 0);
  progress.next -= 3;
  search_progress(&progress, &search, false);
  search_progress(&progress, &search, false);
  search_progress(&progress, &search, true);
  rewind(out);
  assert_non_null(fgets(text, sizeof text, out));
  assert_non_null(strstr(text, "1.23k plans"));
  assert_non_null(strstr(text, "7 estimated"));
  assert_null(fgets(text, sizeof text, out));
  fclose(out);
  search_progress_begin(&progress, NULL);
  search_progress(&progress, &search, true); // nobody waits
}

// More plans than estimates: the sentence says how many were left. (test_plan_search.sh, too, sees that a search ends.)
static void a_search_that_stops_says_so(void **state) {
  if (only_from(3)) skip();
  Case c = make_open_case(3, 6);
  SearchOptions options = {.cluster = c.cluster, .ranks = 16, .top = 12};
  Search search;
  Error error = {0};
  c.cluster->level[0].count = 16;
  if (search_plans(&c.recipe, &c.config, &options, &search, &error)) fail_msg("%s", error.message);
  char *left = search_left(&search.count);
  assert_true(search.count.left > 0);
  assert_non_null(left);
  print_message("%s\n", left);
  assert_non_null(strstr(left, "stopped early"));
  free(left);
  search_free(&search);
  options.top = 1;
  SearchCount all = {.plans = 10};
  assert_null(search_left(&all));
  free_case(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_are_below_and_estimates_near),
                                     cmocka_unit_test(bounds_hold_where_all_is_open),
                                     cmocka_unit_test(bounds_count_no_copy_in_fp32),
                                     cmocka_unit_test(many_microbatches_are_bounded),
                                     cmocka_unit_test(as_good_as_trying_all),
                                     cmocka_unit_test(few_plans_are_all_compiled),
                                     cmocka_unit_test(a_search_that_stops_says_so),
                                     cmocka_unit_test(progress_is_said_late),
                                     cmocka_unit_test(given_keys_stay), cmocka_unit_test(neighbours_vary_what_is_open),
                                     cmocka_unit_test(no_plan_twice),
                                     cmocka_unit_test(what_does_not_fit_is_said),
                                     cmocka_unit_test(the_smallest_machine_is_said)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
