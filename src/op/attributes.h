// Attribute structs of ops (kept in Node.attr, at most NODE_ATTR_BYTES): global facts only, nothing about ranks.
#pragma once
#include <stdint.h>

// y[m, n] = sum_k x[m, k] w[n, k], and its two gradients; dims are grouped: x (m…, k…), w (n…, k…), y (m…, n…).
typedef enum MatmulKind {
  MATMUL_NT, // inputs x (m…, k…), w (n…, k…) → y (m…, n…)
  MATMUL_NN, // inputs dy (m…, n…), w (n…, k…) → dx (m…, k…)
  MATMUL_TN, // inputs dy (m…, n…), x (m…, k…) → dw (n…, k…)
} MatmulKind;
typedef struct MatmulAttr {
  int32_t kind, m, n, k;   // number of dims in each group
  int32_t accumulate;      // TN and NN: a third input c, of the output's shape, is added, in place: dw = c + dyᵀ x,
                           // dx = c + dy w; by fuse
  int32_t bias;            // NT only: a third input (n…) is added to every row; by fuse
} MatmulAttr;
// MATMUL_ACTIVATION, MATMUL_ACTIVATION_GRAD: the product, and the ActivationKind. keeps: a second output, the product
// before its activation
typedef struct MatmulActivationAttr { MatmulAttr product; int32_t kind, keeps; } MatmulActivationAttr;

// Letters 0 … 25 of the dims of the inputs (0 and 1; rank[1] is 0 where there is one) and of the output (2). size, dim:
// of the output's dims that no input has. wide: the gradient of a parameter
enum { EINSUM_RANK = 8 };
typedef struct EinsumAttr {
  int8_t rank[3], wide, letter[3][EINSUM_RANK], dim[EINSUM_RANK];
  int32_t size[EINSUM_RANK];
} EinsumAttr;

// EMBEDDING_GRAD: rows of the table, DimName of rows; accumulate: a third input (v, e…) is added, in place; by fuse
typedef struct EmbeddingAttr { int64_t rows; int32_t dim, accumulate; } EmbeddingAttr;
typedef struct ReduceAttr { int32_t dims; } ReduceAttr;                    // sums over the leading `dims` dims
typedef struct NormAttr {
  double epsilon;
  int32_t bias;       // LAYER_NORM_GRAD also gives dbias
  int32_t sum; // LAYER_NORM, RMS_NORM: a further input is added to x first, and x + that is a further output; by fuse
  int32_t accumulate; // LAYER_NORM_GRAD, RMS_NORM_GRAD: a further input is added to dx, in place; by fuse
  int32_t row_sum;    // LAYER_NORM_GRAD: a further output is the sum over rows of dx, with a bias only; by fuse
} NormAttr;
typedef struct NormSumAttr { int32_t squares; } NormSumAttr; // NORM_SUM: of squares about the mean
typedef struct RopeAttr {
  double theta;
  int32_t inverse;     // rotate back: the gradient
  int32_t scaling;     // 0 none, 1 Llama 3, 2 linear
  double factor, low_frequency_factor, high_frequency_factor, original_positions;
} RopeAttr;
typedef enum AttentionDocuments {
  ATTENTION_DOCUMENTS_ANY,      // of any numbers
  ATTENTION_DOCUMENTS_IN_ORDER, // one after the other: no number comes again after another one
  ATTENTION_DOCUMENTS_ONE,      // all of a sample have one number: kernels need not compare them
} AttentionDocuments;
typedef struct AttentionAttr {
  double scale;       // of q·k, usually 1/sqrt(head_dim)
  double dropout;     // probability, 0 none
  int32_t causal;
  int32_t wide;       // out, or dq, dk and dv, have the dtype of statistics: parts that will be merged or added
  uint64_t stream;    // philox_name of the forward node: its gradient draws the same mask
  int32_t documents;  // AttentionDocuments
  int32_t same_bits;  // of a gradient: in each run, though a faster kernel might not have them
} AttentionAttr;
// CACHE_ATTENTION: rows of a page of the cache
typedef struct CacheAttr {
  double scale; // of q·k
  int64_t page;
} CacheAttr;
typedef enum ActivationKind {
  ACTIVATION_GELU,
  ACTIVATION_GELU_TANH,
  ACTIVATION_SILU,
  ACTIVATION_RELU,
  ACTIVATION_SIGMOID
} ActivationKind;
typedef struct ActivationAttr { int32_t kind; } ActivationAttr; // also of GATED: act(a) * b
typedef struct ScaleAttr { double factor; } ScaleAttr;
// ROUTE: how many experts a token goes to; normalize: the weights of these add up to 1
typedef struct RouteAttr { int32_t k, normalize; } RouteAttr;
// DISPATCH: how many experts a token goes to at most
typedef struct DispatchAttr { int32_t choices; } DispatchAttr;
// GROUPED: MATMUL_NT or MATMUL_NN. GROUPED_WEIGHT: a further input (x, n, k) is added, in place; by fuse
typedef struct GroupedAttr { int32_t kind, accumulate; } GroupedAttr;
typedef struct CastAttr { int32_t dtype; } CastAttr;
typedef struct DropoutAttr {
  double probability;
  uint64_t stream;
} DropoutAttr; // stream: philox_name of the forward node
// The outputs in place of dw, for a node that makes it later. DLOGITS: dlogits (b, s, v), of which a product makes it.
// SUMS: of each row the sum of exponentials and the value that these are relative to, with which CROSS_ENTROPY_WEIGHT
// makes the logits once more.
typedef enum CrossEntropySplit { CROSS_ENTROPY_WHOLE, CROSS_ENTROPY_DLOGITS, CROSS_ENTROPY_SUMS } CrossEntropySplit;
// gradient 0: loss only (evaluation). accumulate: a further input (v, e) is added to dw, in place; by fuse.
typedef struct CrossEntropyAttr { int32_t gradient, accumulate, split; } CrossEntropyAttr; // split: CrossEntropySplit
typedef struct PositionsAttr { int32_t parts; } PositionsAttr; // SPLIT_POSITIONS
typedef struct RouterBiasAttr { double rate; } RouterBiasAttr; // by which a step moves the bias of an expert
// most: choices of an expert that are kept of a sequence. places: of COUNTS and APPLY, runs of positions of all ranks
typedef struct CapacityAttr {
  int64_t most;
  int32_t places;
} CapacityAttr;
typedef struct FillAttr { double value; } FillAttr;
typedef struct ClipAttr { double max_norm; } ClipAttr; // <= 0: no clipping
// interval: good steps before the scale is doubled; 0: it stays
typedef struct LossScaleAttr { int64_t interval; } LossScaleAttr;
#define LOSS_SCALE_LEAST 1.0
#define LOSS_SCALE_MOST 0x1p40
// Of all optimizers, of which each reads some. decay: already 0 for parameters without weight decay
typedef struct OptimizerAttr {
  double beta1, beta2, epsilon, momentum, decay;
  int32_t muon_scale; // MuonScale
  int32_t copy;       // 1 + the Dtype of a last output, w rounded to that (OpDef.writes_copy); 0: there is none
} OptimizerAttr;
typedef enum MuonScale { MUON_SCALE_ADAMW, MUON_SCALE_ORIGINAL } MuonScale;
// MUON_MOMENTUM and MUON. scale: of the orthogonal matrix, by its global sizes; copy: of MUON, as in OptimizerAttr
typedef struct MuonAttr { double momentum, decay, scale; int32_t copy; } MuonAttr;
// STATE_UPDATE and STATE_SCALES: the optimizer's op (an Op), its attribute and how many operands it has; dtype: in
// which it computes moments; encoding: of moments of either sign (an Encoding); stream: philox_name of the parameter,
// for rounding
typedef struct StateAttr {
  int32_t op, dtype, encoding, ninput, noutput;
  uint64_t stream;
  union { OptimizerAttr optimizer; MuonAttr muon; } attr;
} StateAttr;
// The leading `matrices` dims count matrices (0: there is one), the next `rows` dims are their rows, all others
// columns.
typedef struct OrthogonalizeAttr { int32_t matrices, rows; } OrthogonalizeAttr;
enum { ORTHOGONALIZE_STEPS = 5 };
#define ORTHOGONALIZE_A 3.4445
#define ORTHOGONALIZE_B -4.7750
#define ORTHOGONALIZE_C 2.0315

// The action of NEXT_VERSION: leave the version, make it the newer one, or make it the weights.
enum { TURN_STAYS = 0, TURN_NEXT = 1, TURN_STARTS = 2 };

// How the ranks of a group divide tokens: `batch` parts of the samples, each in `zigzag` · `seq` parts of the
// positions, of which those of `zigzag` are pairs of chunks (sharding/placement.h); 1: not cut so. home: rows go back
// to the ranks of their tokens, not to those of their experts. ranks: the number of data ranks (base/shares.h) that
// have the samples of a part; more than one where these were gathered, and 0 is read as 1. Of REORDER_ROWS and
// COUNT_ROWS.
typedef struct RowParts { int32_t batch, zigzag, seq, home, ranks; } RowParts;

// Communication, inserted by partition. `axes`: set of mesh axes (bits) that the group spans; along pp (in BEGIN and
// END) it spans those coordinates only that run the node's stages.
typedef struct CommAttr {
  uint32_t axes;
  int32_t dim;        // gathered, scattered or sliced dim
  int32_t dim2;       // ALL_TO_ALL: the dim that is gathered; `dim` is scattered
  int32_t maximum;    // ALL_REDUCE: 1 max, 0 sum
  int32_t root;       // REDUCE_TO, BROADCAST: the rank of the group that receives or sends
  int32_t distance;   // SHIFT: how many ranks further a rank's part goes, around the group
} CommAttr;
// EXCHANGE_ROWS
typedef struct ExchangeAttr { CommAttr comm; RowParts parts; } ExchangeAttr;
