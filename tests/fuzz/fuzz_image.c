// The text of an image of a rank's part of a checkpoint in memory, which may have come from another machine. The input
// is the text; its checksums are made valid. All elements of accepted pieces must be readable.
#include "../checkpoint/image_text.h"
#include "checkpoint/memory_image.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char run[] = "job.token.3";

enum { ELEMENTS = 1024 };

// A file with an image of `elements` elements; made once.
static int image(void) {
  static int fd = -1;
  CheckpointTensor t = {
      .name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {ELEMENTS}, .local = {ELEMENTS}, .primary = 1};
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  MemoryImage *m;
  int fd = image(), count;
  image_set_text(fd, ELEMENTS * 4, data, size);
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
