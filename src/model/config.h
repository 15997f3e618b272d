// ModelConfig: what a Hugging Face config.json says about a model, checked, in plait's words; and what its graph says.
#pragma once
#include "base/error.h"
#include "ir/graph.h"
#include "op/attributes.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_LAYERS = 4096 };

typedef struct Family Family; // model/family.h; outside of families it is only passed on

// A size that parameters have in a dim, and the first product that has it, as in "layer.1.ffn.gate".
typedef struct ModelWidth { DimName dim; int64_t size; char of[48]; } ModelWidth;
enum { MODEL_WIDTHS = 32 }; // most that are kept

// Facts of the model that its forward graph tells (model_measure).
typedef struct ModelFacts {
  int64_t parameters;      // a tied head counts once
  int64_t active;          // of these, those that one token uses: of the experts, experts_per_token
  int64_t multiplied;      // of the active ones, without tables that are only looked up: learned positions, an untied
                           // embedding
  int64_t size[DIM_COUNT]; // of the parameters' dims; their common divisor where parameters differ; 0: none has it
  ModelWidth width[MODEL_WIDTHS]; // each size of each dim once
  int widths;
  int64_t longest;         // tokens of the longest sequence that plait can run; 0: any
  const char *limit;       // the key that says so
  const char *why;         // what is missing for longer ones; NULL: the model has no such positions
} ModelFacts;

// Facts that several families have. Readers fill them in; 0 where a family lacks one.
typedef struct ModelConfig {
  const Family *family;
  int64_t layers, embed, ffn, vocab;
  int64_t heads, kv_heads, head_dim; // heads is a multiple of kv_heads
  int64_t positions;                 // rows of a table of learned positions, or the length that the model was made for
  int64_t window;                    // some layers attend to that many tokens only, their own included; 0: to all
  const char *window_key;            // which says so
  ActivationKind activation;
  double norm_epsilon;
  double initializer_range;          // standard deviation
  double embedding_dropout, attention_dropout, residual_dropout; // probabilities in [0, 1)
  double attention_scale;            // of q·k
  int tied;                          // the head is wte
  int qkv_bias, output_bias;         // of attention: biases on q, k, v; and on its output
  int ffn_bias;                      // on all products of the feed-forward half
  int head_norm;                     // q and k are normalised by head before rope
  int64_t experts, experts_per_token; // of each layer that has experts; 0: none has
  int64_t expert_ffn;                // inner width of an expert
  int64_t shared_ffn;                // and of the expert that sees every token, scaled by a sigmoid; 0: there is none
  int norm_topk; // the weights of a token's experts sum to 1; else they are the router's probabilities
  double router_aux_loss_coef;       // of the balance loss
  uint64_t expert_layers[MOST_LAYERS / 64]; // layer N has experts: bit N % 64 of word N / 64; else ffn wide
  RopeAttr rope;
  ModelFacts facts;
  char *path;                        // of the file, for messages
  json_t *json;                      // the whole file, with the keys that plait does not read
  json_t *known; // an object with the keys that its family reads, given or not ("rope_scaling.factor")
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
int model_same_rope(const RopeAttr *a, const RopeAttr *b);

// Keys of the file that plait does not read and that might matter, with the nearest that it reads, as a list for a
// message: "n_layres (did you mean n_layer?), rotary_pct"; NULL: none. Keys that every config.json holds beside the
// model are left out. The caller frees it.
char *model_config_unread(const ModelConfig *config);

// Does layer 0 … have experts in place of its feed-forward half?
static inline int model_layer_has_experts(const ModelConfig *config, int64_t layer) {
  return config->expert_layers[layer / 64] >> (layer % 64) & 1;
}

// How many choices of an expert are kept of a sequence with a capacity factor: ⌈factor · k · seq / experts⌉; 0: all.
int64_t model_expert_capacity(const ModelConfig *config, double factor, int64_t seq);

const char *model_family_name(const Family *family); // its model_type: "gpt2"
#define MODEL_FAMILIES_TEXT 400
const char *model_families(char text[MODEL_FAMILIES_TEXT]); // all of them: "gpt2, llama"; returns text

// Asks the graph again: for callers that change the sizes of a config themselves.
void model_measure(ModelConfig *config);
// Parameters of the model; a tied head counts once.
int64_t model_config_parameters(const ModelConfig *config);
// Model FLOPs of forward and backward per token at this length of sequences: 6·N + 6·L·d·(T + 1) for a plain decoder
// (T = seq_len, d = heads · head_dim; attention is causal). N: ModelFacts.multiplied; the rest is what the graph's
// products of two activations cost. It builds a graph.
double model_config_flops_per_token(const ModelConfig *config, int64_t seq_len);
// Can sequences of this many tokens be run? If not, PLAIT_BAD_INPUT with the key that forbids it; `asked`: the key or
// option that asks for the length ("data.seq_len").
int model_check_length(const ModelConfig *config, const char *asked, int64_t length, Error *error);
// The length that the model was made for, as far as plait can run it.
int64_t model_usual_length(const ModelConfig *config);
