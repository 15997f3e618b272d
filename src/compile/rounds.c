// rounds: in END, owners make what updates need whole side by side (Node.round, by zero).
//
// Example: matrices A and B, of which ranks 0 and 1 are the owners. Of each: m momentum, g gathers it to the owner, o
// makes it orthogonal there, s scatters that, w is the update.
//   before:   mA gA oA sA wA mB gB oB sB wB     rank 1 waits for A's s, which waits for rank 0's o
//   after:    mA mB gA gB oA oB sA sB wA wB     both ranks are at work in o
//
// Outside of a round, only later reads of Variables use its results, so the round stands where its last node stood.
#include "base/fault.h"
#include "op/op.h"
#include "compile/pass.h"
#include "compile/place_node.h"

typedef enum Part { BEFORE_OWNER, AT_OWNER, AFTER_OWNER } Part;
typedef struct Member {
  Part part;
  int level, node;
} Member; // level: nodes of the round before it, one after the other

static int by_part(const void *a, const void *b) {
  const Member *x = a, *y = b;
  if (x->part != y->part) return (int)x->part - (int)y->part;
  return x->level != y->level ? x->level - y->level : x->node - y->node;
}

static Member member_of(const Graph *g, const Node *n, const Member *known) {
  Member m = {.node = n->id, .part = node_is(n, ROLE_WHOLE_MATRIX) ? AT_OWNER : BEFORE_OWNER};
  for (int k = 0; k < n->ninput; k++) {
    int producer = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->producer;
    if (producer < 0 || g->node.data[producer].round != n->round) continue;
    const Member *before = &known[producer];
    if (before->level >= m.level) m.level = before->level + 1;
    if (before->part != BEFORE_OWNER) m.part = AFTER_OWNER;
  }
  return m;
}

int pass_rounds(Graph **graph, const CompileOptions *o, Error *error) {
  const Graph *g = *graph;
  int count = g->node.count, rounds = 0, n = 0;
  for (int i = 0; i < count; i++)
    if (g->node.data[i].round > rounds) rounds = g->node.data[i].round;
  if (!rounds || FAULT(owners_wait_for_each_other, 0, 1)) return PLAIT_OK;
  Member *member = xcalloc((size_t)count, sizeof *member), *sorted = xcalloc((size_t)count, sizeof *sorted);
  int *last = xcalloc((size_t)rounds + 1, sizeof *last);
  for (int i = 0; i < count; i++) {
    member[i] = member_of(g, &g->node.data[i], member);
    last[g->node.data[i].round] = i;
  }
  Graph *h = graph_copy(g);
  h->node.count = 0;
  for (int i = 0; i < count; i++) {
    int round = g->node.data[i].round;
    if (!round) graph_add_node(h, &g->node.data[i]);
    if (!round || last[round] != i) continue;
    n = 0;
    for (int k = 0; k <= i; k++)
      if (g->node.data[k].round == round) sorted[n++] = member[k];
    qsort(sorted, (size_t)n, sizeof *sorted, by_part);
    for (int k = 0; k < n; k++) graph_add_node(h, &g->node.data[sorted[k].node]);
  }
  free(member);
  free(sorted);
  free(last);
  placements_adopt(h);
  return pass_replace(graph, h);
}
