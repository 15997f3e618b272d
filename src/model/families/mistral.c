// Mistral (Jiang et al. 2023): all layers attend to the last `sliding_window` tokens.
#include "model/rotary.h"

static void read(ConfigReader *r, ModelConfig *c) {
  rotary_read(r, c, &(RotaryDefaults){.kv_heads = 8, .positions = 131072});
  config_only(r, "layer_types", "null");
  int64_t absent = config_is_null(r, "sliding_window") ? 0 : 4096;
  c->window = config_integer(r, "sliding_window", 1, INT64_MAX, absent);
  c->window_key = "sliding_window";
}

const Family family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .read = read,
    .build = rotary_build,
    .layouts = rotary_layouts,
    .prefix = ROTARY_PREFIX,
    .buffers = rotary_buffers,
};
