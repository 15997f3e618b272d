// Sample i of a training or evaluation run, from (seed, i) alone: packed windows of a blend of indexed datasets.
//
// The documents of a dataset lie back to back as one stream of N tokens. A sample is a window of seq_len + 1 of them:
// seq_len inputs and, shifted by one, their targets; neighbouring windows share one token, so that every token but the
// first is a target once. An epoch of a dataset has W = (N - 1) / seq_len windows in the order of a keyed permutation;
// in each epoch they start at another of the (N - 1) % seq_len + 1 possible offsets, so that the tail takes part too.
// The d-th sample drawn from a dataset is window permutation(d % W) of epoch d / W; the blend says which dataset and
// which d. Documents are found by binary search: O(log documents) a window.
//
// Evaluation: no shuffle, no weights, one pass: all windows of the first dataset from offset 0, then those of the
// second … The last window of each dataset may be short; it is filled up with token 0 and no targets, so every token
// but the first is a target exactly once.
//
// With a split, training reads the documents that it keeps and an evaluation those that it holds out, as if the others
// were not there (data/stream.h).
#pragma once
#include "base/error.h"
#include "data/blend.h"
#include "data/sample_source.h"
#include "data/stream.h"

typedef struct DataSource {
  const char *prefix; // of PREFIX.idx and PREFIX.bin
  double weight;      // relative; any positive number when there is one source
} DataSource;

// The positions of a window that are read, run after run: what one rank has where ranks divide a sequence (context
// parallelism). No runs: all.
enum { WINDOW_RUNS = 2 };
typedef struct WindowPart {
  int runs;
  struct { int first, length; } run[WINDOW_RUNS];
} WindowPart;
int window_part_length(const WindowPart *part, int seq_len);
// The same positions of a row of a whole window, one after the other.
void window_part_take(const WindowPart *part, int seq_len, const int32_t *whole, int32_t *out);

typedef struct SamplerConfig {
  const DataSource *sources; // (source_count) read during sampler_open only
  int source_count;
  int seq_len;
  int document_mask; // positions restart and targets stop at the end of a document
  int vocab_size;    // an id at or above it is an error when it is read; 0: not checked
  int evaluation;
  uint64_t seed;
  double split;      // the fraction of the documents that is held out for evaluation; 0: none, both read all
  WindowPart part;
} SamplerConfig;

typedef struct Sampler {
  SamplerConfig config;
  IndexedDataset *datasets; // (source_count)
  Stream *streams;          // (source_count) of these
  int64_t *windows;         // (source_count) windows of an epoch
  int64_t total;            // evaluation: windows of all datasets; training: INT64_MAX
  Blend blend;
  int32_t *ids; // (positions read + 1) scratch
  int32_t *unasked; // (positions read) rows that nobody asks for; made when there are some
} Sampler;

// A dataset without one whole window (training) or with fewer than 2 tokens (evaluation) is PLAIT_BAD_INPUT, as is
// everything that indexed_open, stream_open and blend_create refuse. Of what a split holds out, one dataset must have
// 2 tokens.
int sampler_open(Sampler *sampler, const SamplerConfig *config, Error *error);
void sampler_close(Sampler *sampler); // also safe after a failed open and twice
// As a loader reads it. Closing it closes the sampler, whose memory is the caller's.
SampleSource sampler_source(Sampler *sampler);
int64_t sampler_row(const SamplerConfig *config, int input); // SampleSource.row of such a sampler

// Where sample i is read: dataset, epoch, and the stream position of its first input.
typedef struct SampleSite {
  int dataset;
  int64_t epoch, position;
} SampleSite;
SampleSite sampler_locate(const Sampler *sampler, int64_t i);
// Evaluation: the number of a dataset's first sample; that of dataset source_count is `total`.
int64_t sampler_first(const Sampler *sampler, int dataset);

// Fills one sample, each array (seq_len), or where only a part of windows is read as long as that is:
//   tokens     input ids
//   targets    the next token, -1 where there is none: with document_mask at a document's last token
//   positions  0 … seq_len-1, those of the window; with document_mask counted from the document's first token in this
//     window
//   documents  0; with document_mask the number of the document within the window, ascending from 0
// Returns PLAIT_OK; 1 when i lies after the end of an evaluation (the sample is then all token 0 without targets); or
// an error. Uses the scratch of the sampler: one thread at a time.
int sampler_read(Sampler *sampler, int64_t i, int32_t *tokens, int32_t *targets, int32_t *positions, int32_t *documents,
                 Error *error);
