// Ring attention in compiled Programs: what it moves, what it holds, and what is in flight while it computes.
#include "program/program.h"
#include "op/op.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

enum { LAYERS = 3, KV_HEADS = 2, HEAD_DIM = 16, SEQ = 32, MICRO = 2 };

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file(
      "llama.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3,"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 32,"
      " \"vocab_size\": 128, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml",
             "model: {config: llama.json}\ndata: {train: none, seq_len: 32}\nbatch: {global: 2, micro: 2}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n");
  return 0;
}

static Case compiled(int ranks, const char *precision, const char *setting) {
  char keys[160];
  snprintf(keys, sizeof keys, "mesh.cp=%d precision=%s parallel.context=ring %s", ranks, precision,
           setting ? setting : "");
  return compiled_by(keys);
}

static const Node *node_of(const Program *p, const Body *body, int i) {
  return &p->graph->node.data[body->instruction[i].node];
}
static int is_shift(const Node *n) { return node_calls(n, COMM_SHIFT); }

// P ranks: forward (P - 1)/P of the keys and values, backward twice that, gradients among them: less than the (2P -
// 1)/P of rings in which gradients go all the way around. No other activation crosses the ranks, but for the documents.
static void test_traffic(void **state) {
  for (int ranks = 2; ranks <= 8; ranks *= 2) {
    Case c = compiled(ranks, "fp64", NULL);
    const Program *p = job_train(c.job)->program[0];
    int64_t block = 2 * MICRO * SEQ / ranks * KV_HEADS * HEAD_DIM; // of k and v
    for (int phase = 0; phase <= PHASE_BACKWARD; phase++) {
      int64_t moved = 0, documents = 0;
      const Body *body = &p->micro[0][phase];
      for (int i = 0; i < body->count; i++) {
        const Node *n = node_of(p, body, i);
        if (!op_def(n->op)->communicates) continue;
        for (int k = 0; k < n->ninput; k++) {
          const Tensor *t = graph_tensor(p->graph, n->input[k]);
          if (is_shift(n)) *(dtype_is_float(t->dtype) ? &moved : &documents) += tensor_local_elements(p->graph, t);
          else assert_true(t->shape.rank == 0 || t->parameter >= 0);
        }
      }
      assert_int_equal(moved, LAYERS * (phase == PHASE_FORWARD ? 1 : 2) * (ranks - 1) * block);
      assert_int_equal(documents, LAYERS * (ranks - 1) * MICRO * SEQ / ranks);
    }
    release(&c);
  }
}

// Rings of groups of U ranks that exchange positions for heads, R = P / U of them on a ring: forward (U - 1)/(U P) (2
// Nq + Nkv) in the groups and (R - 1)/P Nkv around the rings, in backward twice that around the rings.
static void test_groups(void **state) {
  for (int ranks = 4; ranks <= 8; ranks *= 2) {
    Case c = compiled(ranks, "fp64", "parallel.ulysses=2");
    const Program *p = job_train(c.job)->program[0];
    int ring = mesh_axis(&p->mesh, AXIS_CP), group = mesh_axis(&p->mesh, AXIS_ULYSSES), rings = ranks / 2;
    assert_true(p->mesh.axis[ring].size == rings && p->mesh.axis[group].size == 2);
    int64_t keys = 2 * MICRO * SEQ * KV_HEADS * HEAD_DIM, queries = 2 * keys / 2; // of all ranks; 2 heads for each key
    for (int phase = 0; phase <= PHASE_BACKWARD; phase++) {
      int64_t around = 0, exchanged = 0;
      const Body *body = &p->micro[0][phase];
      for (int i = 0; i < body->count; i++) {
        const Node *n = node_of(p, body, i);
        for (int k = 0; k < n->ninput && op_def(n->op)->communicates; k++) {
          const Tensor *t = graph_tensor(p->graph, n->input[k]);
          if (!dtype_is_float(t->dtype)) continue;
          assert_true(node_attr(n, CommAttr)->axes == 1u << (is_shift(n) ? ring : group) || !t->shape.rank ||
                      t->parameter >= 0);
          if (is_shift(n)) around += tensor_local_elements(p->graph, t);
          if (node_calls(n, COMM_ALL_TO_ALL)) exchanged += tensor_local_elements(p->graph, t) / 2; // (U - 1)/U of them
        }
      }
      assert_int_equal(around, LAYERS * (phase == PHASE_FORWARD ? 1 : 2) * (rings - 1) * keys / ranks);
      // q, k, v there and out back; in backward dout there, and the gradients of q, k and v back
      assert_int_equal(exchanged, LAYERS * (2 * queries + keys) / ranks / 2);
    }
    release(&c);
  }
}

// Every SHIFT of keys, and of gradients, is in flight while a product runs, but the first one of backward, which has
// only what `ahead` puts after it.
static void test_overlap(void **state) {
  Case c = compiled(4, "fp64", NULL);
  const Program *p = job_train(c.job)->program[0];
  for (int phase = 0; phase <= PHASE_BACKWARD; phase++) {
    const Body *body = &p->micro[0][phase];
    int hidden = 0, all = 0;
    for (int i = 0; i < body->count; i++) {
      const Node *n = node_of(p, body, i);
      if (!is_shift(n) || !dtype_is_float(graph_tensor(p->graph, n->input[0])->dtype)) continue;
      int products = 0;
      for (int k = i + 1; k < body->count && k < body->instruction[i].wait; k++)
        products += op_def(node_of(p, body, k)->op)->expensive && !op_def(node_of(p, body, k)->op)->communicates;
      hidden += products > 0;
      all++;
    }
    assert_int_equal(all, LAYERS * (phase == PHASE_FORWARD ? 3 : 6));
    assert_true(hidden >= all - (phase == PHASE_FORWARD ? 0 : LAYERS));
  }
  release(&c);
}

// A block in the memory plan: bytes [from, to) of an area while instructions first … last run.
typedef struct Block { int64_t from, to; int area, gradient, first, last; } Block;
typedef struct Blocks { Block block[4096]; int count, of[16384]; } Blocks; // of: by tensor, 1 + its block

static void use_block(Blocks *b, const Program *p, int tensor, int gradient, int at) {
  const TensorPlace *place = &p->place[tensor];
  const Tensor *t = graph_tensor(p->graph, tensor);
  assert_true(tensor < 16384 && b->count < 4096);
  if (!b->of[tensor]) {
    int64_t bytes = t->allocated_ * (int64_t)dtype_size(t->dtype), from = program_place(p, tensor, 0, 0).offset;
    b->block[b->count] = (Block){from, from + bytes, place->area, gradient, at, at};
    b->of[tensor] = ++b->count;
  }
  Block *block = &b->block[b->of[tensor] - 1];
  if (at > block->last) block->last = at;
}

// Keys and values are what SHIFT moves first, and the gradients what it moves in the dtype of statistics.
static void find_blocks(Blocks *b, const Program *p, const Body *body) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = node_of(p, body, i);
    int last = body->instruction[i].wait > i ? body->instruction[i].wait : i, gradients = n->op == OP_ATTENTION_GRAD;
    for (int k = 0; k < n->ninput; k++) {
      int t = n->input[k];
      const char *name = t < 0 ? "" : graph_tensor(p->graph, t)->name;
      if (t >= 0 && (b->of[t] || (is_shift(n) && dtype_is_float(graph_tensor(p->graph, t)->dtype))))
        use_block(b, p, t, strstr(name, ".dk") || strstr(name, ".dv"), last);
    }
    for (int k = 0; k < n->noutput; k++) {
      const Tensor *t = graph_tensor(p->graph, n->output[k]);
      int sum = n->ninput == 2 && b->of[n->input[0]] && b->block[b->of[n->input[0]] - 1].gradient && n->op == OP_ADD;
      int moved = is_shift(n) && dtype_is_float(t->dtype);
      if (!moved && !sum && !(gradients && k > 0)) continue;
      use_block(b, p, t->id, gradients || sum || (moved && b->block[b->of[n->input[k]] - 1].gradient), i);
      use_block(b, p, t->id, 0, last);
    }
  }
}

// Distinct bytes of the blocks that live at an instruction: what is computed in place counts once.
static int64_t bytes_at(const Blocks *b, int at, int gradient) {
  int64_t bytes = 0;
  for (int i = 0; i < b->count; i++) {
    const Block *x = &b->block[i];
    int alone = x->gradient == gradient && x->first <= at && at <= x->last;
    for (int k = 0; k < i && alone; k++) {
      const Block *y = &b->block[k];
      if (y->area == x->area && y->gradient == gradient && y->first <= at && at <= y->last && y->from == x->from)
        alone = 0;
    }
    if (alone) bytes += x->to - x->from;
  }
  return bytes;
}

// However many ranks: of keys and values the rank's own block, the one in use, the one that arrives, and while a move
// starts the one that was in use; of gradients the one that leaves, the one that arrives, the one that is made, and
// half a sum.
static void test_memory(void **state) {
  for (int ranks = 2; ranks <= 16; ranks *= 2) {
    Case c = compiled(ranks, "fp32", NULL);
    const Program *p = job_train(c.job)->program[0];
    int64_t block = 2 * MICRO * SEQ / ranks * KV_HEADS * HEAD_DIM * (int64_t)sizeof(float);
    for (int phase = 0; phase <= PHASE_BACKWARD; phase++) {
      Blocks *b = xcalloc(1, sizeof *b);
      const Body *body = &p->micro[0][phase];
      int64_t most[2] = {0};
      find_blocks(b, p, body);
      for (int i = 0; i < body->count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
          int64_t bytes = bytes_at(b, i, gradient);
          if (bytes > most[gradient]) most[gradient] = bytes;
        }
      assert_true(most[0] >= 2 * block && most[0] <= 4 * block);
      assert_true(phase == PHASE_FORWARD ? !most[1] : most[1] >= block && most[1] <= 4 * block);
      free(b);
    }
    release(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_traffic), cmocka_unit_test(test_groups),
                                     cmocka_unit_test(test_overlap), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
