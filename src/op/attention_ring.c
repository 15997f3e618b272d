// ATTENTION over a ring of ranks (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers", 2023), and its
// gradient: how the nodes are expanded where an axis cuts queries and keys alike.
//
// Each of P ranks has a block of the queries, and the block of keys, values and documents of the same positions. Blocks
// of keys go around the ring (SHIFT); a rank's part of step i is with the block of the rank i places before it. Nodes
// stand in the order in which they are to run: a SHIFT starts before the product that hides it, and is waited for at
// its first reader (program/overlap.c).
//
// Forward, P - 1 moves of k and v:
//   shift k₁        attention k₀                   → o₀
//   shift k₂        attention k₁, merge with o₀    → o₁ …
// Backward, P - 1 moves of k and v and as many of dk and dv: the rank's own block comes last, so that gradients of
// blocks start with the first step and go home after the last product:
//   shift k₁
//   shift k₂        gradient k₁                    → dk₁
//   shift k₃, dk₁   gradient k₂, + dk₁ as it came  → dk₂ …
//   shift dk        gradient k₀, + dk as it came   → dk
// Each block's out, and each contribution to dq, dk and dv, has the dtype of statistics, and so have their sums.
#include "op/attention_ring.h"
#include "op/build.h"

typedef struct Ring {
  Graph *g;
  Node node; // that is expanded
  uint32_t axes;
  int ranks;
} Ring;

static const char *name_of(const Ring *r, const char *what, int step) {
  return op_derived_name(r->g, &r->node, arena_format(&r->g->arena, "%s.%d", what, step));
}

// Appends a move of tensors of one dtype to the next rank.
static void append_shift(const Ring *r, const char *name, const int *input, int n, int *output) {
  CommAttr attr = {.axes = r->axes, .distance = 1};
  int id = graph_node(r->g, OP_SHIFT, name, input, n, &attr, sizeof attr);
  for (int k = 0; k < n; k++) output[k] = r->g->node.data[id].output[k];
}

// k, v and key_documents of the next step; `next` may be `block`.
static void append_shift_keys(const Ring *r, int step, const int *block, int *next) {
  append_shift(r, name_of(r, "shift_keys", step), block, 2, next);
  append_shift(r, name_of(r, "shift_documents", step), block + 2, 1, next + 2);
}

static int append_sum(const Ring *r, const char *what, int step, int a, int b) {
  return op_add(r->g, name_of(r, what, step), (int[]){a, b}, 2);
}

// ATTENTION of block `step`: out and logsumexp.
static void append_attention(const Ring *r, int step, const int *input, const int *block, int *result) {
  AttentionAttr attr = *node_attr(&r->node, AttentionAttr);
  attr.wide = 1;
  int all[] = {input[0], block[0], block[1], input[3], block[2]};
  int id = graph_node(r->g, OP_ATTENTION, name_of(r, "block", step), all, 5, &attr, sizeof attr);
  for (int k = 0; k < 2; k++) result[k] = r->g->node.data[id].output[k];
}

void attention_ring_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  Ring r = {g, *like, axes, ranks};
  int block[3] = {input[1], input[2], input[4]}, next[3] = {-1, -1, -1}, all[4];
  Dtype dtype = graph_tensor(g, input[0])->dtype;
  for (int step = 0; step < ranks; step++) {
    if (step + 1 < ranks) append_shift_keys(&r, step + 1, block, next);
    append_attention(&r, step, input, block, &all[step ? 2 : 0]);
    if (step) {
      int logsumexp, out = op_merge(g, name_of(&r, "merge", step), all, &logsumexp);
      all[0] = out;
      all[1] = logsumexp;
    }
    memcpy(block, next, sizeof block);
  }
  output[0] =
      node_attr(like, AttentionAttr)->wide ? all[0] : op_cast(g, op_derived_name(g, like, "out"), all[0], dtype);
  output[1] = all[1];
}

// ATTENTION_GRAD of block `step`: dq, dk, dv.
static void append_gradient(const Ring *r, int step, const int *input, const int *block, int *result) {
  AttentionAttr attr = *node_attr(&r->node, AttentionAttr);
  attr.wide = 1;
  int all[] = {input[0], block[0], block[1], input[3], block[2], input[5], input[6], input[7]};
  int id = graph_node(r->g, OP_ATTENTION_GRAD, name_of(r, "block", step), all, 8, &attr, sizeof attr);
  for (int k = 0; k < 3; k++) result[k] = r->g->node.data[id].output[k];
}

void attention_grad_ring_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  static const char *const suffix[] = {"dq", "dk", "dv"};
  Ring r = {g, *like, axes, ranks};
  int own[3] = {input[1], input[2], input[4]}, block[3], next[3], sum[3], came[2];
  memcpy(block, own, sizeof block);
  memcpy(next, own, sizeof next);
  if (ranks > 1) append_shift_keys(&r, 1, own, next);
  for (int step = 1; step <= ranks; step++) { // the last with the rank's own block
    int gradient[3], last = step == ranks;
    memcpy(block, last ? own : next, sizeof block);
    if (step + 1 < ranks) append_shift_keys(&r, step + 1, block, next);
    if (step > 1) append_shift(&r, name_of(&r, "shift_gradients", step), &sum[1], 2, came);
    append_gradient(&r, step % ranks, input, block, gradient);
    for (int k = 0; k < 3; k++)
      sum[k] = step == 1 ? gradient[k] : append_sum(&r, suffix[k], step, k ? came[k - 1] : sum[0], gradient[k]);
  }
  for (int k = 0; k < 3; k++) {
    Dtype dtype = graph_tensor(g, input[k])->dtype;
    output[k] =
        node_attr(like, AttentionAttr)->wide ? sum[k] : op_cast(g, op_derived_name(g, like, suffix[k]), sum[k], dtype);
  }
}
