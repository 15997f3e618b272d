// tier 1
// What a signal prints that asks for an orderly end, and in whose words.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/signals.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *ask(void) { return "somebody asks for a step"; }
static const char *nobody(void) { return NULL; }

// What a process prints that gets the signal twice.
static void prints(const char *(*words)(void), const char *expected) {
  int ends[2], status;
  char text[300] = "";
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  if (!pid) {
    dup2(ends[1], 2);
    signals_install("stopping soon");
    signals_reword(words);
    raise(SIGTERM);
    raise(SIGTERM);
    _exit(signals_number() == SIGTERM && signals_exit_status() == 128 + SIGTERM ? 0 : 1);
  }
  close(ends[1]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_true(read(ends[0], text, sizeof text - 1) >= 0);
  close(ends[0]);
  assert_string_equal(text, expected);
}

static void the_sender_is_named(void **state) {
  (void)state;
  prints(NULL, "plait: SIGTERM: stopping soon\n");
  prints(nobody, "plait: SIGTERM: stopping soon\n");
  prints(ask, "plait: somebody asks for a step\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_sender_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
