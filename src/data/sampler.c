// Packed windows of blended datasets, addressed by (seed, i).
#include "data/sampler.h"
#include "base/fault.h"
#include "data/permutation.h"
#include "ir/inputs.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Windows of one epoch, or of the whole stream in an evaluation. The part of a dataset that a split holds out may be
// too small.
static int count_windows(const SamplerConfig *config, const Stream *d, int64_t *windows, Error *error) {
  int64_t needed = config->evaluation ? 2 : (int64_t)config->seq_len + 1;
  if (d->tokens < needed && config->split > 0 && config->evaluation) return *windows = 0, PLAIT_OK;
  if (d->tokens < needed)
    return error_set(error, PLAIT_BAD_INPUT, "%s.bin: too short: one window needs %lld tokens%s, the %s has %lld",
                     d->dataset->prefix, (long long)needed, config->evaluation ? "" : " (seq_len + 1)",
                     config->split > 0 ? "part that data.split leaves for training" : "dataset", (long long)d->tokens);
  *windows = (d->tokens - 1) / config->seq_len;
  if (config->evaluation && (d->tokens - 1) % config->seq_len) ++*windows;
  return PLAIT_OK;
}

static int open_dataset(Sampler *s, size_t k, const char *prefix, Error *error) {
  const SamplerConfig *config = &s->config;
  StreamPart part = !(config->split > 0) ? STREAM_ALL : config->evaluation ? STREAM_HELD_OUT : STREAM_KEPT;
  int code = indexed_open(&s->datasets[k], prefix, error);
  if (code == PLAIT_OK) code = stream_open(&s->streams[k], &s->datasets[k], config->split, part, error);
  if (code == PLAIT_OK) code = count_windows(config, &s->streams[k], &s->windows[k], error);
  s->total += s->windows[k];
  return code;
}

int sampler_open(Sampler *sampler, const SamplerConfig *config, Error *error) {
  *sampler = (Sampler){.config = *config};
  sampler->config.sources = NULL; // not ours to keep
  if (config->seq_len < 1)
    return error_set(error, PLAIT_BAD_INPUT, "data.seq_len is %d, it must be at least 1", config->seq_len);
  if (config->source_count < 1) return error_set(error, PLAIT_BAD_INPUT, "data: no dataset is named");
  size_t count = (size_t)config->source_count;
  sampler->datasets = xcalloc(count, sizeof *sampler->datasets);
  sampler->streams = xcalloc(count, sizeof *sampler->streams);
  sampler->windows = xcalloc(count, sizeof *sampler->windows);
  sampler->ids = xcalloc((size_t)window_part_length(&config->part, config->seq_len) + 1, sizeof *sampler->ids);
  double *weights = xcalloc(count, sizeof *weights);
  int code = PLAIT_OK;
  for (size_t k = 0; k < count && code == PLAIT_OK; k++) {
    code = open_dataset(sampler, k, config->sources[k].prefix, error);
    weights[k] = config->evaluation ? 1 : config->sources[k].weight;
  }
  if (code == PLAIT_OK && !sampler->total)
    code = error_set(error, PLAIT_BAD_INPUT, "data.split holds out no document of at least 2 tokens");
  if (!config->evaluation) sampler->total = INT64_MAX;
  if (code == PLAIT_OK) code = blend_create(&sampler->blend, weights, config->source_count, config->seed, error);
  free(weights);
  if (code != PLAIT_OK) sampler_close(sampler);
  return code;
}

void sampler_close(Sampler *sampler) {
  for (int k = 0; sampler->datasets && k < sampler->config.source_count; k++) {
    stream_close(&sampler->streams[k]);
    indexed_close(&sampler->datasets[k]);
  }
  blend_destroy(&sampler->blend);
  free(sampler->datasets);
  free(sampler->streams);
  free(sampler->windows);
  free(sampler->ids);
  free(sampler->unasked);
  *sampler = (Sampler){0};
}

SampleSite sampler_locate(const Sampler *sampler, int64_t i) {
  CHECK(i >= 0 && i < sampler->total);
  const SamplerConfig *config = &sampler->config;
  SampleSite site = {0};
  if (config->evaluation) {
    while (i >= sampler->windows[site.dataset]) i -= sampler->windows[site.dataset++];
    site.position = i * config->seq_len;
    return site;
  }
  int64_t drawn;
  blend_pick(&sampler->blend, i, &site.dataset, &drawn);
  int64_t windows = sampler->windows[site.dataset],
          slack = (sampler->streams[site.dataset].tokens - 1) % config->seq_len;
  site.epoch = drawn / windows;
  // Keys by the dataset's number in the list, not its path: a corpus may move and the run stays the same.
  uint64_t salt = (uint64_t)site.dataset;
  PhiloxKey order = philox_key(config->seed, (uint64_t)site.epoch, philox_name("data.window") + salt);
  PhiloxKey shift = philox_key(config->seed, (uint64_t)site.epoch, philox_name("data.offset") + salt);
  site.position = permutation(order, windows, drawn % windows) * config->seq_len + permutation(shift, slack + 1, 0);
  return site;
}

int64_t sampler_first(const Sampler *sampler, int dataset) {
  int64_t first = 0;
  for (int k = 0; k < dataset; k++) first += sampler->windows[k];
  return first;
}

int window_part_length(const WindowPart *part, int seq_len) {
  int length = 0;
  for (int i = 0; i < part->runs; i++) length += part->run[i].length;
  return part->runs ? length : seq_len;
}

static WindowPart whole_window(int seq_len) { return (WindowPart){.runs = 1, .run = {{0, seq_len}}}; }

void window_part_take(const WindowPart *part, int seq_len, const int32_t *whole, int32_t *out) {
  WindowPart p = part->runs ? *part : whole_window(seq_len);
  for (int i = 0; i < p.runs; out += p.run[i++].length)
    memcpy(out, whole + p.run[i].first, (size_t)p.run[i].length * sizeof *out);
}

// A sample's place: its first `inputs` positions are a stream's from `position` on; from the others nothing is learned.
typedef struct Window { const Stream *stream; int64_t position; int inputs; } Window;

typedef struct Arrays { int32_t *tokens, *targets, *positions, *documents; } Arrays; // of a run

// The document of a stream position of the window, and its number within the window.
static StreamDocument document_at(const Window *w, int64_t position, int *number) {
  StreamDocument document = stream_document_at(w->stream, w->position);
  for (*number = 0; document.end <= position; ++*number) document = stream_document_after(w->stream, document);
  return document;
}

// Positions and documents of `count` tokens of the window from `from` on, and no target after a document's last token.
static void mark_documents(const Window *w, int from, int count, Arrays out) {
  int64_t position = w->position + from;
  int number;
  StreamDocument document = document_at(w, position, &number);
  int64_t begin = document.begin > w->position ? document.begin : w->position;
  int32_t within = (int32_t)(FAULT(position_at_a_border, position, position - (from > 0)) - begin);
  number = FAULT(documents_count_anew_at_a_border, number, 0);
  for (int j = 0; j < count; j++, within++) {
    if (position + j == document.end) {
      document = stream_document_after(w->stream, document);
      number++;
      within = 0;
    }
    out.positions[j] = within;
    out.documents[j] = number;
    if (position + j + 1 == document.end) out.targets[j] = FAULT(mask_last_token_of_document, -1, out.targets[j]);
  }
}

// Fills the positions after the inputs of a window: n of them from `from` on.
static void fill_nothing(const SamplerConfig *config, const Window *w, int from, int n, Arrays out) {
  int documents = 0;
  if (config->document_mask && w->inputs) {
    document_at(w, w->position + w->inputs - 1, &documents);
    documents++;
  }
  for (int j = 0; j < n; j++) {
    out.tokens[j] = 0;
    out.targets[j] = -1;
    out.positions[j] = config->document_mask ? from + j - w->inputs : from + j;
    out.documents[j] = documents;
  }
}

// Positions [from, from + n) of a window. The last one's target may be another run's first token.
static int read_run(Sampler *sampler, const Window *w, int from, int n, Arrays out, Error *error) {
  const SamplerConfig *config = &sampler->config;
  int count = w->inputs < from ? 0 : w->inputs - from < n ? w->inputs - from : n;
  if (count) {
    int code =
        stream_read(w->stream, w->position + from, count + 1, config->vocab_size, sampler->ids, error);
    if (code != PLAIT_OK) return code;
    for (int j = 0; j < count; j++) {
      out.tokens[j] = sampler->ids[j];
      out.targets[j] = j + 1 < n ? sampler->ids[j + 1] : FAULT(target_at_a_border, sampler->ids[j + 1], -1);
      out.positions[j] = from + j;
      out.documents[j] = 0;
    }
    if (config->document_mask) mark_documents(w, from, count, out);
  }
  if (count == n) return PLAIT_OK;
  fill_nothing(config, w, from + count, n - count,
               (Arrays){out.tokens + count, out.targets + count, out.positions + count, out.documents + count});
  return PLAIT_OK;
}

int sampler_read(Sampler *sampler, int64_t i, int32_t *tokens, int32_t *targets, int32_t *positions, int32_t *documents,
                 Error *error) {
  const SamplerConfig *config = &sampler->config;
  CHECK(i >= 0);
  Window w = {0};
  if (i < sampler->total) {
    SampleSite site = sampler_locate(sampler, i);
    w = (Window){&sampler->streams[site.dataset], site.position, config->seq_len};
    int64_t left = w.stream->tokens - 1 - w.position;
    if (left < w.inputs) w.inputs = (int)left;
  }
  WindowPart part = config->part.runs ? config->part : whole_window(config->seq_len);
  for (int k = 0, at = 0; k < part.runs; at += part.run[k++].length) {
    Arrays out = {tokens + at, targets + at, positions + at, documents + at};
    int code = read_run(sampler, &w, part.run[k].first, part.run[k].length, out, error);
    if (code != PLAIT_OK) return code;
  }
  return i < sampler->total ? PLAIT_OK : 1;
}

int64_t sampler_row(const SamplerConfig *c, int input) {
  bool is_text =
      input == INPUT_TOKENS || input == INPUT_TARGETS || input == INPUT_POSITIONS || input == INPUT_DOCUMENTS;
  return is_text ? (int64_t)window_part_length(&c->part, c->seq_len) * (int64_t)sizeof(int32_t) : 0;
}

static int64_t row_bytes(const void *sampler, int input) {
  return sampler_row(&((const Sampler *)sampler)->config, input);
}

static int32_t *row_of(Sampler *s, void *const *to, int input) {
  if (to[input]) return to[input];
  size_t length = (size_t)window_part_length(&s->config.part, s->config.seq_len);
  if (!s->unasked) s->unasked = xcalloc(length, sizeof *s->unasked);
  return s->unasked;
}

static int read_inputs(void *sampler, int64_t i, void *const *to, Error *error) {
  Sampler *s = sampler;
  return sampler_read(s, i, row_of(s, to, INPUT_TOKENS), row_of(s, to, INPUT_TARGETS), row_of(s, to, INPUT_POSITIONS),
                      row_of(s, to, INPUT_DOCUMENTS), error);
}

static void close_self(void *sampler) { sampler_close(sampler); }

SampleSource sampler_source(Sampler *s) {
  return (SampleSource){.self = s,
                        .datasets = s->config.source_count,
                        .windows = s->windows,
                        .total = s->total,
                        .row = row_bytes,
                        .read = read_inputs,
                        .close = close_self};
}
