// Shared parts of model files: inputs, parameters, and the steps that most transformers take.
#pragma once
#include "model/model.h"
#include "op/build.h"

typedef struct ModelBuild {
  Graph *g;
  const ModelConfig *config;
  const ModelOptions *options;
  int input[INPUT_COUNT]; // by build_input: 1 + the tensor; 0: the model has not read it
  int64_t longest;        // by build_limit; 0: any length
  const char *limit, *why;
} ModelBuild;

// A dim of a parameter: its name is for Layouts, its size is the parameter's.
typedef struct Extent { DimName dim; int64_t size; } Extent;

// Nodes from here on belong to `layer`, and names of nodes and parameters begin with the scope ("layer.3.attention").
void build_scope(ModelBuild *m, int layer, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Sequences are at most `length` tokens long, because `key` of config.json says so; `why`: what is missing.
void build_limit(ModelBuild *m, const char *key, int64_t length, const char *why);

// An input of the table; the graph has those that a model asks for.
int build_input(ModelBuild *m, KnownInput id);

// A parameter of the current scope as an operand. Matrices are normal with the given standard deviation, have weight
// decay and, in narrow precisions, a narrow Copy; biases start at 0 and gains at 1, and have neither.
int build_matrix(ModelBuild *m, const char *name, double deviation, int rank, const Extent *dims);
int build_bias(ModelBuild *m, const char *name, int rank, const Extent *dims);
int build_gain(ModelBuild *m, const char *name, Extent dim);

// Marks the tensor as part of the residual stream and returns it.
int build_residual(ModelBuild *m, int tensor);
// Dropout while training, and nothing else.
int build_dropout(ModelBuild *m, const char *name, int x, double probability);
double build_dropout_rate(const ModelBuild *m, double probability);

// x (…, e) normalised over its last dim, with parameters NAME.weight (e) and, for the first, NAME.bias (e).
int build_layer_norm(ModelBuild *m, const char *name, int x);
int build_rms_norm(ModelBuild *m, const char *name, int x);

// x W + bias in the current scope: parameters NAME.weight (out…, in…) and, where `bias`, NAME.bias (out…). The last
// `in` dims of x are contracted, and are those of the weight.
int build_linear(ModelBuild *m, const char *name, int x, double deviation, int out, const Extent *out_dims, int in,
                 int bias);
// build_linear back onto the residual stream: (…) → (b, s, embed), with bias, dropout and the addition to `stream`.
int build_linear_residual(ModelBuild *m, const char *name, int x, int stream, double deviation, int in, int bias);

// x (b, s, embed), already normalised → (b, s, kv_heads, group, head_dim): q, k, v (normalised by head and turned by
// rope where the config says so) and attention, in the current scope.
int build_attention(ModelBuild *m, int x);

// The table of token embeddings (vocab, embed), and the tokens' rows of it (b, s, embed), the first residual stream.
int build_embedding(ModelBuild *m, int *wte);
// The end of every model: loss or logits from the normalised stream (b, s, embed); wte is the head where tied.
void build_head(ModelBuild *m, int x, int wte, ModelOutputs *outputs);
