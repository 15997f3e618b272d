// What a run of a recipe needs besides its RunPlan (run_plan.h): the model's config, data, launch, and what is said of
// these. For all commands.
#pragma once
#include "runtime/launch.h"
#include "runtime/rank.h"
#include "recipe/recipe.h"
#include "setup/run_plan.h"

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

// The recipe's parallel configuration beside the mesh, in a line: "zero 1, pipeline 1f1b, layout tensor". step: its own
// (RunPlan), for what was auto.
void setup_describe(const Recipe *recipe, const Step *step, char *text, size_t size);

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
