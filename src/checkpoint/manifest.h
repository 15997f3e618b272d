// checkpoint.json: which parts there are, their sizes and checksums, and which boxes of which tensors they hold.
// {"checksum": "<XXH64 of all that follows on the next line>",
//  "format": "plait checkpoint", "version": 1, "step": N, "parts": [{"file", "bytes", "checksum"}],
//  "tensors": {name: {"dtype", "shape", "boxes": [{"part", "offset", "shape"}]}}, "extra": {}}
#pragma once
#include "base/error.h"
#include "checkpoint/checkpoint.h"

#define MANIFEST_FILE "checkpoint.json"
#define MANIFEST_BOXES                                                                                                 \
  "plait.boxes" // key of a part's __metadata__: JSON text {entry: {"name", "global", "offset", "local"}}

typedef struct ManifestPart { char *file; int64_t bytes; uint64_t checksum; } ManifestPart;
typedef struct ManifestBox { Box box; int part; } ManifestBox;
typedef struct ManifestTensor { CheckpointEntry entry; ManifestBox *boxes; int box_count; } ManifestTensor;

typedef struct Manifest {
  json_t *json; // owns the names
  int64_t step;
  ManifestPart *parts;
  ManifestTensor *tensors; // sorted by name
  int part_count, tensor_count;
} Manifest;

// Validates everything, also that the boxes cover each tensor exactly once. Takes over `json`, also on an error.
// `path` is for messages. On success manifest_free gives it back.
int manifest_parse(Manifest *manifest, json_t *json, const char *path, Error *error);
int manifest_read(Manifest *manifest, const char *path, Error *error); // checksum first
int manifest_write(const Manifest *manifest, const char *path, Error *error);
void manifest_free(Manifest *manifest); // also safe on a zeroed one

char *manifest_part_file(int part); // "part-00003.safetensors"; caller frees
// The name under which a part stores a box: the tensor's own when it is whole, else "name[0:4,2:6]". Caller frees.
char *manifest_entry_name(const char *name, const int64_t *global, const Box *box);
json_t *manifest_dims(int rank, const int64_t *dims);                   // [3, 4]
int manifest_parse_dims(const json_t *list, int64_t dims[BOX_MAX_RANK]); // the rank, or -1: it is not a list of sizes

// The piece of a CheckpointTensor, and the strides of its data in elements.
void checkpoint_strides(const CheckpointTensor *tensor, int64_t stride[BOX_MAX_RANK]);
