// Sharded checkpoints: every layout loads under every other, damage is refused, an unfinished one does not exist.
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/plait-checkpoint-XXXXXX";

static int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }
static int remove_folder(void **state) { return folder_remove(folder, NULL); }

static const struct { const char *name; Dtype dtype; int rank; int64_t global[4]; } model[] = {
    {"wte", DTYPE_F32, 2, {37, 12}}, {"bias", DTYPE_F64, 1, {7}},       {"step", DTYPE_F32, 0, {0}},
    {"qkv", DTYPE_BF16, 3, {5, 3, 4}}, {"ids", DTYPE_I64, 1, {9}},      {"conv", DTYPE_U16, 4, {2, 3, 4, 5}},
    {"none", DTYPE_F32, 2, {0, 3}},   {"one", DTYPE_U8, 2, {1, 1}},     {"big", DTYPE_F32, 2, {300, 1000}},
};
enum { TENSORS = sizeof model / sizeof *model, MAX_PIECES = 64, GUARD = 0xa5 };

typedef enum LayoutKind { REPLICATED, ROWS, COLUMNS, GRID, ZIGZAG, UNEVEN, LAYOUTS } LayoutKind;

// All pieces of all ranks. Every array is larger than its piece, so that writes beside it show.
typedef struct Pieces {
  CheckpointTensor t[TENSORS * MAX_PIECES];
  int rank_of[TENSORS * MAX_PIECES];
  size_t bytes[TENSORS * MAX_PIECES];
  int count;
} Pieces;

// What element `index` of tensor i holds: exact in every dtype of the table.
static double value_at(int i, int64_t index, int salt) { return (double)((index * 7 + i * 13 + salt) % 251); }

// Row-major when `padded` is 0, else an array with a gap after each row and each matrix.
static void make_piece(Pieces *p, int rank_of, int i, const int64_t *offset, const int64_t *local, int padded, int primary) {
  CheckpointTensor *t = &p->t[p->count];
  int64_t n = 1;
  *t = (CheckpointTensor){.name = model[i].name, .dtype = model[i].dtype, .rank = model[i].rank, .primary = primary};
  for (int d = t->rank - 1; d >= 0; d--) {
    t->global[d] = model[i].global[d];
    t->offset[d] = offset[d];
    t->local[d] = local[d];
    if (padded) t->stride[d] = n;
    n *= local[d] + (padded ? 2 : 0);
  }
  p->bytes[p->count] = (size_t)(n + 4) * dtype_size(t->dtype);
  t->data = xcalloc(p->bytes[p->count], 1);
  memset(t->data, GUARD, p->bytes[p->count]);
  p->rank_of[p->count++] = rank_of;
  assert_true(p->count <= TENSORS * MAX_PIECES);
}

// Part `r` of `n` of `size`: near-even, some parts empty when n is larger; or with very different sizes.
static void cut(int64_t size, int r, int n, int uneven, int64_t *offset, int64_t *local) {
  int64_t a = uneven ? size * r * r / (n * n) : size * r / n, b = uneven ? size * (r + 1) * (r + 1) / (n * n) : size * (r + 1) / n;
  *offset = a;
  *local = b - a;
}

static void make_pieces(Pieces *p, LayoutKind kind, int ranks) {
  memset(p, 0, sizeof *p);
  for (int r = 0; r < ranks; r++)
    for (int i = 0; i < TENSORS; i++) {
      int rank = model[i].rank, padded = (r + i + (int)kind) % 2, primary = 1;
      int64_t offset[4] = {0}, local[4];
      memcpy(local, model[i].global, sizeof local);
      if (kind == REPLICATED || rank == 0) primary = r == (i % ranks);
      else if (kind == ROWS || kind == UNEVEN) cut(local[0], r, ranks, kind == UNEVEN, &offset[0], &local[0]);
      else if (kind == COLUMNS) cut(local[rank - 1], r, ranks, 0, &offset[rank - 1], &local[rank - 1]);
      else if (kind == GRID && rank >= 2) {
        int columns = ranks % 2 ? 1 : 2;
        cut(model[i].global[0], r / columns, ranks / columns, 0, &offset[0], &local[0]);
        cut(model[i].global[1], r % columns, columns, 0, &offset[1], &local[1]);
      } else if (kind == GRID) { // shards of dim 0, each held twice, once as primary
        int halves = (ranks + 1) / 2;
        cut(model[i].global[0], r % halves, halves, 0, &offset[0], &local[0]);
        primary = r < halves;
      } else { // zigzag: chunks r and 2n-1-r
        cut(model[i].global[0], r, 2 * ranks, 0, &offset[0], &local[0]);
        make_piece(p, r, i, offset, local, padded, 1);
        cut(model[i].global[0], 2 * ranks - 1 - r, 2 * ranks, 0, &offset[0], &local[0]);
      }
      make_piece(p, r, i, offset, local, padded, primary);
    }
}

static void free_pieces(Pieces *p) {
  for (int i = 0; i < p->count; i++) free(p->t[i].data);
}

static int tensor_of(const char *name) {
  for (int i = 0; i < TENSORS; i++)
    if (!strcmp(model[i].name, name)) return i;
  return -1;
}

// Visits each element of a piece: writes its value, or compares it. Returns the elements visited.
static int64_t visit(const CheckpointTensor *t, int salt, int compare) {
  int64_t index[4] = {0}, stride[4], n = 1, total = 1, seen = 0;
  int i = tensor_of(t->name);
  for (int d = t->rank - 1; d >= 0; d--) {
    stride[d] = t->stride[d] ? t->stride[d] : n;
    n *= t->local[d];
    total *= t->local[d];
  }
  for (; seen < total; seen++) {
    int64_t global = 0, at = 0;
    for (int d = 0; d < t->rank; d++) {
      global = global * t->global[d] + t->offset[d] + index[d];
      at += index[d] * stride[d];
    }
    if (!compare) dtype_store(t->data, t->dtype, at, value_at(i, global, salt));
    else if (dtype_load(t->data, t->dtype, at) != value_at(i, global, salt)) fail_msg("%s element %lld", t->name, (long long)global);
    for (int d = t->rank - 1; d >= 0; d--) {
      if (++index[d] < t->local[d]) break;
      index[d] = 0;
    }
  }
  return total;
}

static void check_pieces(const Pieces *p, int salt) {
  for (int i = 0; i < p->count; i++) {
    const uint8_t *bytes = p->t[i].data;
    size_t guards = 0, size = dtype_size(p->t[i].dtype);
    int64_t elements = visit(&p->t[i], salt, 1);
    // What is not the piece's was not touched: at least the bytes outside of it still hold the guard.
    for (size_t b = 0; b < p->bytes[i]; b++) guards += bytes[b] == GUARD;
    assert_true(guards >= p->bytes[i] - (size_t)elements * size);
  }
}

static int write_parts(const char *dir, int64_t step, const Pieces *p, int ranks, Error *error) {
  int code = PLAIT_OK;
  for (int r = 0; r < ranks && !code; r++) {
    CheckpointTensor *mine = xcalloc((size_t)p->count, sizeof *mine);
    int n = 0;
    for (int i = 0; i < p->count; i++)
      if (p->rank_of[i] == r) mine[n++] = p->t[i];
    code = checkpoint_write_part(dir, step, r, mine, n, error);
    free(mine);
  }
  return code;
}

static int save(const char *dir, int64_t step, LayoutKind kind, int ranks, int salt, json_t *extra, Error *error) {
  Pieces *p = xcalloc(1, sizeof *p);
  make_pieces(p, kind, ranks);
  for (int i = 0; i < p->count; i++) visit(&p->t[i], salt, 0);
  int code = checkpoint_begin(dir, step, error);
  if (!code) code = write_parts(dir, step, p, ranks, error);
  if (!code) code = checkpoint_finish(dir, step, ranks, extra, error);
  free_pieces(p);
  free(p);
  return code;
}

static void load_and_check(Checkpoint *c, LayoutKind kind, int ranks, int salt) {
  Pieces *p = xcalloc(1, sizeof *p);
  Error error = {0};
  make_pieces(p, kind, ranks);
  if (checkpoint_load(c, p->t, p->count, 0, &error)) fail_msg("%s", error.message);
  check_pieces(p, salt);
  free_pieces(p);
  free(p);
}

static char *path_in(const char *a, const char *b) { return xformat("%s/%s", a, b); }

static int is_empty_folder(const char *path) {
  DIR *d = opendir(path);
  int n = 0;
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n == 2;
}

static void test_every_layout_under_every_other(void **state) {
  static const int ranks[] = {1, 2, 3, 4, 8};
  char *dir = path_in(folder, "layouts");
  for (int from = 0; from < LAYOUTS; from++) {
    int n = ranks[(from + 3) % 5];
    Error error = {0};
    if (save(dir, from, (LayoutKind)from, n, from, NULL, &error)) fail_msg("layout %d, %d ranks: %s", from, n, error.message);
    char *path = xformat("%s/step-%d", dir, from);
    Checkpoint *c;
    assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
    assert_int_equal(checkpoint_count(c), TENSORS);
    for (int to = 0; to < LAYOUTS; to++)
      for (int k = to % 2; k < 5; k += 2) load_and_check(c, (LayoutKind)to, ranks[k], from);
    checkpoint_close(c);
    free(path);
  }
  free(dir);
}

static void test_extra_entries_and_replacing(void **state) {
  char *dir = path_in(folder, "replace"), *path = path_in(dir, "step-5");
  json_t *extra = json_pack("{s:I, s:f, s:s}", "tokens", (json_int_t)1 << 60, "lr", 0.1, "recipe", "model: \"é\"\n");
  Checkpoint *c;
  Error error = {0};
  assert_int_equal(save(dir, 5, ROWS, 2, 1, NULL, &error), PLAIT_OK);
  assert_int_equal(save(dir, 5, COLUMNS, 4, 2, extra, &error), PLAIT_OK); // takes the place of the first
  assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
  assert_true(json_equal(checkpoint_extra(c), extra));
  assert_int_equal(checkpoint_step(c), 5);
  assert_string_equal(checkpoint_path(c), path);
  load_and_check(c, GRID, 4, 2);
  assert_string_equal(checkpoint_entry(c, 0)->name, "bias");
  assert_int_equal(checkpoint_find(c, "qkv")->dtype, DTYPE_BF16);
  assert_int_equal(checkpoint_find(c, "qkv")->global[2], 4);
  assert_null(checkpoint_find(c, "qk"));
  checkpoint_close(c);
  char *left = path_in(dir, "step-5.tmp");
  assert_false(file_exists(left));
  free(left);
  json_decref(extra);
  free(path);
  free(dir);
}

static int no_ids(const char *name, void *context) { return strcmp(name, "ids") != 0; }

static void test_names_shapes_dtypes(void **state) {
  char *dir = path_in(folder, "names"), *path = path_in(dir, "step-0");
  const char *names[TENSORS + 1];
  Checkpoint *c;
  Error error = {0};
  assert_int_equal(save(dir, 0, ROWS, 3, 0, NULL, &error), PLAIT_OK);
  assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
  int n = 0;
  for (int i = 0; i < TENSORS; i++)
    if (i != 4) names[n++] = model[i].name; // without ids
  assert_int_equal(checkpoint_compare_names(c, names, n, no_ids, NULL, &error), PLAIT_OK);
  assert_int_equal(checkpoint_compare_names(c, names, n, NULL, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "has 1 tensor(s) that are not wanted: ids"));
  names[0] = "wpe";
  error = (Error){0};
  assert_int_equal(checkpoint_compare_names(c, names, n, no_ids, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "lacks 1 tensor(s): wpe and has 1 tensor(s) that are not wanted: wte"));

  float x[12] = {0};
  double y[12];
  CheckpointTensor w = {.name = "wpe", .dtype = DTYPE_F32, .rank = 2, .global = {37, 12}, .local = {1, 12}, .data = x};
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "lacks 1 tensor(s): wpe"));
  w.name = "wte";
  w.global[0] = 38;
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "wte is [37, 12] in the checkpoint but [38, 12] here"));
  w.global[0] = 37;
  w.dtype = DTYPE_F64;
  w.data = y;
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "is fp32 in the checkpoint but fp64 here"));
  assert_int_equal(checkpoint_load(c, &w, 1, 1, NULL), PLAIT_OK);
  for (int i = 0; i < 12; i++) assert_true(y[i] == value_at(0, i, 0));
  w.dtype = DTYPE_I64;
  assert_int_equal(checkpoint_load(c, &w, 1, 1, NULL), PLAIT_BAD_INPUT); // no float
  w.dtype = DTYPE_F32;
  w.offset[0] = 37;
  assert_true(checkpoint_load(c, &w, 1, 0, NULL) < 0); // outside
  int64_t offset[] = {3, 1, 0}, local[] = {1, 2, 4};
  assert_int_equal(checkpoint_read_box(c, "qkv", offset, local, DTYPE_F32, x, NULL), PLAIT_OK);
  for (int i = 0; i < 8; i++) assert_true(x[i] == (float)value_at(3, (3 * 3 + 1) * 4 + i, 0));
  assert_int_equal(checkpoint_read_box(c, "step", NULL, NULL, DTYPE_F32, x, NULL), PLAIT_OK);
  assert_true(x[0] == (float)value_at(2, 0, 0));
  assert_int_equal(checkpoint_read_box(c, "gone", offset, local, DTYPE_F32, x, NULL), PLAIT_BAD_INPUT);
  checkpoint_close(c);
  free(path);
  free(dir);
}

static void finish_fails(const char *dir, const CheckpointTensor *tensors, int count, int parts, const char *word) {
  Error error = {0};
  assert_int_equal(checkpoint_begin(dir, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, 1, 0, tensors, count, &error), PLAIT_OK);
  assert_true(checkpoint_finish(dir, 1, parts, NULL, &error) < 0);
  if (!strstr(error.message, word)) fail_msg("no '%s' in: %s", word, error.message);
  checkpoint_abandon(dir, 1);
  assert_true(is_empty_folder(dir));
}

static void test_coverage(void **state) {
  char *dir = path_in(folder, "coverage");
  float x[12] = {0};
  CheckpointTensor a = {.name = "x", .dtype = DTYPE_F32, .rank = 2, .global = {4, 3}, .local = {2, 3}, .data = x, .primary = 1};
  CheckpointTensor two[2] = {a, a};
  finish_fails(dir, two, 1, 1, "hold 6 of 12 elements");
  two[1].offset[0] = 1;
  finish_fails(dir, two, 2, 1, "two pieces hold the elements at [1, 0]");
  two[1].offset[0] = 2;
  two[1].primary = 0;
  finish_fails(dir, two, 2, 1, "hold 6 of 12 elements");
  two[1].primary = 1;
  finish_fails(dir, two, 2, 2, "part-00001");
  two[1].global[0] = 5;
  finish_fails(dir, two, 2, 1, "another dtype or global shape");
  two[1] = a;
  assert_int_equal(checkpoint_begin(dir, 1, NULL), PLAIT_OK);
  assert_true(checkpoint_write_part(dir, 1, 0, two, 2, NULL) < 0); // the same piece twice
  two[1].offset[0] = 3;
  Error error = {0};
  assert_true(checkpoint_write_part(dir, 1, 0, two, 2, &error) < 0);
  assert_non_null(strstr(error.message, "does not lie inside its shape [4, 3]"));
  checkpoint_abandon(dir, 1);
  free(dir);
}

// A small checkpoint of two parts, for damage.
static void save_small(const char *dir, int64_t step, float first) {
  float x[6] = {first, 1, 2, 3, 4, 5};
  CheckpointTensor a = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {6}, .local = {3}, .data = x, .primary = 1}, b = a;
  b.offset[0] = 3;
  b.data = x + 3;
  Error error = {0};
  assert_int_equal(checkpoint_begin(dir, step, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, step, 0, &a, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, step, 1, &b, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_finish(dir, step, 2, NULL, &error), PLAIT_OK);
}

static void overwrite(const char *path, const char *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  fclose(f);
}

// Opens and loads all; returns the code.
static int try_all(const char *path, Error *error) {
  Checkpoint *c;
  float x[6];
  CheckpointTensor w = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {6}, .local = {6}, .data = x};
  int code = checkpoint_open(&c, path, error);
  if (!code) code = checkpoint_load(c, &w, 1, 0, error);
  if (!code)
    for (int i = 0; i < 6; i++) assert_true(x[i] == (float)i);
  checkpoint_close(c);
  return code;
}

static void test_every_bit_flip_is_refused(void **state) {
  static const char *const files[] = {"checkpoint.json", "part-00000.safetensors", "part-00001.safetensors"};
  char *dir = path_in(folder, "flips"), *path = path_in(dir, "step-1");
  save_small(dir, 1, 0);
  assert_int_equal(try_all(path, NULL), PLAIT_OK);
  for (int f = 0; f < 3; f++) {
    char *file = path_in(path, files[f]), *data;
    size_t bytes;
    assert_int_equal(file_read(file, 1 << 20, &data, &bytes, NULL), PLAIT_OK);
    for (size_t i = 0; i < bytes; i++)
      for (int bit = (int)(i % 3); bit < 8; bit += 3) {
        Error error = {0};
        data[i] ^= (char)(1 << bit);
        overwrite(file, data, bytes);
        if (try_all(path, &error) != PLAIT_BAD_INPUT) fail_msg("%s: bit %d of byte %zu", files[f], bit, i);
        assert_non_null(strstr(error.message, file));
        data[i] ^= (char)(1 << bit);
      }
    for (size_t n = 0; n < bytes; n += 5) {
      overwrite(file, data, n);
      Error error = {0};
      assert_int_equal(try_all(path, &error), PLAIT_BAD_INPUT);
      assert_non_null(strstr(error.message, file));
    }
    overwrite(file, data, bytes);
    assert_int_equal(try_all(path, NULL), PLAIT_OK);
    unlink(file);
    assert_int_equal(try_all(path, NULL), PLAIT_BAD_INPUT);
    overwrite(file, data, bytes);
    free(data);
    free(file);
  }
  free(path);
  free(dir);
}

// Manifests whose checksum fits but whose content was made to hurt.
static void test_hostile_manifests(void **state) {
#define HEAD "\"format\": \"plait checkpoint\", \"version\": 1, \"step\": 1, "
#define PART "\"parts\": [{\"file\": \"part-00000.safetensors\", \"bytes\": 100, \"checksum\": \"0123456789abcdef\"}], \"extra\": {}, "
#define TENSOR(shape, boxes) HEAD PART "\"tensors\": {\"x\": {\"dtype\": \"F32\", \"shape\": " shape ", \"boxes\": " boxes "}}}"
  static const struct { const char *text, *word; } bad[] = {
      {"}", "not valid JSON"},
      {"\"a\": 1}", "not the manifest"},
      {"\"format\": \"plait checkpoint\", \"version\": 2}", "version 2"},
      {"\"format\": \"plait checkpoint\", \"version\": 1}", "step"},
      {HEAD "\"tensors\": {}}", "extra"},
      {HEAD "\"tensors\": {}, \"extra\": {}}", "parts"},
      {HEAD "\"tensors\": {}, \"extra\": {}, \"parts\": [1]}", "parts[0]"},
      {HEAD "\"tensors\": {}, \"extra\": {}, \"parts\": [{\"file\": \"../x\", \"bytes\": 1, \"checksum\": \"0123456789abcdef\"}]}", "parts[0]"},
      {HEAD PART "\"tensors\": {\"x\": 1}}", "dtype or shape"},
      {TENSOR("[-1]", "[]"), "dtype or shape"},
      {TENSOR("[4294967296, 4294967296]", "[]"), "dtype or shape"},
      {TENSOR("[1,1,1,1,1,1,1,1,1]", "[]"), "dtype or shape"},
      {TENSOR("[4]", "1"), "boxes"},
      {TENSOR("[4]", "[]"), "0 of 4"},
      {TENSOR("[4]", "[1]"), "boxes[0]"},
      {TENSOR("[4]", "[{\"part\": 1, \"offset\": [0], \"shape\": [4]}]"), "boxes[0]"},
      {TENSOR("[4]", "[{\"part\": -1, \"offset\": [0], \"shape\": [4]}]"), "boxes[0]"},
      {TENSOR("[4]", "[{\"part\": 0, \"offset\": [9223372036854775807], \"shape\": [4]}]"), "boxes[0]"},
      {TENSOR("[4]", "[{\"part\": 0, \"offset\": [2], \"shape\": [9223372036854775807]}]"), "boxes[0]"},
      {TENSOR("[4]", "[{\"part\": 0, \"offset\": [0], \"shape\": [2]}, {\"part\": 0, \"offset\": [1], \"shape\": [3]}]"), "two pieces"},
  };
  char *path = path_in(folder, "hostile"), *file = path_in(path, "checkpoint.json");
  assert_int_equal(folder_create(path, NULL), PLAIT_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *text = xformat("{\"checksum\": \"%016llx\",\n%s", (unsigned long long)checksum_of(bad[i].text, strlen(bad[i].text)), bad[i].text);
    Checkpoint *c;
    Error error = {0};
    overwrite(file, text, strlen(text));
    assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_BAD_INPUT);
    if (!strstr(error.message, bad[i].word)) fail_msg("no '%s' in: %s", bad[i].word, error.message);
    assert_non_null(strstr(error.message, file));
    free(text);
  }
  free(file);
  free(path);
}

static void flip(const char *path) {
  char *data;
  size_t bytes;
  assert_int_equal(file_read(path, 1 << 20, &data, &bytes, NULL), PLAIT_OK);
  data[bytes - 1] ^= 1;
  overwrite(path, data, bytes);
  free(data);
}

static void test_newest_valid_and_prune(void **state) {
  char *dir = path_in(folder, "prune"), *warnings, *file;
  int64_t step = -7;
  Checkpoint *c;
  Error error = {0};
  assert_int_equal(checkpoint_latest_valid(dir, &step, &c, &warnings, &error), 0);
  assert_null(c);
  assert_null(warnings);
  for (int64_t s = 8; s <= 12; s++) save_small(dir, s, 0); // 9 < 10 as numbers, not as text
  file = path_in(dir, "step-0100"); // not a name of ours
  assert_int_equal(folder_create(file, NULL), PLAIT_OK);
  free(file);
  assert_int_equal(checkpoint_latest_valid(dir, &step, &c, NULL, &error), 1);
  assert_int_equal(step, 12);
  assert_int_equal(checkpoint_step(c), 12);
  checkpoint_close(c);
  file = path_in(dir, "step-12/part-00001.safetensors");
  flip(file);
  free(file);
  file = path_in(dir, "step-11/checkpoint.json");
  unlink(file);
  free(file);
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, &warnings, &error), 1);
  assert_int_equal(step, 10);
  assert_non_null(strstr(warnings, "step-12/part-00001.safetensors: damaged"));
  assert_non_null(strstr(warnings, "step-11/checkpoint.json"));
  free(warnings);
  assert_int_equal(checkpoint_prune(dir, 0, &error), PLAIT_OK);
  assert_int_equal(checkpoint_prune(dir, 2, &error), PLAIT_OK); // 12 and 11 are invalid: 10 must survive
  static const int expected[] = {0, 0, 1, 1, 1};
  for (int s = 8; s <= 12; s++) {
    file = xformat("%s/step-%d", dir, s);
    assert_int_equal(file_exists(file), expected[s - 8]);
    free(file);
  }
  save_small(dir, 13, 0);
  assert_int_equal(checkpoint_prune(dir, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, &warnings, &error), 1);
  assert_int_equal(step, 13);
  assert_null(warnings);
  file = path_in(dir, "step-10");
  assert_false(file_exists(file));
  free(file);
  save_small(dir, 14, 0);
  for (int s = 13; s <= 14; s++) {
    file = xformat("%s/step-%d/part-00000.safetensors", dir, s);
    flip(file);
    free(file);
  }
  assert_int_equal(checkpoint_latest_valid(dir, &step, &c, NULL, &error), 0);
  assert_null(c);
  assert_int_equal(checkpoint_prune(dir, 1, &error), PLAIT_OK); // none is valid: a person may still save something
  file = path_in(dir, "step-13");
  assert_true(file_exists(file));
  free(file);
  free(dir);
}

static void test_unfinished_does_not_exist(void **state) {
  char *dir = path_in(folder, "unfinished"), *stale = path_in(dir, "step-2.tmp"), *file = path_in(stale, "part-00000.safetensors");
  int64_t step;
  float x = 1;
  CheckpointTensor a = {.name = "x", .dtype = DTYPE_F32, .data = &x, .primary = 1};
  save_small(dir, 1, 0);
  assert_int_equal(checkpoint_begin(dir, 2, NULL), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, 2, 0, &a, 1, NULL), PLAIT_OK);
  assert_true(file_exists(file)); // the process dies here
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, NULL, NULL), 1);
  assert_int_equal(step, 1);
  assert_int_equal(checkpoint_begin(dir, 3, NULL), PLAIT_OK);
  assert_false(file_exists(stale));
  checkpoint_abandon(dir, 3);
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, NULL, NULL), 1);
  assert_int_equal(step, 1);
  free(file);
  free(stale);
  free(dir);
}

// A child saves without end and is killed at some moment; what is there is whole, and the next child goes on.
static void test_kill(void **state) {
  char *dir = path_in(folder, "kill");
  int64_t last = 0;
  for (int round = 0; round < 12; round++) {
    int done[2];
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
      for (int64_t s = last + 1;; s++) {
        if (save(dir, s, (LayoutKind)(s % LAYOUTS), 2 + (int)(s % 3), (int)(s % 100), NULL, NULL)) _exit(1);
        if (checkpoint_prune(dir, 2, NULL) || write(done[1], "", 1) != 1) _exit(1);
      }
    }
    // Every other round sees a save through first, so that there is progress on the slowest machine.
    char byte;
    close(done[1]);
    if (round % 2) assert_int_equal(read(done[0], &byte, 1), 1);
    usleep((useconds_t)(5000 + 7300 * round));
    kill(child, SIGKILL);
    close(done[0]);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    int64_t step = 0;
    char *warnings;
    Checkpoint *c;
    int found = checkpoint_latest_valid(dir, &step, &c, &warnings, NULL);
    assert_true(found == 1 || (found == 0 && !last));
    assert_null(warnings); // nothing half done looks like a checkpoint
    if (!found) continue;
    assert_true(step >= last);
    load_and_check(c, REPLICATED, 1, (int)(step % 100));
    checkpoint_close(c);
    last = step;
  }
  assert_true(last > 0);
  free(dir);
}

static void test_gathered(void **state) {
  char *path = path_in(folder, "gathered.safetensors");
  for (int kind = 0; kind < LAYOUTS; kind++) {
    Pieces *p = xcalloc(1, sizeof *p);
    Error error = {0};
    Safetensors t;
    make_pieces(p, (LayoutKind)kind, 1 + kind);
    for (int i = 0; i < p->count; i++) visit(&p->t[i], kind, 0);
    if (safetensors_write_gathered(path, p->t, p->count, &error)) fail_msg("%s", error.message);
    assert_int_equal(safetensors_open(&t, path, &error), PLAIT_OK);
    assert_int_equal(t.count, TENSORS);
    assert_string_equal(safetensors_metadata(&t, "format"), "pt");
    for (int i = 0; i < TENSORS; i++) {
      const SafetensorsEntry *e = safetensors_find(&t, model[i].name);
      assert_non_null(e);
      assert_int_equal(e->dtype, model[i].dtype);
      assert_int_equal(e->rank, model[i].rank);
      assert_memory_equal(e->dims, model[i].global, sizeof(int64_t) * (size_t)e->rank);
      for (int64_t k = 0; k < safetensors_elements(e); k++) assert_true(dtype_load(e->data, model[i].dtype, k) == value_at(i, k, kind));
    }
    safetensors_close(&t);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < p->count; i++)
      if (!strcmp(p->t[i].name, "wte") && p->t[i].primary && p->t[i].local[0]) {
        p->t[i].primary = 0;
        break;
      }
    assert_true(safetensors_write_gathered(path, p->t, p->count, &error) < 0);
    assert_non_null(strstr(error.message, "tensor wte"));
    assert_false(file_exists(path));
    free_pieces(p);
    free(p);
  }
  free(path);
}

typedef struct Worker { const char *dir; Checkpoint *c; Pieces *p; int rank, code; } Worker;

static void *write_one(void *argument) {
  Worker *w = argument;
  CheckpointTensor *mine = xcalloc((size_t)w->p->count, sizeof *mine);
  int n = 0;
  for (int i = 0; i < w->p->count; i++)
    if (w->p->rank_of[i] == w->rank) mine[n++] = w->p->t[i];
  w->code = w->c ? checkpoint_load(w->c, mine, n, 0, NULL) : checkpoint_write_part(w->dir, 1, w->rank, mine, n, NULL);
  free(mine);
  return NULL;
}

static void on_threads(const char *dir, Checkpoint *c, Pieces *p, int ranks) {
  pthread_t threads[8];
  Worker workers[8];
  for (int r = 0; r < ranks; r++) {
    workers[r] = (Worker){dir, c, p, r, PLAIT_FAILED};
    assert_int_equal(pthread_create(&threads[r], NULL, write_one, &workers[r]), 0);
  }
  for (int r = 0; r < ranks; r++) {
    pthread_join(threads[r], NULL);
    assert_int_equal(workers[r].code, PLAIT_OK);
  }
}

static void test_threads(void **state) {
  char *dir = path_in(folder, "threads"), *path = path_in(dir, "step-1");
  Pieces *p = xcalloc(1, sizeof *p);
  Checkpoint *c;
  make_pieces(p, ROWS, 8);
  for (int i = 0; i < p->count; i++) visit(&p->t[i], 3, 0);
  assert_int_equal(checkpoint_begin(dir, 1, NULL), PLAIT_OK);
  on_threads(dir, NULL, p, 8);
  assert_int_equal(checkpoint_finish(dir, 1, 8, NULL, NULL), PLAIT_OK);
  free_pieces(p);
  make_pieces(p, COLUMNS, 6);
  assert_int_equal(checkpoint_open(&c, path, NULL), PLAIT_OK);
  on_threads(dir, c, p, 6);
  check_pieces(p, 3);
  checkpoint_close(c);
  free_pieces(p);
  free(p);
  free(path);
  free(dir);
}

// The disk fills up during a part or during the manifest: a sentence, the older checkpoint stays, nothing else does.
static void fails_for_lack_of_space(const char *dir, const char *why) {
  Error error = {0};
  int64_t step = -1;
  assert_int_equal(save(dir, 2, COLUMNS, 2, 0, NULL, &error), PLAIT_FAILED);
  if (!strstr(error.message, why)) fail_msg("no '%s' in: %s", why, error.message);
  assert_non_null(strstr(error.message, dir));
  checkpoint_abandon(dir, 2);
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, NULL, NULL), 1);
  assert_int_equal(step, 1);
  char *left = path_in(dir, "step-2.tmp");
  assert_false(file_exists(left));
  free(left);
}

static void test_file_size_limit(void **state) {
  char *dir = path_in(folder, "limit");
  struct rlimit old, small;
  save_small(dir, 1, 0);
  getrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit = 100; limit < 600000; limit = limit * 3 + 1) {
    small = (struct rlimit){limit, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    fails_for_lack_of_space(dir, strerror(EFBIG));
  }
  setrlimit(RLIMIT_FSIZE, &old);
  free(dir);
}

static void test_full_disk(void **state) {
  char *dir = path_in(folder, "full");
  assert_int_equal(folder_create(dir, NULL), PLAIT_OK);
  if (mount("tmpfs", dir, "tmpfs", 0, "size=512k")) {
    printf("  skipped: no right to mount a small tmpfs (%s)\n", strerror(errno));
    free(dir);
    skip();
  }
  save_small(dir, 1, 0);
  fails_for_lack_of_space(dir, strerror(ENOSPC));
  assert_int_equal(umount(dir), 0);
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_layout_under_every_other),
      cmocka_unit_test(test_extra_entries_and_replacing),
      cmocka_unit_test(test_names_shapes_dtypes),
      cmocka_unit_test(test_coverage),
      cmocka_unit_test(test_every_bit_flip_is_refused),
      cmocka_unit_test(test_hostile_manifests),
      cmocka_unit_test(test_newest_valid_and_prune),
      cmocka_unit_test(test_unfinished_does_not_exist),
      cmocka_unit_test(test_kill),
      cmocka_unit_test(test_gathered),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_file_size_limit),
      cmocka_unit_test(test_full_disk),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
