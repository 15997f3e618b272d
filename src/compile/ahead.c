// ahead: communication in MICRO moves away from the compute that needs it or makes it.
//
//   gathers of parameters      to the start of the block before the one that reads them; or, where they are gathered by
//                              layers or megabytes (Overlap.gather), before the first reader of the unit before
//   reductions of gradients    to the end of the block that makes them; what reads them, to the end of the block after
//   products that give weight gradients    after the next collective of their block: that of tensor parallelism which
//                              sums the gradient of the input (Korthikanti et al., 2022, section 4.2.2)
//
// The executor starts a collective where it stands and waits for it before its first reader (see runtime/README.md), so
// each is in flight while a block is computed. Neighbours become one collective (see bucket). Only the order of nodes
// changes.
//
// Example: the backward of a stage with layers 1 and 0 under ZeRO 3 and tensor parallelism. Of each layer: g gathers
// its weight, x is the gradient of its input, w that of the weight, A sums x over tp, R scatters w over dp, + adds what
// R gives to the accumulator.
//   before:   g1 x1 w1 A1 R1 +1  |  g0 x0 w0 A0 R0 +0
//   after:    g1 g0 x1 A1 w1 R1  |  x0 A0 w0 R0 +1 +0
// g0 is under way while layer 1 is computed, A1 during w1, R1 during layer 0. No computation hides g1 and R0.
#include "base/fault.h"
#include "op/op.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include <string.h>

// Where a node goes within its section (one stage's forward or backward): into which run of nodes of one layer, and
// where in it. Within AT_OWN nodes stand in order, and those of equal order by index. A node that is put off until
// after another has that one's order and an index beyond all others (its own plus the section's count), so that it
// comes right after it.
typedef enum Within { AT_GATHERS, AT_OWN, AT_REDUCTIONS, AT_APPLIED } Within;
typedef struct Spot { int run; Within within; int order, index, node; } Spot; // order, index: in the section

static int is_gather(const Graph *g, const Node *n) {
  const Tensor *in = op_def(n->op)->communicates ? graph_tensor(g, n->input[0]) : NULL;
  return in && !node_comm(n)->reduces && in->producer < 0 && in->variable >= 0 &&
         variable_is_weight(&g->variable.data[in->variable]) &&
         !graph_tensor(g, n->output[0])->placement->fixed_axes; // blocks come one by one
}

static int is_reduction(const Graph *g, const Node *n) {
  return node_comm(n)->reduces && graph_tensor(g, n->output[0])->role == ROLE_WEIGHT_GRADIENT &&
         graph_tensor(g, n->input[0])->variable < 0;
}

static int makes_weight_gradients(const Graph *g, const Node *n) {
  for (int k = 0; k < n->noutput; k++)
    if (graph_tensor(g, n->output[k])->role != ROLE_WEIGHT_GRADIENT) return 0;
  return n->noutput > 0 && !op_def(n->op)->communicates;
}

static int later(Spot a, Spot b) {
  return a.run != b.run ? a.run > b.run : a.within != b.within ? a.within > b.within : a.order > b.order;
}

static int by_spot(const void *a, const void *b) {
  const Spot *x = a, *y = b;
  return later(*x, *y) ? 1 : later(*y, *x) ? -1 : x->index - y->index;
}

// The order of a node that stands right after the next collective of the node's run that sums or gathers activations;
// its own where there is none.
static int after_next_collective(const Graph *g, const int *nodes, int count, int i) {
  for (int k = i + 1; k < count && g->node.data[nodes[k]].layer == g->node.data[nodes[i]].layer; k++) {
    const Node *n = &g->node.data[nodes[k]];
    if (op_def(n->op)->communicates && !is_gather(g, n) && !is_reduction(g, n)) return k;
  }
  return i;
}

// The first reader of a gather in its section: an index into `nodes`; -1: none.
static int first_reader(const Graph *g, const int *nodes, int count, int gather) {
  for (int i = 0; i < count; i++)
    for (int k = 0; k < g->node.data[nodes[i]].ninput; k++)
      if (g->node.data[nodes[i]].input[k] == g->node.data[gather].output[0]) return i;
  return -1;
}

typedef struct Gather { int node, reader; } Gather;

static int by_reader(const void *a, const void *b) {
  const Gather *x = a, *y = b;
  return x->reader != y->reader ? x->reader - y->reader : x->node - y->node;
}

// Of one layer: "layer.3.ffn.up.weight" and "layer.3.ffn.up.bias".
static int same_layer(const Graph *g, int a, int b) {
  const char *x = g->variable.data[graph_tensor(g, g->node.data[a].input[0])->variable].name,
             *y = g->variable.data[graph_tensor(g, g->node.data[b].input[0])->variable].name, *dot = strrchr(x, '.');
  return dot && !strncmp(x, y, (size_t)(dot - x) + 1) && !strchr(y + (dot - x) + 1, '.');
}

static int64_t gathered_bytes(const Graph *g, int gather) {
  const Tensor *t = graph_tensor(g, g->node.data[gather].output[0]);
  return tensor_allocated(g, t) * (int64_t)dtype_size(t->dtype);
}

// Gathers by layers or megabytes: each unit, in the order of their first readers, goes before the first reader of the
// unit before it, the first one to the start.
static void find_units(const Graph *g, const int *nodes, int count, int unit, Spot *spot) {
  Vec(Gather) list = {0};
  for (int i = 0; i < count; i++) {
    int reader = is_gather(g, &g->node.data[nodes[i]]) ? first_reader(g, nodes, count, nodes[i]) : -1;
    if (reader >= 0) vec_push(&list, (Gather){nodes[i], reader});
  }
  if (list.count) qsort(list.data, (size_t)list.count, sizeof *list.data, by_reader);
  int before = 0; // where the unit goes
  for (int first = 0, next; first < list.count; first = next) {
    int64_t bytes = gathered_bytes(g, list.data[first].node);
    for (next = first + 1; next < list.count; next++) {
      bytes += gathered_bytes(g, list.data[next].node);
      if (unit == GATHER_LAYER ? !same_layer(g, list.data[first].node, list.data[next].node)
                               : bytes > (int64_t)unit * 1000000)
        break;
    }
    for (int i = first; i < next; i++) {
      Spot *s = &spot[list.data[i].node];
      *s = (Spot){spot[nodes[before]].run, AT_OWN, before, s->index - 2 * count, s->node};
    }
    before = list.data[first].reader;
  }
  vec_free(&list);
}

static void put_off(Spot *s, int order, int count) {
  if (order > s->order && s->index < count) s->index += count;
  s->order = order;
}

// The nodes of a section in their order, `spot` per node of the graph (order -1: of another section).
static void find_spots(const Graph *g, const int *nodes, int count, int unit, Spot *spot) {
  int run = -1;
  for (int i = 0; i < count; i++) {
    if (!i || g->node.data[nodes[i]].layer != g->node.data[nodes[i - 1]].layer) run++;
    spot[nodes[i]] = (Spot){run, AT_OWN, i, i, nodes[i]};
  }
  int last = run;
  if (unit != GATHER_BLOCK) find_units(g, nodes, count, unit, spot);
  for (int i = count - 1; i >= 0 && unit == GATHER_BLOCK; i--) { // readers first, so that a gather knows its own
    const Node *n = &g->node.data[nodes[i]];
    for (int k = 0; k < n->ninput; k++) {
      int maker = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->producer;
      if (maker < 0 || spot[maker].order < 0 || !is_gather(g, &g->node.data[maker])) continue;
      Spot *s = &spot[maker];
      int before = spot[nodes[i]].run > 0 ? spot[nodes[i]].run - 1 : 0;
      if (s->within != AT_GATHERS || before < s->run) s->run = before;
      s->within = AT_GATHERS;
    }
  }
  for (int i = 0; i < count; i++) {
    const Node *n = &g->node.data[nodes[i]];
    Spot *s = &spot[nodes[i]];
    if (is_reduction(g, n)) s->within = AT_REDUCTIONS;
    else if (makes_weight_gradients(g, n)) put_off(s, after_next_collective(g, nodes, count, i), count);
    for (int k = 0; k < n->ninput; k++) {
      int maker = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->producer;
      if (maker < 0 || spot[maker].order < 0) continue;
      Spot from = spot[maker];
      if (is_reduction(g, &g->node.data[maker]))
        from = (Spot){.run = from.run < last ? from.run + 1 : last, .within = AT_APPLIED, .index = from.index};
      if (from.within == AT_GATHERS || by_spot(&from, s) <= 0) continue;
      s->run = from.run, s->within = from.within;
      put_off(s, from.order, count);
      if (from.index >= count && s->index < count)
        s->index += count; // a collective after which its own operand was put
    }
  }
}

static int same_section(const Node *a, const Node *b) {
  return b->region == REGION_MICRO && a->stage == b->stage && a->phase == b->phase;
}

typedef struct Ahead {
  const Graph *g;
  Graph *h;             // what is being made
  Spot *spot, *sorted;  // (nodes of g)
  int *nodes;           // (nodes of g) of a section
  char *done;           // (nodes of g)
  int unit;             // of gathers
} Ahead;

// Appends the section of a node, whole, after those that it reads. Nodes of a later stage may stand after some of an
// earlier one's in backward: where a gradient is only passed through, say, and added up in the stage that it came from.
static void emit_section(Ahead *a, int first) {
  const Graph *g = a->g;
  int count = 0;
  for (int i = 0; i < g->node.count; i++) {
    if (!same_section(&g->node.data[first], &g->node.data[i])) continue;
    a->done[i] = 1;
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      int maker = g->node.data[i].input[k] < 0 ? -1 : graph_tensor(g, g->node.data[i].input[k])->producer;
      if (maker >= 0 && !a->done[maker] && g->node.data[maker].region == REGION_MICRO &&
          !same_section(&g->node.data[first], &g->node.data[maker]))
        UNLESS_FAULT(sections_do_not_wait) emit_section(a, maker);
    }
  }
  for (int i = 0; i < g->node.count; i++)
    if (same_section(&g->node.data[first], &g->node.data[i])) a->nodes[count++] = i;
  find_spots(g, a->nodes, count, a->unit, a->spot);
  for (int k = 0; k < count; k++) a->sorted[k] = a->spot[a->nodes[k]];
  qsort(a->sorted, (size_t)count, sizeof *a->sorted, by_spot);
  for (int k = 0; k < count; k++) {
    a->spot[a->nodes[k]].order = -1;
    graph_add_node(a->h, &g->node.data[a->sorted[k].node]);
  }
}

int pass_ahead(Graph **graph, const CompileOptions *o, Error *error) {
  const Graph *g = *graph;
  if (!o->parallel.overlap.read_ahead) return PLAIT_OK;
  Ahead a = {.g = g, .h = graph_copy(g), .unit = o->parallel.overlap.gather};
  a.h->node.count = 0;
  a.spot = xcalloc((size_t)g->node.count + 1, sizeof *a.spot);
  a.sorted = xcalloc((size_t)g->node.count + 1, sizeof *a.sorted);
  a.nodes = xcalloc((size_t)g->node.count + 1, sizeof *a.nodes);
  a.done = xcalloc((size_t)g->node.count + 1, 1);
  for (int i = 0; i < g->node.count; i++) a.spot[i].order = -1;
  for (int i = 0; i < g->node.count; i++) {
    if (a.done[i]) continue;
    if (g->node.data[i].region == REGION_MICRO) emit_section(&a, i);
    else graph_add_node(a.h, &g->node.data[i]);
  }
  free(a.spot);
  free(a.sorted);
  free(a.nodes);
  free(a.done);
  placements_adopt(a.h);
  return pass_replace(graph, a.h);
}
