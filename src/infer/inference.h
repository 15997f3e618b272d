// A model on ranks for inference: evaluation or generation, with the weights of a checkpoint or a Hugging Face folder.
// One rank in fp32 with all cores, unless keys of a recipe say otherwise ("mesh.tp=2", "precision=bf16"): every
// parallel configuration gives the same numbers, to rounding. Each rank reads its own part of the weights only.
#pragma once
#include "infer/model_source.h"
#include "runtime/launch.h"
#include "runtime/session.h"

typedef struct InferenceOptions {
  ModelMode mode;      // MODEL_EVALUATE or MODEL_GENERATE
  const char *command; // for messages: "plait eval"
  const RecipeInstead *instead; // options of the command, for keys that it does not take; may be NULL
  int64_t seq;         // tokens of a sequence; of MODEL_GENERATE of a tick at most
  int64_t context, page, requests, pages, logits; // of MODEL_GENERATE, as in RunSetting
  double kv_memory; // bytes of a data rank's cache, on all ranks that share it; pages follow from it. 0: from `pages`
  bool one_document;   // of MODEL_EVALUATE: no sequence is cut into documents
  int64_t rows;        // sequences at a time over all data ranks, at least
  int threads;         // of all ranks on this machine together, where the keys have no run.threads; 0: all cores
  int key_count;
  char **keys;
} InferenceOptions;

// Bytes of a rank: of files that it has read, of all that it holds, and of the cache in that.
typedef struct RankBytes { int64_t read, held, cache; } RankBytes;

typedef struct Inference {
  const ModelSource *source;
  Recipe recipe;     // the parallel configuration
  Job *job;
  Session *session;
  RankBytes *bytes;  // (ranks), in the process of rank 0; NULL before inference_start
} Inference;

// Compiles, starts the ranks and loads the weights. *launch becomes what run.comm says; where ranks are processes every
// process calls it. Everything is borrowed. The caller closes it, also after an error.
int inference_open(Inference *inference, const ModelSource *source, const InferenceOptions *options, Launch *launch,
                   Error *error);
void inference_close(Inference *inference); // also safe twice, and zeroed

// The three parts of inference_open, for those who look at the keys between them, or only at the plan.
// Reads the keys into inference->recipe, with data.seq_len as options->seq.
int inference_recipe(Inference *inference, const ModelSource *source, const InferenceOptions *options,
                     const Launch *launch, Error *error);
// recipe → job. *launch as in inference_open; launch->world NULL and local: nothing but the plan is wanted.
int inference_compile(Inference *inference, const InferenceOptions *options, Launch *launch, Error *error);
int inference_start(Inference *inference, Launch *launch, Error *error); // job → ranks with weights

// Bytes of a token's keys and values in the cache, of all layers.
int64_t inference_token_bytes(const Inference *inference);

// Of these, what a rank's Program has.
int64_t inference_cache_bytes(const Program *program);

// Sequences of a batch over all data ranks, and on one of them. At least options.rows: see recipe_for_inference.
int64_t inference_rows(const Inference *inference);
int64_t inference_local_rows(const Inference *inference);
// Is this rank the one that speaks for its part of the batch? Ranks that differ in no data axis have the same part.
int inference_speaks(const Rank *r);

// Collects what the role generate has left in an OUTPUT as `dtype` (fp32 or fp64) in rank 0's `out`, NULL on the
// others: KNOWN_LOGITS (rows, logits, vocab), or the maxima or sums (rows, logits). Collective, in a task.
int inference_output(Rank *r, KnownVariable output, Dtype dtype, void *out, Error *error);
