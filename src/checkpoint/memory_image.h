// A rank's part of a checkpoint in memory that outlives the rank: a file without a name (memfd) that plait launch holds
// and hands to the worker, so that the checkpoint can be written when the worker is dead.
//
// A header says whose the image is and how far it has come. The elements follow, and after them a text with the boxes
// that they are and with what makes a checkpoint of the images of all ranks. An image is of no use while elements are
// copied into it: hence a rank has two of them, in turn.
//
//   the rank:        memory_image_create · for each copy: _begin · writes to the pieces · _complete
//   who outlives it: memory_image_open, which finds complete images only
//   a copy of it in another file: memory_image_peek and its bytes · memory_copy_begin, _write, _complete
#pragma once
#include "checkpoint/checkpoint.h"
#include "worker/worker.h"

// The label of an image. Texts are borrowed from whoever made it.
typedef struct MemoryImageLabel {
  const char *run;   // whose images belong together: PLAIT_RUN_ID, which names the job, its start and the round
  int64_t step;
  int rank, ranks;   // that write parts
  int alone;         // ranks of this machine, if their images together hold all, with spare pieces; else 0
  // From here on that of rank 0 counts, or of the first rank of such a machine:
  const char *dir;   // of the checkpoints
  int keep;          // of checkpoint_prune
  const char *log;   // a file that must be on the disk before the checkpoint is; NULL: none
  const char *extra; // of checkpoint_finish: a JSON object as text; NULL: another rank has it
} MemoryImageLabel;

typedef struct MemoryImage MemoryImage;

// Bytes of the elements of those pieces that the rank writes or has as spare, rounded up to pages.
int64_t memory_image_bytes(const CheckpointTensor *pieces, int count);
// Takes the memory for them and all its pages. fd (borrowed) is an empty memfd; -1: memory of this process, for who
// reads the pieces only. PLAIT_NO_MEMORY. The pieces are copied, their names borrowed.
int memory_image_create(int fd, const CheckpointTensor *pieces, int count, MemoryImage **image, Error *error);
// The same pieces, row-major in the image; those that are neither primary nor spare have no data. Of an opened image:
// those that it holds.
const CheckpointTensor *memory_image_pieces(const MemoryImage *image, int *count);
// Before the first byte of a copy is written, and after the last. From begin on nobody finds the image, also when this
// process dies, until it is complete. `label` is copied.
void memory_image_begin(MemoryImage *image);
int memory_image_complete(MemoryImage *image, const MemoryImageLabel *label, Error *error);
void memory_image_close(MemoryImage *image); // NULL is fine

// Opens an image of that run to be read. Returns whether there is a complete one: neither empty, nor being written, nor
// damaged, nor of another run. The file must not shrink while it is open (F_SEAL_SHRINK).
bool memory_image_open(int fd, const char *run, MemoryImage **image);
const MemoryImageLabel *memory_image_label(const MemoryImage *image); // of an opened one

// A copy in another file ----------------------------------------------------------------------------------------------

// The beginning of an image. `made`: how many images this file has had.
typedef struct MemoryImageHead { int64_t step, bytes; int rank, ranks, alone, made; } MemoryImageHead;

// Whether there is a complete image of that run, which its rank may replace at any time: the bytes that were read from
// the beginning of the file on are whole if this says the same after them as before.
bool memory_image_peek(int fd, const char *run, MemoryImageHead *head);
bool memory_image_same(const MemoryImageHead *a, const MemoryImageHead *b);
// In a memfd that is empty, or in place of an older copy: takes the memory. From here on nobody finds an image there
// until it is complete. PLAIT_NO_MEMORY.
int memory_copy_begin(int fd, int64_t bytes, Error *error);
int memory_copy_write(int fd, int64_t at, const void *data, size_t bytes, Error *error);
// After the last byte. false: the bytes are not that image of that run, and nobody finds one.
bool memory_copy_complete(int fd, const char *run, const MemoryImageHead *head);
