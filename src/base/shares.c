// Divides the rows of a batch among data ranks.
#include "base/shares.h"
#include "base/error.h"
#include <math.h>

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

// Division ----------------------------------------------------------------------------------------------------------

// One more row for whom it helps the most: the fraction that rounding took.
static int neediest(int ranks, int64_t most, const double *wanted, const int *rows) {
  int best = -1;
  for (int r = 0; r < ranks; r++)
    if (rows[r] < most && (best < 0 || wanted[r] - rows[r] > wanted[best] - rows[best])) best = r;
  return best;
}

static int richest(int ranks, const double *wanted, const int *rows) {
  int best = -1;
  for (int r = 0; r < ranks; r++)
    if (rows[r] > 1 && (best < 0 || rows[r] - wanted[r] > rows[best] - wanted[best])) best = r;
  return best;
}

// Rows of ranks beyond `most` are divided again among the others, until no rank is beyond it: at most as many rounds as
// ranks.
static void want(int64_t global, int ranks, int64_t most, const double *weight, double *wanted) {
  double left = (double)global, sum = 0;
  for (int r = 0; r < ranks; r++) wanted[r] = -1, sum += weight[r];
  for (int changed = 1; changed;) {
    double taken = 0, weights = 0;
    changed = 0;
    for (int r = 0; r < ranks; r++) {
      if (wanted[r] >= 0 || sum <= 0 || left * weight[r] / sum <= (double)most) continue;
      wanted[r] = (double)most;
      taken += wanted[r];
      weights += weight[r];
      changed = 1;
    }
    left -= taken;
    sum -= weights;
  }
  for (int r = 0; r < ranks; r++)
    if (wanted[r] < 0) wanted[r] = sum > 0 ? left * weight[r] / sum : 0;
}

void shares_divide(int64_t global, int ranks, int64_t most, const double *weight, int *rows) {
  double wanted[SHARES_MOST_WEIGHED];
  CHECK(ranks > 0 && ranks <= SHARES_MOST_WEIGHED && most * ranks >= global);
  want(global, ranks, most, weight, wanted);
  int64_t sum = 0;
  for (int r = 0; r < ranks; r++) {
    rows[r] = (int)fmin(floor(wanted[r] + 1e-9), (double)most);
    if (rows[r] < 1 && global >= ranks) rows[r] = 1;
    sum += rows[r];
  }
  for (; sum < global; sum++) rows[neediest(ranks, most, wanted, rows)]++;
  for (; sum > global; sum--) rows[richest(ranks, wanted, rows)]--;
}

void shares_set(Shares *s, const int *rows) {
  int64_t sum = 0;
  CHECK(s->weighed);
  for (int r = 0; r < s->ranks; r++) {
    CHECK(rows[r] >= 0 && rows[r] <= s->most, "rank %d has %d rows of at most %lld", r, rows[r], (long long)s->most);
    s->rows[r] = rows[r];
    sum += rows[r];
  }
  CHECK(sum == s->global, "%lld rows of %lld", (long long)sum, (long long)s->global);
}

static int64_t most_of(const int *rows, int ranks) {
  int64_t most = 0;
  for (int r = 0; r < ranks; r++) most = rows[r] > most ? rows[r] : most;
  return most;
}

// With all that ranks may have, which those that may change have in mind.
static void weigh(Shares *s, const Balance *b) {
  double weight[SHARES_MOST_WEIGHED];
  CHECK(s->ranks <= SHARES_MOST_WEIGHED && (!b->count || b->count == s->ranks), "%d weights of %d ranks", b->count,
        s->ranks);
  for (int r = 0; r < s->ranks; r++) weight[r] = b->count ? b->weight[r] : 1;
  s->weighed = 1;
  shares_divide(s->global, s->ranks, s->global, weight, s->rows);
  s->most = most_of(s->rows, s->ranks);
  if (!(b->most > 0)) return;
  double most = floor(b->most * (double)s->global / s->ranks + 1e-9);
  if (most > (double)s->global) most = (double)s->global;
  if (most > (double)s->most) s->most = (int64_t)most;
}

Shares shares_balanced(int64_t global, int ranks, int64_t micro, const Balance *b) {
  Shares s = shares_create(global, ranks, micro);
  int weighed = b && ranks > 1 && (b->count || b->most > 0), multiple = b ? b->multiple : 0;
  if (!weighed && multiple < 2) return s;
  if (weighed) weigh(&s, b);
  s.microbatches = (int)divide_up(s.most, micro);
  if (multiple > 1) s.microbatches = (int)divide_up(s.microbatches, multiple) * multiple;
  s.bound = divide_up(s.most, s.microbatches);
  s.even = !weighed && s.bound * s.microbatches * ranks == global;
  return s;
}

// Who has which -------------------------------------------------------------------------------------------------------

// Rows of a weighed rank in the microbatches before.
static int64_t weighed_before(const Shares *s, int microbatch, int rank) {
  int64_t rows = s->rows[rank], extra = rows % s->microbatches;
  return microbatch * (rows / s->microbatches) + (microbatch < extra ? microbatch : extra);
}

static int64_t weighed_first(const Shares *s, int microbatch, int rank) {
  int64_t first = 0;
  for (int r = 0; r < s->ranks; r++) first += weighed_before(s, microbatch + (r < rank), r);
  return first;
}

int64_t shares_first(const Shares *s, int microbatch, int rank) {
  if (s->weighed) return weighed_first(s, microbatch, rank);
  int64_t start = start_of(s, microbatch), rows = start_of(s, microbatch + 1) - start, extra = rows % s->ranks;
  return start + rank * (rows / s->ranks) + (rank < extra ? rank : extra);
}

void shares_begins(const Shares *s, int microbatch, int64_t *begins) {
  begins[0] = 0;
  for (int r = 0; r < s->ranks; r++)
    begins[r + 1] = s->weighed
                        ? begins[r] + weighed_before(s, microbatch + 1, r) - weighed_before(s, microbatch, r)
                        : shares_first(s, microbatch, r + 1) - shares_first(s, microbatch, 0);
}

int64_t shares_rows_before(const Shares *s, int microbatch, int rank, int count) {
  if (s->even) return microbatch * s->bound * count;
  int64_t rows = 0;
  for (int r = rank; s->weighed && r < rank + count; r++) rows += weighed_before(s, microbatch, r);
  for (int m = 0; !s->weighed && m < microbatch; m++) rows += shares_rows(s, m, rank, count);
  return rows;
}

int shares_same(const Shares *s, int a, int b) {
  if (!s->weighed) return shares_rows(s, a, 0, s->ranks) == shares_rows(s, b, 0, s->ranks);
  for (int r = 0; r < s->ranks; r++)
    if (shares_rows(s, a, r, 1) != shares_rows(s, b, r, 1)) return 0;
  return 1;
}

double shares_idle(const Shares *s, int group) {
  int64_t busiest = 0;
  for (int m = 0; m < s->microbatches; m++) {
    int64_t most = shares_rows(s, m, 0, group); // evenly, the first ones have the most
    for (int r = group; s->weighed && r < s->ranks; r += group) {
      int64_t rows = shares_rows(s, m, r, group);
      most = rows > most ? rows : most;
    }
    busiest += most;
  }
  return 1 - (double)s->global * group / ((double)busiest * s->ranks);
}
