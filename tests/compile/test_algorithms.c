// Algorithms of one op: how each assigns factors (place_node), and how one is chosen by cost.
#include "parallel/parallel.h"
#include "compile/place_node.h"
#include "op/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

// dp 2 × cp 4 (cp_group 2 · ulysses 2, or one ring) × tp 2, on attention with 4 key heads and 4 query heads for each.
static Mesh mesh_with(int cut) {
  Mesh m = mesh_create(3, (const char *[]){"dp", "cp", "tp"}, (int[]){2, 4, 2});
  if (cut) mesh_cut(&m, AXIS_CP, AXIS_ULYSSES, 2);
  if (cut) mesh_cut(&m, AXIS_CP, AXIS_CP_GROUP, 2);
  return m;
}

static void place_input(Graph *g, const Mesh *mesh, int tensor) {
  Tensor *t = graph_tensor(g, tensor);
  Placement p = {.rank = t->shape.rank};
  int axes[MAX_AXES], n = mesh_axes_of(mesh, AXIS_CP, axes);
  for (int d = 0; d < p.rank; d++) {
    if (t->shape.dim[d] == DIM_BATCH) axis_list_push(&p.dim[d], mesh_axis(mesh, AXIS_DP));
    if (t->shape.dim[d] == DIM_KV_HEADS) axis_list_push(&p.dim[d], mesh_axis(mesh, AXIS_TP));
    for (int i = 0; t->shape.dim[d] == DIM_SEQ && i < n; i++)
      if (mesh->axis[axes[i]].size > 1) axis_list_push(&p.dim[d], axes[i]);
  }
  t->placement = placement_new(g, &p);
}

// Forward and gradient by an algorithm, with operands that lie as projections of a sequence over cp leave them.
static Graph *attention(const Mesh *mesh, AlgorithmName algorithm) {
  Graph *g = graph_create();
  enum { B = 2, S = 16, KV = 4, R = 4, D = 2 };
  DimName q[] = {DIM_BATCH, DIM_SEQ, DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM},
          k[] = {DIM_BATCH, DIM_SEQ, DIM_KV_HEADS, DIM_HEAD_DIM};
  int input[] = {graph_input(g, "q", DTYPE_F32, shape_of(5, (int64_t[]){B, S, KV, R, D}, q)),
                 graph_input(g, "k", DTYPE_F32, shape_of(4, (int64_t[]){B, S, KV, D}, k)),
                 graph_input(g, "v", DTYPE_F32, shape_of(4, (int64_t[]){B, S, KV, D}, k)),
                 graph_input(g, "documents", DTYPE_I32, shape_of(2, (int64_t[]){B, S}, k)),
                 graph_input(g, "dout", DTYPE_F32, shape_of(5, (int64_t[]){B, S, KV, R, D}, q))};
  AttentionAttr attr = {.scale = 1, .causal = 1};
  g->region = REGION_MICRO;
  for (int i = 0; i < 5; i++) place_input(g, mesh, input[i]);
  int out = op_attention(g, "attention", input[0], input[1], input[2], input[3], input[3], &attr), dinput[5];
  op_def(g->node.data[0].op)->gradient(g, 0, (int[]){input[4], -1}, dinput);
  assert_true(g->node.count == 2 && graph_tensor(g, out)->producer == 0);
  for (int i = 0; i < 2; i++) {
    g->node.data[i].algorithm = algorithm;
    place_node(g, i, mesh, NULL);
  }
  return g;
}

static void lies(const Mesh *mesh, const Placement *p, const Shape *shape, const char *expected) {
  char text[256];
  placement_text(mesh, p, shape, text, sizeof text);
  assert_string_equal(text, expected);
}

static void wants(const Graph *g, const Mesh *mesh, int node, int k, const char *expected) {
  const Node *n = &g->node.data[node];
  lies(mesh, node_want(n, k), &graph_tensor(g, n->input[k])->shape, expected);
}

// As the node computes an output, and as that is left to others.
static void gives(const Graph *g, const Mesh *mesh, int node, int k, const char *computed, const char *left) {
  const Node *n = &g->node.data[node];
  const Tensor *t = graph_tensor(g, n->output[k]);
  lies(mesh, node_give(n, k), &t->shape, computed);
  lies(mesh, t->placement, &t->shape, left);
}

static void gather_keeps_queries_where_they_are(void **state) {
  Mesh mesh = mesh_with(0);
  Graph *g = attention(&mesh, ALGORITHM_GATHER);
  static const char at_home[] = "batch:dp seq:cp kv_heads:tp", gathered[] = "batch:dp kv_heads:tp";
  wants(g, &mesh, 0, 0, at_home);
  wants(g, &mesh, 0, 1, gathered);
  wants(g, &mesh, 0, 3, "batch:dp seq:cp");
  wants(g, &mesh, 0, 4, "batch:dp");
  gives(g, &mesh, 0, 0, at_home, at_home);
  gives(g, &mesh, 1, 0, at_home, at_home);
  gives(g, &mesh, 1, 1, "batch:dp kv_heads:tp partial:cp", at_home); // scattered as k lies
  graph_destroy(g);
}

// The axes move from the sequence to the heads: those of key heads first, the rest to the query heads of each.
static void ulysses_moves_axes_to_heads(void **state) {
  Mesh mesh = mesh_with(1);
  Graph *g = attention(&mesh, ALGORITHM_ULYSSES);
  static const char at_home[] = "batch:dp seq:cp_group,ulysses kv_heads:tp",
                    q[] = "batch:dp kv_heads:tp,ulysses group:cp_group", kv[] = "batch:dp kv_heads:tp,ulysses";
  for (int k = 0; k < 3; k++) wants(g, &mesh, 0, k, k ? kv : q);
  wants(g, &mesh, 0, 3, "batch:dp");
  gives(g, &mesh, 0, 0, q, at_home);
  gives(g, &mesh, 0, 1, q, "batch:dp kv_heads:tp,ulysses group:cp_group"); // logsumexp is its gradient's alone
  for (int k = 0; k < 3; k++) wants(g, &mesh, 1, k, k ? kv : q);
  wants(g, &mesh, 1, 5, q); // out, as it was computed
  wants(g, &mesh, 1, 7, q);
  gives(g, &mesh, 1, 0, q, at_home);
  gives(g, &mesh, 1, 1, "batch:dp kv_heads:tp,ulysses partial:cp_group", at_home);
  graph_destroy(g);
}

static AlgorithmCall call_of(int kv, int group, int ranks, int inner) {
  AlgorithmCall c = {.ranks = ranks, .inner = inner, .bytes = 4};
  static const char letters[] = "bstgrd";
  const int64_t size[] = {1, 64, 64, kv, group, 8};
  for (int i = 0; letters[i]; i++) c.size[letters[i] - 'a'] = size[i];
  return c;
}

static void cheapest_is_taken(void **state) {
  static const struct { int kv, group, ranks, inner; AlgorithmName best;
  } cases[] = {
      {8, 1, 8, 0, ALGORITHM_ULYSSES}, // four tensors of 1/8 each instead of all keys
      {8, 1, 2, 0, ALGORITHM_ULYSSES},
      {1, 16, 2, 0, ALGORITHM_GATHER}, // one key head: its queries are more than keys and values
      {2, 12, 2, 0, ALGORITHM_GATHER}, // ulysses would hold less
      {2, 3, 4, 0,
       ALGORITHM_GATHER}, // 4 ranks cannot divide 6 heads; a ring moves and holds as much, and is listed later
      {2, 3, 8, 0, ALGORITHM_RING},    // moves as much as a gather, and holds less
      {2, 2, 2, 0, ALGORITHM_ULYSSES}, // all three move as much; it holds the least
      {4, 4, 8, 2, ALGORITHM_RING},    // as asked: the only one with groups of 2
      {4, 1, 4, 4, ALGORITHM_ULYSSES},
      {1, 16, 2, 2, ALGORITHM_ULYSSES}, // as asked
      {4, 4, 4, 1, ALGORITHM_GATHER},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    AlgorithmCall c = call_of(cases[i].kv, cases[i].group, cases[i].ranks, cases[i].inner);
    AlgorithmName best = algorithm_cheapest(CHOICE_CONTEXT, &c);
    if (best != cases[i].best)
      fail_msg("case %d: %s, not %s", (int)i, algorithm_text(best), algorithm_text(cases[i].best));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gather_keeps_queries_where_they_are),
      cmocka_unit_test(ulysses_moves_axes_to_heads),
      cmocka_unit_test(cheapest_is_taken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
