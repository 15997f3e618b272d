// A tree search that jumps back (pack_search.c: conflict-directed backjumping, Prosser, 1993), started again and again:
// what an order of the items tries first decides whether a search takes few steps or more than there is time for, and
// of many short searches in random orders some are lucky. How many steps each may take follows the sequence 1, 1, 2, 1,
// 1, 2, 4, … (Luby, Sinclair and Zuckerman, 1993), within a constant and a logarithm of the best.
#include "program/pack/pack_search.h"
#include "base/error.h"
#include <stdlib.h>

// 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, …: the number k, from 1 on.
static int64_t luby(int64_t k) {
  int64_t power = 1;
  while (2 * power - 1 < k) power *= 2;
  return 2 * power - 1 == k ? power : luby(k - power + 1);
}

// Searches below one capacity. Returns whether something fits; then *found are the offsets.
static int search_below(const PackProblem *p, const PackMeets *meets, const int64_t *load, int64_t capacity,
                        int64_t *tries, int64_t stop, int64_t *looked, int64_t *found) {
  enum { STEPS = 40 }; // the shortest search takes this many for each item
  while (*looked < stop) {
    int64_t k = (*tries)++;
    // Orders without random numbers once, then those with.
    PackAim aim = {.capacity = capacity,
                   .order = (int)(k < PACK_ORDERS ? k : PACK_RANDOM_ORDER + k % (PACK_ORDERS - PACK_RANDOM_ORDER)),
                   .rounds = STEPS * luby(k + 1),
                   .effort = stop - *looked,
                   .jump = 1,
                   .draw = k};
    if (pack_search(p, meets, load, &aim, looked, found) == PACK_FITS) return 1;
  }
  return 0;
}

int64_t pack_jumps(const PackProblem *p, const PackMeets *meets, const int64_t *load, int64_t lowest, int64_t end,
                   int64_t effort, int64_t *offset) {
  static const int above[] = {0, 15, 35, 55}; // capacities, in thousandths of the lowest
  enum { CAPACITIES = sizeof above / sizeof *above };
  int64_t *found = xcalloc((size_t)p->item.count + 1, sizeof *found), looked = 0, tries[CAPACITIES] = {0},
          unit = pack_unit(p);
  if (p->item.count > PACK_MOST_SEARCHED) effort = 0;
  // From the lowest upwards, again and again, each time with twice the effort.
  for (int64_t slice = effort / 64 + 1; end > lowest && looked < effort; slice *= 2)
    for (int k = 0; k < CAPACITIES && looked < effort; k++) {
      int64_t capacity = (lowest + lowest / 1000 * above[k]) / unit * unit;
      if (capacity >= end) break;
      int64_t stop = looked + slice < effort ? looked + slice : effort;
      if (!search_below(p, meets, load, capacity, &tries[k], stop, &looked, found)) continue;
      for (int i = 0; i < p->item.count; i++) offset[i] = found[i] < 0 ? 0 : found[i];
      end = pack_end(p, offset);
    }
  free(found);
  return end;
}
