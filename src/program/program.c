// Compiles a partitioned graph into one pipeline coordinate's Program.
#include "program/program.h"
#include "program/memory.h"
#include "program/overlap.h"
#include <string.h>

static void fill_operand(const Program *p, int tensor, int rank, Operand *x) {
  *x = (Operand){0};
  if (tensor < 0) return;
  const Tensor *t = graph_tensor(p->graph, tensor);
  x->dtype = t->dtype;
  x->rank = t->shape.rank;
  for (int d = 0; d < t->shape.rank; d++) {
    x->size[d] = t->local[d];
    x->map[d] = placement_map(&p->mesh, t->placement, d, t->shape.size[d], rank);
  }
}

void program_operands(const Program *p, const Node *n, int rank, Operand *input, Operand *output) {
  for (int k = 0; k < n->ninput; k++) fill_operand(p, n->input[k], rank, &input[k]);
  for (int k = 0; k < n->noutput; k++) fill_operand(p, n->output[k], rank, &output[k]);
}

Dtype node_dtype(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (t >= 0 && dtype_is_float(graph_tensor(g, t)->dtype)) return graph_tensor(g, t)->dtype;
  }
  return DTYPE_F32;
}

// Rank 0's operands stand for every rank's: sizes are the same, only how much of a padded dim is valid differs.
static int64_t scratch_of(const Program *p, const Node *n, const Backend *backend, int threads) {
  const KernelEntry *kernel = op_def(n->op)->communicates ? NULL : backend->find(backend, n->op, node_dtype(p->graph, n));
  if (!kernel || !kernel->workspace) return 0;
  Arena scratch = {0};
  Operand *input = arena_array(&scratch, Operand, n->ninput + 1), *output = arena_array(&scratch, Operand, n->noutput + 1);
  program_operands(p, n, 0, input, output);
  int64_t bytes = (int64_t)kernel->workspace(input, output, n->attr, threads);
  arena_free(&scratch);
  return bytes;
}

// A node whose terms live on several stages keeps those that live here; see stage.
static Body make_body(Program *p, const Segment *s, const ProgramOptions *o) {
  Body body = {.instruction = arena_array(&p->arena, Instruction, s->node.count + 1)};
  for (int i = 0; i < s->node.count; i++) {
    const Node *n = &p->graph->node.data[s->node.data[i]];
    if (!mesh_runs_stages(&p->mesh, p->coordinate, n->stages)) continue;
    int64_t scratch = scratch_of(p, n, o->backend, o->threads);
    body.instruction[body.count++] = (Instruction){.node = n->id, .scratch = scratch};
    if (round_up(scratch, BUFFER_ALIGNMENT) > p->scratch_bytes) p->scratch_bytes = round_up(scratch, BUFFER_ALIGNMENT);
  }
  return body;
}

int program_create(const Graph *graph, const Mesh *mesh, const ProgramOptions *o, Program **out, Error *error) {
  Program *p = xcalloc(1, sizeof *p);
  p->graph = graph;
  p->mesh = *mesh;
  p->coordinate = o->coordinate;
  p->chaos = o->chaos;
  int pp = mesh->axis[mesh_axis(mesh, "pp")].size;
  p->segments = segments_of(graph, pp);
  int code = schedule_create(o->schedule, p->segments, pp, o->microbatches, &p->schedule, error);
  if (code) {
    program_destroy(p);
    return code;
  }
  memory_place_variables(p);
  memory_place_tensors(p);
  p->begin = make_body(p, &p->segments->begin, o);
  p->end = make_body(p, &p->segments->end, o);
  p->micro = arena_alloc(&p->arena, sizeof *p->micro * (size_t)graph->stages);
  for (int s = p->coordinate; s < graph->stages; s += pp)
    for (int phase = 0; phase < PHASE_COUNT; phase++) p->micro[s][phase] = make_body(p, &p->segments->micro[s][phase], o);
  overlap_actions(p, o->overlap);
  for (int s = p->coordinate; o->overlap && s < graph->stages; s += pp)
    for (int phase = 0; phase < PHASE_COUNT; phase++) overlap_body(p, &p->micro[s][phase]);
  memory_place_reduced(p);
  memory_place_body(p, &p->begin);
  memory_place_body(p, &p->end);
  for (int s = p->coordinate; s < graph->stages; s += pp)
    for (int phase = 0; phase < PHASE_COUNT; phase++) memory_place_body(p, &p->micro[s][phase]);
  memory_total(p);
  *out = p;
  return PLAIT_OK;
}

WalkPlan program_walk(const Program *p) { return schedule_walk(p->schedule, p->segments, &p->actions); }

void program_destroy(Program *p) {
  if (!p) return;
  schedule_free(p->schedule);
  segments_free(p->segments);
  vec_free(&p->actions);
  arena_free(&p->arena);
  free(p);
}

int64_t program_work_offset(const Program *p) { return p->slot_bytes + p->staging_bytes + p->comm_bytes; }
int64_t program_scratch_offset(const Program *p) { return program_work_offset(p) + p->work_bytes; }

static double body_flops(const Program *p, const Body *b) {
  double flops = 0;
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (!op_def(n->op)->flops) continue;
    Arena scratch = {0};
    Operand *input = arena_array(&scratch, Operand, n->ninput + 1), *output = arena_array(&scratch, Operand, n->noutput + 1);
    program_operands(p, n, 0, input, output);
    flops += op_def(n->op)->flops(input, output, n->attr);
    arena_free(&scratch);
  }
  return flops;
}

double program_body_flops(const Program *p, int stage, Phase phase) { return body_flops(p, &p->micro[stage][phase]); }

double program_flops(const Program *p) {
  double flops = body_flops(p, &p->begin) + body_flops(p, &p->end);
  const ActionList *list = &p->schedule->list[p->coordinate];
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    if (a->kind == ACTION_FORWARD) flops += body_flops(p, &p->micro[a->stage][PHASE_FORWARD]);
    if (a->kind == ACTION_BACKWARD) flops += body_flops(p, &p->micro[a->stage][PHASE_BACKWARD]);
  }
  return flops;
}
