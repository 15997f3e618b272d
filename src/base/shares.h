// Which rows of a batch each data rank computes, microbatch by microbatch.
//
// The rows of a step, its sequences, are numbered 0 … global-1. Microbatches take them in order, and of a microbatch
// the data ranks do. The batch need not divide: ranks differ by one row at most, and one may have none. No rank has
// more than `micro` rows of a microbatch, and there are as few microbatches as that allows; all ranks run as many, some
// of them with nothing in it.
//
// With a Balance, ranks have different shares of a step: each rank's rows are spread over the microbatches, those that
// are left over going to the first ones. Shares are data, not shapes: they may change between two steps, within the
// bounds for which microbatches and memory were planned.
#pragma once
#include <stdint.h>

enum { SHARES_MOST_WEIGHED = 1024 }; // data ranks that may have different shares

// How the rows of a step are divided among the data ranks. Zeroed: evenly.
typedef struct Balance {
  const int *weight; // (count) of each data rank; borrowed
  int count;         // 0: all have the same
  double most;       // above 0: shares may change while a run lasts, up to this multiple of the even one
  int multiple;      // above 1: the number of microbatches is a multiple of this
} Balance;

typedef struct Shares {
  int64_t global;     // rows of the step
  int microbatches, ranks;
  int64_t bound;      // the most rows that a rank has of a microbatch: memory is planned for them
  int64_t most;       // rows of a step that a rank has at most, also after a change
  int even;           // every rank has `bound` rows of every microbatch
  int weighed;        // ranks have `rows`, else the same but for one row
  int rows[SHARES_MOST_WEIGHED]; // (ranks) of the step
} Shares;

int shares_microbatches(int64_t global, int ranks, int64_t micro);
Shares shares_create(int64_t global, int ranks, int64_t micro); // all at least 1
// By a balance (NULL: evenly), whose weights are as many as there are ranks. Shares that may change are even at first.
Shares shares_balanced(int64_t global, int ranks, int64_t micro, const Balance *balance);

// The rows of a step in proportion to weights (ranks) of at least 0, of which one is above 0: each rank has at most
// `most` of them, and at least one where there are as many as ranks; what is left over by rounding goes to those whose
// fraction is largest, the lower rank first. rows: (ranks).
void shares_divide(int64_t global, int ranks, int64_t most, const double *weight, int *rows);
// Changes shares of ranks that are weighed, between two steps: `rows` add up to `global`, each at most `most`.
void shares_set(Shares *shares, const int *rows);

// Where the rows of a rank begin; of rank `ranks`, where the microbatch ends.
int64_t shares_first(const Shares *shares, int microbatch, int rank);
// Of `count` ranks from `rank` on.
static inline int64_t shares_rows(const Shares *s, int microbatch, int rank, int count) {
  return shares_first(s, microbatch, rank + count) - shares_first(s, microbatch, rank);
}
// Where the rows of each rank begin in a microbatch, counted from its first: (ranks + 1), of which the last is its end.
void shares_begins(const Shares *shares, int microbatch, int64_t *begins);
int64_t shares_rows_before(const Shares *s, int microbatch, int rank,
                           int count); // the same ranks' rows in the microbatches before
// Do all ranks have as many rows in one microbatch as in the other?
int shares_same(const Shares *shares, int microbatch, int other);
// The share of their time in which ranks have fewer rows than the busiest of the microbatch: 0 where all are even. Of
// ranks that compute each other's rows too, `group` neighbours count as one.
double shares_idle(const Shares *shares, int group);
