// Llama 2 and 3 (Touvron et al. 2023; Llama Team 2024), and other models with the same config.json.
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.positions = 2048});
  c->qkv_bias = c->output_bias = config_boolean(r, "attention_bias", 0);
  c->ffn_bias = config_boolean(r, "mlp_bias", 0);
}

const Family family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .read = read,
    .build = rotary_build,
    .names = rotary_names,
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
