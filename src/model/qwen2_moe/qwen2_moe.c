// Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2 with experts, and beside them one that sees every token.
#include "model/experts.h"
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 16, .positions = 32768});
  rotary_read_windows(r, c);
  experts_read_qwen(r, c, 4);
  c->shared_ffn = config_integer(r, "shared_expert_intermediate_size", 1, MOST_FFN, 5632);
  c->qkv_bias = config_boolean(r, "qkv_bias", 1);
}

const Family family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .read = read,
    .build = rotary_build,
    .names = ROTARY_NAMES EXPERTS_QWEN_NAMES,
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
