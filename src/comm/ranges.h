// How ranks that are processes divide a collective: which pattern it takes, and which elements each rank reduces,
// receives or passes on. The algorithms (process_*.c) follow this, and so does what is said of their volume (volume.c).
// Nothing here sends anything.
#pragma once
#include "comm/kind.h"

// The ranks of a communicator, as patterns see them. machine: ranks of each machine, where there are several whose
// ranks follow on each other, else 0. chain: as process_set_chain.
typedef struct Patterned { int n, machine, chain; } Patterned;
// The groups of the chain by which a reduction goes, of so many bytes that a rank gives; 0: directly.
int chain_group(Patterned ranks, CommKind kind, PlaitDtype dtype, size_t bytes);
int gather_group(Patterned ranks, size_t bytes); // likewise for an all_gather of so many bytes in all

// A reduction by direct exchange. Chunks follow each other; of chunk k each rank reduces a range, which all others send
// it: the elements [from, to) of the row, or of its part of a reduce_scatter.
typedef struct ReduceRanges {
  CommKind kind;
  int n, root;
  int one_hop;         // whoever wants the result reduces all elements: results are not sent
  size_t size, total;  // bytes of an element; elements of the row, or of a part of a reduce_scatter
  size_t chunk, share; // elements of a chunk, and of a rank's range of it
  size_t chunks;
} ReduceRanges;
ReduceRanges reduce_ranges(CommKind kind, int n, int root, size_t size, size_t total);
void reduce_range(const ReduceRanges *r, size_t k, int rank, size_t *from, size_t *to);
size_t reduce_range_all(const ReduceRanges *r, int rank); // elements of its ranges of all chunks
// The most staging memory, share · n elements, that reductions need in which a rank gives at most so many bytes.
size_t reduce_most_staging(size_t n, size_t bytes);

// A reduction by a chain of groups (process_chain.c). Of reduce_scatter chunks are of the parts of group 0, then of
// group 1 …, and a rank reduces the parts of the ranks with its place in each group.
typedef struct ChainRanges {
  int group, groups, scatters; // group: ranks of one
  size_t size, wide;           // bytes of an element, and of one that is not rounded
  size_t total, share, chunks; // elements of the row, or of a part of reduce_scatter; of a rank's range of a chunk
  size_t per_part;             // chunks of a part
} ChainRanges;
ChainRanges chain_ranges(CommKind kind, int n, int group, size_t size, size_t wide, size_t total);
// lane: a rank's place in its group.
void chain_range(const ChainRanges *r, size_t k, int lane, size_t *from, size_t *to);
size_t chain_range_all(const ChainRanges *r, int lane);

// A broadcast goes down a binomial tree, or the root sends each rank its share, which the ranks then exchange.
int broadcast_is_tree(int n, size_t bytes);
int broadcast_parent(int n, int root, int rank); // -1: of the root
// Bytes [from, to), in whole pages.
void broadcast_share(int n, size_t bytes, int rank, size_t *from, size_t *to);
