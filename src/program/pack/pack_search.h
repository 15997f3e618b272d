// The packers that pack.c tries beside first fit, and their shared parts.
#pragma once
#include "program/pack/pack.h"

// (items, words) bits: the items that each one meets.
typedef struct PackMeets { uint64_t *bits; size_t words; } PackMeets;
static inline int pack_meets(const PackMeets *m, int a, int b) {
  return m->bits[(size_t)a * m->words + (size_t)b / 64] >> (b % 64) & 1;
}

PackMeets pack_find_meets(const PackProblem *problem); // freed by free(bits)

// (items) The most bytes that are needed at one of the item's times, of all items. Freed by free.
int64_t *pack_loads(const PackProblem *problem);

// The unit that all sizes are multiples of. Then so are all ends of items, and a capacity has to be: items are placed
// below it.
int64_t pack_unit(const PackProblem *problem);

// Tree search, below a capacity, of the items that are needed when at least `least` bytes are (0: of all). Items of
// less than `small` bytes are left out, and the capacity is lower by the most of these. It ends after `rounds` times as
// many steps as there are items, or at the effort (pack.h).
// PACK_RANDOM_ORDER: from this one on orders have random numbers. PACK_MOST_SEARCHED: of more items none is searched: a
// level takes 300 bytes of the stack, 700 with AddressSanitizer.
enum { PACK_ORDERS = 6, PACK_RANDOM_ORDER = 3, PACK_MOST_SEARCHED = 4000 };
typedef struct PackAim {
  int64_t capacity, least, small;
  int order;              // below PACK_ORDERS: what is tried first
  int64_t rounds, effort;
  int patience;           // above 0: it also ends when items / patience steps in a row have not come deeper
  int jump;               // go back at once to what a failure depends on: much faster, but it proves nothing
  int64_t draw;           // number of the random order
} PackAim;
typedef enum PackFound { PACK_GAVE_UP, PACK_FITS, PACK_NONE } PackFound; // none: all has been tried, and nothing fits
// offset (items) of what was searched, -1 of the rest, if it fits; else it stays. Adds what it took to *looked.
PackFound pack_search(const PackProblem *problem, const PackMeets *meets, const int64_t *load, const PackAim *aim,
                      int64_t *looked, int64_t *offset);
// Guided ejection search (pack_ejection.c; Nagata and Bräysy, 2009), after a tree search and alone, from an empty
// packing and from a given one: for a packing that ends below `end`, at best at *bound, with at most about `effort`.
// search: 0 for ejection alone. Returns the lowest end found, and its offsets; or `end`, and leaves the offsets as they
// are. *bound rises where all has been tried.
int64_t pack_ejection_search(const PackProblem *problem, const PackMeets *meets, const int64_t *load, int64_t *bound,
                             int64_t end, int search, int64_t effort, int64_t *offset);

// Backjumping with restarts (pack_jumps.c): for a packing of all that ends below `end`. Four capacities below `end` are
// tried, from the lowest one upwards. Returns the lowest end found, and its offsets; or `end`, and leaves the offsets
// as they are.
int64_t pack_jumps(const PackProblem *problem, const PackMeets *meets, const int64_t *load, int64_t lowest, int64_t end,
                   int64_t effort, int64_t *offset);

// How long an item is needed in all.
int64_t pack_duration(const PackProblem *problem, const PackItem *item);

// The end of the highest item that is needed.
int64_t pack_end(const PackProblem *problem, const int64_t *offset);

// The placed items, by rising address: once for all times, and once for each period of time, so that a brief item looks
// at few.
typedef struct PackMark { int64_t at; int item; } PackMark;
typedef Vec(PackMark) PackShelf;
enum { PACK_PERIODS = 32 };
typedef struct PackShelves {
  PackShelf shelf[PACK_PERIODS + 1]; // the last: of all times
  unsigned char *first, *last;       // (items) periods in which it is needed first and last
  int begin, end;                    // of all times
  int periods;                       // PACK_PERIODS, or 0: one shelf for all
} PackShelves;
PackShelves pack_shelves(const PackProblem *problem); // freed by pack_shelves_free
void pack_shelves_clear(PackShelves *shelves);
void pack_shelves_free(PackShelves *shelves);
// Where all that this item meets lies, with others.
const PackShelf *pack_shelf_of(const PackShelves *shelves, int item);
// Both return what that costs, as items looked at.
int pack_shelves_put(PackShelves *shelves, PackMark mark);
int pack_shelves_take(PackShelves *shelves, PackMark mark);

// Random numbers that are the same everywhere: xorshift (Marsaglia, 2003).
#define PACK_SEED 88172645463325252u
static inline uint64_t pack_draw(uint64_t *random) {
  *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
  return *random;
}

// An order of items: the lowest class first, in a class the greatest worth, among equals the lowest `after`.
typedef struct PackKey { int class; double worth; int64_t after; int item; } PackKey;
void pack_sort(PackKey *key, int count);
