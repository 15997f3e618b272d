// Recipes: what a user writes in YAML, typed, with defaults filled in and checked. One key table (recipe_keys.c) gives
// parsing, types, ranges, messages, overrides, the effective recipe and docs/recipes.md.
#pragma once
#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"
#include "model/config.h"
#include "base/shares.h"
#include "parallel/parallel.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum RecipeRecompute {
  RECIPE_RECOMPUTE_NONE,
  RECIPE_RECOMPUTE_SELECTIVE,
  RECIPE_RECOMPUTE_FULL,
  RECIPE_RECOMPUTE_AUTO, // a list that fits parallel.memory
  RECIPE_RECOMPUTE_LIST
} RecipeRecompute;
typedef enum RecipeAccumulate { RECIPE_ACCUMULATE_REDUCED, RECIPE_ACCUMULATE_LOCAL } RecipeAccumulate;
typedef enum RecipeUpdate { RECIPE_UPDATE_END, RECIPE_UPDATE_IN_BACKWARD } RecipeUpdate;
typedef enum RecipeSchedule { RECIPE_COSINE, RECIPE_LINEAR, RECIPE_WSD, RECIPE_CONSTANT } RecipeSchedule;
typedef enum RecipeComm {
  RECIPE_COMM_AUTO,
  RECIPE_COMM_LOCAL,
  RECIPE_COMM_MPI,
  RECIPE_COMM_NET,
  RECIPE_COMM_NCCL
} RecipeComm;
typedef enum RecipeWire { RECIPE_WIRE_AUTO, RECIPE_WIRE_SOCKETS, RECIPE_WIRE_UCX } RecipeWire;

typedef enum RecipePlan { RECIPE_PLAN_FIXED, RECIPE_PLAN_AUTO } RecipePlan;

enum { RECIPE_PRECISION_AUTO = -1 }; // in a recipe that is not checked yet
enum { RECIPE_KV_AUTO = -1 };        // as the precision

typedef enum RecipeOverlap { RECIPE_OVERLAP_OFF, RECIPE_OVERLAP_ON, RECIPE_OVERLAP_AUTO } RecipeOverlap;
typedef enum RecipeAsync { RECIPE_ASYNC_AUTO, RECIPE_ASYNC_ON, RECIPE_ASYNC_OFF } RecipeAsync;
typedef enum RecipeDeterministic {
  RECIPE_DETERMINISTIC_AUTO,
  RECIPE_DETERMINISTIC_ON,
  RECIPE_DETERMINISTIC_OFF
} RecipeDeterministic;
typedef enum RecipeVerify { RECIPE_VERIFY_BIND, RECIPE_VERIFY_STEP, RECIPE_VERIFY_OFF } RecipeVerify;
typedef enum RecipeNonFinite { RECIPE_SKIP, RECIPE_STOP, RECIPE_ROLLBACK } RecipeNonFinite;

typedef struct RecipeCorpus { char *prefix; double weight; } RecipeCorpus; // PREFIX.bin and PREFIX.idx; weight > 0
typedef struct RecipeCorpora { RecipeCorpus *items; int count; } RecipeCorpora;

typedef enum RecipeLayout { // shipped Layouts; the same order as LayoutShipped, after auto
  RECIPE_LAYOUT_AUTO,
#define LAYOUT_SHIPPED(id, ...) RECIPE_LAYOUT_##id,
#include "sharding/layout_rows.def"
} RecipeLayout;

// word: the value of one of the key's words; or, with a list (parallel/recompute_list.h) as text, that of "list".
typedef struct RecipeWordOrList { int word; char *list; } RecipeWordOrList; // list: NULL with any other word

enum { RECIPE_MAX_INTS = 1024, RECIPE_BALANCE_MEASURED = -1 };
typedef struct RecipeInts { int count, items[RECIPE_MAX_INTS]; } RecipeInts; // count 0: not given

// Strings and lists belong to the arena. All paths are absolute. A path that was not given is NULL.
typedef struct Recipe {
  struct {
    char *config; // config.json; INIT/config.json where only a folder init was given
    char *init;   // "random", or an absolute folder (starts with '/')
  } model;
  struct {
    RecipeCorpora train, valid; // valid.count may be 0
    double split;               // of train's documents, held out for evaluation; 0: none
    char *tokenizer;            // may be NULL
    int seq_len;                // tokens of a sample that are predicted
    bool document_mask;
    int prefetch;               // batches that the loader reads ahead
  } data;
  struct { int pp, dp, cp, tp; } mesh;
  bool dp_is_auto; // mesh.dp follows from the ranks (recipe_with_ranks); 1 until these are known
  int ranks;       // that it follows from; 0: not known yet
  struct {
    int zero;      // 0 … 3
    bool reshard;  // zero 3: free gathered parameters after each use
    int ep; // ranks that have different experts; 1: as layout.expert says
    int shard_group; // data ranks over which zero shards; 0: all
    bool unsplit_tensors; // zero stores whole tensors on single ranks
    bool sequence;
    int tensor;      // LayoutTensorKind
    int rows, depth; // of tp's ranks; 0: auto, see parallel_grid
    bool summa;
    RecipeWordOrList recompute; // RecipeRecompute
    int64_t memory; // bytes that a rank may use in all, for recompute auto; 0: not given
    int recompute_layers; // blocks of a stage; 0: all
    int pipeline;  // ScheduleId (schedule/schedules.def)
    int stages_per_rank; // of the pipeline; 0: auto, see recipe_virtual_stages
    RecipeInts layers;  // of each virtual stage; not given: cut by cost
    int overlap;   // RecipeOverlap: communication while the rank computes
    int bucket_mb; // MB (10^6 bytes) of gradients in a bucket
    int grad_dtype; // Dtype of accumulators and of what is reduced: fp32 (that of the parameters) or bf16
    int gather;     // under zero 3: GATHER_BLOCK, GATHER_LAYER or MB (parallel/parallel.h)
    int accumulate; // RecipeAccumulate
    int update;     // RecipeUpdate
    int context;    // AlgorithmName, by which attention crosses mesh.cp; 0: auto
    int ulysses;    // ranks of mesh.cp that exchange positions for heads inside rings; 0: auto
  } parallel;
  struct {
    int name; // RecipeLayout
    LayoutTable rows; // count -1: auto
  } layout;
  int plan;      // RecipePlan
  Transforms transform; // values of the keys of parallel/transforms.def
  int precision; // Dtype; auto is resolved by recipe_check, for this machine
  bool precision_is_auto; // it was asked for: a run that has begun keeps its own (train/precision.h)
  struct {
    double initial;           // fp16; 0 with other precisions
    int64_t growth_interval;  // good steps before it doubles; 0: it stays
  } loss_scale;
  struct {
    double balance_loss; // coefficient; -1: auto, that of the model's config
    double z_loss, bias_rate;
  } moe;
  struct {
    int global; // sequences of a step
    int micro;  // the most sequences of a microbatch on one data rank
    RecipeInts balance; // the weight of each data rank; count 0: even, RECIPE_BALANCE_MEASURED: as measured
    double most;        // the largest share that `measured` gives, as a multiple of the even one
    char *replay;       // metrics.jsonl whose shares `measured` repeats; NULL: it measures
  } batch;
  struct {
    int name; // Op, one of ir/optimizers.def
    double lr, betas[2], weight_decay, epsilon, momentum;
    int muon_scale; // MuonScale
    double clip; // largest global gradient norm; 0: no clipping
    RecipeInts delay; // steps that the weights of gradients are old: one number for all layers, or one for each
  } optimizer;
  struct {
    int name; // RecipeSchedule
    int64_t warmup, steps;
    double min_lr;       // as recipe_min_lr reads it
    int64_t decay_steps; // of wsd; -1: auto, see recipe_decay_steps
  } schedule;
  struct {
    int64_t every; // steps; 0: only at the end
    int keep;      // 0: all
    bool best;     // keeps the one of the lowest held-out loss as well
    int async;     // RecipeAsync
    int64_t memory_every; // steps between copies in memory that plait launch holds; 0: none
    int copies;    // of that memory on other machines: 0 or 1
    char *resume;  // "auto", "never", or an absolute path of a checkpoint folder
  } checkpoint;
  struct {
    int64_t every; // steps; 0: never
    int batches;   // global batches of an evaluation
    int64_t patience; // evaluations without improvement after which the run ends; 0: it does not
  } eval;
  struct {
    char *dir; // absolute
    int64_t seed;
    int comm;     // RecipeComm
    int wire;     // RecipeWire
    double silence; // seconds after which a rank of net that says nothing counts as dead
    int backend;  // DeviceKind
    RecipeInts devices; // numbers of those that ranks take in turn; count 0: all
    char *cluster; // the name of a shipped cluster, or the absolute path of a file, or NULL
    int threads;  // of all ranks on this machine together; 0: auto
    bool work_stealing; // local ranks that wait help others
    int64_t log_every;
    int64_t noise_scale;  // steps between measurements; 0: none
    char *dump_gradients; // folder or NULL
    int64_t dump_steps;   // how many first steps are dumped
    int non_finite;       // RecipeNonFinite
    int deterministic;    // RecipeDeterministic
    int verify;           // RecipeVerify
    bool desync_check;    // ranks compare what they issued and hold
    bool tensorboard;     // event files in dir
    char *trace;          // file or NULL
    int64_t trace_first, trace_steps; // the first step in it, and how many
  } run;
  struct { double start, data, step, checkpoint; } watchdog; // seconds; 0: no limit
  struct { // of generation; recipes of training do not have it
    int context, requests, tokens; // 0: auto
    int page;
    int64_t kv_memory; // bytes; 0: enough for all requests
    int kv_dtype;      // Dtype, or RECIPE_KV_AUTO; recipe_cache_dtype
    bool prefix;
    int speculate;
    int in_flight; // 0: auto
  } infer;
  char *name;         // the file, for messages; NULL in a recipe that was not loaded
  const char **where; // by key: the place of its value as recipe_where gives it; NULL where it is the default
  bool *overridden;   // by key: its value, or that it has its default, is of the command line and not of the file
  const char *place;  // of a key that is not given: "recipe.yaml: "
  char *notes;        // a line for each value that does nothing, or NULL; for whoever runs or plans to read
  Arena arena;
} Recipe;

// Reads the YAML file, applies overrides ("batch.micro=4", value in YAML) in order, fills defaults and checks
// everything that can be known without opening other files. On an error (PLAIT_BAD_INPUT, one sentence with file, line
// and column or the override) *recipe is empty. recipe_free works on an empty one too.
int recipe_load(const char *path, int override_count, char **overrides, Recipe *recipe, Error *error);
// The same from text in memory; `name` is used in messages, relative paths are relative to `folder`.
int recipe_parse(const char *name, const char *text, size_t size, const char *folder, int override_count,
                 char **overrides, Recipe *recipe, Error *error);
// The parallel configuration alone, for evaluation and generation: one rank and fp32, but for the keys that are given
// ("mesh.tp=2"). Others than those with `inference` in the key table are PLAIT_BAD_INPUT.
typedef struct RecipeInstead {
  const char *key, *option;
} RecipeInstead; // "data.seq_len", "--seq-len N": what to give instead
typedef struct RecipeForInference {
  const char *command; // for messages
  const RecipeInstead *instead; // for messages: up to one without a key, or NULL
  int key_count;
  char **keys;
  bool generates; // keys of infer. are allowed
  int seq_len;
  int rows;       // a microbatch is this number of sequences over all data ranks, or a few more where they do not
                  // divide, unless batch.micro is given; there are as many microbatches as pipeline ranks
} RecipeForInference;
int recipe_for_inference(const RecipeForInference *asked, Recipe *recipe, Error *error);
// A recipe with other values, and the only way to ask for one. `keys` is "parallel.zero=1 mesh.dp=2": values in YAML,
// in quotes or brackets if they have blanks; null is the default. They are set as from the command line, and the result
// is checked as a loaded recipe is. They do not count as given (recipe_is_given), and notes stay those of `of`. The
// variant borrows from `of`, which must outlive it; recipe_free ends it. PLAIT_BAD_INPUT: *variant is empty.
int recipe_variant(const Recipe *of, const char *keys, Recipe *variant, Error *error);
// Whether parallel_check refuses `of` with these keys for a model (NULL: for any); *problem says why. recipe_variant
// would refuse them too. The keys must be well-formed (asserted).
bool recipe_refuses(const Recipe *of, const char *keys, const ModelConfig *config, ParallelProblem *problem);
// "run.dir=\"/a b\"": a key with any text as its value, as recipe_variant takes it; the caller frees it.
char *recipe_key_text(const char *path, const char *value);
// The variant for `ranks` ranks: if mesh.dp is auto, it becomes `ranks` ÷ (pp · cp · tp), rounded down, and what
// depends on the mesh, which was left open until now, is checked and noted. ranks 0: no launcher, dp 1. If mesh.dp is
// not auto, the variant equals the recipe. PLAIT_BAD_INPUT: too few ranks, or an invalid mesh.
int recipe_with_ranks(const Recipe *of, int ranks, Recipe *variant, Error *error);
void recipe_free(Recipe *recipe);

// The effective recipe: every key, absolute paths. Loading it gives an equal recipe, to the bit. recipe_write is
// atomic.
void recipe_print(const Recipe *recipe, FILE *out);
int recipe_write(const Recipe *recipe, const char *path, Error *error);
bool recipe_equal(const Recipe *a, const Recipe *b);
// "mesh.dp=8 mesh.tp=1 parallel.zero=2": keys of the other recipe whose values differ, as recipe_variant takes them.
// The caller frees it.
char *recipe_differences(const Recipe *recipe, const Recipe *other);

// The beginning of a message about the value of a key, its place: "recipe.yaml:5:12: ", "batch={micro: 4}: ", the file
// where it was not given; "" where it was given as batch.micro=4, which the message says itself.
const char *recipe_where(const Recipe *recipe, const char *path);

// The corpora for training or for evaluation: data.valid, or data.train where data.split holds a part of it out. May be
// empty.
const RecipeCorpora *recipe_corpora(const Recipe *recipe, bool evaluation);

bool recipe_is_given(const Recipe *recipe, const char *path); // by the file or an override

// schedule.decay_steps, or what auto means: a tenth of the steps, at most those after the warm-up.
static inline int64_t recipe_decay_steps(const Recipe *r) {
  int64_t rest = r->schedule.steps - r->schedule.warmup, tenth = r->schedule.steps / 10;
  return r->schedule.decay_steps >= 0 ? r->schedule.decay_steps : tenth < rest ? tenth : rest;
}
double recipe_min_lr(const Recipe *recipe); // schedule.min_lr, of which `10 %` is a tenth of optimizer.lr
// parallel.stages_per_rank, or what auto means: the fewest that the schedule runs, without a pipeline 1.
int recipe_virtual_stages(const Recipe *recipe);
// Whether blocks differ in what they recompute, so that nothing can be said of all by one.
static inline bool recipe_recompute_differs(const Recipe *r) {
  return r->parallel.recompute_layers || r->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO ||
         r->parallel.recompute.word == RECIPE_RECOMPUTE_LIST;
}
enum { RECIPE_LOCAL_RANKS = 1024 }; // that one process carries as threads
// Are ranks processes for sure?
static inline bool recipe_has_processes(const Recipe *r) {
  return r->run.comm == RECIPE_COMM_MPI || r->run.comm == RECIPE_COMM_NET;
}
static inline int recipe_rank_count(const Recipe *r) { return r->mesh.pp * r->mesh.dp * r->mesh.cp * r->mesh.tp; }
bool recipe_splits_masters(const Recipe *r); // it asks for it, and there are bf16 Copies
int recipe_data_ranks(const Recipe *r); // over which the Layout cuts the batch
Balance recipe_balance(const Recipe *recipe); // of the data ranks' shares; borrows batch.balance
static inline bool recipe_is_measured(const Recipe *r) { return r->batch.balance.count == RECIPE_BALANCE_MEASURED; }
int recipe_microbatches(const Recipe *r);
bool recipe_is_even(const Recipe *r); // all data ranks have as many sequences of every microbatch

// The axes of a row of the Layout: its own, or those of the Layout that the recipe starts from.
LayoutWords recipe_layout_row(const Recipe *recipe, LayoutRow row);
// The parallel configuration that a recipe asks for. Borrows parallel.layers.
StepParallel recipe_parallel(const Recipe *recipe);
// Of the cache of keys and values that generation keeps.
Dtype recipe_cache_dtype(const Recipe *recipe);
// All of the step that it asks for, but the list of parallel.recompute, which needs the model's layers to be read
// (resolve). Borrows what recipe_parallel and recipe_balance do.
void recipe_step(const Recipe *recipe, const StepModel *model, Step *step);
// parallel_check of it, with the place of the key in the sentence: PLAIT_BAD_INPUT.
int recipe_check_step(const Recipe *recipe, const StepModel *model, const Step *step, Error *error);
int recipe_check_parallel(const Recipe *recipe, const ModelConfig *config,
                          Error *error); // the same; config may be NULL

// docs/recipes.md, as generated from the key table.
void recipe_print_docs(FILE *out);
