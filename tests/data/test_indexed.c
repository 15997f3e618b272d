// tier 1
// Indexed datasets: the bytes of the format, round trips, hostile files, files that appear whole or not at all.
#include "data/indexed.h"
#include "data/synthetic.h"
#include "scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64], prefix[128], idx[160], bin[160];

static int setup(void **state) {
  scratch_create(folder);
  snprintf(prefix, sizeof prefix, "%s/set", folder);
  snprintf(idx, sizeof idx, "%s.idx", prefix);
  snprintf(bin, sizeof bin, "%s.bin", prefix);
  return 0;
}
static int teardown(void **state) {
  scratch_remove(folder);
  return 0;
}

// Not truncated to nothing first: file systems then write it to the disk when it is closed, and here it is so for
// thousands of files.
static void put(const char *path, const void *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, size), size);
  assert_int_equal(ftruncate(fd, (off_t)size), 0);
  assert_int_equal(close(fd), 0);
}

// Three documents: {1, 2, 300}, {} and {4}, as uint16; written down by hand from the format.
static const uint8_t GOLDEN_IDX[] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0,                                              // magic
    1,   0,   0,   0,   0,   0,   0,   0,                                                 // version
    8,                                                                                    // uint16
    3,   0,   0,   0,   0,   0,   0,   0,                                                 // sequences
    4,   0,   0,   0,   0,   0,   0,   0,                                                 // document indices
    3,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0,                                     // lengths
    0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, // pointers
    0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
    3,   0,   0,   0,   0,   0,   0,   0, // documents
};
static const uint8_t GOLDEN_BIN[] = {1, 0, 2, 0, 0x2c, 1, 4, 0};

static void test_golden_written(void **state) {
  Error error = {0};
  IndexedWriter w;
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_UINT16, &error), 0);
  assert_int_equal(indexed_writer_add_tokens(&w, (uint32_t[]){1, 2}, 2, &error), 0); // in pieces
  assert_int_equal(indexed_writer_add_tokens(&w, (uint32_t[]){300}, 1, &error), 0);
  assert_int_equal(indexed_writer_end_document(&w, &error), 0);
  assert_int_equal(indexed_writer_add_document(&w, NULL, 0, &error), 0);
  assert_int_equal(indexed_writer_add_document(&w, (uint32_t[]){4}, 1, &error), 0);
  assert_false(file_exists(idx) || file_exists(bin));
  assert_int_equal(indexed_writer_commit(&w, &error), 0);
  FileMap map;
  assert_int_equal(file_map(idx, &map, &error), 0);
  assert_int_equal(map.size, sizeof GOLDEN_IDX);
  assert_memory_equal(map.data, GOLDEN_IDX, sizeof GOLDEN_IDX);
  file_unmap(&map);
  assert_int_equal(file_map(bin, &map, &error), 0);
  assert_int_equal(map.size, sizeof GOLDEN_BIN);
  assert_memory_equal(map.data, GOLDEN_BIN, sizeof GOLDEN_BIN);
  file_unmap(&map);
}

static void test_golden_read(void **state) {
  put(idx, GOLDEN_IDX, sizeof GOLDEN_IDX);
  put(bin, GOLDEN_BIN, sizeof GOLDEN_BIN);
  Error error = {0};
  IndexedDataset d;
  assert_int_equal(indexed_open(&d, prefix, &error), 0);
  assert_int_equal(d.tokens, 4);
  assert_int_equal(d.documents, 3);
  assert_int_equal(d.type, INDEXED_UINT16);
  int64_t begins[] = {0, 3, 3, 4};
  for (int i = 0; i < 4; i++) assert_int_equal(indexed_document_begin(&d, i), begins[i]);
  int64_t documents[] = {0, 0, 0, 2}; // the empty one holds no position
  for (int i = 0; i < 4; i++) assert_int_equal(indexed_document_at(&d, i), documents[i]);
  int32_t ids[4];
  assert_int_equal(indexed_read(&d, 0, 4, 301, ids, &error), 0);
  assert_memory_equal(ids, ((int32_t[]){1, 2, 300, 4}), sizeof ids);
  assert_int_equal(indexed_read(&d, 4, 0, 301, ids, &error), 0);
  assert_int_equal(indexed_read(&d, 1, 3, 300, ids, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "set.bin: the token at position 2 has id 300, allowed are 0 to 299"));
  indexed_close(&d);
  indexed_close(&d);
}

// Several sequences a document, as Megatron may write them.
static void test_sequences(void **state) {
  uint8_t raw[34 + 3 * 12 + 2 * 8];
  memcpy(raw, GOLDEN_IDX, 34 + 36);
  raw[26] = 2; // two indices: one document of all three sequences
  memset(raw + 34 + 36, 0, 16);
  raw[34 + 36 + 8] = 3;
  put(idx, raw, sizeof raw);
  put(bin, GOLDEN_BIN, sizeof GOLDEN_BIN);
  Error error = {0};
  IndexedDataset d;
  assert_int_equal(indexed_open(&d, prefix, &error), 0);
  assert_int_equal(d.documents, 1);
  assert_int_equal(indexed_document_begin(&d, 1), 4);
  assert_int_equal(indexed_document_at(&d, 3), 0);
  indexed_close(&d);
}

static void test_round_trip(void **state) {
  struct {
    IndexedType type;
    uint32_t largest;
  } cases[] = {{INDEXED_UINT8, 255},    {INDEXED_INT8, 127},        {INDEXED_INT16, 32767},
               {INDEXED_UINT16, 65535}, {INDEXED_INT32, INT32_MAX}, {INDEXED_INT64, INT32_MAX}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Error error = {0};
    IndexedWriter w;
    enum { N = 70000 }; // more than the writer's buffer
    uint32_t *ids = xcalloc(N, sizeof *ids);
    for (uint32_t i = 0; i < N; i++) ids[i] = i * 2654435761u % (cases[c].largest + (uint64_t)1);
    ids[7] = cases[c].largest;
    assert_int_equal(indexed_writer_begin(&w, prefix, cases[c].type, &error), 0);
    for (int64_t at = 0, n = 0; at < N; at += n, n = (n * 3 + 1) % 5001) // ragged, some empty
      assert_int_equal(indexed_writer_add_document(&w, ids + at, n = n < N - at ? n : N - at, &error), 0);
    if (cases[c].largest < INT32_MAX) {
      assert_int_equal(indexed_writer_add_tokens(&w, &(uint32_t){cases[c].largest + 1}, 1, &error), PLAIT_BAD_INPUT);
      assert_non_null(strstr(error.message, "does not fit"));
      error = (Error){0};
    }
    assert_int_equal(indexed_writer_commit(&w, &error), 0);
    IndexedDataset d;
    assert_int_equal(indexed_open(&d, prefix, &error), 0);
    assert_int_equal(d.tokens, N);
    assert_int_equal(d.type, cases[c].type);
    int32_t *back = xcalloc(N, sizeof *back);
    assert_int_equal(indexed_read(&d, 0, N, 0, back, &error), 0);
    for (int i = 0; i < N; i++) assert_int_equal(back[i], ids[i]);
    for (int64_t k = 0; k < d.documents; k++) {
      int64_t begin = indexed_document_begin(&d, k), end = indexed_document_begin(&d, k + 1);
      if (begin == end) continue;
      assert_int_equal(indexed_document_at(&d, begin), k);
      assert_int_equal(indexed_document_at(&d, end - 1), k);
    }
    indexed_close(&d);
    free(ids);
    free(back);
  }
}

// Reads everything that an open dataset can be asked for; under the sanitizers this is what finds a bad check.
static void read_all(IndexedDataset *d) {
  Error error = {0};
  int32_t *ids = xcalloc((size_t)d->tokens + 1, sizeof *ids);
  indexed_read(d, 0, d->tokens, 0, ids, &error);
  for (int64_t i = 0; i < d->tokens; i++) {
    int64_t k = indexed_document_at(d, i);
    assert_true(indexed_document_begin(d, k) <= i && i < indexed_document_begin(d, k + 1));
  }
  free(ids);
}

static void test_truncated(void **state) {
  Error error = {0};
  IndexedDataset d;
  put(bin, GOLDEN_BIN, sizeof GOLDEN_BIN);
  for (size_t n = 0; n < sizeof GOLDEN_IDX; n++) {
    put(idx, GOLDEN_IDX, n);
    error = (Error){0};
    assert_int_equal(indexed_open(&d, prefix, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, "set.idx"));
    assert_null(d.prefix);
  }
  put(idx, GOLDEN_IDX, sizeof GOLDEN_IDX);
  for (size_t n = 0; n < sizeof GOLDEN_BIN; n++) {
    put(bin, GOLDEN_BIN, n);
    error = (Error){0};
    assert_int_equal(indexed_open(&d, prefix, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, "set.bin"));
  }
  uint8_t longer[sizeof GOLDEN_IDX + 3] = {0};
  memcpy(longer, GOLDEN_IDX, sizeof GOLDEN_IDX);
  put(idx, longer, sizeof longer);
  error = (Error){0};
  assert_int_equal(indexed_open(&d, prefix, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "modes"));
  assert_int_equal(unlink(bin), 0);
  put(idx, GOLDEN_IDX, sizeof GOLDEN_IDX);
  error = (Error){0};
  assert_int_equal(indexed_open(&d, prefix, &error), PLAIT_BAD_INPUT);
}

// Every byte of the index set to a few values: refused with a sentence, or harmless.
static void test_hostile(void **state) {
  put(bin, GOLDEN_BIN, sizeof GOLDEN_BIN);
  uint8_t values[] = {0, 1, 2, 5, 0x7f, 0x80, 0xff};
  int refused = 0;
  for (size_t at = 0; at < sizeof GOLDEN_IDX; at++)
    for (size_t v = 0; v < sizeof values; v++) {
      uint8_t raw[sizeof GOLDEN_IDX];
      memcpy(raw, GOLDEN_IDX, sizeof raw);
      raw[at] = values[v];
      put(idx, raw, sizeof raw);
      Error error = {0};
      IndexedDataset d;
      int code = indexed_open(&d, prefix, &error);
      if (code == PLAIT_OK) read_all(&d);
      else assert_true(code == PLAIT_BAD_INPUT && strstr(error.message, folder));
      refused += code != PLAIT_OK;
      indexed_close(&d);
    }
  assert_true(refused > 500);
  // Counts whose product overflows 64 bits to the right size.
  uint8_t raw[sizeof GOLDEN_IDX];
  memcpy(raw, GOLDEN_IDX, sizeof raw);
  uint64_t sequences = 3 + ((uint64_t)1 << 62); // 12 · 2^62 ≡ 0
  memcpy(raw + 18, &sequences, 8);
  put(idx, raw, sizeof raw);
  Error error = {0};
  IndexedDataset d;
  assert_int_equal(indexed_open(&d, prefix, &error), PLAIT_BAD_INPUT);
}

static void test_negative_id(void **state) {
  Error error = {0};
  IndexedWriter w;
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_INT32, &error), 0);
  assert_int_equal(indexed_writer_add_document(&w, (uint32_t[]){1, 2}, 2, &error), 0);
  assert_int_equal(indexed_writer_commit(&w, &error), 0);
  put(bin, (int32_t[]){1, -2}, 8);
  IndexedDataset d;
  int32_t ids[2];
  assert_int_equal(indexed_open(&d, prefix, &error), 0);
  assert_int_equal(indexed_read(&d, 0, 2, 100, ids, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "position 1 has id -2"));
  indexed_close(&d);
}

static void test_empty(void **state) {
  Error error = {0};
  assert_int_equal(synthetic_corpus(prefix, 0, 1, 1, 10, 1, &error), 0);
  IndexedDataset d;
  assert_int_equal(indexed_open(&d, prefix, &error), 0);
  assert_int_equal(d.tokens, 0);
  assert_int_equal(indexed_document_begin(&d, 0), 0);
  assert_int_equal(indexed_read(&d, 0, 0, 10, NULL, &error), 0);
  indexed_close(&d);
}

// An abandoned writer leaves the old dataset as it was and no temporary file; so does a disk that is full.
static void test_whole_or_not_at_all(void **state) {
  Error error = {0};
  put(idx, GOLDEN_IDX, sizeof GOLDEN_IDX);
  put(bin, GOLDEN_BIN, sizeof GOLDEN_BIN);
  IndexedWriter w;
  for (int full = 0; full < 2; full++) {
    assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_UINT8, &error), 0);
    assert_int_equal(indexed_writer_add_document(&w, (uint32_t[]){9}, 1, &error), 0);
    if (full) { // the index meets a full disk when it is written
      FILE *device = fopen("/dev/full", "wb");
      if (device) {
        fclose(w.idx.stream);
        w.idx.stream = device;
        assert_int_equal(indexed_writer_commit(&w, &error), PLAIT_UNWRITABLE);
        assert_non_null(strstr(error.message, "No space left"));
        error = (Error){0};
      }
    }
    indexed_writer_abandon(&w);
    IndexedDataset d;
    assert_int_equal(indexed_open(&d, prefix, &error), 0);
    assert_int_equal(d.tokens, 4);
    indexed_close(&d);
    char *temporary = xformat("%s.tmp.%ld", bin, (long)getpid());
    assert_false(file_exists(temporary));
    free(temporary);
  }
  char *nowhere = scratch_path(folder, "no/such/folder/set");
  assert_int_equal(indexed_writer_begin(&w, nowhere, INDEXED_UINT8, &error), PLAIT_FAILED);
  indexed_writer_abandon(&w);
  free(nowhere);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_golden_written, setup, teardown),
      cmocka_unit_test_setup_teardown(test_golden_read, setup, teardown),
      cmocka_unit_test_setup_teardown(test_sequences, setup, teardown),
      cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
      cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
      cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
      cmocka_unit_test_setup_teardown(test_negative_id, setup, teardown),
      cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
      cmocka_unit_test_setup_teardown(test_whole_or_not_at_all, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
