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
#include <stddef.h>
#include <stdint.h>

typedef struct LoaderConfig {
  const DataSource *sources; // (source_count) read during loader_open only
  int source_count;
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

// One step's share of this rank, its rows of one microbatch after those of the other. Owned by the loader, valid until
// loader_release.
typedef struct Batch {
  int64_t step;
  int source;                                        // the dataset that an evaluation's step is of; training: -1
  int samples;                                       // may be 0
  int length;                                        // positions that are read of each: seq_len, or a part of it
  int32_t *tokens, *targets, *positions, *documents; // (samples, length), as in sampler_read
  int64_t *sample;                                   // (samples) position in the global batch
} Batch;

typedef struct LoaderStats {
  int64_t steps;  // given out
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
// NULL. An evaluation's last batch is filled up with samples that have no targets. A consumer must release a batch
// before it asks for more than prefetch_steps others. Called by one thread.
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

// Bytes that loader_open will hold on the heap for batches and scratch (maps of the files are not counted).
size_t loader_bytes(const LoaderConfig *config);
