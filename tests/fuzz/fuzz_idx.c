// Indexed datasets: byte 0 chooses between a raw PREFIX.idx and arrays that get a header which fits their size.
#include "data/indexed.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static void look(const IndexedDataset *d) {
  int64_t last = 0;
  for (int64_t i = 0; i <= d->documents; i++) {
    int64_t begin = indexed_document_begin(d, i);
    CHECK(begin >= last && begin <= d->tokens);
    last = begin;
  }
  CHECK(last == d->tokens);
  for (int64_t at = 0; at < d->tokens; at++) {
    int64_t document = indexed_document_at(d, at);
    CHECK(document >= 0 && document < d->documents);
    CHECK(indexed_document_begin(d, document) <= at && at < indexed_document_begin(d, document + 1));
  }
  int32_t *out = malloc(4 * (size_t)d->tokens + 1);
  for (int vocab = 0; vocab <= 100; vocab += 100) {
    Error error = {0};
    int code = indexed_read(d, 0, d->tokens, vocab, out, &error);
    fuzz_check(code, &error);
    for (int64_t i = 0; !code && i < d->tokens; i++) CHECK(out[i] >= 0 && (!vocab || out[i] < vocab));
  }
  free(out);
}

// type, S, D, and whether the pointers are put right; then the arrays.
static void put_arrays(const uint8_t *data, size_t size) {
  uint8_t type = (uint8_t)fuzz_byte(&data, &size);
  size_t sequences = fuzz_byte(&data, &size) % 32, indices = fuzz_byte(&data, &size) % 32,
         bytes = 34 + 12 * sequences + 8 * indices;
  unsigned right = fuzz_byte(&data, &size) & 1;
  uint8_t *file = xcalloc(bytes, 1);
  memcpy(file, "MMIDIDX\0\0\1", 10);
  file[17] = type, file[18] = (uint8_t)sequences, file[26] = (uint8_t)indices;
  if (size) memcpy(file + 34, data, size < bytes - 34 ? size : bytes - 34);
  int64_t at = 0;
  for (size_t s = 0; right && s < sequences; s++) {
    int32_t length;
    memcpy(&length, file + 34 + 4 * s, 4);
    memcpy(file + 34 + 4 * sequences + 8 * s, &at, 8);
    at += (int64_t)length * indexed_type_bytes(type);
  }
  fuzz_file("p.idx", file, bytes);
  free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t bin[1024];
  unsigned arrays = fuzz_byte(&data, &size) & 1;
  size_t bin_bytes = 4 * fuzz_byte(&data, &size) + (arrays ? 0 : fuzz_byte(&data, &size) % 4);
  for (size_t i = 0; i < sizeof bin; i++) bin[i] = i % 8 == 0 ? (uint8_t)(i / 8) : i % 64 == 7 ? 0x80 : 0;
  fuzz_file("p.bin", bin, bin_bytes);
  if (arrays) put_arrays(data, size);
  else fuzz_file("p.idx", data, size);
  IndexedDataset dataset;
  Error error = {0};
  int code = indexed_open(&dataset, "p", &error);
  fuzz_check(code, &error);
  if (!code) look(&dataset);
  indexed_close(&dataset);
  fuzz_files_clear();
  return 0;
}
