// Finds where a step first became infinite or NaN, by running it again once its norm has shown that it
// did.
#pragma once
#include "device/device.h"
#include "sharding/mesh.h"

// The first such value that a rank met. A plain value: ranks exchange it.
typedef struct NonFinite {
  int32_t found;      // 0: none
  int32_t rank;       // that met it
  int32_t node, output; // of the partitioned graph, which is every rank's
  int32_t microbatch; // 0 in BEGIN and END
  int32_t variable;   // that the node read and that held such a value already; -1: none, it was made here
  double value;
} NonFinite;

// The observer: looks at the results of each instruction until something is found.
typedef struct FiniteSearch { const Graph *graph; NonFinite first; } FiniteSearch;
// Index of the first element that is infinite or not a number, padding apart, and its value; -1: none. minus: -∞ is
// none. It reads through the queue that writes there; NULL: x is in the host's memory.
int64_t finite_first_not(DeviceQueue *queue, const Operand *x, int minus, double *value);
// Of two ranks' findings: whether a came before b. A rank meets a value that it sends before those that receive it.
int finite_before(const Graph *g, const NonFinite *a, const NonFinite *b);
// Whether a loss scale could be the cause: the value is a gradient. A loss or a weight is not.
int finite_is_gradient(const Graph *g, const NonFinite *first);
// One phrase: "layer 3, matmul layers.3.ffn.up, microbatch 1, rank 5 (pp 0, dp 1, cp 0, tp 1): infinite".
void finite_describe(const Graph *g, const Mesh *mesh, const NonFinite *first, char *text, size_t size);
