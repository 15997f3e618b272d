// Bump allocator: a list of blocks, each at least as large as the request that opened it.
#include "base/arena.h"
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ArenaBlock { ArenaBlock *next; size_t used, size; _Alignas(16) char data[]; };

void *arena_alloc(Arena *arena, size_t size) {
  size = (size + 15) & ~(size_t)15;
  ArenaBlock *b = arena->block;
  if (!b || b->size - b->used < size) {
    size_t want = arena->total < 1 << 10    ? 1 << 10
                  : arena->total > 64 << 10 ? 64 << 10
                                            : arena->total; // small ones stay small
    if (want < size) want = size;
    b = xcalloc(1, sizeof *b + want);
    b->size = want;
    b->next = arena->block;
    arena->block = b;
    arena->total += want;
  }
  void *p = b->data + b->used;
  b->used += size;
  return p;
}

char *arena_strdup(Arena *arena, const char *s) {
  size_t n = strlen(s) + 1;
  return memcpy(arena_alloc(arena, n), s, n);
}

char *arena_join(Arena *arena, const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b) + 1;
  char *s = arena_alloc(arena, n + 1 + m);
  memcpy(s, a, n);
  s[n] = '.';
  memcpy(s + n + 1, b, m);
  return s;
}

char *arena_format(Arena *arena, const char *format, ...) {
  va_list a, b;
  va_start(a, format);
  va_copy(b, a);
  int n = vsnprintf(NULL, 0, format, a);
  va_end(a);
  CHECK(n >= 0);
  char *s = arena_alloc(arena, (size_t)n + 1);
  vsnprintf(s, (size_t)n + 1, format, b);
  va_end(b);
  return s;
}

void arena_free(Arena *arena) {
  for (ArenaBlock *b = arena->block, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  *arena = (Arena){0};
}
