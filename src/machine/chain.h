// The schedule of a chain of blocks within a memory budget: which blocks keep what backward reads, and which run again,
// alone or as a segment from its first input. The least time, by dynamic programming over heterogeneous chains
// (Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains", 2019).
//
// Pure: times in seconds, memory in bytes, of one microbatch; nothing here knows graphs or ranks.
#pragma once
#include "base/error.h"
#include "base/vec.h"
#include <stdbool.h>
#include <stdint.h>

enum { CHAIN_OPTIONS = 4, CHAIN_BLOCKS = 1024 };

// One way to run a block forward and backward.
typedef struct ChainOption {
  char name[24];
  double forward, backward; // seconds; what backward computes again counts as backward
  int64_t kept; // bytes from its forward to its backward: with its output (the next block's input), without its input
  int64_t forward_peak, backward_peak; // bytes beside the input and what is kept, while it runs
} ChainOption;

typedef struct ChainBlock {
  int64_t input;        // bytes
  double forward;       // seconds, keeping nothing
  int64_t forward_peak; // bytes beside input and output meanwhile
  ChainOption option[CHAIN_OPTIONS];
  int options;          // at least one
  bool begins;          // no segment reaches from before it to it: a pipeline stage begins here
  int slots;            // of Chain.held: microbatches that keep what the block keeps at the same time; at least 1
} ChainBlock;

typedef struct Chain {
  ChainBlock *block; // (blocks)
  int blocks;
  int64_t output;    // bytes of the last block's output
  // false: memory is given back while backward runs, so that what late blocks kept serves early ones. true: what is
  // kept of each of `slots` microbatches has a place that nothing else takes; what runs again is of one of them.
  bool held;
} Chain;

// Blocks first … end − 1 run again from the input of the first. Segments nest: an inner one runs again inside.
typedef struct ChainSegment { int first, end; } ChainSegment;
typedef struct ChainList {
  int *option;            // (blocks) by which option a block runs in its last forward
  Vec(ChainSegment) segment; // outer ones before those inside them, else by their first block
  double seconds;
  int64_t bytes;          // the most at any time, without the first block's input
} ChainList;

// Fastest lists within any budget up to `memory`. Sizes are rounded up to memory / units, so that what is found fits,
// and with memory ≤ units nothing is rounded. chain_solve gives the fastest of at most `memory` bytes, which is at most
// the solver's; false: none fits.
typedef struct ChainSolver ChainSolver;
ChainSolver *chain_solver_create(const Chain *chain, int64_t memory, int units); // chain: borrowed
void chain_solver_free(ChainSolver *solver);
bool chain_solve(const ChainSolver *solver, int64_t memory, ChainList *out); // the caller frees it

// Seconds and bytes of a list, by walking through it; fills in both.
void chain_measure(const Chain *chain, ChainList *list);
void chain_list_free(ChainList *list);
void chain_list_add_segment(ChainList *list, int first, int end); // keeps the order of segments
double chain_least_seconds(const Chain *chain);                   // of any list, whatever the memory
int64_t chain_most_bytes(const Chain *chain);  // no list without a segment needs more
int64_t chain_least_bytes(const ChainSolver *solver); // with which it finds a list; -1: its memory is too small

// "[(keep x 4) x 2, selective, keep x 3]": options of blocks, and segments in parentheses. The caller frees it.
char *chain_list_text(const Chain *chain, const ChainList *list);

// Reads a chain from text, a line a fact, # begins a comment:
//   memory BYTES                                  the budget; may be left out
//   slots N                                       of the blocks below; 0, as when it is left out: not held (see Chain)
//   stage                                         the next block begins one
//   block INPUT FORWARD [PEAK]                    bytes, seconds, bytes beside input and output
//   option NAME FORWARD BACKWARD KEPT [PEAK PEAK] of the block above: seconds, bytes; the peaks of forward and backward
//   output BYTES                                  of the last block
// Sizes may end in kB, MB, GB. PLAIT_BAD_INPUT with the line. The caller frees chain->block.
int chain_read(const char *name, const char *text, Chain *chain, int64_t *memory, Error *error);
