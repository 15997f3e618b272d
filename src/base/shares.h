// Which rows of a batch each data rank computes, microbatch by microbatch.
//
// The rows of a step, its sequences, are numbered 0 … global-1. Microbatches take them in order, and of a microbatch
// the data ranks do. The batch need not divide: ranks differ by one row at most, and one may have none. No rank has
// more than `micro` rows of a microbatch, and there are as few microbatches as that allows; all ranks run as many, some
// of them with nothing in it.
#pragma once
#include <stdint.h>

typedef struct Shares {
  int64_t global;     // rows of the step
  int microbatches, ranks;
  int64_t bound;      // the most rows that a rank has of a microbatch: memory is planned for so many
  int64_t most;       // rows of a step that a rank has at most
  int even;           // every rank has `bound` rows of every microbatch
} Shares;

int shares_microbatches(int64_t global, int ranks, int64_t micro);
Shares shares_create(int64_t global, int ranks, int64_t micro); // all at least 1

// Where the rows of a rank begin; of rank `ranks`, where the microbatch ends.
int64_t shares_first(const Shares *shares, int microbatch, int rank);
// Of `count` ranks from `rank` on.
static inline int64_t shares_rows(const Shares *s, int microbatch, int rank, int count) {
  return shares_first(s, microbatch, rank + count) - shares_first(s, microbatch, rank);
}
int64_t shares_rows_before(const Shares *s, int microbatch, int rank,
                           int count); // the same ranks' rows in the microbatches before
// The share of their time in which ranks have fewer rows than the busiest of the microbatch: 0 where all are even. Of
// ranks that compute each other's rows too, `group` neighbours count as one.
double shares_idle(const Shares *shares, int group);
