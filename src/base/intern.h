// Values by content: equal ones are kept once, so that they have one address. For structs without padding.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include <stdint.h>

typedef struct Interned { const void *value; uint64_t hash; } Interned;
typedef struct Intern { Vec(Interned) slot; int count; } Intern; // a hash table, at most half full; zero-initialise

// The kept value of these bytes; made in the arena where there is none yet. All of a table have the same size.
const void *intern(Intern *table, Arena *arena, const void *value, size_t size);
void intern_free(Intern *table); // not the values
