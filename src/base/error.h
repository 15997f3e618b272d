// Setting errors: codes (plait/error.h) and the context that carries one sentence up to the person who can act on it.
#pragma once
#include "plait/error.h"
#include <stdarg.h>
#include <stddef.h>

typedef PlaitError Error;

// Stores the code and the formatted sentence (no trailing newline, no full stop needed; control characters become ?)
// and returns the code.
// The first error wins: a later one does not overwrite it. `error` may be NULL.
int error_set(Error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Puts "prefix: " before the message that is already there; returns its code.
int error_prefix(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts more words behind the message that is already there; returns its code.
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
