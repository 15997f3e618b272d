// Edits Programs: a deleted or reversed collective becomes a CUSTOM node, for which this test's device has the kernel.
#include "mutation.h"
#include "corpora.h"
#include "op/expert_rows.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// reverse 0: the rank's own part; rows: those of a compact tensor, by `parts`
typedef struct OwnAttr { int64_t reverse, shards, blocks, elements, rows; RowParts parts; } OwnAttr;

static void own_part(const KernelCall *call) {
  for (int k = 0; k < call->ninput; k++) {
    if (call->input[k].data == call->output[k].data) continue;
    KernelCall one = {.ninput = 1, .noutput = 1, .input = &call->input[k], .output = &call->output[k]};
    op_def(OP_SLICE)->reference(&one);
  }
}

static int64_t bytes_of(const Operand *x) {
  int64_t n = (int64_t)dtype_size(x->dtype);
  for (int d = 0; d < x->rank; d++) n *= x->size[d];
  return n;
}

// As many of the rank's rows as are expected, zeros after them.
static void own_rows(const KernelCall *call) {
  int64_t from = bytes_of(&call->input[0]), to = bytes_of(&call->output[0]), both = from < to ? from : to;
  if (both) memcpy(call->output[0].data, call->input[0].data, (size_t)both);
  if (to > both) memset((char *)call->output[0].data + both, 0, (size_t)(to - both));
}

static void reverse_shards(const KernelCall *call, const OwnAttr *a) {
  size_t bytes = (size_t)a->elements * dtype_size(call->input[0].dtype);
  char *data = call->input[0].data, *kept = xcalloc(bytes ? bytes : 1, 1);
  for (int64_t b = 0; b < a->blocks; b++, data += (size_t)a->shards * bytes)
    for (int64_t i = 0; i < a->shards / 2; i++) {
      char *x = data + (size_t)i * bytes, *y = data + (size_t)(a->shards - 1 - i) * bytes;
      memcpy(kept, x, bytes);
      memcpy(x, y, bytes);
      memcpy(y, kept, bytes);
    }
  free(kept);
}

// rows (R, 1, 1, …) as an exchange has brought them, mask (b, s, x): what came from the last rank lies first.
static void reverse_rows(const KernelCall *call, const OwnAttr *a) {
  const Operand *rows = &call->input[0], *mask = &call->input[1];
  size_t row = (size_t)operand_extent(rows, 1, rows->rank) * dtype_size(rows->dtype), all = (size_t)rows->size[0] * row;
  int64_t count[ROW_PARTS_MOST] = {0};
  char *data = rows->data, *came = xcalloc(all ? all : 1, 1), *from = came, *to = data + all;
  if (a->parts.home) expert_parts_count(mask, (int)a->shards, count);
  else row_parts_count(&a->parts, mask, call->parameters, -1, count);
  if (all) memcpy(came, data, all);
  for (int r = 0; r < a->shards; r++) {
    size_t bytes = (size_t)count[r] * row;
    to -= bytes;
    CHECK(to >= data);
    if (bytes) memcpy(to, from, bytes);
    from += bytes;
  }
  free(came);
}

static void own_kernel(const KernelCall *call) {
  const OwnAttr *a = call->attr;
  if (a->rows && a->reverse) reverse_rows(call, a);
  else if (a->rows) own_rows(call);
  else if (a->reverse) reverse_shards(call, a);
  else own_part(call);
}

// The device is chosen once: choosing asks the machine what it can, which takes longer than all else that is done here.
static const Device *cpu(void) {
  static _Atomic(const Device *) chosen;
  const Device *device = atomic_load(&chosen);
  if (!device) atomic_store(&chosen, device = device_cpu());
  return device;
}

static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  if (op != OP_CUSTOM) return cpu()->find(cpu(), op, dtype, kernel);
  *kernel = (DeviceKernel){.host = own_kernel};
  return 1;
}

// The CPU with a kernel for CUSTOM.
static Device own_device;
static void make_own_device(void) {
  own_device = *cpu();
  own_device.name = "cpu with a fault";
  own_device.find = find;
}
static const Device *with_own(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_own_device);
  return &own_device;
}

static int stages_of(const Job *j) { return mesh_pipeline_ranks(&j->options.parallel.mesh); }

static void land(const Body *body, int node) {
  for (int i = 0; i < body->count; i++)
    if (body->instruction[i].node == node) body->instruction[i].wait = 0;
}

// What starts the collective early is taken out: it takes place, or not, in its body and at once.
static void drop_early_start(Program *p, int node) {
  int n = 0;
  land(&p->end, node);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) land(&p->micro[s][phase], node);
  for (int i = 0; i < p->actions.count; i++) {
    Action a = p->actions.data[i];
    int in_body = a.kind == ACTION_BEGIN || a.kind == ACTION_END || a.kind == ACTION_SUMS || action_runs_body(&a) ||
                  a.kind == ACTION_SEND || a.kind == ACTION_RECV;
    if (in_body || a.node != node) p->actions.data[n++] = a;
  }
  p->actions.count = n;
}

static void drop_transfer(Program *p, const Mutation *m) {
  int n = 0;
  for (int i = 0; i < p->actions.count; i++) {
    Action a = p->actions.data[i];
    int gone = (a.kind == ACTION_SEND && a.tensor == m->tensor && a.stage == m->stage && a.peer == m->peer) ||
               (a.kind == ACTION_RECV && a.tensor == m->tensor && a.stage == m->peer && a.peer == m->stage);
    if (!gone) p->actions.data[n++] = a;
  }
  p->actions.count = n;
}

// Puts `count` nodes before or after the instruction that runs `node`, if the body has it. Ranges of actions move
// along.
static int insert(Program *p, Body *body, int stage, int kind, int node, int first, int count, int after) {
  int at = 0;
  while (at < body->count && body->instruction[at].node != node) at++;
  if (at == body->count) return 0;
  Instruction *list = arena_array(&p->arena, Instruction, body->count + count + 1);
  int n = 0;
  for (int i = 0; i < body->count; i++) {
    if (i == at && after) list[n++] = body->instruction[i];
    for (int k = 0; i == at && k < count; k++) list[n++] = (Instruction){.node = first + k};
    if (i != at || !after) list[n++] = body->instruction[i];
  }
  for (int i = 0; i < n; i++)
    if (list[i].wait > at) list[i].wait += count; // what is in flight
  body->instruction = list;
  body->count = n;
  for (int i = 0; i < p->actions.count; i++) {
    Action *a = &p->actions.data[i];
    int half = body == &p->end && a->to && (a->kind == ACTION_SUMS || a->kind == ACTION_END); // of a stream
    if (!half && (stage < 0 || (int)a->kind != kind || a->stage != stage)) continue;
    if (a->from > at) a->from += count;
    if (a->to > at) a->to += count;
  }
  return 1;
}

static void insert_everywhere(Program *p, int node, int first, int count, int after) {
  insert(p, &p->begin, -1, 0, node, first, count, after);
  insert(p, &p->end, -1, 0, node, first, count, after);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      insert(p, &p->micro[s][phase], s, ACTION_FORWARD + phase, node, first, count, after);
}

static int64_t extent(const Tensor *t, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= t->local_[d];
  return n;
}

// A node of this test's device, which works on what it reads.
static void add_own(Graph *g, const Node *like, int *input, int ninput, const OwnAttr *attr) {
  Node own = *like;
  own.op = OP_CUSTOM;
  own.ninput = ninput;
  own.noutput = 0;
  own.input = input;
  own.want_ = own.give_ = NULL;
  memset(own.attr, 0, sizeof own.attr);
  memcpy(own.attr, attr, sizeof *attr);
  graph_add_node(g, &own);
}

static void reverse(Graph *g, const Mesh *mesh, Program **program, int programs, int id, int alone) {
  Node n = g->node.data[id];
  int first = g->node.count, shards = mesh_size(mesh, node_attr(&g->node.data[id], CommAttr)->axes);
  if (node_comm(&n)->rooted) { // another rank takes the root's place
    CommAttr *attr = node_attr(&g->node.data[id], CommAttr);
    attr->root = (attr->root + 1) % mesh_size(mesh, attr->axes);
    return;
  }
  if (node_calls(&n, COMM_SHIFT)) { // around the ring the other way
    CommAttr *attr = node_attr(&g->node.data[id], CommAttr);
    attr->distance = -attr->distance;
    return;
  }
  if (node_calls(&n, COMM_ALL_TO_ALL_V)) { // how many each rank sends, the masks say in the run
    OwnAttr attr = {
        .reverse = 1, .shards = shards, .rows = 1, .parts = node_attr(&g->node.data[id], ExchangeAttr)->parts};
    add_own(g, &n, (int[]){n.output[0], n.input[2]}, 2, &attr);
    for (int c = 0; c < programs; c++) insert_everywhere(program[c], id, first, 1, 1);
    return;
  }
  // A tensor that is whole after the collective is reversed there, else the one that is whole before it.
  int gathers = node_comm(&n)->recv_parts, count = alone ? 1 : n.ninput;
  for (int k = 0; k < count; k++) {
    int reversed = gathers ? n.output[k] : n.input[k], d = 0;
    const Tensor *whole = graph_tensor(g, reversed), *shard = graph_tensor(g, gathers ? n.input[k] : n.output[k]);
    while (shard->placement->dim[d].n <= whole->placement->dim[d].n) d++;
    OwnAttr attr = {.reverse = 1, .shards = shards, .blocks = extent(whole, 0, d)};
    attr.elements = shard->local_[d] * extent(whole, d + 1, whole->shape.rank);
    add_own(g, &n, &reversed, 1, &attr);
  }
  for (int c = 0; c < programs; c++) insert_everywhere(program[c], id, first, count, gathers);
}

static Compiled *compiled_of(const Job *job, int evaluation) {
  return job_find(job, evaluation ? &role_evaluate : &role_train);
}

static void edit_node(Job *job, const Mutation *m, int id) {
  Compiled *compiled = compiled_of(job, m->evaluation);
  Graph *g = compiled->graph;
  Program **program = compiled->program;
  for (int c = 0; c < stages_of(job); c++) drop_early_start(program[c], id);
  if (m->kind == MUTATION_REVERSE) {
    reverse(g, &job->options.parallel.mesh, program, stages_of(job), id, m->alone);
  } else {
    OwnAttr attr = {.rows = node_calls(&g->node.data[id], COMM_ALL_TO_ALL_V)};
    g->node.data[id].op = OP_CUSTOM;
    memset(g->node.data[id].attr, 0, NODE_ATTR_BYTES);
    memcpy(g->node.data[id].attr, &attr, sizeof attr);
  }
}

static void edit(Job *job, void *context) {
  const Mutation *m = context;
  for (int i = 0; i < m->nodes; i++) edit_node(job, m, m->node[i]);
  Program **program = compiled_of(job, m->evaluation)->program;
  for (int c = 0; m->kind == MUTATION_TRANSFER && c < stages_of(job); c++) drop_transfer(program[c], m);
}

ParityCase mutated(const ParityCase *c, Mutation *m) {
  ParityCase x = *c;
  x.edit = edit;
  x.context = m;
  x.device = with_own();
  return x;
}

typedef Vec(Mutation) MutationList;

enum { NAME = sizeof((Mutation *)0)->output[0] };

// "11 all_gather layer.1.ffn.up.weight.all_gather": region and phase, op, tensor.
static void name_output(const Graph *g, const Node *n, int k, char name[NAME]) {
  const char *op = op_def(n->op)->name, *tensor = graph_tensor(g, n->output[k])->name;
  snprintf(name, NAME, "%d%d %s %s", n->region, n->region == REGION_MICRO ? n->phase : 0, op, tensor);
}

// A sum has no order, and of two ranks each is next to the other on both sides.
static int has_order(const Mesh *mesh, const Node *n) {
  return n->op != OP_ALL_REDUCE &&
         !(node_calls(n, COMM_SHIFT) && mesh_size(mesh, node_attr(n, CommAttr)->axes) == 2);
}

static void list_nodes(const Job *job, int evaluation, MutationList *list) {
  const Graph *g = compiled_of(job, evaluation)->graph;
  static const char *const region[REGION_COUNT] = {"BEGIN", NULL, "END"}, *const phases[PHASE_COUNT] = {
#define PHASE(id, name, letter) #id,
#include "ir/phases.def"
#undef PHASE
  };
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!op_def(n->op)->communicates) continue;
    for (int kind = MUTATION_DELETE; kind <= MUTATION_REVERSE; kind++) {
      if (kind == MUTATION_REVERSE && !has_order(&job->options.parallel.mesh, n)) continue;
      Mutation m = {.kind = (MutationKind)kind, .evaluation = evaluation, .node = {i}, .nodes = 1};
      for (int k = 0; k < n->noutput && n->noutput <= MUTATION_NODES; k++) name_output(g, n, k, m.output[m.outputs++]);
      snprintf(m.what, sizeof m.what, "%s %s %s of %s%s", kind ? "reversed" : "deleted", op_def(n->op)->name, n->name,
               n->region != REGION_MICRO ? region[n->region] : phases[n->phase],
               evaluation ? " of the evaluation" : "");
      vec_push(list, m);
    }
  }
}

static void list_transfers(const Job *job, int evaluation, MutationList *list) {
  for (int c = 0; c < stages_of(job); c++) {
    const Program *p = compiled_of(job, evaluation)->program[c];
    for (int i = 0; i < p->actions.count; i++) {
      const Action *a = &p->actions.data[i];
      if (a->kind != ACTION_SEND || a->microbatch) continue;
      Mutation m = {
          .kind = MUTATION_TRANSFER, .evaluation = evaluation, .tensor = a->tensor, .stage = a->stage, .peer = a->peer};
      snprintf(m.what, sizeof m.what, "deleted send of %s from stage %d to %d%s",
               graph_tensor(p->graph, a->tensor)->name, a->stage, a->peer, evaluation ? " of the evaluation" : "");
      vec_push(list, m);
    }
  }
}

static void list_all(Job *job, void *context) {
  MutationList *list = context;
  for (int evaluation = 0; evaluation < 2; evaluation++) {
    list_nodes(job, evaluation, list);
    list_transfers(job, evaluation, list);
  }
}

// Compiles the case and lets `look` see it.
static void look_at(const ParityCase *c, void (*look)(Job *job, void *context), void *context) {
  ParityCase x = *c;
  x.edit = look;
  x.context = context;
  x.steps = 1;
  ParityResult result;
  Error error = {0};
  CHECK(!parity_run(&x, corpus_for(c->model, CORPUS_RAGGED), &result, &error), "%s", error.message);
  parity_free(&result);
}

int mutations_of(const ParityCase *c, Mutation **out) {
  MutationList list = {0};
  look_at(c, list_all, &list);
  *out = list.data;
  return list.count;
}

// Is this the tensor, in fp64? A narrow gradient is cast before it is accumulated, "A.accumulate.cast.reduce_scatter";
// in fp64 it goes there as it was made, "A.dw.reduce_scatter".
static int is_output(const char *wide, const char *narrow) {
  static const char cast[] = ".accumulate.cast";
  const char *at = strstr(narrow, cast);
  if (!strcmp(wide, narrow)) return 1;
  if (!at || strncmp(wide, narrow, (size_t)(at - narrow)) || wide[at - narrow] != '.') return 0;
  const char *rest = wide + (at - narrow) + 1;
  return !strcmp(rest + strcspn(rest, "."), at + strlen(cast));
}

int mutation_like(const ParityCase *c, const Mutation *m, Mutation *out) {
  Mutation *list;
  int n = mutations_of(c, &list), found = 0;
  *out = *m;
  out->nodes = 0;
  for (int i = 0; i < n && m->kind == MUTATION_TRANSFER && !found; i++)
    if (!strcmp(list[i].what, m->what)) *out = list[i], found = 1;
  for (int i = 0; i < n && m->outputs > 1 && !found; i++) // one node of several tensors here as well
    if (list[i].kind == m->kind && list[i].evaluation == m->evaluation && list[i].outputs == m->outputs &&
        !memcmp(list[i].output, m->output, sizeof *m->output * (size_t)m->outputs))
      *out = list[i], found = 1;
  for (int k = 0; k < m->outputs && !found; k++)
    for (int i = 0; i < n; i++) {
      const Mutation *x = &list[i];
      if (x->kind != m->kind || x->evaluation != m->evaluation || x->outputs != 1 ||
          !is_output(x->output[0], m->output[k]))
        continue;
      out->node[out->nodes++] = x->node[0];
      break;
    }
  if (m->alone && out->nodes > 1) out->nodes = 1;
  free(list);
  return found || (m->outputs && out->nodes == (m->alone ? 1 : m->outputs));
}
