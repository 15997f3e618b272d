// Packed windows of blended datasets, addressed by (seed, i).
#include "data/sampler.h"
#include "base/fault.h"
#include "data/permutation.h"
#include <stdlib.h>

// Windows of one epoch, or of the whole stream in an evaluation. What a split holds out of one dataset may be too
// little.
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
  sampler->ids = xcalloc((size_t)config->seq_len + 1, sizeof *sampler->ids);
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

// A sample, or the rest of one, that nothing is learned from. documents: the id that the fill gets.
static void fill_nothing(const SamplerConfig *config, int from, int document, int32_t *tokens, int32_t *targets,
                         int32_t *positions, int32_t *documents) {
  for (int j = from; j < config->seq_len; j++) {
    tokens[j] = 0;
    targets[j] = -1;
    positions[j] = config->document_mask ? j - from : j;
    documents[j] = config->document_mask ? document : 0;
  }
}

// Positions and documents of `count` tokens from a stream position on, and no target after a document's last token.
// Returns the number of documents seen.
static int mark_documents(const Stream *d, int64_t position, int count, int32_t *targets, int32_t *positions,
                          int32_t *documents) {
  StreamDocument document = stream_document_at(d, position);
  int local = 0;
  int32_t within = 0;
  for (int j = 0; j < count; j++, within++) {
    if (position + j == document.end) {
      document = stream_document_after(d, document);
      local++;
      within = 0;
    }
    positions[j] = within;
    documents[j] = local;
    if (position + j + 1 == document.end) targets[j] = FAULT(mask_last_token_of_document, -1, targets[j]);
  }
  return local + 1;
}

int sampler_read(Sampler *sampler, int64_t i, int32_t *tokens, int32_t *targets, int32_t *positions, int32_t *documents,
                 Error *error) {
  const SamplerConfig *config = &sampler->config;
  CHECK(i >= 0);
  if (i >= sampler->total) {
    fill_nothing(config, 0, 0, tokens, targets, positions, documents);
    return 1;
  }
  SampleSite site = sampler_locate(sampler, i);
  const Stream *d = &sampler->streams[site.dataset];
  int64_t left = d->tokens - 1 - site.position;
  int inputs = left < config->seq_len ? (int)left : config->seq_len;
  int code = stream_read(d, site.position, inputs + 1, config->vocab_size, sampler->ids, error);
  if (code != PLAIT_OK) return code;
  for (int j = 0; j < inputs; j++) {
    tokens[j] = sampler->ids[j];
    targets[j] = sampler->ids[j + 1];
    positions[j] = j;
    documents[j] = 0;
  }
  int seen = 1;
  if (config->document_mask) seen = mark_documents(d, site.position, inputs, targets, positions, documents);
  fill_nothing(config, inputs, seen, tokens, targets, positions, documents);
  return PLAIT_OK;
}
