// Turns a recipe into what a run needs: compile options, job and loader. For all commands.
#pragma once
#include "runtime/launch.h"
#include "runtime/rank.h"
#include "recipe/recipe.h"
#include "setup/recompute_auto.h"

// How many threads of other ranks may help a rank that has `threads`: as many again, where all ranks are threads of
// this process and have separate cores; 0: ranks do not help each other.
int setup_helpers(const Recipe *recipe, int threads);

// Writes a note if run.work_stealing has no effect. Returns the length of the text, 0: it does, or is the default.
int setup_describe_lend(const Recipe *recipe, int threads, bool processes, char *text, size_t size);

// The model's config; errors name the key and where it was given.
int setup_model_config(const Recipe *recipe, ModelConfig *config, Error *error);

// PLAIT_BAD_INPUT where model.config is not the model whose weights the folder of model.init has.
int setup_check_init(const Recipe *recipe, const ModelConfig *config, Error *error);

// Writes a line for each key of the model's config that has no effect, and for sequences longer than the model was made
// for.
void setup_note_model(const Recipe *recipe, const ModelConfig *config, FILE *out);

// Refuses a tokenizer that eval and generate could not read; one that is not there yet is not judged. Where it has
// tokens for which the model has no row, *note is a line about them, which the caller frees; with `data` the corpora
// are read, and refused where they have one of these. *note is NULL otherwise.
int setup_check_tokenizer(const Recipe *recipe, const ModelConfig *config, bool data, char **note, Error *error);

// Do the records of the datasets (data/document_marks.h) agree with one another, and with data.tokenizer or the
// tokenizer of model.init? *note: lines where they do not, maybe none; the caller frees it, also after an error.
// PLAIT_BAD_INPUT where a record cannot be read.
int setup_check_documents(const Recipe *recipe, char **note, Error *error);

// The recipe's parallel configuration beside the mesh, in a line: "zero 1, pipeline 1f1b, layout tensor".
void setup_describe(const Recipe *recipe, const ModelConfig *config, char *text, size_t size);

// Mesh (pp, dp, cp, tp), Layout, stages, precision, batch sizes (micro_samples = batch.micro × dp) and the optimizer.
// Strings in *out are static. PLAIT_BAD_INPUT for what the recipe
// alone or with the model's config cannot be.
// Nothing is known of seconds here, so that layers would be cut by FLOPs; setup_graph and setup_job know.
int setup_compile_options(const Recipe *recipe, const ModelConfig *config, CompileOptions *out, Error *error);

// The graph of a training run after a pass (compile/passes.def). Where a cluster is named (Recipe.cluster,
// run.cluster), layers are cut into stages by seconds on its device, for everybody who compiles this run alike.
// *options: what it was compiled by. The caller frees *graph. PLAIT_BAD_INPUT also for a cluster that cannot be read.
int setup_graph(const Recipe *recipe, const ModelConfig *config, const char *after, CompileOptions *options,
                Graph **graph, Error *error);

// Compiles everything of a training run: device by run.backend, with an evaluation graph of batch.global samples when
// data.valid is given, for ranks that are threads of this process. Cuts stages as setup_graph does. Touches no data and
// allocates no memory of ranks. The caller frees *job (job_destroy).
int setup_job(const Recipe *recipe, const ModelConfig *config, Job **job, Error *error);
// The same for any mode, with this number of threads for each rank, and helpers.
int setup_job_for(const Recipe *recipe, const ModelConfig *config, ModelMode mode, int threads, int helpers, Job **job,
                  Error *error);

// setup_job without offsets, for estimates and bounds: memory is as large as a good packing makes it (1 % above what is
// needed at one time), which takes a large part of the time of compiling to find.
int setup_job_sketch(const Recipe *recipe, const ModelConfig *config, Job **job, Error *error);

// setup_job, with what parallel.recompute auto chose and why; *choice is zero with any other value.
int setup_job_chosen(const Recipe *recipe, const ModelConfig *config, RecomputeChoice *choice, Job **job, Error *error);

WatchdogLimits setup_watchdog(const Recipe *recipe);
// launch_choose, by run.comm and the mesh. Every command that runs a recipe comes here first: PLAIT_BAD_INPUT where
// run.backend cannot be run.
int setup_launch(Launch *launch, const Recipe *recipe, Error *error);
// The facts that launch_begin needs of a recipe, or of the keys that are given on the command line.
LaunchWish setup_wish(const Recipe *recipe);
LaunchWish setup_wish_of_keys(int count, char **keys);

// The loader of data.train, or of what is evaluated on (one pass, in order) when `validation`. `sources` has room for
// as many items as that list has, and must live until loader_open has returned. Data ranks and batch sizes are for
// rank_open_data and rank_open_evaluation to fill in.
LoaderConfig setup_loader(const Recipe *recipe, const ModelConfig *config, int validation, DataSource *sources);

// All files that the recipe names and that do not exist, in one sentence: PLAIT_BAD_INPUT.
int setup_check_files(const Recipe *recipe, Error *error);
// How often training reads its corpora. tokens: of data.train, without what data.split holds out; 0: it is not known.
// least, most: passes of the corpora for each token trained on; they differ where weights do not follow sizes.
typedef struct DataPasses { double tokens, least, most; int corpora; } DataPasses;
// "2.3 passes over 1.34M tokens", "0.5 to 4 passes over 3 corpora of 1.34M tokens", after `trained` tokens.
void setup_describe_passes(const DataPasses *passes, double trained, char *text, size_t size);

// Opens the corpora once, so that what is wrong with them, or with the part that data.split holds out, is said before a
// run; evaluation must have something to predict. *note (`note` may be NULL): a line about data.split, or NULL; the
// caller frees it. *passes (may be NULL) is zero after an error in data.train.
int setup_check_data(const Recipe *recipe, const ModelConfig *config, char **note, DataPasses *passes, Error *error);
