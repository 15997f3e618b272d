// A cache of masks: a table of a fixed number of places, in which a newer mask replaces an older one.
#include "grammar/mask_cache.h"
#include "base/error.h"
#include "base/hash.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 256, MOST_BYTES = 32 << 20 };

typedef struct Entry { MaskKey key; uint8_t *mask; size_t bytes; } Entry;
struct MaskCache {
  pthread_mutex_t lock;
  size_t bytes;
  Entry entry[PLACES];
};

MaskCache *mask_cache_create(void) {
  MaskCache *cache = xcalloc(1, sizeof *cache);
  pthread_mutex_init(&cache->lock, NULL);
  return cache;
}

void mask_cache_free(MaskCache *cache) {
  for (int i = 0; i < PLACES; i++) free(cache->entry[i].mask);
  pthread_mutex_destroy(&cache->lock);
  free(cache);
}

static Entry *place_of(MaskCache *cache, const MaskKey *k) {
  uint64_t h = hash_mix((uint64_t)(uintptr_t)k->trie, (uint64_t)k->automaton);
  h = hash_mix(h, (uint64_t)k->state << 20 ^ (uint64_t)k->place);
  return &cache->entry[(h ^ h >> 32) % PLACES];
}

static bool is_same(const MaskKey *a, const MaskKey *b) {
  return a->trie == b->trie && a->automaton == b->automaton && a->state == b->state && a->place == b->place;
}

bool mask_cache_get(MaskCache *cache, const MaskKey *key, uint8_t *mask, size_t bytes) {
  pthread_mutex_lock(&cache->lock);
  const Entry *e = place_of(cache, key);
  bool found = e->mask && e->bytes == bytes && is_same(&e->key, key);
  if (found) memcpy(mask, e->mask, bytes);
  pthread_mutex_unlock(&cache->lock);
  return found;
}

void mask_cache_put(MaskCache *cache, const MaskKey *key, const uint8_t *mask, size_t bytes) {
  pthread_mutex_lock(&cache->lock);
  Entry *e = place_of(cache, key);
  if (cache->bytes - (e->mask ? e->bytes : 0) + bytes <= MOST_BYTES) {
    cache->bytes += bytes - (e->mask ? e->bytes : 0);
    e->mask = xrealloc(e->mask, bytes);
    e->bytes = bytes;
    e->key = *key;
    memcpy(e->mask, mask, bytes);
  }
  pthread_mutex_unlock(&cache->lock);
}
