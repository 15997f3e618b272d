// Qwen2 and Qwen2.5 (Yang et al. 2024): biases on q, k and v.
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 32, .positions = 32768});
  rotary_read_windows(r, c);
  c->qkv_bias = 1;
}

const Family family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .read = read,
    .build = rotary_build,
    .layouts = rotary_layouts,
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
