// Compiles a partitioned graph into one pipeline coordinate's Program.
#include "program/program.h"
#include "op/expert_rows.h"
#include "program/cost.h"
#include "program/first_writes.h"
#include "program/memory.h"
#include "program/overlap.h"
#include "program/rows.h"
#include <string.h>

int64_t tensor_local_elements(const Graph *g, const Tensor *t) {
  return tensor_elements(t, tensor_local(g, t));
}

static const Placement *rows_of_tensor(const Program *p, int tensor) {
  const Placement *at = tensor < 0 ? NULL : graph_tensor(p->graph, tensor)->placement;
  return at && at->merged ? at : NULL;
}

// The rows (Placement.rows) in which operand k, an input or output, is seen; NULL: it has dims. Of a collective, which
// may be one of several tensors, inputs and outputs belong together one by one; else all operands with these dims.
static const Placement *rows_of_operand(const Program *p, const Node *n, int k) {
  const Placement *rows = NULL;
  if (op_def(n->op)->communicates && n->ninput == n->noutput) {
    rows = rows_of_tensor(p, n->input[k]);
    return rows ? rows : rows_of_tensor(p, n->output[k]);
  }
  for (int i = 0; i < n->ninput + n->noutput && !rows; i++)
    rows = rows_of_tensor(p, i < n->ninput ? n->input[i] : n->output[i - n->ninput]);
  return rows;
}

static void fill_operand(const Program *p, int tensor, const Placement *rows, int rank, Operand *x) {
  *x = (Operand){0};
  if (tensor < 0) return;
  const Tensor *t = graph_tensor(p->graph, tensor);
  x->dtype = t->dtype;
  x->rank = t->shape.rank;
  if (t->variable >= 0 && t->copy < 0) x->panels = p->graph->variable.data[t->variable].panels;
  int merges = rows && t->shape.rank >= rows->merged;
  Placement flat = placement_flat(t->placement, merges ? rows : t->placement);
  Shape shape = placement_flat_shape(merges ? rows : t->placement, &t->shape);
  for (int d = 0; d < t->shape.rank; d++) {
    x->map[d] = placement_map(&p->mesh, &flat, d, shape.size[d], rank);
    x->size[d] = merges ? x->map[d].local : tensor_local(p->graph, t)[d];
  }
  if (tensor_is_compact(t)) rows_pack(x, tensor_most_rows(t, tensor_local(p->graph, t)));
}

void program_operands(const Program *p, const Node *n, int rank, Operand *input, Operand *output) {
  for (int k = 0; k < n->ninput; k++) fill_operand(p, n->input[k], rows_of_operand(p, n, k), rank, &input[k]);
  for (int k = 0; k < n->noutput; k++) fill_operand(p, n->output[k], rows_of_operand(p, n, k), rank, &output[k]);
}

Dtype node_dtype(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (t >= 0 && dtype_is_float(graph_tensor(g, t)->dtype)) return graph_tensor(g, t)->dtype;
  }
  return DTYPE_F32;
}

// Rank 0's operands stand for every rank's: sizes are the same, only how much of a padded dim is valid differs.
static int64_t scratch_of(const Program *p, const Node *n, const DeviceKernel *kernel, int threads) {
  if (!kernel->workspace) return 0;
  Arena scratch = {0};
  Operand *input = arena_array(&scratch, Operand, n->ninput + DEVICE_OPTIONAL_OPERANDS),
          *output = arena_array(&scratch, Operand, n->noutput + DEVICE_OPTIONAL_OPERANDS);
  program_operands(p, n, 0, input, output);
  int64_t bytes = (int64_t)kernel->workspace(input, output, n->attr, threads);
  arena_free(&scratch);
  return bytes;
}

// Of an exchange of rows: where the device counts them (runtime/exchanged_rows.h).
static int64_t counts_bytes(const Node *n) {
  return 2 * row_parts(&((const ExchangeAttr *)(const void *)n->attr)->parts) * (int64_t)sizeof(double);
}

// Which nodes of END come after a sum over the stages: in a stream END is run in two halves. Reads and writes of a
// Variable stay in their order.
static char *find_late(const Program *p, const Segment *s) {
  const Graph *g = p->graph;
  char *late = xcalloc((size_t)s->node.count + 1, 1), *tensor = xcalloc((size_t)g->tensor.count + 1, 1),
       *read = xcalloc((size_t)g->variable.count + 1, 1), *written = xcalloc((size_t)g->variable.count + 1, 1);
  for (int i = 0; i < s->node.count; i++) {
    const Node *n = &g->node.data[s->node.data[i]];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput], v = t < 0 ? -1 : graph_tensor(g, t)->variable;
      late[i] |= t >= 0 && (tensor[t] || (v >= 0 && (written[v] || (k >= n->ninput && read[v]))));
    }
    int sums = op_def(n->op)->communicates && node_attr(n, CommAttr)->axes >> mesh_pipeline(&p->mesh) & 1;
    for (int k = 0; k < n->noutput; k++) {
      int v = graph_tensor(g, n->output[k])->variable;
      tensor[n->output[k]] |= late[i] || sums;
      if (v >= 0) written[v] |= late[i] || sums;
    }
    for (int k = 0; late[i] && k < n->ninput; k++)
      if (n->input[k] >= 0 && graph_tensor(g, n->input[k])->variable >= 0)
        read[graph_tensor(g, n->input[k])->variable] = 1;
  }
  free(tensor);
  free(read);
  free(written);
  return late;
}

// Where stages update at once, the second half comes when later steps have been updated here: it may read and write
// only what each step has for itself.
static int check_late(const Program *p, const Node *n, Error *error) {
  const Graph *g = p->graph;
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput], v = t < 0 ? -1 : graph_tensor(g, t)->variable;
    if (v >= 0 && g->variable.data[v].kind != VARIABLE_METRIC)
      return error_set(error, PLAIT_INFEASIBLE,
                       "%s: an update of %s would wait for a sum over all stages, which a schedule whose stages update "
                       "at once does not; take parallel.pipeline 2bw or 1f1b",
                       n->name, g->variable.data[v].name);
  }
  return PLAIT_OK;
}

// Where END is cut: the sums over the stages start before, and are waited for by the first that reads them.
static int cut_end(Program *p, Error *error) {
  const Graph *g = p->graph;
  char *late = find_late(p, &p->segments->end), *late_node = xcalloc((size_t)g->node.count + 1, 1);
  for (int i = 0; i < p->segments->end.node.count; i++) late_node[p->segments->end.node.data[i]] = late[i];
  Instruction *ordered = arena_array(&p->arena, Instruction, p->end.count + 1);
  int n = 0;
  for (int half = 0; half < 2; half++) {
    if (half) p->end_cut = n;
    for (int i = 0; i < p->end.count; i++)
      if (late_node[p->end.instruction[i].node] == half) ordered[n++] = p->end.instruction[i];
  }
  p->end.instruction = ordered;
  free(late);
  free(late_node);
  int code = PLAIT_OK;
  for (int i = p->end_cut; i < n && p->schedule->at_once && !code; i++)
    code = check_late(p, &g->node.data[ordered[i].node], error);
  return code;
}

// A node whose terms live on several stages keeps those that live here; see stage.
static int make_body(Program *p, const Segment *s, const ProgramOptions *o, Body *body, Error *error) {
  body->instruction = arena_array(&p->arena, Instruction, s->node.count + 1);
  for (int i = 0; i < s->node.count; i++) {
    const Node *n = &p->graph->node.data[s->node.data[i]];
    DeviceKernel kernel = {0};
    if (!mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, n->stages))) continue;
    int code = node_has_kernel(n)
                   ? device_kernel(o->device, n->op, node_dtype(p->graph, n), n->name, &kernel, error)
                   : PLAIT_OK;
    if (code) return code;
    body->instruction[body->count] =
        (Instruction){.node = n->id, .scratch = scratch_of(p, n, &kernel, o->threads + o->helpers)};
    if (node_calls(n, COMM_ALL_TO_ALL_V)) body->instruction[body->count].scratch = counts_bytes(n);
    body->count++;
  }
  return PLAIT_OK;
}

static int make_bodies(Program *p, const ProgramOptions *o, Error *error) {
  int code = make_body(p, &p->segments->begin, o, &p->begin, error);
  if (!code) code = make_body(p, &p->segments->end, o, &p->end, error);
  p->micro = arena_alloc(&p->arena, sizeof *p->micro * (size_t)p->graph->stages);
  for EACH_PROGRAM_STAGE(s, p)
  for (int phase = 0; phase < PHASE_COUNT && !code; phase++)
    code = make_body(p, &p->segments->micro[s][phase], o, &p->micro[s][phase], error);
  return code;
}

int program_create(const Graph *graph, const Mesh *mesh, const ProgramOptions *o, Program **out, Error *error) {
  Program *p = xcalloc(1, sizeof *p);
  p->graph = graph;
  p->device = o->device;
  p->mesh = *mesh;
  p->coordinate = o->coordinate;
  p->threads = o->threads;
  p->helpers = o->helpers;
  p->chaos = o->chaos;
  p->sketch = o->sketch;
  p->shares = o->shares;
  StageMap map = mesh_stage_map(mesh);
  p->borrows = o->like != NULL;
  p->segments = p->borrows ? o->like->segments : segments_of(graph, map);
  if (p->borrows) p->schedule = o->like->schedule;
  int code =
      p->borrows ? PLAIT_OK : schedule_create(o->schedule, p->segments, map, o->microbatches, &p->schedule, error);
  if (code) {
    program_destroy(p);
    return code;
  }
  memory_place_variables(p);
  memory_place_tensors(p);
  code = make_bodies(p, o, error);
  if (!code) first_writes(p);
  if (!code && p->schedule->streams) code = cut_end(p, error);
  if (code) {
    program_destroy(p);
    return code;
  }
  if (p->schedule->streams) overlap_sums(p);
  overlap_actions(p, o->overlap && !p->schedule->streams);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT && o->overlap; phase++) overlap_body(p, &p->micro[s][phase]);
  overlap_moves(p);
  memory_place_reduced(p);
  memory_pack(p);
  memory_place_inputs(p);
  memory_total(p);
  *out = p;
  return PLAIT_OK;
}

WalkPlan program_walk(const Program *p) { return schedule_walk(p->schedule, p->segments, &p->actions); }

void program_destroy(Program *p) {
  if (!p) return;
  if (!p->borrows) schedule_free(p->schedule), segments_free(p->segments);
  vec_free(&p->actions);
  arena_free(&p->arena);
  free(p);
}

Place program_variable_place(const Program *p, int variable, int copy, Turn turn) {
  const Variable *v = &p->graph->variable.data[variable];
  Place place = copy < 0 ? p->variable_place[variable] : p->copy_place[variable][copy];
  if (!p->schedule->streams) return place;
  if (copy < 0 && p->places[variable]) {
    int places = p->graph->variable.data[v->parameter].delay + 1;
    return p->variable_place[p->places[variable][(turn.newest - v->version + places) % places]];
  }
  int instances = copy < 0 ? p->variable_instances[variable] : p->copy_instances[variable][copy];
  place.offset += turn.step % instances * memory_variable_bytes(p, v, copy);
  return place;
}

Place program_place(const Program *p, int tensor, int number, int64_t step) {
  const TensorPlace *at = &p->place[tensor];
  if (!at->count) return (Place){.offset = -1};
  int instance = at->first + (int)((at->area == AREA_COMM ? step : number) % at->count);
  return (Place){.area = at->area, .offset = p->offset[instance]};
}
int64_t program_begins_bytes(const Program *p) {
  return p->shares->even ? 0 : (int64_t)sizeof(int64_t) * p->schedule->microbatches * (p->shares->ranks + 1);
}

int64_t program_input_offset(const Program *p) { return p->arena_bytes; }

int64_t program_input_bytes(const Program *p, int input, int *microbatches) {
  const GraphInput *in = &p->graph->input.data[input];
  const Tensor *t = graph_tensor(p->graph, in->tensor);
  *microbatches = in->region == REGION_MICRO ? p->schedule->microbatches : 1;
  return tensor_local_elements(p->graph, t) * (int64_t)dtype_size(t->dtype);
}

// Whether it works on tensors of floating-point numbers, not only on scalars.
static int has_work(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (t >= 0 && dtype_is_float(graph_tensor(g, t)->dtype) && graph_tensor(g, t)->shape.rank) return 1;
  }
  return 0;
}

static int find_kernel(const Graph *g, const Node *n, const Device *device, DeviceKernel *kernel) {
  *kernel = (DeviceKernel){.host = NULL};
  return node_has_kernel(n) && has_work(g, n) && device->find(device, n->op, node_dtype(g, n), kernel);
}

int node_by_reference(const Graph *g, const Node *n, const Device *device) {
  DeviceKernel kernel;
  return find_kernel(g, n, device, &kernel) && kernel.is_reference;
}

int node_on_host(const Graph *g, const Node *n, const Device *device) {
  DeviceKernel kernel;
  return find_kernel(g, n, device, &kernel) && kernel.on_host;
}

// The ops of nodes that fulfil a test, each once, and with its dtype; returns how many nodes with kernels do not.
static int list_ops(const Graph *g, const Device *device, int (*test)(const Graph *, const Node *, const Device *),
                    char *text, size_t size) {
  char seen[OP_COUNT][DTYPE_COUNT] = {{0}};
  int others = 0;
  *text = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    Dtype dtype = node_dtype(g, n);
    size_t used = strlen(text);
    int listed = test(g, n, device);
    others += !listed && node_has_kernel(n) && has_work(g, n);
    if (!listed || seen[n->op][dtype]) continue;
    seen[n->op][dtype] = 1;
    snprintf(text + used, size - used, "%s%s in %s", used ? ", " : "", op_name(n->op), dtype_name(dtype));
  }
  return others;
}

void graph_reference_ops(const Graph *g, const Device *device, char *text, size_t size) {
  list_ops(g, device, node_by_reference, text, size);
}

void graph_host_ops(const Graph *g, const Device *device, char *text, size_t size) {
  if (!list_ops(g, device, node_on_host, text, size) && *text) snprintf(text, size, "all ops");
}

// On a microbatch; -1: in BEGIN and END. Without what each owner does alone (program_owned).
static double body_flops(const Program *p, const Body *b, int microbatch) {
  double flops = 0;
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (op_def(n->op)->communicates || node_is(n, ROLE_WHOLE_MATRIX)) continue;
    flops += program_work(p, n, microbatch).matrix;
  }
  return flops;
}

double program_body_flops(const Program *p, int stage, Phase phase) {
  return body_flops(p, &p->micro[stage][phase], 0);
}

// Every body runs once on each microbatch. The first data rank has the most rows.
double program_flops(const Program *p) {
  double flops = body_flops(p, &p->begin, -1) + body_flops(p, &p->end, -1) + program_owned(p).most;
  RowsKinds kinds = rows_kinds(p);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < kinds.count; k++)
        flops += kinds.kind[k].times * body_flops(p, &p->micro[s][phase], kinds.kind[k].microbatch);
  return flops;
}
