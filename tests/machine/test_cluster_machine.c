// tier 1; rooms machine foresight
// The one file of what was measured of this machine: peaks and the cluster of a probe, neither of which forgets the
// other.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "machine/cluster_find.h"
#include "machine/cluster_machine.h"
#include "nodes_of_four.h"

static char folder[] = "/tmp/plait-kept-XXXXXX";

static int make_cache(void **state) {
  setenv("XDG_CACHE_HOME", folder, 1);
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_cache(void **state) { return folder_remove(folder, NULL); }

static void put(const char *text) {
  char *path;
  Error error = {0};
  if (cluster_machine_prepare(&path, &error)) fail_msg("%s", error.message);
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  fputs(text, out);
  fclose(out);
  free(path);
}

static char *text_of(void) {
  char *path = cluster_machine_path(), *text;
  Error error = {0};
  if (file_read(path, 1 << 20, &text, NULL, &error)) fail_msg("%s", error.message);
  free(path);
  return text;
}

static int count_peaks(void) {
  char *text = text_of();
  int n = 0;
  for (const char *at = text; (at = strstr(at, "# peak ")); at++) n++;
  free(text);
  return n;
}

static void refused(const char *sentence) {
  char *path;
  Error error = {0};
  assert_false(cluster_machine_is_measured());
  assert_int_equal(cluster_find("probe", &path, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, sentence));
}

static void neither_forgets_the_other(void **state) {
  Cluster written = nodes_of_four(16), *read;
  Error error = {0};
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (d != DTYPE_F32) written.device.matrix[d] = written.device.vector[d] = 0;
  refused("this machine has not been measured yet; run plait probe");
  assert_true(cluster_machine_peak("a, 1 threads") == 0);
  cluster_machine_keep_peak("a, 1 threads", 0.1e12);
  refused("this machine has not been measured yet; run plait probe"); // the speed of a product is not one
  for (int again = 0; again < 2; again++) {
    if (cluster_machine_keep(&written, &error)) fail_msg("%s", error.message);
    cluster_machine_keep_peak("a", 3);
    if (cluster_load("probe", &read, &error)) fail_msg("%s", error.message);
    assert_true(read->device.memory == written.device.memory && cluster_devices(read) == 64);
    cluster_free(read);
    assert_true(cluster_machine_peak("a, 1 threads") == 0.1e12 && cluster_machine_peak("a") == 3);
    assert_int_equal(count_peaks(), 2);
  }
  cluster_machine_keep_peak("a, 1 threads", 7); // in place of the one before
  assert_true(cluster_machine_peak("a, 1 threads") == 7 && cluster_machine_peak("a") == 3);
  assert_int_equal(count_peaks(), 2);
}

static void old_and_many_are_left_out(void **state) {
  char key[40], text[200];
  long long now = time(NULL), day = 86400;
  snprintf(text, sizeof text, "# peak 5 %lld old\n# peak 6 %lld young\n# peak 7 %lld future\n# peak 8 x damaged\n",
           now - 31 * day, now - 29 * day, now + day);
  put(text);
  assert_true(cluster_machine_peak("old") == 0 && cluster_machine_peak("young") == 6);
  assert_true(cluster_machine_peak("future") == 0 && cluster_machine_peak("damaged") == 0);
  for (int i = 0; i < 100; i++) {
    snprintf(key, sizeof key, "%d threads", i);
    cluster_machine_keep_peak(key, 1 + i);
  }
  assert_int_equal(count_peaks(), 64);
  assert_true(cluster_machine_peak("35 threads") == 0 && cluster_machine_peak("36 threads") == 37);
}

// Text that is not a cluster stays, and whoever asks for one is told what is wrong with it.
static void damage_is_kept_apart(void **state) {
  Cluster *read;
  Error error = {0};
  put("[");
  cluster_machine_keep_peak("a", 3);
  assert_true(cluster_machine_peak("a") == 3 && cluster_machine_is_measured());
  assert_int_equal(cluster_load("probe", &read, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "; measure again with plait probe"));
  put("\n");
  assert_false(cluster_machine_is_measured());
  setenv("XDG_CACHE_HOME", "relative", 1);
  unsetenv("HOME");
  char *path;
  assert_int_equal(cluster_machine_prepare(&path, &error), PLAIT_BAD_INPUT);
  assert_null(path);
  cluster_machine_keep_peak("a", 3);
  assert_true(cluster_machine_peak("a") == 0 && !cluster_machine_is_measured());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(neither_forgets_the_other),
                                     cmocka_unit_test(old_and_many_are_left_out),
                                     cmocka_unit_test(damage_is_kept_apart)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
