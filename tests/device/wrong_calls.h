// Wrong calls of the emulated driver and of its libraries, each in a process of its own, which they end with a sentence
// on stderr.
#pragma once
#include "tier.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of these first
#include <cmocka.h>

// The status of a process that calls both, and what it has written, up to size - 1 bytes.
static int status_of_calls(void (*begin)(void), void (*body)(void), char *text, size_t size) {
  int ends[2], status;
  size_t used = 0;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    dup2(ends[1], 2);
    close(ends[1]);
    signal(SIGSEGV, SIG_DFL), signal(SIGABRT, SIG_DFL); // cmocka's
    alarm((unsigned)test_seconds(20));
    begin();
    body();
    exit(0);
  }
  close(ends[1]);
  for (ssize_t n; used + 1 < size && (n = read(ends[0], text + used, size - 1 - used)) > 0;) used += (size_t)n;
  text[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

// With sentence "" the calls are right.
static inline void expect_sentence(size_t number, void (*begin)(void), void (*body)(void), const char *sentence) {
  char text[1024];
  int status = status_of_calls(begin, body, text, sizeof text);
  int fine = !*sentence && WIFEXITED(status) && !WEXITSTATUS(status) && !*text;
  int dies = *sentence && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, sentence);
  if (!fine && !dies)
    fail_msg("case %zu: status %#x, \"%s\", expected \"%s\"", number, (unsigned)status, text, sentence);
}
