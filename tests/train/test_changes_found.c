// tier 1
// What is compared with a checkpoint of another version of plait: what it has recorded, and no more.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/file.h"
#include "train/changes.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECIPE "model: {config: /m.json}\ndata: {train: /t}\nrun: {dir: /r, seed: 7"
static char folder[64];
static int64_t step; // of the newest checkpoint

static int setup(void **state) {
  strcpy(folder, "/tmp/plait-changes-XXXXXX");
  setenv("LC_ALL", "C", 1);
  return mkdtemp(folder) == NULL;
}

static int teardown(void **state) {
  Error error = {0};
  return folder_remove(folder, &error);
}

// A checkpoint that has this recipe, against a recipe with seed 8 and 20 steps.
static void find_with(const char *recorded, const char *facts_before, const char *facts_now, const char *key,
                      Changes *changes) {
  Error error = {0};
  float value = 1;
  CheckpointTensor tensor = {.name = "x", .dtype = DTYPE_F32, .data = &value, .primary = 1};
  json_t *extra = json_object();
  if (recorded) json_object_set_new(extra, "recipe", json_string(recorded));
  if (facts_before) json_object_set_new(extra, "facts", json_loads(facts_before, 0, NULL));
  step++;
  assert_int_equal(checkpoint_begin(folder, step, &error), 0);
  assert_int_equal(checkpoint_write_part(folder, step, 0, &tensor, 1, &error), 0);
  assert_int_equal(checkpoint_finish(folder, step, 1, extra, &error), 0);
  json_decref(extra);
  char *path = xformat("%s/step-%lld", folder, (long long)step);
  Checkpoint *checkpoint;
  assert_int_equal(checkpoint_open(&checkpoint, path, &error), 0);
  Recipe recipe;
  const char *text = RECIPE "}\nschedule: {steps: 20}\n";
  char *keys[] = {(char *)key};
  assert_int_equal(recipe_parse("r.yaml", text, strlen(text), "/", 1, keys, &recipe, &error), 0);
  ModelConfig config = {.path = "/m.json"};
  json_t *facts = facts_now ? json_loads(facts_now, 0, NULL) : json_object();
  changes_find(&recipe, &config, facts, checkpoint, changes);
  json_decref(facts);
  recipe_free(&recipe);
  checkpoint_close(checkpoint);
  free(path);
}

static void find(const char *recorded, const char *facts_before, const char *facts_now, Changes *changes) {
  find_with(recorded, facts_before, facts_now, "run.seed=8", changes);
}

static void test_recorded(void **state) {
  Changes c;
  find(NULL, NULL, NULL, &c); // nothing
  assert_true(!c.listed && !c.other_run && !c.unknown && !c.order);
  changes_free(&c);
  find(RECIPE ", log_often: 3}\n", NULL, NULL, &c); // a key that this version does not have
  assert_true(!c.listed && !c.other_run && !c.order);
  assert_non_null(strstr(c.unknown, "this version of plait cannot read the recipe in"));
  assert_non_null(strstr(c.unknown, "run.log_often: unknown key"));
  changes_free(&c);
  find(RECIPE "}\nschedule: {steps: 10}\n", NULL, "{\"data.train\": [\"a\"]}", &c); // no contents: paths alone
  assert_string_equal(c.listed, "schedule.steps 10 -> 20, run.seed 7 -> 8");
  assert_string_equal(c.other_run, "run.seed 7 -> 8");
  changes_free(&c);
  changes_free(&c);
}

static void test_contents(void **state) {
  Changes c;
  const char *text =
      "model: {config: /m.json}\ndata: {train: /elsewhere}\nrun: {dir: /s, seed: 8}\nschedule: {steps: 20}\n";
  find(text, "{\"data.train\": [\"a\"]}", "{\"data.train\": [\"a\"]}", &c);
  assert_string_equal(c.listed, "data.train /elsewhere -> /t (the same contents)");
  assert_null(c.other_run);
  changes_free(&c);
  find(text, "{\"data.train\": [\"a\"]}", "{\"data.train\": [\"b\"]}", &c);
  assert_string_equal(c.other_run, "data.train /elsewhere -> /t");
  changes_free(&c);
  find(text, "{\"data.train\": [null]}", "{\"data.train\": [null]}", &c); // not known
  assert_string_equal(c.other_run, "data.train /elsewhere -> /t");
  changes_free(&c);
  find(RECIPE "}\nschedule: {steps: 20}\n", "{\"data.train\": [\"a\"]}", "{\"data.train\": [\"b\"]}", &c);
  assert_string_equal(c.other_run, "data.train (the contents of /t), run.seed 7 -> 8");
  changes_free(&c);
}

// A learning rate that does not go on as it would have is said, with both; another way to write the same is not.
static void rates(void **state) {
  static const struct { const char *recorded, *key, *said; } rows[] = {
      {"{steps: 20, name: constant}", "schedule={steps: 20, name: constant}", NULL},
      {"{steps: 20}", "schedule.warmup=0", NULL},
      {"{steps: 20, min_lr: 3e-5}", "schedule.min_lr=10 %", NULL},
      {"{steps: 20, name: constant}", "optimizer.lr=1e-3", "after step "},
      {"{steps: 1, name: constant}", "schedule={steps: 20, name: constant}", NULL},
      {"{steps: 20, min_lr: 1e-5}", "schedule.steps=100000", "the learning rate goes from "},
      {"{steps: 20, name: constant}", "schedule={steps: 9, name: linear}", "from 3.0e-04 to "},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Changes c;
    char *text = xformat(RECIPE "}\nschedule: %s\n", rows[i].recorded);
    find_with(text, NULL, NULL, rows[i].key, &c);
    if (rows[i].said ? !c.rate || !strstr(c.rate, rows[i].said) : c.rate != NULL)
      fail_msg("row %zu, step %lld: %s", i, (long long)step, c.rate ? c.rate : "nothing");
    changes_free(&c);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded), cmocka_unit_test(test_contents),
                                     cmocka_unit_test(rates)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
