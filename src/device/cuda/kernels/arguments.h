// Arguments of kernels: each has one struct by value, which the host fills (launch.h). Pointers are addresses
// in the device's memory. C11 and C++17, and laid out alike by both compilers.
#pragma once
#include "base/dtype.h"

// Without padding, whose bytes are left from what was there before: the emulated driver takes each eight bytes that are
// an address in a device's memory for one.
#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#endif

enum { BLOCK_THREADS = 256, WARP = 32, ATTENTION_THREADS = 128, ATTENTION_WIDTH = 256, MOST_TERMS = 8, SLICE_RANK = 8 };
enum { COLUMNS_OF_A_BLOCK = 8 }; // of columns_total: 32 bytes of sums in fp32
enum { TILE = 64, TILE_DEPTH = 16 }; // of a product: a block makes TILE × TILE elements
// The same by tensor cores: four warps, each of a quarter; operands of MMA_STAGES tiles lie in shared memory.
enum { MMA_TILE = 128, MMA_DEPTH = 32, MMA_THREADS = 128, MMA_STAGES = 3 };

// A tensor whose dtype the kernel learns when it runs; data NULL: absent.
typedef struct Array { void *data; int64_t dtype; } Array;

// As IndexMap (op/op.h) has it, of one dim.
typedef struct RowMap { int64_t valid, runs, local[2], global[2]; } RowMap;

// y, z: outputs; x: inputs; all of n elements of the kernel's dtype. array, added, to: of any. width: of a bias.
typedef struct ElementwiseArguments {
  void *y, *z;
  const void *x[MOST_TERMS];
  Array array, added, to;
  double value;
  int64_t n, width, valid;
  int32_t count, kind;
} ElementwiseArguments;

// y: the sum of `count` tensors of n elements of the kernel's dtype.
enum { MOST_ADDED = 64 };
typedef struct AddArguments { void *y; const void *x[MOST_ADDED]; int64_t n, count; } AddArguments;

// w and its states as they are and as they will be, which may be the same memory; absent ones are NULL.
typedef struct OptimizerArguments {
  const void *w;
  void *new_w;
  Array moment[2], new_moment[2], gradient, copy;
  const uint16_t *low; // of split weights
  uint16_t *new_low;
  Array rate, factor, skip, step;
  double beta1, beta2, epsilon, momentum, decay;
  int64_t n;
} OptimizerArguments;

// x, added, sum, y: (rows, width); gain, bias: (width); mean, rstd: (rows). added: what x is added to first, giving
// sum.
typedef struct NormArguments {
  const void *x, *added;
  void *y, *sum;
  Array gain, bias, mean, rstd;
  double epsilon;
  int64_t rows, width;
} NormArguments;

// dy, x, added, dx: (rows, width); added: what dx is added to, or NULL. Of a block that has `each` rows, partial
// (chunks, sums, width) as in ColumnsArguments.
typedef struct NormGradArguments {
  const void *dy, *x, *added;
  void *dx, *partial;
  Array gain, mean, rstd;
  int64_t rows, width, each, sums;
  int32_t bias, row_sum; // which sums there are beside that for gain, in this order
} NormGradArguments;

// Of rows (rows, width) that are parts of such of `whole` elements. dy, x, y: (rows, width); gain, bias: (width); mean,
// rstd, sum, squares: (rows), but sums of gradients (rows, 1 or 2), as out then.
typedef struct NormPartArguments {
  const void *dy, *x;
  void *y;
  Array gain, bias, mean, rstd, sum, squares, out;
  double epsilon, whole;
  int64_t width;
  int64_t squared;
} NormPartArguments;

// Sums over rows, in two launches: of `each` rows into partial (chunks, sums, width), and of these into out (width).
// Without x of dy itself; else of dy (x - mean) rstd, and with two sums of dy, too.
typedef struct ColumnsArguments {
  const void *dy, *x;
  Array mean, rstd, out[3];
  void *partial; // of the dtype of sums
  int64_t rows, width, each, chunks;
  int64_t sums;
} ColumnsArguments;

// Of n elements of x, `each` a block, into partial (blocks), and of these into out.
typedef struct SumArguments {
  const void *x;
  double *partial;
  Array out;
  int64_t n, each;
} SumArguments;

// table: (rows, width), y: (tokens, width)
typedef struct EmbeddingArguments {
  const void *table;
  void *y;
  Array ids;
  RowMap map;
  int64_t tokens, rows, width;
} EmbeddingArguments;

// dy: (tokens, width); out = added, or 0, + what tokens add: (rows, width). counts: (segments, rows) of segments of
// `each` tokens; rank: (tokens); blocks: of blocks of words; begins: (rows + 1), where a word's tokens begin in
// token: (tokens).
typedef struct EmbeddingGradArguments {
  const void *dy;
  Array ids, out, added;
  int32_t *counts, *rank, *blocks, *begins, *token;
  RowMap map;
  int64_t tokens, rows, width, each, segments;
} EmbeddingGradArguments;

// As RopeAttr (op/attributes.h). x, y: (tokens, heads, width)
typedef struct RopeArguments {
  const void *x;
  void *y;
  Array positions;
  double theta, factor, low, high, original;
  int64_t tokens, heads, width;
  int32_t inverse, scaling;
} RopeArguments;

// Where a mask of dropout is drawn: at (sample, …), with this key (base/philox.h); factor: 1 / (1 - probability).
typedef struct MaskArguments {
  RowMap samples;
  int64_t sample_base;
  double probability, factor;
  uint32_t key[2];
} MaskArguments;

// x, y: (b, s, width), of which the features have global indices from `first` on.
typedef struct DropoutArguments {
  const void *x;
  void *y;
  MaskArguments mask;
  RowMap positions;
  int64_t s, width, first, n;
} DropoutArguments;

// to = alpha x + beta y; y NULL: without it. squares: alpha is 1 / √squares, or 0 where these are 0.
typedef struct BlendArguments {
  Array x, y, to;
  const double *squares;
  double alpha, beta;
  int64_t n;
} BlendArguments;

// y: elements of x with the same global indices, and 0 where x has none, or y is padding. width: elements
// that always go together; size, from: of the dims before these in y and x.
typedef struct SliceArguments {
  const void *x;
  void *y;
  int64_t rows, width, rank;
  int64_t size[SLICE_RANK], from[SLICE_RANK];
  RowMap map[SLICE_RANK], from_map[SLICE_RANK];
} SliceArguments;

// The numbers of a code (StateCode of op/state_code.h).
typedef struct StateNumbers { uint32_t least[5], base[5], positive, unused; } StateNumbers;

// An update whose moments are codes of 8 bits. scales, given, new_scales: of each moment; given NULL: found here. dims:
// the first `leads` of them count the rows of scales, of `blocks` each; the others are cut into blocks by their index
// in the whole matrix, of which a row has `tail` numbers. size, global: of a dim here and in all. key: of rounding.
typedef enum StatesOf { STATES_OF_ADAMW, STATES_OF_SGD, STATES_OF_LION, STATES_OF_MUON_MOMENTUM } StatesOf;
typedef struct StateArguments {
  OptimizerArguments update;
  const void *scales[2], *given[2];
  void *new_scales[2];
  StateNumbers code[2];
  int64_t blocks, tail, leads, dims;
  int64_t size[SLICE_RANK], global[SLICE_RANK];
  RowMap map[SLICE_RANK];
  uint32_t key[2];
  int32_t moments, optimizer;
  int64_t only_scales;
} StateArguments;

// Scalars, all fp64 or absent.
typedef struct ScalarArguments { Array x[3], y[3]; double value; int64_t n; } ScalarArguments;

// A library's product may apply tanh-gelu to its sums, and store these too (KEEPS), or multiply them by the slope at
// sums that were stored.
typedef enum ProductFunction { PRODUCT_ALONE, PRODUCT_GELU, PRODUCT_GELU_KEEPS, PRODUCT_GELU_SLOPE } ProductFunction;
// out[i, j] = Σ a[i, k] b[j, k] (+ added[i, j]) (+ bias[j]). before: as out; read by GELU_SLOPE, written by GELU_KEEPS.
// plait's own kernel knows PRODUCT_ALONE only.
typedef struct ProductArguments {
  Array a, b, added, bias, out, before;
  int64_t rows, columns, depth, a_row, a_depth, b_column, b_depth;
  int64_t function;
} ProductArguments;

// A library's product on trial. fill: x becomes n numbers drawn by the seed, in (-1, 1), or their magnitudes; compare:
// worst (blocks) become the largest |x - expected| / (unit |expected| + bound magnitude), infinite for a NaN.
typedef struct TrialArguments {
  Array x, expected, magnitude;
  double *worst, unit, bound;
  int64_t n;
  uint64_t seed;
  int64_t magnitudes;
} TrialArguments;

// q, out, dout, dq (b, s, g, r, d), k, v, dk, dv (b, t, g, d), logsumexp (b, g, r, s), delta (b, s, g, r): Σ dout out
typedef struct AttentionArguments {
  Array q, k, v, out, logsumexp, dout, dq, dk, dv;
  void *delta;
  const int32_t *documents, *key_documents;
  RowMap queries, keys, groups, heads; // heads: of a group
  MaskArguments mask; // probability 0: none
  double scale;
  int64_t b, s, t, g, r, d, all_heads; // all_heads: of a group, on all ranks
  int64_t causal;
} AttentionArguments;

// documents, starts (samples, t): the first key of the run of equal numbers in which a key lies. A block a sample.
typedef struct StartsArguments { const int32_t *documents; int32_t *starts; int64_t t; } StartsArguments;

// A library's attention on trial. draw: x (rows, heads, width) becomes numbers drawn by the seed, in (-factor, factor),
// of the sign that is not 0; in every fourth head they are `outliers` times as large. compare: of rows of x (rows,
// width) found (blocks, 3) becomes Σ |x - expected|², Σ |expected|², and the largest |x - expected| over `bound` times
// the largest |expected| of its row, or over least where that is larger. Infinite for a NaN.
typedef struct AttentionTrialArguments {
  Array x, expected;
  double *found, factor, outliers, sign, bound, least;
  int64_t rows, heads, width;
  uint64_t seed;
} AttentionTrialArguments;

// x, y, from: rows of (samples, s or t, width); index: (samples, t).
typedef struct RowsArguments {
  const void *x;
  void *y;
  Array index, from;
  RowMap map;
  int64_t s, t, width;
} RowsArguments;

// q, out (b, s, g, r, d), keys, values (b, c, g, d), requests, positions (b, s), pages (b, n, m)
typedef struct CacheArguments {
  Array q, keys, values, requests, positions, out;
  const int32_t *pages;
  double scale;
  int64_t s, c, g, r, d, n, m, page;
} CacheArguments;

// Attention of the same queries to two sets of keys: out (b, s, heads, d), logsumexp (b, heads, s), of both and merged.
typedef struct MergeArguments { Array out[3], logsumexp[3]; int64_t s, heads, d; } MergeArguments;

// mask, index, weights (tokens, experts), begins (experts + 1): of compact rows (rows, width) as op/expert_rows.h has
// them; x, y: these, or (tokens, width). rows_there: of y, which may have more of them than the mask lets through.
typedef struct ExpertArguments {
  const uint8_t *mask;
  int32_t *index;
  int64_t *begins;
  const void *x;
  void *y;
  Array weights, rows;
  int64_t tokens, experts, width, rows_there;
} ExpertArguments;

// As ProductArguments, of each expert: of its rows in a, with its matrix in b (by_rows), or over its rows in both.
// by_rows: out has rows_there rows, of which the last may belong to nobody.
typedef struct ExpertProductArguments {
  Array a, b, added, out;
  const int64_t *begins;
  int64_t experts, rows, columns, depth, a_row, a_depth, b_column, b_depth;
  int64_t by_rows, rows_there;
} ExpertProductArguments;

// Rows of several ranks' tokens, rank after rank and by expert, as op/expert_rows.h defines their parts. there (tokens,
// experts): where a row lies rank after rank; index: where it lies by expert. each: samples of a part; 0: rank_begins
// says where those of each rank begin, of a microbatch whose first sample is `first`. x, y: rows (rows, width).
typedef struct PartArguments {
  const uint8_t *mask;
  int32_t *there;
  const int32_t *index;
  const int64_t *rank_begins;
  const void *x;
  void *y;
  int64_t tokens, positions, experts, width, each, first;
  int32_t batch, zigzag, seq, ranks;
  int64_t home;
} PartArguments;

// part: of the mask of a rank's experts, which has the tokens of all ranks. mask (tokens, experts): of a rank's tokens.
// counts (2, ranks): as COUNT_ROWS.
typedef struct RowCountArguments {
  PartArguments part;
  const uint8_t *mask;
  double *counts;
  int64_t tokens, experts, ranks;
} RowCountArguments;

// mask, kept (b, positions, experts), counts (b, places, experts): choices of each run of positions, at its place. With
// counts, of all ranks, `kept` continues where the runs before have come to; without, from 0 on.
typedef struct CapacityArguments {
  const uint8_t *mask;
  uint8_t *kept;
  Array counts;
  RowMap map;
  int64_t place[2], positions, experts, places, most;
} CapacityArguments;

// logits, weights (or their gradient), dlogits, mask, kept (b, s, experts); tokens: b s, length: s, positions: those of
// a whole sequence; sums (b, experts, 2); partial: losses.
typedef struct RouterArguments {
  Array logits, bias, weights, dlogits, seed, sums, out;
  uint8_t *mask;
  const uint8_t *kept;
  double *partial;
  double positions;
  int64_t tokens, length, experts;
  int32_t choices, normalize;
} RouterArguments;

typedef enum HeadMode { HEAD_LOSS, HEAD_GRADIENT, HEAD_LOGITS } HeadMode;
// A chunk of rows, from `first` on. logits (chunk, columns), of which map.valid are words, of the dtype of sums;
// targets, given: of all rows, the second maximum, sum and target's logit of whole rows; stored: those of these words;
// dlogits (chunk, width): what logits become, which then stays only there, unless `keeps`. dlogits and losses begin at
// the chunk.
typedef struct HeadArguments {
  void *logits;
  double *losses;
  Array targets, seed, given[3], stored[3], dlogits;
  RowMap map;
  int64_t first, columns, width;
  int64_t mode, keeps;
} HeadArguments;

// x, dx, y, dy: (rows, width).
typedef struct SoftmaxArguments {
  const void *x, *dy;
  void *y;
  int64_t width;
} SoftmaxArguments;

// logits, dlogits: (rows, width); target: labels (rows) or probabilities (rows, width); losses: (rows).
typedef struct CrossEntropyArguments {
  const void *logits;
  void *dlogits;
  double *losses;
  Array target, seed;
  int64_t width, labels;
} CrossEntropyArguments;

// y, dy: n elements; `each` a block, whose sum of squares goes into partial (blocks). rank: dims until the last one
// that has padding, of elements of `width` each; size, valid: theirs.
typedef struct SquaredErrorArguments {
  const void *y;
  void *dy;
  double *partial;
  Array target, seed;
  int64_t n, each, width, rank;
  int64_t size[SLICE_RANK], valid[SLICE_RANK];
} SquaredErrorArguments;

// Dims of an einsum that play one part, as loops: elements by which a, b and out move. Each operand may have a full
// rank of dims that are only summed.
enum { EINSUM_LOOPS = 2 * SLICE_RANK };
typedef struct EinsumLoops {
  int64_t count, all;
  int64_t size[EINSUM_LOOPS], step[3][EINSUM_LOOPS];
} EinsumLoops;
// out = Σ a b over `sums`; b NULL: Σ a. Dims of the output: those that both operands have, those of a, and all others.
typedef enum EinsumPart { EINSUM_BOTH, EINSUM_ROWS, EINSUM_COLUMNS, EINSUM_SUMS, EINSUM_PARTS } EinsumPart;
typedef struct EinsumArguments {
  Array a, b, out;
  EinsumLoops part[EINSUM_PARTS];
} EinsumArguments;

// Rows of `bytes` in units of `unit` bytes: row t of the whole is row t / parts of part t mod parts, of which a launch
// copies one.
typedef struct PositionsArguments {
  const void *from;
  void *to;
  int64_t bytes, unit, parts, part, joins;
} PositionsArguments;

// Arguments of up to MANY launches that became one: blocks from first[k] to first[k + 1] do the k-th. 4 KiB at most,
// which is what a launch takes.
enum { MANY = 16 };
#define MANY_OF(Arguments)                                                                                             \
  typedef struct Many##Arguments {                                                                                     \
    int32_t first[MANY + 2];                                                                                           \
    Arguments each[MANY];                                                                                              \
  } Many##Arguments
MANY_OF(ElementwiseArguments);
MANY_OF(OptimizerArguments);
MANY_OF(SumArguments);

#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic pop
#endif
