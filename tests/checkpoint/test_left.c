// tier 1; rooms elastic train
// What the dead have left in a run's folder goes; what lives, or is the user's, stays.
#include "base/file.h"
#include "base/run_lock.h"
#include "checkpoint/left.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/plait-left.XXXXXX";

static void make(const char *name, bool is_folder) {
  char *path = xformat("%s/%s", folder, name), *inside = xformat("%s/part", path);
  if (is_folder) assert_int_equal(folder_create(path, NULL), 0);
  FILE *f = fopen(is_folder ? inside : path, "w");
  assert_non_null(f);
  fclose(f);
  free(path), free(inside);
}

static bool is_there(const char *name) {
  char *path = xformat("%s/%s", folder, name);
  bool there = file_exists(path);
  free(path);
  return there;
}

static void only_what_is_left_goes(void **state) {
  (void)state;
  char dead[40], taken[40], living[40], text[60];
  pid_t pid = fork();
  if (!pid) _exit(0);
  waitpid(pid, NULL, 0);
  snprintf(dead, sizeof dead, "ended.json.tmp.%d", (int)pid);
  snprintf(taken, sizeof taken, "lock.%d", (int)pid);
  snprintf(living, sizeof living, "ended.json.tmp.%d", (int)getpid());
  snprintf(text, sizeof text, "notes.tmp.%d", (int)pid); // not a run's
  assert_non_null(mkdtemp(folder));
  make("checkpoints/step-8", true);
  make("checkpoints/step-6.tmp", true);
  make("checkpoints/best.tmp", false);
  make("checkpoints/step-mine.tmp", true);
  const char *files[] = {dead, taken, living, text, "lock", "ended.json"};
  for (int i = 0; i < 6; i++) make(files[i], false);
  char *lock = xformat("%s/lock", folder);
  int fd = open(lock, O_RDWR);
  assert_int_equal(run_lock_take(fd), 0);
  left_remove(folder, false); // another run has the folder
  assert_true(is_there(dead) && is_there("checkpoints/step-6.tmp"));
  close(fd);
  left_remove(folder, false);
  assert_false(is_there(dead) || is_there(taken) || is_there("checkpoints/step-6.tmp") ||
               is_there("checkpoints/best.tmp"));
  assert_true(is_there(living) && is_there(text) && is_there("lock") && is_there("ended.json"));
  assert_true(is_there("checkpoints/step-8/part") && is_there("checkpoints/step-mine.tmp/part"));
  make("checkpoints/step-9.tmp", true);
  left_remove(folder, true);
  assert_false(is_there("checkpoints/step-9.tmp"));
  folder_remove(folder, NULL);
  left_remove(folder, false); // nothing is there
  free(lock);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_left_goes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
