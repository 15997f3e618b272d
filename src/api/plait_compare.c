// plait_compare (include/plait/plait.h): the rows and the advice of `plait compare` as structs.
#include "plait/plait.h"
#include "base/arena.h"
#include "foresight/advice.h"
#include "foresight/compare.h"
#include "setup/setup.h"
#include <string.h>

_Static_assert((int)PLAIT_LEVELS == (int)MAX_LEVELS, "a row has the bytes of every level");

// The memory of a PlaitComparison, which is its first member.
typedef struct Own { PlaitComparison comparison; Arena arena; } Own;

static const char *text_or_null(Arena *arena, const char *text) { return *text ? arena_strdup(arena, text) : NULL; }

static PlaitStrategy strategy_of(const Comparison *c, Strategy strategy, Arena *arena) {
  const CompareRow *row = &c->row[strategy];
  const CompareNumbers *n = &row->number;
  PlaitStrategy s = {.name = strategy_names[strategy], .settings = arena_strdup(arena, row->settings)};
  s.why_not = text_or_null(arena, row->why);
  if (s.why_not) return s;
  s.pp = row->pp, s.dp = row->dp, s.tp = row->tp, s.zero = row->zero;
  s.step_seconds = n->step;
  s.tokens_per_second = n->tokens_per_s;
  s.bubble = n->bubble;
  s.exposed = n->exposed;
  s.memory_bytes = n->bytes;
  s.room_bytes = n->room;
  s.parameter_bytes = n->memory[MEMORY_PARAMETERS];
  s.gradient_bytes = n->memory[MEMORY_GRADIENTS];
  s.optimizer_bytes = n->memory[MEMORY_OPTIMIZER];
  s.activation_bytes = n->memory[MEMORY_ACTIVATIONS];
  memcpy(s.sent_bytes, n->sent, sizeof s.sent_bytes);
  if (row->limit.gain > 0) s.limit = arena_strdup(arena, row->limit.resource), s.limit_gain = row->limit.gain;
  if (*row->change) {
    s.change = arena_strdup(arena, row->change_settings);
    s.change_memory_bytes = row->changed.bytes;
    s.change_step_seconds = row->changed.step;
  }
  return s;
}

static void add_strategies(Own *own, const Comparison *c) {
  int n = 0, not_built = 0;
  while (strategies_not_built[not_built].name) not_built++;
  PlaitStrategy *row = arena_array(&own->arena, PlaitStrategy, STRATEGIES + not_built);
  for (int i = 0; i < STRATEGIES; i++)
    if (*c->row[i].why || comparison_has(c, (Strategy)i)) row[n++] = strategy_of(c, (Strategy)i, &own->arena);
  for (int i = 0; i < not_built; i++)
    row[n++] = (PlaitStrategy){
        .name = strategies_not_built[i].name,
        .settings = "",
        .why_not = arena_format(&own->arena, "plait has not built it: %s", strategies_not_built[i].what)};
  own->comparison.strategy = row;
  own->comparison.strategies = n;
}

static void add_advice(Own *own, const Comparison *c) {
  Advice found[ADVICES];
  int n = advice_of(c, found);
  PlaitAdvice *advice = arena_array(&own->arena, PlaitAdvice, n + 1);
  for (int i = 0; i < n; i++)
    advice[i] = (PlaitAdvice){advice_names[found[i].rule], advice_told[found[i].rule],
                              advice_verdict_name(found[i].verdict), arena_strdup(&own->arena, found[i].text)};
  own->comparison.advice = advice;
  own->comparison.advices = n;
}

static PlaitComparison *own_comparison(const Comparison *c) {
  Own *own = xcalloc(1, sizeof *own);
  PlaitComparison *out = &own->comparison;
  out->ranks = c->size.ranks;
  out->ranks_in_node = c->size.node;
  out->parameters = c->parameters;
  for (out->levels = 0; out->levels < c->cluster->levels; out->levels++)
    out->level[out->levels] = arena_strdup(&own->arena, c->cluster->level[out->levels].name);
  add_strategies(own, c);
  add_advice(own, c);
  return out;
}

int plait_compare(const char *path, int override_count, const char *const *overrides, const char *cluster, int ranks,
                  int quick, PlaitComparison **comparison, PlaitError *error) {
  Error unread = {0};
  if (!error) error = &unread;
  Recipe recipe = {0};
  Cluster *found = NULL;
  Comparison compared;
  *comparison = NULL;
  if (ranks < 0)
    return error_set(error, PLAIT_BAD_INPUT, "plait_compare: ranks is %d; allowed: 1 and more, or 0 for the recipe's",
                     ranks);
  int code = recipe_load(path, override_count, (char **)overrides, &recipe, error); // reads them only
  if (!code) code = predict_cluster(&recipe, cluster, &found, error);
  CompareOptions asked = {path, override_count, (char **)overrides, ranks, found, !quick, !quick, !quick};
  if (!code) code = compare(&asked, &compared, error);
  if (!code) *comparison = own_comparison(&compared);
  cluster_free(found);
  recipe_free(&recipe);
  return code;
}

void plait_comparison_destroy(PlaitComparison *comparison) {
  Own *own = (Own *)(void *)comparison;
  if (!own) return;
  arena_free(&own->arena);
  free(own);
}
