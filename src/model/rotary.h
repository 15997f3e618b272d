// Decoders with rotary positions, RMS norm before each half of a block, grouped-query attention and a gated feed-
// forward half (Touvron et al. 2023): their keys, which their families write alike, their blocks and their names.
#pragma once
#include "model/family.h"

// A family's defaults for absent keys of config.json. 0: another key's value; see rotary_read.
typedef struct RotaryDefaults {
  int64_t kv_heads;  // num_key_value_heads; 0: num_attention_heads, as null always means
  int64_t head_dim;  // 0: hidden_size / num_attention_heads
  int64_t positions; // max_position_embeddings
  double norm_epsilon, theta; // rms_norm_eps and rope_theta; 0: 1e-6 and 10000
} RotaryDefaults;

// Sizes, activation, norms, dropout, head and rope, in whichever form transformers 4 or 5 writes them. No biases.
void rotary_read(ConfigReader *r, ModelConfig *c, const RotaryDefaults *defaults);
// use_sliding_window, sliding_window, max_window_layers, layer_types: attention to a window in some layers.
void rotary_read_windows(ConfigReader *r, ModelConfig *c);
void rotary_build(ModelBuild *m, ModelOutputs *outputs);
// A family's views: of attention, norms, embedding and head, and of a dense feed-forward half.
#define ROTARY_NAMES                                                                                                   \
  "model.embed_tokens.weight = wte\n"                                                                                  \
  "model.layers.N.input_layernorm.weight = layer.N.attention.norm.weight\n"                                            \
  "model.layers.N.self_attn.q_proj.weight = layer.N.attention.q.weight\n"                                              \
  "model.layers.N.self_attn.k_proj.weight = layer.N.attention.k.weight\n"                                              \
  "model.layers.N.self_attn.v_proj.weight = layer.N.attention.v.weight\n"                                              \
  "model.layers.N.self_attn.o_proj.weight = layer.N.attention.output.weight\n"                                         \
  "model.layers.N.self_attn.q_proj.bias = layer.N.attention.q.bias\n"                                                  \
  "model.layers.N.self_attn.k_proj.bias = layer.N.attention.k.bias\n"                                                  \
  "model.layers.N.self_attn.v_proj.bias = layer.N.attention.v.bias\n"                                                  \
  "model.layers.N.self_attn.o_proj.bias = layer.N.attention.output.bias\n"                                             \
  "model.layers.N.self_attn.q_norm.weight = layer.N.attention.q.norm.weight\n"                                         \
  "model.layers.N.self_attn.k_norm.weight = layer.N.attention.k.norm.weight\n"                                         \
  "model.layers.N.post_attention_layernorm.weight = layer.N.ffn.norm.weight\n"                                         \
  "model.layers.N.mlp.gate_proj.weight = layer.N.ffn.gate.weight\n"                                                    \
  "model.layers.N.mlp.up_proj.weight = layer.N.ffn.up.weight\n"                                                        \
  "model.layers.N.mlp.down_proj.weight = layer.N.ffn.down.weight\n"                                                    \
  "model.layers.N.mlp.gate_proj.bias = layer.N.ffn.gate.bias\n"                                                        \
  "model.layers.N.mlp.up_proj.bias = layer.N.ffn.up.bias\n"                                                            \
  "model.layers.N.mlp.down_proj.bias = layer.N.ffn.down.bias\n"                                                        \
  "model.norm.weight = norm.weight\n"                                                                                  \
  "lm_head.weight = head\n"
extern const char *const rotary_layouts[]; // of families with these names
extern const char *const rotary_buffers[];
#define ROTARY_PREFIX "model."
