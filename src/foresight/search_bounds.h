// Lower bounds on the time and the memory of a plan, without compiling it: first by arithmetic alone, then with the
// simulated times of a layer, of which many plans share one. No bound is above what the simulator says.
#pragma once
#include "machine/machine_times.h"
#include "foresight/search_space.h"

// Of a layer and of the rest of the model (embedding, head), on one rank, for one microbatch.
typedef struct LayerCost {
  bool known;
  double forward, backward, rest_forward, rest_backward; // seconds
  double kept;                                           // bytes that a layer keeps for its backward
} LayerCost;

typedef struct LayerMemo { Candidate key; LayerCost cost; int next; } LayerMemo;
typedef struct FlightMemo { int schedule, pp, stages, microbatches; double share; } FlightMemo;
typedef struct GroupMemo { int mesh[SPACE_MESH]; uint32_t axes; GroupOnLinks group; } GroupMemo;
enum { LAYER_BUCKETS = 4096 };

typedef struct Bounds {
  const Space *space;
  const Cluster *cluster;
  MachineTimes times;    // of the cluster
  Cluster unhosted;      // the same, launching kernels for free; borrows
  double flops;          // model FLOPs of a step
  double rate;           // of products
  double parameters, multiplied;
  int bucket[LAYER_BUCKETS]; // index into layers; -1: none
  Vec(LayerMemo) layers;
  Vec(FlightMemo) flights;
  Vec(GroupMemo) groups;
} Bounds;

typedef struct PlanBound { double seconds, bytes; } PlanBound; // of a step; of the rank that needs the most

void bounds_create(const Space *space, const Cluster *cluster, Bounds *bounds);
void bounds_free(Bounds *bounds);

// States by the ZeRO table (Rajbhandari et al., 2020) and the inputs of blocks; FLOPs at the rate of products, and
// what data parallelism must send over its links.
PlanBound bound_by_arithmetic(Bounds *bounds, const Candidate *candidate, const Recipe *recipe);
// With the times of layers, the pipeline's fill and drain, and what layers keep. Compiles two models of two and three
// layers where no plan before shared these.
PlanBound bound_by_layers(Bounds *bounds, const Candidate *candidate, const Recipe *recipe);
