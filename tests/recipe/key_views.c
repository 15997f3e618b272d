// How Programs show the mesh, what is stored where, and how tensors, positions and experts are divided.
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "key_views.h"
#include "program/traffic.h"
#include "sharding/placement.h"

Shown number(View *v, const char *value, int there) {
  snprintf(v->says, sizeof v->says, "%d", there);
  return atoi(value) == there ? AS_ASKED : ANOTHER;
}

Shown word(View *v, const char *value, const char *there) {
  snprintf(v->says, sizeof v->says, "%s", there);
  return !strcmp(value, there) ? AS_ASKED : ANOTHER;
}

Shown truth(View *v, const char *value, int there) { return word(v, value, there ? "true" : "false"); }

uint32_t axes_with(const Mesh *mesh, AxisRole role) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].role == role) axes |= 1u << a;
  return axes;
}

uint32_t axes_of_part(const Mesh *mesh, AxisId part) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].id == part) axes |= 1u << a;
  return axes;
}

// All axes that cut anything: a Variable, a Copy, a tensor; or over which it is a sum or has one owner.
static uint32_t axes_in_use(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    axes |= placement_axes(x->storage) | x->storage->owner_axes | x->storage->partial;
  }
  for (int i = 0; i < v->g->tensor.count; i++) {
    const Placement *p = v->g->tensor.data[i].placement;
    if (p) axes |= placement_axes(p) | p->owner_axes | p->partial;
  }
  return axes;
}

int dim_of(const Shape *s, DimName dim) {
  for (int d = 0; d < s->rank; d++)
    if (s->dim[d] == dim) return d;
  return -1;
}

// Ranks by which MICRO's tokens are cut, of the axes of a role; their shard must be as small as that.
static int token_ranks(const View *v, DimName dim, AxisRole role, uint32_t *axes) {
  for (int i = 0; i < v->g->input.count; i++) {
    if (v->g->input.data[i].id != INPUT_TOKENS) continue;
    const Tensor *t = graph_tensor(v->g, v->g->input.data[i].tensor);
    int d = dim_of(&t->shape, dim);
    const AxisList *cut = &t->placement->dim[d];
    assert_int_equal(tensor_local(v->g, t)[d] * axis_list_shards(v->mesh, cut), t->shape.size[d]);
    *axes = axis_list_axes(cut) & axes_with(v->mesh, role);
    return mesh_size(v->mesh, *axes);
  }
  fail_msg("no tokens");
  return 0;
}

int all_pipeline_ranks(const View *v) { return v->p->schedule->map.coordinates; }

// The axes over which a step moves anything, on any pipeline rank.
static uint32_t axes_that_move(const View *v) {
  uint32_t axes = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) {
    TrafficList list = {0};
    program_traffic(job_train(v->c->job)->program[k], &list);
    for (int i = 0; i < list.count; i++)
      if (list.data[i].bytes > 0) axes |= list.data[i].axes;
    vec_free(&list);
  }
  return axes;
}

// A number of ranks of an axis, or of parts of it; over all of which something must move.
static Shown ranks(View *v, const char *value, int there, uint32_t axes) {
  for (int a = 0; a < v->mesh->naxis; a++)
    if (v->mesh->axis[a].size == 1) axes &= ~(1u << a);
  Shown result = number(v, value, there);
  if (!(axes & ~axes_that_move(v))) return result;
  snprintf(v->says, sizeof v->says, "%d ranks, over some of which nothing moves", there);
  return ANOTHER;
}

Shown shows_pp(View *v, const char *value) {
  int busy = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) {
    const ActionList *list = &v->p->schedule->list[k];
    int forward = 0;
    for (int i = 0; i < list->count; i++) forward |= list->data[i].kind == ACTION_FORWARD;
    busy += forward;
  }
  return ranks(v, value, busy, 1u << mesh_pipeline(v->mesh));
}

Shown shows_dp(View *v, const char *value) {
  uint32_t axes;
  int there = token_ranks(v, DIM_BATCH, AXIS_DATA, &axes);
  return ranks(v, value, there, axes);
}

Shown shows_cp(View *v, const char *value) {
  uint32_t axes;
  int there = token_ranks(v, DIM_SEQ, AXIS_CONTEXT, &axes);
  return ranks(v, value, there, axes);
}

Shown shows_tp(View *v, const char *value) {
  uint32_t axes = axes_in_use(v) & axes_with(v->mesh, AXIS_TENSOR);
  return ranks(v, value, mesh_size(v->mesh, axes), axes);
}

// ---- storage

// Of the axes that ranks share weights over, those over which a Variable is divided, by shards or among owners.
static uint32_t divided(const View *v, const Placement *p) {
  return (placement_axes(p) | p->owner_axes) &
         (axes_with(v->mesh, AXIS_DATA) | axes_with(v->mesh, AXIS_CONTEXT));
}

static uint32_t divided_parameters(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++)
    if (v->g->variable.data[i].kind == VARIABLE_PARAMETER && v->g->variable.data[i].parameter == i &&
        dim_of(&v->g->variable.data[i].shape, DIM_EXPERT) < 0)
      axes |= divided(v, v->g->variable.data[i].storage);
  return axes;
}

static uint32_t divided_copies(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_PARAMETER || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    axes |= divided(v, variable_placement(x, x->copies ? 0 : -1));
  }
  return axes;
}

// -1: there are no accumulators.
static int gradients_are_divided(const View *v) {
  int found = -1;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_GRADIENT || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    found = (found > 0) | (divided(v, x->storage) != 0);
  }
  return found;
}

int ranks_that_share(const View *v) {
  return mesh_size(v->mesh, axes_with(v->mesh, AXIS_DATA) | axes_with(v->mesh, AXIS_CONTEXT));
}

Shown shows_zero(View *v, const char *value) {
  int stage = atoi(value), gradients = gradients_are_divided(v),
      resident = !is_asked(v->asked, "parallel.reshard", "true");
  if (ranks_that_share(v) == 1) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "parameters are %sdivided, gradients %s, what computes %s",
           divided_parameters(v) ? "" : "not ", gradients < 0 ? "not there" : gradients ? "divided" : "whole",
           divided_copies(v) ? "divided" : "whole");
  if ((stage > 0) != (divided_parameters(v) != 0)) return ANOTHER;
  if ((stage > 2 && !resident) != (divided_copies(v) != 0)) return ANOTHER;
  if (gradients < 0 || is_asked(v->asked, "parallel.accumulate", "local")) return AS_ASKED;
  return (stage > 1) == gradients ? AS_ASKED : ANOTHER;
}

Shown shows_reshard(View *v, const char *value) {
  if (ranks_that_share(v) == 1 || !is_asked(v->asked, "parallel.zero", "3")) return NOTHING_TO_SEE;
  return truth(v, value, divided_copies(v) != 0);
}

Shown shows_shard_group(View *v, const char *value) {
  uint32_t data = axes_with(v->mesh, AXIS_DATA);
  int all = mesh_size(v->mesh, data), there = mesh_size(v->mesh, divided_parameters(v) & data);
  if (all == 1 || is_asked(v->asked, "parallel.zero", "0")) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "groups of %d, of %d data ranks", there, all);
  return there == (atoi(value) ? atoi(value) : all) ? AS_ASKED : ANOTHER;
}

Shown shows_unsplit(View *v, const char *value) {
  int owned = 0, cut = 0;
  if (ranks_that_share(v) == 1 || is_asked(v->asked, "parallel.zero", "0")) return NOTHING_TO_SEE;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_PARAMETER || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    owned += x->storage->owner_axes != 0;
    cut += (placement_axes(x->storage) & divided(v, x->storage)) != 0;
  }
  snprintf(v->says, sizeof v->says, "%d parameters have owners, %d are cut", owned, cut);
  return strcmp(value, "true") ? (!owned && cut ? AS_ASKED : ANOTHER) : (owned && !cut ? AS_ASKED : ANOTHER);
}

Shown shows_grad_dtype(View *v, const char *value) {
  for (int i = 0; i < v->g->variable.count; i++)
    if (v->g->variable.data[i].kind == VARIABLE_GRADIENT)
      return word(v, value, dtype_name(v->g->variable.data[i].dtype));
  return NOTHING_TO_SEE;
}

Shown shows_accumulate(View *v, const char *value) {
  int gradients = gradients_are_divided(v);
  if (gradients < 0 || ranks_that_share(v) == 1 || asked_int(v->asked, "parallel.zero") < 2) return NOTHING_TO_SEE;
  return word(v, value, gradients ? "reduced" : "local");
}

Shown shows_update(View *v, const char *value) {
  int in_backward = 0, at_end = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (!op_def(n->op)->optimizer) continue;
    in_backward += n->region == REGION_MICRO && n->phase != PHASE_FORWARD;
    at_end += n->region == REGION_END;
  }
  assert_true(in_backward + at_end > 0);
  return word(v, value, in_backward ? "in_backward" : "end");
}

// ---- tensors

// The axes that cut the stream between blocks in MICRO; in a dim, or in any (DIM_NONE).
static uint32_t stream_axes(const View *v, DimName dim) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->tensor.count; i++) {
    const Tensor *t = &v->g->tensor.data[i];
    if (t->role != ROLE_RESIDUAL || !t->placement || t->producer < 0) continue;
    if (v->g->node.data[t->producer].region != REGION_MICRO || op_def(v->g->node.data[t->producer].op)->communicates)
      continue;
    for (int d = 0; d < t->shape.rank; d++)
      if (dim == DIM_NONE || t->shape.dim[d] == dim) axes |= axis_list_axes(&t->placement->dim[d]);
  }
  return axes;
}

// The axes of tp that cut storage of matrices.
static uint32_t matrix_axes(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind == VARIABLE_PARAMETER && x->shape.rank > 1) axes |= placement_axes(x->storage);
  }
  return axes & axes_with(v->mesh, AXIS_TENSOR);
}

Shown shows_sequence(View *v, const char *value) {
  uint32_t tp = axes_with(v->mesh, AXIS_TENSOR);
  if (mesh_size(v->mesh, tp) == 1 || !is_asked(v->asked, "parallel.tensor", "1d")) return NOTHING_TO_SEE;
  return truth(v, value, mesh_size(v->mesh, stream_axes(v, DIM_SEQ) & tp) > 1);
}

static int part_ranks(const View *v, AxisId part) { return mesh_size(v->mesh, axes_of_part(v->mesh, part)); }

Shown shows_tensor(View *v, const char *value) {
  uint32_t row = axes_of_part(v->mesh, AXIS_TP_ROW), depth = axes_of_part(v->mesh, AXIS_TP_DEPTH),
           samples = stream_axes(v, DIM_BATCH), matrices = matrix_axes(v);
  const char *there = !row && !depth                                ? "1d"
                      : (samples & row) && !depth                   ? "2d"
                      : (samples & depth) && !(matrices & depth)    ? "2.5d"
                      : (samples & depth) && (matrices & depth)     ? "3d"
                                                                    : "something else";
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_TENSOR)) == 1) return NOTHING_TO_SEE;
  if (strcmp(there, "1d") && strcmp(there, "2.5d") && (matrices & row) != row) there = "rows that cut no matrix";
  if (!strcmp(value, "2.5d") && is_asked(v->asked, "parallel.depth", "1")) value = "2d"; // which it is then
  return word(v, value, there);
}

Shown shows_rows(View *v, const char *value) {
  uint32_t row = axes_of_part(v->mesh, AXIS_TP_ROW);
  return number(v, value, mesh_size(v->mesh, stream_axes(v, DIM_BATCH) & row));
}

Shown shows_depth(View *v, const char *value) {
  uint32_t depth = axes_of_part(v->mesh, AXIS_TP_DEPTH);
  return number(v, value, mesh_size(v->mesh, stream_axes(v, DIM_BATCH) & depth));
}

Shown shows_summa(View *v, const char *value) {
  int blocks = 0;
  if (part_ranks(v, AXIS_TP_ROW) == 1) return NOTHING_TO_SEE;
  for (int i = 0; i < v->g->node.count; i++)
    if (v->g->node.data[i].op == OP_BROADCAST && v->g->node.data[i].region == REGION_MICRO)
      blocks += graph_tensor(v->g, v->g->node.data[i].output[0])->placement->fixed_axes != 0;
  return truth(v, value, blocks > 0);
}

// ---- context

static uint32_t context_collectives(const View *v, CommKind kind, int gathers) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    const OpDef *op = op_def(n->op);
    if (n->region != REGION_MICRO || n->layer < 0 || n->layer >= v->g->layers || !op->communicates)
      continue;
    const Tensor *t = graph_tensor(v->g, n->input[0]);
    if (t->variable < 0 && t->role == ROLE_INTERIOR && (gathers ? op_comm(op)->gathers : op->comm == kind))
      axes |= node_attr(n, CommAttr)->axes;
  }
  return axes & axes_with(v->mesh, AXIS_CONTEXT);
}

Shown shows_context(View *v, const char *value) {
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_CONTEXT)) == 1) return NOTHING_TO_SEE;
  return word(v, value,
              context_collectives(v, COMM_SHIFT, 0)      ? "ring"
              : context_collectives(v, COMM_ALL_TO_ALL, 0) ? "ulysses"
              : context_collectives(v, COMM_ALL_GATHER, 1)   ? "gather"
                                                    : "none");
}

Shown shows_ulysses(View *v, const char *value) {
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_CONTEXT)) == 1) return NOTHING_TO_SEE;
  return number(v, value, mesh_size(v->mesh, context_collectives(v, COMM_ALL_TO_ALL, 0)));
}

// The axes over which rows go to experts and back.
static uint32_t row_axes(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->node.count; i++)
    if (node_calls(&v->g->node.data[i], COMM_ALL_TO_ALL_V))
      axes |= node_attr(&v->g->node.data[i], const ExchangeAttr)->comm.axes;
  return axes;
}

// The ranks that experts are divided over, as their product reads them. Rows move over those of these axes that divide
// the tokens, and over no others.
Shown shows_ep(View *v, const char *value) {
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (n->op != OP_GROUPED || n->region != REGION_MICRO) continue;
    for (int k = 0; k < n->ninput; k++) {
      const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(v->g, n->input[k]);
      if (!t || t->role != ROLE_WEIGHT || t->shape.rank < 2 || t->shape.dim[0] != DIM_EXPERT) continue;
      const AxisList *cut = &t->placement->dim[0];
      assert_int_equal(tensor_local(v->g, t)[0] * axis_list_shards(v->mesh, cut), t->shape.size[0]);
      Shown result = number(v, value, axis_list_shards(v->mesh, cut));
      uint32_t experts = axis_list_axes(cut), samples, positions, move = row_axes(v);
      token_ranks(v, DIM_BATCH, AXIS_DATA, &samples);
      token_ranks(v, DIM_SEQ, AXIS_CONTEXT, &positions);
      if (!(move & ~experts) && !(experts & (samples | positions) & ~move)) return result;
      snprintf(v->says, sizeof v->says, "%d ranks, but rows move over others", axis_list_shards(v->mesh, cut));
      return ANOTHER;
    }
  }
  return NOTHING_TO_SEE;
}
