// Placement → placement as a list of collectives.
#include "sharding/redistribute.h"
#include "base/fault.h"
#include <string.h>

// Appends a step; MAX_REDISTRIBUTE_STEPS is more than the axes that all dims together can have twice over.
static void append(RedistributeStep *steps, int *n, Op op, uint32_t axes, int dim, const Placement *to) {
  CHECK(*n < MAX_REDISTRIBUTE_STEPS);
  steps[(*n)++] = (RedistributeStep){op, axes, dim, 0, *to};
}

// Appends a sum to the owner of `owned`, or a broadcast from it; `now` becomes what the step leaves.
static void append_rooted(RedistributeStep *steps, int *n, int to_owner, const Placement *owned, Placement *now) {
  now->owner_axes = to_owner ? owned->owner_axes : 0;
  now->owner = to_owner ? owned->owner : 0;
  append(steps, n, to_owner ? OP_REDUCE_TO : OP_BROADCAST, owned->owner_axes, -1, now);
  steps[*n - 1].root = owned->owner;
}

// The dim on which summing over `axis` may scatter: there the target goes on with this axis. -1: none.
static int scatter_dim(const Placement *now, const Placement *to, int axis) {
  for (int d = 0; d < now->rank; d++) {
    const AxisList *a = &now->dim[d], *b = &to->dim[d];
    if (b->n > a->n && axis_list_prefix(a, b) == a->n && b->axis[a->n] == axis) return d;
  }
  return -1;
}

int redistribute_steps(const Placement *from, const Placement *to, RedistributeStep *steps, Error *error) {
  if (to->partial & ~from->partial)
    return error_set(error, PLAIT_INFEASIBLE, "a complete tensor cannot become a partial sum");
  if (from->shift != to->shift || from->shift_axis != to->shift_axis)
    return error_set(error, PLAIT_INFEASIBLE, "a block on its way around a ring cannot be redistributed");
  int n = 0, moves = !placement_same_owner(from, to);
  if (moves && from->owner_axes && to->owner_axes)
    return error_set(error, PLAIT_INFEASIBLE, "what one rank owns cannot go to another owner");
  Placement now = *from;
  uint32_t sums = from->partial & ~to->partial;
  for (int progress = 1; progress;) {
    progress = 0;
    for (int a = 0; a < MAX_AXES; a++) {
      int d = sums >> a & 1 ? scatter_dim(&now, to, a) : -1;
      if (d < 0) continue;
      UNLESS_FAULT(collective_sums_twice) sums &= ~(1u << a);
      now.partial &= ~(1u << a);
      axis_list_take(&now.dim[d], &to->dim[d], now.dim[d].n);
      append(steps, &n, OP_REDUCE_SCATTER, 1u << a, d, &now);
      progress = 1;
    }
  }
  if (moves && to->owner_axes && !(to->owner_axes & ~sums)) {
    sums &= ~to->owner_axes;
    now.partial &= ~to->owner_axes;
    append_rooted(steps, &n, 1, to, &now);
  }
  if (sums) {
    now.partial &= ~sums;
    append(steps, &n, OP_ALL_REDUCE, sums, -1, &now);
  }
  if (moves && from->owner_axes) append_rooted(steps, &n, 0, from, &now);
  for (int d = 0; d < now.rank; d++)
    while (now.dim[d].n > axis_list_prefix(&now.dim[d], &to->dim[d])) {
      int a = axis_list_pop(&now.dim[d]);
      append(steps, &n, OP_ALL_GATHER, 1u << a, d, &now);
    }
  for (int d = 0; d < now.rank; d++)
    while (now.dim[d].n < to->dim[d].n) {
      int a = to->dim[d].axis[now.dim[d].n];
      axis_list_take(&now.dim[d], &to->dim[d], now.dim[d].n);
      append(steps, &n, OP_SLICE, 1u << a, d, &now);
    }
  if (!placement_same_owner(&now, to)) { // all have it; only one keeps it
    now.owner_axes = to->owner_axes;
    now.owner = to->owner;
    append(steps, &n, OP_SLICE, to->owner_axes, -1, &now);
  }
  return n;
}
