// What graphs and their readers know of an encoding: its row of encodings.def, and where its blocks lie.
#pragma once
#include "ir/graph.h"

enum { ENCODING_SEGMENTS = 5 };
typedef struct EncodingDef {
  Dtype storage; // DTYPE_COUNT: any
  int bits;      // of a number in storage; 0: those of the dtype
  int block;     // numbers of one scale; 1: there is none
  KnownOf part;  // the Variable that has the rest; OF_NONE: there is none
  VariableMemory memory; // of that part
  Encoding squares;      // of moments stored so, that of those that are never negative
  const char *meaning;
  uint32_t octaves[ENCODING_SEGMENTS]; // of codes (op/state_code.h)
} EncodingDef;
extern const EncodingDef encodings[ENCODING_COUNT];

// The Variable's storage is encoded so, and of the encoding's dtype.
void variable_encode(Variable *v, Encoding encoding);
// The Variable that has the rest of an encoded one (by its id), or -1.
int variable_part(const Graph *g, int variable);

// Number i of an array of numbers of `bits` bits, 8 or a divisor of 8. Those that share its byte stay as they are: two
// threads must not write into one byte.
static inline uint8_t packed_load(const void *array, int bits, int64_t i) {
  int64_t bit = i * bits;
  return (uint8_t)(((const uint8_t *)array)[bit / 8] >> bit % 8 & ((1 << bits) - 1));
}
static inline void packed_store(void *array, int bits, int64_t i, uint8_t number) {
  int64_t bit = i * bits;
  uint8_t *byte = (uint8_t *)array + bit / 8;
  int others = FAULT(codes_clear_their_neighbours, *byte & ~(((1 << bits) - 1) << bit % 8), 0);
  *byte = (uint8_t)(others | number << bit % 8);
}

// Where the blocks of a shape lie: the dims before `lead` are dims of its scales too; the dims from it on are numbered
// through and cut into `blocks` blocks, the scales' last dim. Of an encoding without blocks each number is one.
typedef struct EncodingBlocks {
  int block, lead;
  int64_t tail, blocks; // tail: elements of the dims from `lead` on
} EncodingBlocks;
EncodingBlocks encoding_blocks(Encoding encoding, int rank, const int64_t *global);
Shape encoding_scales_shape(Encoding encoding, const Shape *shape);

// How the storage of a parameter may be cut, with all that lies as it does, so that a block lies on one rank: rows of
// at most `merged` first dims together. All dims: the last one is cut into parts of `part` elements, of which each is a
// row.
typedef struct EncodingCuts { int merged; int64_t part; } EncodingCuts;
EncodingCuts encoding_cuts(const Graph *g, const Variable *parameter);
