// tier 1; rooms program sharding; threads numbers
// Every redistribution of a tensor of four dims as the executor makes it, on four ranks, for all pairs of placements:
// gathers, scatters and moves from dim to dim, in zigzag too, with all rows of a batch and with different numbers of
// rows on the ranks.
#include "device/device.h"
#include "op/op.h"
#include "plait/comm.h"
#include "runtime/collective.h"
#include "runtime/pieces.h"
#include "sharding/redistribute.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { RANKS = 4, DIMS = 4, MOST_PLACEMENTS = 400, MOST_ELEMENTS = 4096 };

typedef struct Walk {
  Shares shares;
  Shape shape; // (batch, seq, heads, embed)
  Mesh mesh;
  Placement placement[MOST_PLACEMENTS];
  int count, microbatches, failures;
} Walk;

// Placements of axes a and b: each on no dim, on one of the first three or partial, in every order on a dim; on dim 1
// also in zigzag over one of them.
static void add_placements(Walk *w, Placement p, uint32_t left) {
  w->placement[w->count++] = p;
  for (int a = 0; a < 2; a++) {
    if (!(left >> a & 1)) continue;
    for (int d = 0; d < 3; d++) {
      Placement q = p;
      int later = q.partial;
      for (int e = d + 1; e < 3; e++) later |= q.dim[e].n; // the first dim first, so that nothing comes twice
      if (later) continue;
      axis_list_push(&q.dim[d], a);
      add_placements(w, q, left & ~(1u << a));
      if (d != 1 || q.dim[d].zigzag) continue;
      q.dim[d].zigzag = q.dim[d].n;
      add_placements(w, q, left & ~(1u << a));
    }
    if (p.partial < 1u << a) {
      Placement q = p;
      q.partial |= 1u << a;
      add_placements(w, q, left & ~(1u << a));
    }
  }
}

// One rank's part of the value of a place: of a partial sum the first rank has what the others' parts lack.
static double part_of(const Mesh *m, uint32_t partial, int rank, double value) {
  int others = mesh_size(m, partial) - 1;
  return mesh_index(m, rank, partial) ? 3 : value - 3 * others;
}

static int tensor_under(Graph *g, const Walk *w, const Placement *p) {
  Tensor t = {.name = "x", .dtype = DTYPE_F64, .shape = w->shape, .placement = p, .allocated_ = 1, .producer = -1,
              .variable = -1, .copy = -1, .input = -1, .mask = -1};
  placement_local(&w->mesh, p, &w->shape, t.local_);
  for (int d = 0; d < DIMS; d++) t.allocated_ *= t.local_[d];
  return graph_add_tensor(g, &t);
}

static double value_at(const Operand *x, int64_t element) {
  int64_t index = 0, stride = 1;
  for (int d = x->rank - 1; d >= 0; d--) {
    index += stride * index_map(&x->map[d], element % x->size[d]);
    stride *= x->map[d].global;
    element /= x->size[d];
  }
  return (double)(7 + index);
}

// An operand as a microbatch has it: its memory is all NaN beyond its rows.
static void set_operand(const Walk *w, const Program *p, const Graph *g, int tensor, int rank, int microbatch,
                        Operand *x, Rows *rows, double *memory) {
  const Tensor *t = graph_tensor(g, tensor);
  *x = (Operand){.data = memory, .dtype = t->dtype, .rank = DIMS};
  for (int d = 0; d < DIMS; d++) {
    x->size[d] = t->local_[d];
    x->map[d] = placement_map(&w->mesh, t->placement, d, t->shape.size[d], rank);
  }
  if (rows) {
    *rows = rows_of(p, t, rank);
    rows_set(p, *rows, microbatch, x);
  }
  for (int i = 0; i < MOST_ELEMENTS; i++) memory[i] = 0.0 / 0.0;
}

static int right(const Walk *w, const Operand *x, const Placement *p, int rank, PlaitComm *const *comm) {
  double sum[MOST_ELEMENTS];
  size_t n = (size_t)operand_elements(x);
  memcpy(sum, x->data, n * sizeof *sum);
  if (p->partial &&
      plait_all_reduce(comm[p->partial], &(PlaitBuffer){sum, sum, n}, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL))
    return 0;
  for (size_t i = 0; i < n; i++)
    if (sum[i] != value_at(x, (int64_t)i)) return 0;
  return 1;
}

// One step on this rank; `x` becomes what it gives. Memory of both: (MOST_ELEMENTS).
static int run_step(const Walk *w, const RedistributeStep *step, const Placement *from, int rank, int microbatch,
                    PlaitComm *const *comm, double *before, double *after, Operand *result) {
  Graph *g = graph_create();
  g->form = GRAPH_LOCAL;
  int in = tensor_under(g, w, from), out = tensor_under(g, w, &step->to), code = 0;
  CommAttr attr = {.axes = step->axes, .dim = step->dim, .dim2 = step->dim2};
  Node node = {.op = step->op, .name = "move", .ninput = 1, .noutput = 1, .input = &in, .output = &out,
               .region = REGION_MICRO};
  memcpy(node.attr, &attr, sizeof attr);
  Program program = {.graph = g, .mesh = w->mesh, .shares = &w->shares, .device = device_cpu()};
  DeviceQueue queue = {.device = program.device};
  State state = {.device = program.device};
  Binding binding = {.program = &program, .state = &state, .queue = &queue, .parameters.microbatch = microbatch};
  Operand input, output;
  Rows rows[2];
  int even = w->shares.even;
  Bound b = {.node = &node, .ninput = 1, .tensor = &in, .input = &input, .output = &output,
             .rows = even ? NULL : rows, .comm = comm[step->axes]};
  double kept[MOST_ELEMENTS];
  memcpy(kept, before, sizeof kept);
  set_operand(w, &program, g, in, rank, microbatch, &input, even ? NULL : &rows[0], before);
  set_operand(w, &program, g, out, rank, microbatch, &output, even ? NULL : &rows[1], after);
  memcpy(before, kept, sizeof kept);
  if (op_def(step->op)->communicates) {
    pieces_bind(&binding, &b);
    code = collective_call(&binding, &b, NULL, NULL);
  } else {
    op_def(step->op)->reference(&(KernelCall){.ninput = 1, .noutput = 1, .input = &input, .output = &output});
  }
  *result = output;
  arena_free(&binding.arena);
  graph_destroy(g);
  return code;
}

static int run_pair(const Walk *w, const Placement *from, const Placement *to, int rank, int microbatch,
                    PlaitComm *const *comm, PlaitError *error) {
  static _Thread_local double memory[2][MOST_ELEMENTS];
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  Error why = {0};
  int n = redistribute_steps(&w->mesh, &w->shape, from, to, steps, &why), code = 0, k = 0;
  Graph *g = graph_create();
  g->form = GRAPH_LOCAL;
  Program program = {.graph = g, .mesh = w->mesh, .shares = &w->shares};
  Operand x;
  Rows rows;
  set_operand(w, &program, g, tensor_under(g, w, from), rank, microbatch, &x, w->shares.even ? NULL : &rows, memory[0]);
  for (int64_t i = 0; i < operand_elements(&x); i++)
    memory[0][i] = part_of(&w->mesh, from->partial, rank, value_at(&x, i));
  graph_destroy(g);
  for (int i = 0; i < n && !code; i++, k = !k) {
    const Placement *now = i ? &steps[i - 1].to : from;
    code = run_step(w, &steps[i], now, rank, microbatch, comm, memory[k], memory[!k], &x);
    if (!code && !right(w, &x, &steps[i].to, rank, comm)) {
      char a[80], b[80];
      placement_text(&w->mesh, from, &w->shape, a, sizeof a);
      placement_text(&w->mesh, to, &w->shape, b, sizeof b);
      snprintf(error->message, sizeof error->message, "\"%s\" to \"%s\", microbatch %d: wrong after step %d (%s)", a, b,
               microbatch, i, op_name(steps[i].op));
      return -1;
    }
  }
  return code;
}

static int run_rank(PlaitComm *world, void *argument, PlaitError *error) {
  Walk *w = argument;
  PlaitComm *comm[4] = {0};
  int rank = plait_comm_rank(world), code = 0;
  for (uint32_t axes = 1; axes < 4 && !code; axes++) {
    int ranks[RANKS], n = mesh_group(&w->mesh, rank, axes, 0, ranks);
    code = plait_comm_create(world, ranks, n, &comm[axes], error);
  }
  for (int f = 0; f < w->count && !code; f++)
    for (int t = 0; t < w->count && !code; t++)
      for (int m = 0; m < w->microbatches && !code; m++)
        if (!(w->placement[t].partial & ~w->placement[f].partial))
          code = run_pair(w, &w->placement[f], &w->placement[t], rank, m, comm, error);
  for (int i = 1; i < 4; i++) plait_comm_destroy(comm[i]);
  return code;
}

static void all_pairs(int64_t global, int64_t micro, int microbatches, const int64_t size[DIMS]) {
  Walk *w = xcalloc(1, sizeof *w);
  PlaitError error = {0};
  w->mesh = mesh_create(2, (const char *[]){"a", "b"}, (int[]){2, 2});
  w->shares = shares_create(global, RANKS, micro);
  w->microbatches = microbatches;
  assert_true(w->shares.microbatches >= microbatches && w->shares.bound * RANKS == size[0]);
  w->shape = shape_of(DIMS, size, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_KV_HEADS, DIM_EMBED});
  add_placements(w, (Placement){.rank = DIMS}, 3);
  int code = plait_world_run(RANKS, run_rank, w, &error);
  if (code) fail_msg("%s", error.message);
  free(w);
}

static void all_rows(void **state) { all_pairs(4, 1, 1, (int64_t[]){4, 16, 4, 3}); }

// 22 rows over 4 ranks of 2 rows each: microbatches of 8, 7 and 7, or so, and one with fewer rows than ranks.
static void uneven_rows(void **state) {
  all_pairs(22, 2, 3, (int64_t[]){8, 16, 4, 3});
  all_pairs(3, 1, 1, (int64_t[]){4, 16, 4, 3});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_rows), cmocka_unit_test(uneven_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
