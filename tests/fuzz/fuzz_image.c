// The text of an image of a rank's part of a checkpoint in memory, which may have come from another machine. The input
// is the text; the checksums are made right, as they are no secret. All elements of the pieces that are found can be
// read.
#include "checkpoint/checksum.h"
#include "checkpoint/memory_image.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Where the header (checkpoint/memory_image.c) has what follows, and its checksum, which is of all between RUN and it.
enum {
  HEADER = 4096,
  RUN = 16,
  TEXT_BYTES = RUN + 400 + 16,
  TEXT_CHECKSUM = TEXT_BYTES + 24,
  CHECKSUM = TEXT_CHECKSUM + 8
};
static const char run[] = "job.token.3";

// A file with an image of 1024 elements; made once.
static int image(void) {
  static int fd = -1;
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {1024}, .local = {1024}, .primary = 1};
  MemoryImageLabel label = {.run = run, .step = 3, .ranks = 4, .dir = "/nowhere", .keep = 2, .extra = "{}"};
  MemoryImage *m;
  Error error = {0};
  if (fd >= 0) return fd;
  fd = memfd_create("image", MFD_CLOEXEC);
  CHECK(fd >= 0 && !memory_image_create(fd, &t, 1, &m, &error));
  memory_image_begin(m);
  CHECK(!memory_image_complete(m, &label, &error));
  memory_image_close(m);
  return fd;
}

static void put(int fd, const void *data, size_t bytes, int64_t at) {
  CHECK(pwrite(fd, data, bytes, (off_t)at) == (ssize_t)bytes);
}

static void set_text(int fd, const uint8_t *text, size_t size) {
  char header[CHECKSUM];
  int64_t bytes = (int64_t)size;
  uint64_t sum = checksum_of(text, size);
  put(fd, text, size, HEADER + 4096);
  put(fd, &bytes, sizeof bytes, TEXT_BYTES);
  put(fd, &sum, sizeof sum, TEXT_CHECKSUM);
  CHECK(pread(fd, header, sizeof header, 0) == sizeof header);
  sum = checksum_of(header + RUN, CHECKSUM - RUN);
  put(fd, &sum, sizeof sum, CHECKSUM);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  MemoryImage *m;
  int fd = image(), count;
  set_text(fd, data, size);
  if (!memory_image_open(fd, run, &m)) return 0;
  const MemoryImageLabel *label = memory_image_label(m);
  const CheckpointTensor *t = memory_image_pieces(m, &count);
  CHECK(label->step == 3 && strlen(label->dir) < size);
  for (int i = 0; i < count; i++) {
    Box box = checkpoint_box(&t[i]);
    CHECK(*t[i].name && box_inside(&box, t[i].global) && t[i].primary != t[i].spare);
    int64_t elements = box_elements(&box);
    CHECK(!elements == !t[i].data);
    if (elements) dtype_load(t[i].data, t[i].dtype, 0), dtype_load(t[i].data, t[i].dtype, elements - 1);
  }
  memory_image_close(m);
  return 0;
}
