// Qwen3-MoE (Yang et al. 2025): Qwen3 with experts. With use_sliding_window every layer has the window.
#include "model/experts.h"
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 4, .positions = 32768});
  int64_t absent = config_is_null(r, "sliding_window") ? 0 : 4096;
  int windows = config_boolean(r, "use_sliding_window", 0);
  c->window = windows ? config_integer(r, "sliding_window", 1, INT64_MAX, absent) : 0;
  c->window_key = "sliding_window";
  experts_read_qwen(r, c, 8);
  c->qkv_bias = c->output_bias = config_boolean(r, "attention_bias", 0);
  c->head_norm = 1;
}

static const ConfigAlias aliases[] = {EXPERTS_ALIAS, {NULL, NULL}};

const Family family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .read = read,
    .build = rotary_build,
    .aliases = aliases,
    .layouts = (const char *const[]){ROTARY_NAMES EXPERTS_QWEN_NAMES, ROTARY_NAMES EXPERTS_FUSED_NAMES, NULL},
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
