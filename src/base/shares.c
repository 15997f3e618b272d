// Shares of a batch.
#include "base/shares.h"
#include "base/error.h"
#include <stdlib.h>

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int shares_microbatches(int64_t global, int ranks, int64_t micro) { return (int)divide_up(divide_up(global, ranks), micro); }

Shares shares_create(int64_t global, int ranks, int64_t micro) {
  CHECK(global > 0 && ranks > 0 && micro > 0, "%lld rows, %d ranks, %lld rows a microbatch", (long long)global, ranks, (long long)micro);
  Shares s = {.global = global, .microbatches = shares_microbatches(global, ranks, micro), .ranks = ranks, .even = 1};
  int64_t most = divide_up(global, ranks), at = 0; // rows of the rank that has the most
  s.bound = divide_up(most, s.microbatches);
  s.first = xcalloc((size_t)s.microbatches * (size_t)(ranks + 1), sizeof *s.first);
  for (int m = 0; m < s.microbatches; m++) {
    int64_t rows = (most / s.microbatches + (m < most % s.microbatches)) * ranks; // so many of each rank
    if (rows > global - at) rows = global - at;                                   // in the last ones there are fewer left
    for (int r = 0; r <= ranks; r++) {
      s.first[(int64_t)m * (ranks + 1) + r] = at;
      if (r < ranks) at += rows / ranks + (r < rows % ranks);
    }
    s.even &= rows == s.bound * ranks;
  }
  CHECK(at == global, "rows are left over");
  return s;
}

void shares_free(Shares *s) {
  free(s->first);
  *s = (Shares){0};
}

int64_t shares_rows_before(const Shares *s, int microbatch, int rank, int count) {
  if (s->even) return microbatch * s->bound * count;
  int64_t rows = 0;
  for (int m = 0; m < microbatch; m++) rows += shares_rows(s, m, rank, count);
  return rows;
}

double shares_idle(const Shares *s) {
  int64_t busiest = 0;
  for (int m = 0; m < s->microbatches; m++) busiest += shares_rows(s, m, 0, 1); // the first rank has the most
  return 1 - (double)s->global / ((double)busiest * s->ranks);
}
