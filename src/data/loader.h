// The prefetching loader: a thread that fills whole steps of one data rank into a bounded queue, ahead of training.
//
// Step t consists of samples t·G … (t+1)·G - 1 of the sampler, G being the sequences of a step; the Shares say which of
// these positions a data rank has in which microbatch. So what a step trains on depends on (seed, step) alone: resuming
// is starting at first_step, and every layout sees the same global batch. A batch holds the rank's whole step, so its
// target tokens can be counted before the first microbatch runs.
//
// The steps of an evaluation are each of one dataset, the datasets taking turns as long as they last: so whoever
// evaluates a few batches has some of each, and a loss for each.
#pragma once
#include "base/error.h"
#include "base/shares.h"
#include "data/sampler.h"
#include "ir/inputs.h"
#include <stddef.h>
#include <stdint.h>

// An input of a graph of a user's own: ids from INPUT_COUNT on, in their order.
typedef struct LoaderInput {
  const char *name;
  int64_t row; // bytes of a sample's on this rank, which the source must have; 0: the loader does not read it
  InputFilled filled;
} LoaderInput;

typedef struct LoaderConfig {
  const SampleSource *samples; // read during loader_open only, and closed with the loader; NULL: text, of these:
  const DataSource *sources; // (source_count) read during loader_open only
  int source_count;
  const LoaderInput *own; // (own_count) read during loader_open only
  int own_count;
  int seq_len;
  int document_mask;
  int vocab_size; // an id at or above it is an error of loader_next; 0: not checked
  int evaluation; // in order, no shuffle, no weights, one pass, then loader_next returns 1
  int64_t limit;  // windows of an evaluation, of which the datasets have equal parts as far as they last; 0: all
  uint64_t seed;
  double split;    // see SamplerConfig
  WindowPart part; // of every sample
  const Shares *shares; // of a step; borrowed for as long as the loader is open
  int data_rank;
  int prefetch_steps; // steps kept ready beside the one in use, >= 1
} LoaderConfig;

// An input in the memory of a batch: rows of `row` bytes from `offset` on. row 0: the batch does not have it.
typedef struct BatchInput {
  int64_t offset, row;
  InputFilled filled;
} BatchInput;

// One step's share of this rank: of each input that the loader fills its rows, those of one microbatch after those of
// the other. Owned by the loader, valid until loader_release.
typedef struct Batch {
  int64_t step;
  int source;  // the dataset that an evaluation's step is of; training: -1
  int samples; // may be 0
  char *memory;
  const BatchInput *input; // (inputs) by id (ir/inputs.h), the same in all batches of the loader
  int inputs;
  int64_t *sample; // (samples) position in the global batch
} Batch;
// (samples) rows of an input; NULL: the batch does not have it. Of INPUT_STEP_TARGETS those of INPUT_TARGETS.
void *batch_input(const Batch *batch, int id);
int64_t batch_row(const Batch *batch, int id); // bytes
// Waits until the inputs that are FILLED_LATE are filled too; or the error of filling them.
int batch_wait_late(Batch *batch, Error *error);

typedef struct LoaderStats {
  int64_t steps;  // given out
  int64_t late;   // of these, steps whose late inputs somebody has begun to wait for
  int64_t stalls; // of these, steps that were not ready when asked for: many mean that the loader is the bottleneck
  double waited_seconds; // that the consumer waited, in all
  double filled_seconds; // that the thread spent filling
  int ready;             // steps ready now
} LoaderStats;

typedef struct Loader Loader;

SamplerConfig loader_sampler(const LoaderConfig *config); // what it reads by

// Opens the datasets, allocates every buffer and starts the thread at first_step >= 0. On an error *loader is NULL.
int loader_open(const LoaderConfig *config, int64_t first_step, Loader **loader, Error *error);
void loader_close(Loader *loader); // NULL is fine; batches not released become invalid

// The next step in *batch; steps come in order. Returns PLAIT_OK; 1 when an evaluation has ended (no batch); or the
// error of the thread, after the steps before it were given out, and again on every later call. waited_seconds may be
// NULL. Inputs that are FILLED_LATE are filled after it has returned. An evaluation's last batch is filled up with
// samples that have no targets. A consumer must release a batch before it asks for more than prefetch_steps others.
// Called by one thread.
int loader_next(Loader *loader, Batch **batch, double *waited_seconds, Error *error);
void loader_release(Loader *loader, Batch *batch); // any order

// Begins an evaluation anew, with the same memory and thread: the next batch is that of step 0, which is read ahead
// from now on. No batch may be in use.
void loader_rewind(Loader *loader);

// Windows that the first `steps` steps of an evaluation read, all of them where `steps` is 0.
int64_t loader_windows(const Loader *loader, int64_t steps);
// "all 275 sequences of 16", "40 of 275 sequences of 16": what a loss was measured on.
enum { LOADER_WINDOWS_TEXT = 96 };
void loader_describe_windows(char text[LOADER_WINDOWS_TEXT], int64_t windows, int64_t all, int64_t seq_len);

// The config's Shares have changed (shares_set): batches that were read ahead are read again by them. No batch may be
// in use.
void loader_take_shares(Loader *loader);

LoaderStats loader_stats(Loader *loader);

// Of text: bytes that loader_open will hold on the heap for batches and scratch (maps of the files are not counted).
size_t loader_bytes(const LoaderConfig *config);
