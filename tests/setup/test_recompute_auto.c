// tier 2; rooms compile machine; numbers
// parallel.recompute auto: what it chooses fits the budget by the real memory plan, takes no longer than any mode that
// fits, and an impossible budget is refused with one that works.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../compiled.h"
#include "program/memory.h"
#include "setup/setup_memory.h"
#include <math.h>

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("config.json", "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 8, \"n_head\": 4, "
                            "\"n_positions\": 128, \"vocab_size\": 256}");
  write_file("recipe.yaml", "model: {config: config.json}\ndata: {train: corpus, seq_len: 128}\n"
                            "batch: {global: 16, micro: 2}\nrun: {dir: run}\nschedule: {steps: 10}\n");
  return 0;
}

static int64_t most_bytes(const Case *c, const Job *job) {
  int64_t most = 0;
  for (int k = 0; k < c->recipe.mesh.pp; k++) {
    int64_t bytes = setup_rank_bytes(&c->recipe, &c->config, job, k);
    most = bytes > most ? bytes : most;
  }
  return most;
}

// Bytes of a recipe that says what is recomputed.
static int64_t bytes_of(const char *keys, const char *recompute) {
  char setting[1024], all[256];
  snprintf(setting, sizeof setting, "parallel.recompute=%s", recompute);
  char *words[16], *next = all;
  int n = 0;
  snprintf(all, sizeof all, "%s", keys);
  for (char *word; (word = strtok_r(next, " ", &next)) && n < 15;) words[n++] = word;
  words[n++] = setting;
  Case c = loaded_with(n, words);
  Error error = {0};
  if (setup_job(&c.recipe, &c.config, &(RunSetting){.threads = 1}, &c.job, &error)) fail_msg("%s", error.message);
  int64_t bytes = most_bytes(&c, c.job);
  job_destroy(c.job);
  model_config_free(&c.config);
  recipe_free(&c.recipe);
  return bytes;
}

// The list for a budget; the caller frees it. NULL: refused, with the sentence. choice: may be NULL.
static char *chosen(const char *keys, int64_t memory, RecomputeChoice *choice, Error *error) {
  char text[256];
  snprintf(text, sizeof text, "%s parallel.recompute=auto parallel.memory=%lld", keys, (long long)memory);
  Case c = loaded(text);
  *error = (Error){0};
  char *list = NULL;
  RunPlan plan;
  RunSetting setting = {.threads = 1, .shows_recompute = choice != NULL};
  int code = resolve(&c.recipe, &c.config, &setting, &plan, error);
  if (!code) list = recompute_list_text(&plan.options.step.recompute.list);
  if (!code && choice) *choice = *plan.recompute;
  run_plan_free(&plan);
  model_config_free(&c.config);
  recipe_free(&c.recipe);
  return list;
}

static const char *const meshes[] = {"mesh.pp=1", "mesh.pp=2", "mesh.dp=2 parallel.zero=3", "mesh.tp=2",
                                     "mesh.pp=2 parallel.pipeline=interleaved", "mesh.pp=2 parallel.pipeline=zb-h1"};
enum { MESHES = sizeof meshes / sizeof *meshes, BUDGETS = 6 };

static void fits_the_budget(void **state) {
  Error error;
  for (int m = 0; m < MESHES; m++) {
    int64_t kept = bytes_of(meshes[m], "none"), full = bytes_of(meshes[m], "full");
    int64_t low = full < kept ? full : kept, high = full < kept ? kept : full;
    double before = INFINITY;
    for (int i = 0; i <= BUDGETS; i++) {
      int64_t memory = low + (high - low) * i / BUDGETS;
      RecomputeChoice *choice = xcalloc(1, sizeof *choice);
      char *list = chosen(meshes[m], memory, i % 3 ? NULL : choice, &error), written[1024];
      if (!list) fail_msg("%s, %lld bytes: %s", meshes[m], (long long)memory, error.message);
      snprintf(written, sizeof written, "[%s]", list);
      int64_t bytes = bytes_of(meshes[m], written);
      if (bytes > memory)
        fail_msg("%s: %s needs %lld bytes, not %lld", meshes[m], list, (long long)bytes, (long long)memory);
      if (i % 3 == 0) {
        assert_true(choice->chosen.bytes == bytes && choice->points > 0);
        if (choice->chosen.seconds > before) fail_msg("%s: %s is slower with more memory", meshes[m], list);
        before = choice->chosen.seconds;
        for (int k = 1; k < choice->points; k++)
          assert_true(choice->point[k].bytes > choice->point[k - 1].bytes &&
                      choice->point[k].seconds < choice->point[k - 1].seconds);
      }
      free(choice);
      free(list);
    }
  }
}

static void keeps_what_fits(void **state) {
  Error error;
  for (int m = 0; m < MESHES; m++) {
    char *list = chosen(meshes[m], bytes_of(meshes[m], "none"), NULL, &error);
    assert_non_null(list);
    assert_string_equal(list, "keep x 8");
    free(list);
  }
}

// With 1f1b the first stage has activations of two microbatches, the last one of one: it recomputes as much at least,
// and within some budgets more.
static void stages_differ(void **state) {
  enum { STEPS = 8 };
  Error error;
  int64_t kept = bytes_of(meshes[1], "none"), full = bytes_of(meshes[1], "full");
  int more = 0;
  for (int b = 1; b < STEPS; b++) {
    char *list = chosen(meshes[1], full + (kept - full) * b / STEPS, NULL, &error);
    RecomputeList l;
    assert_non_null(list);
    assert_int_equal(recompute_list_parse(list, 8, &l, &error), PLAIT_OK);
    int again[2] = {0};
    for (int i = 0; i < 8; i++) again[i / 4] += l.selective[i];
    for (int i = 0; i < l.segments; i++) again[l.segment[i].first / 4] += 2 * (l.segment[i].end - l.segment[i].first);
    if (again[0] < again[1]) fail_msg("%s: the second stage recomputes more than the first", list);
    more += again[0] > again[1];
    free(list);
  }
  assert_true(more > 0);
}

static void impossible_budgets(void **state) {
  for (int m = 0; m < MESHES; m++) {
    Error error;
    char *list = chosen(meshes[m], 1000, NULL, &error);
    assert_null(list);
    const char *at = strstr(error.message, "a rank needs at least ");
    if (!at || strncmp(error.message, "parallel.memory is 1kB, but", 27)) fail_msg("%s", error.message);
    assert_non_null(strstr(error.message, ", of which "));
    assert_non_null(strstr(error.message, "with nothing recomputed it needs "));
    int64_t least = atoll(at + 22);
    list = chosen(meshes[m], least, NULL, &error);
    if (!list) fail_msg("%s: %lld bytes are too few as well: %s", meshes[m], (long long)least, error.message);
    free(list);
  }
}

// Bytes that forward leaves to backward.
static int64_t slot_bytes(const char *recompute) {
  char setting[128];
  snprintf(setting, sizeof setting, "parallel.recompute=%s", recompute);
  Case c = loaded_with(1, (char *[]){setting});
  Error error = {0};
  if (setup_job(&c.recipe, &c.config, &(RunSetting){.threads = 1}, &c.job, &error)) fail_msg("%s", error.message);
  const Program *p = job_train(c.job)->program[0];
  int64_t bytes = 0;
  for (int t = 0; t < p->graph->tensor.count; t++)
    if (p->place[t].area == AREA_SLOT) bytes += memory_tensor_bytes(p, graph_tensor(p->graph, t));
  job_destroy(c.job);
  model_config_free(&c.config);
  recipe_free(&c.recipe);
  return bytes;
}

static void segments_keep_their_first_input(void **state) {
  int64_t input = 2 * 128 * 64 * 4, full = slot_bytes("full"); // (b, s, e) in fp32
  assert_int_equal(full - slot_bytes("[(keep*2)*4]"), 4 * input);
  assert_int_equal(full - slot_bytes("[(keep*4)*2]"), 6 * input);
  assert_int_equal(full - slot_bytes("[((keep*2),keep*2)*2]"), 6 * input);
  assert_int_equal(full - slot_bytes("[(selective*8)]"), 7 * input);
}

// Blocks whose segments need less than a list of full blocks: the least memory is below that of recompute full.
static void segments_save_more(void **state) {
  Error error;
  free(chosen("batch.micro=16", 1000, NULL, &error));
  int64_t least = atoll(strstr(error.message, "at least ") + 9);
  assert_true(least < bytes_of("batch.micro=16", "full"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_what_fits), cmocka_unit_test(fits_the_budget),
                                     cmocka_unit_test(stages_differ), cmocka_unit_test(impossible_budgets),
                                     cmocka_unit_test(segments_keep_their_first_input),
                                     cmocka_unit_test(segments_save_more)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
