// A covering array of strength 3 over features: every triple that can be run is part of a layout of many features.
#include "matrix.h"
#include <stdlib.h>

enum { F = LAYOUT_FEATURES, SEEDS = 6 };

// Sets of features: what goes with a feature; and of each two features those with which they are a triple that no set
// has yet (the same in both orders).
typedef struct Cover {
  uint64_t together[F], open[F][F];
  int triples;
} Cover;

#define BIT(f) (UINT64_C(1) << (f))
_Static_assert(F <= 64, "features are bits of a set");

static int ranks_of(uint64_t set) {
  MatrixMesh mesh = matrix_mesh(set, (MatrixMesh){0});
  return matrix_mesh_ranks(&mesh);
}

static void flip(Cover *c, int i, int j, int k) {
  c->open[i][j] ^= BIT(k), c->open[i][k] ^= BIT(j);
  c->open[j][i] ^= BIT(k), c->open[j][k] ^= BIT(i);
  c->open[k][i] ^= BIT(j), c->open[k][j] ^= BIT(i);
}

static int is_open(const Cover *c, int i, int j, int k) { return c->open[i][j] >> k & 1; }

static void begin(Cover *c) {
  for (int i = 0; i < F; i++)
    for (int j = 0; j < F; j++)
      if (i != j && matrix_reason(BIT(i) | BIT(j), (MatrixMesh){0}) == MATRIX_IN) c->together[i] |= BIT(j);
  for (int i = 0; i < F; i++)
    for (int j = i + 1; j < F; j++)
      for (int k = j + 1; k < F && c->together[i] >> j & 1; k++)
        if ((c->together[i] & c->together[j]) >> k & 1 && ranks_of(BIT(i) | BIT(j) | BIT(k)) <= MATRIX_RANKS)
          flip(c, i, j, k), c->triples++;
}

// How many open triples the set gains by a feature.
static int gain(const Cover *c, uint64_t set, int f) {
  int n = 0;
  for (uint64_t left = set; left; left &= left - 1) // each with those after it
    n += __builtin_popcountll(c->open[f][__builtin_ctzll(left)] & (left & (left - 1)));
  return n;
}

static int goes_with(const Cover *c, uint64_t set, int f) {
  return !(set >> f & 1) && (c->together[f] & set) == set;
}

// Adds the features that gain most, as long as there are any and the ranks suffice. Returns the triples gained.
static int grow(const Cover *c, uint64_t *set) {
  int most = ranks_of(*set) > MATRIX_COVER_RANKS ? ranks_of(*set) : MATRIX_COVER_RANKS, total = 1;
  for (;;) {
    int best = -1, best_gain = 0;
    for (int f = 0; f < F; f++) {
      int g = goes_with(c, *set, f) ? gain(c, *set, f) : 0;
      if (g > best_gain && ranks_of(*set | BIT(f)) <= most) best = f, best_gain = g;
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
        if (set >> k & 1 && is_open(c, i, j, k)) flip(c, i, j, k), c->triples--;
}

// The first open triple, in rising order of its features, at or after number `from`, counted through all and around.
static uint64_t open_after(const Cover *c, int from) {
  for (int n = 0; n < F * F * F; n++) {
    int t = (from + n) % (F * F * F), i = t / (F * F), j = t / F % F, k = t % F;
    if (i < j && j < k && is_open(c, i, j, k)) return BIT(i) | BIT(j) | BIT(k);
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
