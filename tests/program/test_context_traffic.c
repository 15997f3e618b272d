// What context parallelism moves, counted on compiled Programs, and how evenly it divides the pairs of attention.
// P = cp; Nkv = 2 · b · S · G · D elements, the keys and values of a microbatch in a layer (Dubey et al., 2024).
#include "program/traffic.h"
#include "setup/setup.h"
#include "runtime/job.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 3, MICRO = 2, SEQ = 48, KV_HEADS = 2, HEAD_DIM = 16, MICROBATCHES = 2 };
static const double keys_and_values = 2.0 * MICRO * SEQ * KV_HEADS * HEAD_DIM;

typedef struct Case { Recipe recipe; ModelConfig config; Job *job; } Case;

// keys: "key=value", NULL-terminated
static Case compiled(const char *const *keys) {
  static const char llama[] =
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3,"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 64,"
      " \"vocab_size\": 128, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
  static const char recipe[] = "model: {config: /m}\ndata: {train: /d, seq_len: 48}\nrun: {dir: /r, comm: mpi}\n"
                               "batch: {global: 4, micro: 2}\nparallel: {context: gather}\n";
  Case c = {0};
  Error error = {0};
  char *overrides[16];
  int n = 0;
  for (; keys[n]; n++) overrides[n] = (char *)keys[n];
  if (recipe_parse("r.yaml", recipe, strlen(recipe), "/", n, overrides, &c.recipe, &error) ||
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

static double whole_elements(const Graph *g, const Node *n, int k) {
  const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
  const Tensor *whole = node_comm(n)->scatters ? in : out;
  double elements = 1;
  for (int d = 0; d < whole->shape.rank; d++) elements *= (double)tensor_local(g, whole)[d];
  return elements * (node_comm(n)->gathers || node_comm(n)->scatters ? 1 : 2);
}

// What the collectives over cp in a phase of a microbatch move, in units of (P − 1)/P; of numbers, or of documents.
static double moved(const Case *c, Phase phase, int documents) {
  const Graph *g = job_train(c->job)->graph;
  const Mesh *mesh = &c->job->options.parallel.mesh;
  double elements = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO || n->phase != phase || !op_def(n->op)->communicates) continue;
    if (node_attr(n, CommAttr)->axes != 1u << mesh_axis(mesh, AXIS_CP)) continue;
    for (int k = 0; k < n->ninput; k++)
      if ((graph_tensor(g, n->input[k])->dtype == DTYPE_I32) == documents) elements += whole_elements(g, n, k);
  }
  return elements;
}

// Keys and values are gathered in forward; in backward they are again, and their gradients are scattered.
static void check_gather(const char *const *keys, double share) {
  Case c = compiled(keys);
  double layer = LAYERS * keys_and_values * share;
  assert_true(moved(&c, PHASE_FORWARD, 0) == layer);
  assert_true(moved(&c, PHASE_BACKWARD, 0) == 2 * layer);
  assert_true(moved(&c, PHASE_FORWARD, 1) <= MICRO * SEQ && moved(&c, PHASE_BACKWARD, 1) <= MICRO * SEQ);
  release(&c);
}

static void gather_moves_keys_and_values(void **state) {
  check_gather((const char *[]){"mesh.cp=2", NULL}, 1);
  check_gather((const char *[]){"mesh.cp=4", NULL}, 1);
  check_gather((const char *[]){"mesh.cp=4", "parallel.recompute=full", NULL}, 1);
  check_gather((const char *[]){"mesh.cp=2", "parallel.recompute=selective", "parallel.bucket_mb=0", NULL}, 1);
  check_gather((const char *[]){"mesh.cp=3", "mesh.tp=2", "parallel.sequence=true", NULL}, 0.5);
  check_gather((const char *[]){"mesh.cp=2", "precision=bf16", "parallel.zero=1", NULL}, 1);
}

// What plan prints is the same count: with gradients, which are summed once a step.
static void plan_counts_the_same(void **state) {
  Case c = compiled((const char *[]){"mesh.cp=4", NULL});
  const Graph *g = job_train(c.job)->graph;
  TrafficList list = {0};
  double parameters = 0, elements = 0, expected;
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER)
      parameters += (double)shape_elements(&g->variable.data[i].shape);
  program_traffic(job_train(c.job)->program[0], &list);
  for (int i = 0; i < list.count; i++) elements += list.data[i].elements;
  vec_free(&list);
  expected = 2 * parameters + MICROBATCHES * (3 * LAYERS * keys_and_values + 2 * MICRO * SEQ);
  if (elements < 0.75 * expected || elements > 0.75 * expected + 64) // scalars: loss, count, norm
    fail_msg("%.0f elements, expected %.0f", elements, 0.75 * expected);
  release(&c);
}

// ZeRO divides over dp and cp; the samples are divided over dp alone.
static void storage_is_divided_over_both(void **state) {
  Case c = compiled((const char *[]){"mesh.dp=2", "mesh.cp=2", "parallel.zero=3", "batch.micro=1", NULL});
  const Graph *g = job_train(c.job)->graph;
  assert_int_equal(job_train(c.job)->shares.ranks, 2);
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER)
      assert_int_equal(variable_allocated(g, &g->variable.data[i], -1),
                       (shape_elements(&g->variable.data[i].shape) + 3) / 4);
  release(&c);
}

// What backward keeps of a microbatch, and the memory of bodies, are a rank's part of the sequence.
static void activations_fall_with_ranks(void **state) {
  int64_t kept[9] = {0};
  for (int cp = 1; cp <= 8; cp *= 2) {
    char ranks[16];
    snprintf(ranks, sizeof ranks, "mesh.cp=%d", cp);
    Case c = compiled((const char *[]){ranks, NULL});
    kept[cp] = job_train(c.job)->program[0]->memory.kept;
    assert_true(cp == 1 || kept[cp] <= kept[1] / cp * 11 / 10);
    release(&c);
  }
}

// Pairs of a query and a key that it may see, of a sequence of one document: the same for all ranks. In contiguous
// parts the last rank would have (2P − 1)/P times the mean.
static void pairs_are_even(void **state) {
  for (int cp = 2; cp <= 8; cp++) {
    Mesh m = mesh_create(2, (const char *[]){"pp", "cp"}, (int[]){1, cp});
    AxisList zigzag = {1, {1}, 1}, contiguous = {1, {1}, 0};
    const AxisList *lists[] = {&zigzag, &contiguous};
    int64_t seq = 16 * cp;
    for (int k = 0; k < 2; k++) {
      double most = 0, mean = 0;
      for (int r = 0; r < cp; r++) {
        IndexMap map = axis_list_map(&m, lists[k], seq, r);
        double pairs = 0;
        for (int64_t i = 0; i < map.local; i++) pairs += 1 + (double)index_map(&map, i);
        most = fmax(most, pairs);
        mean += pairs / cp;
      }
      if (k) assert_true(most / mean > (2.0 * cp - 1) / cp - 0.1);
      else assert_true(most / mean <= 1.05);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gather_moves_keys_and_values),
                                     cmocka_unit_test(plan_counts_the_same),
                                     cmocka_unit_test(storage_is_divided_over_both),
                                     cmocka_unit_test(activations_fall_with_ranks), cmocka_unit_test(pairs_are_even)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
