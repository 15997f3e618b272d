// Patterns of cuts for the search of a plan (graph_search.h): a dim for each kind of parameters, -1 for whole.
#pragma once
#include "api/graph_search.h"

typedef struct Simulated { double seconds, bytes; } Simulated; // INFINITY: the plan cannot be

// Compiles and simulates a choice with a pattern (NULL: none).
Simulated graph_try(GraphSearch *search, const GraphChoice *choice, const signed char *pattern);

int graph_may_cut(const GraphSearch *search, int tp); // does this number of ranks divide anything?
// A copy of `from`, NULL: nothing is cut. The search owns it.
signed char *graph_new_pattern(GraphSearch *search, const signed char *from);
// A good pattern for a choice, in `pattern`, from what that has: of few the best, of many the best that changes of
// single kinds lead to.
Simulated graph_find_pattern(GraphSearch *search, const GraphChoice *choice, signed char *pattern);
// The cut for this choice's number of tp ranks, found with the first choice that has it; NULL: nothing can be cut so.
const signed char *graph_pattern_for(GraphSearch *search, const GraphChoice *choice);

double graph_count_patterns(const GraphSearch *search);
int graph_next_pattern(const GraphSearch *search, signed char *pattern); // goes through all; 0 after the last
