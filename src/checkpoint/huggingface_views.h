// Views: which tensor of a Hugging Face folder is which Variable, as lines of text that a family has in its folder.
//
//   transformer.ln_f.weight = norm.weight                              the tensor is the Variable
//   transformer.h.N.mlp.c_fc.weight^T = layer.N.ffn.up.weight          its last two dims are the other way round
//   attn.c_attn.bias = attention.q.bias | attention.k.bias             the Variables one after the other in its dim 0
//   experts.gate_up = experts.gate |1 experts.up                       … in its dim 1, counted before ^T
//   model.layers.N.mlp.experts.E.w1.weight = layer.N.ffn.experts.up    tensor E is row E of the Variable's first dim
//
// N, a word between dots, stands for each layer, and E for each row of the first dim of the Variables, which the
// tensors lack. Dims: a tensor has those of its Variable, in the same order, except that neighbouring dims of heads
// (kv_heads, group, head_dim) are one dim there: (kv_heads 2, group 3, head_dim 8, embed 32) is [48, 32]. Parts that
// lie one after the other may be of different sizes in that dim and in no other. A line applies to the Variables that
// the graph has: where it has none of them the line says nothing. Every parameter must be in exactly one tensor, or
// row by row in several.
#pragma once
#include "base/box.h"
#include "ir/graph.h"

// A part of a Variable that lies in one tensor: with strides, since it may be turned round, or lie between other parts.
typedef struct HuggingfacePiece {
  int variable;                 // of the graph
  int tensor;
  int next;                     // the next piece of the same Variable, or -1
  Box box;                      // of the Variable
  int64_t first;                // element of the tensor at which the box begins
  int64_t stride[BOX_MAX_RANK]; // in the tensor, of the Variable's dims
} HuggingfacePiece;

typedef struct HuggingfaceTensor {
  const char *name;
  int rank;
  int64_t dims[BOX_MAX_RANK];
  int piece, pieces; // the first of its pieces, which follow each other, and how many
} HuggingfaceTensor;

typedef struct HuggingfaceViews {
  Graph *graph;                  // owned; the Variables
  Vec(HuggingfaceTensor) tensor; // in the order of the lines; neighbours with N layer by layer
  Vec(HuggingfacePiece) piece;
  Vec(int) of_variable;          // its first piece, or -1
  const char *head;              // the tensor of the Variable "head", also where a tied model has none; or NULL
} HuggingfaceViews;

// Reads the lines of a text for the parameters of a graph, which it takes over, also where it fails. PLAIT_FAILED, with
// a sentence, where a line is not of the form above or does not fit the Variables: an error of the family's.
int huggingface_views_create(HuggingfaceViews *views, const char *text, Graph *graph, Error *error);
void huggingface_views_free(HuggingfaceViews *views); // also safe twice
