// Decoders with rotary positions, RMS norm before each half of a block, grouped-query attention and a gated feed-
// forward half (Touvron et al. 2023): their keys, which their families write alike, their blocks and their names.
#pragma once
#include "model/family.h"

// What a family's config.json means where a key is absent. 0: another key's value; see rotary_read.
typedef struct RotaryDefaults {
  int64_t kv_heads;  // num_key_value_heads; 0: num_attention_heads, as null always means
  int64_t head_dim;  // 0: hidden_size / num_attention_heads
  int64_t positions; // max_position_embeddings
} RotaryDefaults;

// Sizes, activation, norms, dropout, head and rope, in whichever form transformers 4 or 5 writes them. No biases.
void rotary_read(ConfigReader *r, ModelConfig *c, const RotaryDefaults *defaults);
// use_sliding_window, sliding_window, max_window_layers, layer_types: attention to a window in some layers.
void rotary_read_windows(ConfigReader *r, ModelConfig *c);
void rotary_build(ModelBuild *m, ModelOutputs *outputs);
extern const char rotary_names[];
extern const char *const rotary_buffers[];
#define ROTARY_PREFIX "model."
