// Where the weights of a model come from, for eval, generate and export: a checkpoint, a run, or a Hugging Face folder.
#pragma once
#include "checkpoint/checkpoint.h"
#include "data/document_marks.h"
#include "model/config.h"
#include "runtime/state.h"
#include "recipe/recipe.h"

typedef struct ModelSource {
  char *path; // the checkpoint that was found, or the Hugging Face folder
  ModelConfig config;
  int has_recipe;
  Recipe recipe;          // of the run that wrote the checkpoint
  Checkpoint *checkpoint; // NULL: a Hugging Face folder
  char *tokenizer;        // its tokenizer.json, NULL: none was found
  json_t *files;          // the small files beside the weights, as huggingface_files.h has them
  int from_huggingface;   // it is such a folder, or its training began with one (model.init)
  // How the documents of its corpus begin and end. Recorded: plait tokenize has written it beside the corpus; seen: the
  // last token, which all of them share.
  enum { DOCUMENTS_UNKNOWN, DOCUMENTS_SEEN, DOCUMENTS_RECORDED } documents_known;
  DocumentMarks documents;
  Graph *model;           // whose Variables have the global shapes of parameters; made by the first model_source_read
} ModelSource;

// `path` is a checkpoint (runs/X/checkpoints/step-N), a run (its newest valid checkpoint; what was skipped is said on
// stderr), or a folder with config.json and safetensors. Anything else is PLAIT_BAD_INPUT with a sentence. Weights are
// not read yet. The caller closes *source, also after an error.
int model_source_open(ModelSource *source, const char *path, Error *error);
// Another tokenizer.json (or its folder) than the one that was found, with the files beside it.
void model_source_set_tokenizer(ModelSource *source, const char *path);
void model_source_close(ModelSource *source); // also safe twice

// Whether all its weights are bf16: a Hugging Face folder's may be. Faults of the folder are for loading to say.
bool model_source_is_bf16(const ModelSource *source);

// Fills the parameters that live on this State, converted to its dtypes. The bytes of files that it reads are added to
// *bytes, which may be NULL.
int model_source_load(const ModelSource *source, State *state, int64_t *bytes, Error *error);
// Reads a box of one parameter (plait's name), row-major, as fp32 into out.
int model_source_read(ModelSource *source, const char *name, const Box *part, float *out, Error *error);
