// Half by hand: what is behind a PlaitGraph of plait/graph.h. by_hand.c builds it, by_hand_training.c trains it.
#pragma once
#include "sharding/mesh.h"
#include "ir/graph.h"
#include "plait/graph.h"

// Names of the graph's Variables and tensors cannot be taken for plait's own: users' have no dot.
#define BY_HAND_PARAMETER "parameter."

enum {
  BY_HAND_NAME = 64,
  BY_HAND_INPUTS = 12,
  BY_HAND_ANNOTATIONS = MAX_AXES_PER_DIM - 2
}; // bytes of a name; annotations: of one tensor

typedef struct ByHandAnnotation { int tensor, dim; char axis[BY_HAND_NAME]; } ByHandAnnotation; // dim -1: whole

struct PlaitGraph {
  Graph *g;        // forward; its batch is the whole step's
  int64_t samples;
  Dtype dtype;     // of computing
  int loss;        // tensor, or -1
  double elements; // of the loss: what its sum is divided by
  Vec(char *) name;
  int inputs;      // graph inputs 0, 1, …
  Vec(ByHandAnnotation) annotation;
  Error error;     // the first
};

// The dtype of inputs, parameters and their state as users see them.
static inline Dtype by_hand_storage(Dtype dtype) { return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }
