// tier 1; rooms checkpoint data
// Tokenizers and checkpoints through the C library (plait/files.h): texts there and back, tensors that two ranks wrote
// as wholes, and a sentence for what cannot be.
#include "plait/files.h"
#include "checkpoint/checkpoint.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static char folder[] = "/tmp/plait-files-XXXXXX";
static int make(void **state) { return mkdtemp(folder) ? 0 : -1; }
static int remove_all(void **state) {
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

static void texts_come_back(void **state) {
  PlaitError *error = plait_error_create();
  PlaitTokenizer *t;
  const int32_t *ids;
  int64_t count;
  const char *text, given[] = "struct node { int a; }; // \xc3\xa9\xff";
  size_t bytes;
  if (plait_tokenizer_open(TESTS_FOLDER "/tokenizer/golden/gpt2.json", &t, error))
    fail_msg("%s", plait_error_message(error));
  assert_true(plait_tokenizer_size(t) > 256);
  assert_int_equal(plait_tokenizer_encode(t, given, sizeof given - 1, 0, &ids, &count, error), PLAIT_OK);
  assert_true(count > 5 && count < (int64_t)sizeof given);
  assert_int_equal(plait_tokenizer_decode(t, ids, count, 0, &text, &bytes, error), PLAIT_OK);
  assert_int_equal(bytes, sizeof given - 1);
  assert_string_equal(text, given); // and a NUL
  assert_int_equal(plait_tokenizer_encode(t, "", 0, 0, &ids, &count, error), PLAIT_OK);
  assert_int_equal(count, 0);
  assert_string_equal(plait_error_message(error), "");
  assert_int_equal(plait_tokenizer_decode(t, &(int32_t){1 << 30}, 1, 0, &text, &bytes, error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(plait_error_message(error), "1073741824"));
  assert_string_equal(text, "");
  plait_tokenizer_close(t);
  plait_error_clear(error);
  assert_int_equal(plait_tokenizer_open("/no/such/file", &t, error), PLAIT_BAD_INPUT);
  assert_null(t);
  assert_non_null(strstr(plait_error_message(error), "/no/such/file"));
  assert_int_equal(plait_tokenizer_open("/no/such/file", &t, NULL), PLAIT_BAD_INPUT);
  plait_error_destroy(error);
}

enum { ROWS = 4, COLUMNS = 3 };

// A matrix of 0, 1, 2, … in bf16, two rows from each of two ranks, and a counter.
static void write_checkpoint(const char *dir, int64_t step) {
  uint16_t value[ROWS * COLUMNS];
  Error error = {0};
  for (int i = 0; i < ROWS * COLUMNS; i++) value[i] = bf16_from_float((float)i);
  if (checkpoint_begin(dir, step, &error)) fail_msg("%s", error.message);
  for (int rank = 0; rank < 2; rank++) {
    CheckpointTensor t[] = {{.name = "weight",
                             .dtype = DTYPE_BF16,
                             .rank = 2,
                             .global = {ROWS, COLUMNS},
                             .offset = {2 * rank},
                             .local = {2, COLUMNS},
                             .data = value + 2 * rank * COLUMNS,
                             .primary = 1},
                            {.name = "count", .dtype = DTYPE_I64, .data = &step, .primary = !rank}};
    if (checkpoint_write_part(dir, step, rank, t, 2, &error)) fail_msg("%s", error.message);
  }
  json_t *extra = json_pack("{s:i}", "tokens", 7);
  if (checkpoint_finish(dir, step, 2, extra, &error)) fail_msg("%s", error.message);
  json_decref(extra);
}

static void tensors_are_whole(void **state) {
  char run[100], dir[100], step[100];
  snprintf(run, sizeof run, "%s/run", folder);
  snprintf(dir, sizeof dir, "%s/run/checkpoints", folder);
  snprintf(step, sizeof step, "%s/run/checkpoints/step-3", folder);
  PlaitError *error = plait_error_create();
  PlaitCheckpoint *c;
  assert_int_equal(plait_checkpoint_open(run, &c, error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(plait_error_message(error), "does not exist"));
  plait_error_clear(error);
  write_checkpoint(dir, 3);
  write_checkpoint(dir, 5);
  if (plait_checkpoint_open(run, &c, error)) fail_msg("%s", plait_error_message(error));
  assert_int_equal(plait_checkpoint_step(c), 5); // the newest
  plait_checkpoint_close(c);
  if (plait_checkpoint_open(step, &c, error)) fail_msg("%s", plait_error_message(error));
  assert_int_equal(plait_checkpoint_step(c), 3);
  assert_string_equal(plait_checkpoint_path(c), step);
  assert_string_equal(plait_checkpoint_extra(c), "{\"tokens\": 7}");
  assert_int_equal(plait_checkpoint_count(c), 2);
  assert_string_equal(plait_checkpoint_name(c, 0), "count");
  assert_string_equal(plait_checkpoint_name(c, 1), "weight");
  assert_null(plait_checkpoint_name(c, 2));
  assert_string_equal(plait_checkpoint_dtype(c, 1), "bf16");
  int64_t dims[PLAIT_MOST_DIMS], count = 0;
  assert_int_equal(plait_checkpoint_dims(c, 0, dims), 0);
  assert_int_equal(plait_checkpoint_dims(c, 1, dims), 2);
  assert_true(dims[0] == ROWS && dims[1] == COLUMNS);
  assert_int_equal(plait_checkpoint_dims(c, -1, dims), -1);
  float value[ROWS * COLUMNS];
  if (plait_checkpoint_read(c, 1, "fp32", value, sizeof value, error)) fail_msg("%s", plait_error_message(error));
  for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(value[i] == (float)i);
  if (plait_checkpoint_read(c, 0, "int64", &count, sizeof count, error)) fail_msg("%s", plait_error_message(error));
  assert_int_equal(count, 3);
  plait_checkpoint_close(c);
  plait_error_destroy(error);
}

static void wrong_reads_are_refused(void **state) {
  char dir[100], path[100];
  snprintf(dir, sizeof dir, "%s/refused", folder);
  snprintf(path, sizeof path, "%s/refused/step-1", folder);
  write_checkpoint(dir, 1);
  PlaitError *error = plait_error_create();
  PlaitCheckpoint *c;
  if (plait_checkpoint_open(path, &c, error)) fail_msg("%s", plait_error_message(error));
  float value[ROWS * COLUMNS];
  static const struct { int tensor; const char *dtype; size_t size; const char *says; } wrong[] = {
      {2, "fp32", sizeof value, "tensors 0 to 1, not 2"},
      {1, "int64", sizeof value, "stored as bf16 and cannot be read as \"int64\""},
      {1, "real", sizeof value, "cannot be read as \"real\""},
      {1, "fp32", sizeof value - 4, "has 48 bytes as fp32, not 44"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(plait_checkpoint_read(c, wrong[i].tensor, wrong[i].dtype, value, wrong[i].size, error),
                     PLAIT_BAD_INPUT);
    if (!strstr(plait_error_message(error), wrong[i].says)) fail_msg("%s", plait_error_message(error));
    plait_error_clear(error);
  }
  plait_checkpoint_close(c);
  plait_checkpoint_close(NULL);
  assert_int_equal(plait_checkpoint_open(folder, &c, error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(plait_error_message(error), "neither a checkpoint nor a run"));
  plait_error_destroy(error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_come_back),
      cmocka_unit_test(tensors_are_whole),
      cmocka_unit_test(wrong_reads_are_refused),
  };
  return cmocka_run_group_tests(tests, make, remove_all);
}
