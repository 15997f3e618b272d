// Graph building that model families share.
#include "model/build.h"
#include "base/fault.h"
#include <stdarg.h>

void build_scope(ModelBuild *m, int layer, const char *format, ...) {
  char text[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  m->g->layer = layer;
  m->g->scope = arena_strdup(&m->g->arena, text);
}

void build_limit(ModelBuild *m, const char *key, int64_t length, const char *why) {
  if (m->longest && m->longest <= length) return;
  m->longest = length;
  m->limit = key;
  m->why = why;
}

static int parameter(ModelBuild *m, const char *name, Init init, int matrix, int rank, const Extent *dims) {
  Shape shape = {.rank = rank};
  for (int i = 0; i < rank; i++) shape.size[i] = dims[i].size, shape.dim[i] = dims[i].dim;
  const char *scope = m->g->scope;
  const char *full = scope && *scope ? arena_join(&m->g->arena, scope, name) : name;
  int variable = graph_find_variable(m->g, full);
  if (variable < 0) {
    variable = graph_variable(m->g, full, VARIABLE_PARAMETER, DTYPE_F32, shape, init);
    m->g->variable.data[variable].weight_decay = FAULT(bias_decays, matrix, matrix || init.kind == INIT_ZERO);
    m->g->variable.data[variable].narrow_copy = matrix;
    m->g->variable.data[variable].outputs = matrix && m->g->layer >= 0 && m->g->layer < m->config->layers;
  }
  return graph_read(m->g, variable);
}

int build_input(ModelBuild *m, KnownInput id) {
  InputSizes sizes = {.samples = m->options->batch, .length = m->options->length};
  if (!m->input[id]) m->input[id] = 1 + graph_known_input(m->g, id, &sizes);
  return m->input[id] - 1;
}

int build_matrix(ModelBuild *m, const char *name, double deviation, int rank, const Extent *dims) {
  return parameter(m, name, (Init){.kind = INIT_NORMAL, .value = deviation}, 1, rank, dims);
}

int build_bias(ModelBuild *m, const char *name, int rank, const Extent *dims) {
  return parameter(m, name, (Init){.kind = INIT_ZERO}, 0, rank, dims);
}

int build_gain(ModelBuild *m, const char *name, Extent dim) {
  return parameter(m, name, (Init){.kind = INIT_CONSTANT, .value = 1}, 0, 1, &dim);
}

int build_residual(ModelBuild *m, int tensor) {
  graph_tensor(m->g, tensor)->role = ROLE_RESIDUAL;
  return tensor;
}

double build_dropout_rate(const ModelBuild *m, double probability) {
  return m->options->mode == MODEL_TRAIN ? probability : FAULT(evaluation_drops_out, 0, probability);
}

int build_dropout(ModelBuild *m, const char *name, int x, double probability) {
  return op_dropout(m->g, name, x, build_dropout_rate(m, probability));
}

static Extent extent_of(const ModelBuild *m, int tensor, int dim) {
  const Shape *s = &graph_tensor(m->g, tensor)->shape;
  return (Extent){s->dim[dim], s->size[dim]};
}

static Extent last_extent(const ModelBuild *m, int tensor) {
  return extent_of(m, tensor, graph_tensor(m->g, tensor)->shape.rank - 1);
}

int build_layer_norm(ModelBuild *m, const char *name, int x) {
  Extent e = last_extent(m, x);
  int gain = build_gain(m, arena_format(&m->g->arena, "%s.weight", name), e);
  int bias = build_bias(m, arena_format(&m->g->arena, "%s.bias", name), 1, &e);
  return op_layer_norm(m->g, name, x, gain, bias, m->config->norm_epsilon);
}

int build_rms_norm(ModelBuild *m, const char *name, int x) {
  int gain = build_gain(m, arena_format(&m->g->arena, "%s.weight", name), last_extent(m, x));
  return op_rms_norm(m->g, name, x, gain, m->config->norm_epsilon);
}

int build_linear(ModelBuild *m, const char *name, int x, double deviation, int out, const Extent *out_dims, int in,
                 int bias) {
  Arena *arena = &m->g->arena;
  Extent dims[MAX_RANK];
  int rank = graph_tensor(m->g, x)->shape.rank;
  CHECK(in <= rank && out + in <= MAX_RANK);
  for (int i = 0; i < out; i++) dims[i] = out_dims[i];
  for (int i = 0; i < in; i++) dims[out + i] = extent_of(m, x, rank - in + i);
  int weight = build_matrix(m, arena_format(arena, "%s.weight", name), deviation, out + in, dims);
  Variable *matrix = &m->g->variable.data[graph_tensor(m->g, weight)->variable];
  matrix->outputs = matrix->outputs ? out : 0;
  int y = op_matmul(m->g, name, x, weight, in);
  if (!bias) return y;
  const char *bias_name = arena_format(arena, "%s.bias", name);
  return op_bias(m->g, bias_name, y, build_bias(m, bias_name, out, out_dims));
}

int build_linear_residual(ModelBuild *m, const char *name, int x, int stream, double deviation, int in, int bias) {
  int from = m->g->node.count;
  Extent embed = last_extent(m, stream);
  int y = build_linear(m, name, x, deviation, 1, &embed, in, bias);
  y = build_dropout(m, arena_format(&m->g->arena, "%s.dropout", name), y, m->config->residual_dropout);
  y = op_add(m->g, arena_format(&m->g->arena, "%s.add", name), (int[]){stream, y}, 2);
  for (int i = from; i < m->g->node.count; i++) build_residual(m, m->g->node.data[i].output[0]);
  return y;
}

// A Variable of the layer with what all positions of a sample's requests have: (b, c, g, d).
static int cache_of(ModelBuild *m, const char *name, int x) {
  const Shape *s = &graph_tensor(m->g, x)->shape;
  Shape shape = shape_of(4, (int64_t[]){s->size[0], m->options->length[DIM_CACHE], s->size[2], s->size[3]},
                         (DimName[]){DIM_BATCH, DIM_CACHE, DIM_KV_HEADS, DIM_HEAD_DIM});
  const char *full = arena_join(&m->g->arena, m->g->scope, name);
  return graph_read(m->g, graph_variable(m->g, full, VARIABLE_CACHE, DTYPE_F32, shape, (Init){.kind = INIT_ZERO}));
}

// q (b, s, g, r, d), k and v (b, s, g, d) of new tokens → (b, s, g, r, d): attention to all positions of their requests
// so far, with theirs.
static int attend_to_cache(ModelBuild *m, int q, int k, int v, double scale) {
  Graph *g = m->g;
  int rows = build_input(m, INPUT_CACHE_ROWS);
  CacheInputs in = {build_input(m, INPUT_REQUESTS), build_input(m, INPUT_POSITIONS), build_input(m, INPUT_PAGES)};
  int keys = op_cache_write(g, "k.cache", cache_of(m, "k.cache", k), k, rows);
  int values = op_cache_write(g, "v.cache", cache_of(m, "v.cache", v), v, rows);
  return op_cache_attention(g, "attention", q, keys, values, &in,
                            &(CacheAttr){.scale = scale, .page = m->options->page});
}

int build_attention(ModelBuild *m, int x) {
  const ModelConfig *c = m->config;
  const Extent query[] = {
      {DIM_KV_HEADS, c->kv_heads}, {DIM_GROUP, c->heads / c->kv_heads}, {DIM_HEAD_DIM, c->head_dim}};
  const Extent key[] = {{DIM_KV_HEADS, c->kv_heads}, {DIM_HEAD_DIM, c->head_dim}};
  Graph *g = m->g;
  int q = build_linear(m, "q", x, c->initializer_range, 3, query, 1, c->qkv_bias); // (b, s, g, r, d)
  int k = build_linear(m, "k", x, c->initializer_range, 2, key, 1, c->qkv_bias);   // (b, s, g, d)
  int v = build_linear(m, "v", x, c->initializer_range, 2, key, 1, c->qkv_bias);   // (b, s, g, d)
  if (c->head_norm) {
    q = build_rms_norm(m, "q.norm", q);
    k = build_rms_norm(m, "k.norm", k);
  }
  if (c->rope.theta > 0) {
    q = op_rope(g, "q.rope", q, build_input(m, INPUT_POSITIONS), &c->rope);
    k = op_rope(g, "k.rope", k, build_input(m, INPUT_POSITIONS), &c->rope);
  }
  AttentionAttr attr = {.scale = c->attention_scale, .dropout = build_dropout_rate(m, c->attention_dropout),
                        .causal = 1,
                        .documents = m->options->one_document ? ATTENTION_DOCUMENTS_ONE : ATTENTION_DOCUMENTS_IN_ORDER};
  int64_t longest = FAULT(window_is_too_long, c->window, c->window + 1); // a token sees itself and window - 1 before it
  if (c->window) build_limit(m, c->window_key, longest, "attention within a window is not built yet");
  if (m->options->mode == MODEL_GENERATE) return attend_to_cache(m, q, k, v, c->attention_scale);
  return op_attention(g, "attention", q, k, v, build_input(m, INPUT_DOCUMENTS), build_input(m, INPUT_DOCUMENTS), &attr);
}

// First of all, so that they are the graph's first tensors whatever a family reads first.
static void text_inputs(ModelBuild *m) {
  build_input(m, INPUT_TOKENS);
  build_input(m, INPUT_POSITIONS);
  if (m->options->mode == MODEL_GENERATE) {
    build_input(m, INPUT_CACHE_ROWS);
    build_input(m, INPUT_REQUESTS);
    build_input(m, INPUT_PAGES);
    build_input(m, INPUT_INDEX);
  } else {
    build_input(m, INPUT_DOCUMENTS);
    build_input(m, INPUT_TARGETS);
  }
}

int build_embedding(ModelBuild *m, int *wte) {
  text_inputs(m);
  const ModelConfig *c = m->config;
  build_scope(m, -1, "%s", "");
  *wte = build_matrix(m, "wte", c->initializer_range, 2, (Extent[]){{DIM_VOCAB, c->vocab}, {DIM_EMBED, c->embed}});
  return build_residual(m, op_embedding(m->g, "wte", *wte, build_input(m, INPUT_TOKENS)));
}

void build_head(ModelBuild *m, int x, int wte, ModelOutputs *outputs) {
  const ModelConfig *c = m->config;
  build_scope(m, (int)c->layers, "%s", "");
  const Extent table[] = {{DIM_VOCAB, c->vocab}, {DIM_EMBED, c->embed}};
  int w = c->tied ? wte : build_matrix(m, "head", c->initializer_range, 2, table);
  *outputs = (ModelOutputs){.loss_sum = -1, .logits = -1};
  if (m->options->mode == MODEL_GENERATE) {
    static const KnownVariable kept[] = {KNOWN_LOGITS, KNOWN_LOGITS_MAXIMUM, KNOWN_LOGITS_SUM};
    static const char *const names[] = {"logits.kept", "logits.maximum.kept", "logits.sum.kept"};
    int index = build_input(m, INPUT_INDEX), out[3];
    op_logits(m->g, "logits", op_take(m->g, "take", x, index), w, index, out);
    outputs->logits = out[0];
    for (int k = 0; k < 3; k++) {
      int variable = graph_known_output(m->g, kept[k], DTYPE_F32, graph_tensor(m->g, out[k])->shape);
      graph_bind(m->g, op_identity(m->g, names[k], out[k]), variable, -1);
    }
  } else {
    int train = m->options->mode == MODEL_TRAIN;
    int seed = train ? graph_read(m->g, graph_known(m->g, KNOWN_GRADIENT_SEED)) : -1;
    outputs->loss_sum = op_linear_cross_entropy(m->g, "loss", x, w, build_input(m, INPUT_TARGETS), seed, train);
  }
}
