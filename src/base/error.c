// Error contexts, broken invariants, allocation that cannot return NULL.
#include "base/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int thread_rank = -1;

// Messages quote what hostile files hold; none of it may move a terminal's cursor or look like a second message.
static void make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

int error_set(Error *error, int code, const char *format, ...) {
  if (!error || error->code) return code;
  error->code = code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  make_printable(error->message);
  return code;
}

int error_prefix(Error *error, const char *format, ...) {
  if (!error || !error->code) return PLAIT_OK;
  char old[sizeof error->message];
  memcpy(old, error->message, sizeof old);
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  if (n >= 0 && (size_t)n < sizeof error->message) {
    int rest = (int)sizeof error->message - n - 3;
    snprintf(error->message + n, sizeof error->message - (size_t)n, ": %.*s", rest > 0 ? rest : 0, old);
  }
  make_printable(error->message);
  return error->code;
}

int error_append(Error *error, const char *format, ...) {
  if (!error || !error->code) return PLAIT_OK;
  size_t n = strlen(error->message);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message + n, sizeof error->message - n, format, arguments);
  va_end(arguments);
  make_printable(error->message);
  return error->code;
}

int error_exit_status(int code) {
  if (code >= 0 || code == PLAIT_INTERRUPTED) return 0;
  return code == PLAIT_BAD_INPUT || code == PLAIT_INFEASIBLE ? 2 : 1;
}

void check_set_rank(int rank) { thread_rank = rank; }

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
  fprintf(stderr, "plait: broken invariant at %s:%d", file, line);
  if (thread_rank >= 0) fprintf(stderr, " (rank %d)", thread_rank);
  fprintf(stderr, ": %s", condition);
  if (format[1]) {
    fputs(":", stderr);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
  }
  fputc('\n', stderr);
  abort();
}

static void out_of_memory(size_t size) {
  fprintf(stderr, "plait: out of memory: the system refused %zu bytes\n", size);
  exit(1);
}

void *xcalloc(size_t count, size_t size) {
  void *p = calloc(count ? count : 1, size ? size : 1);
  if (!p) out_of_memory(count * size);
  return p;
}

void *xrealloc(void *old, size_t size) {
  void *p = realloc(old, size ? size : 1);
  if (!p) out_of_memory(size);
  return p;
}

char *xstrdup(const char *s) {
  size_t n = strlen(s) + 1;
  return memcpy(xcalloc(n, 1), s, n);
}

char *xformat(const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  CHECK(n >= 0);
  char *s = xcalloc((size_t)n + 1, 1);
  vsnprintf(s, (size_t)n + 1, format, again);
  va_end(again);
  return s;
}
