// What the model files share: inputs, parameters, and the steps that every transformer takes.
#pragma once
#include "model/model.h"
#include "op/build.h"

typedef struct ModelBuild {
  Graph *g;
  const ModelConfig *config;
  const ModelOptions *options;
  int tokens, positions, documents; // (b, s)
  int targets;                      // (b, s), or -1
  int index;                        // (b), or -1
} ModelBuild;

// Nodes from here on belong to `layer`, and names of nodes and parameters begin with the scope ("layer.3.attention").
void build_scope(ModelBuild *m, int layer, const char *format, ...) __attribute__((format(printf, 3, 4)));

// A parameter of the current scope as an operand; dims by their extents. Matrices are normal with the given standard
// deviation, have weight decay and, in narrow precisions, a narrow Copy; biases start at 0 and gains at 1, and have neither.
int build_matrix(ModelBuild *m, const char *name, double deviation, int rank, const DimName *dims);
int build_bias(ModelBuild *m, const char *name, int rank, const DimName *dims);
int build_gain(ModelBuild *m, const char *name);

// Marks the tensor as part of the residual stream and returns it.
int build_residual(ModelBuild *m, int tensor);
// Dropout while training, and nothing else.
int build_dropout(ModelBuild *m, const char *name, int x, double probability);
double build_dropout_rate(const ModelBuild *m, double probability);

// x W + bias in the current scope: parameters NAME.weight (out…, in…) and, where `bias`, NAME.bias (out…).
// `in` dims of x are contracted.
int build_linear(ModelBuild *m, const char *name, int x, double deviation, int out, const DimName *out_dims, int in,
                 const DimName *in_dims, int bias);
// build_linear back onto the residual stream: (…) → (b, s, embed), with bias, dropout and the addition to `stream`.
int build_linear_residual(ModelBuild *m, const char *name, int x, int stream, double deviation, int in,
                          const DimName *in_dims, int bias);

// x (b, s, embed), already normalised → (b, s, kv_heads, group, head_dim): q, k, v (rope where `rope` is not NULL) and
// attention, in the current scope.
int build_attention(ModelBuild *m, int x, const RopeAttr *rope);

// The end of every model: loss or logits from the normalised stream (b, s, embed); wte is the head where tied.
void build_head(ModelBuild *m, int x, int wte, ModelOutputs *outputs);

// One function a family, in families.def's file: embedding, blocks, final norm and head.
#define FAMILY(id, type, file, architecture) int file##_build(ModelBuild *m, ModelOutputs *outputs, Error *error);
#include "model/families.def"
#undef FAMILY
