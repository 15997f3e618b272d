// Strategies side by side: one recipe under each of foresight/strategies.def, compiled as it would run and simulated on
// a cluster. All numbers are those of the compiled Programs.
#pragma once
#include "machine/cluster.h"
#include "foresight/predict.h"

typedef enum Strategy {
#define STRATEGY_NEED(...)
#define STRATEGY(id, ...) STRATEGY_##id,
#define STRATEGY_NOT_BUILT(...)
#define CHANGE(...)
#include "foresight/strategies.def"
#undef STRATEGY_NEED
#undef STRATEGY
#undef STRATEGY_NOT_BUILT
#undef CHANGE
  STRATEGIES
} Strategy;
extern const char *const strategy_names[STRATEGIES];
// Methods that plait cannot run, with an explanation of each; ended by NULL.
typedef struct NotBuilt { const char *name, *what; } NotBuilt;
extern const NotBuilt strategies_not_built[];

typedef enum MemoryPart { // of the rank that needs the most
  MEMORY_PARAMETERS, MEMORY_GRADIENTS, MEMORY_OPTIMIZER, MEMORY_ACTIVATIONS, MEMORY_REST, MEMORY_PARTS
} MemoryPart;

// How the ranks lie on the cluster, for the settings of strategies.
typedef struct CompareSizes {
  int ranks, node, nodes, layers; // node: ranks in one unit of the innermost level
  int across;                     // ranks in the fewest nodes that are more than one
  int stages;                     // the most pipeline ranks: they divide the ranks and are at most the layers
  int depths, inner_depths;       // how many depths a pipeline may have beside data parallelism, without and with tp
  int inner;                      // tp of three dimensions: a node; with one node the least
  int depth;                      // the one that is tried; of the row before
  int fits;                       // the row that is changed does
} CompareSizes;

typedef struct CompareNumbers {
  double memory[MEMORY_PARTS], bytes, room; // bytes of the rank with the most, and that a device has
  int fits;
  double step, tokens_per_s; // seconds
  double bubble;             // part of the step that pipeline ranks wait for each other, the mean
  double exposed, tp_exposed; // parts of the step that the busiest pipeline rank waits for collectives; those over tp
  double sent[MAX_LEVELS];   // bytes that this rank sends in a step in what each level of the cluster bounds
} CompareNumbers;

typedef struct CompareRow {
  char settings[256]; // keys of the recipe: "mesh.dp=64 parallel.zero=3"
  char why[600];      // it cannot be; "": there are numbers
  int pp, dp, cp, tp, zero;
  CompareNumbers number;
  Limit limit;        // gain 0: not asked for, or none
  char change[64];    // the smallest single change that helps; "": none of those that were tried, or not asked for
  char change_settings[256];
  CompareNumbers changed;
} CompareRow;

typedef struct CompareOptions {
  const char *path;       // of the recipe
  int override_count;     // of the user's
  char **overrides;
  int ranks;              // 0: the recipe's
  const Cluster *cluster;
  bool limits, changes;   // look for CompareRow.limit and .change
  bool search;            // fill in the row of the search's best
} CompareOptions;

typedef struct Comparison {
  const Cluster *cluster; // borrowed
  CompareSizes size;
  CompareRow row[STRATEGIES];
  double parameters;      // of the model
  double layer;           // bytes of the largest layer: its parameters and gradients, as they are computed with; 0: the
                          // row of one device could not be compiled
} Comparison;

// PLAIT_BAD_INPUT: the recipe, its model, or ranks that the cluster lacks. A strategy that is not possible is not an
// error: its row says why.
int compare(const CompareOptions *options, Comparison *out, Error *error);

// The table, as many rows as strategies. At most 120 columns.
void comparison_print(const Comparison *comparison, FILE *out);

// The same as one JSON object, with the advice (foresight/advice.h).
int comparison_json(const Comparison *comparison, FILE *out, Error *error);

int comparison_has(const Comparison *comparison, Strategy strategy); // it was simulated
// The fastest of all ranks that fits; -1: none does.
int comparison_best(const Comparison *comparison);
