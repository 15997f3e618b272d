// tier 1
// safetensors: round trips, folders of shards, and files that were made to hurt.
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/plait-safetensors-XXXXXX";

static int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }
static int remove_folder(void **state) { return folder_remove(folder, NULL); }

static const char *in_folder(const char *name) {
  static char path[4][200];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

// Not truncated to nothing first: file systems then write it to the disk when it is closed, and here it is so for
// thousands of files.
static void put(const char *path, const void *data, size_t bytes) {
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, bytes), bytes);
  assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
  assert_int_equal(close(fd), 0);
}

static void refused(const char *path, const char *word) {
  Safetensors t;
  Error error = {0};
  int code = safetensors_open(&t, path, &error);
  if (code != PLAIT_BAD_INPUT) fail_msg("%s was not refused (%s)", path, word);
  assert_non_null(strstr(error.message, path));
  if (!strstr(error.message, word)) fail_msg("no '%s' in: %s", word, error.message);
}

static const float a[6] = {1, 2, 3, 4, 5, 6}, s[1] = {7};
static const uint16_t h[3] = {0x3f80, 0x4000, 0x4040};
static const uint8_t u[5] = {1, 2, 3, 4, 5};

static void write_sample(const char *path) {
  SafetensorsEntry entries[] = {
      {.name = "a.weight", .dtype = DTYPE_F32, .rank = 2, .dims = {2, 3}, .data = a},
      {.name = "scalar", .dtype = DTYPE_F32, .rank = 0, .data = s},
      {.name = "empty", .dtype = DTYPE_F64, .rank = 3, .dims = {4, 0, 2}},
      {.name = "h", .dtype = DTYPE_BF16, .rank = 1, .dims = {3}, .data = h},
      {.name = "mask \"é\"", .dtype = -1, .dtype_name = "BOOL", .rank = 1, .dims = {5}, .data = u, .bytes = 5},
  };
  const char *metadata[] = {"format", "pt", "who", "plait", NULL};
  Error error = {0};
  assert_int_equal(safetensors_write(path, entries, 5, metadata, &error), PLAIT_OK);
}

static void test_checksum(void **state) {
  uint8_t data[1000];
  for (int i = 0; i < 1000; i++) data[i] = (uint8_t)(i * 131 + (i >> 3));
  assert_true(checksum_of("", 0) == 0xEF46DB3751D8E999u); // the algorithm's published values
  assert_true(checksum_of("abc", 3) == 0x44BC2CF5AD770999u);
  for (size_t n = 0; n < 200; n++) {
    uint64_t whole = checksum_of(data, n);
    Checksum c;
    checksum_begin(&c);
    for (size_t i = 0, step; i < n; i += step) {
      step = 1 + (i * 7 + n) % 41;
      if (step > n - i) step = n - i;
      checksum_feed(&c, data + i, step);
    }
    assert_true(checksum_value(&c) == whole);
    for (size_t bit = 0; bit < 8 * n; bit += 3) {
      data[bit / 8] ^= (uint8_t)(1 << bit % 8);
      assert_true(checksum_of(data, n) != whole);
      data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
}

static void test_round_trip(void **state) {
  const char *path = in_folder("sample.safetensors");
  Safetensors t;
  Error error = {0};
  write_sample(path);
  assert_int_equal(safetensors_open(&t, path, &error), PLAIT_OK);
  assert_int_equal(t.count, 5);
  const SafetensorsEntry *e = safetensors_find(&t, "a.weight");
  assert_non_null(e);
  assert_int_equal(e->dtype, DTYPE_F32);
  assert_int_equal(e->rank, 2);
  assert_int_equal(e->dims[1], 3);
  assert_int_equal((uintptr_t)e->data % 8, 0);
  assert_memory_equal(e->data, a, sizeof a);
  e = safetensors_find(&t, "scalar");
  assert_int_equal(e->rank, 0);
  assert_int_equal(safetensors_elements(e), 1);
  assert_memory_equal(e->data, s, sizeof s);
  e = safetensors_find(&t, "empty");
  assert_int_equal(e->bytes, 0);
  assert_int_equal(safetensors_elements(e), 0);
  e = safetensors_find(&t, "mask \"é\"");
  assert_int_equal(e->dtype, -1);
  assert_string_equal(e->dtype_name, "BOOL");
  assert_memory_equal(e->data, u, 5);
  assert_null(safetensors_find(&t, "a"));
  assert_string_equal(safetensors_metadata(&t, "who"), "plait");
  assert_null(safetensors_metadata(&t, "what"));
  safetensors_close(&t);
  safetensors_close(&t);
  assert_int_equal(safetensors_write(in_folder("none.safetensors"), NULL, 0, NULL, &error), PLAIT_OK);
  assert_int_equal(safetensors_open(&t, in_folder("none.safetensors"), &error), PLAIT_OK);
  assert_int_equal(t.count, 0);
  assert_null(safetensors_find(&t, "x"));
  safetensors_close(&t);
}

static void test_writer_refuses(void **state) {
  const char *path = in_folder("refused.safetensors");
  SafetensorsEntry twice[] = {{.name = "x", .dtype = DTYPE_U8, .rank = 1, .dims = {5}, .data = u},
                              {.name = "x", .dtype = DTYPE_U8, .rank = 1, .dims = {5}, .data = u}};
  SafetensorsEntry huge = {.name = "x", .dtype = DTYPE_F32, .rank = 3, .dims = {1 << 30, 1 << 30, 1 << 30}};
  SafetensorsEntry meta = {.name = "__metadata__", .dtype = DTYPE_U8, .rank = 1, .dims = {5}, .data = u};
  SafetensorsEntry bytes = {.name = "\xff\xfe", .dtype = DTYPE_U8, .rank = 1, .dims = {5}, .data = u};
  SafetensorsWriter w;
  assert_int_equal(safetensors_write(path, twice, 2, NULL, NULL), PLAIT_FAILED);
  assert_int_equal(safetensors_write(path, &huge, 1, NULL, NULL), PLAIT_FAILED);
  assert_int_equal(safetensors_write(path, &meta, 1, NULL, NULL), PLAIT_FAILED);
  assert_int_equal(safetensors_write(path, &bytes, 1, NULL, NULL), PLAIT_FAILED);
  assert_int_equal(safetensors_write_begin(&w, path, twice, 1, NULL, NULL), PLAIT_OK);
  assert_int_equal(safetensors_write_data(&w, u, 3, NULL), PLAIT_OK);
  assert_int_equal(safetensors_write_finish(&w, NULL), PLAIT_FAILED); // two bytes are missing
  safetensors_write_abandon(&w);
  assert_false(file_exists(path));
}

static void test_truncated_at_every_byte(void **state) {
  const char *path = in_folder("whole.safetensors"), *cut = in_folder("cut.safetensors");
  char *data;
  size_t bytes;
  write_sample(path);
  assert_int_equal(file_read(path, 1 << 20, &data, &bytes, NULL), PLAIT_OK);
  for (size_t n = 0; n < bytes; n++) {
    put(cut, data, n);
    refused(cut, "");
  }
  data = realloc(data, bytes + 1);
  data[bytes] = 0;
  put(cut, data, bytes + 1);
  refused(cut, "belong to no tensor");
  free(data);
}

// Whatever one damaged byte of the header turns into: refused with a sentence, or read within the file's bounds.
static void test_every_header_byte_mutated(void **state) {
  const char *path = in_folder("good.safetensors"), *bad = in_folder("bad.safetensors");
  static const char replacements[] = "09\"{}[],:-.e \\x";
  char *data;
  size_t bytes;
  int still_open = 0, refusals = 0;
  write_sample(path);
  assert_int_equal(file_read(path, 1 << 20, &data, &bytes, NULL), PLAIT_OK);
  size_t header = 8 + (uint8_t)data[0] + 256u * (uint8_t)data[1];
  for (size_t i = 0; i < header; i++)
    for (int k = 0; k < 8 + (int)sizeof replacements;
         k++) { // eight bit flips, then bytes with a meaning in JSON, and NUL
      char keep = data[i];
      data[i] = k < 8 ? (char)(keep ^ 1 << k) : replacements[k - 8];
      put(bad, data, bytes);
      Safetensors t;
      Error error = {0};
      if (safetensors_open(&t, bad, &error) == PLAIT_OK) {
        unsigned sum = 0;
        for (int j = 0; j < t.count; j++)
          for (size_t b = 0; b < t.entries[j].bytes; b++) sum += ((const uint8_t *)t.entries[j].data)[b];
        still_open += sum < 100000;
        safetensors_close(&t);
      } else {
        assert_int_equal(error.code, PLAIT_BAD_INPUT);
        assert_non_null(strstr(error.message, bad));
        for (const char *c = error.message; *c; c++) assert_true((unsigned char)*c >= 0x20);
        refusals++;
      }
      data[i] = keep;
    }
  assert_true(still_open > 0 && refusals > still_open);
  free(data);
}

static const struct { const char *header; int data; const char *word;
} hostile[] = {
    {"", 0, "does not start with {"},
    {"[]", 0, "does not start with {"},
    {"{", 0, "not valid JSON"},
    {"{}x", 0, "not valid JSON"},
    {"{}", 1, "belong to no tensor"},
    {"{\"a\":1}", 0, "not an object"},
    {"{\"a\":{}}", 0, "dtype"},
    {"{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,8]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4.0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":{\"0\":0}}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[-4,0]}}", 4, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,0]}}", 4, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}}", 4, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,9223372036854775807]}}", 4, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,9223372036854775808]}}", 4, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "need 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape[0]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "shape[0]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "more elements"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, "more elements"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "at most 8"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
     "offsets\":[1,3]}}",
     3, "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
     "offsets\":[0,2]}}",
     2, "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
     "offsets\":[2,3]}}",
     3, "belong to no tensor"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
     "offsets\":[1,2]}}",
     2, "duplicate"},
    {"{\"a\\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "control characters"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
};

static void test_hostile(void **state) {
  const char *path = in_folder("hostile.safetensors");
  char file[20000] = {0};
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
    size_t n = strlen(hostile[i].header);
    memset(file, 0, sizeof file);
    file[0] = (char)n;
    file[1] = (char)(n >> 8);
    memcpy(file + 8, hostile[i].header, n);
    put(path, file, 8 + n + (size_t)hostile[i].data);
    refused(path, hostile[i].word);
  }
  memset(file, '[', sizeof file); // depth
  memcpy(file, "\x18\x4e\0\0\0\0\0\0{\"a\":", 13);
  put(path, file, 8 + 0x4e18);
  refused(path, "not valid JSON");
  memset(file, 0xff, 8); // a header of 2^64-1 bytes
  put(path, file, 100);
  refused(path, "truncated");
  put(path, file, 0);
  refused(path, "too short");
  refused(folder, "not a regular file");
  refused(in_folder("is-not-there"), "cannot be opened");
}

static void test_folder(void **state) {
  char *dir = xstrdup(in_folder("model")), path[300];
  Safetensors t;
  Error error = {0};
  SafetensorsEntry x = {.name = "x", .dtype = DTYPE_U8, .rank = 1, .dims = {5}, .data = u};
  SafetensorsEntry yz[] = {{.name = "y", .dtype = DTYPE_BF16, .rank = 1, .dims = {3}, .data = h},
                           {.name = "z", .dtype = DTYPE_F32, .rank = 2, .dims = {3, 2}, .data = a}};
  assert_int_equal(folder_create(dir, &error), PLAIT_OK);
  assert_int_equal(safetensors_open_folder(&t, dir, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "neither"));
  snprintf(path, sizeof path, "%s/a-1.safetensors", dir);
  assert_int_equal(safetensors_write(path, &x, 1, NULL, NULL), PLAIT_OK);
  snprintf(path, sizeof path, "%s/a-2.safetensors", dir);
  assert_int_equal(safetensors_write(path, yz, 2, NULL, NULL), PLAIT_OK);
  static const struct { const char *json, *word;
  } indices[] = {
      {"{\"weight_map\":{\"x\":\"a-1.safetensors\",\"z\":\"a-2.safetensors\",\"y\":\"a-2.safetensors\"}}", NULL},
      {"{\"weight_map\":{\"x\":\"a-1.safetensors\",\"q\":\"a-2.safetensors\"}}", "tensor q is not in a-2"},
      {"{\"weight_map\":{\"x\":\"a-2.safetensors\"}}", "tensor x is not in a-2"},
      {"{\"weight_map\":{\"x\":\"../a-1.safetensors\"}}", "plain file name"},
      {"{\"weight_map\":{\"x\":\"\"}}", "plain file name"},
      {"{\"weight_map\":{\"x\":7}}", "no file name"},
      {"{\"weight_map\":{\"x\":\"a-3.safetensors\"}}",
       "a-3.safetensors does not exist, but model.safetensors.index.json names it"},
      {"{\"weight_map\":[]}", "weight_map"},
      {"{}", "weight_map"},
      {"{\"weight_map\":", "not valid JSON"},
      {"", "does not start"},
  };
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
  for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
    error = (Error){0};
    put(path, indices[i].json, strlen(indices[i].json));
    int code = safetensors_open_folder(&t, dir, &error);
    if (indices[i].word) {
      assert_int_equal(code, PLAIT_BAD_INPUT);
      if (!strstr(error.message, indices[i].word)) fail_msg("no '%s' in: %s", indices[i].word, error.message);
      assert_non_null(strstr(error.message, dir));
      continue;
    }
    assert_int_equal(code, PLAIT_OK);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.file_count, 2);
    assert_memory_equal(safetensors_find(&t, "x")->data, u, 5);
    assert_memory_equal(safetensors_find(&t, "z")->data, a, sizeof a);
    assert_non_null(strstr(safetensors_find(&t, "y")->path, "a-2.safetensors"));
    safetensors_close(&t);
  }
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  write_sample(path);
  assert_int_equal(safetensors_open_folder(&t, dir, NULL), PLAIT_OK);
  assert_int_equal(t.count, 5);
  safetensors_close(&t);
  free(dir);
}

// A file size limit stands in for a full disk: the write fails half way.
static void test_write_fails_half_way(void **state) {
  char *dir = xstrdup(in_folder("full")), path[300];
  Error error = {0};
  assert_int_equal(folder_create(dir, NULL), PLAIT_OK);
  snprintf(path, sizeof path, "%s/large.safetensors", dir);
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = (struct rlimit){100000, old.rlim_max};
  char *data = xcalloc(1000000, 1);
  SafetensorsEntry e = {.name = "x", .dtype = DTYPE_U8, .rank = 1, .dims = {1000000}, .data = data};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  int code = safetensors_write(path, &e, 1, NULL, &error);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_equal(code, PLAIT_UNWRITABLE);
  assert_non_null(strstr(error.message, path));
  assert_non_null(strstr(error.message, "cannot be written"));
  assert_int_equal(rmdir(dir), 0); // nothing was left in it
  free(data);
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_checksum),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_writer_refuses),
      cmocka_unit_test(test_truncated_at_every_byte),
      cmocka_unit_test(test_every_header_byte_mutated),
      cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_folder),
      cmocka_unit_test(test_write_fails_half_way),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
