// The rows, and how their operands are filled.
#include "cases.h"
#include "evaluate.h"
#include "base/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// An operand in a few letters: what it holds, then dims as letter and size.
//   f floats   + positive floats   S statistics (fp32 or fp64)   R positive statistics   D a positive fp64 scalar
//   M statistics of which half are -infinity
//   v floats of a vector or an accumulator, which stay fp32 where others are bf16
//   h floats of the upper half of split weights, always bf16   l the lower half, of uint16
//   Z the fp64 scalar 0   O the fp64 scalar 1   i ids in [-1, n), as in "i37 b2 s5"   p positions   t text documents
//   m a mask of u8, in "m2 b2 s5 x3" of 2 experts a token, but of every seventh token, which lost one   c compact
//   floats, in "c2 b2 s5 x3 e4" of the mask that is input 2   k a mask of u8 of which so many tenths are 1, anywhere
//   - absent
typedef struct Row {
  const char *name;
  Op op;
  const char *input[9];
  const void *attr;
  size_t attr_size;
  int backward; // the case is the node that the op's gradient appends
  int storage, update;
} Row;

#define ATTR(type, ...) .attr = &(const type){__VA_ARGS__}, .attr_size = sizeof(type)
#define NONE .attr = NULL

static const Row rows[] = {
    {"embedding", OP_EMBEDDING, {"f v37 e6", "i37 b2 s5"}, NONE},
    {"embedding positions", OP_EMBEDDING, {"f p9 e5", "p b3 s7"}, NONE},
    {"embedding heads", OP_EMBEDDING, {"f v12 g2 d3", "i12 b2 s3"}, NONE},
    {"embedding_grad", OP_EMBEDDING, {"f v37 e6", "i37 b4 s6"}, NONE, .backward = 1},
    {"embedding_grad positions", OP_EMBEDDING, {"f p9 e5", "p b3 s7"}, NONE, .backward = 1},
    {"matmul nt", OP_MATMUL, {"f b2 s5 e7", "f f9 e7"}, ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt square",
     OP_MATMUL,
     {"f b2 s3 e8", "f e8 e8"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt to heads",
     OP_MATMUL,
     {"f b2 s5 e7", "f g2 r3 d4 e7"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 3, .k = 1)},
    {"matmul nt from heads",
     OP_MATMUL,
     {"f b2 s5 g2 r3 d4", "f e7 g2 r3 d4"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 3)},
    {"matmul nt large",
     OP_MATMUL,
     {"f b2 s67 e70", "f f133 e70"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt one row",
     OP_MATMUL,
     {"f b1 s1 e33", "f f17 e33"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt depth one",
     OP_MATMUL,
     {"f b3 s5 e1", "f f4 e1"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nn", OP_MATMUL, {"f b2 s5 f9", "f f9 e7"}, ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 1)},
    {"matmul nn to heads",
     OP_MATMUL,
     {"f b2 s5 e7", "f e7 g2 r3 d4"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 3)},
    {"matmul nn from heads",
     OP_MATMUL,
     {"f b2 s5 g2 r3 d4", "f g2 r3 d4 e7"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 3, .k = 1)},
    {"matmul nn large",
     OP_MATMUL,
     {"f b2 s67 f133", "f f133 e70"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 1)},
    {"matmul tn", OP_MATMUL, {"f b2 s5 f9", "f b2 s5 e7"}, ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1)},
    {"matmul tn heads",
     OP_MATMUL,
     {"f b2 s5 g2 r3 d4", "f b2 s5 e7"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 3, .k = 1)},
    {"matmul tn large",
     OP_MATMUL,
     {"f b2 s67 f133", "f b2 s67 e70"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1)},
    {"matmul tn accumulate",
     OP_MATMUL,
     {"f b2 s9 f13", "f b2 s9 e7", "v f13 e7"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1, .accumulate = 1),
     .update = 1},
    {"matmul tn accumulate narrow",
     OP_MATMUL,
     {"f b2 s9 f13", "f b2 s9 e7", "f f13 e7"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1, .accumulate = 1),
     .update = 1},
#define EINSUM(of_a, of_b, of_out, ...)                                                                                \
  ATTR(EinsumAttr, .rank = {of_a, of_b, of_out}, .letter = {__VA_ARGS__}) // letters of a, b and the output
    {"einsum product", OP_EINSUM, {"f b2 s3 e5", "f e5 f4"}, EINSUM(3, 2, 3, {0, 1, 2}, {2, 3}, {0, 1, 3})},
    {"einsum scores",
     OP_EINSUM,
     {"f b2 s3 g2 d5", "f b2 p4 g2 d5"},
     EINSUM(4, 4, 4, {0, 1, 2, 3}, {0, 4, 2, 3}, {0, 2, 1, 4})},
    {"einsum outer", OP_EINSUM, {"f b3 s2", "f b3 e4"}, EINSUM(2, 2, 3, {0, 1}, {0, 2}, {2, 0, 1})},
    {"einsum apart", OP_EINSUM, {"f b2 s3 e4", "f b2 f5 e4"}, EINSUM(3, 3, 2, {0, 1, 2}, {0, 3, 2}, {0, 2})},
    {"einsum all", OP_EINSUM, {"f b3 e4", "f b3 e4"}, EINSUM(2, 2, 0, {7, 4}, {7, 4}, {0})},
    {"einsum sum", OP_EINSUM, {"f b3 s5 e4"}, EINSUM(3, 0, 2, {0, 1, 2}, {0}, {0, 2})},
    {"einsum transpose", OP_EINSUM, {"f b3 s5 e4"}, EINSUM(3, 0, 3, {0, 1, 2}, {0}, {0, 2, 1})},
    {"einsum broadcast",
     OP_EINSUM,
     {"f b2 e3"},
     ATTR(EinsumAttr, .rank = {2, 0, 3}, .letter = {{0, 2}, {0}, {0, 1, 2}}, .size = {0, 7})},
    {"einsum gradient",
     OP_EINSUM,
     {"f b2 s3 e4", "f b2 f5 e4"},
     EINSUM(3, 3, 2, {0, 1, 2}, {0, 3, 2}, {0, 2}),
     .backward = 1},
#undef EINSUM
    {"bias", OP_BIAS, {"f b2 s5 e7", "v e7"}, NONE},
    {"bias heads", OP_BIAS, {"f b2 s5 g2 r3 d4", "v g2 r3 d4"}, NONE},
    {"reduce", OP_REDUCE, {"f b3 s5 e7"}, ATTR(ReduceAttr, 2)},
    {"reduce all", OP_REDUCE, {"f b3 s5"}, ATTR(ReduceAttr, 2)},
    {"reduce heads", OP_REDUCE, {"f b3 s17 g2 d5"}, ATTR(ReduceAttr, 2)},
    {"layer_norm", OP_LAYER_NORM, {"f b2 s5 e7", "v e7", "v e7"}, ATTR(NormAttr, .epsilon = 1e-5)},
    {"layer_norm no bias", OP_LAYER_NORM, {"f b3 s4 e33", "v e33", "-"}, ATTR(NormAttr, .epsilon = 1e-5)},
    {"layer_norm_grad", OP_LAYER_NORM, {"f b2 s5 e7", "v e7", "v e7"}, ATTR(NormAttr, .epsilon = 1e-5), .backward = 1},
    {"layer_norm_grad no bias",
     OP_LAYER_NORM,
     {"f b3 s4 e33", "v e33", "-"},
     ATTR(NormAttr, .epsilon = 1e-5),
     .backward = 1},
    {"rms_norm", OP_RMS_NORM, {"f b2 s5 e7", "v e7"}, ATTR(NormAttr, .epsilon = 1e-6)},
    {"rms_norm heads", OP_RMS_NORM, {"f b2 s3 g2 d18", "v d18"}, ATTR(NormAttr, .epsilon = 1e-6)},
    {"rms_norm_grad", OP_RMS_NORM, {"f b2 s5 e7", "v e7"}, ATTR(NormAttr, .epsilon = 1e-6), .backward = 1},
    {"rms_norm_grad wide", OP_RMS_NORM, {"f b3 s4 e33", "v e33"}, ATTR(NormAttr, .epsilon = 1e-6), .backward = 1},
    {"norm_sum", OP_NORM_SUM, {"f b2 s5 e7", "-"}, ATTR(NormSumAttr, 0)},
    {"norm_sum squares", OP_NORM_SUM, {"f b2 s5 e7", "-"}, ATTR(NormSumAttr, 1)},
    {"norm_sum squares about a mean", OP_NORM_SUM, {"f b3 s4 e33", "S b3 s4"}, ATTR(NormSumAttr, 1)},
    {"norm_apply",
     OP_NORM_APPLY,
     {"f b2 s5 e7", "v e7", "v e7", "S b2 s5", "R b2 s5"},
     ATTR(NormAttr, .epsilon = 1e-5)},
    {"norm_apply no mean",
     OP_NORM_APPLY,
     {"f b3 s4 e33", "v e33", "-", "-", "R b3 s4"},
     ATTR(NormAttr, .epsilon = 1e-6)},
    {"norm_grad_sums", OP_NORM_GRAD_SUMS, {"f b2 s5 e7", "f b2 s5 e7", "v e7", "S b2 s5", "R b2 s5"}, NONE},
    {"norm_grad_sums no mean", OP_NORM_GRAD_SUMS, {"f b3 s4 e33", "f b3 s4 e33", "v e33", "-", "R b3 s4"}, NONE},
    {"norm_grad_apply",
     OP_NORM_GRAD_APPLY,
     {"f b2 s5 e7", "f b2 s5 e7", "v e7", "S b2 s5", "R b2 s5", "S b2 s5 x2"},
     ATTR(NormAttr, .bias = 1)},
    {"norm_grad_apply no mean",
     OP_NORM_GRAD_APPLY,
     {"f b3 s4 e33", "f b3 s4 e33", "v e33", "-", "R b3 s4", "S b3 s4 x1"},
     NONE},
    {"rope", OP_ROPE, {"f b2 s7 g2 r3 d6", "p b2 s7"}, ATTR(RopeAttr, .theta = 10000)},
    {"rope keys inverse", OP_ROPE, {"f b3 s4 g2 d8", "p b3 s4"}, ATTR(RopeAttr, .theta = 500000, .inverse = 1)},
    {"rope llama 3", OP_ROPE, {"f b2 s6 g2 d16", "p b2 s6"}, ATTR(RopeAttr, 500, 0, 1, 8, 1, 4, 64)},
    {"rope linear", OP_ROPE, {"f b2 s6 g2 d4", "p b2 s6"}, ATTR(RopeAttr, .theta = 10000, .scaling = 2, .factor = 4)},
#define ATTENTION_ROWS(name, backward_flag)                                                                            \
  {name " causal documents",                                                                                           \
   OP_ATTENTION,                                                                                                       \
   {"f b2 s7 g2 r3 d5", "f b2 s7 g2 d5", "f b2 s7 g2 d5", "t b2 s7", "t b2 s7"},                                       \
   ATTR(AttentionAttr, 0.4, 0, 1, 0, 7),                                                                               \
   .backward = backward_flag},                                                                                         \
      {name " full",                                                                                                   \
       OP_ATTENTION,                                                                                                   \
       {"f b3 s6 g1 r2 d4", "f b3 s6 g1 d4", "f b3 s6 g1 d4", "t b3 s6", "t b3 s6"},                                   \
       ATTR(AttentionAttr, 0.5, 0, 0, 0, 7),                                                                           \
       .backward = backward_flag},                                                                                     \
      {name " dropout",                                                                                                \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s9 g2 r2 d3", "f b2 s9 g2 d3", "f b2 s9 g2 d3", "t b2 s9", "t b2 s9"},                                   \
       ATTR(AttentionAttr, 0.6, 0.3, 1, 0, 77),                                                                        \
       .backward = backward_flag},                                                                                     \
      {name " dropout full",                                                                                           \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s5 g2 r2 d3", "f b2 s5 g2 d3", "f b2 s5 g2 d3", "t b2 s5", "t b2 s5"},                                   \
       ATTR(AttentionAttr, 0.6, 0.5, 0, 0, 78),                                                                        \
       .backward = backward_flag},                                                                                     \
      {name " long",                                                                                                   \
       OP_ATTENTION,                                                                                                   \
       {"f b1 s83 g2 r1 d17", "f b1 s83 g2 d17", "f b1 s83 g2 d17", "t b1 s83", "t b1 s83"},                           \
       ATTR(AttentionAttr, 0.25, 0, 1, 0, 7),                                                                          \
       .backward = backward_flag},                                                                                     \
      {name " fewer keys",                                                                                             \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s9 g2 r2 d3", "f b2 s6 g2 d3", "f b2 s6 g2 d3", "i3 b2 s9", "i3 b2 s6"},                                 \
       ATTR(AttentionAttr, 0.6, 0.3, 1, 0, 77),                                                                        \
       .backward = backward_flag},                                                                                     \
      {name " fewer queries",                                                                                          \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s4 g1 r3 d5", "f b2 s7 g1 d5", "f b2 s7 g1 d5", "i4 b2 s4", "i4 b2 s7"},                                 \
       ATTR(AttentionAttr, 0.5, 0, 0, 1, 7),                                                                           \
       .backward = backward_flag},                                                                                     \
  {                                                                                                                    \
    name " one token", OP_ATTENTION, {"f b3 s1 g1 r1 d2", "f b3 s1 g1 d2", "f b3 s1 g1 d2", "t b3 s1", "t b3 s1"},     \
        ATTR(AttentionAttr, 1, 0, 1, 0, 7), .backward = backward_flag                                                  \
  }
    ATTENTION_ROWS("attention", 0),
    ATTENTION_ROWS("attention_grad", 1),
#undef ATTENTION_ROWS
    {"merge", OP_MERGE, {"f b2 s5 g2 r3 d4", "S b2 g2 r3 s5", "f b2 s5 g2 r3 d4", "S b2 g2 r3 s5"}, NONE},
    {"merge none", OP_MERGE, {"f b2 s3 g1 r2 d7", "M b2 g1 r2 s3", "f b2 s3 g1 r2 d7", "M b2 g1 r2 s3"}, NONE},
    {"merge wide", OP_MERGE, {"f b3 s4 g2 r1 d33", "M b3 g2 r1 s4", "f b3 s4 g2 r1 d33", "S b3 g2 r1 s4"}, NONE},
#define ACTIVATION_ROWS(kind, text)                                                                                    \
  {"activation " text, OP_ACTIVATION, {"f b2 s5 f7"}, ATTR(ActivationAttr, kind)},                                     \
  {"activation_grad " text, OP_ACTIVATION, {"f b2 s5 f7"}, ATTR(ActivationAttr, kind), .backward = 1},                 \
  {"gated " text, OP_GATED, {"f b2 s3 f7", "f b2 s3 f7"}, ATTR(ActivationAttr, kind)},                                 \
  {"gated_grad " text, OP_GATED, {"f b2 s3 f7", "f b2 s3 f7"}, ATTR(ActivationAttr, kind), .backward = 1}
    ACTIVATION_ROWS(ACTIVATION_GELU, "gelu"),
    ACTIVATION_ROWS(ACTIVATION_GELU_TANH, "gelu_tanh"),
    ACTIVATION_ROWS(ACTIVATION_SILU, "silu"),
    ACTIVATION_ROWS(ACTIVATION_RELU, "relu"),
    ACTIVATION_ROWS(ACTIVATION_SIGMOID, "sigmoid"),
#undef ACTIVATION_ROWS
    {"softmax", OP_SOFTMAX, {"f b2 s5 e7"}, NONE},
    {"softmax one", OP_SOFTMAX, {"f b3 e1"}, NONE},
    {"softmax_grad", OP_SOFTMAX, {"f b2 s5 e7"}, NONE, .backward = 1},
    {"add", OP_ADD, {"f b2 s5 e7", "f b2 s5 e7"}, NONE},
    {"add three", OP_ADD, {"f b2 s5 e7", "f b2 s5 e7", "f b2 s5 e7"}, NONE},
    {"add one", OP_ADD, {"f b3 s5"}, NONE},
    {"add scalars", OP_ADD, {"D", "D", "D", "D"}, NONE},
    {"mul", OP_MUL, {"f b2 s5 e7", "f b2 s5 e7"}, NONE},
    {"scale", OP_SCALE, {"f b2 s5 e7"}, ATTR(ScaleAttr, -1.75)},
    {"identity", OP_IDENTITY, {"f v7 e5"}, NONE, .storage = 1},
    {"cast to fp32", OP_CAST, {"f v7 e5"}, ATTR(CastAttr, DTYPE_F32), .storage = 1},
    {"cast to bf16", OP_CAST, {"f v7 e5"}, ATTR(CastAttr, DTYPE_BF16), .storage = 1},
    {"cast to fp16", OP_CAST, {"f v7 e5"}, ATTR(CastAttr, DTYPE_F16), .storage = 1},
    {"cast from ids", OP_CAST, {"i9 b2 s5"}, ATTR(CastAttr, DTYPE_F64)},
    {"dropout", OP_DROPOUT, {"f b4 s6 e7"}, ATTR(DropoutAttr, 0.3, 91)},
    {"dropout heads", OP_DROPOUT, {"f b2 s4 g2 d6"}, ATTR(DropoutAttr, 0.5, 92)},
    {"dropout no features", OP_DROPOUT, {"f b4 s9"}, ATTR(DropoutAttr, 0.5, 93)},
    {"take", OP_TAKE, {"f b3 s6 e5", "i6 b3"}, NONE},
    {"linear_cross_entropy",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy many rows",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b3 s45 e19", "f v71 e19", "i71 b3 s45", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy no target",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s2 e3", "f v5 e3", "i0 b2 s2", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy loss only",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "-"},
     ATTR(CrossEntropyAttr, .gradient = 0)},
    {"linear_cross_entropy split",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b3 s45 e19", "f v71 e19", "i71 b3 s45", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1, .split = 1)},
    {"cross_entropy_statistics", OP_CROSS_ENTROPY_STATISTICS, {"f b2 s5 e6", "f v37 e6", "i37 b2 s5"}, NONE},
    {"cross_entropy_rescale", OP_CROSS_ENTROPY_RESCALE, {"S b2 s5", "R b2 s5", "R b2 s5"}, NONE},
    {"cross_entropy_apply",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D", "R b2 s5", "R b2 s5", "S b2 s5"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"cross_entropy_apply split",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D", "R b2 s5", "R b2 s5", "S b2 s5"},
     ATTR(CrossEntropyAttr, .gradient = 1, .split = 1)},
    {"cross_entropy_apply loss only",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "-", "R b2 s5", "R b2 s5", "S b2 s5"},
     ATTR(CrossEntropyAttr, .gradient = 0)},
    {"cross_entropy", OP_CROSS_ENTROPY, {"f b3 s5 e7", "i7 b3 s5", "D"}, NONE},
    {"cross_entropy classes", OP_CROSS_ENTROPY, {"f b13 e4", "i4 b13", "D"}, NONE},
    {"cross_entropy probabilities", OP_CROSS_ENTROPY, {"f b3 s5 e7", "+ b3 s5 e7", "D"}, NONE},
    {"squared_error", OP_SQUARED_ERROR, {"f b2 s5 e7", "f b2 s5 e7", "D"}, NONE},
    {"squared_error vector", OP_SQUARED_ERROR, {"f b13", "f b13", "D"}, NONE},
    {"router_balance", OP_ROUTER_BALANCE, {"f b3 s8 x5", "k4 b3 s8 x5", "D"}, NONE},
    {"router_balance one expert", OP_ROUTER_BALANCE, {"f b2 s17 x1", "k10 b2 s17 x1", "D"}, NONE},
    {"router_balance_sums", OP_ROUTER_BALANCE_SUMS, {"f b3 s8 x5", "k4 b3 s8 x5"}, NONE},
    {"router_balance_apply", OP_ROUTER_BALANCE_APPLY, {"f b3 s8 x5", "k4 b3 s8 x5", "D", "R b3 x5 -2"}, NONE},
    {"router_z", OP_ROUTER_Z, {"f b3 s8 x5", "D"}, NONE},
    {"router_load", OP_ROUTER_LOAD, {"k4 b3 s8 x5", "-"}, NONE},
    {"router_load kept", OP_ROUTER_LOAD, {"k4 b3 s8 x5", "k2 b3 s8 x5"}, NONE},
    {"router_bias", OP_ROUTER_BIAS, {"f x6", "S -2 x6", "Z"}, ATTR(RouterBiasAttr, .rate = 0.125), .update = 1},
    {"router_bias skip", OP_ROUTER_BIAS, {"f x6", "S -2 x6", "O"}, ATTR(RouterBiasAttr, .rate = 0.125), .update = 1},
    {"capacity", OP_CAPACITY, {"k4 b3 s16 x5"}, ATTR(CapacityAttr, .most = 3)},
    {"capacity all", OP_CAPACITY, {"k8 b2 s9 x3"}, ATTR(CapacityAttr, .most = 9)},
    {"capacity_counts", OP_CAPACITY_COUNTS, {"k4 b3 s16 x5"}, ATTR(CapacityAttr, .most = 3, .places = 12)},
    {"capacity_apply",
     OP_CAPACITY_APPLY,
     {"k4 b3 s16 x5", "i3 b3 -12 x5"},
     ATTR(CapacityAttr, .most = 3, .places = 12)},
    {"output", OP_OUTPUT, {"f b3 s5 e7"}, NONE},
    {"count_targets", OP_COUNT_TARGETS, {"i3 b4 s7"}, NONE},
    {"gradient_seed", OP_GRADIENT_SEED, {"D", "-"}, NONE},
    {"gradient_seed loss scale", OP_GRADIENT_SEED, {"D", "D"}, NONE},
    {"gradient_seed no target", OP_GRADIENT_SEED, {"Z", "D"}, NONE},
    {"mean_loss", OP_MEAN_LOSS, {"D", "D"}, NONE},
    {"fill zero", OP_FILL, {"f v7 e5"}, ATTR(FillAttr, 0), .storage = 1, .update = 1},
    {"fill", OP_FILL, {"f v7 e5"}, ATTR(FillAttr, 0.5), .storage = 1, .update = 1},
    {"accumulate", OP_ACCUMULATE, {"f v7 e5", "f v7 e5"}, NONE, .storage = 1, .update = 1},
    {"accumulate scalar", OP_ACCUMULATE, {"D", "D"}, NONE, .update = 1},
    {"sum_squares", OP_SUM_SQUARES, {"f v37 e19"}, NONE, .storage = 1},
    {"clip", OP_CLIP, {"D", "-"}, ATTR(ClipAttr, 0.25)},
    {"clip small", OP_CLIP, {"D", "-"}, ATTR(ClipAttr, 100)},
    {"clip none", OP_CLIP, {"D", "-"}, ATTR(ClipAttr, 0)},
    {"clip loss scale", OP_CLIP, {"D", "D"}, ATTR(ClipAttr, 0.25)},
    {"clip learning rate", OP_CLIP, {"D", "-", "D"}, ATTR(ClipAttr, 0.25)},
    {"loss_scale", OP_LOSS_SCALE, {"D", "D", "Z"}, ATTR(LossScaleAttr, 100), .update = 1},
    {"loss_scale grows", OP_LOSS_SCALE, {"D", "D", "Z"}, ATTR(LossScaleAttr, 1), .update = 1},
    {"loss_scale fixed", OP_LOSS_SCALE, {"D", "D", "O"}, ATTR(LossScaleAttr, 0), .update = 1},
    {"loss_scale skip", OP_LOSS_SCALE, {"D", "D", "O"}, ATTR(LossScaleAttr, 100), .update = 1},
    {"unscale", OP_UNSCALE, {"f v7 e5", "D"}, NONE, .storage = 1},
    {"adamw",
     OP_ADAMW,
     {"f v7 e5", "f v7 e5", "+ v7 e5", "f v7 e5", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"adamw skip",
     OP_ADAMW,
     {"f e35", "f e35", "+ e35", "f e35", "D", "D", "O", "Z"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"sgd",
     OP_SGD,
     {"f v7 e5", "-", "f v7 e5", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .momentum = 0, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"sgd momentum",
     OP_SGD,
     {"f v7 e5", "f v7 e5", "f v7 e5", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .momentum = 0.9, .decay = 0),
     .storage = 1,
     .update = 1},
    {"sgd skip",
     OP_SGD,
     {"f v7 e5", "f v7 e5", "f v7 e5", "D", "D", "O", "O"},
     ATTR(OptimizerAttr, .momentum = 0.9, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"lion",
     OP_LION,
     {"f v7 e5", "f v7 e5", "f v7 e5", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"lion skip",
     OP_LION,
     {"f e35", "f e35", "f e35", "D", "D", "O", "O"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"adamw split",
     OP_ADAMW,
     {"h v7 e5", "v v7 e5", "R v7 e5", "f v7 e5", "D", "D", "Z", "O", "l v7 e5"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"adamw split skip",
     OP_ADAMW,
     {"h e35", "v e35", "R e35", "f e35", "D", "D", "O", "O", "l e35"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"sgd split",
     OP_SGD,
     {"h v7 e5", "-", "f v7 e5", "D", "D", "Z", "O", "l v7 e5"},
     ATTR(OptimizerAttr, .momentum = 0, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"sgd momentum split",
     OP_SGD,
     {"h v7 e5", "v v7 e5", "f v7 e5", "D", "D", "Z", "O", "l v7 e5"},
     ATTR(OptimizerAttr, .momentum = 0.9, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"lion split",
     OP_LION,
     {"h v7 e5", "v v7 e5", "f v7 e5", "D", "D", "Z", "O", "l v7 e5"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"muon split",
     OP_MUON,
     {"h v7 e5", "v v7 e5", "D", "Z", "l v7 e5"},
     ATTR(MuonAttr, .decay = 0.1, .scale = 0.5),
     .storage = 1,
     .update = 1},
    {"muon_momentum",
     OP_MUON_MOMENTUM,
     {"f v7 e5", "f v7 e5", "D", "Z"},
     ATTR(MuonAttr, .momentum = 0.95),
     .storage = 1,
     .update = 1},
    {"muon_momentum skip",
     OP_MUON_MOMENTUM,
     {"f e35", "f e35", "D", "O"},
     ATTR(MuonAttr, .momentum = 0.95),
     .storage = 1,
     .update = 1},
    {"muon",
     OP_MUON,
     {"f v7 e5", "f v7 e5", "D", "Z"},
     ATTR(MuonAttr, .decay = 0.1, .scale = 0.5),
     .storage = 1,
     .update = 1},
    {"muon skip",
     OP_MUON,
     {"f e35", "f e35", "D", "O"},
     ATTR(MuonAttr, .decay = 0.1, .scale = 0.5),
     .storage = 1,
     .update = 1},
    {"orthogonalize wide", OP_ORTHOGONALIZE, {"f f5 e9"}, ATTR(OrthogonalizeAttr, 0, 1)},
    {"orthogonalize tall", OP_ORTHOGONALIZE, {"f f9 e4"}, ATTR(OrthogonalizeAttr, 0, 1)},
    {"orthogonalize from heads", OP_ORTHOGONALIZE, {"f e5 g2 r2 d3"}, ATTR(OrthogonalizeAttr, 0, 1)},
    {"orthogonalize to heads", OP_ORTHOGONALIZE, {"f g2 r2 d3 e5"}, ATTR(OrthogonalizeAttr, 0, 3)},
    {"orthogonalize one row", OP_ORTHOGONALIZE, {"f f1 e6"}, ATTR(OrthogonalizeAttr, 0, 1)},
    {"orthogonalize experts", OP_ORTHOGONALIZE, {"f x3 f4 e6"}, ATTR(OrthogonalizeAttr, 1, 1)},
    {"advance", OP_ADVANCE, {"D", "Z"}, NONE, .update = 1},
    {"advance skip", OP_ADVANCE, {"D", "O"}, NONE, .update = 1},
    {"version_turn", OP_VERSION_TURN, {"D", "D", "Z"}, NONE},
    {"version_turn skip", OP_VERSION_TURN, {"D", "D", "O"}, NONE},
    {"version_turn begin", OP_VERSION_TURN, {"D", "D", "-"}, NONE},
    {"version_turn first", OP_VERSION_TURN, {"Z", "Z", "-"}, NONE},
    {"next_version", OP_NEXT_VERSION, {"f v7 e5", "f v7 e5", "f v7 e5", "O"}, NONE, .storage = 1, .update = 1},
    {"next_version stays", OP_NEXT_VERSION, {"f v7 e5", "f v7 e5", "f v7 e5", "Z"}, NONE, .storage = 1, .update = 1},
    {"next_version starts", OP_NEXT_VERSION, {"f v7 e5", "f v7 e5", "f v7 e5", "D"}, NONE, .storage = 1, .update = 1},
    {"slice", OP_SLICE, {"f v7 e6 d3"}, NONE, .storage = 1},
    {"route", OP_ROUTE, {"f b2 s5 x4", "-"}, ATTR(RouteAttr, .k = 2)},
    {"route normalized", OP_ROUTE, {"f b3 s5 x7", "-"}, ATTR(RouteAttr, .k = 3, .normalize = 1)},
    {"route bias", OP_ROUTE, {"f b2 s5 x4", "v x4"}, ATTR(RouteAttr, .k = 1, .normalize = 0)},
    {"route all", OP_ROUTE, {"f b2 s3 x3", "-"}, ATTR(RouteAttr, .k = 3, .normalize = 1)},
    {"route_grad", OP_ROUTE, {"f b2 s5 x4", "-"}, ATTR(RouteAttr, .k = 2), .backward = 1},
    {"route_grad normalized", OP_ROUTE, {"f b3 s5 x7", "-"}, ATTR(RouteAttr, .k = 3, .normalize = 1), .backward = 1},
    {"dispatch", OP_DISPATCH, {"f b2 s5 e7", "m2 b2 s5 x4", "-"}, ATTR(DispatchAttr, 2)},
    {"dispatch one expert", OP_DISPATCH, {"f b3 s4 e3", "m1 b3 s4 x1", "-"}, ATTR(DispatchAttr, 1)},
    {"dispatch weights", OP_DISPATCH, {"f b2 s9 e5", "m3 b2 s9 x6", "S b2 s9 x6"}, ATTR(DispatchAttr, 3)},
    {"reorder_rows samples", OP_REORDER_ROWS, {"c1 b4 s3 x5 e7", "m2 b4 s3 x5"}, ATTR(RowParts, 2, 1, 1)},
    {"reorder_rows positions home",
     OP_REORDER_ROWS,
     {"c1 b2 s6 x4 e5", "m2 b2 s6 x4"},
     ATTR(RowParts, 1, 1, 3, .home = 1)},
    {"reorder_rows zigzag", OP_REORDER_ROWS, {"c1 b4 s12 x5 e3", "m3 b4 s12 x5"}, ATTR(RowParts, 2, 3, 2)},
    {"split_positions", OP_SPLIT_POSITIONS, {"f b2 s12 e5"}, ATTR(PositionsAttr, 3)},
    {"split_positions heads", OP_SPLIT_POSITIONS, {"f b3 s8 g2 d3"}, ATTR(PositionsAttr, 2)},
    {"join_positions", OP_JOIN_POSITIONS, {"f b2 s4 e5", "f b2 s4 e5", "f b2 s4 e5"}, NONE},
    {"join_positions heads", OP_JOIN_POSITIONS, {"f b3 s5 g2 d3", "f b3 s5 g2 d3"}, NONE},
    {"grouped nt", OP_GROUPED, {"c2 b2 s5 x4 e7", "f x4 f5 e7", "m2 b2 s5 x4"}, ATTR(GroupedAttr, .kind = MATMUL_NT)},
    {"grouped nt square",
     OP_GROUPED,
     {"c2 b3 s6 x2 e6", "f x2 e6 e6", "m1 b3 s6 x2"},
     ATTR(GroupedAttr, .kind = MATMUL_NT)},
    {"grouped nn", OP_GROUPED, {"c2 b2 s5 x4 f5", "f x4 f5 e7", "m2 b2 s5 x4"}, ATTR(GroupedAttr, .kind = MATMUL_NN)},
    {"grouped_weight",
     OP_GROUPED_WEIGHT,
     {"c2 b2 s5 x4 f5", "c2 b2 s5 x4 e7", "m2 b2 s5 x4"},
     ATTR(GroupedAttr, .kind = 0)},
    {"grouped_weight accumulate",
     OP_GROUPED_WEIGHT,
     {"c2 b2 s9 x5 f5", "c2 b2 s9 x5 e7", "m3 b2 s9 x5", "v x5 f5 e7"},
     ATTR(GroupedAttr, .accumulate = 1),
     .update = 1},
    {"combine", OP_COMBINE, {"m2 b2 s5 x4", "c0 b2 s5 x4 e7", "S b2 s5 x4"}, NONE},
    {"combine sum", OP_COMBINE, {"m3 b3 s4 x5", "c0 b3 s4 x5 e6", "-"}, NONE},
    {"combine_grad", OP_COMBINE, {"m2 b2 s5 x4", "c0 b2 s5 x4 e7", "S b2 s5 x4"}, NONE, .backward = 1},
};

// What only `fuse` makes, and sizes beyond the tiles, chunks and blocks of fast kernels: too slow for finite
// differences.
static const Row large_rows[] = {
    {"matmul nt rows 4096 B apart", // in fp32; 37 rows: whole register tiles and a rest
     OP_MATMUL,
     {"f b1 s37 e1024", "f f131 e1024"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nn rows 4096 B apart",
     OP_MATMUL,
     {"f b2 s18 f1024", "f f1024 e131"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 1)},
    {"embedding_grad accumulate",
     OP_EMBEDDING_GRAD,
     {"i37 b4 s6", "f b4 s6 e6", "v v37 e6"},
     ATTR(EmbeddingAttr, 37, DIM_VOCAB, 1),
     .update = 1},
    {"linear_cross_entropy accumulate",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D", "v v37 e6"},
     ATTR(CrossEntropyAttr, .gradient = 1, .accumulate = 1),
     .update = 1},
    {"cross_entropy_apply accumulate",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D", "R b2 s5", "R b2 s5", "S b2 s5", "v v37 e6"},
     ATTR(CrossEntropyAttr, .gradient = 1, .accumulate = 1),
     .update = 1},
    {"cross_entropy_apply accumulate narrow",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s5 e6", "f v37 e6", "i37 b2 s5", "D", "R b2 s5", "R b2 s5", "S b2 s5", "f v37 e6"},
     ATTR(CrossEntropyAttr, .gradient = 1, .accumulate = 1),
     .update = 1},
    {"matmul nt blocks",
     OP_MATMUL,
     {"f b2 s125 e521", "f f137 e521"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nn blocks",
     OP_MATMUL,
     {"f b2 s125 f521", "f f521 e70"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 1)},
    {"matmul tn blocks",
     OP_MATMUL,
     {"f b2 s161 f250", "f b2 s161 e66"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1)},
    {"matmul tn accumulate blocks",
     OP_MATMUL,
     {"f b2 s161 f121", "f b2 s161 e67", "v f121 e67"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1, .accumulate = 1),
     .update = 1},
    {"matmul tn accumulate depth narrow",
     OP_MATMUL,
     {"f b2 s530 f33", "f b2 s530 e35", "f f33 e35"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1, .accumulate = 1),
     .update = 1},
    {"matmul tn accumulate blocks narrow",
     OP_MATMUL,
     {"f b2 s161 f121", "f b2 s161 e67", "f f121 e67"},
     ATTR(MatmulAttr, .kind = MATMUL_TN, .m = 2, .n = 1, .k = 1, .accumulate = 1),
     .update = 1},
    {"matmul nt groups",
     OP_MATMUL,
     {"f b2 s65 e1056", "f f621 e1056", "v f621"},
     ATTR(MatmulAttr, MATMUL_NT, 2, 1, 1, 0, 1)},
    {"matmul nn groups",
     OP_MATMUL,
     {"f b2 s65 f1056", "f f1056 e100"},
     ATTR(MatmulAttr, .kind = MATMUL_NN, .m = 2, .n = 1, .k = 1)},
    {"matmul nt groups of rows",
     OP_MATMUL,
     {"f b2 s150 e64", "f f70 e64"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt deep",
     OP_MATMUL,
     {"f b1 s3 e4200", "f f19 e4200"},
     ATTR(MatmulAttr, .kind = MATMUL_NT, .m = 2, .n = 1, .k = 1)},
    {"matmul nt bias", OP_MATMUL, {"f b2 s5 e7", "f f9 e7", "v f9"}, ATTR(MatmulAttr, MATMUL_NT, 2, 1, 1, 0, 1)},
    {"matmul nt bias heads",
     OP_MATMUL,
     {"f b2 s7 e33", "f g2 r3 d16 e33", "v g2 r3 d16"},
     ATTR(MatmulAttr, MATMUL_NT, 2, 3, 1, 0, 1)},
    {"matmul nt bias blocks",
     OP_MATMUL,
     {"f b2 s125 e521", "f f137 e521", "v f137"},
     ATTR(MatmulAttr, MATMUL_NT, 2, 1, 1, 0, 1)},
    {"matmul nt bias depth none",
     OP_MATMUL,
     {"f b2 s3 e1", "f f5 e1", "v f5"},
     ATTR(MatmulAttr, MATMUL_NT, 2, 1, 1, 0, 1)},
    {"reduce blocks", OP_REDUCE, {"f b3 s451 e37"}, ATTR(ReduceAttr, 2)},
    {"bias blocks", OP_BIAS, {"f b2 s151 e67", "v e67"}, NONE},
    {"layer_norm blocks", OP_LAYER_NORM, {"f b2 s151 e67", "v e67", "v e67"}, ATTR(NormAttr, .epsilon = 1e-5)},
    {"layer_norm_grad blocks",
     OP_LAYER_NORM,
     {"f b2 s151 e67", "v e67", "v e67"},
     ATTR(NormAttr, .epsilon = 1e-5),
     .backward = 1},
    {"rms_norm_grad blocks", OP_RMS_NORM, {"f b2 s651 e39", "v e39"}, ATTR(NormAttr, .epsilon = 1e-5), .backward = 1},
    {"rope blocks", OP_ROPE, {"f b2 s57 g2 r3 d66", "p b2 s57"}, ATTR(RopeAttr, .theta = 10000)},
#define ATTENTION_ROWS(name, backward_flag)                                                                            \
  {name " blocks",                                                                                                     \
   OP_ATTENTION,                                                                                                       \
   {"f b2 s150 g2 r2 d20", "f b2 s150 g2 d20", "f b2 s150 g2 d20", "t b2 s150", "t b2 s150"},                          \
   ATTR(AttentionAttr, 0.2, 0.1, 1, 0, 7),                                                                             \
   .backward = backward_flag},                                                                                         \
      {name " fewer keys blocks",                                                                                      \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s150 g2 r2 d20", "f b2 s70 g2 d20", "f b2 s70 g2 d20", "i20 b2 s150", "i20 b2 s70"},                     \
       ATTR(AttentionAttr, 0.2, 0.1, 1, 1, 7),                                                                         \
       .backward = backward_flag},                                                                                     \
      {name " fewer queries blocks",                                                                                   \
       OP_ATTENTION,                                                                                                   \
       {"f b2 s33 g2 r2 d20", "f b2 s200 g2 d20", "f b2 s200 g2 d20", "i40 b2 s33", "i40 b2 s200"},                    \
       ATTR(AttentionAttr, 0.2, 0.1, 1, 0, 7),                                                                         \
       .backward = backward_flag},                                                                                     \
  {                                                                                                                    \
    name " full blocks", OP_ATTENTION,                                                                                 \
        {"f b2 s130 g2 r1 d70", "f b2 s130 g2 d70", "f b2 s130 g2 d70", "t b2 s130", "t b2 s130"},                     \
        ATTR(AttentionAttr, 0.1, 0, 0, 0, 7), .backward = backward_flag                                                \
  }
    ATTENTION_ROWS("attention", 0),
    ATTENTION_ROWS("attention_grad", 1),
#undef ATTENTION_ROWS
    {"merge blocks",
     OP_MERGE,
     {"f b2 s150 g2 r2 d70", "M b2 g2 r2 s150", "f b2 s150 g2 r2 d70", "M b2 g2 r2 s150"},
     NONE},
    {"activation blocks", OP_ACTIVATION, {"f b3 s31 f403"}, ATTR(ActivationAttr, ACTIVATION_GELU_TANH)},
    {"dropout blocks", OP_DROPOUT, {"f b3 s31 e403"}, ATTR(DropoutAttr, 0.1, 91)},
    {"embedding_grad blocks", OP_EMBEDDING, {"f v37 e67", "i37 b4 s61"}, NONE, .backward = 1},
    {"linear_cross_entropy words",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s67 e5", "f v4650 e5", "i4650 b2 s67", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy split words",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b2 s67 e5", "f v4650 e5", "i4650 b2 s67", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1, .split = 1)},
    {"cross_entropy_statistics words",
     OP_CROSS_ENTROPY_STATISTICS,
     {"f b2 s67 e5", "f v1130 e5", "i1130 b2 s67"},
     NONE},
    {"cross_entropy_apply words",
     OP_CROSS_ENTROPY_APPLY,
     {"f b2 s67 e5", "f v1130 e5", "i1130 b2 s67", "D", "R b2 s67", "R b2 s67", "S b2 s67"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy blocks",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b3 s145 e33", "f v203 e33", "i203 b3 s145", "D"},
     ATTR(CrossEntropyAttr, .gradient = 1)},
    {"linear_cross_entropy accumulate blocks",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b3 s145 e33", "f v203 e33", "i203 b3 s145", "D", "v v203 e33"},
     ATTR(CrossEntropyAttr, .gradient = 1, .accumulate = 1),
     .update = 1},
    {"linear_cross_entropy accumulate blocks narrow",
     OP_LINEAR_CROSS_ENTROPY,
     {"f b3 s145 e33", "f v203 e33", "i203 b3 s145", "D", "f v203 e33"},
     ATTR(CrossEntropyAttr, .gradient = 1, .accumulate = 1),
     .update = 1},
    {"dispatch blocks", OP_DISPATCH, {"f b2 s151 e67", "m2 b2 s151 x8", "-"}, ATTR(DispatchAttr, 2)},
    {"dispatch weights blocks", OP_DISPATCH, {"f b2 s151 e67", "m2 b2 s151 x8", "S b2 s151 x8"}, ATTR(DispatchAttr, 2)},
    {"combine blocks", OP_COMBINE, {"m2 b2 s151 x8", "c0 b2 s151 x8 e67", "S b2 s151 x8"}, NONE},
    {"combine_grad blocks", OP_COMBINE, {"m2 b2 s151 x8", "c0 b2 s151 x8 e67", "S b2 s151 x8"}, NONE, .backward = 1},
    {"split_positions blocks", OP_SPLIT_POSITIONS, {"f b2 s302 e133"}, ATTR(PositionsAttr, 2)},
    {"join_positions blocks", OP_JOIN_POSITIONS, {"f b2 s151 e133", "f b2 s151 e133", "f b2 s151 e133"}, NONE},
    {"reorder_rows blocks",
     OP_REORDER_ROWS,
     {"c1 b4 s156 x8 e67", "m2 b4 s156 x8"},
     ATTR(RowParts, 2, 3, 2)},
    {"reorder_rows home blocks",
     OP_REORDER_ROWS,
     {"c1 b3 s151 x7 e1133", "m2 b3 s151 x7"},
     ATTR(RowParts, 3, 1, 1, .home = 1)},
    {"grouped nt blocks",
     OP_GROUPED,
     {"c2 b2 s151 x6 e133", "f x6 f70 e133", "m2 b2 s151 x6"},
     ATTR(GroupedAttr, .kind = MATMUL_NT)},
    {"grouped nn blocks",
     OP_GROUPED,
     {"c2 b2 s151 x6 f130", "f x6 f130 e67", "m2 b2 s151 x6"},
     ATTR(GroupedAttr, .kind = MATMUL_NN)},
    {"grouped nt deep",
     OP_GROUPED,
     {"c2 b2 s21 x3 e1056", "f x3 f37 e1056", "m1 b2 s21 x3"},
     ATTR(GroupedAttr, .kind = MATMUL_NT)},
    {"grouped_weight blocks",
     OP_GROUPED_WEIGHT,
     {"c2 b2 s151 x6 f130", "c2 b2 s151 x6 e67", "m2 b2 s151 x6"},
     ATTR(GroupedAttr, .kind = 0)},
    {"grouped_weight accumulate blocks",
     OP_GROUPED_WEIGHT,
     {"c2 b2 s151 x6 f121", "c2 b2 s151 x6 e65", "m2 b2 s151 x6", "v x6 f121 e65"},
     ATTR(GroupedAttr, .accumulate = 1),
     .update = 1},
    {"sum_squares blocks", OP_SUM_SQUARES, {"f v137 e91"}, NONE, .storage = 1},
    {"adamw blocks",
     OP_ADAMW,
     {"f v177 e97", "f v177 e97", "+ v177 e97", "f v177 e97", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"adamw split blocks",
     OP_ADAMW,
     {"h v177 e97", "v v177 e97", "R v177 e97", "f v177 e97", "D", "D", "Z", "O", "l v177 e97"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"lion blocks",
     OP_LION,
     {"f v177 e97", "f v177 e97", "f v177 e97", "D", "D", "Z", "O"},
     ATTR(OptimizerAttr, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1),
     .storage = 1,
     .update = 1},
    {"muon_momentum blocks",
     OP_MUON_MOMENTUM,
     {"f v177 e97", "f v177 e97", "D", "Z"},
     ATTR(MuonAttr, .momentum = 0.95),
     .storage = 1,
     .update = 1},
    {"muon blocks",
     OP_MUON,
     {"f v177 e97", "f v177 e97", "D", "Z"},
     ATTR(MuonAttr, .decay = 0.1, .scale = 0.5),
     .storage = 1,
     .update = 1},
    {"orthogonalize large", OP_ORTHOGONALIZE, {"f f131 e67"}, ATTR(OrthogonalizeAttr, 0, 1)},
    {"orthogonalize large experts", OP_ORTHOGONALIZE, {"f x2 f70 e131"}, ATTR(OrthogonalizeAttr, 1, 1)},
};

enum { ROWS = sizeof rows / sizeof rows[0], LARGE_ROWS = sizeof large_rows / sizeof large_rows[0] };
int op_cases_count(void) { return ROWS; }
int op_cases_with_large(void) { return ROWS + LARGE_ROWS; }
static const Row *row_at(int i) { return i < ROWS ? &rows[i] : &large_rows[i - ROWS]; }
const char *op_case_name(int i) { return row_at(i)->name; }

static DimName dim_of(char letter) {
  static const char letters[] = "-bsegrdfvpx"; // "-2": a dim without a name
  const char *at = strchr(letters, letter);
  CHECK(at, "dim letter %c", letter);
  return (DimName)(at - letters); // the order of dims.def
}

// Adds an input as the text says.
static int add_input(Graph *g, const char *text, int k, Dtype dtype) {
  if (*text == '-') return -1;
  Shape s = {0};
  for (const char *p = strchr(text, ' '); p; p = strchr(p + 1, ' '), s.rank++) {
    s.dim[s.rank] = dim_of(p[1]);
    s.size[s.rank] = strtol(p + 2, NULL, 10);
  }
  char name[32];
  snprintf(name, sizeof name, "input%d", k);
  Dtype of = strchr("ipt", *text)   ? DTYPE_I32
             : strchr("mk", *text)  ? DTYPE_U8
             : *text == 'h'         ? DTYPE_BF16
             : *text == 'l'         ? DTYPE_U16
             : strchr("DZO", *text) ? DTYPE_F64
             : strchr("SRMv", *text) ? op_statistics_dtype(dtype)
                                    : dtype;
  return graph_input(g, name, of, s);
}

// The experts with the largest random numbers; of several the last has none, so that somebody is idle.
static int chosen(PhiloxKey key, int64_t row, int64_t column, int64_t width, int choices) {
  uint32_t own[4], other[4];
  int before = 0;
  philox4x32(key, (uint32_t)row, (uint32_t)column, 2, 0, own);
  for (int64_t i = 0; i < width - (width > 3); i++) {
    philox4x32(key, (uint32_t)row, (uint32_t)i, 2, 0, other);
    before += other[0] > own[0];
  }
  return column < width - (width > 3) && before < choices - (row % 7 == 6);
}

static double number(const char *text, const Operand *x, PhiloxKey key, int64_t i) {
  double normal = philox_normal(key, (uint64_t)i), positive = fabs(normal) + 0.1;
  int64_t width = x->rank ? x->size[x->rank - 1] : 1, column = i % width, row = i / width;
  uint32_t r[4];
  philox4x32(key, (uint32_t)i, 0, 1, 0, r);
  switch (*text) {
  case '+': case 'R': case 'D': return positive;
  case 'M': return r[1] % 2 ? normal : -INFINITY;
  case 'l': return r[3] & 0xffff;
  case 'Z': return 0;
  case 'O': return 1;
  case 'i': return (double)(r[0] % (uint32_t)(strtol(text + 1, NULL, 10) + 1)) - 1;
  case 'k': return r[2] % 10 < (uint32_t)strtol(text + 1, NULL, 10);
  case 'p': return (double)(column < (row + 1) * 2 ? column : column - (row + 1) * 2); // restarts once
  case 'm': return chosen(key, row, column, width, (int)strtol(text + 1, NULL, 10));
  case 't': return (double)(column < 1 + row * 2 ? 0 : column < 1 + row * 2 + width / 2 ? 1 : 2);
  default: return normal;
  }
}

static void fill(const Row *row, int k, Operand *x) {
  char name[96];
  snprintf(name, sizeof name, "%s %d", row->input[k] ? row->name : "doutput", k);
  PhiloxKey key = philox_key(1, 0, philox_name(name));
  int64_t n = operand_elements(x);
  for (int64_t i = 0; i < n; i++) operand_store(x, i, number(row->input[k] ? row->input[k] : "f", x, key, i));
}

static Operand copy_of(const Operand *x) {
  Operand y = *x;
  if (!x->data) return y;
  operand_allocate(&y);
  memcpy(y.data, x->data, (size_t)operand_elements(x) * dtype_size(x->dtype));
  return y;
}

// Appends the gradient of the forward node and finds the node that it is about; computes what that node reads.
static int backward_node(const Row *row, Graph *g, Values *v, const CallParameters *parameters) {
  Node forward = op_node(g, 0);
  int doutput[CASE_OUTPUTS], dinput[CASE_INPUTS];
  for (int k = 0; k < CASE_OUTPUTS; k++) doutput[k] = -1;
  const Tensor y = *graph_tensor(g, forward.output[0]);
  doutput[0] = graph_input(g, "doutput", y.dtype, y.shape);
  if (tensor_is_compact(&y)) graph_compact(g, doutput[0], y.mask, y.choices);
  values_run(v, 0, 1, parameters);
  v->tensor[doutput[0]] = values_create(v, doutput[0]);
  fill(row, 7, &v->tensor[doutput[0]]);
  op_def(row->op)->gradient(g, 0, doutput, dinput);
  return g->node.count - 1;
}

// The input that output k of an update is the memory of; -1: none.
static int updated_input(const Graph *g, const Node *n, int k) {
  if (graph_tensor(g, n->output[k])->dtype == DTYPE_U16) return n->ninput - 1; // of split weights
  switch (n->op) {
  case OP_MATMUL:
  case OP_EMBEDDING_GRAD: return 2;
  case OP_GROUPED_WEIGHT: return 3;
  case OP_MUON_MOMENTUM: return k ? -1 : 0;
  case OP_LINEAR_CROSS_ENTROPY: return k == 2 ? 4 : -1;
  case OP_CROSS_ENTROPY_APPLY: return k == 2 ? 7 : -1;
  default: return k;
  }
}

void op_case_get(int i, Dtype dtype, OpCase *c) {
  const Row *row = row_at(i);
  *c = (OpCase){.name = row->name, .graph = graph_create(), .storage = row->storage};
  c->parameters = (CallParameters){.seed = 5, .step = 3, .microbatch = 1, .sample_base = 8};
  Graph *g = c->graph;
  int input[CASE_INPUTS], n = 0;
  for (; n < 9 && row->input[n]; n++) input[n] = add_input(g, row->input[n], n, dtype);
  for (int k = 0; k < n; k++)
    if (row->input[k][0] == 'c') {
      int mask = (int)strtol(row->input[k] + 1, NULL, 10);
      graph_compact(g, input[k], input[mask], (int)strtol(row->input[mask] + 1, NULL, 10));
    }
  c->node = graph_node(g, row->op, row->name, input, n, row->attr, row->attr_size);
  Values v;
  values_start(&v, g);
  for (int compact = 0; compact < 2; compact++) // their masks first
    for (int k = 0; k < n; k++) {
      if (input[k] < 0 || tensor_is_compact(graph_tensor(g, input[k])) != compact) continue;
      v.tensor[input[k]] = values_create(&v, input[k]);
      fill(row, k, &v.tensor[input[k]]);
    }
  if (row->backward) c->node = backward_node(row, g, &v, &c->parameters);
  const Node *node = &g->node.data[c->node];
  c->op = node->op;
  c->ninput = node->ninput;
  c->noutput = node->noutput;
  for (int k = 0; k < node->ninput; k++)
    if (node->input[k] >= 0) c->input[k] = copy_of(&v.tensor[node->input[k]]);
  for (int k = 0; k < node->noutput; k++) {
    int updated = row->update ? updated_input(g, node, k) : -1;
    if (updated >= 0) {
      c->output[k] = c->input[updated];
      continue;
    }
    const Tensor *t = graph_tensor(g, node->output[k]);
    c->output[k] = values_create(&v, t->id);
    for (int64_t e = operand_elements(&c->output[k]) - 1; e >= 0; e--)
      operand_store(&c->output[k], e, dtype_is_float(t->dtype) ? NAN : 99);
  }
  values_free(&v);
}

void op_case_free(OpCase *c) {
  for (int k = 0; k < c->noutput; k++) {
    int shared = 0;
    for (int i = 0; i < c->ninput; i++) shared |= c->output[k].data == c->input[i].data;
    if (!shared) free(c->output[k].data);
  }
  for (int k = 0; k < c->ninput; k++) free(c->input[k].data);
  graph_destroy(c->graph);
  *c = (OpCase){0};
}

KernelCall op_case_call(const OpCase *c) {
  const Node *node = &c->graph->node.data[c->node];
  return (KernelCall){.ninput = c->ninput,
                      .noutput = c->noutput,
                      .input = c->input,
                      .output = c->output,
                      .attr = node->attr,
                      .name = philox_name(node->name),
                      .parameters = &c->parameters};
}
