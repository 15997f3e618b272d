// Costs of a Program's instructions.
#include "plan/costs.h"
#include "op/op.h"
#include "program/cost.h"
#include "program/traffic.h"
#include <string.h>

static CollectiveKind kind_of(const OpDef *op) {
  if (op->rooted) return op->reduces || op->gathers ? COLLECTIVE_REDUCE : COLLECTIVE_BROADCAST;
  if (op->reduces) return op->scatters ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE;
  if (op->shifts) return COLLECTIVE_SHIFT;
  if (op->exchanges || op->moves_rows) return COLLECTIVE_ALL_TO_ALL;
  return COLLECTIVE_ALL_GATHER;
}

// The units that a collective's kernels hold on a device with so many: as many as NCCL has channels, on a GPU.
static int held_units(const Cluster *c) {
  int units = c->device.units, held = (int)constant(c->constants, CONSTANT_HELD_UNITS);
  return units > 2 * held ? held : 0;
}

// Many collectives have the same group.
static const GroupOnLinks *group_of(Costs *costs, const Cluster *c, uint32_t axes, const StageSet *coordinates) {
  const Program *p = costs->program;
  int pp = mesh_pipeline(&p->mesh), crosses = pp >= 0 && axes >> pp & 1;
  for (int i = 0; i < costs->group.count; i++) {
    const CostGroup *g = &costs->group.data[i];
    if (g->axes == axes && (!crosses || stages_equal(&g->coordinates, coordinates))) return &g->links;
  }
  GroupOnLinks links = machine_group(c, &p->mesh, axes, crosses ? coordinates : NULL, p->coordinate);
  vec_push(&costs->group, (CostGroup){axes, *coordinates, links});
  return &costs->group.data[costs->group.count - 1].links;
}

static Cost collective_cost(Costs *costs, const Cluster *c, const Node *n, int microbatch) {
  const Program *p = costs->program;
  uint32_t axes = node_attr(n, CommAttr)->axes;
  int pp = mesh_pipeline(&p->mesh), crosses = pp >= 0 && axes >> pp & 1;
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, n->stages));
  const GroupOnLinks *group = group_of(costs, c, axes, &coordinates);
  CollectiveTime t = collective_seconds(c, kind_of(op_def(n->op)), group,
                                        collective_whole_bytes(p, n, microbatch));
  return (Cost){.seconds = t.seconds,
                .beside = t.seconds,
                .bytes = collective_bytes(p, n, microbatch),
                .ranks = group->ranks,
                .axes = axes,
                .crossing = crosses ? stages_count(&coordinates) : 0,
                .level = t.level,
                .algorithm = t.algorithm};
}

// What owners do alone is done by all at once, each its own part.
static double share_of_owner(const Program *p, const Node *n) {
  const Placement *owner = op_def(n->op)->needs_owner ? node_owner(p->graph, n) : NULL;
  return owner ? 1.0 / mesh_size(&p->mesh, owner->owner_axes) : 1;
}

static Cost kernel_cost(const Program *p, const Cluster *c, const Node *n, int microbatch) {
  OpWork work = program_work(p, n, microbatch);
  Dtype dtype = node_dtype(p->graph, n);
  // Ranks wait for each other: the slowest of all devices counts.
  double share = share_of_owner(p, n) * slowest_of(c->spread, p->mesh.ranks);
  return (Cost){
      .seconds = share * kernel_seconds(&c->device, &c->software, dtype, &work, 0, 0, c->constants),
      .beside = share * kernel_seconds(&c->device, &c->software, dtype, &work, 0, held_units(c), c->constants),
      .flops = share_of_owner(p, n) * work.matrix,
      .bytes = share_of_owner(p, n) * (work.read + work.written)};
}

// -1: of BEGIN and END.
static Cost *body_costs(Costs *costs, const Cluster *c, const Body *body, int microbatch) {
  const Program *p = costs->program;
  Cost *cost = arena_array(&costs->arena, Cost, body->count + 1);
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    Cost *waits = &cost[body->instruction[i].wait];
    int due = cost[i].due;
    cost[i] = op_def(n->op)->communicates ? collective_cost(costs, c, n, microbatch) : kernel_cost(p, c, n, microbatch);
    cost[i].due = due;
    if (!body->instruction[i].wait || !op_def(n->op)->communicates) continue;
    cost[i].next_due = waits->due;
    waits->due = i + 1;
  }
  return cost;
}

// Kernels of the dtypes that products and attention have: without a rate their time would be infinite.
static int check_rates(const Program *p, const Cluster *c, Error *error) {
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    Dtype dtype = node_dtype(p->graph, n);
    if (op_def(n->op)->communicates || !op_def(n->op)->expensive || product_rate(&c->device, dtype) > 0) continue;
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%s: device.matrix has no rate for %s, in which this run computes; add it, or take another precision",
        c->path ? c->path : c->name, dtype_name(dtype));
  }
  return PLAIT_OK;
}

static int check_devices(const Program *p, const Cluster *c, Error *error) {
  if (p->mesh.ranks <= cluster_devices(c)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks, but the cluster %s has %lld devices", p->mesh.ranks,
                   c->path ? c->path : c->name, (long long)cluster_devices(c));
}

static void find_kinds(Costs *costs) {
  const Program *p = costs->program;
  int n = p->schedule->microbatches;
  costs->kinds = rows_kinds(p);
  costs->kind = arena_array(&costs->arena, int, n + 1);
  for (int m = 0; m < n; m++)
    for (int k = 0; k < costs->kinds.count; k++)
      if (shares_rows(p->shares, m, 0, p->shares->ranks) ==
          shares_rows(p->shares, costs->kinds.kind[k].microbatch, 0, p->shares->ranks))
        costs->kind[m] = k;
}

int costs_create(const Program *p, const Cluster *c, Costs **out, Error *error) {
  int code = check_devices(p, c, error);
  if (!code) code = check_rates(p, c, error);
  if (code) return code;
  Costs *costs = xcalloc(1, sizeof *costs);
  costs->program = p;
  find_kinds(costs);
  costs->begin = body_costs(costs, c, &p->begin, -1);
  costs->end = body_costs(costs, c, &p->end, -1);
  int kinds = costs->kinds.count;
  costs->micro = arena_alloc(&costs->arena, sizeof *costs->micro * (size_t)(p->graph->stages * kinds));
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < kinds; k++)
        costs->micro[s * kinds + k][phase] =
            body_costs(costs, c, &p->micro[s][phase], costs->kinds.kind[k].microbatch);
  *out = costs;
  return PLAIT_OK;
}

void costs_free(Costs *costs) {
  if (!costs) return;
  vec_free(&costs->group);
  arena_free(&costs->arena);
  free(costs);
}

const Cost *costs_body(const Costs *costs, const Action *a, const Body **body) {
  const Program *p = costs->program;
  if (a->kind == ACTION_BEGIN) return *body = &p->begin, costs->begin;
  if (a->kind == ACTION_END || a->kind == ACTION_SUMS || a->kind == ACTION_REDUCE) return *body = &p->end, costs->end;
  if (!action_runs_body(a)) return NULL;
  *body = &p->micro[a->stage][action_phase(a)];
  return costs->micro[a->stage * costs->kinds.count + costs->kind[a->microbatch]][action_phase(a)];
}
