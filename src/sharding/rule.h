// Factor rules as data: the text that an op states ("b s f, e f -> b s e ; linear 0 1"), parsed.
#pragma once
#include "ir/graph.h"

enum { MAX_FACTORS = 26 };

typedef struct Rule {
  int ninput, noutput;
  int8_t (*input)[MAX_RANK];  // factor of each dim of each input
  int8_t (*output)[MAX_RANK];
  int64_t size[MAX_FACTORS];  // global size, from the shapes, of several the smallest; 0: factor not used
  uint32_t whole, lower;      // sets of factors
  uint32_t *complete;         // (noutput) factors over which the output is complete although it lacks them
  int move, to[2];            // factor whose axes shard others instead, and these; -1: none
  int tied, tied_to;          // factor that is sharded as another is, and that one; -1: none
  uint32_t home;              // set of outputs that go back to where operands had their factors
  uint32_t parts;  // factors of which an operand has a part only, of every shard as much (SPLIT_POSITIONS)
  uint8_t *linear; // (ninput) 0: not linear; else the number of its group: members may be partial only together
} Rule;

// Is the op a sum: linear in all inputs together? Then terms may be missing where they are known to be zero.
int rule_is_sum(const Rule *r);
// Parses the node's rule; arrays are allocated in `arena`. A malformed rule is a bug and dies.
Rule rule_of(Arena *arena, const Graph *g, const Node *node);
// The axes (bits) over which a placed node wants `lower` factors sharded; with any, its op's `lower` expands it.
uint32_t rule_lower_axes(const Graph *g, const Node *n);
