// A covering array of strength 3 over features: every triple that can be run is part of a layout of many features.
#include "matrix.h"
#include <stdlib.h>

enum { F = LAYOUT_FEATURES, SEEDS = 6 };

// What goes together, and which triples no set has yet.
typedef struct Cover {
  char together[F][F], open[F][F][F]; // open: by a < b < c
  int triples;
} Cover;

#define BIT(f) (UINT64_C(1) << (f))

static int ranks_of(uint64_t set) {
  MatrixMesh mesh = matrix_mesh(set, (MatrixMesh){0});
  return matrix_mesh_ranks(&mesh);
}

static char *open_triple(Cover *c, int i, int j, int k) {
  int low = i < j ? i : j, high = i < j ? j : i;
  return k < low ? &c->open[k][low][high] : k < high ? &c->open[low][k][high] : &c->open[low][high][k];
}

static void begin(Cover *c) {
  for (int i = 0; i < F; i++)
    for (int j = 0; j < F; j++)
      c->together[i][j] = i != j && matrix_reason(BIT(i) | BIT(j), (MatrixMesh){0}) == MATRIX_IN;
  for (int i = 0; i < F; i++)
    for (int j = i + 1; j < F; j++)
      for (int k = j + 1; k < F && c->together[i][j]; k++)
        if (c->together[i][k] && c->together[j][k] && ranks_of(BIT(i) | BIT(j) | BIT(k)) <= MATRIX_RANKS)
          c->open[i][j][k] = 1, c->triples++;
}

// How many open triples the set gains by a feature.
static int gain(Cover *c, uint64_t set, int f) {
  int n = 0;
  for (int i = 0; i < F; i++)
    for (int j = i + 1; j < F && set >> i & 1; j++) n += (set >> j & 1) && *open_triple(c, i, j, f);
  return n;
}

static int goes_with(const Cover *c, uint64_t set, int f) {
  if (set >> f & 1) return 0;
  for (int i = 0; i < F; i++)
    if (set >> i & 1 && !c->together[i][f]) return 0;
  return 1;
}

// Adds the features that gain most, as long as there are any and the ranks suffice. Returns the triples gained.
static int grow(Cover *c, uint64_t *set) {
  int most = ranks_of(*set) > MATRIX_COVER_RANKS ? ranks_of(*set) : MATRIX_COVER_RANKS, total = 1;
  for (;;) {
    int best = -1, best_gain = 0;
    for (int f = 0; f < F; f++) {
      if (!goes_with(c, *set, f) || ranks_of(*set | BIT(f)) > most) continue;
      int g = gain(c, *set, f);
      if (g > best_gain) best = f, best_gain = g;
    }
    if (best < 0) return total;
    *set |= BIT(best);
    total += best_gain;
  }
}

static void close_triples(Cover *c, uint64_t set) {
  for (int i = 0; i < F; i++)
    for (int j = i + 1; j < F && set >> i & 1; j++)
      for (int k = j + 1; k < F && set >> j & 1; k++)
        if (set >> k & 1 && c->open[i][j][k]) c->open[i][j][k] = 0, c->triples--;
}

// The first open triple at or after number `from`, counted through all and around.
static uint64_t open_after(const Cover *c, int from) {
  for (int n = 0; n < F * F * F; n++) {
    int t = (from + n) % (F * F * F), i = t / (F * F), j = t / F % F, k = t % F;
    if (c->open[i][j][k]) return BIT(i) | BIT(j) | BIT(k);
  }
  return 0;
}

int matrix_cover(uint64_t **sets) {
  Cover *c = xcalloc(1, sizeof *c);
  Vec(uint64_t) list = {0};
  begin(c);
  while (c->triples) { // of a few that begin elsewhere, the one that gains most
    uint64_t best = 0;
    int best_gain = 0;
    for (int s = 0; s < SEEDS; s++) {
      uint64_t set = open_after(c, s * (F * F * F / SEEDS));
      int gained = grow(c, &set);
      if (gained > best_gain) best = set, best_gain = gained;
    }
    close_triples(c, best);
    vec_push(&list, best);
  }
  free(c);
  *sets = list.data;
  return list.count;
}
