// bucket: collectives of the same kind over the same group become one call with a list of buffers.
//
// Collectives of END on accumulators are bucketed in the order in which backward completes these, so that a bucket can
// go out while backward is still at work on the next (see program: REDUCE). Those that span pipeline stages are
// separate buckets and never go out early: ranks of different stages complete them at different times.
//
// Example: accumulators of four layers, 10 MB each, and buckets of 25 MB. Backward completes layer 3 first. 3 and 2
// make a bucket of 20 MB; 1 does not fit, so that bucket is closed, and 1 and 0 make the next. END has two calls
// instead of four; the first goes out after the instruction that completes layer 2, while layers 1 and 0 are still
// computed.
#include "op/op.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include <stdbool.h>
#include <string.h>

// Of the larger side: what a gather makes, what a scatter takes.
static int64_t node_bytes(const Graph *g, const Node *n) {
  int64_t bytes = 0;
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
    int64_t before = tensor_allocated(g, in), after = tensor_allocated(g, out);
    bytes += (before > after ? before : after) * (int64_t)dtype_size(in->dtype);
  }
  return bytes;
}

static int alike(const Graph *g, const Node *a, const Node *b) {
  const CommAttr *x = node_attr(a, CommAttr), *y = node_attr(b, CommAttr);
  const Tensor *v = graph_tensor(g, a->input[0]),
               *w = graph_tensor(g, b->input[0]); // of one owner: the same ranks run both
  return a->op == b->op && a->region == b->region && a->stages == b->stages && x->axes == y->axes &&
         x->maximum == y->maximum && x->root == y->root && v->dtype == w->dtype &&
         placement_same_owner(v->placement, w->placement);
}

static int reads(const Node *n, int tensor) {
  for (int k = 0; k < n->ninput; k++)
    if (n->input[k] == tensor) return 1;
  return 0;
}

// How far each node may wait, as far as anybody has looked: `clear` is the node before which nothing stands in its way,
// 0 where nobody has; blocked: that node itself does. Buckets of many members ask again and again, a little further.
typedef struct Waiting { int clear; bool blocked; } Waiting;

static bool blocks(const Graph *g, const Node *n, const Node *m) {
  int variable = graph_tensor(g, n->input[0])->variable, result = graph_tensor(g, n->output[0])->variable;
  if (m->region != n->region) return false;
  if (reads(m, n->output[0])) return true;
  for (int k = 0; k < m->noutput; k++) {
    int v = graph_tensor(g, m->output[k])->variable;
    if (v >= 0 && (v == variable || v == result)) return true;
  }
  return false;
}

// A member may wait for a later one when nothing in between reads its result or writes the Variable that it reads.
static int can_wait(const Graph *g, Waiting *waiting, int id, int until) {
  Waiting *w = &waiting[id];
  if (!w->clear) w->clear = id + 1;
  while (!w->blocked && w->clear < until) {
    if (blocks(g, &g->node.data[id], &g->node.data[w->clear])) w->blocked = true;
    else w->clear++;
  }
  return w->clear >= until;
}

// A later member may come forward to an earlier one when its input is there already.
static int can_advance(const Graph *g, int id, int to) {
  const Node *n = &g->node.data[id];
  const Tensor *in = graph_tensor(g, n->input[0]), *out = graph_tensor(g, n->output[0]);
  if (in->producer > to) return 0;
  for (int i = to; i < id; i++) {
    const Node *m = &g->node.data[i];
    if (m->region != n->region) continue;
    for (int k = 0; k < m->noutput; k++) {
      int v = graph_tensor(g, m->output[k])->variable;
      if (v >= 0 && (v == in->variable || v == out->variable)) return 0;
    }
    for (int k = 0; k < m->ninput; k++)
      if (m->input[k] >= 0 && out->variable >= 0 && graph_tensor(g, m->input[k])->variable == out->variable) return 0;
  }
  return 1;
}

typedef struct Bucket { int place, free; int64_t bytes; Vec(int) member; } Bucket;
typedef Vec(Bucket) BucketList;

// Does the collective read what MICRO left in a Variable, so that it could run before END begins?
static int is_free(const Graph *g, int id) {
  const Node *n = &g->node.data[id];
  const Tensor *in = graph_tensor(g, n->input[0]);
  return n->region == REGION_END && in->variable >= 0 && in->producer < 0;
}

// The last MICRO node that writes each Variable, or -1.
static int *last_writers(const Graph *g) {
  int *last = xcalloc((size_t)g->variable.count + 1, sizeof(int));
  for (int v = 0; v < g->variable.count; v++) last[v] = -1;
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; g->node.data[i].region == REGION_MICRO && k < g->node.data[i].noutput; k++) {
      int v = graph_tensor(g, g->node.data[i].output[k])->variable;
      if (v >= 0) last[v] = i;
    }
  return last;
}

// When what a collective reads is complete: the last MICRO node that writes it, a late number where the group spans
// stages.
static int ready_at(const Graph *g, const Mesh *mesh, int id, const int *last) {
  const Node *n = &g->node.data[id];
  if (!is_free(g, id)) return g->node.count + 1;
  return node_attr(n, CommAttr)->axes >> mesh_pipeline(mesh) & 1 ? g->node.count
                                                                 : last[graph_tensor(g, n->input[0])->variable];
}

// Puts node `id`, which is alike, into `b` when it fits; the bucket stands at its first member's place or moves to its
// last's.
static int join(const Graph *g, Waiting *waiting, Bucket *b, int id, int64_t bytes, int64_t limit) {
  if (b->bytes + bytes > limit || b->free != is_free(g, id)) return 0;
  if (b->free) {
    if (id < b->place) b->place = id;
  } else if (!can_advance(g, id, b->place)) {
    for (int i = 0; i < b->member.count; i++)
      if (!can_wait(g, waiting, b->member.data[i], id)) return 0;
    b->place = id;
  }
  b->bytes += bytes;
  vec_push(&b->member, id);
  return 1;
}

typedef struct Candidate { int id, ready; } Candidate;

static int by_readiness(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  return x->ready != y->ready ? (x->ready < y->ready ? -1 : 1) : x->id - y->id;
}

// A collective of MICRO on a parameter or its gradient; pass ahead has put them together. Those of different layers
// stay apart: the first layer's would otherwise wait for all of them. Of one layer those that are alike come together,
// past neighbours that have another dtype or root.
static int is_neighbour(const Graph *g, const Node *n) {
  return n->region == REGION_MICRO && op_def(n->op)->communicates && n->ninput == 1 &&
         graph_tensor(g, n->output[0])->parameter >= 0;
}

static void join_neighbours(const Graph *g, int64_t limit, int *is_member, int *bucket_at, BucketList *buckets) {
  for (int i = 0; i < g->node.count; i++) {
    const Node *first = &g->node.data[i];
    if (!is_neighbour(g, first) || is_member[i]) continue;
    Bucket b = {.place = i, .bytes = node_bytes(g, first)};
    vec_push(&b.member, i);
    for (int k = i + 1; k < g->node.count; k++) {
      const Node *n = &g->node.data[k];
      if (!is_neighbour(g, n) || n->stage != first->stage || n->phase != first->phase || n->layer != first->layer)
        break;
      if (is_member[k] || !alike(g, first, n)) continue;
      int64_t bytes = node_bytes(g, n);
      if (bytes > limit) continue; // it is a bucket by itself
      if (b.bytes + bytes > limit) break;
      if (graph_tensor(g, n->input[0])->producer >= i) break; // of a member
      b.bytes += bytes;
      vec_push(&b.member, k);
    }
    for (int m = 0; m < b.member.count; m++) is_member[b.member.data[m]] = 1;
    vec_push(buckets, b);
    bucket_at[b.place] = buckets->count;
  }
}

static void emit_bucket(const Graph *g, Graph *h, const Bucket *b) {
  Node n = g->node.data[b->member.data[0]];
  int count = b->member.count;
  int *input = arena_array(&h->arena, int, count), *output = arena_array(&h->arena, int, count);
  for (int i = 0; i < count; i++) {
    input[i] = g->node.data[b->member.data[i]].input[0];
    output[i] = g->node.data[b->member.data[i]].output[0];
  }
  n.ninput = n.noutput = count;
  n.input = input;
  n.output = output;
  if (count > 1) n.name = arena_format(&h->arena, "bucket of %d from %s", count, n.name);
  graph_add_node(h, &n);
}

int pass_bucket(Graph **graph, const CompileOptions *o, Error *error) {
  const Graph *g = *graph;
  int64_t bucket_bytes = o->parallel.overlap.bucket_bytes;
  BucketList buckets = {0};
  int *bucket_at = xcalloc((size_t)g->node.count, sizeof(int)),
      *is_member = xcalloc((size_t)g->node.count, sizeof(int));
  Waiting *waiting = xcalloc((size_t)g->node.count, sizeof *waiting);
  Vec(Candidate) candidate = {0};
  int *last = last_writers(g);
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!op_def(n->op)->communicates || n->region == REGION_MICRO || n->ninput != 1) continue;
    vec_push(&candidate, (Candidate){i, ready_at(g, &o->parallel.mesh, i, last)});
    is_member[i] = 1;
  }
  if (candidate.count) qsort(candidate.data, (size_t)candidate.count, sizeof *candidate.data, by_readiness);
  for (int i = 0; i < candidate.count; i++) {
    int id = candidate.data[i].id, joined = 0, is_early = is_free(g, id);
    const Node *n = &g->node.data[id];
    int64_t bytes = node_bytes(g, n);
    // An accumulator's bucket is closed when the next does not fit, lest an early one wait for a late member. One that
    // fits into no bucket closes none: the small tensors between such share one, and its latency.
    for (int b = buckets.count - 1; b >= 0 && !joined; b--) {
      if (!alike(g, &g->node.data[buckets.data[b].member.data[0]], n)) continue;
      joined = join(g, waiting, &buckets.data[b], id, bytes, bucket_bytes);
      int is_large = buckets.data[b].bytes > bucket_bytes;
      if (is_early && buckets.data[b].free && FAULT(large_tensors_close_buckets, !is_large, 1)) break;
    }
    if (joined) continue;
    Bucket b = {.place = id, .free = is_early, .bytes = bytes};
    vec_push(&b.member, id);
    vec_push(&buckets, b);
  }
  vec_free(&candidate);
  free(last);
  free(waiting);
  for (int b = 0; b < buckets.count; b++) bucket_at[buckets.data[b].place] = b + 1;
  join_neighbours(g, bucket_bytes, is_member, bucket_at, &buckets);
  Graph *h = graph_copy(g);
  h->node.count = 0;
  for (int i = 0; i < g->node.count; i++) {
    if (bucket_at[i]) emit_bucket(g, h, &buckets.data[bucket_at[i] - 1]);
    if (!is_member[i]) graph_add_node(h, &g->node.data[i]);
  }
  for (int b = 0; b < buckets.count; b++) vec_free(&buckets.data[b].member);
  vec_free(&buckets);
  free(bucket_at);
  free(is_member);
  placements_adopt(h);
  return pass_replace(graph, h);
}
