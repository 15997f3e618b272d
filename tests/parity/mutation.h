// Mutations of Programs between compiling and loading: a collective, or a transfer between stages, that does not take
// place; shards gathered or scattered in the wrong order. Parity must fail under each.
#pragma once
#include "matrix.h"

typedef enum MutationKind {
  MUTATION_DELETE,   // a collective's result is what a rank has without communication: its own part, zero elsewhere
  MUTATION_REVERSE,  // the group's order: shard i comes from, or goes to, rank n - 1 - i; or another rank is the root
  MUTATION_TRANSFER, // what one stage sends to another is neither sent nor received
} MutationKind;

enum { MUTATION_NODES = 16 };

typedef struct Mutation {
  MutationKind kind;
  int evaluation;                  // of the evaluation's Program
  int node[MUTATION_NODES], nodes; // of the graph; several only where mutation_like has taken a bucket apart
  int alone;                       // REVERSE: the first tensor of a bucket alone
  int tensor, stage, peer;         // TRANSFER, as the SEND has them
  char what[200];                  // for messages
  char output[MUTATION_NODES][160]; // names of what the collective gives; none where it gives more than these
  int outputs;
} Mutation;

// All mutations of a case. The caller frees the list.
int mutations_of(const ParityCase *c, Mutation **out);
// The same mutation of another case of this layout, whose graph has other nodes and buckets (another precision): the
// nodes that give the same tensors. That case must have each in a bucket of its own (bucket_bytes 1). 0: it has none.
int mutation_like(const ParityCase *c, const Mutation *m, Mutation *out);
// The case with the mutation, which must outlive it.
ParityCase mutated(const ParityCase *c, Mutation *m);
