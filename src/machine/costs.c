// Costs of a Program's instructions.
#include "machine/costs.h"
#include "machine/cluster.h"
#include "op/op.h"
#include "machine/cache.h"
#include "machine/kernel_table.h"
#include "program/cost.h"
#include "program/traffic.h"
#include <math.h>
#include <string.h>

// The collective that a kind of call is timed as.
static CollectiveKind kind_of(const Node *n) {
  static const CollectiveKind timed_as[COMM_KIND_COUNT] = {
      [COMM_ALL_REDUCE] = COLLECTIVE_ALL_REDUCE,
      [COMM_REDUCE_SCATTER] = COLLECTIVE_REDUCE_SCATTER,
      [COMM_ALL_GATHER] = COLLECTIVE_ALL_GATHER,
      [COMM_BROADCAST] = COLLECTIVE_BROADCAST,
      [COMM_SCATTER] = COLLECTIVE_BROADCAST,
      [COMM_REDUCE] = COLLECTIVE_REDUCE,
      [COMM_GATHER] = COLLECTIVE_REDUCE,
      [COMM_ALL_TO_ALL] = COLLECTIVE_ALL_TO_ALL,
      [COMM_ALL_TO_ALL_V] = COLLECTIVE_ALL_TO_ALL,
      [COMM_SHIFT] = COLLECTIVE_SHIFT,
  };
  return timed_as[op_def(n->op)->comm];
}

// The units that a collective's kernels hold on this device: as many as NCCL has channels, on a GPU.
static int held_units(const Cluster *c, const DeviceFacts *device) {
  int units = device->units, held = (int)constant(c->constants, CONSTANT_HELD_UNITS);
  return units > 2 * held ? held : 0;
}

// Many collectives have the same group.
static int group_of(Costs *costs, const Cluster *c, uint32_t axes, const StageSet *coordinates) {
  const Program *p = costs->program;
  int pp = mesh_pipeline(&p->mesh), crosses = pp >= 0 && axes >> pp & 1;
  for (int i = 0; i < costs->group.count; i++) {
    const CostGroup *g = &costs->group.data[i];
    if (g->axes == axes && (!crosses || stages_equal(&g->coordinates, coordinates))) return i;
  }
  const StageSet *of = crosses ? coordinates : NULL;
  GroupOnLinks links = costs->rank < 0 ? machine_group(c, &p->mesh, axes, of, p->coordinate)
                                       : machine_group_of(c, &p->mesh, axes, of, costs->rank);
  vec_push(&costs->group, (CostGroup){axes, *coordinates, links});
  return costs->group.count - 1;
}

static int is_left(const Costs *costs, const Placement *owner) {
  return costs->rank >= 0 && owner && !placement_here(&costs->program->mesh, owner, costs->rank);
}

static Cost collective_cost(Costs *costs, const Cluster *c, const Node *n, int microbatch) {
  const Program *p = costs->program;
  uint32_t axes = node_attr(n, CommAttr)->axes;
  int pp = mesh_pipeline(&p->mesh), crosses = pp >= 0 && axes >> pp & 1;
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, n->stages));
  int index = group_of(costs, c, axes, &coordinates);
  const GroupOnLinks *group = &costs->group.data[index].links;
  double whole = collective_whole_bytes(p, n, microbatch);
  CollectiveTime t = collective_seconds(c, kind_of(n), group, whole);
  double latency = t.base + t.latency;
  if (t.algorithm == COLLECTIVE_BY_MEASURED) // as long as next to nothing takes
    latency = fmin(t.seconds, collective_seconds(c, kind_of(n), group, 1).seconds);
  return (Cost){.whole = whole,
                .seconds = t.seconds,
                .latency = latency,
                .beside = t.seconds,
                .bytes = collective_bytes(p, n, microbatch),
                .ranks = group->ranks,
                .left = is_left(costs, node_owner(p->graph, n)),
                .group = index,
                .axes = axes,
                .crossing = crosses ? stages_count(&coordinates) : 0,
                .level = t.level,
                .algorithm = t.algorithm};
}

// All owners do their own parts at the same time. Of one rank it is known whether it is the owner.
static double share_of_owner(const Costs *costs, const Node *n) {
  const Mesh *mesh = &costs->program->mesh;
  const Placement *owner = node_is(n, ROLE_WHOLE_MATRIX) ? node_owner(costs->program->graph, n) : NULL;
  if (costs->rank >= 0) return !is_left(costs, owner);
  return owner ? 1.0 / mesh_size(mesh, owner->owner_axes) : 1;
}

// On a machine whose kernels were measured: its cores are shared by all ranks.
static Cost measured_cost(Costs *costs, const Cluster *c, const Node *n, const OpWork *work) {
  const Program *p = costs->program;
  int ranks = p->mesh.ranks, each = costs->rank >= 0 ? 1 : ranks / p->schedule->map.coordinates,
      cores = (int)cluster_devices(c), threads = p->threads > 0 ? p->threads : 1,
      most = cores / each > threads ? cores / each : threads,
      helped = threads + p->helpers < most ? threads + p->helpers : most;
  MeasuredKernel call;
  int guessed = 0;
  kernel_describe(p, n, work, c->device.cache, &call);
  const KernelTable *t = c->table;
  const DeviceFacts *d = &c->device;
  double own = share_of_owner(costs, n),
         share = own * slowest_of(c->spread, (double)ranks / p->schedule->map.coordinates);
  CoreSeconds core = {
      .alone = share * kernel_table_seconds(t, d, &call, threads, each * threads, &guessed) + d->host,
      .helped = share * kernel_table_seconds(t, d, &call, helped, each * helped, &guessed) + d->host, // below
      .full = share * kernel_table_seconds(t, d, &call, threads, ranks * threads, &guessed) + d->host};
  if (guessed) costs->guessed = call.op;
  if (!isfinite(core.full)) // nothing measured is like it
    core.alone = core.helped = core.full =
        share * kernel_seconds(d, &c->software, call.dtype, work, 0, 0, c->constants) / threads;
  // A thread that helps adds less than one's own.
  if (core.helped > 0) core.helped = 1 / (1 / core.alone + d->helping * (1 / core.helped - 1 / core.alone));
  return (Cost){.left = own == 0, .seconds = core.full, .beside = core.full, .core = core, .flops = own * work->matrix,
                .bytes = own * (work->read + work->written)};
}

// Memory that the predicted software reads and writes beside the kernel that updates a parameter.
static double passes_over_gradients(const Program *p, const Node *n, const SoftwareFacts *software) {
  if (!op_def(n->op)->optimizer || !(software->parameter_bytes > 0)) return 0;
  double *bytes = xcalloc((size_t)(n->ninput + n->noutput), sizeof *bytes);
  program_operand_bytes(p, n, -1, bytes);
  double parameters = bytes[0] / (double)dtype_size(graph_tensor(p->graph, n->input[0])->dtype);
  free(bytes);
  return FAULT(gradients_take_no_passes, parameters, 0) * software->parameter_bytes;
}

// Ranks that are simulated as one wait for the slowest of their devices.
// held: of each device, bytes of the inputs that its cache has.
static Cost kernel_cost(Costs *costs, const Cluster *c, const Node *n, int microbatch, const double *held) {
  const Program *p = costs->program;
  if (FAULT(fresh_copies_cost_time, n->refreshes, 0)) return (Cost){.left = 1};
  OpWork work = program_work(p, n, microbatch);
  if (c->table) return measured_cost(costs, c, n, &work);
  work.read += passes_over_gradients(p, n, &c->software);
  Dtype dtype = node_dtype(p->graph, n);
  // Ranks wait for each other: the slowest of all devices counts.
  double own = share_of_owner(costs, n), share = own * slowest_of(c->spread, p->mesh.ranks);
  int whole = work.products > 0 || work.attention.pairs > 0 || c->software.launches_per_op <= 0; // one kernel
  Cost cost = {.left = own == 0,
               .launches = whole ? 1 : c->software.launches_per_op,
               .flops = own * work.matrix,
               .bytes = own * (work.read + work.written)};
  for (int i = 0; i < costs->device.count; i++) {
    const DeviceFacts *d = costs->device.data[i];
    double cached = fmin(work.read, held[i]),
           alone = kernel_seconds(d, &c->software, dtype, &work, cached, 0, c->constants),
           beside = kernel_seconds(d, &c->software, dtype, &work, cached, held_units(c, d), c->constants);
    cost.seconds = fmax(cost.seconds, share * alone);
    cost.beside = fmax(cost.beside, share * beside);
  }
  return cost;
}

// A collective in flight has a thread on every rank; where kernels have all cores, these threads share them.
static double slowed_in_flight(const Program *p, const Cluster *c) {
  if (!c->table) return 1;
  double threads = (double)p->mesh.ranks * (p->threads + 1), cores = (double)cluster_devices(c);
  return threads > cores ? threads / cores : 1;
}

// -1: of BEGIN and END.
static Cost *body_costs(Costs *costs, const Cluster *c, const Body *body, int microbatch) {
  const Program *p = costs->program;
  Cost *cost = arena_array(&costs->arena, Cost, body->count + 1);
  int devices = costs->device.count;
  double *held = xcalloc((size_t)(devices * (body->count + 1)), sizeof *held), *of = held + devices * body->count;
  for (int d = 0; d < devices; d++)
    cache_held(p, body, microbatch, costs->device.data[d]->cache, held + d * body->count);
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    Cost *waits = &cost[body->instruction[i].wait];
    int due = cost[i].due;
    for (int d = 0; d < devices; d++) of[d] = held[d * body->count + i];
    cost[i] = op_def(n->op)->communicates ? collective_cost(costs, c, n, microbatch)
                                          : kernel_cost(costs, c, n, microbatch, of);
    cost[i].due = due;
    if (!body->instruction[i].wait || !op_def(n->op)->communicates) continue;
    cost[i].next_due = waits->due;
    waits->due = i + 1;
    cost[i].seconds *= slowed_in_flight(p, c);
  }
  free(held);
  return cost;
}

// Kernels of the dtypes that products and attention have: without a rate their time would be infinite.
static int check_rates(const Program *p, const Cluster *c, const DeviceFacts *device, Error *error) {
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    Dtype dtype = node_dtype(p->graph, n);
    if (op_def(n->op)->communicates || !op_def(n->op)->expensive || product_rate(device, dtype) > 0) continue;
    return cluster_check_dtype(c, dtype, error); // no rate of products, nor of vectors in its place
  }
  return PLAIT_OK;
}

static int check_devices(const Program *p, const Cluster *c, Error *error) {
  int64_t devices = cluster_devices(c);
  if (c->table && (int64_t)p->mesh.ranks * p->threads > devices)
    return error_set(error, PLAIT_BAD_INPUT, "%d rank%s of %d thread%s need %d cores, but this machine has %lld",
                     p->mesh.ranks, p->mesh.ranks > 1 ? "s" : "", p->threads, p->threads > 1 ? "s" : "",
                     p->mesh.ranks * p->threads, (long long)devices);
  if (p->mesh.ranks <= devices) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks, but the cluster %s has %lld devices", p->mesh.ranks,
                   c->path ? c->path : c->name, (long long)devices);
}

static void find_kinds(Costs *costs) {
  const Program *p = costs->program;
  int n = p->schedule->microbatches;
  costs->kinds = rows_kinds(p);
  costs->kind = arena_array(&costs->arena, int, n + 1);
  for (int m = 0; m < n; m++) costs->kind[m] = rows_kind(p, &costs->kinds, m);
}

static void find_devices(Costs *costs, const Cluster *c) {
  const Program *p = costs->program;
  for (int r = 0; r < p->mesh.ranks; r++) {
    const DeviceFacts *device = cluster_device(c, r);
    int known = costs->rank < 0 ? mesh_pipeline_coordinate(&p->mesh, r) != p->coordinate : r != costs->rank;
    for (int i = 0; i < costs->device.count && !known; i++) known = costs->device.data[i] == device;
    if (known) continue;
    vec_push(&costs->device, device);
    costs->host = fmax(costs->host, device->host);
  }
}

int costs_create(const Program *p, const Cluster *c, int rank, Costs **out, Error *error) {
  int code = check_devices(p, c, error);
  if (code) return code;
  Costs *costs = xcalloc(1, sizeof *costs);
  costs->program = p;
  costs->rank = rank;
  find_devices(costs, c);
  for (int i = 0; i < costs->device.count && !code; i++) code = check_rates(p, c, costs->device.data[i], error);
  if (code) return costs_free(costs), code;
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
  vec_free(&costs->device);
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
