// Hash consing.
#include "base/intern.h"
#include <string.h>

static uint64_t hash_of(const void *value, size_t size) { // FNV-1a, eight bytes at a time
  uint64_t hash = 0xcbf29ce484222325, word;
  const char *at = value;
  for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  for (; size; size--) hash = (hash ^ (unsigned char)*at++) * 0x100000001b3;
  return hash ^ hash >> 32;
}

// Where a value is, or belongs.
static Interned *place_of(Intern *t, const void *value, size_t size, uint64_t hash) {
  uint64_t mask = (uint64_t)t->slot.count - 1;
  for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
    Interned *s = &t->slot.data[i];
    if (!s->value || (s->hash == hash && !memcmp(s->value, value, size))) return s;
  }
}

static void grow(Intern *t, size_t size) {
  Intern larger = {.count = t->count};
  int slots = t->slot.count ? 2 * t->slot.count : 64;
  while (larger.slot.count < slots) vec_push(&larger.slot, (Interned){0});
  for (int i = 0; i < t->slot.count; i++)
    if (t->slot.data[i].value) *place_of(&larger, t->slot.data[i].value, size, t->slot.data[i].hash) = t->slot.data[i];
  vec_free(&t->slot);
  *t = larger;
}

const void *intern(Intern *t, Arena *arena, const void *value, size_t size) {
  if (2 * t->count >= t->slot.count) grow(t, size);
  uint64_t hash = hash_of(value, size);
  Interned *s = place_of(t, value, size, hash);
  if (s->value) return s->value;
  void *own = arena_alloc(arena, size);
  memcpy(own, value, size);
  *s = (Interned){own, hash};
  t->count++;
  return own;
}

void intern_free(Intern *t) {
  vec_free(&t->slot);
  t->count = 0;
}
