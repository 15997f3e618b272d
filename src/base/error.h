// Setting errors: codes (plait/error.h) and the context that carries one sentence up to the person who can act on it.
#pragma once
#include "plait/error.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef PlaitError Error;
typedef PlaitErrorRank ErrorRank;

// The facts of a sentence, for code that decides by them: nobody takes a sentence apart (tests/base/test_sentences.sh).
// All zero: none.
typedef struct ErrorFacts {
  ErrorRank rank, blamed; // as in PlaitError
  const char *key;
} ErrorFacts;

// Stores the code and the formatted sentence (no trailing newline, no full stop needed; control characters become ?)
// and returns the code.
// The first error wins: a later one does not overwrite it. `error` may be NULL.
int error_set(Error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// The same, with the facts that the sentence has.
int error_set_about(Error *error, int code, const ErrorFacts *facts, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// As error_set, with the code, the sentence and the facts of `other`, which has failed. Returns its code.
int error_take(Error *error, const Error *other);

// A rank for facts; below 0: none. host: NULL or "" where the sentence does not say it.
ErrorRank error_rank(int rank, const char *host);

// Puts "rank 1 on node7: " before a sentence that names no rank (host NULL: "rank 1: "); it is to blame where nobody
// is.
void error_name_rank(Error *error, int rank, const char *host);

// Says that the sentence names a rank already.
void error_says_rank(Error *error, int rank);

// The rank other than `rank` that is to blame; -1: none.
int error_blames(const Error *error, int rank);

// Of bytes that another process has sent: whether it is a failure whose texts end and whose ranks are below `ranks`.
bool error_is_valid(const Error *error, int ranks);

// Puts "prefix: " before the message that is already there; returns its code.
int error_prefix(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts more words after the message that is already there; returns its code.
int error_append(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Process exit status for a code: 0, 1 or 2.
int error_exit_status(int code);

// A broken invariant: prints file, line and rank, then aborts. For bugs in plait, never for what a user wrote.
#define CHECK(condition, ...) \
  do { if (!(condition)) check_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__); } while (0)
void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

// The rank that this thread works for, for messages; -1 (the default) prints none.
void check_set_rank(int rank);

// Allocations that die with a clear message when memory is out; memory is zeroed.
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *s);
char *xformat(const char *format, ...) __attribute__((format(printf, 1, 2))); // caller frees
