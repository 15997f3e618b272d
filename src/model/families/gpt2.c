// GPT-2 (Radford et al. 2019): learned positions, layer norm, biases everywhere.
#include "model/learned.h"
#include <math.h>

static const ConfigAlias aliases[] = {{"num_hidden_layers", "n_layer"},
                                      {"hidden_size", "n_embd"},
                                      {"num_attention_heads", "n_head"},
                                      {"max_position_embeddings", "n_positions"},
                                      {NULL, NULL}};

static void read(ConfigReader *r, ModelConfig *c) {
  c->layers = config_integer(r, "n_layer", 1, MOST_LAYERS, -1);
  c->embed = config_integer(r, "n_embd", 1, MOST_EMBED, -1);
  c->heads = config_integer(r, "n_head", 1, MOST_HEADS, -1);
  c->positions = config_integer(r, "n_positions", 1, MOST_POSITIONS, -1);
  c->vocab = config_integer(r, "vocab_size", 1, MOST_VOCAB, -1);
  c->ffn = config_integer(r, "n_inner", 1, MOST_FFN, 4 * c->embed);
  c->activation = config_activation(r, "activation_function", "gelu_new");
  c->norm_epsilon = config_real(r, "layer_norm_epsilon", 0, 0, 1, 1e-5);
  c->residual_dropout = config_probability(r, "resid_pdrop", 0.1);
  c->embedding_dropout = config_probability(r, "embd_pdrop", 0.1);
  c->attention_dropout = config_probability(r, "attn_pdrop", 0.1);
  c->initializer_range = config_real(r, "initializer_range", 0, 1, 1e3, 0.02);
  c->tied = config_boolean(r, "tie_word_embeddings", 1);
  int scaled = config_boolean(r, "scale_attn_weights", 1);
  config_only(r, "scale_attn_by_inverse_layer_idx", "false");
  config_only(r, "reorder_and_upcast_attn", "false");
  config_only(r, "add_cross_attention", "false");
  config_only(r, "pruned_heads", "{}");
  learned_heads(r, c, "n_embd", "n_head");
  if (r->code) return;
  c->attention_scale = scaled ? 1 / sqrt((double)c->head_dim) : 1;
  c->qkv_bias = c->output_bias = c->ffn_bias = 1;
}

static void build(ModelBuild *m, ModelOutputs *outputs) {
  // Two additions a layer: their weights start smaller, so that the stream's variance does not grow with depth.
  double residual = m->config->initializer_range / sqrt(2.0 * (double)m->config->layers);
  learned_build(m, residual, "n_positions", outputs);
}

// transformers' Conv1D holds (in, out).
static const char names[] =
    "transformer.wte.weight = wte\n"
    "transformer.wpe.weight = wpe\n"
    "transformer.h.N.ln_1.weight = layer.N.attention.norm.weight\n"
    "transformer.h.N.ln_1.bias = layer.N.attention.norm.bias\n"
    "transformer.h.N.attn.c_attn.weight^T = "
    "layer.N.attention.q.weight | layer.N.attention.k.weight | layer.N.attention.v.weight\n"
    "transformer.h.N.attn.c_attn.bias = "
    "layer.N.attention.q.bias | layer.N.attention.k.bias | layer.N.attention.v.bias\n"
    "transformer.h.N.attn.c_proj.weight^T = layer.N.attention.output.weight\n"
    "transformer.h.N.attn.c_proj.bias = layer.N.attention.output.bias\n"
    "transformer.h.N.ln_2.weight = layer.N.ffn.norm.weight\n"
    "transformer.h.N.ln_2.bias = layer.N.ffn.norm.bias\n"
    "transformer.h.N.mlp.c_fc.weight^T = layer.N.ffn.up.weight\n"
    "transformer.h.N.mlp.c_fc.bias = layer.N.ffn.up.bias\n"
    "transformer.h.N.mlp.c_proj.weight^T = layer.N.ffn.down.weight\n"
    "transformer.h.N.mlp.c_proj.bias = layer.N.ffn.down.bias\n"
    "transformer.ln_f.weight = norm.weight\n"
    "transformer.ln_f.bias = norm.bias\n"
    "lm_head.weight = head\n";

const Family family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .read = read,
    .build = build,
    .aliases = aliases,
    .layouts = (const char *const[]){names, NULL},
    .prefix = "transformer.",
    .example =
        "{\"model_type\": \"gpt2\", \"vocab_size\": %1$d, \"n_positions\": %2$d, \"n_embd\": %3$d, \"n_layer\": %4$d, "
        "\"n_head\": %5$d, \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, "
        "\"attn_pdrop\": 0.0, \"tie_word_embeddings\": true}",
    .example_shape = EXAMPLE_PLAIN,
    .buffers = (const char *const[]){".attn.bias", ".attn.masked_bias", NULL},
};
