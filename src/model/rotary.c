// Decoders with rotary positions: their keys, blocks and names.
#include "model/rotary.h"
#include "base/fault.h"
#include "model/experts.h"
#include <math.h>
#include <string.h>

// --- keys ------------------------------------------------------------------------------------------------------------

enum { ROPE_PLAIN = 0, ROPE_LLAMA3 = 1, ROPE_LINEAR = 2 }; // RopeAttr.scaling

// Without a type the object says nothing of scaling: there is nothing else in it than the base.
static int has_scaling(const json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value)
    if (!json_is_null(value) && strcmp(key, "rope_theta") && strcmp(key, "partial_rotary_factor")) return 1;
  return 0;
}

static void read_scaling(ConfigReader *r, RopeAttr *rope) {
  const json_t *type = config_value(r, "rope_type");
  const char *name = json_string_value(type), *allowed = "\"llama3\", \"linear\" or \"default\"";
  if (!type) {
    if (has_scaling(r->object)) config_missing(r, "rope_type", allowed);
  } else if (name && !strcmp(name, "linear")) {
    rope->scaling = ROPE_LINEAR;
    rope->factor = config_real(r, "factor", 0, 0, 1e6, NAN);
  } else if (name && !strcmp(name, "llama3")) {
    rope->scaling = ROPE_LLAMA3;
    rope->factor = config_real(r, "factor", 0, 0, 1e6, NAN);
    rope->low_frequency_factor = config_real(r, "low_freq_factor", 0, 0, 1e6, NAN);
    rope->high_frequency_factor = config_real(r, "high_freq_factor", rope->low_frequency_factor, 0, 1e6, NAN);
    rope->original_positions = (double)config_integer(r, "original_max_position_embeddings", 1, MOST_POSITIONS, -1);
  } else if (!name || strcmp(name, "default")) {
    config_bad_value(r, "rope_type", type, allowed);
  }
}

// Reads one object, beside a rope_theta that stands outside of it. 1: the object is there.
static int read_rope(ConfigReader *outer, const char *key, double theta, RopeAttr *rope) {
  static const ConfigAlias aliases[] = {{"type", "rope_type"}, {NULL, NULL}}; // files before 2024 say "type"
  const json_t *object = config_value(outer, key);
  *rope = (RopeAttr){.theta = theta};
  if (outer->code || !object) return 0;
  if (!json_is_object(object)) {
    config_bad_value(outer, key, object, "an object or null");
    return 0;
  }
  char prefix[40];
  snprintf(prefix, sizeof prefix, "%s.", key);
  ConfigReader r = {.file = outer->file, .prefix = prefix, .aliases = aliases, .object = (json_t *)object,
                    .known = outer->known, .error = outer->error};
  rope->theta = config_real(&r, "rope_theta", 0, 0, 1e12, theta);
  if (!r.code && rope->theta != theta && config_value(outer, "rope_theta"))
    config_bad_value(&r, "rope_theta", config_value(&r, "rope_theta"), "the same as rope_theta, or only one of them");
  config_only(&r, "partial_rotary_factor", "1.0");
  read_scaling(&r, rope);
  outer->code = r.code;
  return 1;
}

// transformers 4 writes rope_theta and rope_scaling, transformers 5 both facts in rope_parameters. A file that has both
// must mean the same with both.
static void read_ropes(ConfigReader *r, ModelConfig *c, double absent) {
  RopeAttr scaling, parameters;
  double theta = config_real(r, "rope_theta", 0, 0, 1e12, absent ? absent : 10000);
  config_only(r, "partial_rotary_factor", "1.0");
  int old = read_rope(r, "rope_scaling", theta, &scaling), new = read_rope(r, "rope_parameters", theta, &parameters);
  c->rope = new ? parameters : scaling;
  if (r->code || !old || !new) return;
  if (scaling.theta == theta) scaling.theta = parameters.theta; // it stands in one of them alone
  if (parameters.theta == theta) c->rope.theta = parameters.theta = scaling.theta;
  if (FAULT(second_rope_wins, model_same_rope(&scaling, &parameters), 1)) return;
  config_bad_value(r, "rope_scaling", config_value(r, "rope_scaling"),
                   "null, because there is rope_parameters, which says something else");
}

static void read_heads(ConfigReader *r, ModelConfig *c, const RotaryDefaults *defaults) {
  int follows = !defaults->kv_heads || config_is_null(r, "num_key_value_heads");
  c->heads = config_integer(r, "num_attention_heads", 1, MOST_HEADS, -1);
  c->kv_heads = config_integer(r, "num_key_value_heads", 1, MOST_HEADS, follows ? c->heads : defaults->kv_heads);
  if (r->code) return;
  config_must_divide(r, "num_attention_heads", c->heads, "num_key_value_heads", c->kv_heads);
  int64_t absent = config_is_null(r, "head_dim") ? 0 : defaults->head_dim;
  if (!config_value(r, "head_dim") && !absent)
    config_must_divide(r, "hidden_size", c->embed, "num_attention_heads", c->heads);
  if (r->code) return;
  c->head_dim = config_integer(r, "head_dim", 1, MOST_HEAD_DIM, absent ? absent : c->embed / c->heads);
  if (!r->code && (c->head_dim < 2 || c->head_dim % 2))
    r->code = error_set(r->error, PLAIT_BAD_INPUT,
                        "%s: head_dim is %lld; allowed: even numbers, because rope rotates pairs", r->file,
                        (long long)c->head_dim);
  c->attention_scale = 1 / sqrt((double)c->head_dim);
}

void rotary_read(ConfigReader *r, ModelConfig *c, const RotaryDefaults *defaults) {
  c->layers = config_integer(r, "num_hidden_layers", 1, MOST_LAYERS, -1);
  c->embed = config_integer(r, "hidden_size", 1, MOST_EMBED, -1);
  c->ffn = config_integer(r, "intermediate_size", 1, MOST_FFN, -1);
  c->positions = config_integer(r, "max_position_embeddings", 1, MOST_POSITIONS, defaults->positions);
  c->vocab = config_integer(r, "vocab_size", 1, MOST_VOCAB, -1);
  c->activation = config_activation(r, "hidden_act", "silu");
  c->norm_epsilon = config_real(r, "rms_norm_eps", 0, 0, 1, defaults->norm_epsilon ? defaults->norm_epsilon : 1e-6);
  c->attention_dropout = config_probability(r, "attention_dropout", 0);
  c->initializer_range = config_real(r, "initializer_range", 0, 1, 1e3, 0.02);
  c->tied = config_boolean(r, "tie_word_embeddings", 0);
  read_heads(r, c, defaults);
  read_ropes(r, c, defaults->theta);
}

// layer_types, one a layer; returns how many of them are windows.
static int64_t read_layer_types(ConfigReader *r, const ModelConfig *c) {
  const json_t *types = config_value(r, "layer_types");
  int64_t windows = 0;
  size_t i;
  json_t *type;
  if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers) {
    config_bad_value(r, "layer_types", types, "a list of num_hidden_layers words");
    return 0;
  }
  json_array_foreach((json_t *)types, i, type) {
    const char *name = json_string_value(type);
    int window = name && !strcmp(name, "sliding_attention");
    windows += window;
    if (window || (name && !strcmp(name, "full_attention"))) continue;
    config_bad_value(r, "layer_types", type, "\"full_attention\" or \"sliding_attention\"");
    return 0;
  }
  return windows;
}

void rotary_read_windows(ConfigReader *r, ModelConfig *c) {
  int used = config_boolean(r, "use_sliding_window", 0);
  int64_t absent = config_is_null(r, "sliding_window") ? 0 : 4096;
  int64_t window = used ? config_integer(r, "sliding_window", 1, INT64_MAX, absent) : 0;
  int64_t first = config_integer(r, "max_window_layers", 0, INT64_MAX, 28); // the layers before it see all
  if (r->code) return;
  int64_t windows = config_value(r, "layer_types") ? read_layer_types(r, c) : window ? c->layers - first : 0;
  if (!r->code && windows > 0 && !window)
    config_bad_value(r, "layer_types", config_value(r, "layer_types"),
                     "\"full_attention\" for all layers where use_sliding_window or sliding_window asks for no window");
  if (r->code || windows <= 0) return;
  c->window = window;
  c->window_key = "sliding_window";
}

// --- blocks ----------------------------------------------------------------------------------------------------------

static int block(ModelBuild *m, int layer, int stream) { // (b, s, e) → (b, s, e)
  const ModelConfig *c = m->config;
  Extent ffn = {DIM_FFN, c->ffn};

  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, build_rms_norm(m, "norm", stream)); // (b, s, g, r, d)
  stream = build_linear_residual(m, "output", x, stream, c->initializer_range, 3, c->output_bias);

  build_scope(m, layer, "layer.%d.ffn", layer);
  x = build_rms_norm(m, "norm", stream);
  if (model_layer_has_experts(c, layer)) return build_experts(m, layer, x, stream);
  int gate = build_linear(m, "gate", x, c->initializer_range, 1, &ffn, 1, c->ffn_bias); // (b, s, f)
  int up = build_linear(m, "up", x, c->initializer_range, 1, &ffn, 1, c->ffn_bias);     // (b, s, f)
  x = op_gated(m->g, "gated", gate, up, c->activation);
  return build_linear_residual(m, "down", x, stream, c->initializer_range, 1, c->ffn_bias);
}

void rotary_build(ModelBuild *m, ModelOutputs *outputs) {
  const ModelConfig *c = m->config;
  int wte, stream = build_embedding(m, &wte);
  for (int layer = 0; layer < c->layers; layer++) stream = block(m, layer, stream);
  build_scope(m, (int)c->layers, "%s", "");
  build_head(m, build_rms_norm(m, "norm", stream), wte, outputs);
}

// --- names -----------------------------------------------------------------------------------------------------------

const char *const rotary_layouts[] = {ROTARY_NAMES, NULL};
const char *const rotary_buffers[] = {"rotary_emb.inv_freq", NULL};
