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

static int setup(void **state) {
  strcpy(folder, "/tmp/plait-changes-XXXXXX");
  setenv("LC_ALL", "C", 1);
  return mkdtemp(folder) == NULL;
}

static int teardown(void **state) {
  Error error = {0};
  return folder_remove(folder, &error);
}

// A checkpoint of a step that has this recipe, against another one.
static void compare(const char *recorded, const char *text, const char *key, int64_t step, const char *facts_before,
                    const char *facts_now, Changes *changes) {
  Error error = {0};
  float value = 1;
  CheckpointTensor tensor = {.name = "x", .dtype = DTYPE_F32, .data = &value, .primary = 1};
  json_t *extra = json_object();
  if (recorded) json_object_set_new(extra, "recipe", json_string(recorded));
  if (facts_before) json_object_set_new(extra, "facts", json_loads(facts_before, 0, NULL));
  assert_int_equal(checkpoint_begin(folder, step, &error), 0);
  assert_int_equal(checkpoint_write_part(folder, step, 0, &tensor, 1, &error), 0);
  assert_int_equal(checkpoint_finish(folder, step, 1, extra, &error), 0);
  json_decref(extra);
  char *path = xformat("%s/step-%lld", folder, (long long)step);
  Checkpoint *checkpoint;
  assert_int_equal(checkpoint_open(&checkpoint, path, &error), 0);
  Recipe recipe;
  char *keys[] = {(char *)key};
  assert_int_equal(recipe_parse("r.yaml", text, strlen(text), "/", key != NULL, keys, &recipe, &error), 0);
  ModelConfig config = {.path = "/m.json"};
  json_t *facts = facts_now ? json_loads(facts_now, 0, NULL) : json_object();
  changes_find(&recipe, &config, facts, checkpoint, changes);
  json_decref(facts);
  recipe_free(&recipe);
  checkpoint_close(checkpoint);
  free(path);
}

// With seed 8 and 20 steps.
static void find(const char *recorded, const char *facts_before, const char *facts_now, Changes *changes) {
  static int64_t step = 0;
  compare(recorded, RECIPE "}\nschedule: {steps: 20}\n", "run.seed=8", ++step, facts_before, facts_now, changes);
}

static void test_recorded(void **state) {
  Changes c;
  find(NULL, NULL, NULL, &c); // nothing
  assert_true(!c.listed && !c.other_run && !c.unknown && !c.follows);
  changes_free(&c);
  find(RECIPE ", log_often: 3}\n", NULL, NULL, &c); // a key that this version does not have
  assert_true(!c.listed && !c.other_run && !c.follows);
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

// What a changed key does not say: the next learning rate where it is not what was to come, which samples follow, that
// a loss scale is the checkpoint's, and what the next checkpoint removes.
static void test_follows(void **state) {
  char *run = xformat("%s/run", folder), *inside = xformat("%s/checkpoints", run);
  Error error = {0};
  for (int step = 1; step <= 3; step++) {
    char *path = xformat("%s/step-%d", inside, step);
    assert_int_equal(folder_create(path, &error), 0);
    free(path);
  }
#define MORE                                                                                                           \
  "}\noptimizer: {lr: 5.0e-4}\nschedule: {warmup: 2, steps: 10, min_lr: 1.0e-5}\nbatch: {global: 8, micro: 8}\n"       \
  "precision: fp16\nloss_scale: {initial: 65536}\ncheckpoint: {every: 1, keep: 5}\n"
  static const struct { const char *key; int64_t step; const char *says; } table[] = {
      {NULL, 10, NULL},
      {"schedule.steps=20", 10, "note: the learning rate goes from 2.9e-5 to 3.0e-4\n"},
      {"schedule.steps=20", 1, NULL}, // still in the warm-up
      {"optimizer.lr=1e-3", 4, "note: the learning rate goes from 4.8e-4 to 8.6e-4\n"},
      {"optimizer.lr=500e-6", 4, NULL},
      {"schedule.warmup=8", 4, "note: the learning rate goes from 4.8e-4 to 3.1e-4\n"},
      {"schedule.name=constant", 9, "note: the learning rate goes from 8.2e-5 to 5.0e-4\n"},
      {"schedule.min_lr=1.1e-5", 4, NULL}, // 0.1 % of what was to come
      {"batch.global=16", 4,
       "note: batch.global counts the samples of all steps, so with 16 instead of 8 the next step begins at sample 64, "
       "not 32: 32 samples are left out\n"},
      {"loss_scale.initial=1024", 4,
       "note: loss_scale.initial counts where a run begins: this one continues with the loss scale that its checkpoint "
       "has\n"},
      {"checkpoint.keep=1", 4, "note: checkpoint.keep is 1: the next checkpoint removes 3 of the 3 that are there\n"},
      {"checkpoint.keep=3", 4, "note: checkpoint.keep is 3: the next checkpoint removes 1 of the 3 that are there\n"},
      {"checkpoint.keep=4", 4, NULL},
      {"checkpoint.keep=0", 4, NULL},
      {"optimizer.weight_decay=0.2", 4, NULL}, // says itself what it does
  };
  char *text = xformat("model: {config: /m.json}\ndata: {train: /t}\nrun: {dir: %s" MORE, run);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    Changes c;
    compare(text, text, table[i].key, table[i].step, NULL, NULL, &c);
    if (!c.follows != !table[i].says || (c.follows && strcmp(c.follows, table[i].says)))
      fail_msg("%s at step %d: %s\nexpected: %s", table[i].key, (int)table[i].step, c.follows, table[i].says);
    changes_free(&c);
  }
  free(text), free(run), free(inside);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded), cmocka_unit_test(test_contents),
                                     cmocka_unit_test(test_follows)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
