// Reads, checks and writes config.json: one function a family that names its keys, over a few typed getters.
#include "model/config.h"
#include "base/file.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_CONFIG_BYTES = 4 << 20 };
// Bounds that keep every product of sizes below 2^62 and are far above any model that exists.
enum { MAX_LAYERS = 4096, MAX_HEADS = 1 << 14, MAX_EMBED = 1 << 18, MAX_FFN = 1 << 22, MAX_VOCAB = 1 << 24, MAX_POSITIONS = 1 << 24 };

static const struct Family { const char *type, *architecture; } families[] = {
#define FAMILY(id, type, file, architecture) {type, architecture},
#include "model/families.def"
#undef FAMILY
};

const char *model_family_name(ModelFamily family) { return families[family].type; }

// The getters below read keys of one object of one file and do nothing after the first error.
typedef struct Reader {
  const char *file, *prefix; // prefix: "" or "rope_scaling." for messages
  json_t *object;
  Error *error;
  int code;
} Reader;

static void bad_value(Reader *r, const char *key, const json_t *value, const char *allowed) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: %s%s is %.60s%s; allowed: %s", r->file, r->prefix, key, text ? text : "?",
                      text && strlen(text) > 60 ? "…" : "", allowed);
  free(text);
}

// The value of a key, NULL when absent or null.
static const json_t *value_of(const Reader *r, const char *key) {
  const json_t *value = json_object_get(r->object, key);
  return json_is_null(value) ? NULL : value;
}

static void missing(Reader *r, const char *key, const char *allowed) {
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: the key %s%s is missing; allowed: %s", r->file, r->prefix, key, allowed);
}

// `absent` < 0: the key is required.
static int64_t get_integer(Reader *r, const char *key, int64_t lowest, int64_t highest, int64_t absent) {
  if (r->code) return 0;
  char allowed[80];
  snprintf(allowed, sizeof allowed, "an integer from %lld to %lld", (long long)lowest, (long long)highest);
  const json_t *value = value_of(r, key);
  if (!value) {
    if (absent < 0) missing(r, key, allowed);
    return absent;
  }
  if (json_is_integer(value) && json_integer_value(value) >= lowest && json_integer_value(value) <= highest)
    return json_integer_value(value);
  bad_value(r, key, value, allowed);
  return 0;
}

// Above `lowest`, or equal to it where `closed`; below `highest`. `absent` NAN: required.
static double get_real(Reader *r, const char *key, double lowest, int closed, double highest, double absent) {
  if (r->code) return 0;
  char allowed[80];
  snprintf(allowed, sizeof allowed, "a number %s %g and below %g", closed ? "from" : "above", lowest, highest);
  const json_t *value = value_of(r, key);
  if (!value) {
    if (isnan(absent)) missing(r, key, allowed);
    return absent;
  }
  double x = json_is_number(value) ? json_number_value(value) : NAN;
  if ((closed ? x >= lowest : x > lowest) && x < highest) return x;
  bad_value(r, key, value, allowed);
  return 0;
}

static int get_boolean(Reader *r, const char *key, int absent) {
  if (r->code) return 0;
  const json_t *value = value_of(r, key);
  if (!value) return absent;
  if (json_is_boolean(value)) return json_is_true(value);
  bad_value(r, key, value, "true or false");
  return 0;
}

static ActivationKind get_activation(Reader *r, const char *key, const char *absent) {
  static const struct { const char *name; ActivationKind kind; } known[] = {
      {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {"gelu", ACTIVATION_GELU},
      {"relu", ACTIVATION_RELU},          {"silu", ACTIVATION_SILU},                   {"swish", ACTIVATION_SILU}};
  if (r->code) return ACTIVATION_GELU;
  const json_t *value = value_of(r, key);
  const char *name = value ? json_string_value(value) : absent;
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].kind;
  bad_value(r, key, value, "gelu_new, gelu_pytorch_tanh, gelu, relu, silu, swish");
  return ACTIVATION_GELU;
}

// Options that change the numbers and that plait does not have: only `neutral` (a JSON text) or absence is let through.
static void only(Reader *r, const char *key, const char *neutral) {
  const json_t *value = value_of(r, key);
  if (r->code || !value) return;
  json_t *expected = json_loads(neutral, JSON_DECODE_ANY, NULL);
  int same = json_is_number(value) && json_is_number(expected) ? json_number_value(value) == json_number_value(expected)
                                                              : json_equal(value, expected);
  json_decref(expected);
  if (same) return;
  char allowed[120];
  snprintf(allowed, sizeof allowed, "only %s, because plait does not support anything else here", neutral);
  bad_value(r, key, value, allowed);
}

static void must_divide(Reader *r, const char *key, int64_t value, const char *by_key, int64_t by) {
  if (r->code || value % by == 0) return;
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: %s is %lld; allowed: a multiple of %s, which is %lld", r->file, key,
                      (long long)value, by_key, (long long)by);
}

static void read_gpt2(Reader *r, ModelConfig *c) {
  c->layers = get_integer(r, "n_layer", 1, MAX_LAYERS, -1);
  c->embed = get_integer(r, "n_embd", 1, MAX_EMBED, -1);
  c->heads = c->kv_heads = get_integer(r, "n_head", 1, MAX_HEADS, -1);
  c->positions = get_integer(r, "n_positions", 1, MAX_POSITIONS, -1);
  c->vocab = get_integer(r, "vocab_size", 1, MAX_VOCAB, -1);
  c->ffn = get_integer(r, "n_inner", 1, MAX_FFN, 4 * c->embed);
  c->activation = get_activation(r, "activation_function", "gelu_new");
  c->norm_epsilon = get_real(r, "layer_norm_epsilon", 0, 0, 1, 1e-5);
  c->residual_dropout = get_real(r, "resid_pdrop", 0, 1, 1, 0.1);
  c->embedding_dropout = get_real(r, "embd_pdrop", 0, 1, 1, 0.1);
  c->attention_dropout = get_real(r, "attn_pdrop", 0, 1, 1, 0.1);
  c->initializer_range = get_real(r, "initializer_range", 0, 1, 1e3, 0.02);
  c->tied = get_boolean(r, "tie_word_embeddings", 1);
  int scaled = get_boolean(r, "scale_attn_weights", 1);
  only(r, "scale_attn_by_inverse_layer_idx", "false");
  only(r, "reorder_and_upcast_attn", "false");
  only(r, "add_cross_attention", "false");
  only(r, "quantization_config", "null");
  if (r->code) return;
  must_divide(r, "n_embd", c->embed, "n_head", c->heads);
  c->head_dim = c->embed / c->heads;
  c->attention_scale = scaled ? 1 / sqrt((double)c->head_dim) : 1;
  c->attention_bias = c->mlp_bias = 1;
}

enum { ROPE_PLAIN = 0, ROPE_LLAMA3 = 1, ROPE_LINEAR = 2 }; // RopeAttr.scaling

static void read_rope_scaling(Reader *outer, const char *key, const json_t *object, ModelConfig *c) {
  if (outer->code || !object) return;
  if (!json_is_object(object)) {
    bad_value(outer, key, object, "an object or null");
    return;
  }
  char prefix[40];
  snprintf(prefix, sizeof prefix, "%s.", key);
  Reader r = {.file = outer->file, .prefix = prefix, .object = (json_t *)object, .error = outer->error};
  const char *type_key = value_of(&r, "rope_type") ? "rope_type" : "type"; // files before 2024 say "type"
  const json_t *type = value_of(&r, type_key);
  const char *name = json_string_value(type), *allowed = "\"llama3\", \"linear\" or \"default\"";
  c->rope.theta = get_real(&r, "rope_theta", 0, 0, 1e12, c->rope.theta);
  only(&r, "partial_rotary_factor", "1.0");
  if (!type) {
    missing(&r, "rope_type", allowed);
  } else if (name && !strcmp(name, "linear")) {
    c->rope.scaling = ROPE_LINEAR;
    c->rope.factor = get_real(&r, "factor", 0, 0, 1e6, NAN);
  } else if (name && !strcmp(name, "llama3")) {
    c->rope.scaling = ROPE_LLAMA3;
    c->rope.factor = get_real(&r, "factor", 0, 0, 1e6, NAN);
    c->rope.low_frequency_factor = get_real(&r, "low_freq_factor", 0, 0, 1e6, NAN);
    c->rope.high_frequency_factor = get_real(&r, "high_freq_factor", c->rope.low_frequency_factor, 0, 1e6, NAN);
    c->rope.original_positions = (double)get_integer(&r, "original_max_position_embeddings", 1, MAX_POSITIONS, -1);
  } else if (!name || strcmp(name, "default")) {
    bad_value(&r, type_key, type, allowed);
  }
  outer->code = r.code;
}

static void read_llama(Reader *r, ModelConfig *c) {
  c->layers = get_integer(r, "num_hidden_layers", 1, MAX_LAYERS, -1);
  c->embed = get_integer(r, "hidden_size", 1, MAX_EMBED, -1);
  c->ffn = get_integer(r, "intermediate_size", 1, MAX_FFN, -1);
  c->heads = get_integer(r, "num_attention_heads", 1, MAX_HEADS, -1);
  c->kv_heads = get_integer(r, "num_key_value_heads", 1, MAX_HEADS, c->heads);
  c->positions = get_integer(r, "max_position_embeddings", 1, MAX_POSITIONS, 2048);
  c->vocab = get_integer(r, "vocab_size", 1, MAX_VOCAB, -1);
  c->activation = get_activation(r, "hidden_act", "silu");
  c->norm_epsilon = get_real(r, "rms_norm_eps", 0, 0, 1, 1e-6);
  c->attention_dropout = get_real(r, "attention_dropout", 0, 1, 1, 0);
  c->initializer_range = get_real(r, "initializer_range", 0, 1, 1e3, 0.02);
  c->tied = get_boolean(r, "tie_word_embeddings", 0);
  c->attention_bias = get_boolean(r, "attention_bias", 0);
  c->mlp_bias = get_boolean(r, "mlp_bias", 0);
  c->rope.theta = get_real(r, "rope_theta", 0, 0, 1e12, 10000);
  only(r, "partial_rotary_factor", "1.0");
  only(r, "quantization_config", "null");
  read_rope_scaling(r, "rope_scaling", value_of(r, "rope_scaling"), c);
  read_rope_scaling(r, "rope_parameters", value_of(r, "rope_parameters"), c); // transformers 5 writes both facts here
  if (r->code) return;
  must_divide(r, "num_attention_heads", c->heads, "num_key_value_heads", c->kv_heads);
  if (!value_of(r, "head_dim")) must_divide(r, "hidden_size", c->embed, "num_attention_heads", c->heads);
  if (r->code) return;
  c->head_dim = get_integer(r, "head_dim", 1, 1 << 14, c->embed / c->heads);
  if (!r->code && (c->head_dim < 2 || c->head_dim % 2))
    r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: head_dim is %lld; allowed: even numbers, because rope turns pairs", r->file,
                        (long long)c->head_dim);
  c->attention_scale = 1 / sqrt((double)c->head_dim);
}

static int read_family(ModelConfig *c, Error *error) {
  static void (*const readers[])(Reader *, ModelConfig *) = {[MODEL_GPT2] = read_gpt2, [MODEL_LLAMA] = read_llama};
  _Static_assert(sizeof readers / sizeof *readers == MODEL_FAMILY_COUNT, "a family without a reader");
  Reader r = {.file = c->path, .prefix = "", .object = c->json, .error = error};
  char allowed[200] = "";
  for (int i = 0; i < MODEL_FAMILY_COUNT; i++) strcat(strcat(allowed, i ? ", " : ""), families[i].type);
  const json_t *type = value_of(&r, "model_type");
  const char *name = json_string_value(type);
  int family = 0;
  while (family < MODEL_FAMILY_COUNT && !(name && !strcmp(name, families[family].type))) family++;
  if (!type) missing(&r, "model_type", allowed);
  else if (family == MODEL_FAMILY_COUNT) bad_value(&r, "model_type", type, allowed);
  if (r.code) return r.code;
  c->family = (ModelFamily)family;
  readers[family](&r, c);
  return r.code;
}

int model_config_parse(ModelConfig *config, const char *text, size_t size, const char *name, Error *error) {
  *config = (ModelConfig){.path = xstrdup(name)};
  json_error_t why;
  config->json = size > MAX_CONFIG_BYTES ? NULL : json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
  if (size > MAX_CONFIG_BYTES)
    return error_set(error, PLAIT_BAD_INPUT, "%s: larger than the %d bytes allowed for a config.json", name, MAX_CONFIG_BYTES);
  if (!config->json)
    return error_set(error, PLAIT_BAD_INPUT, "%s: line %d, column %d: not valid JSON: %s", name, why.line, why.column, why.text);
  if (!json_is_object(config->json))
    return error_set(error, PLAIT_BAD_INPUT, "%s: holds no JSON object; a config.json is one", name);
  return read_family(config, error);
}

int model_config_load(ModelConfig *config, const char *path, Error *error) {
  *config = (ModelConfig){0};
  struct stat st;
  int folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
  char *file = folder ? xformat("%s/config.json", path) : xstrdup(path), *text;
  size_t size;
  int code = file_read(file, MAX_CONFIG_BYTES, &text, &size, error);
  if (code == PLAIT_OK) {
    code = model_config_parse(config, text, size, file, error);
    free(text);
  }
  free(file);
  return code;
}

void model_config_free(ModelConfig *config) {
  json_decref(config->json);
  free(config->path);
  *config = (ModelConfig){0};
}

int model_config_equal(const ModelConfig *a, const ModelConfig *b) {
  return a->family == b->family && a->layers == b->layers && a->embed == b->embed && a->ffn == b->ffn && a->vocab == b->vocab &&
         a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->positions == b->positions &&
         a->activation == b->activation && a->norm_epsilon == b->norm_epsilon && a->initializer_range == b->initializer_range &&
         a->embedding_dropout == b->embedding_dropout && a->attention_dropout == b->attention_dropout &&
         a->residual_dropout == b->residual_dropout && a->attention_scale == b->attention_scale && a->tied == b->tied &&
         a->attention_bias == b->attention_bias && a->mlp_bias == b->mlp_bias && a->rope.theta == b->rope.theta &&
         a->rope.scaling == b->rope.scaling && a->rope.factor == b->rope.factor &&
         a->rope.low_frequency_factor == b->rope.low_frequency_factor &&
         a->rope.high_frequency_factor == b->rope.high_frequency_factor &&
         a->rope.original_positions == b->rope.original_positions;
}

// --- writing -------------------------------------------------------------------------------------------------------------

// The shortest decimal that reads back as the same double: jansson alone would turn 1e-05 into 1.0000000000000001e-05.
static void write_real(FILE *out, double x) {
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  fprintf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void write_json(FILE *out, const json_t *value, int indent) {
  const char *key;
  json_t *child;
  size_t i, n = 0;
  if (json_is_object(value)) {
    fputc('{', out);
    json_object_foreach((json_t *)value, key, child) {
      json_t *name = json_string(key);
      fprintf(out, "%s\n%*s", n++ ? "," : "", indent + 2, "");
      json_dumpf(name, out, JSON_ENCODE_ANY);
      fputs(": ", out);
      write_json(out, child, indent + 2);
      json_decref(name);
    }
    fprintf(out, "\n%*s}", indent, "");
  } else if (json_is_array(value)) {
    fputc('[', out);
    json_array_foreach(value, i, child) {
      fprintf(out, "%s\n%*s", i ? "," : "", indent + 2, "");
      write_json(out, child, indent + 2);
    }
    fprintf(out, "\n%*s]", indent, "");
  } else if (json_is_real(value)) {
    write_real(out, json_real_value(value));
  } else {
    json_dumpf(value, out, JSON_ENCODE_ANY);
  }
}

int model_config_save(const ModelConfig *config, const char *path, const char *torch_dtype, Error *error) {
  CHECK(config->json, "the config was never loaded");
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code != PLAIT_OK) return code;
  json_t *json = json_copy(config->json); // shallow: only its own keys change
  if (!json_object_get(json, "architectures"))
    json_object_set_new(json, "architectures", json_pack("[s]", families[config->family].architecture));
  if (torch_dtype) {
    const char *key = json_object_get(json, "dtype") ? "dtype" : "torch_dtype"; // transformers 5 says "dtype"
    json_object_set_new(json, key, json_string(torch_dtype));
  }
  write_json(file.stream, json, 0);
  fputc('\n', file.stream);
  json_decref(json);
  return file_commit(&file, error);
}

// --- counting ------------------------------------------------------------------------------------------------------------

static int64_t layer_parameters(const ModelConfig *c) {
  int64_t query = c->heads * c->head_dim, key = c->kv_heads * c->head_dim;
  int64_t gated = c->family == MODEL_LLAMA, norm = c->family == MODEL_GPT2 ? 2 * c->embed : c->embed;
  int64_t attention = 2 * query * c->embed + 2 * key * c->embed + (c->attention_bias ? query + 2 * key + c->embed : 0);
  int64_t ffn = (gated + 2) * c->ffn * c->embed + (c->mlp_bias ? (gated + 1) * c->ffn + c->embed : 0);
  return attention + ffn + 2 * norm;
}

int64_t model_config_parameters_without_positions(const ModelConfig *c) {
  return c->layers * layer_parameters(c) + (c->family == MODEL_GPT2 ? 2 : 1) * c->embed + (c->tied ? 1 : 2) * c->vocab * c->embed;
}

int64_t model_config_parameters(const ModelConfig *c) {
  return model_config_parameters_without_positions(c) + (c->family == MODEL_GPT2 ? c->positions * c->embed : 0);
}

double model_config_flops_per_token(const ModelConfig *c, int64_t seq_len) {
  double products = (double)model_config_parameters_without_positions(c) - (c->tied ? 0 : (double)(c->vocab * c->embed));
  return 6 * products + 6.0 * (double)c->layers * (double)(c->heads * c->head_dim) * (double)seq_len;
}
