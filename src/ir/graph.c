// Building Graphs: tensors, nodes, Variables.
#include "ir/graph.h"
#include "base/philox.h"
#include <string.h>

static const char *const dim_names[] = {
#define DIM(id, name) name,
#include "ir/dims.def"
#undef DIM
};

static const struct {
  const char *name;
  VariableKind kind;
  double first;
  const char *what;
} known_variables[KNOWN_COUNT] = {
#define KNOWN_VARIABLE(id, name, kind, first, what) [KNOWN_##id] = {name, VARIABLE_##kind, first, what},
#include "ir/known.def"
};

enum { OF_SHAPE_LIKE, OF_SHAPE_SCALAR, OF_SHAPE_OWN };
static const struct { const char *prefix; VariableKind kind; int shape; } known_ofs[OF_COUNT] = {
#define KNOWN_OF(id, prefix, kind, shape, what) [OF_##id] = {prefix, VARIABLE_##kind, OF_SHAPE_##shape},
#include "ir/known.def"
};

const InputDef *input_def(int id) {
  static const InputDef table[INPUT_COUNT] = {
#define INPUT(id, name, dtype, dims, from, filled, what)                                                               \
  {name, DTYPE_##dtype, dims, FROM_##from, FILLED_##filled, what},
#include "ir/inputs.def"
  }, own = {.dtype = DTYPE_F32, .from = FROM_CALLER, .what = "an input of the graph's own"};
  return id < INPUT_COUNT ? &table[id] : &own;
}

KnownLoss known_loss(LossKind kind) {
  static const KnownLoss of[LOSS_COUNT] = {
#define LOSS(id, what) [LOSS_##id] = {KNOWN_##id##_LOSS, KNOWN_##id##_LOSS_SUM, KNOWN_##id##_LOSS_SEED},
#include "ir/losses.def"
#undef LOSS
  };
  return of[kind];
}

const char *known_name(KnownVariable known) { return known_variables[known].name; }

const char *known_what(KnownVariable known) { return known_variables[known].what; }

const char *dim_name(DimName dim) { return dim_names[dim]; }

const char *algorithm_text(AlgorithmName algorithm) {
  static const char *const text[] = {"",
#define ALGORITHM(id, choice, name, what) name,
#include "ir/algorithms.def"
  };
  return text[algorithm];
}

const char *op_name(Op op) {
  static const char *const names[] = {
#define OP(id, name) #name,
#include "ir/ops.def"
#undef OP
  };
  return names[op];
}

Shape shape_of(int rank, const int64_t *size, const DimName *dim) {
  Shape s = {.rank = rank};
  CHECK(rank <= MAX_RANK);
  for (int i = 0; i < rank; i++) {
    s.size[i] = size[i];
    s.dim[i] = dim[i];
  }
  return s;
}

int64_t shape_elements(const Shape *shape) {
  int64_t n = 1;
  for (int i = 0; i < shape->rank; i++) n *= shape->size[i];
  return n;
}

Graph *graph_create(void) {
  Graph *g = xcalloc(1, sizeof *g);
  g->region = REGION_MICRO;
  g->stages = 1;
  g->built_here = 1;
  g->layer = -1;
  g->loss = -1;
  g->scope = "";
  for (int k = 0; k < KNOWN_COUNT; k++) g->known[k] = -1;
  vec_push(&g->stage_set, stages_below(0));
  vec_push(&g->stage_set, stages_below(MAX_STAGES));
  return g;
}

void graph_destroy(Graph *g) {
  if (!g) return;
  vec_free(&g->tensor);
  vec_free(&g->node);
  vec_free(&g->variable);
  vec_free(&g->input);
  vec_free(&g->further);
  vec_free(&g->router);
  vec_free(&g->names);
  vec_free(&g->stage_set);
  intern_free(&g->placement);
  for (int r = 0; r < REGION_COUNT; r++) vec_free(&g->newest[r]);
  arena_free(&g->arena);
  free(g);
}

// The place of a name in the table: where it is, or where it belongs.
static int *name_place(const Graph *g, const char *name) {
  uint64_t hash = philox_name(name), mask = (uint64_t)g->names.count - 1;
  for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
    int id = g->names.data[i] - 1;
    if (id < 0 || !strcmp(g->variable.data[id].name, name)) return &g->names.data[i];
  }
}

int graph_find_variable(const Graph *g, const char *name) { return g->names.count ? *name_place(g, name) - 1 : -1; }

static void add_name(Graph *g, int id) {
  if (g->names.count < 2 * g->variable.count + 2) { // a larger table, and all names anew
    int size = 64;
    while (size < 4 * g->variable.count + 4) size *= 2;
    g->names.count = 0;
    while (g->names.count < size) vec_push(&g->names, 0);
    for (int v = 0; v < g->variable.count; v++) *name_place(g, g->variable.data[v].name) = v + 1;
  }
  *name_place(g, g->variable.data[id].name) = id + 1;
}

int graph_add_variable(Graph *g, const Variable *like) {
  Variable v = *like;
  v.id = g->variable.count;
  v.name = arena_strdup(&g->arena, like->name);
  vec_push(&g->variable, v);
  add_name(g, v.id);
  if (v.known != KNOWN_NONE) g->known[v.known] = v.id;
  return v.id;
}

static int new_variable(Graph *g, const Variable *like) {
  CHECK(graph_find_variable(g, like->name) < 0, "Variable %s exists twice", like->name);
  return graph_add_variable(g, like);
}

int graph_variable(Graph *g, const char *name, VariableKind kind, Dtype dtype, Shape shape, Init init) {
  for (int k = KNOWN_NONE + 1; k < KNOWN_COUNT; k++)
    CHECK(strcmp(name, known_variables[k].name), "Variable %s has a handle: graph_known makes it", name);
  return new_variable(g, &(Variable){.name = name,
                                     .kind = kind,
                                     .dtype = dtype,
                                     .shape = shape,
                                     .init = init,
                                     .parameter = kind == VARIABLE_PARAMETER ? g->variable.count : -1,
                                     .trains = kind == VARIABLE_PARAMETER,
                                     .learning_rate = 1});
}

static int new_known(Graph *g, KnownVariable known, Dtype dtype, Shape shape, Init init) {
  return new_variable(g, &(Variable){.name = known_variables[known].name,
                                     .kind = known_variables[known].kind,
                                     .dtype = dtype,
                                     .shape = shape,
                                     .init = init,
                                     .known = known,
                                     .parameter = -1});
}

int graph_known(Graph *g, KnownVariable known) {
  if (g->known[known] >= 0) return g->known[known];
  CHECK(known != KNOWN_NONE && known_variables[known].kind != VARIABLE_OUTPUT, "%s: graph_known makes scalars",
        known_variables[known].name);
  double first = known_variables[known].first;
  return new_known(g, known, DTYPE_F64, (Shape){0}, first ? (Init){INIT_CONSTANT, first} : (Init){0});
}

int graph_known_output(Graph *g, KnownVariable known, Dtype dtype, Shape shape) {
  CHECK(known_variables[known].kind == VARIABLE_OUTPUT, "%s: graph_known_output makes OUTPUTs",
        known_variables[known].name);
  return new_known(g, known, dtype, shape, (Init){0});
}

int graph_variable_of(Graph *g, const char *prefix, int parameter, VariableKind kind) {
  const Variable *p = &g->variable.data[parameter];
  int v = graph_variable(g, arena_join(&g->arena, prefix, p->name), kind, p->dtype, p->shape, (Init){0});
  g->variable.data[v].parameter = parameter;
  return v;
}

int graph_find_of(const Graph *g, KnownOf of, int parameter) {
  CHECK(parameter >= 0 && parameter < g->variable.count, "Variable %d does not exist", parameter);
  return g->variable.data[parameter].has[of] - 1;
}

static int belong(Graph *g, int v, KnownOf of, int parameter) {
  g->variable.data[v].of = of;
  g->variable.data[parameter].has[of] = v + 1;
  return v;
}

// One of fp64 that is not as its parameter.
static int new_of(Graph *g, KnownOf of, int parameter, Shape shape) {
  const char *name = arena_join(&g->arena, known_ofs[of].prefix, g->variable.data[parameter].name);
  return belong(g, graph_variable(g, name, known_ofs[of].kind, DTYPE_F64, shape, (Init){0}), of, parameter);
}

int graph_known_of(Graph *g, KnownOf of, int parameter) {
  int v = graph_find_of(g, of, parameter);
  if (v >= 0) return v;
  CHECK(known_ofs[of].shape != OF_SHAPE_OWN, "%s: graph_known_own makes it", known_ofs[of].prefix);
  if (known_ofs[of].shape == OF_SHAPE_SCALAR) return new_of(g, of, parameter, (Shape){0});
  return belong(g, graph_variable_of(g, known_ofs[of].prefix, parameter, known_ofs[of].kind), of, parameter);
}

int graph_known_own(Graph *g, KnownOf of, int parameter, Shape shape) {
  int v = graph_find_of(g, of, parameter);
  CHECK(known_ofs[of].shape == OF_SHAPE_OWN, "%s has a shape that follows", known_ofs[of].prefix);
  return v >= 0 ? v : new_of(g, of, parameter, shape);
}

int graph_version(Graph *g, int parameter, int age) {
  const char *prefix = arena_format(&g->arena, KNOWN_VERSION "%d", age);
  int v = graph_find_variable(g, arena_join(&g->arena, prefix, g->variable.data[parameter].name));
  if (v >= 0) return v;
  v = graph_variable_of(g, prefix, parameter, VARIABLE_OPTIMIZER);
  g->variable.data[v].version = age;
  return v;
}

static int new_tensor(Graph *g, const char *name, Dtype dtype, Shape shape) {
  Tensor t = {.id = g->tensor.count,
              .name = name,
              .dtype = dtype,
              .shape = shape,
              .producer = -1,
              .variable = -1,
              .copy = -1,
              .input = -1,
              .parameter = -1,
              .mask = -1};
  if (shape.rank == 0) t.role = ROLE_SCALAR;
  vec_push(&g->tensor, t);
  return t.id;
}

void graph_compact(Graph *g, int tensor, int mask, int choices) {
  const Shape *rows = &graph_tensor(g, tensor)->shape, *of = &graph_tensor(g, mask)->shape;
  CHECK(graph_tensor(g, mask)->dtype == DTYPE_U8 && of->rank == 3 && rows->rank > 3 && choices > 0,
        "%s cannot be compact by %s", graph_tensor(g, tensor)->name, graph_tensor(g, mask)->name);
  for (int d = 0; d < 3; d++) CHECK(rows->size[d] == of->size[d], "%s", graph_tensor(g, tensor)->name);
  graph_tensor(g, tensor)->mask = mask;
  graph_tensor(g, tensor)->choices = choices;
}

int graph_waits_for_mask(const Graph *g, const Node *n, int mask) {
  for (int k = 0; k < n->ninput; k++)
    if (n->input[k] == mask || (n->input[k] >= 0 && graph_tensor(g, n->input[k])->mask == mask)) return 1;
  return 0;
}

static void remember_newest(Graph *g, int variable, int tensor) {
  while (g->newest[g->region].count <= variable) vec_push(&g->newest[g->region], 0);
  g->newest[g->region].data[variable] = tensor + 1;
}

static int is_storage(const Graph *g, int tensor, int variable) {
  return tensor >= 0 && graph_tensor(g, tensor)->variable == variable && graph_tensor(g, tensor)->copy < 0;
}

// The last tensor of this region that is bound to the Variable's storage: its newest value there. -1: none.
static int find_newest(const Graph *g, int variable) {
  if (variable < g->newest[g->region].count) {
    int known = g->newest[g->region].data[variable] - 1;
    if (is_storage(g, known, variable)) return known;
  }
  if (g->built_here) return -1;
  for (int i = g->node.count - 1; i >= 0; i--) {
    const Node *n = &g->node.data[i];
    if (n->region != g->region) continue;
    for (int k = 0; k < n->noutput; k++)
      if (is_storage(g, n->output[k], variable)) return n->output[k];
    for (int k = 0; k < n->ninput; k++)
      if (is_storage(g, n->input[k], variable)) return n->input[k];
  }
  return -1;
}

int graph_read(Graph *g, int variable) {
  int t = find_newest(g, variable);
  return t >= 0 ? t : graph_read_apart(g, variable);
}

int graph_read_apart(Graph *g, int variable) {
  const Variable *v = &g->variable.data[variable];
  int t = new_tensor(g, v->name, v->dtype, v->shape);
  graph_bind(g, t, variable, -1);
  graph_tensor(g, t)->parameter = v->parameter;
  graph_tensor(g, t)->role =
      !v->shape.rank                                                                               ? ROLE_SCALAR
      : v->kind == VARIABLE_PARAMETER || v->kind == VARIABLE_OPTIMIZER || v->kind == VARIABLE_PART ? ROLE_WEIGHT
      : v->kind == VARIABLE_GRADIENT ? ROLE_WEIGHT_GRADIENT
      : v->kind == VARIABLE_CACHE    ? ROLE_INTERIOR
                                     : ROLE_SCALAR;
  return t;
}

static int new_input(Graph *g, const char *name, int id, Dtype dtype, Shape shape) {
  const InputDef *def = input_def(id);
  int t = new_tensor(g, arena_strdup(&g->arena, name), dtype, shape);
  graph_tensor(g, t)->role = ROLE_DATA;
  graph_tensor(g, t)->input = graph_add_input(g, &(GraphInput){name, g->region, t, id, def->from, def->filled});
  return t;
}

int graph_input(Graph *g, const char *name, Dtype dtype, Shape shape) {
  int own = 0;
  for (int i = 0; i < g->input.count; i++) own += input_own(&g->input.data[i]) >= 0;
  return new_input(g, name, INPUT_COUNT + own, dtype, shape);
}

// The dim of a sequence by its letter in the table.
static DimName input_sequence(char letter) {
  static const struct { char letter; DimName dim; } sequences[] = {{'s', DIM_SEQ}, {'q', DIM_REQUEST}, {'p', DIM_PAGE},
                                                                 {'l', DIM_LOGITS}};
  size_t i = 0;
  while (sequences[i].letter != letter) CHECK(++i < sizeof sequences / sizeof *sequences, "no sequence is %c", letter);
  return sequences[i].dim;
}

int graph_known_input(Graph *g, KnownInput id, const InputSizes *sizes) {
  const InputDef *def = input_def(id);
  Shape shape = {0};
  for (const char *letter = def->dims; *letter; letter++, shape.rank++) {
    int samples = *letter == 'b' || *letter == 'B';
    DimName dim = shape.dim[shape.rank] = samples ? DIM_BATCH : input_sequence(*letter);
    shape.size[shape.rank] = *letter == 'b' ? sizes->samples : samples ? sizes->step_samples : sizes->length[dim];
  }
  return new_input(g, def->name, id, def->dtype, shape);
}

void graph_bind(Graph *g, int tensor, int variable, int copy) {
  graph_tensor(g, tensor)->variable = variable;
  graph_tensor(g, tensor)->copy = copy;
  if (copy < 0) remember_newest(g, variable, tensor);
}

int graph_stage_set(Graph *g, const StageSet *set) {
  for (int i = 0; i < g->stage_set.count; i++)
    if (stages_equal(&g->stage_set.data[i], set)) return i;
  vec_push(&g->stage_set, *set);
  return g->stage_set.count - 1;
}

int graph_holders(const Graph *g, int tensor) {
  const Tensor *t = graph_tensor(g, tensor);
  if (t->variable >= 0) return g->variable.data[t->variable].stages;
  return t->producer >= 0 ? t->stages : STAGES_ALL;
}

const char *phase_name(Phase phase) {
  static const char *const names[] = {
#define PHASE(id, name, letter) name,
#include "ir/phases.def"
#undef PHASE
  };
  return names[phase];
}

const char *phase_letter(Phase phase) {
  static const char *const letters[] = {
#define PHASE(id, name, letter) letter,
#include "ir/phases.def"
#undef PHASE
  };
  return letters[phase];
}

int graph_stage_of_layer(const Graph *g, int layer) {
  if (layer < 0 || g->stages == 1) return 0;
  int stage = g->stages - 1;
  while (layer < g->layers && stage > 0 && layer < g->cut[stage]) stage--;
  return stage;
}

int graph_output(Graph *g, Node *node, const char *suffix, Dtype dtype, Shape shape) {
  const char *name = suffix && suffix[0] ? arena_join(&g->arena, node->name, suffix) : node->name;
  int t = new_tensor(g, name, dtype, shape);
  int *output = arena_array(&g->arena, int, node->noutput + 1);
  if (node->noutput) memcpy(output, node->output, sizeof(int) * (size_t)node->noutput);
  output[node->noutput++] = t;
  node->output = output;
  graph_tensor(g, t)->producer = node->id;
  return t;
}

int graph_add_input(Graph *g, const GraphInput *like) {
  GraphInput in = *like;
  in.name = arena_strdup(&g->arena, like->name);
  vec_push(&g->input, in);
  return g->input.count - 1;
}

int graph_add_tensor(Graph *g, const Tensor *like) {
  Tensor t = *like;
  g->built_here = 0;
  t.id = g->tensor.count;
  t.name = arena_strdup(&g->arena, like->name);
  vec_push(&g->tensor, t);
  return t.id;
}

static int *copy_ids(Graph *g, const int *ids, int n) {
  int *copy = arena_array(&g->arena, int, n + 1);
  if (n) memcpy(copy, ids, sizeof(int) * (size_t)n);
  return copy;
}

int graph_add_node(Graph *g, const Node *like) {
  Node n = *like;
  n.id = g->node.count;
  n.name = arena_strdup(&g->arena, like->name);
  n.input = copy_ids(g, like->input, like->ninput);
  n.output = copy_ids(g, like->output, like->noutput);
  for (int k = 0; k < n.noutput; k++) graph_tensor(g, n.output[k])->producer = n.id;
  vec_push(&g->node, n);
  return n.id;
}

Graph *graph_create_like(const Graph *g) {
  Graph *c = graph_create();
  c->form = g->form;
  c->layers = g->layers;
  c->stages = g->stages;
  memcpy(c->cut, g->cut, sizeof c->cut);
  for (int i = c->stage_set.count; i < g->stage_set.count; i++) vec_push(&c->stage_set, g->stage_set.data[i]);
  return c;
}

Graph *graph_copy(const Graph *g) {
  Graph *c = graph_create_like(g);
  c->region = g->region;
  c->phase = g->phase;
  for (int i = 0; i < g->variable.count; i++) graph_add_variable(c, &g->variable.data[i]);
  for (int i = 0; i < g->tensor.count; i++) graph_add_tensor(c, &g->tensor.data[i]);
  for (int i = 0; i < g->node.count; i++) graph_add_node(c, &g->node.data[i]);
  for (int i = 0; i < g->input.count; i++) graph_add_input(c, &g->input.data[i]);
  return c;
}
