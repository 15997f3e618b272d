// Algorithms: several ways to compute one op over several ranks, with costs to choose by. One is another assignment of
// factors (further clauses of the op's rule), an expansion (`lower`), or both.
#pragma once
#include "ir/graph.h"

// The facts by which an algorithm is judged. Extents are those of one rank, before `ranks` cut them.
typedef struct AlgorithmCall {
  int64_t size[26]; // of the factors of the op's rule, by letter: size['s' - 'a']
  int ranks;        // that are to cut the op: of context parallelism mesh.cp
  int inner;        // of these, the neighbours that algorithms of two levels treat differently from the others
                    // (parallel.ulysses); 0: as the algorithm likes
  size_t bytes;     // of an element
} AlgorithmCall;

// On one rank, forward and backward of one call together.
typedef struct AlgorithmCost {
  double forward, backward; // elements that it receives
  double held;              // bytes of operands and results while it computes
} AlgorithmCost;

typedef struct Algorithm {
  AlgorithmName name;
  const char *clauses; // of the factor rule, after those that the op itself states
  // As in OpDef, for the factors that `clauses` lower.
  void (*lower)(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output);
  // 0, and a phrase ("4 ranks do not divide 6 heads"): it cannot. NULL: it always can.
  int (*accepts)(const AlgorithmCall *call, char *why, size_t size);
  AlgorithmCost (*cost)(const AlgorithmCall *call); // NULL of gradients, whose cost is the forward op's
} Algorithm;

// The algorithm that a node is computed by: the one it carries, else the first of its op; NULL: its op has none.
const Algorithm *algorithm_of_node(const Node *node);
// The algorithm of that name, of the op whose costs decide the choice. NULL: it is of another choice, or not built.
const Algorithm *algorithm_listed(AlgorithmChoice choice, AlgorithmName name);
// Whether it can; where it cannot, why.
int algorithm_accepts(const Algorithm *algorithm, const AlgorithmCall *call, char *why, size_t size);
// Of those that can, the one that moves the fewest elements; of several, the one that holds the fewest bytes, and of
// these the first of ir/algorithms.def.
AlgorithmName algorithm_cheapest(AlgorithmChoice choice, const AlgorithmCall *call);
