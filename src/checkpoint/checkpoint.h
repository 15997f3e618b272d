// Sharded checkpoints: DIR/step-N/ holds one safetensors part per writer and checkpoint.json, the manifest. Tensors are
// stored as boxes of their global shape, never by rank, so a checkpoint written under one layout loads under any other.
// A checkpoint is complete or does not exist: it is written in DIR/step-N.tmp and renamed when all is on the disk.
//
// Saving, by N ranks:   one calls checkpoint_begin · barrier · each calls checkpoint_write_part(part = 0 … N-1) ·
//                       barrier · one calls checkpoint_finish (or, if any failed, checkpoint_abandon), then _prune.
#pragma once
#include "base/dtype.h"
#include "base/error.h"
#include "base/box.h"
#include <jansson.h>
#include <stdbool.h>

// Memory that is not the host's: reads or writes the elements `part` (global indices, inside the piece) of a piece,
// row-major and in its own dtype. `owner` and `id` are the piece's.
typedef struct PieceAccess {
  void (*read)(void *owner, int id, const Box *part, void *out);
  void (*write)(void *owner, int id, const Box *part, const void *in);
} PieceAccess;

// One rank's piece of one tensor: the box [offset, offset + local) of a tensor of shape `global`. It lies at `data`, or
// where `access` says.
typedef struct CheckpointTensor {
  const char *name;
  Dtype dtype;                  // of data
  int rank;                     // dims used below; 0 for a scalar
  int64_t global[BOX_MAX_RANK];
  int64_t offset[BOX_MAX_RANK]; // of the box in the global tensor
  int64_t local[BOX_MAX_RANK];  // shape of the box; a 0 makes it empty, and data may then be NULL
  int64_t stride[BOX_MAX_RANK]; // elements between neighbours in data; all 0 means row-major over local. Lets padded
                                // shards and views of fused tensors leave out what is not theirs
  void *data;
  const PieceAccess *access;    // NULL: data is a pointer. Else data and stride are unused
  void *owner;
  int id;
  int primary; // written only where 1: exactly one rank holds each element as primary. Loading ignores it
  int64_t *read; // the bytes of files that were read for it are added to this, where it is not NULL
  int spare;   // not primary, but kept in memory (checkpoint/memory_image.h): its machine may be the last that has it
} CheckpointTensor;

Box checkpoint_box(const CheckpointTensor *piece);
// Copies the elements `part` of a piece, which lies in both boxes, to or from an array in the host's memory that holds
// the box `other` (strides in elements). Dtypes may differ between floats.
void checkpoint_tensor_get(const CheckpointTensor *piece, const Box *part, void *to, const Box *other,
                           const int64_t *stride, Dtype dtype);
void checkpoint_tensor_put(const CheckpointTensor *piece, const Box *part, const void *from, const Box *other,
                           const int64_t *stride, Dtype dtype);
// Copies a piece into its place of the whole tensor (row-major, of shape global), or the piece's elements from there.
// The dtype is that of `whole`. An empty piece copies nothing.
void checkpoint_tensor_to_whole(const CheckpointTensor *piece, void *whole, Dtype dtype);
void checkpoint_tensor_from_whole(const CheckpointTensor *piece, const void *whole, Dtype dtype);

// Saving. `extra` (borrowed, may be NULL) is a JSON object of the caller's own: tokens seen, recipe, loop state.
int checkpoint_begin(const char *dir, int64_t step, Error *error); // creates DIR; clears every stale step-*.tmp
int checkpoint_write_part(const char *dir, int64_t step, int part, const CheckpointTensor *tensors, int count,
                          Error *error); // from any thread or process; a full disk is PLAIT_FAILED
// Whether that part lies there, whole and with its checksum. For who commits without asking the ranks that write.
bool checkpoint_part_is_written(const char *dir, int64_t step, int part);
// Verifies that the parts 0 … parts-1 are there and cover every tensor exactly once, writes the manifest and renames.
// On an error step-N.tmp stays until checkpoint_abandon or the next begin. Replaces an older step-N.
int checkpoint_finish(const char *dir, int64_t step, int parts, json_t *extra, Error *error);
void checkpoint_abandon(const char *dir, int64_t step); // removes step-N.tmp
// Lets DIR/best, a symbolic link, name step-N from now on; step <= 0: there is none. checkpoint_prune leaves it alone.
int checkpoint_mark_best(const char *dir, int64_t step, Error *error);
int64_t checkpoint_best(const char *dir); // the step that DIR/best names and that is there, or 0

int checkpoint_steps_there(const char *dir); // how many checkpoints there are, also if there is no such folder

// Deletes all but the newest `keep` checkpoints (keep <= 0: deletes none), but never the newest valid one, the best,
// and that of step `written`, whatever lies beside it.
int checkpoint_prune(const char *dir, int64_t written, int keep, Error *error);
// Moves the checkpoints after `step` into the folder `to`, and DIR/best if it names one of them.
int checkpoint_move_later(const char *dir, int64_t step, const char *to, Error *error);

// Reading. An open checkpoint may be used by several threads at once.
typedef struct Checkpoint Checkpoint;

// Opens DIR/step-N by its path. The manifest is verified here, a part (size, checksum) before it is first read.
// Anything wrong with the files is PLAIT_BAD_INPUT with a sentence that names the file.
int checkpoint_open(Checkpoint **checkpoint, const char *path, Error *error);
void checkpoint_close(Checkpoint *checkpoint); // NULL is fine
int checkpoint_verify(Checkpoint *checkpoint, Error *error); // all parts now

// The newest step-N in DIR whose files are all verified: returns 1 and *step, 0 when there is none (or no DIR), or an
// error. *opened (may be NULL as an argument) is then that checkpoint, already verified; the caller closes it.
// *warnings (may be NULL as an argument) is one line for each newer one that was skipped, or NULL; the caller frees it.
int checkpoint_latest_valid(const char *dir, int64_t *step, Checkpoint **opened, char **warnings, Error *error);

// The same, of checkpoints whose manifest is verified and whose parts may be anything.
int checkpoint_peek_latest(const char *dir, Checkpoint **opened, Error *error);

typedef struct CheckpointEntry {
  const char *name;
  Dtype dtype;
  int rank;
  int64_t global[BOX_MAX_RANK];
} CheckpointEntry;

int64_t checkpoint_step(const Checkpoint *checkpoint);
const char *checkpoint_path(const Checkpoint *checkpoint);
json_t *checkpoint_extra(const Checkpoint *checkpoint); // borrowed; never NULL, {} if none was given
int checkpoint_count(const Checkpoint *checkpoint);                           // tensors
const CheckpointEntry *checkpoint_entry(const Checkpoint *checkpoint, int i); // sorted by name
const CheckpointEntry *checkpoint_find(const Checkpoint *checkpoint, const char *name); // NULL: not there

// Are the checkpoint's names that `filter` lets through (NULL: all) exactly `names`? Missing and surplus ones are
// PLAIT_BAD_INPUT with the names. `names` are of all ranks together; repeated ones count once.
int checkpoint_compare_names(const Checkpoint *checkpoint, const char *const *names, int count,
                             int (*filter)(const char *name, void *context), void *context, Error *error);

// Fills every wanted box from the stored ones. Names and global shapes must be there; dtypes must be equal, or both be
// floats where `convert` is 1. Stored tensors that this rank does not want are not checked: checkpoint_compare_names
// finds them.
int checkpoint_load(Checkpoint *checkpoint, const CheckpointTensor *wanted, int count, int convert, Error *error);

// One box of one tensor into `out`, row-major over local, converted between floats where dtypes differ.
int checkpoint_read_box(Checkpoint *checkpoint, const char *name, const int64_t *offset, const int64_t *local,
                        Dtype dtype, void *out, Error *error);

// Assembles whole tensors from the boxes of all ranks (the primary ones must cover each tensor exactly once; others are
// ignored) and writes them, widest dtype first and then by name, as one plain safetensors file (metadata: format pt,
// which other readers ask for). One tensor at a time is held in memory. For gathered gradients and for export.
int safetensors_write_gathered(const char *path, const CheckpointTensor *all, int count, Error *error);
