// fuse: joins nodes after partition. Gradient products add into their accumulators, identities vanish.
#include "op/op.h"
#include "pass/pass.h"
#include "pass/place_node.h"
#include <string.h>

typedef struct Fuse {
  const Graph *g;
  int *readers;  // per tensor
  int *replaced; // per tensor: the tensor that its readers take instead
  int *dropped;  // per node
  int *joined;   // per node: the accumulate node that it takes over, or -1
} Fuse;

static int bound(const Graph *g, int t) { return graph_tensor(g, t)->variable >= 0; }

// matmul(TN) → accumulate, read by nothing else: the product adds into the accumulator in place.
static void join_accumulate(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (n->op != OP_ACCUMULATE) return;
  int x = n->input[1], producer = graph_tensor(f->g, x)->producer;
  if (producer < 0 || f->readers[x] != 1 || bound(f->g, x)) return;
  const Node *m = &f->g->node.data[producer];
  if (m->op != OP_MATMUL || node_attr(m, MatmulAttr)->kind != MATMUL_TN || m->region != n->region || m->phase != n->phase) return;
  if (graph_tensor(f->g, x)->dtype != graph_tensor(f->g, n->output[0])->dtype) return;
  f->joined[id] = producer;
  f->dropped[producer] = 1;
}

static int last_writer(const Graph *g, int variable, int copy, Region region) {
  for (int i = g->node.count - 1; i >= 0; i--)
    for (int k = 0; g->node.data[i].region == region && k < g->node.data[i].noutput; k++) {
      const Tensor *t = graph_tensor(g, g->node.data[i].output[k]);
      if (t->variable == variable && t->copy == copy) return i;
    }
  return -1;
}

// An identity into a free buffer is its input, unless that is a Variable which is written later in the region.
// An identity into a Variable of a value that nothing else reads: the value is made there.
static void drop_identity(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (n->op != OP_IDENTITY) return;
  int x = n->input[0], y = n->output[0];
  while (f->replaced[x] != x) x = f->replaced[x];
  const Tensor *t = graph_tensor(f->g, x);
  if (bound(f->g, y)) return;
  if (t->variable >= 0 && last_writer(f->g, t->variable, t->copy, n->region) > id) return;
  f->replaced[y] = x;
  f->dropped[id] = 1;
}

static void emit(Fuse *f, Graph *h, const Node *n) {
  Node copy = *n;
  int join = f->joined[n->id], input[3];
  if (join >= 0) {
    const Node *m = &f->g->node.data[join];
    memcpy(copy.attr, m->attr, sizeof copy.attr);
    node_attr(&copy, MatmulAttr)->accumulate = 1;
    copy.op = OP_MATMUL;
    copy.name = m->name;
    input[0] = f->replaced[m->input[0]];
    input[1] = f->replaced[m->input[1]];
    input[2] = f->replaced[n->input[0]];
    copy.ninput = 3;
    copy.input = input;
    graph_add_node(h, &copy);
    return;
  }
  int id = graph_add_node(h, &copy);
  for (int k = 0; k < copy.ninput; k++)
    if (h->node.data[id].input[k] >= 0) h->node.data[id].input[k] = f->replaced[copy.input[k]];
}

int pass_fuse(const Graph *g, Graph **out, Error *error) {
  Fuse f = {.g = g};
  f.readers = xcalloc((size_t)g->tensor.count, sizeof(int));
  f.replaced = xcalloc((size_t)g->tensor.count, sizeof(int));
  f.dropped = xcalloc((size_t)g->node.count, sizeof(int));
  f.joined = xcalloc((size_t)g->node.count, sizeof(int));
  for (int i = 0; i < g->tensor.count; i++) f.replaced[i] = i;
  for (int i = 0; i < g->node.count; i++) {
    f.joined[i] = -1;
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] >= 0) f.readers[g->node.data[i].input[k]]++;
  }
  for (int i = 0; i < g->node.count; i++) {
    drop_identity(&f, i);
    join_accumulate(&f, i);
  }
  Graph *h = graph_copy(g);
  h->node.count = 0;
  for (int i = 0; i < g->node.count; i++)
    if (!f.dropped[i]) emit(&f, h, &g->node.data[i]);
  free(f.readers);
  free(f.replaced);
  free(f.dropped);
  free(f.joined);
  placements_adopt(h);
  *out = h;
  return PLAIT_OK;
}
