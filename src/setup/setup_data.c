// The files that a recipe names, looked at before a run: are they there, do they open, is there something to evaluate.
#include "base/fault.h"
#include "base/file.h"
#include "base/units.h"
#include "data/indexed.h"
#include "data/loader.h"
#include "tokenizer/tokenizer.h"
#include "setup/setup.h"
#include "schedule/schedule.h"
#include <stdlib.h>
#include <string.h>

LoaderConfig setup_loader(const Recipe *recipe, const ModelConfig *config, int validation, DataSource *sources) {
  const RecipeCorpora *list = recipe_corpora(recipe, validation);
  // Where stages update at once, parts of that many later steps are run with each step.
  int ahead = schedules[recipe->parallel.pipeline].at_once ? recipe->mesh.pp - 1 : 0;
  for (int i = 0; i < list->count; i++) sources[i] = (DataSource){list->items[i].prefix, list->items[i].weight};
  return (LoaderConfig){.sources = sources,
                        .source_count = list->count,
                        .seq_len = recipe->data.seq_len,
                        .document_mask = recipe->data.document_mask,
                        .vocab_size = (int)config->vocab,
                        .evaluation = validation,
                        .seed = (uint64_t)recipe->run.seed,
                        .split = recipe->data.split,
                        .prefetch_steps = recipe->data.prefetch > ahead ? recipe->data.prefetch : ahead};
}

// Files ---------------------------------------------------------------------------------------------------------------

static void look_for(const char *key, const char *path, const char *end, char **missing) {
  char *file = xformat("%s%s", path, end), *old = *missing;
  if (!file_exists(file)) {
    *missing = xformat("%s%s%s (%s)", old ? old : "", old ? ", " : "", file, key);
    free(old);
  }
  free(file);
}

int setup_check_files(const Recipe *r, Error *error) {
  char *missing = NULL;
  look_for("model.config", r->model.config, "", &missing);
  if (r->model.init[0] == '/') look_for("model.init", r->model.init, "", &missing);
  for (int validation = 0; validation < 2; validation++) {
    const RecipeCorpora *list = validation ? &r->data.valid : &r->data.train;
    for (int i = 0; i < list->count; i++) {
      look_for(validation ? "data.valid" : "data.train", list->items[i].prefix, ".bin", &missing);
      look_for(validation ? "data.valid" : "data.train", list->items[i].prefix, ".idx", &missing);
    }
  }
  if (r->data.tokenizer) look_for("data.tokenizer", r->data.tokenizer, "", &missing);
  if (r->checkpoint.resume[0] == '/') look_for("checkpoint.resume", r->checkpoint.resume, "", &missing);
  if (!missing) return PLAIT_OK;
  int code = error_set(error, PLAIT_BAD_INPUT, "%s names files that do not exist: %.800s", r->name, missing);
  free(missing);
  return code;
}

// Corpora -------------------------------------------------------------------------------------------------------------

// Is there a token to predict in what an evaluation reads? As a rule the first window has one.
static int check_targets(const Recipe *r, Sampler *sampler, Error *error) {
  int64_t most = (int64_t)r->eval.batches * r->batch.global, found = 0;
  int32_t *fields = xcalloc((size_t)r->data.seq_len * 4, sizeof *fields), *part[4]; // (4, seq_len)
  for (int k = 0; k < 4; k++) part[k] = fields + (size_t)k * (size_t)r->data.seq_len;
  int code = PLAIT_OK;
  for (int k = 0; k < sampler->config.source_count && !found && !code; k++) {
    int64_t first = sampler_first(sampler, k), end = sampler_first(sampler, k + 1);
    if (end - first > most) end = first + most;
    for (int64_t i = first; i < end && !found && !code; i++) {
      code = sampler_read(sampler, i, part[0], part[1], part[2], part[3], error);
      for (int j = 0; j < r->data.seq_len; j++) found |= part[1][j] >= 0;
    }
  }
  free(fields);
  if (code || found) return code;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "no token to predict in the held-out text, so that it has no loss: its documents have one token each, "
      "and with data.document_mask a document's first token is not predicted; give longer documents");
}

static char *describe_split(const Recipe *r, const Sampler *s) {
  int64_t documents = 0, all = 0, tokens = 0, all_tokens = 0;
  for (int k = 0; k < s->config.source_count; k++) {
    documents += s->streams[k].documents, all += s->streams[k].all;
    tokens += s->streams[k].tokens, all_tokens += s->datasets[k].tokens;
  }
  return xformat("data.split %.15g holds out %lld of %lld documents, %.3g%% of the tokens, for evaluation\n",
                 r->data.split, (long long)documents, (long long)all, 100 * (double)tokens / (double)all_tokens);
}

static DataPasses count_passes(const Recipe *r, const Sampler *s) {
  DataPasses passes = {.corpora = s->config.source_count};
  double weights = 0;
  for (int k = 0; k < passes.corpora; k++)
    weights += r->data.train.items[k].weight, passes.tokens += (double)s->streams[k].tokens;
  for (int k = 0; k < passes.corpora; k++) {
    double rate = FAULT(passes_ignore_weights, r->data.train.items[k].weight / weights, 1. / passes.corpora) /
                  (double)s->streams[k].tokens;
    if (!k || rate < passes.least) passes.least = rate;
    if (!k || rate > passes.most) passes.most = rate;
  }
  return passes;
}

// "2.3", "0.041", "17".
static void print_passes(double passes, char *text, size_t size) {
  snprintf(text, size, passes >= 99.5 ? "%.0f" : passes >= 0.95 ? "%.1f" : "%.2g", passes);
}

void setup_describe_passes(const DataPasses *p, double trained, char *text, size_t size) {
  char least[32], most[32], corpora[48] = "";
  print_passes(trained * p->least, least, sizeof least);
  print_passes(trained * p->most, most, sizeof most);
  if (p->corpora > 1) snprintf(corpora, sizeof corpora, "%d corpora of ", p->corpora);
  bool range = strcmp(least, most);
  snprintf(text, size, "%s%s%s passes over %s%s tokens", least, range ? " to " : "", range ? most : "", corpora,
           units_count(p->tokens).s);
}

int setup_check_data(const Recipe *r, const ModelConfig *config, char **note, DataPasses *passes, Error *error) {
  int code = PLAIT_OK;
  if (note) *note = NULL;
  if (passes) *passes = (DataPasses){0};
  for (int validation = 0; validation < 2 && !code; validation++) {
    const RecipeCorpora *list = recipe_corpora(r, validation);
    if (!list->count) continue;
    DataSource *sources = xcalloc((size_t)list->count, sizeof *sources);
    LoaderConfig loader = setup_loader(r, config, validation, sources);
    SamplerConfig c = loader_sampler(&loader);
    Sampler sampler;
    code = sampler_open(&sampler, &c, error);
    if (!code && !validation && passes) *passes = count_passes(r, &sampler);
    if (!code && validation && r->eval.every) code = check_targets(r, &sampler, error);
    if (!code && validation && r->data.split > 0 && note) *note = describe_split(r, &sampler);
    const char *key = list == &r->data.valid ? "data.valid" : "data.train";
    if (code) error_prefix(error, "%s%s", recipe_where(r, key), key);
    sampler_close(&sampler);
    free(sources);
  }
  return code;
}

// Tokenizer -----------------------------------------------------------------------------------------------------------

// Has a corpus of the recipe a token for which the model has no row? `size`: the tokenizer's vocabulary.
static int check_ids(const Recipe *r, const ModelConfig *config, int size, Error *error) {
  enum { AT_ONCE = 1 << 20 };
  int32_t *ids = xcalloc(AT_ONCE, sizeof *ids);
  int code = PLAIT_OK;
  for (int validation = 0; validation < 2; validation++) {
    const RecipeCorpora *list = validation ? &r->data.valid : &r->data.train;
    const char *key = validation ? "data.valid" : "data.train";
    for (int i = 0; i < list->count && !code; i++) {
      IndexedDataset d;
      if ((code = indexed_open(&d, list->items[i].prefix, error))) break;
      for (int64_t at = 0; at < d.tokens && !code; at += AT_ONCE)
        code = indexed_read(&d, at, d.tokens - at < AT_ONCE ? d.tokens - at : AT_ONCE, (int)config->vocab, ids, error);
      indexed_close(&d);
      if (!code) continue;
      Error found = *error;
      *error = (Error){0}; // which keeps its first sentence else
      if (r->model.init[0] == '/') // its weights have as many rows as they have
        code = error_set(error, code, "%s%s: %s; tokenize the text again with --tokenizer %s", recipe_where(r, key),
                         key, found.message, r->model.init);
      else
        code = error_set(error, code, "%s%s: %s; set vocab_size in %s to at least %d for a new model",
                         recipe_where(r, key), key, found.message, config->path, size);
    }
    if (code) break;
  }
  free(ids);
  return code;
}

int setup_check_tokenizer(const Recipe *r, const ModelConfig *config, bool data, char **note, Error *error) {
  const char *path = r->data.tokenizer;
  Tokenizer *t;
  *note = NULL;
  if (!path || !file_exists(path)) return PLAIT_OK;
  int code = tokenizer_load(path, &t, error), without = 0;
  if (code) return error_prefix(error, "%sdata.tokenizer", recipe_where(r, "data.tokenizer"));
  int size = tokenizer_vocab_size(t);
  for (int64_t id = config->vocab; id < size; id++) without += tokenizer_token(t, (int32_t)id) != NULL;
  tokenizer_destroy(t);
  if (!without) return PLAIT_OK;
  if (FAULT(tokens_without_a_row_are_let_pass, data, 0) && (code = check_ids(r, config, size, error))) return code;
  *note = xformat("note: %sdata.tokenizer: %s has %d token%s, %lld and above, for which the model has no row, because "
                  "vocab_size in %s is %lld; %s\n",
                  recipe_where(r, "data.tokenizer"), path, without, without > 1 ? "s" : "", (long long)config->vocab,
                  config->path, (long long)config->vocab,
                  data ? "the data has none of them" : "a run refuses data that has one of them");
  return PLAIT_OK;
}
