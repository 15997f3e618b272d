// A timeline of a rank, in chosen steps, as a file that chrome://tracing and ui.perfetto.dev open.
#pragma once
#include "base/clock.h"
#include "base/error.h"
#include "plait/comm.h"
#include "program/program.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct TraceSpan {
  const char *name, *detail; // kept as pointers: of static text, or of the graph
  const char *category;
  double begin, end;         // seconds of the monotonic clock
  int stage, microbatch;     // -1: has none
  const char *stream;        // ran beside what this thread did, on the stream of this axis; NULL: it did not
  double flops, bytes;       // of a kernel's call, by its op's cost (op/work.h); bytes 0: not told
} TraceSpan;

// One per rank, used by its thread alone; an observer of its executors. All memory is there from the start: spans
// beyond it are counted, not kept.
typedef struct Trace {
  bool on;                // inside a chosen step
  int64_t first, last;    // the chosen steps
  double zero;            // the file's time 0
  int rank, count, capacity;
  int64_t dropped;
  bool written;
  char title[64];
  double action, instruction; // when those under way began
  TraceSpan *span;        // (capacity)
} Trace;

// title: of the rank, as in "rank 3: pp 1 dp 1".
Trace *trace_create(int rank, const char *title, int64_t first, int64_t steps, int capacity);
void trace_destroy(Trace *trace); // NULL is fine
// The spans that a run of a Program makes, at most.
int trace_program_spans(const Program *program);
// Agrees on time 0. Collective over `world` (NULL: one rank). On one machine all ranks read the same clock; on several
// they start at the same barrier.
int trace_align(Trace *trace, PlaitComm *world, bool one_machine, Error *error);

// Turns it on or off for a step; 1 when all chosen steps are over and the file should be written.
int trace_turn(Trace *trace, int64_t step);
// Gathers all ranks' spans on rank 0, which writes the file whole or not at all. Collective over `world`.
int trace_write(Trace *trace, PlaitComm *world, const char *path, Error *error);

// The parts of such a file, for traces of what was not run (simulated steps): `ranks` are those of the run, of which
// one may stand for several.
void trace_print_head(int ranks, FILE *out);
void trace_print_rank(const Trace *trace, bool first, FILE *out);
void trace_print_end(FILE *out);

void trace_add(Trace *trace, const TraceSpan *span);

// double begin = trace_begin(t); … trace_end(t, begin, "name", "detail", "category", stage, microbatch);
// Where nothing is traced (t NULL, or off) each is one comparison.
static inline double trace_begin(const Trace *t) { return t && t->on ? clock_seconds() : 0; }
static inline void trace_end(Trace *t, double begin, const char *name, const char *detail, const char *category,
                             int stage, int microbatch) {
  if (t && t->on && begin > 0)
    trace_add(t, &(TraceSpan){name, detail, category, begin, clock_seconds(), stage, microbatch, NULL});
}
