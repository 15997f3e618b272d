// The time and memory of a recipe on a cluster: its Programs are compiled as for a run, and simulated.
#pragma once
#include "machine/cluster.h"
#include "machine/simulate.h"
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef struct Prediction {
  Recipe recipe;           // the variant for the cluster (predict_adapt); borrows what was asked
  Job *job;
  Simulation *simulation;
  double tokens_per_s;
  double mfu; // model FLOPs (by active parameters) over the cluster's rate of products, 0 … 1; NAN: no rate
  double run_seconds;      // of all steps of the recipe
  double bytes, room;      // of memory that the rank with the least left takes; that its device has for it
} Prediction;

// The variant of a recipe for a cluster, with other keys `also`: its device, and where the precision is auto, what that
// computes fast.
int predict_adapt(const Recipe *recipe, const Cluster *cluster, const char *also, Recipe *variant, Error *error);
// The cluster by whose seconds a prediction for it cuts layers into stages (RunSetting.cluster): NULL on this machine,
// on which a run does as the recipe says.
const Cluster *predict_cut(const Cluster *cluster);
// The description that Programs for a cluster are compiled for, as predict_adapt says it to recipes.
const Device *predict_device(const Cluster *cluster);

// The cluster to predict for: `name` (of an option --cluster), or run.cluster of the recipe where it is NULL, or
// else this machine, which is measured if it never was (probe_kept). The caller frees it. PLAIT_BAD_INPUT: measured on
// another machine, or as cluster_load.
int predict_cluster(const Recipe *recipe, const char *name, Cluster **out, Error *error);

// The variant of a recipe with the run.cluster of an option --cluster, NULL: as it is. A shipped name stays, a path
// becomes an absolute one. Plans that are written name their cluster, since it is what their layers were cut for.
int predict_name_cluster(const Recipe *recipe, const char *name, Recipe *variant, Error *error);

// The same without a recipe. name NULL: this machine.
int predict_load_cluster(const char *name, Cluster **out, Error *error);

// Compiles and simulates. config: of the recipe's model. PLAIT_BAD_INPUT and PLAIT_INFEASIBLE as setup_job and
// simulate.
int predict(const Recipe *recipe, const ModelConfig *config, const SimulateOptions *options, Prediction *out,
            Error *error);
// The first half: compiles, and fills in job, bytes and room.
int predict_memory(const Recipe *recipe, const ModelConfig *config, const Cluster *cluster, Prediction *out,
                   Error *error);
void prediction_free(Prediction *prediction);
double predict_bytes(const Job *job); // of memory that the rank with the most takes

// One screen: time, tokens/s, MFU, hours; where the busiest pipeline rank's time goes; links; the critical path.
void prediction_print(const Prediction *prediction, const Cluster *cluster, FILE *out);

// The same as one JSON object: step_seconds, tokens_per_s, mfu, run_seconds, memory_bytes, room_bytes, met_seconds,
// busiest, and its parts, links (seconds, bytes) and critical path. The caller releases it.
struct json_t *prediction_json(const Prediction *prediction, const Cluster *cluster);

// "dp", "dp·tp": the axes of a mesh by their bits, in a buffer.
void axes_text(const Mesh *mesh, uint32_t axes, char *text, size_t size);

// The limit of a plan: the resource that would shorten the step the most if it were a tenth better.
typedef struct Limit { char resource[64]; double gain; } Limit; // gain: relative, 0.03: 3% shorter
// Simulates once for each resource of the cluster. limit: room for LIMITS_MOST; sorted, largest first. Returns how
// many.
enum { LIMITS_MOST = 16 };
int predict_limits(const Prediction *prediction, const Cluster *cluster, Limit *limit);
struct json_t *limits_json(const Limit *limit, int count); // a list of resource and gain
