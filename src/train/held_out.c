// Evaluations by data source, and the best of them.
#include "train/held_out.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A batch of an evaluation is of one source (data/loader.h).
static int add_batch(Rank *r, void *context, const Batch *batch, double loss, double tokens, Error *error) {
  HeldOut *h = context;
  if (!(tokens > 0)) return PLAIT_OK;
  h->source_loss[batch->source] += loss * tokens;
  h->source_tokens[batch->source] += tokens;
  return PLAIT_OK;
}

int held_out_evaluate(Rank *r, const Recipe *recipe, HeldOut *h, Error *error) {
  const RecipeCorpora *sources = recipe_corpora(recipe, true);
  size_t n = (size_t)sources->count;
  *h = (HeldOut){.count = sources->count,
                 .sources = sources,
                 .source_loss = xcalloc(n, sizeof *h->source_loss),
                 .source_tokens = xcalloc(n, sizeof *h->source_tokens)};
  h->windows = loader_windows(r->evaluation, recipe->eval.batches);
  h->all = loader_windows(r->evaluation, 0);
  int code = rank_evaluate(r, recipe->eval.batches, add_batch, h, &h->loss, &h->tokens, error);
  for (size_t k = 0; k < n; k++)
    h->source_loss[k] = h->source_tokens[k] > 0 ? h->source_loss[k] / h->source_tokens[k] : NAN;
  return code;
}

void held_out_free(HeldOut *h) {
  free(h->source_loss);
  free(h->source_tokens);
  *h = (HeldOut){0};
}

static const char *last_part(const char *prefix) {
  const char *slash = strrchr(prefix, '/');
  return slash ? slash + 1 : prefix;
}

// The last part of the prefix, as far as it fits and with "_" for what names of metrics may not have.
static void base_name(const HeldOut *h, int source, char name[HELD_OUT_NAME]) {
  snprintf(name, HELD_OUT_NAME, "%.40s", last_part(h->sources->items[source].prefix));
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("-_.", *c)) *c = '_';
}

static int count_of_base(const HeldOut *h, const char *name) {
  char other[HELD_OUT_NAME];
  int count = 0;
  for (int k = 0; k < h->count; k++) {
    base_name(h, k, other);
    count += !strcmp(other, name);
  }
  return count;
}

// Numbered names end in different numbers, and none of them is the base of a source.
void held_out_name(const HeldOut *h, int source, char name[HELD_OUT_NAME]) {
  base_name(h, source, name);
  if (count_of_base(h, name) < 2) return;
  do { // at most a few times: a base has 40 characters at most
    size_t n = strlen(name);
    snprintf(name + n, HELD_OUT_NAME - n, "_%d", source + 1);
  } while (count_of_base(h, name));
}

bool best_update(BestLoss *best, int64_t step, double loss) {
  if (isfinite(loss) && (!best->step || loss < best->loss)) return *best = (BestLoss){loss, step, 0}, true;
  best->without++;
  return false;
}

json_t *best_to_json(const BestLoss *best) {
  return json_pack("{s:f, s:I, s:I}", "loss", best->loss, "step", (json_int_t)best->step, "without_improvement",
                   (json_int_t)best->without);
}

BestLoss best_from_json(const json_t *json) {
  return (BestLoss){json_number_value(json_object_get(json, "loss")), json_integer_value(json_object_get(json, "step")),
                    json_integer_value(json_object_get(json, "without_improvement"))};
}
