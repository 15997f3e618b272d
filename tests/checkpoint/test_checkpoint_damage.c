// tier 1
// Damaged checkpoints: every flipped bit, lost byte and hostile manifest is refused, and the newest sound one is found.
#include "pieces.h"


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

// Opens and loads all tensors; returns the code.
static int load_all(const char *path, Error *error) {
  Checkpoint *c;
  Pieces *p = xcalloc(1, sizeof *p);
  make_pieces(p, REPLICATED, 1);
  int code = checkpoint_open(&c, path, error);
  if (!code) code = checkpoint_load(c, p->t, p->count, 0, error);
  if (!code) check_pieces(p, 1);
  checkpoint_close(c);
  free_pieces(p);
  free(p);
  return code;
}


// 200 random flips of one bit in a checkpoint of four ranks: all are refused, and the sentence names the file.
static void test_random_bit_flips(void **state) {
  static const char *const files[] = {"checkpoint.json", "part-00000.safetensors", "part-00001.safetensors",
                                      "part-00002.safetensors", "part-00003.safetensors"};
  enum { FILES = 5, FLIPS = 200 };
  char *dir = path_in(folder, "random"), *path = path_in(dir, "step-1"), *names[FILES], *data[FILES];
  size_t bytes[FILES], total = 0;
  assert_int_equal(save(dir, 1, GRID, 4, 1, NULL, NULL), PLAIT_OK);
  assert_int_equal(load_all(path, NULL), PLAIT_OK);
  for (int f = 0; f < FILES; f++) {
    names[f] = path_in(path, files[f]);
    assert_int_equal(file_read(names[f], 1 << 24, &data[f], &bytes[f], NULL), PLAIT_OK);
    total += bytes[f];
  }
  for (uint64_t k = 0, x = 88172645463325252u; k < FLIPS; k++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17; // Marsaglia's xorshift: flips are the same in every run
    // every fourth in the manifest, the others anywhere
    size_t at = (size_t)(x >> 8) % (k % 4 ? total : bytes[0]);
    int f = 0, bit = (int)(x & 7);
    while (at >= bytes[f]) at -= bytes[f++];
    data[f][at] ^= (char)(1 << bit);
    overwrite(names[f], data[f], bytes[f]);
    Error error = {0};
    if (load_all(path, &error) != PLAIT_BAD_INPUT) fail_msg("%s: bit %d of byte %zu is not noticed", names[f], bit, at);
    if (!strstr(error.message, names[f])) fail_msg("%s is not named in: %s", names[f], error.message);
    data[f][at] ^= (char)(1 << bit);
    overwrite(names[f], data[f], bytes[f]);
  }
  assert_int_equal(load_all(path, NULL), PLAIT_OK);
  for (int f = 0; f < FILES; f++) free(names[f]), free(data[f]);
  free(path);
  free(dir);
}


// Manifests whose checksum fits but whose content was made to hurt.
static void test_hostile_manifests(void **state) {
#define HEAD "\"format\": \"plait checkpoint\", \"version\": 1, \"step\": 1, "
#define PART                                                                                                           \
  "\"parts\": [{\"file\": \"part-00000.safetensors\", \"bytes\": 100, \"checksum\": \"0123456789abcdef\"}], "          \
  "\"extra\": {}, "
#define TENSOR(shape, boxes)                                                                                           \
  HEAD PART "\"tensors\": {\"x\": {\"dtype\": \"F32\", \"shape\": " shape ", \"boxes\": " boxes "}}}"
  static const struct { const char *text, *word;
  } bad[] = {
      {"}", "not valid JSON"},
      {"\"a\": 1}", "not the manifest"},
      {"\"format\": \"plait checkpoint\", \"version\": 2}", "version 2"},
      {"\"format\": \"plait checkpoint\", \"version\": 1}", "step"},
      {HEAD "\"tensors\": {}}", "extra"},
      {HEAD "\"tensors\": {}, \"extra\": {}}", "parts"},
      {HEAD "\"tensors\": {}, \"extra\": {}, \"parts\": [1]}", "parts[0]"},
      {HEAD "\"tensors\": {}, \"extra\": {}, \"parts\": [{\"file\": \"../x\", \"bytes\": 1, \"checksum\": "
            "\"0123456789abcdef\"}]}",
       "parts[0]"},
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
      {TENSOR("[4]",
              "[{\"part\": 0, \"offset\": [0], \"shape\": [2]}, {\"part\": 0, \"offset\": [1], \"shape\": [3]}]"),
       "two pieces"},
  };
  char *path = path_in(folder, "hostile"), *file = path_in(path, "checkpoint.json");
  assert_int_equal(folder_create(path, NULL), PLAIT_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *text = xformat("{\"checksum\": \"%016llx\",\n%s",
                         (unsigned long long)checksum_of(bad[i].text, strlen(bad[i].text)), bad[i].text);
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
  assert_int_equal(checkpoint_prune(dir, 0, 0, &error), PLAIT_OK);
  assert_int_equal(checkpoint_prune(dir, 0, 2, &error), PLAIT_OK); // 12 and 11 are invalid: 10 must survive
  static const int expected[] = {0, 0, 1, 1, 1};
  for (int s = 8; s <= 12; s++) {
    file = xformat("%s/step-%d", dir, s);
    assert_int_equal(file_exists(file), expected[s - 8]);
    free(file);
  }
  save_small(dir, 13, 0);
  assert_int_equal(checkpoint_prune(dir, 0, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_latest_valid(dir, &step, NULL, &warnings, &error), 1);
  assert_int_equal(step, 13);
  assert_null(warnings);
  file = path_in(dir, "step-10");
  assert_false(file_exists(file));
  free(file);
  save_small(dir, 14, 0);
  save_small(dir, 9, 0); // a run that went back: what it has just written stays
  assert_int_equal(checkpoint_prune(dir, 9, 1, &error), PLAIT_OK);
  file = path_in(dir, "step-9/checkpoint.json");
  assert_true(file_exists(file));
  free(file);
  file = path_in(dir, "step-13");
  assert_false(file_exists(file));
  free(file);
  save_small(dir, 13, 0);
  assert_int_equal(checkpoint_prune(dir, 0, 2, &error), PLAIT_OK); // and then goes like any other
  for (int s = 13; s <= 14; s++) {
    file = xformat("%s/step-%d/part-00000.safetensors", dir, s);
    flip(file);
    free(file);
  }
  assert_int_equal(checkpoint_latest_valid(dir, &step, &c, NULL, &error), 0);
  assert_null(c);
  assert_int_equal(checkpoint_prune(dir, 0, 1, &error), PLAIT_OK); // none is valid: a person may still save something
  file = path_in(dir, "step-13");
  assert_true(file_exists(file));
  free(file);
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_bit_flip_is_refused),
      cmocka_unit_test(test_random_bit_flips),
      cmocka_unit_test(test_hostile_manifests),
      cmocka_unit_test(test_newest_valid_and_prune),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
