// tier 1
// TensorBoard event files: the bytes of a golden one, CRCs, order of names, full disks, what metrics mirror.
#include "base/file.h"
#include "train/metrics.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state) {
  char *folder = xstrdup("/tmp/plait-events-XXXXXX");
  *state = folder;
  return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
  folder_remove(*state, NULL);
  free(*state);
  return 0;
}

static void test_crc32c(void **state) {
  uint8_t zeros[32] = {0}, ones[32];
  memset(ones, 255, sizeof ones);
  assert_int_equal(events_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(events_crc32c(zeros, 32), 0x8a9136aa); // RFC 3720, B.4
  assert_int_equal(events_crc32c(ones, 32), 0x62a8ab43);
  assert_int_equal(events_crc32c("", 0), 0);
}

// What TensorBoard's own event_accumulator reads as: version 2, START at step 3, then step 3 with loss 2.5 and lr
// 0.001.
static const uint8_t golden[] = {
    0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00, 0x00, 0x20, 0x40, 0xfc,
    0x54, 0xd9, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32,
    0x2b, 0x35, 0x31, 0x10, 0x0f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6d, 0x53, 0x2b, 0x09, 0x09, 0x00,
    0x00, 0x20, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0x03, 0x3a, 0x02, 0x08, 0x01, 0x20, 0xab, 0x68, 0x1c, 0x26,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x73, 0x4f, 0xe3, 0x00, 0x09, 0x00, 0x00, 0x50, 0x40, 0xfc, 0x54,
    0xd9, 0x41, 0x10, 0x03, 0x2a, 0x98, 0x00, 0x0a, 0x0b, 0x0a, 0x04, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00,
    0x20, 0x40, 0x0a, 0x09, 0x0a, 0x02, 0x6c, 0x72, 0x15, 0x6f, 0x12, 0x83, 0x3a, 0xae, 0xc4, 0x65, 0xcb,
};

static void test_golden(void **state) {
  Events e;
  Error error = {0};
  assert_int_equal(events_open(&e, *state, 3, 1700000000.5, &error), PLAIT_OK);
  events_begin(&e, 3, 1700000001.25);
  events_scalar(&e, "loss", 2.5);
  events_scalar(&e, "lr", 1e-3);
  assert_int_equal(events_end(&e, &error), PLAIT_OK);
  char *path = xstrdup(e.path), *text, *name = strrchr(path, '/') + 1;
  assert_memory_equal(name, "events.out.tfevents.1700000000.", 31);
  events_close(&e);
  events_close(&e);
  size_t size;
  assert_int_equal(file_read(path, 1 << 20, &text, &size, &error), PLAIT_OK);
  assert_int_equal(size, sizeof golden);
  assert_memory_equal(text, golden, size);
  free(text);
  free(path);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_events(const struct dirent *e) { return !strncmp(e->d_name, "events.out.tfevents.", 20); }

// A later start sorts after it, within a second and when the clock went back.
static void test_order(void **state) {
  static const double times[] = {1700000000, 1700000000.9, 1600000000, 1700000005};
  char *paths[4];
  Error error = {0};
  for (int i = 0; i < 4; i++) {
    Events e;
    assert_int_equal(events_open(&e, *state, 0, times[i], &error), PLAIT_OK);
    paths[i] = xstrdup(strrchr(e.path, '/') + 1);
    events_close(&e);
  }
  struct dirent **found;
  assert_int_equal(scandir(*state, &found, is_events, by_name), 4);
  for (int i = 0; i < 4; i++) {
    assert_string_equal(found[i]->d_name, paths[i]);
    free(found[i]);
    free(paths[i]);
  }
  free(found);
}

static size_t size_of(const char *path) {
  char *text;
  size_t size;
  assert_int_equal(file_read(path, 1 << 20, &text, &size, NULL), PLAIT_OK);
  free(text);
  return size;
}

static void test_metrics(void **state) {
  Metrics m;
  Events e;
  Error error = {0};
  char *path = xformat("%s/metrics.jsonl", (char *)*state), *text;
  assert_int_equal(metrics_open(&m, path, &error), PLAIT_OK);
  assert_int_equal(events_open(&e, *state, 1, 1700000000, &error), PLAIT_OK);
  m.events = &e;
  size_t start = size_of(e.path), size;
  metrics_begin(&m);
  metrics_text(&m, "note", "no step, no event");
  metrics_real(&m, "loss", 7);
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  metrics_begin(&m);
  metrics_real(&m, "loss", 7);
  metrics_real(&m, "lr", 7);
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  metrics_begin(&m);
  metrics_integer(&m, "step", 2); // alone
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  assert_int_equal(size_of(e.path), start);
  metrics_begin(&m);
  metrics_integer(&m, "step", 2);
  metrics_real(&m, "eval_loss", NAN);
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  assert_int_equal(file_read(e.path, 1 << 20, &text, &size, &error), PLAIT_OK);
  // 12 head, 9 time, 2 step, 3 summary, 2 value, 11 tag, 5 float, 4 tail
  assert_int_equal(size, start + 48);
  assert_memory_equal(text + size - 4 - 5 - 9, "eval_loss", 9);
  free(text);
  metrics_close(&m);
  events_close(&e);
  free(path);
}

static void test_full(void **state) {
  Events e;
  Error error = {0};
  assert_int_equal(events_open(&e, "/nowhere", 0, 0, &error), PLAIT_FAILED);
  events_begin(&e, 1, 1); // closed: nothing happens
  events_scalar(&e, "loss", 1);
  assert_int_equal(events_end(&e, NULL), PLAIT_OK);
  events_close(&e);
  error = (Error){0};
  assert_int_equal(events_open(&e, *state, 0, 0, &error), PLAIT_OK);
  int fd = e.fd, full = file_exists("/dev/full") ? open("/dev/full", O_WRONLY) : -1;
  if (full >= 0) {
    e.fd = full;
    events_begin(&e, 1, 1);
    events_scalar(&e, "loss", 1);
    assert_int_equal(events_end(&e, &error), PLAIT_UNWRITABLE);
    assert_non_null(strstr(error.message, "cannot be written: No space"));
    e.fd = fd;
    close(full);
  }
  events_close(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc32c),
      cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
      cmocka_unit_test_setup_teardown(test_order, setup, teardown),
      cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
      cmocka_unit_test_setup_teardown(test_full, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
