// Encodings of stored numbers: the table, sizes in storage, and where blocks lie.
#include "base/divisor.h"
#include "ir/encoding.h"

const EncodingDef encodings[ENCODING_COUNT] = {
#define ENCODING(id, file, storage, bits, block, part, memory, squares, meaning, ...)                                  \
  {DTYPE_##storage, bits, block, OF_##part, MEMORY_OF_##memory, ENCODING_##squares, meaning, {__VA_ARGS__}},
#include "ir/encodings.def"
#undef ENCODING
};

void variable_encode(Variable *v, Encoding encoding) {
  v->encoding = encoding;
  if (encodings[encoding].storage != DTYPE_COUNT) v->dtype = encodings[encoding].storage;
}

int variable_part(const Graph *g, int variable) {
  KnownOf part = encodings[g->variable.data[variable].encoding].part;
  return part ? graph_find_of(g, part, variable) : -1;
}

// Of a Variable that is the part of others: their encoding; else NULL.
static const EncodingDef *encoding_of_part(const Variable *v) {
  for (int e = 0; v->of && e < ENCODING_COUNT; e++)
    if (encodings[e].part == v->of) return &encodings[e];
  return NULL;
}

int variable_is_of_blocks(const Variable *v) {
  const EncodingDef *e = encoding_of_part(v);
  return e && e->block > 1;
}

VariableMemory variable_memory(const Variable *v) {
  const EncodingDef *e = encoding_of_part(v);
  if (v->version) return MEMORY_OF_VERSIONS;
  if (e) return e->memory;
  switch (v->kind) {
  case VARIABLE_PARAMETER: return MEMORY_OF_PARAMETERS;
  case VARIABLE_GRADIENT: return MEMORY_OF_GRADIENTS;
  case VARIABLE_OPTIMIZER: return MEMORY_OF_OPTIMIZER;
  default: return MEMORY_OF_OTHERS;
  }
}

int variable_bits(const Variable *v, int copy) {
  int bits = copy < 0 ? encodings[v->encoding].bits : 0;
  return bits ? bits : 8 * (int)dtype_size(copy < 0 ? v->dtype : v->copy[copy].dtype);
}

static int64_t whole_bytes(int64_t bits) { return (bits + 7) / 8; }

int64_t variable_bytes(const Variable *v, int copy, int64_t elements) {
  return whole_bytes(elements * variable_bits(v, copy));
}

int64_t tensor_bytes(const Graph *g, const Tensor *t, int64_t elements) {
  int encoded = t->variable >= 0 && t->copy < 0 && g->variable.data[t->variable].encoding;
  return encoded ? variable_bytes(&g->variable.data[t->variable], -1, elements)
                 : elements * (int64_t)dtype_size(t->dtype);
}

EncodingBlocks encoding_blocks(Encoding encoding, int rank, const int64_t *global) {
  EncodingBlocks b = {.block = encodings[encoding].block, .lead = rank, .tail = 1};
  int64_t elements = 1;
  for (int d = rank - 1; d >= 0; d--) {
    elements *= global[d];
    if (elements % b.block && d > 0) continue;
    b.lead = d;
    b.tail = elements;
    break;
  }
  b.blocks = (b.tail + b.block - 1) / b.block;
  return b;
}

Shape encoding_scales_shape(Encoding encoding, const Shape *shape) {
  EncodingBlocks b = encoding_blocks(encoding, shape->rank, shape->size);
  Shape s = shape_of(b.lead, shape->size, shape->dim);
  s.size[s.rank] = b.blocks;
  s.dim[s.rank++] = DIM_NONE;
  return s;
}

// The last dim is whole blocks of all that lies so, or rows are what is outside the dims that have blocks in common.
EncodingCuts encoding_cuts(const Graph *g, const Variable *parameter) {
  enum { LEAST_PART = 256 }; // elements: shorter parts would be copied one by one
  const Shape *shape = &parameter->shape;
  EncodingCuts cuts = {.merged = shape->rank - 1, .part = LEAST_PART};
  if (shape->rank < 2) return (EncodingCuts){0, LEAST_PART};
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v != parameter && v->parameter != parameter->id) continue;
    EncodingBlocks b = encoding_blocks(v->encoding, shape->rank, shape->size);
    if (FAULT(cuts_ignore_blocks, b.lead, cuts.merged) < cuts.merged) cuts.merged = b.lead;
    cuts.part = cuts.part / greatest_common_divisor(cuts.part, b.block) * b.block;
  }
  if (shape->size[shape->rank - 1] % cuts.part == 0) cuts.merged = shape->rank;
  return cuts;
}
