// Mixtral (Jiang et al. 2024): Mistral with experts in every layer.
#include "model/experts.h"
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 8, .positions = 131072, .norm_epsilon = 1e-5, .theta = 1e6});
  experts_read(r, c, 2);
  if (r->code) return;
  experts_in_all_layers(c);
  c->norm_topk = 1;
  c->window = config_integer(r, "sliding_window", 1, INT64_MAX, 0);
  c->window_key = "sliding_window";
}

static const ConfigAlias aliases[] = {EXPERTS_ALIAS, {NULL, NULL}};

static const char names[] = ROTARY_NAMES
    "model.layers.N.block_sparse_moe.gate.weight = layer.N.router.weight\n"
    "model.layers.N.block_sparse_moe.experts.E.w1.weight = layer.N.experts.gate.weight\n"
    "model.layers.N.block_sparse_moe.experts.E.w3.weight = layer.N.experts.up.weight\n"
    "model.layers.N.block_sparse_moe.experts.E.w2.weight = layer.N.experts.down.weight\n";

const Family family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .read = read,
    .build = rotary_build,
    .aliases = aliases,
    .layouts = (const char *const[]){names, ROTARY_NAMES EXPERTS_FUSED_NAMES, NULL},
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
