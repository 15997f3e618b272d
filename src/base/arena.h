// Bump allocator for compile-time structures: one arena per Graph or Program, freed whole, no per-node free.
#pragma once
#include <stddef.h>

typedef struct ArenaBlock ArenaBlock;
typedef struct Arena { ArenaBlock *block; size_t total; } Arena; // zero-initialise

void *arena_alloc(Arena *arena, size_t size);        // zeroed, 16-byte aligned, never NULL
char *arena_strdup(Arena *arena, const char *s);
char *arena_join(Arena *arena, const char *a, const char *b); // "a.b", as names of nodes and tensors are made
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *arena);

#define arena_new(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define arena_array(arena, type, n) ((type *)arena_alloc((arena), sizeof(type) * (size_t)(n)))
