// Replaces the text of an image in memory (checkpoint/memory_image.c) and makes its checksums valid: they protect
// against damage, not against somebody who writes an image.
#pragma once
#include "base/error.h"
#include "checkpoint/checksum.h"
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

// Offsets in the header. The last checksum is of all between IMAGE_RUN and itself; elements follow the header.
enum {
  IMAGE_HEADER = 4096,
  IMAGE_RUN = 16,
  IMAGE_TEXT_BYTES = IMAGE_RUN + 400 + 16,
  IMAGE_TEXT_CHECKSUM = IMAGE_TEXT_BYTES + 24,
  IMAGE_CHECKSUM = IMAGE_TEXT_CHECKSUM + 8
};

static inline void image_put(int fd, const void *data, size_t bytes, int64_t at) {
  CHECK(pwrite(fd, data, bytes, (off_t)at) == (ssize_t)bytes);
}

// elements: bytes of them, after which the text lies.
static inline void image_set_text(int fd, int64_t elements, const void *text, size_t size) {
  char header[IMAGE_CHECKSUM];
  int64_t bytes = (int64_t)size;
  uint64_t sum = checksum_of(text, size);
  image_put(fd, text, size, IMAGE_HEADER + elements);
  image_put(fd, &bytes, sizeof bytes, IMAGE_TEXT_BYTES);
  image_put(fd, &sum, sizeof sum, IMAGE_TEXT_CHECKSUM);
  CHECK(pread(fd, header, sizeof header, 0) == sizeof header);
  sum = checksum_of(header + IMAGE_RUN, IMAGE_CHECKSUM - IMAGE_RUN);
  image_put(fd, &sum, sizeof sum, IMAGE_CHECKSUM);
}
