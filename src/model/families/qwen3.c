// Qwen3 (Yang et al. 2025): q and k are normalised by head.
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 32, .head_dim = 128, .positions = 32768});
  rotary_read_windows(r, c);
  c->qkv_bias = c->output_bias = config_boolean(r, "attention_bias", 0);
  c->head_norm = 1;
}

const Family family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .read = read,
    .build = rotary_build,
    .layouts = rotary_layouts,
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
