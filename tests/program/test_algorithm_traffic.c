// What context parallelism moves, read off compiled Programs: of each algorithm by its formula, and as its cost
// function says, by which it is chosen.
#include "parallel/parallel.h"
#include "op/op.h"
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("recipe.yaml",
             "model: {config: llama.json}\ndata: {train: none, seq_len: 64}\nbatch: {global: 2, micro: 1}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n");
  return 0;
}

enum { HEADS = 24, HEAD_DIM = 2, SEQ = 64, LAYER = 1 };

// keys: "key=value …", separated by spaces
static Case compiled(int kv_heads, const char *keys) {
  char json[512];
  snprintf(json, sizeof json,
           "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
           " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d,"
           " \"max_position_embeddings\": 64, \"vocab_size\": 128, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
           " \"tie_word_embeddings\": false}",
           HEADS * HEAD_DIM, HEADS, kv_heads, HEAD_DIM);
  write_file("llama.json", json);
  return compiled_by(keys);
}

static double local_elements(const Graph *g, int tensor) {
  double n = 1;
  const Tensor *t = graph_tensor(g, tensor);
  for (int d = 0; d < t->shape.rank; d++) n *= (double)tensor_local(g, t)[d];
  return n;
}

// Elements that a rank receives over mesh.cp in one layer, for one microbatch, without the numbers of documents.
static double received(const Case *c, Phase phase) {
  const Graph *g = job_train(c->job)->program[0]->graph;
  const Mesh *mesh = &c->job->options.parallel.mesh;
  double elements = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    const CommTraits *d = node_comm(n);
    if (n->region != REGION_MICRO || n->phase != phase || n->layer != LAYER || !op_def(n->op)->communicates) continue;
    uint32_t axes = node_attr(n, CommAttr)->axes, other = axes;
    for (int a = 0; a < mesh->naxis; a++)
      if (mesh->axis[a].role == AXIS_CONTEXT) other &= ~(1u << a);
    if (other) continue;
    double ranks = mesh_size(mesh, axes);
    for (int k = 0; k < n->ninput; k++) {
      if (!dtype_is_float(graph_tensor(g, n->input[k])->dtype)) continue; // documents: one number a position
      double in = local_elements(g, n->input[k]), out = local_elements(g, n->output[k]);
      double share = (ranks - 1) / ranks;
      elements += node_calls(n, COMM_SHIFT) ? in : share * (in > out ? in : out) * (d->reduces && !d->scatters ? 2 : 1);
    }
  }
  return elements;
}

static void near(const char *what, const char *keys, double got, double expected) {
  if (fabs(got - expected) > 1e-6 * (expected + 1))
    fail_msg("%s, %s: %.1f elements, expected %.1f", keys, what, got, expected);
}

// The cost function, of the very call that the algorithm was chosen for.
static void costs_agree(const Case *c, const char *keys) {
  StepModel model;
  step_model_of(&c->config, &model);
  AlgorithmCall call = parallel_context_call(&c->job->options.step, &model);
  const Algorithm *a = algorithm_listed(CHOICE_CONTEXT, c->job->options.step.algorithm[CHOICE_CONTEXT]);
  assert_non_null(a);
  AlgorithmCost cost = a->cost(&call);
  near("forward as the cost function says", keys, received(c, PHASE_FORWARD), cost.forward);
  near("backward as the cost function says", keys, received(c, PHASE_BACKWARD), cost.backward);
}

// Nq and Nkv of one rank, before cp cuts them.
static double queries(int tp) { return SEQ * HEADS * HEAD_DIM / tp; }
static double keys_and_values(int kv_heads, int tp) {
  return 2.0 * SEQ * HEAD_DIM * (kv_heads > tp ? (double)kv_heads / tp : 1);
}

static void gather_by_its_formula(void **state) {
  static const int ranks[] = {2, 4, 8};
  for (int i = 0; i < 3; i++) {
    char text[128];
    double p = ranks[i], kv = keys_and_values(8, 1);
    snprintf(text, sizeof text, "parallel.context=gather mesh.cp=%d", ranks[i]);
    Case c = compiled(8, text);
    near("forward", text, received(&c, PHASE_FORWARD), (p - 1) / p * kv);
    near("backward", text, received(&c, PHASE_BACKWARD), 2 * (p - 1) / p * kv);
    costs_agree(&c, text);
    release(&c);
  }
}

// Each way q, k and v to heads and out back, then dout to heads and the three gradients back: nothing twice.
static void ulysses_by_its_formula(void **state) {
  static const struct {
    int kv, cp, tp;
  } cases[] = {{24, 2, 1}, {24, 4, 1}, {8, 8, 1}, {6, 3, 1}, {12, 6, 2}, {4, 2, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[128];
    double p = cases[i].cp, q = queries(cases[i].tp), kv = keys_and_values(cases[i].kv, cases[i].tp);
    double way = (p - 1) / p * (2 * q / p + kv / p);
    int seq = SEQ / (2 * cases[i].cp) * 2 * cases[i].cp;
    snprintf(text, sizeof text, "parallel.context=ulysses mesh.cp=%d mesh.tp=%d data.seq_len=%d", cases[i].cp,
             cases[i].tp, seq);
    Case c = compiled(cases[i].kv, text);
    near("forward", text, received(&c, PHASE_FORWARD), way * seq / SEQ);
    near("backward", text, received(&c, PHASE_BACKWARD), way * seq / SEQ);
    costs_agree(&c, text);
    release(&c);
  }
}

// More ranks than key and value heads: U shard them, C = P / U share them. k and v go to each of the C that share a
// head, (P − 1)/P · Nkv/U; in backward the C − 1 parts that others have are gathered again. q goes by two all_to_alls,
// over U and over C.
static void ulysses_beyond_the_key_heads(void **state) {
  static const struct {
    int kv, cp, tp, u;
  } cases[] = {{2, 4, 1, 2}, {2, 8, 1, 2}, {4, 4, 2, 2}, {1, 4, 1, 1}, {6, 6, 2, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[128];
    double p = cases[i].cp, u = cases[i].u, s = p / u, q = queries(cases[i].tp),
           kv = keys_and_values(cases[i].kv, cases[i].tp);
    double heads = q / p * ((u - 1) / u + (s - 1) / s), way = 2 * heads + (p - 1) / p * kv / u;
    int seq = SEQ / (2 * cases[i].cp) * 2 * cases[i].cp;
    snprintf(text, sizeof text, "parallel.context=ulysses mesh.cp=%d mesh.tp=%d data.seq_len=%d", cases[i].cp,
             cases[i].tp, seq);
    Case c = compiled(cases[i].kv, text);
    near("forward", text, received(&c, PHASE_FORWARD), way * seq / SEQ);
    near("backward", text, received(&c, PHASE_BACKWARD), (way + (s - 1) / p * kv) * seq / SEQ);
    costs_agree(&c, text);
    release(&c);
  }
}

// Blocks of keys and values to each of the others, and in backward with them their gradients; inside, groups of U ranks
// exchange positions for heads.
static void ring_by_its_formula(void **state) {
  static const struct { int kv, r, u, tp; } cases[] = {{8, 2, 1, 1}, {8, 4, 1, 1}, {8, 8, 1, 2}, {24, 2, 2, 1},
                                                       {4, 2, 4, 1}, {8, 3, 2, 2}, {8, 4, 2, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[128];
    int cp = cases[i].r * cases[i].u, seq = SEQ / (2 * cp) * 2 * cp;
    double r = cases[i].r, u = cases[i].u, p = r * u, q = queries(cases[i].tp) * seq / SEQ,
           kv = keys_and_values(cases[i].kv, cases[i].tp) * seq / SEQ, inside = (u - 1) / (u * p) * (2 * q + kv);
    snprintf(text, sizeof text, "parallel.context=ring parallel.ulysses=%d mesh.cp=%d mesh.tp=%d data.seq_len=%d",
             cases[i].u, cp, cases[i].tp, seq);
    Case c = compiled(cases[i].kv, text);
    near("forward", text, received(&c, PHASE_FORWARD), inside + (r - 1) / p * kv);
    near("backward", text, received(&c, PHASE_BACKWARD), inside + 2 * (r - 1) / p * kv);
    costs_agree(&c, text);
    release(&c);
  }
}

// What auto takes is what moves least of all that can be asked for by name.
static void auto_moves_least(void **state) {
  static const struct { int kv, cp; } cases[] = {{24, 2}, {24, 8}, {8, 4}, {2, 4}, {1, 2}, {1, 8}, {2, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double least = INFINITY, taken = 0;
    for (int name = 0; name < ALGORITHM_COUNT; name++) {
      char text[128];
      if (name && !algorithm_listed(CHOICE_CONTEXT, (AlgorithmName)name)) continue;
      snprintf(text, sizeof text, "parallel.context=%s mesh.cp=%d", name ? algorithm_text((AlgorithmName)name) : "auto",
               cases[i].cp);
      Case c = compiled(cases[i].kv, text);
      double moved = received(&c, PHASE_FORWARD) + received(&c, PHASE_BACKWARD);
      if (!name) taken = moved;
      else if (moved < least) least = moved;
      release(&c);
    }
    near("auto beside the best", "parallel.context", taken, least);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gather_by_its_formula),
      cmocka_unit_test(ulysses_by_its_formula),
      cmocka_unit_test(ulysses_beyond_the_key_heads),
      cmocka_unit_test(ring_by_its_formula),
      cmocka_unit_test(auto_moves_least),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
