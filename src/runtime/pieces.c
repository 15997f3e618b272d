// The buffers of a collective: one a tensor, or one for each block of the dims outside the last that it gathers or
// scatters; two where that dim is cut in zigzag, whose second chunks lie in descending order of the ranks.
//
// Example: an all_to_all over 2 ranks takes a (b 3, s 4, h 8), of which each has 4 of 8 positions, to (b 3, s 8, h 4).
// For each sample and each of the 4 positions that a rank has it is a buffer of 4 elements: part p of the sent buffer
// lies p · 4 elements after its first, part p of the received one, with rank p's positions, p · 4 · 4 elements after
// its first. Nothing is packed.
#include "runtime/pieces.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "op/expert_rows.h"

// A dim on the side on which it is whole: of the local indices [from, from + length) of every part, rank 0's begin at
// index `first`, the next rank's `stride` after it.
typedef struct Run { int64_t from, length, first, stride; } Run;

typedef struct Extents {
  int rank, gathered, scattered, last;          // dims; -1: none. last: of both
  int64_t part[MAX_RANK];                       // local sizes of a rank's part
  int64_t in_stride[MAX_RANK], out_stride[MAX_RANK]; // elements
  int64_t in, out;                              // elements of all
  int runs[MAX_RANK];
  Run run[MAX_RANK][2];
} Extents;

static int in_zigzag(const AxisList *list) { return list->n && list->zigzag == list->n; }

static void find_runs(Extents *e, int d, int64_t shards, int zigzag) {
  int64_t chunk = zigzag ? e->part[d] / 2 : e->part[d];
  e->runs[d] = zigzag ? 2 : 1;
  e->run[d][0] = (Run){0, chunk, 0, chunk};
  e->run[d][1] = (Run){chunk, chunk, (2 * shards - 1) * chunk, FAULT(zigzag_parts_ascend, -chunk, chunk)};
}

static Extents extents_of(const Program *program, const Tensor *in, const Tensor *out, int64_t shards) {
  const Graph *g = program->graph;
  Extents e = {.rank = in->shape.rank, .gathered = -1, .scattered = -1, .in = 1, .out = 1};
  const Placement *rows = in->placement->merged ? in->placement : out->placement;
  Placement from = placement_flat(in->placement, rows), to = placement_flat(out->placement, rows);
  Shape flat = placement_flat_shape(rows, &in->shape);
  for (int d = 0; d < e.rank; d++) {
    const AxisList *a = &from.dim[d], *b = &to.dim[d];
    if (a->n > b->n) e.gathered = d;
    if (a->n < b->n) e.scattered = d;
    e.part[d] = rows->merged ? axis_list_local(&program->mesh, a->n < b->n ? b : a, flat.size[d])
                             : tensor_local(g, a->n < b->n ? out : in)[d];
    if (a->n != b->n) find_runs(&e, d, shards, in_zigzag(a->n > b->n ? a : b));
  }
  if (tensor_is_compact(in)) {
    CHECK(e.gathered < 0 && e.scattered < 0, "%s: rows of experts", in->name);
    e.last = -1;
    e.in = e.out = tensor_elements(in, tensor_local(g, in));
    return e;
  }
  e.last = e.gathered > e.scattered ? e.gathered : e.scattered;
  for (int d = e.rank - 1; d >= 0; d--) {
    e.in_stride[d] = e.in;
    e.out_stride[d] = e.out;
    e.in *= e.part[d] * (d == e.scattered ? shards : 1);
    e.out *= e.part[d] * (d == e.gathered ? shards : 1);
  }
  return e;
}

// Where local index l of dim d lies on both sides.
static void add_dim(const Extents *e, int d, int64_t l, Piece *p) {
  const Run *run = &e->run[d][e->runs[d] > 1 && l >= e->run[d][1].from];
  int64_t whole = run->first + l - run->from;
  p->send += (d == e->scattered ? whole : l) * e->in_stride[d];
  p->recv += (d == e->gathered ? whole : l) * e->out_stride[d];
  if (d == e->scattered) p->send_stride = run->stride * e->in_stride[d];
  if (d == e->gathered) p->recv_stride = run->stride * e->out_stride[d];
}

// Number `block` of a tensor's pieces: blocks in row-major order, of each its runs.
static Piece piece_of(const Extents *e, int64_t block) {
  int runs = e->runs[e->last];
  const Run *run = &e->run[e->last][block % runs];
  Piece p = {.count = run->length};
  for (int d = e->last + 1; d < e->rank; d++) p.count *= e->part[d];
  add_dim(e, e->last, run->from, &p);
  int64_t left = block / runs;
  for (int d = e->last - 1; d >= 0; d--) {
    add_dim(e, d, left % e->part[d], &p);
    left /= e->part[d];
  }
  return p;
}

static int64_t pieces_in(const Extents *e) {
  int64_t n = e->last < 0 ? 1 : e->runs[e->last];
  for (int d = 0; d < e->last; d++) n *= e->part[d];
  return n;
}

// An exchange of rows is one piece, of as many elements as its memory has room for on both sides.
static void bind_exchange(Binding *binding, Bound *b, int64_t ranks) {
  const Graph *g = binding->program->graph;
  int64_t in = tensor_allocated(g, graph_tensor(g, b->node->input[0])),
          out = tensor_allocated(g, graph_tensor(g, b->node->output[0]));
  CHECK(ranks <= ROW_PARTS_MOST, "%s: an exchange of rows over %lld ranks", b->node->name, (long long)ranks);
  b->pieces = 1;
  b->piece = arena_array(&binding->arena, Piece, 1);
  b->piece[0] = (Piece){.count = in < out ? in : out, .blocks = 1};
  b->counts = arena_array(&binding->arena, size_t, 3 * ranks);
}

void pieces_bind(Binding *binding, Bound *b) {
  const Graph *g = binding->program->graph;
  const Node *n = b->node;
  int64_t shards = mesh_size(&binding->program->mesh, node_attr(n, CommAttr)->axes);
  if (node_calls(n, COMM_ALL_TO_ALL_V)) {
    bind_exchange(binding, b, shards);
    return;
  }
  for (int pass = 0; pass < 2; pass++) {
    int count = 0;
    for (int k = 0; k < n->ninput; k++) {
      const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
      Extents e = extents_of(binding->program, in, out, shards);
      int64_t blocks = pieces_in(&e), size = (int64_t)dtype_size(in->dtype);
      b->gathers_rows |= in->shape.dim[0] == DIM_BATCH && (e.gathered == 0 || e.scattered == 0);
      int64_t from = tensor_allocated(g, in), to = tensor_allocated(g, out);
      CHECK(e.in <= from && e.out <= to, "%s: room for %lld and %lld of %lld and %lld elements", n->name,
            (long long)from, (long long)to, (long long)e.in, (long long)e.out);
      for (int64_t i = 0; i < blocks; i++, count++) {
        if (!pass) continue;
        Piece p = e.last < 0 ? (Piece){.count = e.in} : piece_of(&e, i);
        p.send *= size;
        p.recv *= size;
        p.input = p.output = k;
        p.block = i;
        p.blocks = blocks;
        b->piece[count] = p;
      }
    }
    if (pass) continue;
    b->pieces = count;
    b->piece = arena_array(&binding->arena, Piece, count);
    // one call after the other where rows are uneven
    b->buffer = arena_array(&binding->arena, PlaitBuffer, b->gathers_rows ? count * shards : count);
  }
}
