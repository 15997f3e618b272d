// tier 1
// plait.h at its edges: no error struct, no output, no overrides, wrong input. (Training itself: test_install.sh.)
#include "plait/plait.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64], recipe[96];

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

static int set_up(void **state) {
  strcpy(folder, "/tmp/plait-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  char config[96];
  snprintf(config, sizeof config, "%s/config.json", folder);
  snprintf(recipe, sizeof recipe, "%s/recipe.yaml", folder);
  write_file(config, "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 16, \"n_head\": 2, \"n_positions\": 32, "
                     "\"vocab_size\": 270}");
  write_file(recipe, "model: {config: config.json}\ndata: {train: none, seq_len: 16}\nbatch: {global: 4, micro: 2}\n"
                     "schedule: {steps: 4}\nrun: {dir: run}\n");
  return 0;
}

static int tear_down(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

typedef int (*Function)(const char *, int, const char *const *, FILE *, PlaitError *);

static char *text_of(Function function, int count, const char *const *overrides) {
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  PlaitError error = {0};
  int code = function(recipe, count, overrides, out, &error);
  fclose(out);
  if (code) fail_msg("%s", error.message);
  return text;
}

static void prints(void **state) {
  const char *override = "batch.micro=4";
  char *plain = text_of(plait_recipe, 0, NULL), *changed = text_of(plait_recipe, 1, &override);
  assert_non_null(strstr(plain, "micro: 2"));
  assert_non_null(strstr(changed, "micro: 4"));
  char *plan = text_of(plait_plan, 0, NULL); // needs no corpus
  assert_non_null(strstr(plan, "= total "));
  free(plain);
  free(changed);
  free(plan);
  assert_int_equal(plait_plan(recipe, 0, NULL, NULL, NULL), PLAIT_OK);
  assert_string_equal(plait_version(), PLAIT_VERSION);
}

static void refusals(void **state) {
  const Function functions[] = {plait_recipe, plait_plan, plait_train};
  const char *wrong = "batch.mikro=4";
  for (int i = 0; i < 3; i++) {
    PlaitError error = {0};
    assert_int_equal(functions[i](recipe, 1, &wrong, NULL, &error), PLAIT_BAD_INPUT);
    assert_int_equal(error.code, PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, "mikro"));
    assert_int_equal(functions[i](recipe, 1, &wrong, NULL, NULL), PLAIT_BAD_INPUT);
    assert_int_equal(functions[i]("/nowhere.yaml", 0, NULL, NULL, NULL), PLAIT_BAD_INPUT);
  }
  PlaitError error = {0};
  assert_int_equal(plait_train(recipe, 0, NULL, NULL, &error), PLAIT_BAD_INPUT); // the corpus does not exist
  assert_non_null(strstr(error.message, "none"));
  assert_int_equal(plait_train(recipe, 0, NULL, NULL, NULL), PLAIT_BAD_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(prints), cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
