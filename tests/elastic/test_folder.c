// tier 1
// The lease of a job's store in the folder that its machines share.
#include "base/file.h"
#include "elastic/job_folder.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const char list[] = "127.0.0.1:1,127.0.0.1:2";
static double now = 1000; // the test moves it

static int claim(JobFolder *f, double silence) {
  Error error = {0};
  return job_folder_claim(f, "job", "127.0.0.1:2", list, silence, now, &error);
}

// Nobody sees the holder's renewals for so long that another takes it; a machine that is served watches it meanwhile.
static void silence(void **state) {
  char path[] = "/tmp/test_folder_XXXXXX";
  JobFolder holder, other, served;
  Error error = {0};
  assert_non_null(mkdtemp(path));
  job_folder_open(&holder, path);
  job_folder_open(&other, path);
  job_folder_open(&served, path);
  assert_int_equal(claim(&holder, 10), 1);
  assert_int_equal(claim(&other, 10), 0);
  for (int beat = 0; beat < 100; beat++, now += 0.5) {
    assert_true(job_folder_renew(&holder));
    job_folder_watch(&served, now);
    assert_int_equal(claim(&other, 10), 0);
  }
  now += 9; // since the last renewal 9.5 s
  job_folder_watch(&served, now);
  assert_int_equal(claim(&other, 10), 0);
  assert_int_equal(claim(&served, 10), 0);
  now += 0.6;
  assert_int_equal(claim(&served, 10), 1); // silent since it was seen last, and not since the connection was given up
  assert_int_equal(claim(&other, 10), 0);  // there is a new holder
  assert_false(job_folder_renew(&holder));
  job_folder_release(&holder, -1);
  job_folder_release(&served, -1);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
}

// Another process, which lives, holds it.
static pid_t other_holder(const char *path, const char *endpoint) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // where an assertion fails
    close(ready[0]);
    JobFolder f;
    Error error = {0};
    job_folder_open(&f, path);
    if (job_folder_claim(&f, "job", endpoint, list, 1, now, &error) != 1 || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static void one_holder(void **state) {
  char path[] = "/tmp/test_folder_XXXXXX";
  JobFolder f, second;
  assert_non_null(mkdtemp(path));
  job_folder_open(&f, path);
  job_folder_open(&second, path);
  assert_int_equal(claim(&f, 100), 1);
  assert_int_equal(f.epoch, 1);
  assert_true(job_folder_sees(&second, 1, "job"));
  assert_false(job_folder_sees(&second, 1, "another"));
  assert_false(job_folder_sees(&second, 2, "job"));
  assert_int_equal(claim(&second, 100), 0); // it lives
  assert_true(job_folder_renew(&f));
  char *file = xformat("%s/rendezvous-1", path);
  assert_int_equal(unlink(file), 0); // somebody empties the folder
  assert_true(job_folder_renew(&f));
  assert_int_equal(access(file, F_OK), 0);
  free(file);
  assert_int_equal(claim(&second, 0), 0);   // it has changed since
  assert_int_equal(claim(&second, 0), 1);   // and then not any more
  assert_int_equal(second.epoch, 2);
  assert_false(job_folder_renew(&f)); // it has been taken over
  job_folder_release(&f, -1);
  job_folder_release(&second, -1);
  assert_int_equal(claim(&f, 100), 1); // given back: nobody waits
  assert_int_equal(f.epoch, 3);
  assert_int_equal(job_folder_status(&second, "job"), -1);
  job_folder_release(&f, 75);
  assert_int_equal(job_folder_status(&second, "job"), 75); // so it ends, too
  assert_int_equal(job_folder_status(&second, "other"), -1);
  assert_int_equal(claim(&second, 0), 0);
  Error error = {0};
  assert_int_equal(job_folder_claim(&second, "next", "127.0.0.1:9", "127.0.0.1:9", 100, now, &error), 1);
  assert_int_equal(second.epoch, 4);
  job_folder_release(&second, 0);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
}

static void other_processes(void **state) {
  char path[] = "/tmp/test_folder_XXXXXX";
  JobFolder f;
  Error error = {0};
  assert_non_null(mkdtemp(path));
  job_folder_open(&f, path);
  pid_t child = other_holder(path, "127.0.0.1:1");
  assert_int_equal(claim(&f, 100), 0);
  assert_int_equal(claim(&f, 100), 0);
  kill(child, SIGKILL); // on this machine it can be seen, whether its parent has waited for it or not
  siginfo_t died;
  assert_int_equal(waitid(P_PID, (id_t)child, &died, WEXITED | WNOWAIT), 0);
  assert_int_equal(claim(&f, 100), 1);
  end(child);
  job_folder_release(&f, 0);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
  assert_int_equal(folder_create(path, &error), PLAIT_OK);
  job_folder_open(&f, path);
  child = other_holder(path, "127.0.0.1:9"); // which nobody has told this job of
  assert_int_equal(claim(&f, 100), 0);
  char *file = xformat("%s/rendezvous-1", path);
  FILE *out = fopen(file, "w"); // it lives
  fprintf(out, "job 7 %ld elsewhere/pid:[1] 127.0.0.1:9\n", (long)child);
  fclose(out);
  assert_int_equal(job_folder_claim(&f, "job", "127.0.0.1:2", list, 100, now, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "is in use by another job, whose store is at 127.0.0.1:9"));
  end(child);
  free(file);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
}

// A lease that a machine gives up when it leaves is for the next machine of its job, not for a job that happens to look
// first.
static void another_job(void **state) {
  char path[] = "/tmp/test_folder_XXXXXX";
  JobFolder f, next, stranger;
  Error error = {0};
  static const char endpoint[] = "127.0.0.1:29"; // which the other job's, 127.0.0.1:2, is a part of
  assert_non_null(mkdtemp(path));
  job_folder_open(&f, path);
  job_folder_open(&next, path);
  job_folder_open(&stranger, path);
  assert_int_equal(claim(&f, 100), 1);
  job_folder_release(&f, -1);
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 100, now, &error), 0);
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 100, now, &error), 0);
  assert_int_equal(claim(&next, 100), 1);
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 0, now, &error), 0); // it has changed
  assert_true(job_folder_renew(&next));
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 100, now, &error), PLAIT_BAD_INPUT);
  job_folder_release(&next, -1);
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 100, now, &error), PLAIT_BAD_INPUT);
  assert_int_equal(job_folder_claim(&stranger, "stranger", endpoint, endpoint, 0, now, &error), 1); // nobody has come
  job_folder_release(&stranger, 0);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
}

// A lease that cannot be read is not said to be lacking.
static void without_descriptors(void **state) {
  char path[] = "/tmp/test_folder_XXXXXX";
  JobFolder f;
  Error error = {0};
  struct rlimit limit, none;
  assert_non_null(mkdtemp(path));
  job_folder_open(&f, path);
  assert_int_equal(claim(&f, 10), 1);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  none = (struct rlimit){3, limit.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  int sees = job_folder_sees(&f, f.epoch, "job");
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_int_equal(sees, -EMFILE);
  assert_int_equal(job_folder_sees(&f, f.epoch, "job"), 1);
  assert_int_equal(job_folder_sees(&f, f.epoch, "other"), 0);
  assert_int_equal(job_folder_sees(&f, f.epoch + 1, "job"), 0);
  job_folder_release(&f, -1);
  assert_int_equal(folder_remove(path, &error), PLAIT_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_holder), cmocka_unit_test(silence),
                                     cmocka_unit_test(other_processes), cmocka_unit_test(another_job),
                                     cmocka_unit_test(without_descriptors)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
