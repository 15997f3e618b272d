// The search for the fastest plan of a user's graph on a cluster: see plait_graph_plan, and foresight/search.h for that
// of recipes, with which it shares the queue, the meshes, and the sentence where nothing fits.
//
// Each choice of mesh, ZeRO stage, microbatches and schedule waits in the queue with a lower bound of its time. The
// first one is compiled whole and simulated, until no bound is below the best. Over tp a choice needs cuts of
// parameters: the first choice with a number of tp ranks finds them, kind by kind (graph_cuts.h), and others begin with
// these; where they are fast but do not fit, a choice looks for its own, and the best choice looks for better ones once
// more.
#pragma once
#include "api/graph_cuts.h"
#include "api/graph_predict.h"
#include "foresight/search_nearest.h"
#include "foresight/search_queue.h"

typedef struct GraphChoice { int pp, dp, tp, zero, microbatches, schedule; } GraphChoice; // schedule: ScheduleId

typedef struct GraphSearch {
  const PlaitGraph *graph;
  PlaitTrainingOptions asked;
  const Cluster *cluster;
  ApiGraphMesh given;      // asked.mesh; not read where that is NULL
  int ranks, exhaustive;
  int any_will_do;       // the search ends with the first plan that fits
  double room;           // bytes

  Cuts cuts;
  double flops, rate, states; // of a step; FLOP/s of a device; bytes of parameters and optimizer on one rank
  Vec(GraphChoice) choice;
  PlanQueue queue;
  Vec(signed char *) pattern; // a dim for each kind of parameters; -1: whole
  int *pattern_of;            // (ranks + 1) by ranks of tp: 1 + its pattern; 0: not looked for, -1: there is none
  PlaitPlacement *placement;  // room for those of a plan

  GraphChoice best;
  const signed char *best_pattern; // NULL: none
  double best_seconds;        // INFINITY: nothing fits so far
  GraphChoice smallest;       // of those that are too large; of `smallest_bytes`, INFINITY: none
  const signed char *smallest_pattern;
  double smallest_bytes;
  int64_t too_large, simulated, left; // left: not looked at, though their bounds are below the best
  Error refused;              // the first error of a compile that another cut would not avoid
} GraphSearch;

// Reads a given mesh, and counts ranks. PLAIT_BAD_INPUT: of the graph, the options, the cluster. graph_search_free in
// any case.
int graph_search_create(const PlaitGraph *graph, const PlaitTrainingOptions *options, const PlaitPlanOptions *where,
                        const Cluster *cluster, GraphSearch *search, Error *error);
void graph_search_free(GraphSearch *search);

// Finds the best. PLAIT_INFEASIBLE: nothing cuts the graph, or nothing fits, with its sentence.
int graph_search_run(GraphSearch *search, Error *error);

// The options with a choice and a pattern (NULL: none), for graph_predict. They borrow `plan`, which must not be moved,
// and the search.
typedef struct GraphChoicePlan { PlaitGraphPlan plan; char mesh[96]; } GraphChoicePlan;
PlaitTrainingOptions graph_search_options(const GraphSearch *search, const GraphChoice *choice,
                                          const signed char *pattern, GraphChoicePlan *plan);
