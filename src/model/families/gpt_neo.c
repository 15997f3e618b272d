// GPT-Neo (Black et al. 2021): learned positions, unscaled attention, q, k and v without biases; in some layers,
// attention to the last `window_size` tokens.
#include "model/learned.h"
#include <string.h>

// A list of layers' attentions, such as ["global", "local"], `times` times over: counts layers, looks for "local".
static void read_layers(ConfigReader *r, const char *key, const json_t *list, int64_t times, int64_t *layers,
                        int *local) {
  size_t i;
  json_t *kind;
  if (r->code) return;
  if (!json_is_array(list)) {
    config_bad_value(r, key, list, "lists of \"global\" and \"local\"");
    return;
  }
  json_array_foreach((json_t *)list, i, kind) {
    const char *name = json_string_value(kind);
    int is_local = name && !strcmp(name, "local"), is_global = name && !strcmp(name, "global");
    if (!is_local && !is_global) return config_bad_value(r, key, kind, "\"global\" or \"local\"");
    *local |= is_local && times > 0;
    *layers += times;
  }
}

// attention_types: [[["global", "local"], 12]], that is lists and how often they are repeated.
static void read_types(ConfigReader *r, const json_t *types, int64_t *layers, int *local) {
  static const char key[] = "attention_types";
  size_t i;
  json_t *item;
  if (!json_is_array(types)) return config_bad_value(r, key, types, "a list of [[kinds …], number]");
  json_array_foreach((json_t *)types, i, item) {
    const json_t *times = json_array_get(item, 1);
    int64_t n;
    if (json_array_size(item) != 2 || !config_whole(times, &n) || n < 0 || n > MOST_LAYERS)
      return config_bad_value(r, key, types, "a list of [[kinds …], number]");
    read_layers(r, key, json_array_get(item, 0), n, layers, local);
    if (r->code) return;
  }
}

// Which layers see a window only. transformers takes attention_layers where it is there, else attention_types,
// whose default is 24 layers that alternate.
static void read_attention(ConfigReader *r, ModelConfig *c) {
  const json_t *types = config_value(r, "attention_types"), *list = config_value(r, "attention_layers");
  int64_t window = config_integer(r, "window_size", 1, MOST_POSITIONS, 256), by_types = 0, by_list = 0;
  int local = 0, local_in_list = 0;
  if (r->code) return;
  if (types) read_types(r, types, &by_types, &local);
  if (!types) by_types = 24, local = 1;
  if (list) read_layers(r, "attention_layers", list, 1, &by_list, &local_in_list);
  if (r->code) return;
  const char *key = types || !list ? "attention_types" : "attention_layers";
  int64_t layers = types || !list ? by_types : by_list;
  if (list && types && (by_list != by_types || local != local_in_list))
    r->code = error_set(r->error, PLAIT_BAD_INPUT,
                        "%s: attention_layers and attention_types differ; allowed: lists that say the same, or one of "
                        "them", r->file);
  else if (layers != c->layers)
    r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: %s %s %lld layers; allowed: num_layers, which is %lld", r->file,
                        key, types || list ? "lists" : "is missing and then means", (long long)layers,
                        (long long)c->layers);
  if (r->code || !(list ? local_in_list : local)) return;
  c->window = window;
  c->window_key = "window_size";
}

static const ConfigAlias aliases[] = {
    {"num_hidden_layers", "num_layers"}, {"num_attention_heads", "num_heads"}, {NULL, NULL}};

static void read(ConfigReader *r, ModelConfig *c) {
  c->layers = config_integer(r, "num_layers", 1, MOST_LAYERS, -1);
  c->embed = config_integer(r, "hidden_size", 1, MOST_EMBED, -1);
  c->heads = config_integer(r, "num_heads", 1, MOST_HEADS, -1);
  c->positions = config_integer(r, "max_position_embeddings", 1, MOST_POSITIONS, -1);
  c->vocab = config_integer(r, "vocab_size", 1, MOST_VOCAB, -1);
  c->ffn = config_integer(r, "intermediate_size", 1, MOST_FFN, 4 * c->embed);
  c->activation = config_activation(r, "activation_function", "gelu_new");
  c->norm_epsilon = config_real(r, "layer_norm_epsilon", 0, 0, 1, 1e-5);
  c->residual_dropout = config_probability(r, "resid_dropout", 0);
  c->embedding_dropout = config_probability(r, "embed_dropout", 0);
  c->attention_dropout = config_probability(r, "attention_dropout", 0);
  c->initializer_range = config_real(r, "initializer_range", 0, 1, 1e3, 0.02);
  c->tied = config_boolean(r, "tie_word_embeddings", 1);
  read_attention(r, c);
  learned_heads(r, c, "hidden_size", "num_heads");
  c->attention_scale = 1;
  c->output_bias = c->ffn_bias = 1;
}

static void build(ModelBuild *m, ModelOutputs *outputs) {
  learned_build(m, m->config->initializer_range, "max_position_embeddings", outputs);
}

static const char names[] =
    "transformer.wte.weight = wte\n"
    "transformer.wpe.weight = wpe\n"
    "transformer.h.N.ln_1.weight = layer.N.attention.norm.weight\n"
    "transformer.h.N.ln_1.bias = layer.N.attention.norm.bias\n"
    "transformer.h.N.attn.attention.k_proj.weight = layer.N.attention.k.weight\n"
    "transformer.h.N.attn.attention.v_proj.weight = layer.N.attention.v.weight\n"
    "transformer.h.N.attn.attention.q_proj.weight = layer.N.attention.q.weight\n"
    "transformer.h.N.attn.attention.out_proj.weight = layer.N.attention.output.weight\n"
    "transformer.h.N.attn.attention.out_proj.bias = layer.N.attention.output.bias\n"
    "transformer.h.N.ln_2.weight = layer.N.ffn.norm.weight\n"
    "transformer.h.N.ln_2.bias = layer.N.ffn.norm.bias\n"
    "transformer.h.N.mlp.c_fc.weight = layer.N.ffn.up.weight\n"
    "transformer.h.N.mlp.c_fc.bias = layer.N.ffn.up.bias\n"
    "transformer.h.N.mlp.c_proj.weight = layer.N.ffn.down.weight\n"
    "transformer.h.N.mlp.c_proj.bias = layer.N.ffn.down.bias\n"
    "transformer.ln_f.weight = norm.weight\n"
    "transformer.ln_f.bias = norm.bias\n"
    "lm_head.weight = head\n";

const Family family_gpt_neo = {
    .model_type = "gpt_neo",
    .architecture = "GPTNeoForCausalLM",
    .read = read,
    .build = build,
    .aliases = aliases,
    .layouts = (const char *const[]){names, NULL},
    .prefix = "transformer.",
    .buffers = (const char *const[]){".attn.attention.bias", ".attn.attention.masked_bias", NULL},
};
