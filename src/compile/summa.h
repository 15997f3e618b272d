// SUMMA: products of operands that lie over the rows and columns of a square of ranks, block by block (van de Geijn and
// Watts, "SUMMA: Scalable Universal Matrix Multiplication Algorithm", 1997; Xu et al., "Optimus", 2021).
#pragma once
#include "sharding/mesh.h"
#include "sharding/placement.h"

// The nodes that read each tensor of a graph, in their order: node[first[t]] to node[first[t + 1]].
typedef struct Readers { int *first, *node; } Readers;
Readers readers_of(const Graph *g);
void readers_free(Readers *r);

typedef struct SummaProduct {
  int node;           // of the placed graph
  Placement from[2];  // as its inputs are to lie before the first step
  int dim[2]; // of input k, of which the ranks of `axes` broadcast their blocks; -1: it lies as the node wants it
  uint32_t axes[2];
  int result_dim;     // of the output, whose blocks are summed to the ranks of `result_axes`; -1: steps are added up
  uint32_t result_axes;
  Placement result;   // of the output after the last step
  int handed_on;      // its readers want it so; the placement that the graph gives it is a partial sum still
} SummaProduct;

// Products that share blocks, which are broadcast once for all of them.
typedef struct SummaGroup { int steps; Vec(SummaProduct) product; } SummaGroup;

// The group that a node begins. 0: none, since it is not such a product, or one that shares what is gathered for it
// with a node that comes too late or is not a product: blocks would be moved twice.
int summa_find(SummaGroup *group, const Graph *g, const Readers *readers, const Mesh *mesh, int node);
// Appends the steps to the local graph h. input: (products × 2) tensors of h that lie as `from`; output: (products).
void summa_emit(const SummaGroup *group, const Graph *g, Graph *h, const Mesh *mesh, const int (*input)[2],
                int *output);
