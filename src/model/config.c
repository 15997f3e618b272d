// Loads, compares and writes config.json; the keys are the families' own (src/model/families/).
#include "model/config.h"
#include "base/file.h"
#include "base/json_read.h"
#include "model/family.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 4 << 20 };

#define FAMILY(name) extern const Family family_##name;
#include "model/families.def"
#undef FAMILY
static const Family *const families[] = {
#define FAMILY(name) &family_##name,
#include "model/families.def"
#undef FAMILY
};
enum { FAMILIES = sizeof families / sizeof *families };

const char *model_family_name(const Family *family) { return family->model_type; }

const char *model_families(char text[MODEL_FAMILIES_TEXT]) {
  int used = 0;
  for (int i = 0; i < FAMILIES && used < MODEL_FAMILIES_TEXT; i++)
    used += snprintf(text + used, (size_t)(MODEL_FAMILIES_TEXT - used), "%s%s", i ? ", " : "", families[i]->model_type);
  CHECK(used < MODEL_FAMILIES_TEXT, "the list of families is cut off");
  return text;
}

static int read_family(ModelConfig *c, Error *error) {
  ConfigReader r = {.file = c->path, .prefix = "", .object = c->json, .known = c->known, .error = error};
  char allowed[MODEL_FAMILIES_TEXT];
  const json_t *type = config_value(&r, "model_type");
  const char *name = json_string_value(type);
  int family = 0;
  while (family < FAMILIES && !(name && !strcmp(name, families[family]->model_type))) family++;
  if (!type) config_missing(&r, "model_type", model_families(allowed));
  else if (family == FAMILIES) config_bad_value(&r, "model_type", type, model_families(allowed));
  if (r.code) return r.code;
  c->family = families[family];
  r.aliases = c->family->aliases;
  config_only(&r, "quantization_config", "null"); // these two change every family of transformers
  config_only(&r, "is_causal", "true");
  c->family->read(&r, c);
  if (!r.code) model_measure(c);
  return r.code;
}

int model_config_parse(ModelConfig *config, const char *text, size_t size, const char *name, Error *error) {
  *config = (ModelConfig){.path = xstrdup(name), .known = json_object()};
  if (size > MAX_CONFIG_BYTES)
    return error_set(error, PLAIT_BAD_INPUT, "%s: larger than the %d bytes allowed for a config.json", name,
                     MAX_CONFIG_BYTES);
  int code = json_read(text, size, name, &config->json, error);
  if (code) return code;
  if (!json_is_object(config->json))
    return error_set(error, PLAIT_BAD_INPUT, "%s: not a JSON object, which a config.json must be", name);
  return read_family(config, error);
}

int model_config_load(ModelConfig *config, const char *path, Error *error) {
  *config = (ModelConfig){0};
  char *file = file_is_folder(path) ? xformat("%s/config.json", path) : xstrdup(path), *text;
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
  json_decref(config->known);
  free(config->path);
  *config = (ModelConfig){0};
}

int model_same_rope(const RopeAttr *a, const RopeAttr *b) {
  return a->theta == b->theta && a->scaling == b->scaling && a->factor == b->factor &&
         a->low_frequency_factor == b->low_frequency_factor && a->high_frequency_factor == b->high_frequency_factor &&
         a->original_positions == b->original_positions;
}

int model_config_equal(const ModelConfig *a, const ModelConfig *b) {
  return a->family == b->family && a->layers == b->layers && a->embed == b->embed && a->ffn == b->ffn &&
         a->vocab == b->vocab && a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
         a->positions == b->positions && a->window == b->window && a->activation == b->activation &&
         a->norm_epsilon == b->norm_epsilon && a->initializer_range == b->initializer_range &&
         a->embedding_dropout == b->embedding_dropout && a->attention_dropout == b->attention_dropout &&
         a->residual_dropout == b->residual_dropout && a->attention_scale == b->attention_scale && a->tied == b->tied &&
         a->qkv_bias == b->qkv_bias && a->output_bias == b->output_bias && a->ffn_bias == b->ffn_bias &&
         a->head_norm == b->head_norm && a->experts == b->experts && a->experts_per_token == b->experts_per_token &&
         a->expert_ffn == b->expert_ffn && a->shared_ffn == b->shared_ffn && a->norm_topk == b->norm_topk &&
         a->router_aux_loss_coef == b->router_aux_loss_coef &&
         !memcmp(a->expert_layers, b->expert_layers, sizeof a->expert_layers) && model_same_rope(&a->rope, &b->rope);
}

// --- writing --------------------------------------------------------------------------------------------------------

// The shortest decimal that reads back as the same double: jansson alone would turn 1e-05 into 1.0000000000000001e-05.
static void write_real(FILE *out, double x) {
  char text[40];
  int digits = 1;
  for (; digits < 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  snprintf(text, sizeof text, "%.*e", digits - 1, x);
  int exponent = atoi(strchr(text, 'e') + 1), places = digits - 1 - exponent;
  if (exponent < -4 || exponent > 15) fputs(text, out);
  else fprintf(out, "%.*f", places > 1 ? places : 1, x);
}

static void write_json(FILE *out, const json_t *value, int indent) {
  const char *key;
  json_t *child;
  size_t i, n = 0;
  if (json_is_object(value) && !json_object_size(value)) {
    fputs("{}", out);
  } else if (json_is_array(value) && !json_array_size(value)) {
    fputs("[]", out);
  } else if (json_is_object(value)) {
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
    json_object_set_new(json, "architectures", json_pack("[s]", config->family->architecture));
  if (torch_dtype) { // transformers 5 says "dtype"; a file may have either, or both
    if (json_object_get(json, "dtype")) json_object_set_new(json, "dtype", json_string(torch_dtype));
    if (json_object_get(json, "torch_dtype") || !json_object_get(json, "dtype"))
      json_object_set_new(json, "torch_dtype", json_string(torch_dtype));
  }
  write_json(file.stream, json, 0);
  fputc('\n', file.stream);
  json_decref(json);
  return file_commit(&file, error);
}
