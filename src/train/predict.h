// What a recipe will take on a cluster: its Programs, compiled as for a run, and simulated.
#pragma once
#include "plan/cluster.h"
#include "plan/simulate.h"
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef struct Prediction {
  Recipe recipe;           // with the mesh as it is compiled and the device of the cluster; strings are borrowed
  Job *job;
  Simulation *simulation;
  double tokens_per_s;
  double mfu; // model FLOPs (by active parameters) over the cluster's rate of products, 0 … 1; NAN: no rate
  double run_seconds;      // of all steps of the recipe
  double bytes, room;      // of memory that the rank with the most takes; that a device has for it
} Prediction;

// The recipe as it is for a cluster: its device, and where the precision is auto, what that computes fast.
void predict_adapt(Recipe *recipe, const Cluster *cluster);

// The cluster to predict for: `name` (of an option --cluster), or run.cluster of the recipe where it is NULL. The
// caller frees it. PLAIT_BAD_INPUT: neither is given, or as cluster_load.
int predict_cluster(const Recipe *recipe, const char *name, Cluster **out, Error *error);

// Compiles and simulates. config: of the recipe's model. PLAIT_BAD_INPUT and PLAIT_INFEASIBLE as setup_job and
// simulate.
int predict(const Recipe *recipe, const ModelConfig *config, const SimulateOptions *options, Prediction *out,
            Error *error);
void prediction_free(Prediction *prediction);

// One screen: time, tokens/s, MFU, hours; where the busiest pipeline rank's time goes; links; the critical path.
void prediction_print(const Prediction *prediction, const Cluster *cluster, FILE *out);

// "dp", "dp·tp": the axes of a mesh by their bits, in a buffer.
void axes_text(const Mesh *mesh, uint32_t axes, char *text, size_t size);

// What limits a plan: which resource, if it were a tenth better, would shorten the step the most.
typedef struct Limit { char resource[64]; double gain; } Limit; // gain: relative, 0.03: 3% shorter
// Simulates once for each resource of the cluster. limit: room for LIMITS_MOST; sorted, largest first. Returns how
// many.
enum { LIMITS_MOST = 16 };
int predict_limits(const Prediction *prediction, const Cluster *cluster, Limit *limit);
