// Hugging Face model folders, in and out. The views of a model's family (huggingface_views.h) say which part of which
// tensor is which Variable: fused and transposed tensors are read and written piece by piece, without a copy of the
// whole model.
#pragma once
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include <stdbool.h>

// Fills the boxes of `wanted` (names are Variables; dtype, strides and data as in checkpoint.h) from FOLDER's
// model.safetensors or its shards; F32, BF16, F16 and F64 are converted to the wanted dtype. The whole folder is
// checked, whatever is wanted: a tensor that is missing, surplus or of another shape than config says is
// PLAIT_BAD_INPUT with its name. Buffers that are not parameters (Family.buffers) are passed over, and so is the head
// of a tied model where it equals the embedding. Any thread may call it.
int huggingface_load(const char *folder, const ModelConfig *config, const CheckpointTensor *wanted, int count,
                     Error *error);

// The dtypes of the folder's tensors, so that a later export can write the same ones (widening BF16 and F16 to fp32 and
// narrowing again is exact): a JSON object {"*": "BF16", "model.norm.weight": "F32"}, where "*" is the most frequent
// and the others are exceptions. The caller owns *dtypes. Suited to a checkpoint's `extra`.
int huggingface_dtypes(const char *folder, const ModelConfig *config, json_t **dtypes, Error *error);

typedef struct HuggingfaceSave {
  const char *folder;     // created; must not exist, or be empty, but for `replace`
  const char *tokenizer;  // tokenizer.json to copy, or NULL
  const json_t *files;    // small files to write, as huggingface_files.h has them; borrowed, may be NULL
  int64_t shard_bytes;    // most tensor bytes of a file: beyond it there are several, and an index; 0: no limit
  bool replace;           // an export may be there, and is replaced; not a folder that holds anything else
  int dtype;              // Dtype of all tensors, or -1: as `dtypes` says
  const json_t *dtypes;   // borrowed, may be NULL: fp32
  // Reads a box of the Variable `name`, row-major, as fp32 into out. 0 or an error code.
  int (*read)(void *context, const char *name, const Box *part, float *out, Error *error);
  void *context;
} HuggingfaceSave;

// Writes config.json, model.safetensors (byte for byte what transformers writes of the same weights) or its shards with
// model.safetensors.index.json, tokenizer.json and `files` into a temporary folder beside `folder`, verifies it
// (huggingface_verify) and renames it: the folder is complete or does not exist. A number that is too large for the
// dtype of its tensor is PLAIT_BAD_INPUT with the tensor's name.
int huggingface_save(const HuggingfaceSave *save, const ModelConfig *config, Error *error);
// Opens `folder` again and compares: the config says the same, the tensors are those of the model, and every element
// equals what `read` gives, rounded to the file's dtype; the tokenizer and `files` are the same files.
int huggingface_verify(const HuggingfaceSave *save, const char *folder, const ModelConfig *config, Error *error);
