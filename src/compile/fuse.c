// fuse: joins nodes after partition. A node that makes a gradient adds it to its accumulator, stores it in its
// Variable, or adds the other term of a sum. Products add their bias, and apply the activation that reads them or the
// slope that their gradient is multiplied by. Norms add the terms of their input. Casts before a sum, identities,
// gathers that are sliced again and moves that nobody reads vanish. Sums of accumulators over ranks are made in place.
// Updates write the Copies that BEGIN would cast.
//
//   y = identity x          readers of y read x                       replaced[y] = x
//   V = identity x          the maker of x writes V                   made[x] = V
//   V = accumulate V, x     the maker of x reads V too and writes it  join[maker] = {V, V'} (x may be rounded before)
//   y = bias x, b       the maker of x reads b too and makes y    join[maker] = {b, y}
//   y = activation x    the maker of x makes y, and x where others read it     applied[maker] = the activation
//   dx = slope x, dy    the maker of dy reads x too and makes dx               applied[maker] = the slope
//   s = reduce x         the maker of x, the gradient of a norm, gives s, too      row_sum[maker] = s
//   y = add x0, x1, x2  the maker of x1 reads x0 too, and that of x2 reads x1, and makes y
//                                                                 join[maker of x1] = {x0, x1}, join[of x2] = {x1, y}
//   y = add x0, x1      the first norm that reads y reads x0 and x1, and makes y too
//                                                                 join[norm] = {x1, y}, its input 0 is x0
//   V#copy = cast V      what updates V writes V#copy too            copy[update] = V#copy; the cast only refreshes it
#include "base/fault.h"
#include "op/op.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include <string.h>

// Additional work of a node: the tensor that it adds, or -1; the output that it then gives in place of its own; how.
typedef enum JoinKind { JOIN_ACCUMULATE, JOIN_BIAS, JOIN_ADD_FIRST } JoinKind; // the last: `gives` is a further output
typedef struct Join {
  int added, gives;
  JoinKind kind;
  int first; // JOIN_ADD_FIRST: the other term of the sum
} Join;

enum { NO_UPDATE_CAN = -1 }; // Fuse.update: several nodes write it, or one that comes too early

typedef struct Fuse {
  const Graph *g;
  unsigned fuses; // of the device
  int *readers;  // per tensor
  int *replaced; // per tensor: the tensor that its readers take instead
  int *made;     // per tensor: the tensor that its maker makes instead
  int *dropped;  // per node
  Join *join;    // per node
  int *applied;  // per node: the node that it applies to what it gives, or -1
  int *row_sum;  // per node: the sum of its rows, which it makes, too, or -1
  int *writer;   // per (Variable, storage or Copy, region): 1 + its last writer, or 0
  int *update;    // per Variable: 1 + the node that writes its storage, after all readers of a Copy; 0: none does
  int streams;    // steps overlap
  int *copy;      // per node: what BEGIN makes of the Variable that the node updates, which it writes as well; or -1
  int *refreshes; // per node
} Fuse;

static int bound(const Graph *g, int t) { return graph_tensor(g, t)->variable >= 0; }

static int touches(const Graph *g, const Node *n, int variable) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (t >= 0 && graph_tensor(g, t)->variable == variable) return 1;
  }
  return 0;
}

// The tensor that an accumulate adds, or, where that was only rounded to the accumulator's dtype and its maker can add
// to one of its factors' dtype, the tensor before it was rounded. *cast: the node that rounds it, or -1.
static int added_tensor(const Fuse *f, const Node *n, int *cast) {
  int x = n->input[1], producer = graph_tensor(f->g, x)->producer;
  *cast = -1;
  if (producer < 0 || !node_is(&f->g->node.data[producer], ROLE_CAST) || f->readers[x] != 1 || bound(f->g, x)) return x;
  int wide = f->g->node.data[producer].input[0], maker = graph_tensor(f->g, wide)->producer;
  if (maker < 0 || !(f->fuses & DEVICE_FUSES_NARROW_ACCUMULATE)) return x;
  const Node *m = &f->g->node.data[maker];
  if (!op_def(m->op)->accumulates_narrow || graph_tensor(f->g, m->input[0])->dtype != graph_tensor(f->g, x)->dtype)
    return x;
  *cast = producer;
  return wide;
}

// A gradient → accumulate, read by nothing else: the op that makes the gradient adds into the accumulator in place.
static void join_accumulate(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_ACCUMULATE)) return;
  int cast, x = added_tensor(f, n, &cast), producer = graph_tensor(f->g, x)->producer,
            variable = graph_tensor(f->g, n->output[0])->variable;
  if (producer < 0 || f->readers[x] != 1 || bound(f->g, x) || f->join[producer].added >= 0) return;
  Node m = f->g->node.data[producer];
  if (!(f->fuses & DEVICE_FUSES_ACCUMULATE) || !op_def(m.op)->accumulate || m.region != n->region ||
      m.phase != n->phase)
    return;
  int k = op_def(m.op)->accumulate(&m);
  if (k < 0 || m.output[k] != x) return;
  for (int i = producer + 1; i < id; i++) // the accumulator is read where the gradient is made, not here
    if (touches(f->g, &f->g->node.data[i], variable)) return;
  f->join[producer] = (Join){.added = n->input[0], .gives = n->output[0]};
  f->dropped[id] = 1;
  if (cast >= 0) f->dropped[cast] = 1;
}

// A gradient that is rounded just to be added: the accumulator takes it as it is. Where a collective stands between the
// two, what travels is narrow.
static void join_cast(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_ACCUMULATE) || f->dropped[id]) return;
  int x = n->input[1], producer = graph_tensor(f->g, x)->producer;
  if (producer < 0 || !node_is(&f->g->node.data[producer], ROLE_CAST) || f->readers[x] != 1 || bound(f->g, x)) return;
  int from = f->g->node.data[producer].input[0];
  while (f->replaced[from] != from) from = f->replaced[from];
  if (bound(f->g, from)) return;
  f->replaced[x] = from;
  f->dropped[producer] = 1;
}

// A product → bias in its own dtype (fp32 where the product is bf16), read by nothing else: the product adds it before
// its result leaves the registers.
static void join_bias(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_BIAS)) return;
  const Tensor *x = graph_tensor(f->g, n->input[0]), *b = graph_tensor(f->g, n->input[1]);
  if (x->producer < 0 || b->producer > x->producer || b->dtype != op_statistics_dtype(x->dtype) ||
      f->readers[n->input[0]] != 1 || bound(f->g, n->input[0]))
    return;
  Node m = f->g->node.data[x->producer];
  if (!(f->fuses & DEVICE_FUSES_BIAS) || f->join[x->producer].added >= 0 || !op_def(m.op)->bias) return;
  if (m.region != n->region || m.phase != n->phase || FAULT(bias_of_another_stage, m.stage != n->stage, 0)) return;
  int k = op_def(m.op)->bias(&m, b->shape.rank);
  if (k < 0 || m.output[k] != n->input[0]) return;
  f->join[x->producer] = (Join){.added = n->input[1], .gives = n->output[0], .kind = JOIN_BIAS};
  f->dropped[id] = 1;
}

// The node that makes a tensor as the nodes are joined so far; -1: none.
static int maker_of(const Fuse *f, int tensor) {
  int producer = graph_tensor(f->g, tensor)->producer;
  if (producer < 0 || !f->dropped[producer]) return producer;
  const Node *bias = &f->g->node.data[producer];
  producer = node_is(bias, ROLE_BIAS) ? graph_tensor(f->g, bias->input[0])->producer : -1;
  return producer >= 0 && f->join[producer].added >= 0 && f->join[producer].gives == tensor ? producer : -1;
}

// Whether nothing that computes stands between two nodes: what the second makes lives no longer if the first makes it.
static int are_neighbours(const Fuse *f, int first, int second) {
  for (int i = first + 1; i < second; i++)
    if (!f->dropped[i] && node_has_kernel(&f->g->node.data[i])) return 0;
  return 1;
}

// A product → what reads it right after: an activation, or the product of its slope and a gradient.
static void join_applied(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!(f->fuses & DEVICE_FUSES_ACTIVATION) || f->dropped[id] || n->noutput != 1 || bound(f->g, n->output[0])) return;
  for (int k = 0; k < n->ninput; k++) {
    const int x = n->input[k], maker = x < 0 || bound(f->g, x) ? -1 : maker_of(f, x);
    if (maker < 0 || !op_def(f->g->node.data[maker].op)->apply || !are_neighbours(f, maker, id)) continue;
    Node m = f->g->node.data[maker];
    if (m.noutput != 1 || f->applied[maker] >= 0 || f->copy[maker] >= 0 || m.region != n->region ||
        m.phase != n->phase || m.stage != n->stage)
      continue;
    if (f->join[maker].added >= 0 && f->join[maker].kind != JOIN_BIAS) continue;
    int early = 1; // all else that it reads is there before
    for (int j = 0; j < n->ninput; j++)
      early &= j == k || (n->input[j] >= 0 && graph_tensor(f->g, n->input[j])->producer < maker);
    if (!early || !op_def(m.op)->apply(&m, n, f->readers[x] > 1)) continue;
    f->applied[maker] = id;
    f->dropped[id] = 1;
    return;
  }
}

// Whether the maker of a term of a sum can add it to the term before, of which it then makes the sum: nobody but the
// sum reads the one, nor the other from there on, so that it can be made in its memory.
static int adds_to(const Fuse *f, const Node *sum, int term, int before) {
  const Tensor *x = graph_tensor(f->g, term), *y = graph_tensor(f->g, before);
  if (x->producer < 0 || y->producer >= x->producer || FAULT(sum_of_a_shared_term, f->readers[term] != 1, 0) ||
      bound(f->g, term) || bound(f->g, before) || f->replaced[before] != before || x->dtype != y->dtype)
    return 0;
  Node m = f->g->node.data[x->producer];
  if (f->dropped[m.id] || f->join[m.id].added >= 0 || !op_def(m.op)->accumulate || !op_def(m.op)->accumulated)
    return 0;
  if (m.region != sum->region || m.phase != sum->phase || m.stage != sum->stage)
    return 0;
  int k = op_def(m.op)->accumulate(&m), readers = 1; // the sum
  if (k < 0 || m.output[k] != term) return 0;
  for (int i = y->producer + 1; i < m.id; i++)
    for (int j = 0; j < f->g->node.data[i].ninput; j++) readers += f->g->node.data[i].input[j] == before;
  return readers == f->readers[before];
}

// Terms → their sum, in this order: each but the first is added by its maker to the one before.
static void join_sum(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_ADD) || !(f->fuses & DEVICE_FUSES_SUM) || n->ninput < 2 || bound(f->g, n->output[0])) return;
  // Of the first two the one that is made first is the first: that changes no sum.
  int swap = graph_tensor(f->g, n->input[0])->producer > graph_tensor(f->g, n->input[1])->producer;
  for (int join = 0; join < 2; join++) // look, then do
    for (int k = 1, before = n->input[swap]; k < n->ninput; k++) {
      int term = n->input[k == 1 ? !swap : k];
      if (!join && !adds_to(f, n, term, before)) return;
      if (join)
        f->join[graph_tensor(f->g, term)->producer] =
            (Join){.added = before, .gives = k + 1 < n->ninput ? term : n->output[0]};
      before = term;
    }
  f->dropped[id] = 1;
}

// A sum of two → norm: this adds them as it reads them. Other readers of the sum come after the norm.
static void join_norm(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!op_def(n->op)->add_first || !(f->fuses & DEVICE_FUSES_NORM_SUM) || f->join[id].added >= 0) return;
  const Tensor *x = graph_tensor(f->g, n->input[0]);
  if (x->producer < 0 || bound(f->g, x->id) || tensor_is_compact(x) || f->replaced[x->id] != x->id ||
      f->made[x->id] != x->id)
    return;
  const Node *sum = &f->g->node.data[x->producer];
  if (!node_is(sum, ROLE_ADD) || sum->ninput != 2 || f->dropped[sum->id] || sum->region != n->region ||
      sum->phase != n->phase || FAULT(norm_sum_of_another_stage, sum->stage != n->stage, 0))
    return;
  for (int k = 0; k < 2; k++)
    if (bound(f->g, sum->input[k]) || graph_tensor(f->g, sum->input[k])->dtype != x->dtype) return;
  for (int i = sum->id + 1; i < id; i++)
    for (int k = 0; k < f->g->node.data[i].ninput; k++)
      if (f->g->node.data[i].input[k] == x->id) return;
  f->join[id] =
      (Join){.added = sum->input[1], .gives = x->id, .kind = JOIN_ADD_FIRST, .first = sum->input[0]};
  f->dropped[sum->id] = 1;
}

static int *last_writer(const Fuse *f, int variable, int copy, Region region) {
  return &f->writer[(variable * (MAX_COPIES + 1) + copy + 1) * REGION_COUNT + (int)region];
}

static void find_writers(Fuse *f) {
  f->writer = xcalloc((size_t)(f->g->variable.count + 1) * (MAX_COPIES + 1) * REGION_COUNT, sizeof(int));
  for (int i = 0; i < f->g->node.count; i++)
    for (int k = 0; k < f->g->node.data[i].noutput; k++) {
      const Tensor *t = graph_tensor(f->g, f->g->node.data[i].output[k]);
      if (t->variable >= 0) *last_writer(f, t->variable, t->copy, f->g->node.data[i].region) = i + 1;
    }
}

static int before(const Node *n, const Node *m) {
  return n->region != m->region ? n->region < m->region
                                : n->stage == m->stage && (n->phase != m->phase ? n->phase < m->phase : n->id < m->id);
}

// A Copy stays equal to its Variable from step to step if one node alone writes the Variable, after all readers of the
// Copy, and can write the Copy as well; or if nothing writes the Variable.
static void find_updates(Fuse *f) {
  const Graph *g = f->g;
  f->update = xcalloc((size_t)g->variable.count + 1, sizeof(int));
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].noutput; k++) {
      const Tensor *t = graph_tensor(g, g->node.data[i].output[k]);
      if (t->variable >= 0 && t->copy < 0) f->update[t->variable] = f->update[t->variable] ? NO_UPDATE_CAN : i + 1;
    }
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      int id = g->node.data[i].input[k];
      const Tensor *t = id < 0 ? NULL : graph_tensor(g, id);
      if (!t || t->variable < 0 || t->copy < 0 || f->update[t->variable] <= 0) continue;
      if (FAULT(copy_is_written_too_early, !before(&g->node.data[i], &g->node.data[f->update[t->variable] - 1]), 0))
        f->update[t->variable] = NO_UPDATE_CAN;
    }
}

// BEGIN's cast of a parameter's storage to its Copy: from now on of one that is stale.
static void join_copy(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (n->region != REGION_BEGIN || !node_is(n, ROLE_CAST) || !(f->fuses & DEVICE_FUSES_COPY) ||
      FAULT(copy_of_the_newest_in_a_stream, f->streams, 0)) return;
  const Tensor *v = graph_tensor(f->g, n->input[0]), *copy = graph_tensor(f->g, n->output[0]);
  if (v->variable < 0 || v->copy >= 0 || copy->variable != v->variable || copy->copy < 0) return;
  if (f->update[v->variable] == NO_UPDATE_CAN) return;
  if (f->update[v->variable]) {
    Node update = f->g->node.data[f->update[v->variable] - 1];
    const Tensor *w = graph_tensor(f->g, update.output[0]);
    if (w->variable != v->variable || update.stages != n->stages || f->copy[update.id] >= 0 ||
        !placement_equal(w->placement, copy->placement) || !op_def(update.op)->writes_copy ||
        op_def(update.op)->writes_copy(&update, copy->dtype) < 0)
      return;
    f->copy[update.id] = copy->id;
  }
  f->refreshes[id] = 1;
}

static int taken(const Fuse *f, int tensor) {
  while (f->replaced[tensor] != tensor) tensor = f->replaced[tensor];
  return tensor;
}

// The node that makes a sum's output, where terms are added by their makers.
static int maker_of_sum(const Fuse *f, int tensor) {
  int producer = graph_tensor(f->g, tensor)->producer;
  if (producer < 0 || !f->dropped[producer]) return producer;
  const Node *sum = &f->g->node.data[producer];
  for (int k = 0; k < sum->ninput && node_is(sum, ROLE_ADD); k++) {
    const int maker = graph_tensor(f->g, sum->input[k])->producer;
    if (maker >= 0 && f->join[maker].added >= 0 && f->join[maker].gives == tensor) return maker;
  }
  return -1;
}

// The gradient of a norm, with what it is added to → the sum of its rows, which is the gradient of a bias before.
static void join_row_sum(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_ROW_SUM) || !(f->fuses & DEVICE_FUSES_ROW_SUM) || f->dropped[id]) return;
  const int x = n->input[0], sum = n->output[0], maker = maker_of_sum(f, x);
  if (maker < 0 || f->dropped[maker] || f->row_sum[maker] >= 0 || f->copy[maker] >= 0 || f->replaced[x] != x ||
      f->made[x] != x || tensor_is_compact(graph_tensor(f->g, x)))
    return;
  Node m = f->g->node.data[maker];
  if (!op_def(m.op)->row_sum || m.region != n->region || m.phase != n->phase ||
      FAULT(row_sum_of_another_stage, m.stage != n->stage, 0) ||
      (x != m.output[0] && f->join[maker].gives != x))
    return;
  const Tensor *to = graph_tensor(f->g, f->made[sum]);
  if (graph_tensor(f->g, sum)->shape.rank != 1 || to->dtype != graph_tensor(f->g, m.output[1])->dtype) return;
  for (int i = maker + 1; i < id && to->variable >= 0; i++)
    if (touches(f->g, &f->g->node.data[i], to->variable)) return;
  if (!op_def(m.op)->row_sum(&m)) return;
  f->row_sum[maker] = sum;
  f->dropped[id] = 1;
}

// An identity into a free buffer is its input, unless that is a Variable which is written later in the region.
static void drop_identity(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_COPY)) return;
  int x = taken(f, n->input[0]), y = n->output[0];
  const Tensor *t = graph_tensor(f->g, x);
  if (bound(f->g, y)) return;
  if (t->variable >= 0 && *last_writer(f, t->variable, t->copy, n->region) - 1 > id) return;
  f->replaced[y] = x;
  f->dropped[id] = 1;
}

// An identity into a Variable, of what nothing else reads: its maker writes there itself.
static void join_store(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_COPY) || !bound(f->g, n->output[0])) return;
  int x = n->input[0], producer = graph_tensor(f->g, x)->producer;
  const Tensor *from = graph_tensor(f->g, x), *to = graph_tensor(f->g, n->output[0]);
  if (producer < 0 || f->dropped[producer] || f->readers[x] != 1 || bound(f->g, x) || from->allocated_ > to->allocated_)
    return;
  const Node *m = &f->g->node.data[producer];
  if (m->region != n->region || m->phase != n->phase || m->stage != n->stage) return;
  for (int i = producer; i < id; i++)
    if (touches(f->g, &f->g->node.data[i], to->variable)) return;
  f->made[x] = n->output[0];
  f->dropped[id] = 1;
}

// A tensor that is gathered and sliced again, or moved to another dim and back, is replaced by the original where that
// is at hand. A result that nobody else reads is not gathered or moved.
static void drop_round_trip(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  int moves = node_calls(n, COMM_ALL_TO_ALL);
  if (!(node_is(n, ROLE_SLICE) || moves) || bound(f->g, n->output[0])) return;
  int x = taken(f, n->input[0]);
  const Tensor *whole = graph_tensor(f->g, x), *shard = graph_tensor(f->g, n->output[0]);
  if (whole->producer < 0) return;
  const Node *gather = &f->g->node.data[whole->producer];
  if (!(moves ? node_calls(gather, COMM_ALL_TO_ALL) : node_comm(gather)->gathers) || gather->region != n->region ||
      gather->phase != n->phase || gather->stage != n->stage)
    return;
  const Tensor *from = graph_tensor(f->g, taken(f, gather->input[0]));
  if (!placement_equal(from->placement, shard->placement)) return;
  if (from->variable >= 0 && *last_writer(f, from->variable, from->copy, n->region) - 1 > gather->id) return;
  f->replaced[shard->id] = from->id;
  f->dropped[id] = 1;
  f->readers[from->id] += f->readers[shard->id];
  if (--f->readers[x] || bound(f->g, x)) return;
  f->readers[from->id]--;
  f->dropped[gather->id] = 1;
}

// Drops a node that nobody reads any more because its readers wanted it elsewhere and spread its inputs again.
static void drop_unread(Fuse *f, int id) {
  const Node *n = &f->g->node.data[id];
  if (!node_is(n, ROLE_DISPATCH) || f->readers[n->output[0]] || bound(f->g, n->output[0])) return;
  f->dropped[id] = 1;
  for (int k = 0; k < n->ninput; k++)
    if (n->input[k] >= 0) f->readers[n->input[k]]--;
}

// The tensor that replaces an identity's output needs that one's room: a scattered buffer holds a whole number of
// shards.
static void keep_room(const Fuse *f, Graph *h) {
  for (int i = 0; i < h->tensor.count; i++) {
    int64_t room = graph_tensor(h, i)->allocated_;
    Tensor *t = graph_tensor(h, f->replaced[i]);
    if (t->allocated_ >= room) continue;
    t->allocated_ = room;
    if (t->variable < 0) continue;
    Variable *v = &h->variable.data[t->variable];
    int64_t *whole = t->copy < 0 ? &v->allocated_ : &v->copy[t->copy].allocated_;
    if (*whole < room) *whole = room;
  }
}

static int emit(Fuse *f, Graph *h, const Node *n) {
  int id = graph_add_node(h, n);
  Node *copy = &h->node.data[id];
  for (int k = 0; k < copy->ninput; k++)
    if (copy->input[k] >= 0) copy->input[k] = f->replaced[copy->input[k]];
  for (int k = 0; k < copy->noutput; k++) {
    copy->output[k] = f->made[copy->output[k]];
    graph_tensor(h, copy->output[k])->producer = id;
  }
  return id;
}

static void add_joined(const Fuse *f, const Join *join, Node *both) {
  const OpDef *op = op_def(both->op);
  both->input[both->ninput++] = join->added;
  if (join->kind == JOIN_ADD_FIRST) {
    op->add_first(both);
    both->input[0] = join->first;
    both->output[both->noutput++] = join->gives;
  } else {
    int k = join->kind == JOIN_BIAS ? op->bias(both, graph_tensor(f->g, join->added)->shape.rank)
                                    : op->accumulate(both);
    both->output[k] = join->gives;
  }
}

static void add_applied(const Fuse *f, const Node *function, Node *both) {
  const int x = both->output[0], keeps = f->readers[x] > 1;
  op_def(both->op)->apply(both, function, keeps);
  for (int k = 0; k < function->ninput; k++)
    if (function->input[k] != x) both->input[both->ninput++] = function->input[k];
  both->output[0] = function->output[0];
  if (FAULT(applied_product_is_not_kept, keeps, 0)) both->output[both->noutput++] = x;
}

// The node with what it adds and what it applies, whose other inputs it reads, too, and what it gives then.
static void emit_joined(Fuse *f, Graph *h, const Node *n) {
  Node both = *n;
  const int applied = f->applied[n->id];
  both.input = arena_array(&h->arena, int, n->ninput + 1 + (applied < 0 ? 0 : f->g->node.data[applied].ninput));
  memcpy(both.input, n->input, sizeof(int) * (size_t)n->ninput);
  both.output = arena_array(&h->arena, int, n->noutput + 2);
  memcpy(both.output, n->output, sizeof(int) * (size_t)n->noutput);
  if (f->join[n->id].added >= 0) add_joined(f, &f->join[n->id], &both);
  if (applied >= 0) add_applied(f, &f->g->node.data[applied], &both);
  if (f->row_sum[n->id] >= 0) {
    op_def(both.op)->row_sum(&both);
    both.output[both.noutput++] = f->row_sum[n->id];
  }
  emit(f, h, &both);
}

// An update that writes the Copy as well: a further tensor, bound to the Copy as BEGIN's is.
static void emit_copying(Fuse *f, Graph *h, const Node *n) {
  int id = emit(f, h, n), copy = graph_add_tensor(h, graph_tensor(f->g, f->copy[n->id]));
  Node *update = &h->node.data[id];
  int *output = arena_array(&h->arena, int, n->noutput + 1),
      at = op_def(n->op)->writes_copy(update, graph_tensor(h, copy)->dtype);
  for (int k = 0; k <= n->noutput; k++) output[k] = k == at ? copy : update->output[k - (k > at)];
  update->output = output;
  update->noutput++;
  graph_tensor(h, copy)->producer = id;
}

// A sum over ranks of an accumulator, on all or one of them, is made in its own memory when nothing else reads the
// terms.
static void reduce_in_place(Graph *h) {
  int *readers = xcalloc((size_t)h->tensor.count, sizeof(int));
  for (int i = 0; i < h->node.count; i++)
    for (int k = 0; k < h->node.data[i].ninput; k++)
      if (h->node.data[i].input[k] >= 0 && h->node.data[i].region == REGION_END) readers[h->node.data[i].input[k]]++;
  for (int i = 0; i < h->node.count; i++) {
    const Node *n = &h->node.data[i];
    if (!node_comm(n)->reduces || node_comm(n)->scatters || n->region != REGION_END) continue;
    const Tensor *in = graph_tensor(h, n->input[0]);
    if (in->variable >= 0 && in->producer < 0 && readers[in->id] == 1 && graph_tensor(h, n->output[0])->variable < 0)
      graph_bind(h, n->output[0], in->variable, in->copy);
  }
  free(readers);
}

int pass_fuse(Graph **graph, const CompileOptions *o, Error *error) {
  const Graph *g = *graph;
  const ScheduleGenerator *schedule = o->parallel.pipeline.schedule;
  Fuse f = {.g = g, .fuses = o->device->fuses, .streams = schedule && schedule->streams};
  f.readers = xcalloc((size_t)g->tensor.count, sizeof(int));
  f.replaced = xcalloc((size_t)g->tensor.count, sizeof(int));
  f.made = xcalloc((size_t)g->tensor.count, sizeof(int));
  f.dropped = xcalloc((size_t)g->node.count, sizeof(int));
  f.join = xcalloc((size_t)g->node.count, sizeof *f.join);
  f.applied = xcalloc((size_t)g->node.count, sizeof(int));
  f.row_sum = xcalloc((size_t)g->node.count, sizeof(int));
  f.copy = xcalloc((size_t)g->node.count, sizeof(int));
  f.refreshes = xcalloc((size_t)g->node.count, sizeof(int));
  for (int i = 0; i < g->tensor.count; i++) f.replaced[i] = f.made[i] = i;
  for (int i = 0; i < g->node.count; i++) f.join[i].added = f.applied[i] = f.row_sum[i] = f.copy[i] = -1;
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] >= 0) f.readers[g->node.data[i].input[k]]++;
  for (int i = 0; i < g->tensor.count; i++)
    if (tensor_is_compact(&g->tensor.data[i])) f.readers[g->tensor.data[i].mask]++;
  find_writers(&f);
  find_updates(&f);
  for (int i = g->node.count - 1; i >= 0; i--) drop_unread(&f, i);
  for (int i = 0; i < g->node.count; i++) {
    if (f.dropped[i]) continue;
    drop_identity(&f, i);
    drop_round_trip(&f, i);
    join_store(&f, i);
    join_accumulate(&f, i);
    join_cast(&f, i);
    join_bias(&f, i);
    join_applied(&f, i);
    join_sum(&f, i);
    join_norm(&f, i);
    join_copy(&f, i);
  }
  for (int i = 0; i < g->node.count; i++) join_row_sum(&f, i); // where sums go is known by now
  Graph *h = graph_copy(g);
  h->node.count = 0;
  UNLESS_FAULT(room_of_an_identity) keep_room(&f, h);
  for (int i = 0; i < h->tensor.count; i++)
    if (tensor_is_compact(&h->tensor.data[i])) h->tensor.data[i].mask = taken(&f, h->tensor.data[i].mask);
  for (int i = 0; i < g->node.count; i++)
    if (f.join[i].added >= 0 || f.applied[i] >= 0 || f.row_sum[i] >= 0) emit_joined(&f, h, &g->node.data[i]);
    else if (f.copy[i] >= 0) emit_copying(&f, h, &g->node.data[i]);
    else if (!f.dropped[i]) h->node.data[emit(&f, h, &g->node.data[i])].refreshes = f.refreshes[i];
  free(f.readers);
  free(f.replaced);
  free(f.made);
  free(f.dropped);
  free(f.join);
  free(f.applied);
  free(f.row_sum);
  free(f.copy);
  free(f.refreshes);
  free(f.writer);
  free(f.update);
  reduce_in_place(h);
  placements_adopt(h);
  return pass_replace(graph, h);
}
