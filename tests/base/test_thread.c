// Priorities of threads.
#include "base/thread.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
// cmocka wants the headers above first
#include <cmocka.h>

#if defined(__linux__)
static int own_nice(void) { return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)); }

static void *lower(void *nice) {
  thread_lower_priority(3);
  *(int *)nice = own_nice();
  return NULL;
}

static void only_the_thread_is_lowered(void **state) {
  int before = own_nice(), lowered = -1;
  pthread_t thread;
  Error error;
  if (before > 16) skip(); // there is no lower one than 19
  assert_int_equal(thread_start(&thread, lower, &lowered, &error, "a thread"), 0);
  pthread_join(thread, NULL);
  assert_int_equal(lowered, before + 3);
  assert_int_equal(own_nice(), before);
}
#else
static void only_the_thread_is_lowered(void **state) { skip(); }
#endif

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_thread_is_lowered)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
