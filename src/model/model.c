// model_build: the family's part, and the check of the length.
#include "model/family.h"
#include "base/fault.h"

// Builds whatever the length is; the limit of the length is in *m afterwards.
static void build(ModelBuild *m, ModelOutputs *outputs) {
  Graph *g = m->g;
  CHECK(m->options->batch > 0);
  g->region = REGION_MICRO;
  g->phase = PHASE_FORWARD;
  g->layers = (int)m->config->layers;
  g->layer = -1;
  g->scope = "";
  m->config->family->build(m, outputs);
  g->scope = "";
}

int model_build(Graph *g, const ModelConfig *config, const ModelOptions *options, ModelOutputs *outputs, Error *error) {
  // Of a tick's tokens each has a position of its own: whoever generates checks these.
  int code = options->mode == MODEL_GENERATE
                 ? PLAIT_OK
                 : model_check_length(config, "data.seq_len", options->length[DIM_SEQ], error);
  if (code) return code;
  build(&(ModelBuild){.g = g, .config = config, .options = options}, outputs);
  return PLAIT_OK;
}

Graph *model_graph(const ModelConfig *config, int64_t seq) {
  ModelOutputs outputs;
  ModelBuild m = {.g = graph_create(),
                  .config = config,
                  .options = &(ModelOptions){.batch = 1, .length = {[DIM_SEQ] = seq}, .mode = MODEL_EVALUATE}};
  build(&m, &outputs);
  return m.g;
}

// --- facts -----------------------------------------------------------------------------------------------------------

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

// How many elements of a parameter a token meets in this node: where the node has rows by expert, those of its choices.
static int64_t met(const Graph *g, const Node *n, const Variable *v) {
  int64_t all = shape_elements(&v->shape), experts = v->shape.size[0];
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
    if (!t || !tensor_is_compact(t) || v->shape.dim[0] != DIM_EXPERT) continue;
    return FAULT(all_experts_are_active, all / experts * (t->choices < experts ? t->choices : experts), all);
  }
  return all;
}

static void count_parameters(const Graph *g, ModelFacts *facts) {
  int64_t *active = xcalloc((size_t)g->variable.count, sizeof *active);
  char *multiplied = xcalloc((size_t)g->variable.count, 1);
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; k < n->ninput; k++) {
      int id = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->variable;
      if (id < 0) continue;
      int64_t elements = met(g, n, &g->variable.data[id]);
      if (elements > active[id]) active[id] = elements;
      if (!op_def(n->op)->looks_up) multiplied[id] = 1;
    }
  }
  for (int i = 0; i < g->variable.count; i++) {
    if (!variable_is_counted(&g->variable.data[i])) continue;
    facts->parameters += shape_elements(&g->variable.data[i].shape);
    facts->active += active[i];
    facts->multiplied += multiplied[i] ? active[i] : 0;
  }
  free(multiplied);
  free(active);
}

static void note_width(ModelFacts *facts, const Variable *v, int d) {
  DimName dim = v->shape.dim[d];
  int64_t size = v->shape.size[d];
  for (int i = 0; i < facts->widths; i++)
    if (facts->width[i].dim == dim && facts->width[i].size == size) return;
  if (facts->widths == MODEL_WIDTHS) return;
  ModelWidth *width = &facts->width[facts->widths++];
  const char *end = strrchr(v->name, '.'); // before "weight" or "bias"
  *width = (ModelWidth){.dim = dim, .size = size};
  snprintf(width->of, sizeof width->of, "%.*s", end ? (int)(end - v->name) : (int)strlen(v->name), v->name);
}

void model_measure(ModelConfig *config) {
  ModelOutputs outputs;
  ModelBuild m = {.g = graph_create(),
                  .config = config,
                  .options = &(ModelOptions){.batch = 1, .length = {[DIM_SEQ] = 1}, .mode = MODEL_EVALUATE}};
  build(&m, &outputs);
  ModelFacts facts = {.longest = m.longest, .limit = m.limit, .why = m.why};
  count_parameters(m.g, &facts);
  for (int i = 0; i < m.g->variable.count; i++) {
    const Variable *v = &m.g->variable.data[i];
    if (!variable_is_counted(v)) continue;
    for (int d = 0; d < v->shape.rank; d++) {
      facts.size[v->shape.dim[d]] = common_divisor(facts.size[v->shape.dim[d]], v->shape.size[d]);
      note_width(&facts, v, d);
    }
  }
  graph_destroy(m.g);
  config->facts = facts;
}

int64_t model_config_parameters(const ModelConfig *config) { return config->facts.parameters; }

// FLOPs of the node where all that it multiplies are activations, such as attention; else 0.
static double flops_of_activations(const Graph *g, const Node *n) {
  Operand input[8], output[8];
  if (n->ninput > 8 || n->noutput > 8) return 0;
  for (int i = 0; i < n->ninput + n->noutput; i++) {
    int id = i < n->ninput ? n->input[i] : n->output[i - n->ninput];
    Operand *o = i < n->ninput ? &input[i] : &output[i - n->ninput];
    *o = (Operand){0};
    if (id < 0) continue;
    const Tensor *t = graph_tensor(g, id);
    if (t->variable >= 0 || tensor_is_compact(t)) return 0;
    *o = (Operand){.dtype = t->dtype, .rank = t->shape.rank};
    for (int d = 0; d < o->rank; d++) o->size[d] = t->shape.size[d], o->map[d] = index_whole(o->size[d]);
  }
  return op_work(op_def(n->op), input, n->ninput, output, n->noutput, n->attr).matrix;
}

double model_config_flops_per_token(const ModelConfig *config, int64_t seq_len) {
  double activations = 0;
  Graph *g = model_graph(config, seq_len);
  for (int i = 0; i < g->node.count; i++) activations += flops_of_activations(g, &g->node.data[i]);
  graph_destroy(g);
  // Forward multiplies and adds each parameter once a token; backward costs twice as much as forward.
  return 3 * (2 * (double)config->facts.multiplied + activations / (double)seq_len);
}

int model_check_length(const ModelConfig *config, const char *asked, int64_t length, Error *error) {
  const ModelFacts *f = &config->facts;
  if (!f->longest || length <= f->longest) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s is %lld, but %s is %lld; take at most %lld%s%s", config->path,
                   f->limit, (long long)f->longest, asked, (long long)length, (long long)f->longest,
                   f->why ? ", because " : "", f->why ? f->why : "");
}

int64_t model_usual_length(const ModelConfig *config) {
  int64_t longest = config->facts.longest;
  return longest && longest < config->positions ? longest : config->positions;
}
