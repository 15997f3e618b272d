// Placement → placement as a list of collectives.
#include "sharding/redistribute.h"
#include "base/fault.h"
#include <string.h>

// Appends a step; MAX_REDISTRIBUTE_STEPS is more than the axes that all dims together can have twice over.
static void append(RedistributeStep *steps, int *n, Op op, uint32_t axes, int dim, const Placement *to) {
  CHECK(*n < MAX_REDISTRIBUTE_STEPS);
  steps[(*n)++] = (RedistributeStep){op, axes, dim, -1, 0, *to};
}

// The owner's number among the ranks of some of its axes only.
static int owner_on(const Mesh *mesh, const Placement *owned, uint32_t axes) {
  int index = owned->owner, number = 0, step = 1;
  for (int a = mesh->naxis - 1; a >= 0; a--) {
    if (!(owned->owner_axes >> a & 1)) continue;
    if (axes >> a & 1) {
      number += index % mesh->axis[a].size * step;
      step *= mesh->axis[a].size;
    }
    index /= mesh->axis[a].size;
  }
  return number;
}

int placements_apart(const Mesh *mesh, const Placement *a, const Placement *b) {
  uint32_t both = a->owner_axes & b->owner_axes;
  return both && owner_on(mesh, a, both) != owner_on(mesh, b, both);
}

// Whether the one owner is among the ranks that are the other's: it is one on more axes, and agrees on those of both.
static int owner_within(const Mesh *mesh, const Placement *narrow, const Placement *wide) {
  return !(wide->owner_axes & ~narrow->owner_axes) && owner_on(mesh, narrow, wide->owner_axes) == wide->owner;
}

// `now` is owned as `owned` is, as far as these axes go.
static void own(const Mesh *mesh, const Placement *owned, uint32_t axes, Placement *now) {
  now->owner_axes = axes;
  now->owner = owner_on(mesh, owned, axes);
}

// Appends a step between the owner and all ranks of `axes`, after which only the ranks of `left` own it.
static void append_rooted(const Mesh *mesh, RedistributeStep *steps, int *n, Op op, uint32_t axes, int dim,
                          const Placement *owned, uint32_t left, Placement *now) {
  own(mesh, owned, left, now);
  append(steps, n, op, axes, dim, now);
  steps[*n - 1].root = FAULT(owner_is_the_first, owner_on(mesh, owned, axes), 0);
}

// The dim on which summing over `axis` may scatter: there the target has this axis next. -1: none.
static int scatter_dim(const Placement *now, const Placement *to, int axis) {
  for (int d = 0; d < now->rank; d++) {
    const AxisList *a = &now->dim[d], *b = &to->dim[d];
    if (b->n > a->n && axis_list_prefix(a, b) == a->n && b->axis[a->n] == axis) return d;
  }
  return -1;
}

// Whether a sum that is scattered on dim d over the axis is padded there while dims before it still have several
// elements, so that the padding lies between the data. It waits until these dims have been scattered.
static int pads_inside(const Mesh *mesh, const Shape *shape, const Placement *now, int d, int axis) {
  int64_t before = 1;
  for (int i = 0; i < d; i++) before *= axis_list_local(mesh, &now->dim[i], shape->size[i]);
  return before > 1 && axis_list_local(mesh, &now->dim[d], shape->size[d]) % mesh->axis[axis].size;
}

// The number of axes at the end of dim `from`'s list that come next in the target's dim `to`: one, or several that
// stand in the mesh's order, which is that of a group's ranks. 0: it does not, or it cannot be one all_to_all, since a
// dim does not divide or one of several axes cuts in zigzag.
static int axes_that_move(const Mesh *mesh, const Shape *shape, const Placement *now, const Placement *target, int from,
                          int to) {
  const AxisList *a = &now->dim[from], *b = &now->dim[to], *goal = &target->dim[to];
  int most = a->n - axis_list_prefix(a, &target->dim[from]);
  if (from == to || axis_list_prefix(b, goal) != b->n) return 0;
  for (int n = most < goal->n - b->n ? most : goal->n - b->n; n; n--) {
    AxisList rest = *a, more = *b;
    int fits = 1, zigzag = 0;
    for (int i = 0; i < n; i++) {
      int axis = a->axis[a->n - n + i];
      fits &= axis == goal->axis[b->n + i] && (!i || axis > a->axis[a->n - n + i - 1]);
      zigzag |= a->zigzag == a->n - n + i + 1 || goal->zigzag == b->n + i + 1;
      axis_list_pop(&rest);
      axis_list_take(&more, goal, b->n + i);
    }
    if (!fits || (zigzag && n > 1)) continue;
    int64_t left = axis_list_local(mesh, &rest, shape->size[from]), before = axis_list_local(mesh, b, shape->size[to]),
            parts = axis_list_shards(mesh, a) / axis_list_shards(mesh, &rest);
    if (left % parts == 0 && before % (goal->zigzag == b->n + 1 ? 2 * parts : parts) == 0) return n;
  }
  return 0;
}

// Appends the all_to_all of the first axes that can move from one dim to another. 0: there are none.
static int append_move(const Mesh *mesh, const Shape *shape, Placement *now, const Placement *target,
                       RedistributeStep *steps, int *n) {
  for (int from = 0; from < now->rank; from++)
    for (int to = 0; to < now->rank; to++) {
      uint32_t axes = 0;
      int count = axes_that_move(mesh, shape, now, target, from, to);
      for (int i = 0; i < count; i++) {
        axes |= 1u << axis_list_pop(&now->dim[from]);
        axis_list_take(&now->dim[to], &target->dim[to], now->dim[to].n);
      }
      if (!count) continue;
      append(steps, n, OP_ALL_TO_ALL, axes, to, now);
      steps[*n - 1].dim2 = from;
      return 1;
    }
  return 0;
}

// The dim whose innermost axis is gathered next: one with an axis that the target has nowhere, if there is, so that
// others may still move; inner dims before outer ones, since storage may be padded where all dims before it are cut to
// single elements (compile/zero.c). -1: none.
static int gather_dim(const Placement *now, const Placement *target) {
  int first = -1;
  for (int d = now->rank - 1; d >= 0; d--) {
    const AxisList *list = &now->dim[d];
    if (list->n == axis_list_prefix(list, &target->dim[d])) continue;
    if (!(placement_axes(target) >> list->axis[list->n - 1] & 1)) return d;
    if (first < 0) first = d;
  }
  return first;
}

// From the owner to the ranks of axes over which it owns it no longer: scattered where the target is cut over them, and
// what is left broadcast.
static void leave_owner(const Mesh *mesh, const Shape *shape, const Placement *to, Placement *now,
                        RedistributeStep *steps, int *n) {
  const Placement from = *now;
  for (int progress = 1; progress;) {
    progress = 0;
    for (int a = 0; a < MAX_AXES; a++) {
      uint32_t left = now->owner_axes & ~(1u << a);
      int d = now->owner_axes & ~to->owner_axes & 1u << a ? scatter_dim(now, to, a) : -1;
      if (d < 0 || pads_inside(mesh, shape, now, d, a)) continue;
      axis_list_take(&now->dim[d], &to->dim[d], now->dim[d].n);
      append_rooted(mesh, steps, n, OP_SCATTER_FROM, 1u << a, d, &from, left, now);
      progress = 1;
    }
  }
  uint32_t rest = now->owner_axes & ~to->owner_axes;
  if (rest) append_rooted(mesh, steps, n, OP_BROADCAST, rest, -1, &from, now->owner_axes & ~rest, now);
}

// Those of the new owner's ranks that have it, as all have it alike, keep it, before anything else is moved.
static void keep_at_owner(const Mesh *mesh, const Placement *to, uint32_t still_partial, Placement *now,
                          RedistributeStep *steps, int *n) {
  uint32_t axes = to->owner_axes & ~now->owner_axes & ~placement_axes(now) & ~still_partial;
  if (!axes) return;
  own(mesh, to, now->owner_axes | axes, now);
  append(steps, n, OP_SLICE, axes, -1, now);
}

static int flat_steps(const Mesh *mesh, const Shape *shape, const Placement *from, const Placement *to,
                      RedistributeStep *steps, Error *error) {
  if (to->partial & ~from->partial)
    return error_set(error, PLAIT_INFEASIBLE, "a complete tensor cannot become a partial sum");
  if (from->shift != to->shift || from->shift_axis != to->shift_axis)
    return error_set(error, PLAIT_INFEASIBLE, "a block on its way around a ring cannot be redistributed");
  if (from->fixed_axes != to->fixed_axes || from->fixed != to->fixed)
    return error_set(error, PLAIT_INFEASIBLE, "a block that was broadcast cannot be redistributed");
  int n = 0;
  if (!owner_within(mesh, from, to) && !owner_within(mesh, to, from))
    return error_set(error, PLAIT_INFEASIBLE, "what one rank owns cannot go to another owner");
  Placement now = *from;
  uint32_t sums = from->partial & ~to->partial;
  for (int progress = 1; progress;) {
    progress = 0;
    for (int a = 0; a < MAX_AXES; a++) {
      int d = sums >> a & 1 ? scatter_dim(&now, to, a) : -1;
      if (d < 0 || pads_inside(mesh, shape, &now, d, a)) continue;
      UNLESS_FAULT(collective_sums_twice) sums &= ~(1u << a);
      now.partial &= ~(1u << a);
      axis_list_take(&now.dim[d], &to->dim[d], now.dim[d].n);
      append(steps, &n, OP_REDUCE_SCATTER, 1u << a, d, &now);
      progress = 1;
    }
  }
  uint32_t more = to->owner_axes & ~now.owner_axes;
  if (more && !(more & ~sums)) {
    sums &= ~more;
    now.partial &= ~more;
    append_rooted(mesh, steps, &n, OP_REDUCE_TO, more, -1, to, to->owner_axes, &now);
  }
  if (sums) {
    now.partial &= ~sums;
    append(steps, &n, OP_ALL_REDUCE, sums, -1, &now);
  }
  leave_owner(mesh, shape, to, &now, steps, &n);
  keep_at_owner(mesh, to, to->partial, &now, steps, &n);
  for (;;) {
    UNLESS_FAULT(axes_never_move) while (append_move(mesh, shape, &now, to, steps, &n)) {}
    int d = gather_dim(&now, to);
    if (d < 0) break;
    int a = axis_list_pop(&now.dim[d]);
    if (to->owner_axes >> a & 1)
      append_rooted(mesh, steps, &n, OP_GATHER_TO, 1u << a, d, to, now.owner_axes | 1u << a, &now);
    else append(steps, &n, OP_ALL_GATHER, 1u << a, d, &now);
  }
  for (int d = 0; d < now.rank; d++)
    while (now.dim[d].n < to->dim[d].n) {
      int a = to->dim[d].axis[now.dim[d].n];
      axis_list_take(&now.dim[d], &to->dim[d], now.dim[d].n);
      append(steps, &n, OP_SLICE, 1u << a, d, &now);
    }
  return n;
}

static Placement without_rows(Placement p) {
  p.rows = (AxisList){0};
  p.merged = p.parts = 0;
  return p;
}

// A placement over the flat shape as one over the tensor's: as `base`, which has no rows, if it begins as that does;
// then further axes are rows. 0: it does not.
static int raise_to(const Placement *like, const Placement *base, Placement *p) {
  AxisList begin = placement_flat(base, like).dim[0], all = p->dim[0];
  if (axis_list_prefix(&begin, &all) < begin.n) return 0;
  memcpy(p->dim, base->dim, sizeof *p->dim * (size_t)like->merged);
  if (all.n == begin.n) return 1;
  p->merged = like->merged;
  p->parts = like->parts;
  for (int i = begin.n; i < all.n; i++) axis_list_take(&p->rows, &all, i);
  return 1;
}

// Steps in which rows are a dim. Both placements can be merged as `like` is.
static int row_steps(const Mesh *mesh, const Shape *shape, const Placement *like, const Placement *from,
                     const Placement *to, RedistributeStep *steps, Error *error) {
  Placement source = placement_flat(from, like), target = placement_flat(to, like), base[3] = {0};
  Shape rows = placement_flat_shape(like, shape);
  int n = flat_steps(mesh, &rows, &source, &target, steps, error), last = n - 1;
  base[0] = without_rows(*to);
  base[1] = without_rows(*from); // base[2]: all axes are rows
  for (int i = 0; i < n; i++)
    for (int b = 0; b < 3 && !raise_to(like, &base[b], &steps[i].to); b++) {}
  CHECK(last < 0 || placement_equal(&steps[last].to, to), "steps that end at another placement");
  return n;
}

int redistribute_steps(const Mesh *mesh, const Shape *shape, const Placement *from, const Placement *to,
                       RedistributeStep *steps, Error *error) {
  const Placement *like = from->merged ? from : to, *other = from->merged ? to : from;
  if (!like->merged) return flat_steps(mesh, shape, from, to, steps, error);
  if (other->merged && (other->merged != like->merged || other->parts != like->parts))
    return error_set(error, PLAIT_INFEASIBLE, "rows of one kind cannot become rows of another");
  if (placement_merges(mesh, other, shape, like->merged)) return row_steps(mesh, shape, like, from, to, steps, error);
  Placement between = without_rows(*like); // the other's dims are gathered first, or scattered last
  int first = redistribute_steps(mesh, shape, from, &between, steps, error);
  if (first < 0) return first;
  RedistributeStep rest[MAX_REDISTRIBUTE_STEPS];
  int second = redistribute_steps(mesh, shape, &between, to, rest, error);
  CHECK(first + second <= MAX_REDISTRIBUTE_STEPS);
  for (int i = 0; i < second; i++) steps[first + i] = rest[i];
  return second < 0 ? second : first + second;
}
