// The answer to a recipe: what it means on this machine, decided once. A recipe may leave `parallel.overlap` and
// `parallel.recompute` to plait; a RunPlan has them, and code that compiles, predicts, prints or runs reads the
// RunPlan. (mesh.dp: auto is settled by recipe_with_ranks, plan: auto by auto_plan, and precision: auto when a recipe
// is loaded, or by train/precision.h for a run that continues.)
#pragma once
#include "machine/cluster.h"
#include "machine/machine_times.h"
#include "recipe/recipe.h"
#include "runtime/job.h"
#include "setup/recompute_auto.h"

// What is asked besides the recipe. All zero: training by ranks that are threads of this process.
typedef struct RunSetting {
  ModelMode mode;
  // Of MODEL_GENERATE: positions of a request, and of a page of the cache; requests of a sequence at a time; its pages;
  // positions of a tick whose logits are wanted. 0: data.seq_len, one page, one request, all that these requests can
  // need, one
  int64_t context, page, requests, pages, logits;
  int threads, helpers; // of each rank; helpers: threads of other ranks that may help it. threads 0: both follow
                        // run.threads and run.work_stealing
  bool apart;                    // plan for a system that has none of plait's fusions: for predictions of others
  const Cluster *cluster;        // by whose seconds layers are cut into stages, and auto is decided; NULL: that of
                                 // run.cluster, where it is given
  bool bf16_weights; // the weights that will be loaded are bf16: fp32 matrices are stored so, where the device widens
                     // them
  bool sketch; // Programs without offsets, for estimates and bounds: memory is as large as a good packing
               // makes it (1 % above what is needed at one time), which takes a large part of the
               // time of compiling to find
  bool shows_recompute;          // RunPlan.recompute is wanted
} RunSetting;

typedef struct RunPlan {
  const Recipe *recipe;          // the question; borrowed, as is its config
  const ModelConfig *config;
  CompileOptions options;        // Step, mesh and Layout, stages, precision, sizes of batches, device
  JobOptions run;                // threads, seed, what is evaluated
  const Cluster *cluster;        // NULL: nothing had to be asked of one, or none is named
  MachineTimes times;            // of the cluster, if it has a rate for the precision; options.times is this one
  bool apart;                    // as asked for
  Cluster *loaded;               // the cluster, where run_plan_free frees it
  RecomputeChoice *recompute;    // what parallel.recompute: auto chose and why; NULL: not auto, or not wanted
} RunPlan;

// Decides. Layers are cut by a cluster's seconds if one is named, alike for everybody who compiles this run.
// PLAIT_BAD_INPUT: the recipe contradicts itself, the model's config or the cluster. PLAIT_INFEASIBLE: parallel.memory
// is too small. Call run_plan_free in any case; recipe and config must live until then.
int resolve(const Recipe *recipe, const ModelConfig *config, const RunSetting *setting, RunPlan *plan, Error *error);
void run_plan_free(RunPlan *plan);

// Compiles everything of the run, with an evaluation of batch.global samples where the recipe has something to evaluate
// on. Touches no data and allocates no memory of ranks. The caller frees *job (job_destroy); it needs no more of the
// plan.
int run_plan_job(const RunPlan *plan, Job **job, Error *error);
// The graph of the run after a pass (compile/passes.def). The caller frees *graph.
int run_plan_graph(const RunPlan *plan, const char *after, Graph **graph, Error *error);

// resolve and run_plan_job in one, for whoever needs no more than the job. setting NULL: all zero.
int setup_job(const Recipe *recipe, const ModelConfig *config, const RunSetting *setting, Job **job, Error *error);
