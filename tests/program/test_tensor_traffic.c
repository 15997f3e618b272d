// 2-D, 2.5-D and 3-D tensors, read off compiled Programs: what a rank moves for a block and a step, and what it keeps
// (Xu et al., Optimus, 2021; Wang et al., Tesseract, 2021; Bian et al., Maximizing Parallelism in Distributed Training,
// 2021).
#include "program/memory.h"
#include "program/traffic.h"
#include "sharding/placement.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

enum { B = 24, S = 16, H = 48 }; // sequences, tokens, embedding width; ffn is 4 H

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("gpt.json",
             "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 48, \"n_head\": 12, \"n_positions\": 16,"
             " \"vocab_size\": 144, \"activation_function\": \"gelu_new\"}");
  write_file("llama.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 48, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
             " \"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"max_position_embeddings\": 16,"
             " \"vocab_size\": 144, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml", "model: {config: gpt.json}\ndata: {train: none, seq_len: 16}\n"
                            "batch: {global: 24, micro: 24}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: fp32\n");
  return 0;
}

// keys: "key=value …"
static Case compiled(const char *keys, int layers) {
  Case c = loaded(keys);
  c.config.layers = layers;
  model_measure(&c.config);
  compile_case(&c);
  return c;
}

static uint32_t axes_named(const Mesh *mesh, const char *names) {
  uint32_t axes = 0;
  char text[64], *next = text;
  snprintf(text, sizeof text, "%s", names);
  for (char *word; (word = strtok_r(next, " ", &next));) {
    assert_true(mesh_find(mesh, word) >= 0);
    axes |= 1u << mesh_find(mesh, word);
  }
  return axes;
}

// Elements over just these axes, as program_traffic counts, in a phase of MICRO (or outside of MICRO: PHASE_COUNT).
static double moved_by(const Program *p, const char *names, Phase phase) {
  uint32_t axes = axes_named(&p->mesh, names);
  double elements = 0, ranks = mesh_size(&p->mesh, axes);
  const Body *bodies[] = {phase < PHASE_COUNT ? &p->micro[0][phase] : &p->begin, phase < PHASE_COUNT ? NULL : &p->end};
  for (int i = 0; i < 2 && bodies[i]; i++)
    for (int k = 0; k < bodies[i]->count; k++) {
      const Node *n = &p->graph->node.data[bodies[i]->instruction[k].node];
      const CommTraits *d = node_comm(n);
      if (!op_def(n->op)->communicates || node_attr(n, CommAttr)->axes != axes) continue;
      for (int j = 0; j < n->ninput; j++) {
        const Tensor *whole = graph_tensor(p->graph, d->gathers ? n->output[j] : n->input[j]);
        elements += (double)tensor_local_elements(p->graph, whole) * (ranks - 1) / ranks *
                    (d->gathers || d->scatters || d->rooted ? 1 : 2);
      }
    }
  return elements;
}

// What one block more moves.
static double block_moves(const char *keys, const char *axes, Phase phase) {
  Case one = compiled(keys, 1), two = compiled(keys, 2);
  double moved =
      moved_by(job_train(two.job)->program[0], axes, phase) - moved_by(job_train(one.job)->program[0], axes, phase);
  release(&one);
  release(&two);
  return moved;
}

static void expect(const char *keys, const char *axes, Phase phase, double expected) {
  double moved = block_moves(keys, axes, phase);
  if (fabs(moved - expected) > 1e-9 * expected)
    fail_msg("%s: a block moves %.0f elements over %s in %s, expected %.0f", keys, moved, axes,
             phase < PHASE_COUNT ? phase_name(phase) : "BEGIN and END", expected);
}

// r rows and c columns, products: 4 bsh over the columns (X of both first products gathered, Y of both second ones
// scattered) and 12 h² over the rows forward, 6 bsh and 24 h² backward. Beside them the norms' sums: in each norm 2 of
// b s rows forward and 1 pair backward, and once a step the sums of 13 h of gains and biases.
static void expect_grid(const char *keys, double r, double c, double samples) {
  double bs = samples * S, rows = bs / r;
  expect(keys, "tp", PHASE_FORWARD, (c - 1) / (r * c) * 4 * bs * H + 2 * (c - 1) / c * 4 * rows);
  expect(keys, "tp", PHASE_BACKWARD, (c - 1) / (r * c) * 6 * bs * H + 2 * (c - 1) / c * 4 * rows);
  expect(keys, "tp_row", PHASE_FORWARD, (r - 1) / (r * c) * 12 * H * H);
  expect(keys, "tp_row", PHASE_BACKWARD, (r - 1) / (r * c) * 24 * H * H);
}

static void two_dims(void **state) {
  expect_grid("mesh.tp=4 parallel.tensor=2d", 2, 2, B);
  expect_grid("mesh.tp=6 parallel.tensor=2d", 2, 3, B);
  expect_grid("mesh.tp=6 parallel.tensor=2d parallel.rows=3", 3, 2, B);
  expect_grid("mesh.tp=16 parallel.tensor=2d", 4, 4, B);
  expect("mesh.tp=4 parallel.tensor=2d", "tp_row", PHASE_COUNT, 2 * 1 / 2.0 * 13 * H / 2);
}

// As 2-D on a d-th of the samples, and once a step the sum of the weights' gradients over the depth; vectors are summed
// over depth and rows together.
static void two_and_a_half_dims(void **state) {
  const char *keys = "mesh.tp=8 parallel.tensor=2.5d", *twice = "mesh.tp=8 parallel.tensor=2.5d batch.micro=3";
  expect_grid(keys, 2, 2, B / 2);
  expect(keys, "tp_depth", PHASE_COUNT, 2 * 1 / 2.0 * 12 * H * H / 4);
  expect(twice, "tp_depth", PHASE_COUNT, 2 * 1 / 2.0 * 12 * H * H / 4); // 2 microbatches
  expect(twice, "tp_depth", PHASE_BACKWARD, 0);
  expect(keys, "tp_depth tp_row", PHASE_COUNT, 2 * 3 / 4.0 * 13 * H / 2);
}

// In SUMMA's steps as much as by gathering.
static void summa_moves_the_same(void **state) {
  expect_grid("mesh.tp=4 parallel.tensor=2d parallel.summa=true", 2, 2, B);
  expect_grid("mesh.tp=16 parallel.tensor=2d parallel.summa=true", 4, 4, B);
  expect_grid("mesh.tp=8 parallel.tensor=2.5d parallel.summa=true", 2, 2, B / 2);
}

// The last instruction of the body that reads a tensor.
static int last_reader(const Program *p, const Body *body, int tensor) {
  int last = -1;
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] == tensor) last = i;
  }
  return last;
}

// The most blocks of one tensor that are there at a time.
static int blocks_held(const Program *p, const Body *body, int *broadcasts) {
  int most = 0;
  for (int at = 0; at < body->count; at++) {
    int *held = calloc((size_t)p->graph->tensor.count, sizeof *held);
    assert_non_null(held);
    for (int i = 0; i <= at; i++) {
      const Node *n = &p->graph->node.data[body->instruction[i].node];
      if (n->op != OP_BROADCAST) continue;
      *broadcasts += at == i;
      if (last_reader(p, body, n->output[0]) >= at && ++held[n->input[0]] > most) most = held[n->input[0]];
    }
    free(held);
  }
  return most;
}

// The most that lives within a body at one of its instructions.
static int64_t most_in_bodies(const Program *p) {
  int64_t most = 0;
  for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
    const Body *body = &p->micro[0][phase];
    LifeList lives = {0};
    memory_body_lives(p, body, &lives);
    for (int i = 0; i < body->count; i++) {
      int64_t now = 0;
      for (int k = 0; k < lives.count; k++)
        if (lives.data[k].first <= i && i <= lives.data[k].last) now += lives.data[k].bytes;
      if (now > most) most = now;
    }
    vec_free(&lives);
  }
  return most;
}

// Of an operand two blocks are held instead of four, and with them the workspace shrinks.
static void summa_holds_two_blocks(void **state) {
  Case whole = compiled("mesh.tp=16 parallel.tensor=2d", 2),
       steps = compiled("mesh.tp=16 parallel.tensor=2d parallel.summa=true", 2);
  const Program *p = job_train(steps.job)->program[0];
  int broadcasts = 0;
  for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++)
    assert_int_equal(blocks_held(p, &p->micro[0][phase], &broadcasts), 2);
  // In a block forward X twice and 6 weights, backward 3 weights, dY of both second products, X of both first ones.
  assert_int_equal(broadcasts, 2 * 4 * (2 + 6 + 3 + 2 + 2));
  int64_t before = most_in_bodies(job_train(whole.job)->program[0]), now = most_in_bodies(p);
  if (10 * now > 9 * before) fail_msg("the workspace is %lld bytes, of %lld", (long long)now, (long long)before);
  release(&whole);
  release(&steps);
}

// MK + KN + MN for each product forward, with X of queries, keys and values gathered once: over the axis of X and Y 16
// bsh, over x 12 h². 2 MK + 2 KN + MN backward: 23 bsh and 24 h². Norms lie over z.
static void three_dims(void **state) {
  const char *keys = "mesh.tp=8 parallel.tensor=3d";
  const double l = 2, bsh = (double)B * S * H, share = (l - 1) / (l * l * l), rows = B * S / (l * l);
  // X of first products and Y of second ones over y; the others over z.
  expect(keys, "tp_row", PHASE_FORWARD, share * (1 + 1 + 1 + 1) * bsh);
  expect(keys, "tp", PHASE_FORWARD, share * (3 + 1 + 4 + 4) * bsh + 2 * (l - 1) / l * 4 * rows);
  expect(keys, "tp_depth", PHASE_FORWARD, share * 12 * H * H);
  expect(keys, "tp_row", PHASE_BACKWARD, share * (2 * (1 + 1) + 1 + 1) * bsh);
  expect(keys, "tp", PHASE_BACKWARD, share * (2 * (1 + 4) + 3 + 4) * bsh + 2 * (l - 1) / l * 4 * rows);
  expect(keys, "tp_depth", PHASE_BACKWARD, share * 24 * H * H);
}

// What a product gives is read in forward and in backward, without a bias between: it is scattered once all the same.
// A Llama's block has 4 + 3 · 2 matrices of h², RMS norms one sum each way.
static void three_dims_of_llama(void **state) {
  char keys[160];
  const double l = 2, bsh = (double)B * S * H, share = (l - 1) / (l * l * l), rows = B * S / (l * l);
  snprintf(keys, sizeof keys, "mesh.tp=8 parallel.tensor=3d model.config=%s", path_of("llama.json"));
  expect(keys, "tp_row", PHASE_FORWARD, share * (1 + 1 + 1 + 1) * bsh);
  expect(keys, "tp", PHASE_FORWARD, share * (3 + 1 + 4 + 2) * bsh + 2 * (l - 1) / l * 2 * rows);
  expect(keys, "tp_depth", PHASE_FORWARD, share * 10 * H * H);
  expect(keys, "tp_row", PHASE_BACKWARD, share * (2 * (1 + 1) + 1 + 1) * bsh);
  expect(keys, "tp", PHASE_BACKWARD, share * (2 * (1 + 2) + 3 + 4) * bsh + 2 * (l - 1) / l * 2 * rows);
  expect(keys, "tp_depth", PHASE_BACKWARD, share * 20 * H * H);
}

// Where only weights are cut over their width, and activations are whole, a norm's gain and bias are gathered, and no
// norm is made of parts: in a GPT's block 4 h of them, beside 7 bsh of partial sums (queries, keys, values; up) and 2
// bsh of shares that are gathered.
static void width_of_weights_alone(void **state) {
  const char *keys = "mesh.tp=2 layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]";
  const double bsh = (double)B * S * H;
  expect(keys, "tp", PHASE_FORWARD, 7 * bsh + (2 * bsh + 4 * H) / 2);
}

static int is_matrix(const Variable *v) {
  int embed = 0;
  for (int d = 0; d < v->shape.rank; d++) embed |= v->shape.dim[d] == DIM_EMBED;
  return embed && v->shape.rank >= 2;
}

// Largest share of a rank in any matrix of a block, and in what the block's nodes give, before it is gathered.
static void expect_shares(const char *keys, double weights, double activations) {
  Case c = compiled(keys, 2);
  const Program *p = job_train(c.job)->program[0];
  const Graph *g = p->graph;
  int checked = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!is_matrix(v) || (v->kind != VARIABLE_PARAMETER && v->kind != VARIABLE_GRADIENT)) continue;
    if (!strstr(v->name, "layer.")) continue;
    double share = (double)variable_allocated(g, v, -1) / (double)shape_elements(&v->shape);
    if (share > weights * 1.001)
      fail_msg("%s: %s has %.4f of the elements, expected %.4f", keys, v->name, share, weights);
    checked++;
  }
  assert_true(checked == 24);
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD || n->layer != 1 || node_comm(n)->gathers) continue;
    for (int k = 0; k < n->noutput; k++) {
      const Tensor *t = graph_tensor(g, n->output[k]);
      if (t->shape.rank < 3 || t->shape.dim[0] != DIM_BATCH || t->placement->partial) continue;
      double share = (double)tensor_local_elements(g, t) / (double)shape_elements(&t->shape);
      if (share > activations * 1.001)
        fail_msg("%s: %s has %.4f of the elements, expected %.4f", keys, t->name, share, activations);
      checked++;
    }
  }
  assert_true(checked > 24 + 10);
  release(&c);
}

static void shares(void **state) {
  expect_shares("mesh.tp=4 parallel.tensor=2d", 1 / 4.0, 1 / 4.0);
  expect_shares("mesh.tp=16 parallel.tensor=2d", 1 / 16.0, 1 / 16.0);
  expect_shares("mesh.tp=8 parallel.tensor=2.5d", 1 / 4.0, 1 / 8.0);
  expect_shares("mesh.tp=8 parallel.tensor=3d", 1 / 8.0, 1 / 8.0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two_dims), cmocka_unit_test(two_and_a_half_dims),
                                     cmocka_unit_test(three_dims), cmocka_unit_test(three_dims_of_llama),
                                     cmocka_unit_test(width_of_weights_alone),
                                     cmocka_unit_test(shares), cmocka_unit_test(summa_moves_the_same),
                                     cmocka_unit_test(summa_holds_two_blocks)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
