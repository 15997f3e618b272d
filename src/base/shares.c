// Divides the rows of a batch among data ranks.
#include "base/shares.h"
#include "base/error.h"

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int shares_microbatches(int64_t global, int ranks, int64_t micro) {
  return (int)divide_up(divide_up(global, ranks), micro);
}

// Where a microbatch begins. The `most` rows of the rank that has the most are divided over microbatches, those that
// are left over going to the first ones; every rank would have as many, but the step's last microbatch ends earlier.
static int64_t start_of(const Shares *s, int64_t microbatch) {
  int64_t extra = s->most % s->microbatches,
          rows = microbatch * (s->most / s->microbatches) + (microbatch < extra ? microbatch : extra);
  return rows * s->ranks < s->global ? rows * s->ranks : s->global;
}

Shares shares_create(int64_t global, int ranks, int64_t micro) {
  CHECK(global > 0 && ranks > 0 && micro > 0, "%lld rows, %d ranks, %lld rows a microbatch", (long long)global, ranks,
        (long long)micro);
  Shares s = {.global = global,
              .microbatches = shares_microbatches(global, ranks, micro),
              .ranks = ranks,
              .most = divide_up(global, ranks)};
  s.bound = divide_up(s.most, s.microbatches);
  s.even = s.bound * s.microbatches * ranks == global;
  return s;
}

int64_t shares_first(const Shares *s, int microbatch, int rank) {
  int64_t start = start_of(s, microbatch), rows = start_of(s, microbatch + 1) - start, extra = rows % s->ranks;
  return start + rank * (rows / s->ranks) + (rank < extra ? rank : extra);
}

int64_t shares_rows_before(const Shares *s, int microbatch, int rank, int count) {
  if (s->even) return microbatch * s->bound * count;
  int64_t rows = 0;
  for (int m = 0; m < microbatch; m++) rows += shares_rows(s, m, rank, count);
  return rows;
}

double shares_idle(const Shares *s, int group) {
  int64_t busiest = 0;
  for (int m = 0; m < s->microbatches; m++) busiest += shares_rows(s, m, 0, group); // the first ones have the most
  return 1 - (double)s->global * group / ((double)busiest * s->ranks);
}
