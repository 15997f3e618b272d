// ModelConfig: what a Hugging Face config.json says about a model, checked, in plait's words.
#pragma once
#include "base/error.h"
#include "op/attributes.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ModelFamily {
#define FAMILY(id, type, file, architecture) MODEL_##id,
#include "model/families.def"
#undef FAMILY
  MODEL_FAMILY_COUNT
} ModelFamily;

typedef struct ModelConfig {
  ModelFamily family;
  int64_t layers, embed, ffn, vocab;
  int64_t heads, kv_heads, head_dim; // heads is a multiple of kv_heads
  int64_t positions;                 // rows of wpe (GPT-2), or the length that the model was made for (Llama)
  ActivationKind activation;
  double norm_epsilon;
  double initializer_range;          // standard deviation
  double embedding_dropout, attention_dropout, residual_dropout; // probabilities in [0, 1)
  double attention_scale;            // of q·k
  int tied;                          // the head is wte
  int attention_bias, mlp_bias;      // Llama: biases on q, k, v, o and on gate, up, down. Both 1 for GPT-2
  RopeAttr rope;                     // Llama
  char *path;                        // of the file, for messages
  json_t *json;                      // the whole file, with the keys that plait does not read
} ModelConfig;

// Reads config.json, or FOLDER/config.json where `path` is a folder. Whatever is missing, out of range or not
// supported is PLAIT_BAD_INPUT with a sentence. Keys that do not change the numbers are kept and not looked at.
// The caller frees *config, also after an error.
int model_config_load(ModelConfig *config, const char *path, Error *error);
// The same from text in memory; `name` stands for the file in messages.
int model_config_parse(ModelConfig *config, const char *text, size_t size, const char *name, Error *error);
void model_config_free(ModelConfig *config); // also safe twice

// Writes it back as a config.json that `transformers` reads: all keys of the loaded file, architectures, and the dtype
// of the weights ("float32" …; NULL keeps what the file says). Whole or not at all.
int model_config_save(const ModelConfig *config, const char *path, const char *torch_dtype, Error *error);
// Do both describe the same model, number for number? (Paths and keys that plait does not read may differ.)
int model_config_equal(const ModelConfig *a, const ModelConfig *b);

const char *model_family_name(ModelFamily family); // "gpt2"

// Parameters of the model; a tied head counts once.
int64_t model_config_parameters(const ModelConfig *config);
int64_t model_config_parameters_without_positions(const ModelConfig *config); // without wpe
// Model FLOPs of forward and backward per token: 6·N + 6·L·d·T (T = seq_len, d = heads · head_dim; attention is causal).
// N counts the parameters that take part in products: neither wpe nor an untied wte, which are only looked up.
double model_config_flops_per_token(const ModelConfig *config, int64_t seq_len);
