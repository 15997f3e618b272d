// safetensors files and Hugging Face model folders: a validating reader over memory maps, and a streaming writer.
#pragma once
#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include <jansson.h>

enum { SAFETENSORS_MAX_RANK = 8 };

// One tensor of a file: row-major, little-endian.
typedef struct SafetensorsEntry {
  const char *name;
  int dtype;               // a Dtype, or -1 where plait has none (its bytes can still be copied)
  const char *dtype_name;  // as in the file: "F32", "BOOL" …; the writer looks at it only where dtype is -1
  int rank;                // 0 for a scalar
  int64_t dims[SAFETENSORS_MAX_RANK];
  const void *data;        // in the map; foreign files need not align it, so memcpy before use as a wider type
  size_t bytes;            // the writer computes it from dtype and dims unless dtype is -1
  const char *path;        // the file that holds it, for messages; not used by the writer
} SafetensorsEntry;

typedef struct SafetensorsFile { char *path; FileMap map; json_t *header; } SafetensorsFile;

// An open file, or an open folder of shards. Read-only after opening: any thread may look.
typedef struct Safetensors {
  SafetensorsFile *files;
  int file_count;
  SafetensorsEntry *entries; // in the order of the data, shard by shard; names are unique
  int count;
  const SafetensorsEntry **by_name; // count of them, sorted by name
} Safetensors;

// Opens one file. Everything in the header is validated (sizes, products, ranges; no overlaps, no holes, no duplicate
// names, no data after the last tensor): a hostile file is PLAIT_BAD_INPUT with one sentence that names it.
int safetensors_open(Safetensors *tensors, const char *path, Error *error);

// Opens FOLDER/model.safetensors, or else the shards that FOLDER/model.safetensors.index.json lists. Tensors that a
// shard holds but the index does not list are left out.
int safetensors_open_folder(Safetensors *tensors, const char *folder, Error *error);

void safetensors_close(Safetensors *tensors); // also safe after a failed open, and twice

const SafetensorsEntry *safetensors_find(const Safetensors *tensors, const char *name); // NULL: not there
// The value of a key of `__metadata__` (of the first shard that has it), or NULL; lives until close.
const char *safetensors_metadata(const Safetensors *tensors, const char *key);

// Elements of the tensor.
int64_t safetensors_elements(const SafetensorsEntry *entry);

// Writer: the entries are declared first, then their data is streamed in the same order, in pieces of any size.
// Written under a temporary name and renamed when finished; after a failure (a full disk) no file is left.
typedef struct SafetensorsWriter {
  AtomicFile file;
  Checksum checksum;       // of all bytes written so far, header included
  uint64_t written, total; // bytes of the file; total is known from the start
} SafetensorsWriter;

// metadata: key, value, key, value …, NULL; or NULL for none. Copies what it needs. Duplicate names, a name that is
// not UTF-8 or is "__metadata__", and impossible shapes are refused (PLAIT_FAILED). On an error the writer is
// abandoned.
int safetensors_write_begin(SafetensorsWriter *writer, const char *path, const SafetensorsEntry *entries, int count,
                            const char *const *metadata, Error *error);
int safetensors_write_data(SafetensorsWriter *writer, const void *data, size_t bytes, Error *error);
int safetensors_write_finish(SafetensorsWriter *writer, Error *error); // refuses when data is missing
void safetensors_write_abandon(SafetensorsWriter *writer);             // also safe after finish or a failed begin

// All at once: entries with their data.
int safetensors_write(const char *path, const SafetensorsEntry *entries, int count, const char *const *metadata,
                      Error *error);
