// config.json: what loads has sane numbers, and loads as the same model from what it saves.
#include "fuzz.h"
#include "model/config.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ModelConfig config, again;
  Error error = {0};
  int code = model_config_parse(&config, (const char *)data, size, "config.json", &error);
  fuzz_check(code, &error);
  if (!code) {
    CHECK(config.layers > 0 && config.embed > 0 && config.ffn > 0 && config.vocab > 0 && config.positions > 0);
    CHECK(config.heads > 0 && config.kv_heads > 0 && config.head_dim > 0 && config.heads % config.kv_heads == 0);
    CHECK(config.norm_epsilon >= 0 && isfinite(config.norm_epsilon) && isfinite(config.attention_scale));
    CHECK(isfinite(config.initializer_range) && config.embedding_dropout >= 0 && config.embedding_dropout < 1);
    CHECK(model_config_parameters(&config) > 0 && model_config_flops_per_token(&config, 1024) > 0);
    CHECK(model_config_save(&config, "saved.json", "bfloat16", &error) == PLAIT_OK, "%s", error.message);
    code = model_config_load(&again, "saved.json", &error);
    CHECK(!code && model_config_equal(&config, &again), "not the same when saved: %s", error.message);
    model_config_free(&again);
  }
  model_config_free(&config);
  fuzz_files_clear();
  return 0;
}
