// How evenly the ranks that share a sequence divide its pairs of queries and keys, on compiled Programs: in zigzag
// order equally, in contiguous order the last of P ranks has (2P - 1)/P times the mean.
#include "program/cost.h"
#include "setup/setup.h"
#include "runtime/job.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 3, MICRO = 2, SEQ = 96, HEADS = 4 };
static const double all_pairs = LAYERS * MICRO * HEADS * (SEQ * (SEQ + 1.0) / 2);

typedef struct Case { Recipe recipe; ModelConfig config; Job *job; } Case;

// key NULL: none
static Case compiled(int cp, const char *key) {
  static const char llama[] =
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3,"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 96,"
      " \"vocab_size\": 128, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
  static const char recipe[] = "model: {config: /m}\ndata: {train: /d, seq_len: 96}\nrun: {dir: /r, comm: mpi}\n"
                               "batch: {global: 4, micro: 2}\n";
  Case c = {0};
  Error error = {0};
  char mesh[32];
  snprintf(mesh, sizeof mesh, "mesh.cp=%d", cp);
  char *overrides[] = {mesh, (char *)key};
  if (recipe_parse("r.yaml", recipe, strlen(recipe), "/", key ? 2 : 1, overrides, &c.recipe, &error) ||
      model_config_parse(&c.config, llama, sizeof llama - 1, "m.json", &error) ||
      setup_job(&c.recipe, &c.config, &(RunSetting){.threads = 1}, &c.job, &error))
    fail_msg("%s", error.message);
  return c;
}

static void release(Case *c) {
  job_destroy(c->job);
  model_config_free(&c->config);
  recipe_free(&c->recipe);
}

// Every placement of the graph with contiguous parts instead of zigzag ones.
static void make_contiguous(Graph *g) {
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    if (!t->placement) continue;
    Placement *p = arena_array(&g->arena, Placement, 1);
    *p = *t->placement;
    for (int d = 0; d < p->rank; d++) p->dim[d].zigzag = 0;
    t->placement = p;
  }
}

static void zigzag_is_even_and_contiguous_is_not(void **state) {
  for (int cp = 2; cp <= 4; cp++) {
    Case c = compiled(cp, "parallel.context=gather");
    ProgramPairs pairs = program_pairs(job_train(c.job)->program[0]);
    assert_true(fabs(pairs.mean - all_pairs / cp) < 1e-6 * all_pairs);
    assert_true(pairs.most <= 1.05 * pairs.mean);
    double flops = program_flops(job_train(c.job)->program[0]);
    make_contiguous(job_train(c.job)->graph);
    pairs = program_pairs(job_train(c.job)->program[0]);
    assert_true(fabs(pairs.mean - all_pairs / cp) < 1e-6 * all_pairs);
    assert_true(fabs(pairs.most / pairs.mean - (2 * cp - 1.0) / cp) < 0.02);
    assert_true(program_flops(job_train(c.job)->program[0]) < flops); // of rank 0, which has the first positions now
    release(&c);
  }
}

// Over tp heads are divided, not positions.
static void other_axes_are_even_anyway(void **state) {
  Case c = compiled(2, "mesh.tp=2");
  ProgramPairs pairs = program_pairs(job_train(c.job)->program[0]);
  assert_true(fabs(pairs.mean - all_pairs / 4) < 1e-6 * all_pairs && pairs.most == pairs.mean);
  release(&c);
}

// A ring computes the pairs block by block, ulysses those of some heads.
static void algorithms_share_them_evenly(void **state) {
  static const char *const keys[] = {"parallel.context=ring", "parallel.context=ulysses"};
  for (int k = 0; k < 2; k++) {
    Case c = compiled(4, keys[k]);
    ProgramPairs pairs = program_pairs(job_train(c.job)->program[0]);
    if (fabs(pairs.mean - all_pairs / 4) > 1e-6 * all_pairs || pairs.most > 1.05 * pairs.mean)
      fail_msg("%s: %.0f pairs, at most %.0f; of all ranks %.0f", keys[k], pairs.mean, pairs.most, all_pairs);
    release(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(zigzag_is_even_and_contiguous_is_not),
                                     cmocka_unit_test(other_axes_are_even_anyway),
                                     cmocka_unit_test(algorithms_share_them_evenly)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
