// tier 1
// metrics.jsonl: what is written reads back to the bit, resume cuts it right, torn and hostile files are survived.
#include "base/file.h"
#include "train/metrics.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Scratch { char folder[40]; char *path; } Scratch;

static int setup(void **state) {
  Scratch *s = xcalloc(1, sizeof *s);
  strcpy(s->folder, "/tmp/plait-metrics-XXXXXX");
  if (!mkdtemp(s->folder)) return -1;
  s->path = xformat("%s/metrics.jsonl", s->folder);
  *state = s;
  return 0;
}

static int teardown(void **state) {
  Scratch *s = *state;
  folder_remove(s->folder, NULL);
  free(s->path);
  free(s);
  return 0;
}

static void put(const char *path, const char *text, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, size, f), size);
  fclose(f);
}

static void assert_holds(const char *path, const char *expected) {
  char *text;
  Error error = {0};
  assert_int_equal(file_read(path, 1 << 20, &text, NULL, &error), PLAIT_OK);
  assert_string_equal(text, expected);
  free(text);
}

static void test_exact_text(void **state) {
  Scratch *s = *state;
  Metrics m;
  Error error = {0};
  assert_int_equal(metrics_open(&m, s->path, &error), PLAIT_OK);
  metrics_begin(&m);
  metrics_integer(&m, "step", 3);
  metrics_real(&m, "loss", 0.1);
  metrics_real(&m, "a", NAN);
  metrics_real(&m, "b", INFINITY);
  metrics_real(&m, "c", -INFINITY);
  metrics_text(&m, "note", "say \"hi\"\\\n");
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  assert_holds(s->path, "{\"step\": 3, \"loss\": 0.10000000000000001, \"a\": null, \"b\": \"inf\", \"c\": \"-inf\", "
                        "\"note\": \"say \\\"hi\\\"\\\\\\u000a\"}\n"); // there before the file is closed
  metrics_close(&m);
  metrics_close(&m);
}

static void test_bits_survive(void **state) {
  Scratch *s = *state;
  static const double values[] = {1.0 / 3, 2, -0.0, 5e-324, 1.7976931348623157e308, 123456789.123456789,
                                  NAN,     INFINITY, -INFINITY};
  enum { N = sizeof values / sizeof *values };
  Metrics m;
  Error error = {0};
  assert_int_equal(metrics_open(&m, s->path, &error), PLAIT_OK);
  for (int i = 0; i < N; i++) {
    metrics_begin(&m);
    metrics_integer(&m, "step", i);
    metrics_real(&m, "loss", values[i]);
    if (i == 2) metrics_real(&m, "eval_loss", 1.5);
    assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  }
  metrics_close(&m);
  MetricsSeries series;
  assert_int_equal(metrics_read(s->path, "loss", &series, &error), PLAIT_OK);
  assert_int_equal(series.count, N);
  for (int i = 0; i < N; i++) {
    assert_int_equal(series.step[i], i);
    assert_true(series.value[i] == values[i] || (isnan(series.value[i]) && isnan(values[i])));
  }
  metrics_series_free(&series);
  assert_int_equal(metrics_read(s->path, "eval_loss", &series, &error), PLAIT_OK);
  assert_int_equal(series.count, 1);
  assert_int_equal(series.step[0], 2);
  metrics_series_free(&series);
}

static void test_cut(void **state) {
  Scratch *s = *state;
  Error error = {0};
  assert_int_equal(metrics_truncate_after(s->path, 3, &error), PLAIT_OK); // no file
  assert_false(file_exists(s->path));
  const char *all = "{\"note\": \"start\"}\n{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"
                    "{\"step\": 2, \"eval_loss\": 2}\n{\"step\": 3, \"loss\": 1}\n{\"step\": 4, \"lo";
  put(s->path, all, strlen(all));
  assert_int_equal(metrics_truncate_after(s->path, 3, &error), PLAIT_OK); // only the torn line goes
  assert_holds(s->path, "{\"note\": \"start\"}\n{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"
                        "{\"step\": 2, \"eval_loss\": 2}\n{\"step\": 3, \"loss\": 1}\n");
  assert_int_equal(metrics_truncate_after(s->path, 2, &error), PLAIT_OK);
  const char *kept = "{\"note\": \"start\"}\n{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"
                     "{\"step\": 2, \"eval_loss\": 2}\n";
  assert_holds(s->path, kept);
  struct stat before, after;
  stat(s->path, &before);
  assert_int_equal(metrics_truncate_after(s->path, 2, &error), PLAIT_OK); // nothing to do: not rewritten
  stat(s->path, &after);
  assert_true(before.st_ino == after.st_ino);
  Metrics m; // and it continues where it was cut
  assert_int_equal(metrics_open(&m, s->path, &error), PLAIT_OK);
  metrics_begin(&m);
  metrics_integer(&m, "step", 3);
  assert_int_equal(metrics_end(&m, &error), PLAIT_OK);
  metrics_close(&m);
  MetricsSeries series;
  assert_int_equal(metrics_read(s->path, "step", &series, &error), PLAIT_OK);
  assert_int_equal(series.count, 3 + 1);
  metrics_series_free(&series);
}

static void test_hostile(void **state) {
  Scratch *s = *state;
  static const char text[] =
      "{\"step\": 1, \"loss\": 1}\n\n[1]\nnull\n\xff\xfe\n{\"step\": \"x\", \"loss\": 1}\n{\"step\": 1e300}\n"
      "{\"step\": 99999999999999999999, \"loss\": 1}\n{\"step\": 1, \"step\": 2}\n\0\0\n"
      "{\"step\": 2, \"loss\": \"wide\"}\n{\"step\": 2, \"loss\": [1]}\n{\"step\": 2, \"loss\": 7}";
  put(s->path, text, sizeof text - 1);
  Error error = {0};
  MetricsSeries series;
  assert_int_equal(metrics_read(s->path, "loss", &series, &error), PLAIT_OK);
  assert_int_equal(series.count, 2);
  assert_true(series.value[0] == 1 && series.value[1] == 7);
  metrics_series_free(&series);
  assert_int_equal(metrics_truncate_after(s->path, 1, &error), PLAIT_OK);
  assert_holds(s->path, "{\"step\": 1, \"loss\": 1}\n");
  char *deep = xcalloc(1 << 20, 1);
  memset(deep, '[', (1 << 20) - 1);
  put(s->path, deep, (1 << 20) - 1);
  memset(deep, '[', 60000);
  deep[60000] = '\n';
  assert_int_equal(metrics_truncate_after(s->path, 1, &error), PLAIT_OK);
  assert_holds(s->path, "");
  put(s->path, deep, (1 << 20) - 1);
  assert_int_equal(metrics_truncate_after(s->path, 1, &error), PLAIT_OK);
  assert_holds(s->path, "");
  free(deep);
  assert_int_equal(metrics_read(s->folder, "loss", &series, &error), PLAIT_BAD_INPUT);
  metrics_series_free(&series);
}

static void test_full_disk(void **state) {
  Metrics m;
  Error error = {0};
  if (!file_exists("/dev/full")) skip();
  assert_int_equal(metrics_open(&m, "/dev/full", &error), PLAIT_OK);
  metrics_begin(&m);
  metrics_integer(&m, "step", 1);
  assert_int_equal(metrics_end(&m, &error), PLAIT_UNWRITABLE);
  assert_non_null(strstr(error.message, "/dev/full: cannot be written: No space"));
  metrics_close(&m);
  error = (Error){0};
  assert_int_equal(metrics_open(&m, "/nowhere/m.jsonl", &error), PLAIT_FAILED);
  metrics_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_exact_text, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bits_survive, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
      cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
      cmocka_unit_test(test_full_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
