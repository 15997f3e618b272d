// tier 1; rooms recipe setup compile
// Attributes of attention by the recipe: run.deterministic, which gradients get kernels with the same bits in each run;
// data.document_mask, whether all of a sample is one document.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../compiled.h"
#include "compile/compile.h"
#include "op/attributes.h"

static int same_bits(const AttentionAttr *attr) { return attr->same_bits; }
static int is_one_document(const AttentionAttr *attr) { return attr->documents == ATTENTION_DOCUMENTS_ONE; }

// Of all gradients of attention in a rank's Program: 1: all have the attribute, 0: none.
static int all_have(int (*has)(const AttentionAttr *), const char *settings) {
  char *words = xstrdup(settings), *key[16], *rest = words;
  int count = 0, gradients = 0, having = 0;
  while ((key[count] = strtok_r(rest, " ", &rest))) count++;
  Case c = loaded_with(count, key);
  RunPlan plan;
  Graph *graph = NULL;
  Error error = {0};
  if (resolve(&c.recipe, &c.config, &(RunSetting){.threads = 1}, &plan, &error) ||
      run_plan_graph(&plan, NULL, &graph, &error))
    fail_msg("%s: %s", settings, error.message);
  for (int i = 0; i < graph->node.count; i++) {
    const Node *n = &graph->node.data[i];
    if (n->op != OP_ATTENTION_GRAD) continue;
    gradients++;
    having += has(node_attr(n, AttentionAttr));
  }
  graph_destroy(graph);
  run_plan_free(&plan);
  model_config_free(&c.config);
  recipe_free(&c.recipe);
  free(words);
  assert_true(gradients > 0 && (!having || having == gradients));
  return having > 0;
}
static int same_bits_with(const char *settings) { return all_have(same_bits, settings); }

static void follows_the_key(void **state) {
  assert_int_equal(same_bits_with("run.deterministic=true"), 1);
  assert_int_equal(same_bits_with("run.deterministic=false"), 0);
  assert_int_equal(same_bits_with("run.deterministic=auto"), 0);
}

// auto: where ranks that compute the same attention must stay alike.
static void follows_the_mesh(void **state) {
  assert_int_equal(same_bits_with("mesh.dp=2"), 0);
  assert_int_equal(same_bits_with("mesh.tp=2"), 0);
  assert_int_equal(same_bits_with("mesh.pp=2"), 0);
  assert_int_equal(same_bits_with("mesh.dp=2 mesh.pp=2 parallel.zero=3"), 0);
  assert_int_equal(same_bits_with("mesh.cp=2"), 0);
  assert_int_equal(same_bits_with("mesh.dp=2 run.desync_check=true"), 1);
  assert_int_equal(same_bits_with("mesh.dp=2 run.desync_check=true run.deterministic=false"), 0);
  assert_int_equal(same_bits_with("mesh.tp=2 layout.name=data"), 1);
  assert_int_equal(same_bits_with("mesh.tp=2 layout.name=data run.deterministic=false"), 0);
}

static void documents_follow_the_data(void **state) {
  assert_int_equal(all_have(is_one_document, ""), 0);
  assert_int_equal(all_have(is_one_document, "data.document_mask=false"), 1);
  assert_int_equal(all_have(is_one_document, "data.document_mask=false mesh.cp=2"), 1);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(follows_the_key), cmocka_unit_test(follows_the_mesh),
                                     cmocka_unit_test(documents_follow_the_data)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
