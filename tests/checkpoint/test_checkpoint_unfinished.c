// tier 1
// A save that is cut off, by death, by a limit or by a full disk, leaves the checkpoints before it and nothing else.
#include "pieces.h"
#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void test_unfinished_does_not_exist(void **state) {
  char *dir = path_in(folder, "unfinished"), *stale = path_in(dir, "step-2.tmp"),
       *file = path_in(stale, "part-00000.safetensors");
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

// A child saves without end and is killed at some moment; what is there is whole, and the next child continues.
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
        if (checkpoint_prune(dir, 0, 2, NULL) || write(done[1], "", 1) != 1) _exit(1);
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

// The disk fills up during a part or during the manifest: a sentence, the older checkpoint stays, nothing else does.
static void fails_for_lack_of_space(const char *dir, const char *why) {
  Error error = {0};
  int64_t step = -1;
  assert_int_equal(save(dir, 2, COLUMNS, 2, 0, NULL, &error), PLAIT_UNWRITABLE);
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
  if (mount("tmpfs", dir, "tmpfs", 0, "size=1m")) {
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
      cmocka_unit_test(test_unfinished_does_not_exist),
      cmocka_unit_test(test_kill),
      cmocka_unit_test(test_file_size_limit),
      cmocka_unit_test(test_full_disk),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
