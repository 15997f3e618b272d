// tier 1; rooms parallel compile recipe setup
// Every row of parallel/transforms.def: its key changes the graph from the pass on that the row names, and not before.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../compiled.h"
#include "compile/compile.h"
#include "recipe/recipe_keys.h"

typedef struct Row { const char *key, *pass, *model, *with, *another; size_t offset; } Row;
static const Row rows[] = {
#define TRANSFORM(section, type, name, kind, pass, model, with, another, ...)                                          \
  {#section "." #name, #pass, model, with, another, offsetof(Recipe, transform.name)},
#include "parallel/transforms.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

// The graph after a pass, as text; the caller frees it. value: of the row's key.
static char *graph_of(const Row *row, const char *value, const char *after) {
  char *words = xformat("model.config=%s %s=%s %s", path_of(strcmp(row->model, "moe") ? "gpt.json" : "moe.json"),
                        row->key, value, row->with);
  char *key[16], *rest = words, *text;
  int count = 0;
  while ((key[count] = strtok_r(rest, " ", &rest))) count++;
  Case c = loaded_with(count, key);
  RunPlan plan;
  Graph *graph = NULL;
  Error error = {0};
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (resolve(&c.recipe, &c.config, &(RunSetting){.threads = 1}, &plan, &error) ||
      run_plan_graph(&plan, after, &graph, &error))
    fail_msg("%s: %s", row->key, error.message);
  assert_memory_equal(&plan.options.step.transform, &c.recipe.transform, sizeof c.recipe.transform);
  graph_print(graph, out, NULL, NULL);
  fclose(out);
  graph_destroy(graph);
  run_plan_free(&plan);
  model_config_free(&c.config);
  recipe_free(&c.recipe);
  free(words);
  return text;
}

static bool differs_after(const Row *row, const char *pass) {
  const RecipeKey *key = recipe_key_find(row->key);
  char *plain = graph_of(row, key->fallback, pass), *other = graph_of(row, row->another, pass);
  bool differs = strcmp(plain, other) != 0;
  free(plain);
  free(other);
  return differs;
}

static void each_changes_its_pass(void **state) {
  for (int i = 0; i < ROWS; i++) {
    const char *const *pass = compile_passes();
    int at = 0;
    while (pass[at] && strcmp(pass[at], rows[i].pass)) at++;
    if (!pass[at]) fail_msg("%s: there is no pass %s", rows[i].key, rows[i].pass);
    if (!differs_after(&rows[i], pass[at]))
      fail_msg("%s=%s changes nothing in %s", rows[i].key, rows[i].another, pass[at]);
    if (at && differs_after(&rows[i], pass[at - 1])) fail_msg("%s changes the graph before %s", rows[i].key, pass[at]);
  }
}

static void each_is_a_key(void **state) {
  for (int i = 0; i < ROWS; i++) {
    const RecipeKey *key = recipe_key_find(rows[i].key);
    if (!key || key->offset != rows[i].offset) fail_msg("%s is not a key", rows[i].key);
  }
}

static int setup(void **state) {
  if (make_folder()) return -1;
  write_experts_and_recipe();
  write_file("gpt.json",
             "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 2, \"n_positions\": 16,"
             " \"vocab_size\": 64}");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_a_key), cmocka_unit_test(each_changes_its_pass)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
