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
    .layouts = rotary_layouts,
    .prefix = ROTARY_PREFIX,
    .example =
        "{\"model_type\": \"llama\", \"vocab_size\": %1$d, \"max_position_embeddings\": %2$d, \"hidden_size\": %3$d, "
        "\"num_hidden_layers\": %4$d, \"num_attention_heads\": %5$d, \"num_key_value_heads\": %6$d, "
        "\"intermediate_size\": %7$d, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
        "\"tie_word_embeddings\": false}",
    .example_shape = EXAMPLE_GATED,
    .buffers = rotary_buffers,
};
