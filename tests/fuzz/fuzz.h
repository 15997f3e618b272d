// What fuzz targets share: files that live in memory, served in place of base/file's (the linker wraps its functions).
// A map is a heap block of exactly the file's size, so that AddressSanitizer sees every byte read beyond it.
#pragma once
#include "base/error.h"
#include "base/file.h"
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The bytes of a file, copied; an existing one is replaced. Any other path does not exist.
void fuzz_file(const char *path, const void *data, size_t size);
const void *fuzz_file_data(const char *path, size_t *size); // as it was put or committed; NULL: not there
void fuzz_files_clear(void);

// A failure must come with one printable sentence, and success with none.
void fuzz_check(int code, const Error *error);

// Takes bytes off the front of an input; 0 when it is used up.
static inline unsigned fuzz_byte(const uint8_t **data, size_t *size) {
  if (!*size) return 0;
  return --*size, *(*data)++;
}
