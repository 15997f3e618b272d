// Meshes, placements, redistribution (simulated on data, for all pairs of placements of a small tensor), rules,
// layouts.
#include "sharding/layout.h"
#include "sharding/redistribute.h"
#include "sharding/rule.h"
#include "op/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static Mesh small_mesh(int a, int b, int c) {
  return mesh_create(3, (const char *[]){"a", "b", "c"}, (int[]){a, b, c});
}

static void ranks_are_coordinates(void **state) {
  Mesh m = small_mesh(2, 3, 4);
  assert_int_equal(m.ranks, 24);
  assert_int_equal(mesh_find(&m, "b"), 1);
  assert_int_equal(mesh_find(&m, "d"), -1);
  assert_int_equal(mesh_size(&m, 5), 8);
  for (int r = 0; r < 24; r++) {
    assert_int_equal(mesh_coordinate(&m, r, 0) * 12 + mesh_coordinate(&m, r, 1) * 4 + mesh_coordinate(&m, r, 2), r);
    int ranks[24];
    for (uint32_t axes = 0; axes < 8; axes++) {
      int n = mesh_group(&m, r, axes, 0, ranks), self = 0;
      assert_int_equal(n, mesh_size(&m, axes));
      for (int i = 0; i < n; i++) {
        assert_true(!i || ranks[i] > ranks[i - 1]);
        for (int a = 0; a < 3; a++)
          if (!(axes >> a & 1)) assert_int_equal(mesh_coordinate(&m, ranks[i], a), mesh_coordinate(&m, r, a));
        self += ranks[i] == r;
      }
      assert_int_equal(self, 1);
    }
  }
}

static void groups_take_coordinates_of_pp(void **state) {
  Mesh m = mesh_create(2, (const char *[]){"pp", "dp"}, (int[]){4, 2});
  int ranks[8];
  assert_int_equal(mesh_group(&m, 3, 1, &(StageSet){{1 << 1 | 1 << 3}}, ranks), 2);
  assert_int_equal(ranks[0], 3);
  assert_int_equal(ranks[1], 7);
}

// Every element of a dim lies in exactly one shard, where index_map says; padding only after the valid elements.
static void check_map(const Mesh *m, const AxisList *list, int64_t size) {
  int found[256] = {0}, holders = m->ranks / axis_list_shards(m, list);
  int64_t local = axis_list_local(m, list, size);
  for (int r = 0; r < m->ranks; r++) {
    IndexMap map = axis_list_map(m, list, size, r);
    assert_true(map.local == local && map.global == size && map.valid >= 0 && map.valid <= local);
    for (int64_t i = 0; i < map.valid; i++) {
      int64_t g = index_map(&map, i);
      assert_in_range(g, 0, size - 1);
      assert_true(index_local(&map, g) == i);
      found[g]++;
    }
    for (int64_t g = 0, held = 0; g <= size; g++) {
      held += index_local(&map, g) >= 0;
      if (g == size) assert_true(held == map.valid);
    }
  }
  for (int64_t g = 0; g < size; g++) assert_int_equal(found[g], holders);
}

static void shards_cover_a_dim_once(void **state) {
  Mesh m = small_mesh(2, 3, 4);
  static const AxisList lists[] = {{0},            {1, {0}, 0},    {1, {2}, 0},       {2, {0, 1}, 0},
                                   {2, {1, 0}, 0}, {2, {2, 1}, 0}, {3, {0, 1, 2}, 0}, {3, {2, 0, 1}, 0}};
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
    for (int64_t size = 1; size <= 50; size++) check_map(&m, &lists[l], size);
  // Nested rounding up: 7 over 2, then 3, is 4, then 2; the last rank of the first half has 0 of its 2.
  AxisList nested = {2, {0, 1}, 0};
  IndexMap map = axis_list_map(&m, &nested, 7, 8);
  assert_true(map.local == 2 && map.valid == 0);
  map = axis_list_map(&m, &nested, 7, 12);
  assert_true(map.local == 2 && map.valid == 2 && map.run[0].global == 4);
}

// In zigzag every rank has two runs of what the axes before leave, and axes after it cut these.
static void zigzag_covers_a_dim_once(void **state) {
  Mesh m = small_mesh(2, 3, 4);
  static const AxisList lists[] = {{1, {0}, 1},       {1, {1}, 1},      {1, {2}, 1},    {2, {0, 1}, 1},
                                   {2, {0, 1}, 2},    {2, {1, 0}, 1},   {2, {2, 1}, 2}, {3, {0, 1, 2}, 1},
                                   {3, {0, 1, 2}, 2}, {3, {2, 0, 1}, 3}};
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
    for (int64_t size = 48; size <= 192; size += 48) check_map(&m, &lists[l], size);
  for (int64_t size = 12; size <= 60; size += 12) check_map(&m, &lists[3], size); // halves of 1 to 5 over 3: padded
  AxisList outer = {2, {2, 1}, 1}, inner = {2, {0, 2}, 2};
  IndexMap map = axis_list_map(&m, &outer, 24, 4 + 3); // the middle third of chunks 3 (9 to 11) and 4 (12 to 14)
  assert_true(map.local == 2 && map.runs == 2 && map.run[1].local == 1);
  assert_true(map.run[0].global == 11 && map.run[1].global == 12);
  map = axis_list_map(&m, &inner, 16, 12 + 1);
  assert_true(map.local == 2 && map.run[0].global == 9 && map.run[1].local == 1 && map.run[1].global == 14);
  outer.zigzag = 2;
  assert_false(axis_list_equal(&outer, &(AxisList){2, {2, 1}, 1}));
  assert_int_equal(axis_list_prefix(&outer, &(AxisList){2, {2, 1}, 0}), 1);
  assert_int_equal(axis_list_parts(&m, &outer), 24);
  assert_int_equal(axis_list_pop(&outer), 1);
  assert_int_equal(outer.zigzag, 0);
}

// Of a block that is broadcast all ranks of the axes have what rank `fixed` of these has.
static void fixed_blocks_are_their_roots(void **state) {
  Mesh m = mesh_create(4, (const char *[]){"dp", "tp_row", "tp", "tp_group"}, (int[]){2, 3, 2, 2});
  Shape shape = shape_of(2, (int64_t[]){4, 24}, (DimName[]){DIM_BATCH, DIM_EMBED});
  Placement own = {.rank = 2, .dim = {{1, {0}, 0}, {2, {2, 3}, 0}}}, p = own;
  p.fixed_axes = 1u << 2 | 1u << 3;
  for (p.fixed = 0; p.fixed < 4; p.fixed++) {
    assert_false(placement_equal(&p, &own));
    for (int r = 0; r < m.ranks; r++) {
      int source = placement_source(&m, &p, r);
      assert_int_equal(source, r / 4 * 4 + p.fixed);
      assert_int_equal(mesh_index(&m, source, p.fixed_axes), p.fixed);
      IndexMap width = placement_map(&m, &p, 1, 24, r), batch = placement_map(&m, &p, 0, 4, r),
               same = placement_map(&m, &own, 0, 4, r);
      assert_true(width.run[0].global == 6 * p.fixed && width.valid == 6);
      assert_int_equal(batch.run[0].global, same.run[0].global);
    }
  }
  p.fixed = 3;
  char text[128];
  placement_text(&m, &p, &shape, text, sizeof text);
  assert_string_equal(text, "batch:dp embed:tp,tp_group fixed:tp,tp_group=3");
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  Error error = {0};
  assert_true(redistribute_steps(&m, &shape, &p, &own, steps, &error) < 0 && strstr(error.message, "was broadcast"));
}

// A block that has gone `shift` ranks along cp is the one of the rank `shift` places before; after as many as there are
// ranks it is home.
static void shifted_blocks_are_their_sources(void **state) {
  Mesh m = mesh_create(3, (const char *[]){"dp", "cp", "tp"}, (int[]){2, 4, 3});
  Shape shape = shape_of(3, (int64_t[]){4, 16, 6}, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_KV_HEADS});
  Placement home = {.rank = 3, .dim = {{1, {0}, 0}, {1, {1}, 1}, {1, {2}, 0}}}, p = home; // cp in zigzag
  for (int shift = 1; shift <= 4; shift++) {
    p = placement_shifted(&m, &p, 1, 1);
    assert_int_equal(placement_equal(&p, &home), shift == 4);
    for (int r = 0; r < m.ranks; r++) {
      int c = mesh_coordinate(&m, r, 1), source = r + ((c + 4 - shift) % 4 - c) * 3;
      assert_int_equal(placement_source(&m, &p, r), source);
      for (int d = 0; d < 3; d++) {
        IndexMap got = placement_map(&m, &p, d, shape.size[d], r),
                 expected = axis_list_map(&m, &home.dim[d], shape.size[d], source);
        for (int64_t i = 0; i < got.local; i++) assert_int_equal(index_map(&got, i), index_map(&expected, i));
        IndexMap own = axis_list_map(&m, &home.dim[d], shape.size[d], r);
        if (d != 1) assert_int_equal(index_map(&got, 0), index_map(&own, 0));
      }
    }
  }
  Placement back = placement_shifted(&m, &home, 1, -1);
  char text[128];
  placement_text(&m, &back, &shape, text, sizeof text);
  assert_string_equal(text, "batch:dp seq:cp~ kv_heads:tp shift:cp+3");
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  Error error = {0};
  assert_true(redistribute_steps(&m, &shape, &back, &home, steps, &error) < 0 &&
              strstr(error.message, "around a ring"));
}

static void one_rank_of_each_shard_is_primary(void **state) {
  Mesh m = mesh_create(3, (const char *[]){"pp", "dp", "tp"}, (int[]){2, 3, 2});
  Placement p = {.rank = 2, .dim = {{0}, {1, {1}, 0}}};
  int primary[3] = {0};
  for (int r = 0; r < m.ranks; r++)
    if (placement_primary(&m, &p, r, NULL)) primary[mesh_coordinate(&m, r, 1)]++;
  for (int i = 0; i < 3; i++) assert_int_equal(primary[i], 1);
  int second = 0;
  for (int r = 0; r < m.ranks; r++) {
    int is = placement_primary(&m, &p, r, &(StageSet){{2}}); // lives on pp 1 alone
    second += is;
    if (is) assert_int_equal(mesh_coordinate(&m, r, 0), 1);
  }
  assert_int_equal(second, 3);
}

// Redistribution on data ---------------------------------------------------------------------------------------------

#define GARBAGE (0.0 / 0.0) // what a rank has of a tensor that another one owns
enum { ROWS = 12, COLUMNS = 24, MAX_RANKS = 12, MAX_ELEMENTS = ROWS * COLUMNS };

typedef struct Shards {
  const Mesh *mesh;
  Shape shape;
  Placement placement;
  int64_t local[2];
  double data[MAX_RANKS][MAX_ELEMENTS]; // (ranks, local[0], local[1])
} Shards;

static double value_at(int64_t i, int64_t j) { return (double)(1 + i * 17 + j); }

// A rank's part of a value that is a sum over partial axes: parts differ, and add up to it.
static double part_of(const Mesh *m, uint32_t partial, int rank, double value) {
  int first = 1;
  for (int a = 0; a < m->naxis; a++)
    if (partial >> a & 1 && mesh_coordinate(m, rank, a)) first = 0;
  return first ? value - 3.0 * (mesh_size(m, partial) - 1) : 3.0;
}

static void fill_shards(Shards *s, const Placement *p) {
  s->placement = *p;
  placement_local(s->mesh, p, &s->shape, s->local);
  for (int r = 0; r < s->mesh->ranks; r++) {
    IndexMap row = axis_list_map(s->mesh, &p->dim[0], s->shape.size[0], r),
             column = axis_list_map(s->mesh, &p->dim[1], s->shape.size[1], r);
    for (int64_t i = 0; i < s->local[0]; i++)
      for (int64_t j = 0; j < s->local[1]; j++)
        s->data[r][i * s->local[1] + j] =
            !placement_here(s->mesh, p, r) ? GARBAGE
            : i < row.valid && j < column.valid
                ? part_of(s->mesh, p->partial, r, value_at(index_map(&row, i), index_map(&column, j)))
                : 0;
  }
}

// Whether the shards, summed over what is still partial, are the tensor under the placement.
static int shards_hold(const Shards *s, const Placement *p) {
  int ranks[MAX_RANKS];
  int64_t local[2];
  placement_local(s->mesh, p, &s->shape, local);
  if (local[0] != s->local[0] || local[1] != s->local[1]) return 0;
  for (int r = 0; r < s->mesh->ranks; r++) {
    if (!placement_here(s->mesh, p, r)) continue;
    int n = mesh_group(s->mesh, r, p->partial, 0, ranks);
    IndexMap row = axis_list_map(s->mesh, &p->dim[0], s->shape.size[0], r),
             column = axis_list_map(s->mesh, &p->dim[1], s->shape.size[1], r);
    for (int64_t i = 0; i < local[0]; i++)
      for (int64_t j = 0; j < local[1]; j++) {
        double sum = 0,
               want = i < row.valid && j < column.valid ? value_at(index_map(&row, i), index_map(&column, j)) : 0;
        for (int k = 0; k < n; k++) sum += s->data[ranks[k]][i * local[1] + j];
        if (sum != want) return 0;
      }
  }
  return 1;
}

static double sum_of(const Shards *s, const int *ranks, int n, int64_t at) {
  double sum = 0;
  for (int k = 0; k < n; k++) sum += s->data[ranks[k]][at];
  return sum;
}

// Where chunk-wise index `at` of a dim of `local` elements a rank lies among the n ranks of an axis that cuts it in
// zigzag: rank r has chunks r and 2n − 1 − r.
static int zigzag_source(int64_t *at, int64_t local, int n) {
  int64_t half = local / 2, chunk = *at / half;
  *at = *at % half + (chunk >= n ? half : 0);
  return (int)(chunk >= n ? 2 * n - 1 - chunk : chunk);
}
static int64_t zigzag_index(int64_t at, int64_t local, int n, int r) {
  int64_t half = local / 2;
  return (at < half ? r : 2 * n - 1 - r) * half + at % half;
}

// What the collective of a step does to every rank's memory. The new local shape is that of step->to.
static void apply(const Shards *s, const RedistributeStep *step, Shards *out) {
  out->mesh = s->mesh;
  out->shape = s->shape;
  out->placement = step->to;
  placement_local(s->mesh, &step->to, &s->shape, out->local);
  int scattered = step->dim, gathered = -1, moves = step->op == OP_ALL_TO_ALL, axis = __builtin_ctz(step->axes),
      reduce = step->op == OP_ALL_REDUCE || step->op == OP_REDUCE_SCATTER || step->op == OP_REDUCE_TO;
  if (moves) gathered = step->dim2;
  if (step->op == OP_ALL_GATHER || step->op == OP_GATHER_TO) gathered = step->dim, scattered = -1;
  int zigzag = scattered >= 0 && axis_list_zigzag_axis(&step->to.dim[scattered]) == axis,
      was_zigzag = gathered >= 0 && axis_list_zigzag_axis(&s->placement.dim[gathered]) == axis;
  for (int r = 0; r < s->mesh->ranks; r++) {
    int ranks[MAX_RANKS], n = mesh_group(s->mesh, r, step->axes, 0, ranks), own = mesh_index(s->mesh, r, step->axes);
    for (int64_t i = 0; i < out->local[0]; i++)
      for (int64_t j = 0; j < out->local[1]; j++) {
        int64_t at[2] = {i, j};
        int source = step->op == OP_BROADCAST || step->op == OP_SCATTER_FROM ? ranks[step->root] : r;
        if ((step->op == OP_REDUCE_TO || step->op == OP_GATHER_TO) && r != ranks[step->root]) {
          out->data[r][i * out->local[1] + j] = GARBAGE;
          continue;
        }
        if (was_zigzag) {
          source = ranks[zigzag_source(&at[gathered], s->local[gathered], n)];
        } else if (gathered >= 0) {
          source = ranks[at[gathered] / s->local[gathered]];
          at[gathered] %= s->local[gathered];
        }
        if (zigzag) at[scattered] = zigzag_index(at[scattered], out->local[scattered], n, own);
        else if (scattered >= 0) at[scattered] += own * out->local[scattered];
        int inside = at[0] < s->local[0] && at[1] < s->local[1];
        int64_t from = at[0] * s->local[1] + at[1];
        out->data[r][i * out->local[1] + j] = !inside ? 0 : reduce ? sum_of(s, ranks, n, from) : s->data[source][from];
      }
  }
}

typedef Vec(Placement) Placements;

// What all_placements makes besides axes on dims and partial sums.
typedef enum Beyond { NOTHING, OWNERS, IN_ZIGZAG } Beyond;

// All placements of two dims on the mesh: every axis on no dim, dim 0, dim 1 or partial, in every order on a dim; with
// OWNERS also with the last rank of any axes that are left as the owner, with IN_ZIGZAG also with dim 1 in zigzag over
// each of its axes.
static void all_placements(const Mesh *m, Placement p, uint32_t left, Beyond beyond, Placements *out) {
  vec_push(out, p);
  for (int a = 0; a < m->naxis; a++) {
    if (!(left >> a & 1)) continue;
    for (int d = 0; d < 2; d++) {
      Placement q = p;
      q.dim[d].axis[q.dim[d].n++] = (int8_t)a;
      if (d == 0 && q.dim[1].n) continue; // dim 0 first, so that nothing comes twice
      if (q.partial || q.owner_axes) continue;
      all_placements(m, q, left & ~(1u << a), beyond, out);
      if (beyond != IN_ZIGZAG || d != 1 || q.dim[d].zigzag) continue;
      q.dim[d].zigzag = q.dim[d].n;
      all_placements(m, q, left & ~(1u << a), beyond, out);
    }
    if (p.partial < 1u << a && !p.owner_axes) {
      Placement q = p;
      q.partial |= 1u << a;
      all_placements(m, q, left & ~(1u << a), beyond, out);
    }
    if (beyond == OWNERS && p.owner_axes < 1u << a) {
      Placement q = p;
      q.owner_axes |= 1u << a;
      q.owner = mesh_size(m, q.owner_axes) - 1;
      all_placements(m, q, left & ~(1u << a), beyond, out);
    }
  }
}

static void redistribute_all(const Mesh *m, int64_t rows, int64_t columns, Beyond beyond) {
  Placements all = {0};
  Shards *now = xcalloc(2, sizeof *now);
  all_placements(m, (Placement){.rank = 2}, (1u << m->naxis) - 1, beyond, &all);
  assert_true(all.count > (beyond ? 20 : 10));
  for (int f = 0; f < all.count; f++)
    for (int t = 0; t < all.count; t++) {
      const Placement *from = &all.data[f], *to = &all.data[t];
      RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
      Error error = {0};
      Shape shape = shape_of(2, (int64_t[]){rows, columns}, (DimName[]){DIM_VOCAB, DIM_EMBED});
      int n = redistribute_steps(m, &shape, from, to, steps, &error), k = 0;
      int other = from->owner_axes & ~to->owner_axes && to->owner_axes & ~from->owner_axes;
      if (to->partial & ~from->partial || other) {
        assert_int_equal(n, PLAIT_INFEASIBLE);
        continue;
      }
      assert_in_range(n, 0, MAX_REDISTRIBUTE_STEPS);
      if (placement_equal(from, to)) assert_int_equal(n, 0);
      now[0] = (Shards){.mesh = m, .shape = shape};
      fill_shards(&now[0], from);
      for (int i = 0; i < n; i++, k = !k) {
        apply(&now[k], &steps[i], &now[!k]);
        if (shards_hold(&now[!k], &steps[i].to)) continue;
        char a[80], b[80];
        placement_text(m, from, NULL, a, sizeof a);
        placement_text(m, to, NULL, b, sizeof b);
        fail_msg("%lld × %lld, \"%s\" to \"%s\": wrong after step %d (%s)", (long long)rows, (long long)columns, a, b,
                 i, op_name(steps[i].op));
      }
      assert_true(n == 0 || placement_equal(&steps[n - 1].to, to));
      assert_true(shards_hold(&now[k], to));
    }
  vec_free(&all);
  free(now);
}

static void every_pair_of_placements(void **state) {
  Mesh three = small_mesh(2, 3, 2), two = mesh_create(2, (const char *[]){"a", "b"}, (int[]){2, 3});
  redistribute_all(&three, 12, 12, NOTHING);
  redistribute_all(&two, 6, 24, IN_ZIGZAG);
  for (int rows = 1; rows <= 12; rows++) redistribute_all(&two, rows, 6, OWNERS); // padding in the outermost dim
}

static int steps_of(const Mesh *m, int64_t rows, int64_t columns, Placement from, Placement to,
                    RedistributeStep *steps) {
  Error error = {0};
  Shape shape = shape_of(2, (int64_t[]){rows, columns}, (DimName[]){DIM_VOCAB, DIM_EMBED});
  int n = redistribute_steps(m, &shape, &from, &to, steps, &error);
  assert_true(n > 0 && n <= MAX_REDISTRIBUTE_STEPS && placement_equal(&steps[n - 1].to, &to));
  return n;
}

// An axis that moves from the end of one dim's list to the end of another's is one all_to_all, several that move in the
// mesh's order are, too. What cannot move, since dims do not divide or each waits for the other, is gathered.
static void axes_move_between_dims(void **state) {
  Mesh m = small_mesh(2, 3, 2);
  RedistributeStep s[MAX_REDISTRIBUTE_STEPS];
#define FROM_TO(...) ((Placement){.rank = 2, .dim = {__VA_ARGS__}})
  int n = steps_of(&m, 12, 12, FROM_TO({1, {1}, 0}), FROM_TO({0}, {1, {1}, 0}), s);
  assert_true(n == 1 && s[0].op == OP_ALL_TO_ALL && s[0].axes == 2 && s[0].dim == 1 && s[0].dim2 == 0);
  n = steps_of(&m, 12, 12, FROM_TO({0}, {2, {2, 1}, 0}), FROM_TO({1, {1}, 0}, {1, {2}, 0}), s);
  assert_true(n == 1 && s[0].op == OP_ALL_TO_ALL && s[0].axes == 2 && s[0].dim == 0 && s[0].dim2 == 1);
  n = steps_of(&m, 12, 12, FROM_TO({3, {2, 0, 1}, 0}), FROM_TO({1, {2}, 0}, {2, {0, 1}, 0}), s); // one group
  assert_true(n == 1 && s[0].op == OP_ALL_TO_ALL && s[0].axes == 3);
  n = steps_of(&m, 12, 12, FROM_TO({2, {0, 1}, 0}), FROM_TO({0}, {2, {1, 0}, 0}), s); // the other order: one each
  assert_true(n == 2 && s[0].op == OP_ALL_TO_ALL && s[0].axes == 2 && s[1].op == OP_ALL_TO_ALL && s[1].axes == 1);
  n = steps_of(&m, 12, 12, FROM_TO({2, {1, 0}, 0}), FROM_TO({0}, {2, {1, 0}, 0}),
               s); // a group's ranks are a's, then b's
  assert_true(n > 1 && s[0].op == OP_ALL_GATHER);
  n = steps_of(&m, 12, 12, FROM_TO({2, {1, 0}, 0}), FROM_TO({0}, {1, {1}, 0}), s); // what is gathered goes first
  assert_true(n == 2 && s[0].op == OP_ALL_GATHER && s[0].axes == 1 && s[1].op == OP_ALL_TO_ALL);
  n = steps_of(&m, 12, 12, FROM_TO({1, {0}, 0}, {1, {1}, 0}), FROM_TO({1, {1}, 0}, {1, {0}, 0}), s); // change places
  assert_true(n == 3 && s[0].op == OP_ALL_GATHER && s[1].op == OP_ALL_TO_ALL && s[2].op == OP_SLICE);
  n = steps_of(&m, 11, 12, FROM_TO({1, {1}, 0}), FROM_TO({0}, {1, {1}, 0}), s); // 11 rows over 3 ranks
  assert_true(n == 2 && s[0].op == OP_ALL_GATHER && s[1].op == OP_SLICE);
  n = steps_of(&m, 12, 12, FROM_TO({1, {1}, 1}), FROM_TO({0}, {1, {1}, 0}), s); // zigzag
  assert_true(n == 1 && s[0].op == OP_ALL_TO_ALL);
#undef FROM_TO
}

// A sum that ends up sharded by the same axis moves half: it is scattered, not reduced and then cut.
static void sums_are_scattered(void **state) {
  Mesh m = small_mesh(2, 3, 4);
  Shape shape = shape_of(2, (int64_t[]){12, 12}, (DimName[]){DIM_VOCAB, DIM_EMBED});
  Placement from = {.rank = 2, .partial = 3}, to = {.rank = 2, .dim = {{2, {1, 0}, 0}}};
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  Error error = {0};
  assert_int_equal(redistribute_steps(&m, &shape, &from, &to, steps, &error), 2);
  assert_true(steps[0].op == OP_REDUCE_SCATTER && steps[0].axes == 2 && steps[1].op == OP_REDUCE_SCATTER &&
              steps[1].axes == 1);
}

// A sum that one rank is to own goes to it alone and comes back from it; the other axes' sums are the owners' among
// themselves.
static void sums_are_reduced_to_an_owner(void **state) {
  Mesh m = small_mesh(2, 3, 4);
  Shape shape = shape_of(2, (int64_t[]){12, 12}, (DimName[]){DIM_VOCAB, DIM_EMBED});
  Placement from = {.rank = 2, .partial = 7}, to = {.rank = 2, .owner_axes = 2, .owner = 2}, whole = {.rank = 2},
            other = to;
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  Error error = {0};
  assert_int_equal(redistribute_steps(&m, &shape, &from, &to, steps, &error), 2);
  assert_true(steps[0].op == OP_REDUCE_TO && steps[0].axes == 2 && steps[0].root == 2 && steps[0].to.partial == 5);
  assert_true(steps[1].op == OP_ALL_REDUCE && steps[1].axes == 5 && steps[1].to.owner_axes == 2);
  assert_int_equal(redistribute_steps(&m, &shape, &to, &whole, steps, &error), 1);
  assert_true(steps[0].op == OP_BROADCAST && steps[0].axes == 2 && steps[0].root == 2);
  assert_int_equal(redistribute_steps(&m, &shape, &whole, &to, steps, &error), 1);
  assert_int_equal(steps[0].op, OP_SLICE); // no communication
  other.owner = 1;
  assert_int_equal(redistribute_steps(&m, &shape, &to, &other, steps, &error), PLAIT_INFEASIBLE);
}

static void one_owner_of_a_group(void **state) {
  Mesh m = small_mesh(2, 3, 2);
  Placement p = {.rank = 1, .dim = {{1, {2}, 0}}, .owner_axes = 3, .owner = 4}; // a 1, b 1
  char text[80];
  int here = 0, primary = 0;
  for (int r = 0; r < m.ranks; r++) {
    int is = placement_here(&m, &p, r);
    IndexMap map = placement_map(&m, &p, 0, 5, r);
    assert_int_equal(is, mesh_coordinate(&m, r, 0) == 1 && mesh_coordinate(&m, r, 1) == 1);
    assert_true(map.local == 3 && (is ? map.valid == (mesh_coordinate(&m, r, 2) ? 2 : 3) : map.valid == 0));
    here += is;
  }
  assert_int_equal(here, 2);
  m.axis[0].role = AXIS_PIPELINE; // as placement_primary needs
  for (int r = 0; r < m.ranks; r++) primary += placement_primary(&m, &p, r, NULL);
  assert_int_equal(primary, 2);
  placement_text(&m, &p, NULL, text, sizeof text);
  assert_string_equal(text, "0:c owner:a,b=4");
}

// Rules and layouts --------------------------------------------------------------------------------------------------

static void rules_are_parsed(void **state) {
  Graph *g = graph_create();
  Arena arena = {0};
  DimName bse[] = {DIM_BATCH, DIM_SEQ, DIM_EMBED}, fe[] = {DIM_FFN, DIM_EMBED}, ve[] = {DIM_VOCAB, DIM_EMBED};
  int x = graph_input(g, "x", DTYPE_F32, shape_of(3, (int64_t[]){4, 6, 8}, bse)),
      w = graph_input(g, "w", DTYPE_F32, shape_of(2, (int64_t[]){10, 8}, fe));
  int v = graph_input(g, "v", DTYPE_F32, shape_of(2, (int64_t[]){11, 8}, ve)),
      targets = graph_input(g, "t", DTYPE_I32, shape_of(2, (int64_t[]){4, 6}, bse));
  int y = op_matmul(g, "y", x, w, 1), z = op_add(g, "z", (int[]){x, x, x}, 3);
  int loss = op_linear_cross_entropy(g, "loss", z, v, targets, graph_input(g, "s", DTYPE_F64, (Shape){0}), 1);
  const Node *node = g->node.data;
  Rule r = rule_of(&arena, g, &node[graph_tensor(g, y)->producer]);
  assert_true(r.ninput == 2 && r.noutput == 1 && !r.whole && !r.lower && r.linear[0] == 1 && r.linear[1] == 2);
  int8_t *a = r.input[0], *b = r.input[1], *c = r.output[0];
  assert_true(a[0] == c[0] && a[1] == c[1] && a[2] == b[1] && b[0] == c[2] && a[0] != a[1] && a[2] != b[0]);
  assert_true(r.size[(int)a[0]] == 4 && r.size[(int)a[1]] == 6 && r.size[(int)a[2]] == 8 && r.size[(int)b[0]] == 10);
  r = rule_of(&arena, g, &node[graph_tensor(g, z)->producer]);
  assert_true(r.linear[0] && r.linear[0] == r.linear[1] && r.linear[1] == r.linear[2]); // partial only all together
  r = rule_of(&arena, g, &node[graph_tensor(g, loss)->producer]);
  uint32_t vocab = 1u << r.input[1][0], embed = 1u << r.input[1][1];
  assert_true(r.noutput == 3 && r.lower == vocab && r.whole == embed && r.complete[0] == vocab && !r.complete[1] &&
              !r.complete[2]);
  for (int k = 0; k < 4; k++) assert_int_equal(r.linear[k], 0);
  arena_free(&arena);
  graph_destroy(g);
}

// Cut axes keep their ranks in order, and their names say of which axis they are.
static void axes_are_cut_in_two(void **state) {
  Mesh m = mesh_create(3, (const char *[]){"pp", "dp", "tp"}, (int[]){2, 6, 4});
  int axes[MAX_AXES];
  mesh_cut(&m, AXIS_TP, AXIS_TP_GROUP, 2);
  mesh_cut(&m, AXIS_DP, AXIS_REPLICA, 3);
  mesh_cut(&m, AXIS_PP, AXIS_REPLICA, 1); // nothing to cut
  static const struct { const char *name; AxisId of; int size; AxisRole role; } expected[] = {
      {"pp", AXIS_PP, 2, AXIS_PIPELINE}, {"replica", AXIS_DP, 3, AXIS_DATA}, {"dp", AXIS_DP, 2, AXIS_DATA},
      {"tp", AXIS_TP, 2, AXIS_TENSOR},   {"tp_group", AXIS_TP, 2, AXIS_TENSOR},
  };
  assert_true(m.naxis == 5 && m.ranks == 48);
  for (int a = 0; a < 5; a++) {
    assert_string_equal(m.axis[a].name, expected[a].name);
    assert_int_equal(m.axis[a].of, expected[a].of);
    assert_int_equal(axis_whole(m.axis[a].id), expected[a].of);
    assert_true(m.axis[a].size == expected[a].size && m.axis[a].role == expected[a].role);
  }
  assert_true(mesh_axes_of(&m, AXIS_DP, axes) == 2 && axes[0] == 1 && axes[1] == 2);
  assert_true(mesh_axes_of(&m, AXIS_TP, axes) == 2 && axes[0] == 3 && axes[1] == 4);
  assert_int_equal(mesh_axes_of(&m, AXIS_REPLICA, axes), 0);
}

static void standard_layout(void **state) {
  Mesh m = mesh_create(4, (const char *[]){"pp", "dp", "cp", "tp"}, (int[]){2, 2, 1, 2});
  LayoutTable table = layout_shipped(LAYOUT_SHIPPED_TENSOR);
  Layout l = layout_from_table(&table, &m);
  assert_true(layout_data_axes(&l) == 2);
  Shape weight = shape_of(3, (int64_t[]){4, 8, 16}, (DimName[]){DIM_KV_HEADS, DIM_HEAD_DIM, DIM_EMBED});
  Shape stream = shape_of(3, (int64_t[]){4, 8, 16}, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_EMBED});
  char text[80];
  Placement p = layout_placement(&l, &m, ROLE_WEIGHT, &weight);
  placement_text(&m, &p, &weight, text, sizeof text);
  assert_string_equal(text, "kv_heads:tp");
  p = layout_placement(&l, &m, ROLE_RESIDUAL, &stream);
  placement_text(&m, &p, &stream, text, sizeof text);
  assert_string_equal(text, "batch:dp");
  m.axis[3].size = 1; // axes of one rank are left out
  p = layout_placement(&l, &m, ROLE_WEIGHT, &weight);
  assert_int_equal(placement_axes(&p), 0);
  p = (Placement){.rank = 2, .dim = {{2, {1, 3}, 0}}, .partial = 1};
  placement_text(&m, &p, NULL, text, sizeof text);
  assert_string_equal(text, "0:dp,tp partial:pp");
  p = (Placement){.rank = 2, .dim = {{0}, {2, {2, 3}, 1}}};
  placement_text(&m, &p, NULL, text, sizeof text);
  assert_string_equal(text, "1:cp~,tp");
  char little[8];
  placement_text(&m, &p, NULL, little, sizeof little);
  assert_true(strlen(little) < sizeof little);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_are_coordinates),
      cmocka_unit_test(groups_take_coordinates_of_pp),
      cmocka_unit_test(shards_cover_a_dim_once),
      cmocka_unit_test(zigzag_covers_a_dim_once),
      cmocka_unit_test(shifted_blocks_are_their_sources), cmocka_unit_test(fixed_blocks_are_their_roots),
      cmocka_unit_test(one_rank_of_each_shard_is_primary),
      cmocka_unit_test(every_pair_of_placements),
      cmocka_unit_test(axes_move_between_dims),
      cmocka_unit_test(sums_are_scattered),
      cmocka_unit_test(sums_are_reduced_to_an_owner),
      cmocka_unit_test(one_owner_of_a_group),
      cmocka_unit_test(rules_are_parsed),
      cmocka_unit_test(axes_are_cut_in_two),
      cmocka_unit_test(standard_layout),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
