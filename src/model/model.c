// model_build: checks, inputs and the choice of the family; and the parts that the families share.
#include "model/build.h"
#include "base/fault.h"
#include <stdarg.h>

// --- parts ---------------------------------------------------------------------------------------------------------------

void build_scope(ModelBuild *m, int layer, const char *format, ...) {
  char text[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  m->g->layer = layer;
  m->g->scope = arena_strdup(&m->g->arena, text);
}

static int64_t extent(const ModelConfig *c, DimName dim) {
  switch (dim) {
  case DIM_EMBED: return c->embed;
  case DIM_KV_HEADS: return c->kv_heads;
  case DIM_GROUP: return c->heads / c->kv_heads;
  case DIM_HEAD_DIM: return c->head_dim;
  case DIM_FFN: return c->ffn;
  case DIM_VOCAB: return c->vocab;
  case DIM_POSITION: return c->positions;
  default: CHECK(0, "no parameter has the dim %s", dim_name(dim));
  }
}

static int parameter(ModelBuild *m, const char *name, Init init, int matrix, int rank, const DimName *dims) {
  int64_t size[MAX_RANK];
  for (int i = 0; i < rank; i++) size[i] = extent(m->config, dims[i]);
  const char *scope = m->g->scope;
  const char *full = scope && *scope ? arena_join(&m->g->arena, scope, name) : name;
  int variable = graph_find_variable(m->g, full);
  if (variable < 0) {
    variable = graph_variable(m->g, full, VARIABLE_PARAMETER, DTYPE_F32, shape_of(rank, size, dims), init);
    m->g->variable.data[variable].weight_decay = FAULT(bias_decays, matrix, matrix || init.kind == INIT_ZERO);
    m->g->variable.data[variable].narrow_copy = matrix;
  }
  return graph_read(m->g, variable);
}

int build_matrix(ModelBuild *m, const char *name, double deviation, int rank, const DimName *dims) {
  return parameter(m, name, (Init){.kind = INIT_NORMAL, .value = deviation}, 1, rank, dims);
}

int build_bias(ModelBuild *m, const char *name, int rank, const DimName *dims) {
  return parameter(m, name, (Init){.kind = INIT_ZERO}, 0, rank, dims);
}

int build_gain(ModelBuild *m, const char *name) {
  return parameter(m, name, (Init){.kind = INIT_CONSTANT, .value = 1}, 0, 1, (DimName[]){DIM_EMBED});
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

int build_linear(ModelBuild *m, const char *name, int x, double deviation, int out, const DimName *out_dims, int in,
                 const DimName *in_dims, int bias) {
  Arena *arena = &m->g->arena;
  DimName dims[MAX_RANK];
  for (int i = 0; i < out; i++) dims[i] = out_dims[i];
  for (int i = 0; i < in; i++) dims[out + i] = in_dims[i];
  int y = op_matmul(m->g, name, x, build_matrix(m, arena_format(arena, "%s.weight", name), deviation, out + in, dims), in);
  if (!bias) return y;
  const char *bias_name = arena_format(arena, "%s.bias", name);
  return op_bias(m->g, bias_name, y, build_bias(m, bias_name, out, out_dims));
}

int build_linear_residual(ModelBuild *m, const char *name, int x, int stream, double deviation, int in,
                          const DimName *in_dims, int bias) {
  int from = m->g->node.count;
  int y = build_linear(m, name, x, deviation, 1, (DimName[]){DIM_EMBED}, in, in_dims, bias);
  y = build_dropout(m, arena_format(&m->g->arena, "%s.dropout", name), y, m->config->residual_dropout);
  y = op_add(m->g, arena_format(&m->g->arena, "%s.add", name), (int[]){stream, y}, 2);
  for (int i = from; i < m->g->node.count; i++) build_residual(m, m->g->node.data[i].output[0]);
  return y;
}

int build_attention(ModelBuild *m, int x, const RopeAttr *rope) {
  static const DimName query[] = {DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM}, key[] = {DIM_KV_HEADS, DIM_HEAD_DIM}, embed[] = {DIM_EMBED};
  const ModelConfig *c = m->config;
  Graph *g = m->g;
  int q = build_linear(m, "q", x, c->initializer_range, 3, query, 1, embed, c->attention_bias); // (b, s, g, r, d)
  int k = build_linear(m, "k", x, c->initializer_range, 2, key, 1, embed, c->attention_bias);   // (b, s, g, d)
  int v = build_linear(m, "v", x, c->initializer_range, 2, key, 1, embed, c->attention_bias);   // (b, s, g, d)
  if (rope) {
    q = op_rope(g, "q.rope", q, m->positions, rope);
    k = op_rope(g, "k.rope", k, m->positions, rope);
  }
  AttentionAttr attr = {.scale = c->attention_scale, .dropout = build_dropout_rate(m, c->attention_dropout), .causal = 1};
  return op_attention(g, "attention", q, k, v, m->documents, &attr);
}

void build_head(ModelBuild *m, int x, int wte, ModelOutputs *outputs) {
  const ModelConfig *c = m->config;
  build_scope(m, (int)c->layers, "%s", "");
  int w = c->tied ? wte : build_matrix(m, "head", c->initializer_range, 2, (DimName[]){DIM_VOCAB, DIM_EMBED});
  *outputs = (ModelOutputs){.loss_sum = -1, .logits = -1};
  if (m->options->mode == MODEL_GENERATE) {
    int logits = outputs->logits = op_matmul(m->g, "logits", op_take(m->g, "take", x, m->index), w, 1);
    int kept = graph_known_output(m->g, KNOWN_LOGITS, DTYPE_F32, graph_tensor(m->g, logits)->shape);
    graph_bind(m->g, op_identity(m->g, "logits.kept", logits), kept, -1);
  } else {
    int train = m->options->mode == MODEL_TRAIN, seed = train ? graph_read(m->g, graph_known(m->g, KNOWN_GRADIENT_SEED)) : -1;
    outputs->loss_sum = op_linear_cross_entropy(m->g, "loss", x, w, m->targets, seed, train);
  }
}

// --- model ---------------------------------------------------------------------------------------------------------------

static void make_inputs(ModelBuild *m) {
  const ModelOptions *o = m->options;
  Shape all = shape_of(2, (int64_t[]){o->batch, o->seq}, (DimName[]){DIM_BATCH, DIM_SEQ});
  Shape samples = shape_of(1, (int64_t[]){o->batch}, (DimName[]){DIM_BATCH});
  m->tokens = graph_known_input(m->g, INPUT_TOKENS, all);
  m->positions = graph_known_input(m->g, INPUT_POSITIONS, all);
  m->documents = graph_known_input(m->g, INPUT_DOCUMENTS, all);
  m->targets = m->index = -1;
  if (o->mode == MODEL_GENERATE) m->index = graph_known_input(m->g, INPUT_INDEX, samples);
  else m->targets = graph_known_input(m->g, INPUT_TARGETS, all);
}

int model_build(Graph *g, const ModelConfig *config, const ModelOptions *options, ModelOutputs *outputs, Error *error) {
  static int (*const builders[])(ModelBuild *, ModelOutputs *, Error *) = {
#define FAMILY(id, type, file, architecture) [MODEL_##id] = file##_build,
#include "model/families.def"
#undef FAMILY
  };
  CHECK(options->batch > 0 && options->seq > 0);
  g->region = REGION_MICRO;
  g->phase = PHASE_FORWARD;
  g->layers = (int)config->layers;
  g->layer = -1;
  g->scope = "";
  ModelBuild m = {.g = g, .config = config, .options = options};
  make_inputs(&m);
  int code = builders[config->family](&m, outputs, error);
  g->scope = "";
  return code;
}
