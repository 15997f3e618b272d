// Error contexts, broken invariants, allocation that cannot return NULL.
#include "base/error.h"
#include "base/fault.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int thread_rank = -1;

// Messages quote what hostile files hold; none of it may move a terminal's cursor or look like a second message.
static void make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

static void set(Error *error, int code, const ErrorFacts *facts, const char *format, va_list arguments) {
  static const ErrorFacts none;
  if (!facts) facts = &none;
  *error = (Error){.code = code, .rank = facts->rank, .blamed = facts->blamed};
  vsnprintf(error->message, sizeof error->message, format, arguments);
  if (facts->key) snprintf(error->key, sizeof error->key, "%s", facts->key);
  make_printable(error->message);
}

int error_set(Error *error, int code, const char *format, ...) {
  if (!error || error->code) return code;
  va_list arguments;
  va_start(arguments, format);
  set(error, code, NULL, format, arguments);
  va_end(arguments);
  return code;
}

int error_set_about(Error *error, int code, const ErrorFacts *facts, const char *format, ...) {
  if (!error || error->code) return code;
  va_list arguments;
  va_start(arguments, format);
  set(error, code, facts, format, arguments);
  va_end(arguments);
  return code;
}

int error_take(Error *error, const Error *other) {
  if (!error || error->code) return other->code;
  *error = *other;
  make_printable(error->message);
  make_printable(error->rank.host);
  make_printable(error->blamed.host);
  make_printable(error->key);
  return error->code;
}

ErrorRank error_rank(int rank, const char *host) {
  ErrorRank r = {.known = rank >= 0, .rank = rank >= 0 ? rank : 0};
  if (r.known && host) snprintf(r.host, sizeof r.host, "%s", host);
  return r;
}

void error_name_rank(Error *error, int rank, const char *host) {
  if (!error || !error->code) return;
  if (!error->blamed.known) error->blamed = error_rank(rank, host);
  if (error->rank.known) return;
  error->rank = error_rank(rank, host);
  if (host) error_prefix(error, "rank %d on %s", rank, host);
  else error_prefix(error, "rank %d", rank);
}

void error_says_rank(Error *error, int rank) {
  if (error && error->code && !error->rank.known) error->rank = error_rank(rank, NULL);
}

int error_blames(const Error *error, int rank) {
  return FAULT(nobody_is_blamed, error->code && error->blamed.known, 0) && error->blamed.rank != rank
             ? error->blamed.rank : -1;
}

static bool ends(const char *text, size_t size) { return memchr(text, 0, size); }

static bool rank_is_valid(const ErrorRank *r, int ranks) {
  return (r->known == 0 || r->known == 1) && r->rank >= 0 && (!r->known || r->rank < ranks) &&
         ends(r->host, sizeof r->host);
}

bool error_is_valid(const Error *e, int ranks) {
  return e->code < 0 && e->code >= PLAIT_UNWRITABLE && ends(e->message, sizeof e->message) &&
         ends(e->key, sizeof e->key) && e->text >= 0 && (size_t)e->text <= strlen(e->message) &&
         rank_is_valid(&e->rank, ranks) && rank_is_valid(&e->blamed, ranks);
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
    int text = error->text + n + 2, end = (int)strlen(error->message);
    error->text = text < end ? text : end;
  } else error->text = (int)strlen(error->message); // nothing of them is left
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
