// Packed windows of blended datasets, addressed by (seed, i).
#include "data/sampler.h"
#include "base/fault.h"
#include "data/permutation.h"
#include <stdlib.h>

// Windows of one epoch, or of the whole dataset in an evaluation.
static int count_windows(const SamplerConfig *config, const IndexedDataset *d, int64_t *windows, Error *error) {
  int64_t needed = config->evaluation ? 2 : (int64_t)config->seq_len + 1;
  if (d->tokens < needed)
    return error_set(error, PLAIT_BAD_INPUT, "%s.bin: too short: one window needs %lld tokens%s, the dataset has %lld",
                     d->prefix, (long long)needed, config->evaluation ? "" : " (seq_len + 1)", (long long)d->tokens);
  *windows = (d->tokens - 1) / config->seq_len;
  if (config->evaluation && (d->tokens - 1) % config->seq_len) ++*windows;
  return PLAIT_OK;
}

int sampler_open(Sampler *sampler, const SamplerConfig *config, Error *error) {
  *sampler = (Sampler){.config = *config};
  sampler->config.sources = NULL; // not ours to keep
  if (config->seq_len < 1)
    return error_set(error, PLAIT_BAD_INPUT, "data.seq_len is %d, it must be at least 1", config->seq_len);
  if (config->source_count < 1) return error_set(error, PLAIT_BAD_INPUT, "data: no dataset is named");
  size_t count = (size_t)config->source_count;
  sampler->datasets = xcalloc(count, sizeof *sampler->datasets);
  sampler->windows = xcalloc(count, sizeof *sampler->windows);
  sampler->ids = xcalloc((size_t)config->seq_len + 1, sizeof *sampler->ids);
  double *weights = xcalloc(count, sizeof *weights);
  int code = PLAIT_OK;
  for (size_t k = 0; k < count && code == PLAIT_OK; k++) {
    code = indexed_open(&sampler->datasets[k], config->sources[k].prefix, error);
    if (code == PLAIT_OK) code = count_windows(config, &sampler->datasets[k], &sampler->windows[k], error);
    weights[k] = config->evaluation ? 1 : config->sources[k].weight;
    sampler->total += sampler->windows[k];
  }
  if (!config->evaluation) sampler->total = INT64_MAX;
  if (code == PLAIT_OK) code = blend_create(&sampler->blend, weights, config->source_count, config->seed, error);
  free(weights);
  if (code != PLAIT_OK) sampler_close(sampler);
  return code;
}

void sampler_close(Sampler *sampler) {
  for (int k = 0; sampler->datasets && k < sampler->config.source_count; k++) indexed_close(&sampler->datasets[k]);
  blend_destroy(&sampler->blend);
  free(sampler->datasets);
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
          slack = (sampler->datasets[site.dataset].tokens - 1) % config->seq_len;
  site.epoch = drawn / windows;
  // Keys by the dataset's number in the list, not its path: a corpus may move and the run stays the same.
  uint64_t salt = (uint64_t)site.dataset;
  PhiloxKey order = philox_key(config->seed, (uint64_t)site.epoch, philox_name("data.window") + salt);
  PhiloxKey shift = philox_key(config->seed, (uint64_t)site.epoch, philox_name("data.offset") + salt);
  site.position = permutation(order, windows, drawn % windows) * config->seq_len + permutation(shift, slack + 1, 0);
  return site;
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
static int mark_documents(const IndexedDataset *d, int64_t position, int count, int32_t *targets, int32_t *positions,
                          int32_t *documents) {
  int64_t document = indexed_document_at(d, position), end = indexed_document_begin(d, document + 1);
  int local = 0;
  int32_t within = 0;
  for (int j = 0; j < count; j++, within++) {
    if (position + j == end) {
      while (end <= position + j) end = indexed_document_begin(d, ++document + 1); // empty ones are passed over
      local++;
      within = 0;
    }
    positions[j] = within;
    documents[j] = local;
    if (position + j + 1 == end) targets[j] = FAULT(mask_last_token_of_document, -1, targets[j]);
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
  const IndexedDataset *d = &sampler->datasets[site.dataset];
  int64_t left = d->tokens - 1 - site.position;
  int inputs = left < config->seq_len ? (int)left : config->seq_len;
  int code = indexed_read(d, site.position, inputs + 1, config->vocab_size, sampler->ids, error);
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
