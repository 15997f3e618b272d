// Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2 with experts, and beside them one that sees every token.
#include "model/experts.h"
#include "model/rotary.h"

// Which layers have the window where layer_types is absent, versions of transformers say differently. So it counts
// where any may have it: longer sequences are refused, to shorter ones it makes no difference.
static void read_windows(ConfigReader *r, ModelConfig *c) {
  rotary_read_windows(r, c);
  if (!config_boolean(r, "use_sliding_window", 0) || config_value(r, "layer_types")) return;
  c->window = config_integer(r, "sliding_window", 1, INT64_MAX, config_is_null(r, "sliding_window") ? 0 : 4096);
  c->window_key = "sliding_window";
}

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 16, .positions = 32768});
  read_windows(r, c);
  experts_read_qwen(r, c, 4);
  c->shared_ffn = config_integer(r, "shared_expert_intermediate_size", 1, MOST_FFN, 5632);
  c->qkv_bias = config_boolean(r, "qkv_bias", 1);
}

static const ConfigAlias aliases[] = {EXPERTS_ALIAS, {NULL, NULL}};

const Family family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .read = read,
    .build = rotary_build,
    .aliases = aliases,
    .layouts = (const char *const[]){ROTARY_NAMES EXPERTS_QWEN_NAMES, ROTARY_NAMES EXPERTS_FUSED_NAMES, NULL},
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
