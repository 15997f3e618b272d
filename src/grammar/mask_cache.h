// Masks of places within strings that come again and again, kept with a grammar.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MaskCache MaskCache;
MaskCache *mask_cache_create(void);
void mask_cache_free(MaskCache *cache);

// A mask by what it is of. Many threads may ask; each gets a copy.
typedef struct MaskKey { const void *trie; int automaton, state, place; } MaskKey;
bool mask_cache_get(MaskCache *cache, const MaskKey *key, uint8_t *mask, size_t bytes);
void mask_cache_put(MaskCache *cache, const MaskKey *key, const uint8_t *mask, size_t bytes);
