// A tick under way: its inputs, of which every process hears, and its logits on their way to rank 0. Ticks run in their
// order on every rank, and no rank waits for another one between them but for what it receives.
#pragma once
#include "infer/logits.h"
#include "infer/scheduler.h"
#include "plait/comm.h"
#include "runtime/rank.h"

// Common to all ticks of an engine.
typedef struct FlightShape {
  int ranks, rows, local_rows; // ranks of the world; rows of the batch, and of a data rank
  int requests, pages;         // of a row, and of a request
  int tokens;                  // of a row, in the largest graph
  int wanted;                  // most positions of a row whose logits are wanted
  LogitsMap *logits;           // which rank has which of them
  bool processes;              // ranks are: they hear of a tick by messages
  bool overlap;                // a tick may run before the logits of the last one are taken: rank 0 packs its own, too
} FlightShape;

// A process hears this before the inputs of all rows. tokens: of the graph; count: of the inputs.
typedef struct FlightHeader { int32_t stop, tokens, count; } FlightHeader;

typedef struct TickFlight {
  const FlightShape *shape;
  FlightHeader header;
  Vec(int32_t) block;          // the inputs of all rows, one after the other
  int32_t *input[INPUT_COUNT]; // where they are in the block; NULL: not read
  int width[INPUT_COUNT];      // of a row
  RowWant *want;               // after them: (rows, wanted) of each row of logits (logits.h)
  PlaitEvent *told;            // (ranks, 2) that the header and the block have been received
  char **message;              // (ranks) the logits of each rank of this process, packed; NULL: none yet. Kept
  PlaitEvent *sent;            // (ranks) that rank 0 has received them
  // The rest is for rank 0.
  Tick tick;
  Vec(int) first;              // of each part: its first row of the logits
  int *used;                   // (2, rows) tokens and rows of logits of each row so far
  int64_t task;                // its number in the session
  int64_t prompt_tokens;
  double began;
} TickFlight;

// A tick on rank 0.
typedef struct FlightResults {
  char **received; // (ranks) messages; NULL: none yet. Kept
  int64_t bytes;   // of messages of all ticks so far
  LogitsRows rows;
} FlightResults;

// Of memory that a rank has for `flights` ticks under way: their descriptions, which ranks of a process share (rank 0's
// then), and logits.
int64_t flight_bytes(const FlightShape *shape, int flights, int rank);
void flight_create(TickFlight *f, const FlightShape *shape);
void flight_destroy(TickFlight *f); // zeroed is fine
// On rank 0: f->tick's parts become inputs of a graph of `tokens` tokens.
void flight_fill(TickFlight *f, const SchedulerOptions *options, int tokens);
void flight_stop(TickFlight *f); // in its place: processes hear that there are no more ticks
// SessionTask of every rank: it hears of the tick, computes it, and leaves its logits to flight_receive.
int flight_compute(Rank *r, void *flight, Error *error);
// Likewise: waits until rank 0 has this rank's logits.
int flight_settle(Rank *r, void *flight, Error *error);

void flight_results_create(FlightResults *results, const FlightShape *shape);
// On rank 0, for each tick in order.
int flight_receive(TickFlight *f, Rank *r, FlightResults *results, Error *error);
void flight_results_free(FlightResults *results, const FlightShape *shape); // zeroed is fine
