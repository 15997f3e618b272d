// The logits of a tick: which rank has which of them, and how those that are wanted come to rank 0.
#pragma once
#include "infer/sample.h"
#include "runtime/job.h"
#include "runtime/state.h"

// A tick's description has one of these for each row of logits. Others than these two: its most likely token among the
// ids [first, end), of which each rank sends that of its own words.
typedef SampleRange RowWant;
#define ROW_UNUSED ((RowWant){0, 0})
#define ROW_WHOLE ((RowWant){0, -1})

// Boxes of the outputs that a rank sends or, rank 0, has itself: each element is one rank's.
typedef struct RankLogits {
  struct LogitsBox {
    int output;
    Box box;
  } *box; // (count)
  int count;
  void *copy; // (wanted, vocab) of rows that the host cannot read where they are; NULL until there are some
} RankLogits;

typedef struct LogitsMap {
  const Job *job;
  int ranks, rows, wanted, vocab; // rows of the batch; the most rows of logits of each
  RankLogits *rank;               // (ranks)
} LogitsMap;

// On rank 0, for each row of each row of the batch: (rows, wanted)
typedef struct LogitsRows {
  const float **row;    // (vocab) of whole ones: in a message, in rank 0's State, or in `joined`
  SampleBest *best;     // of rows of which the most likely token is wanted
  float *maximum, *sum; // of all that are used
  float *joined;        // (rows, wanted, vocab) rows that come in parts; NULL until one does
} LogitsRows;

void logits_map_create(LogitsMap *map, const Job *job, int rows, int wanted, int vocab);
void logits_map_destroy(LogitsMap *map); // zeroed is fine
// Bytes of memory of a rank for logits, beside messages: on rank 0 its rows, elsewhere copies.
int64_t logits_map_bytes(const LogitsMap *map, int rank);
// Bytes of a rank's message where `want` (rows, wanted) is wanted; NULL: all rows whole, the most that there may be.
// The same number on both sides: it is not sent.
int64_t logits_bytes(const LogitsMap *map, int rank, const RowWant *want);
// Writes the message.
void logits_pack(LogitsMap *map, const State *state, const RowWant *want, char *message);

// On rank 0: begin, then all messages and rank 0's own, in any order. Rows stay valid as long as the messages, and own
// ones until the next tick.
void logits_rows_create(LogitsRows *rows, const LogitsMap *map);
void logits_rows_destroy(LogitsRows *rows); // zeroed is fine
void logits_begin(LogitsRows *rows, const LogitsMap *map);
void logits_unpack(LogitsRows *rows, const LogitsMap *map, int rank, const RowWant *want, const char *message);
void logits_own(LogitsRows *rows, LogitsMap *map, const State *state, const RowWant *want);
