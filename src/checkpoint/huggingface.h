// Hugging Face model folders, in and out. Which part of which tensor there is a plait Variable here is a table of views:
// GPT-2's fused and transposed c_attn is read and written in place of q, k, v without a copy of the whole model.
#pragma once
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"

// A Variable seen as the matrix (rows, columns) — leading dims are rows, trailing dims columns — or, with columns 0, as
// the vector (rows), is a part of one tensor of the folder.
typedef struct HuggingfaceView {
  char tensor[128];       // as transformers writes it: "transformer.h.0.attn.c_attn.weight"
  int rank;               // of that tensor
  int64_t dims[2];
  int transposed;         // it holds (columns, rows): transformers' Conv1D
  int64_t row;            // our row 0 is its row `row` (its column, where transposed)
  int64_t rows, columns;  // of the Variable; columns 0: a vector
} HuggingfaceView;

// Finds the view of Variable `name`; 0, or -1 where the model has no such parameter.
int huggingface_view(const ModelConfig *config, const char *name, HuggingfaceView *view);
// The names of all parameters of the model (malloced array of malloced strings) in a stable order; returns their number.
int huggingface_variables(const ModelConfig *config, char ***names);
void huggingface_variables_free(char **names, int count);

// Fills the boxes of `wanted` (names are Variables; dtype, strides and data as in checkpoint.h) from FOLDER's
// model.safetensors or its shards; F32, BF16, F16 and F64 are converted to the wanted dtype. The whole folder is
// checked, whatever is wanted: a tensor that is missing, surplus or of another shape than config says is PLAIT_BAD_INPUT
// with its name. Buffers that are no parameters (attn.bias, attn.masked_bias, rotary_emb.inv_freq) are passed over, and
// so is the lm_head.weight of a tied model where it equals the embedding. Any thread may call it.
int huggingface_load(const char *folder, const ModelConfig *config, const CheckpointTensor *wanted, int count,
                     Error *error);

// The dtypes of the folder's tensors, so that a later export can write the same ones (widening BF16 and F16 to fp32 and
// narrowing again is exact): a JSON object {"*": "BF16", "model.norm.weight": "F32"}, where "*" is the most frequent and
// the others are exceptions. The caller owns *dtypes. Suited to a checkpoint's `extra`.
int huggingface_dtypes(const char *folder, const ModelConfig *config, json_t **dtypes, Error *error);

typedef struct HuggingfaceSave {
  const char *folder;     // created; must not exist, or be empty
  const char *tokenizer;  // tokenizer.json to copy, or NULL
  int dtype;              // Dtype of all tensors, or -1: as `dtypes` says
  const json_t *dtypes;   // borrowed, may be NULL: fp32
  // Reads the whole Variable `name` (global shape, row-major) as fp32 into out. 0 or an error code.
  int (*read)(void *context, const char *name, int64_t elements, float *out, Error *error);
  void *context;
} HuggingfaceSave;

// Writes config.json, model.safetensors and tokenizer.json into a temporary folder beside `folder`, verifies it
// (huggingface_verify) and renames it: the folder is complete or does not exist.
int huggingface_save(const HuggingfaceSave *save, const ModelConfig *config, Error *error);
// Opens `folder` again and compares: the config says the same, the tensors are those of the model, and every element
// equals what `read` gives, rounded to the file's dtype; the tokenizer is the same file.
int huggingface_verify(const HuggingfaceSave *save, const char *folder, const ModelConfig *config, Error *error);
