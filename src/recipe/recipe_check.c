// Checks of a recipe across its keys: contradictions are refused, keys without effect get a note.
#include "recipe/recipe_check.h"
#include "parallel/parallel_tensor.h"
#include "base/fault.h"
#include "base/file.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "recipe/recipe_keys.h"
#include "recipe/recipe_device.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *recipe_where(const Recipe *recipe, const char *path) {
  const RecipeKey *key = recipe_key_find(path);
  const char *where = recipe->where && key ? recipe->where[key - recipe_keys] : NULL;
  return where ? where : recipe->place ? recipe->place : "the recipe: ";
}

const RecipeCorpora *recipe_corpora(const Recipe *r, bool evaluation) {
  return evaluation && !(r->data.split > 0) ? &r->data.valid : &r->data.train;
}

enum { MOST_RANKS = 1 << 24 };

static const char *const layout_keys[] = {
#define LAYOUT_ROW(id, name, meaning) "layout." name,
#include "sharding/layout_rows.def"
};

bool recipe_is_given(const Recipe *recipe, const char *path) {
  if (recipe->dp_is_auto && !strcmp(path, "mesh.dp")) return false; // as open as if it were left out
  return recipe->where && recipe->where[recipe_key_find(path) - recipe_keys];
}

void recipe_note(Recipe *r, const char *path, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  r->notes = arena_format(&r->arena, "%snote: %s%s\n", r->notes ? r->notes : "", recipe_where(r, path), text);
}

static int check_required(Recipe *r, Error *error) {
  for (int i = 0; i < recipe_key_count; i++)
    if (recipe_keys[i].required && !r->where[i])
      return error_set(error, PLAIT_BAD_INPUT, "%s: %s must be given, as in %s", r->name,
                       recipe_keys[i].path, recipe_keys[i].example);
  if (!r->model.config && r->model.init[0] == '/')
    r->model.config = arena_format(&r->arena, "%s/config.json", r->model.init);
  if (r->model.config) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: give model.config, or set model.init to a model folder",
                   r->name);
}

static int check_mesh(Recipe *r, Error *error) {
  int64_t ranks = 1, sizes[4] = {r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp};
  for (int i = 0; i < 4; i++) {
    ranks *= sizes[i];
    int most = r->run.comm == RECIPE_COMM_LOCAL ? RECIPE_LOCAL_RANKS : MOST_RANKS;
    if (ranks > most)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%smesh: pp %d × dp %d × cp %d × tp %d is more than %d ranks, the most that run.comm %s "
                       "allows; make an axis smaller", recipe_where(r, "mesh.dp"), r->mesh.pp, r->mesh.dp, r->mesh.cp,
                       r->mesh.tp, most, r->run.comm == RECIPE_COMM_LOCAL ? "local" : "auto, mpi or net");
  }
  return PLAIT_OK;
}

// The meaning of parallel.sequence: the sequence over tp, within the part of it that a rank of cp has.
static bool is_sequence_parallel(const Recipe *r, const LayoutWords *seq) {
  if (seq->count == 1) return r->mesh.cp == 1 && seq->axis[0] == AXIS_TP;
  return seq->count == 2 && seq->axis[0] == AXIS_CP && seq->axis[1] == AXIS_TP;
}

static int check_parallel(Recipe *r, Error *error) {
  const LayoutWords *seq = &r->layout.rows.row[LAYOUT_ROW_SEQ];
  if (r->parallel.sequence && seq->count >= 0 && !is_sequence_parallel(r, seq)) {
    char *list = recipe_value_text(r, "layout.seq");
    int code = error_set(error, PLAIT_BAD_INPUT,
                         "%slayout.seq is %s, but parallel.sequence is true, which means %s; leave one of them out",
                         recipe_where(r, "layout.seq"), list, r->mesh.cp > 1 ? "[cp, tp]" : "[tp]");
    free(list);
    return code;
  }
  return recipe_check_parallel(r, NULL, error);
}

// ---- keys that need others -----------------------------------------------------------------------------------------

typedef struct Need { bool refused; const char *key, *needed, *condition, *why; } Need;
enum { NOTED = 0, REFUSED = 1 };
static const Need needs[] = {
#define RECIPE_NEEDS(what, key, needed, condition, why) {what, key, needed, condition, why},
#include "recipe/recipe_needs.def"
};

static bool is_default(const Recipe *r, const Recipe *defaults, const char *path) {
  return recipe_value_equal(recipe_key_find(path), r, defaults);
}

// Notes are about what was written last: a value of the file does nothing because the command line changed one of the
// keys that it needs ("mesh.dp mesh.cp"), which nobody needs to be told who has just done that.
static bool is_said(const Recipe *r, const char *key, const char *needed) {
  char path[64];
  if (!r->overridden || r->overridden[recipe_key_find(key) - recipe_keys]) return true;
  for (const char *at = needed; *at; at += strspn(at, " ")) {
    int n = (int)strcspn(at, " ");
    snprintf(path, sizeof path, "%.*s", n, at);
    at += n;
    if (r->overridden[recipe_key_find(path) - recipe_keys]) return FAULT(notes_about_the_file, false, true);
  }
  return true;
}

static const char mesh_keys[] = "mesh.pp mesh.dp mesh.cp mesh.tp";

// Whether one of the needed keys ("mesh.dp mesh.cp") fulfils the condition; else "mesh.dp is 1 and mesh.cp is 1".
static bool has_need(const Recipe *r, const Need *need, char *values, size_t size) {
  char path[64];
  size_t used = 0;
  for (const char *at = need->needed; *at; at += strspn(at, " ")) {
    int n = (int)strcspn(at, " ");
    snprintf(path, sizeof path, "%.*s", n, at);
    at += n;
    if (recipe_fulfils(r, recipe_key_find(path), need->condition)) return true;
    bool counted = r->dp_is_auto && !strcmp(path, "mesh.dp"); // auto says nothing about how many there are
    char *value = counted ? xformat("%d", r->mesh.dp) : recipe_value_text(r, path);
    if (used < size)
      used += (size_t)snprintf(values + used, size - used, "%s%s is %s", used ? " and " : "", path, value);
    free(value);
  }
  return false;
}

// auto and the budget that it chooses by belong together.
static int check_memory(const Recipe *r, Error *error) {
  if (r->parallel.recompute.word != RECIPE_RECOMPUTE_AUTO || r->parallel.memory) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%sparallel.recompute is auto, but parallel.memory is not given; give the bytes that a rank may use, "
      "such as parallel.memory=2GB",
      recipe_where(r, "parallel.recompute"));
}

static int check_needs(Recipe *r, const Recipe *defaults, Error *error) {
  const char *said = "";
  char values[256];
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    const Need *n = &needs[i];
    if (!strcmp(n->key, said) || is_default(r, defaults, n->key) || has_need(r, n, values, sizeof values)) continue;
    if (!n->refused && !is_said(r, n->key, n->needed)) {
      said = n->key;
      continue;
    }
    char *value = recipe_value_text(r, n->key);
    int code = PLAIT_OK;
    if (n->refused)
      code = error_set(error, PLAIT_BAD_INPUT, "%s%s is %s, but %s, %s", recipe_where(r, n->key), n->key, value, values,
                       n->why);
    else recipe_note(r, n->key, "%s is %s, but %s, %s", n->key, value, values, n->why);
    free(value);
    if (code) return code;
    said = n->key;
  }
  return PLAIT_OK;
}

// A word of a row of the Layout that cuts nothing: an axis of one rank, or a part of one that is not cut.
static void note_idle_word(Recipe *r, const StepParallel *parallel, const char *key, AxisId axis) {
  const char *word = axis_names[axis];
  if (parallel_word_ranks(parallel, axis) > 1) return;
  if (!is_said(r, key, mesh_keys) || !is_said(r, key, "parallel.tensor")) return;
  if (mesh_axis(&parallel->mesh, axis) >= 0 && mesh_axis_size(&parallel->mesh, axis) == 1)
    recipe_note(r, key, "%s names %s, but mesh.%s is 1, so it cuts nothing", key, word, word);
  else
    recipe_note(r, key, "%s names %s, but parallel.tensor %s leaves it one rank, so it cuts nothing", key, word,
                parallel_tensor_names[parallel->tensor]);
}

// Notes keys that have no effect on a single rank, on an axis of one rank or in a run that is too short.
static int note_idle(Recipe *r, const Recipe *defaults) {
  static const char *const several[] = {"parallel.bucket_mb", "parallel.overlap", "run.desync_check",
                                        "run.work_stealing"};
  for (size_t i = 0; i < sizeof several / sizeof *several && recipe_rank_count(r) == 1; i++)
    if (!is_default(r, defaults, several[i]) && is_said(r, several[i], mesh_keys))
      recipe_note(r, several[i], "%s has no effect: the mesh has only one rank", several[i]);
  StepParallel parallel = recipe_parallel(r);
  for (int row = 0; row < LAYOUT_ROWS; row++) {
    const LayoutWords *axes = &r->layout.rows.row[row];
    for (int i = 0; i < axes->count; i++)
      note_idle_word(r, &parallel, layout_keys[row], axes->axis[i]);
  }
  for (int i = 0; i < LAYOUT_WORDS; i++) {
    AxisId axis = layout_axes_named[i];
    int size = mesh_axis_size(&parallel.mesh, axis), named = 0;
    for (int row = 0; row < LAYOUT_ROWS; row++) named |= parallel_row_has(&parallel, (LayoutRow)row, axis);
    char key[32];
    snprintf(key, sizeof key, "mesh.%s", axis_names[axis]);
    if (size > 1 && !named)
      recipe_note(r, key, "%s is %d, but no row of the Layout names %s, so its ranks all compute the same", key,
                  size, axis_names[axis]);
  }
  if (r->parallel.shard_group && r->parallel.shard_group == r->mesh.dp && is_said(r, "parallel.shard_group", "mesh.dp"))
    recipe_note(r, "parallel.shard_group",
                "parallel.shard_group is %d, one group of all data ranks: the same as without this key",
                r->parallel.shard_group);
  if (!is_default(r, defaults, "batch.balance") && recipe_data_ranks(r) == 1 && is_said(r, "batch.balance", mesh_keys))
    recipe_note(r, "batch.balance",
                "batch.balance has no effect: there is only one data rank, which has all sequences");
  if (r->parallel.overlap == RECIPE_OVERLAP_ON && !r->parallel.bucket_mb && recipe_rank_count(r) > 1)
    recipe_note(r, "parallel.bucket_mb",
         "parallel.bucket_mb is 0, which turns parallel.overlap off as well; to say so, write parallel.overlap: false");
  if (r->run.trace && r->run.trace_first > r->schedule.steps)
    recipe_note(r, "run.trace_first",
                "run.trace_first is %lld, but schedule.steps is %lld, so run.trace stays empty",
                (long long)r->run.trace_first, (long long)r->schedule.steps);
  if (r->infer.in_flight > 1 && r->mesh.pp == 1)
    recipe_note(r, "infer.in_flight",
                "infer.in_flight is %d, but without mesh.pp ticks are computed one after the other: each has fewer "
                "requests, and generation is slower",
                r->infer.in_flight);
  return PLAIT_OK;
}

// A run that would roll back needs something to roll back to.
static int check_rollback(const Recipe *r, Error *error) {
  if (r->run.non_finite != RECIPE_ROLLBACK || r->checkpoint.resume[0] == '/') return PLAIT_OK;
  if (r->checkpoint.every && r->checkpoint.every < r->schedule.steps) return PLAIT_OK;
  const char *where = recipe_where(r, "run.non_finite");
  long long every = r->checkpoint.every, steps = r->schedule.steps;
  if (!every)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%srun.non_finite is rollback, but checkpoint.every is 0: without checkpoints there is nothing to "
                     "roll back to; set checkpoint.every to a number of steps below schedule.steps (%lld), or "
                     "run.non_finite to skip or stop",
                     where, steps);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%srun.non_finite is rollback, but checkpoint.every is %lld and the run has %lld steps: no checkpoint "
      "would be there before the end; set checkpoint.every below %lld, or run.non_finite to skip or stop",
      where, every, steps, steps);
}

// ---- the rest ------------------------------------------------------------------------------------------------------

double recipe_min_lr(const Recipe *r) {
  double rate = r->schedule.min_lr;
  return rate < 0 ? FAULT(shares_of_lr_are_of_the_default, r->optimizer.lr, 3e-4) * (-rate / 100) : rate;
}

static int check_schedule(Recipe *r, Error *error) {
  if (r->schedule.warmup > r->schedule.steps)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%sschedule.warmup is %lld, but must be at most schedule.steps (%lld); for a short run give both, "
                     "as in schedule.steps=%lld schedule.warmup=%lld",
                     recipe_where(r, "schedule.warmup"), (long long)r->schedule.warmup, (long long)r->schedule.steps,
                     (long long)r->schedule.steps, (long long)(r->schedule.steps + 9) / 10);
  if (recipe_min_lr(r) > r->optimizer.lr)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%sschedule.min_lr is %.15g, but must be at most optimizer.lr (%.15g); give a share of it, such as "
        "schedule.min_lr=10%%",
        recipe_where(r, "schedule.min_lr"), r->schedule.min_lr, r->optimizer.lr);
  int64_t rest = r->schedule.steps - r->schedule.warmup;
  if (r->schedule.name == RECIPE_WSD && r->schedule.decay_steps > rest)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%sschedule.decay_steps is %lld, but must be at most schedule.steps − schedule.warmup (%lld)",
                     recipe_where(r, "schedule.decay_steps"), (long long)r->schedule.decay_steps, (long long)rest);
  return PLAIT_OK;
}

// The key table's betas and momentum are those of its default optimizer; another one has its authors'.
static void set_betas(Recipe *r, const Recipe *defaults) {
  if (optimizer_reads((Op)r->optimizer.name, "momentum") && !recipe_is_given(r, "optimizer.momentum"))
    r->optimizer.momentum = op_def((Op)r->optimizer.name)->optimizer->momentum;
  if (r->optimizer.name == defaults->optimizer.name || recipe_is_given(r, "optimizer.betas") ||
      !optimizer_reads((Op)r->optimizer.name, "betas"))
    return;
  memcpy(r->optimizer.betas, op_def((Op)r->optimizer.name)->optimizer->betas, sizeof r->optimizer.betas);
}

static int check_eval(Recipe *r, Error *error) {
  if (r->data.split > 0 && r->data.valid.count)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%sdata.split is %.15g, but data.valid is given as well; evaluation uses one of them: leave one out",
        recipe_where(r, "data.split"), r->data.split);
  if (recipe_corpora(r, true)->count || !r->eval.every) return PLAIT_OK;
  if (recipe_is_given(r, "eval.every"))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%seval.every is %lld, but there is nothing to evaluate on: give data.valid or data.split",
                     recipe_where(r, "eval.every"), (long long)r->eval.every);
  r->eval.every = 0; // the default means: where there is something to evaluate on
  return PLAIT_OK;
}

// A folder stands for the tokenizer.json in it, as for plait tokenize.
static int resolve_tokenizer(Recipe *r, Error *error) {
  if (r->data.tokenizer && file_is_folder(r->data.tokenizer))
    r->data.tokenizer = arena_format(&r->arena, "%s/tokenizer.json", r->data.tokenizer);
  return PLAIT_OK;
}

int recipe_settle_precision(Recipe *r, Error *error) {
  r->precision_is_auto = r->precision == RECIPE_PRECISION_AUTO;
  if (r->precision_is_auto) r->precision = (int)recipe_fast_precision(r);
  return PLAIT_OK;
}

// A loss scale that nothing would read is refused; it is 0 with another precision, and not printed.
static int check_precision(Recipe *r, Error *error) {
  if (r->precision == DTYPE_F64 && r->parallel.grad_dtype == DTYPE_BF16)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%sparallel.grad_dtype is bf16, but with precision: fp64 gradients are fp64; leave it out",
                     recipe_where(r, "parallel.grad_dtype"));
  if (r->precision == DTYPE_F16) return PLAIT_OK;
  static const char *const keys[] = {"loss_scale.initial", "loss_scale.growth_interval"};
  double values[] = {r->loss_scale.initial, (double)r->loss_scale.growth_interval};
  for (int i = 0; i < 2; i++)
    if (values[i] != 0 && recipe_is_given(r, keys[i]))
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s%s is %.15g, but only precision: fp16 scales the loss, and this is %s",
                       recipe_where(r, keys[i]), keys[i], values[i], dtype_name((Dtype)r->precision));
  r->loss_scale.initial = 0;
  r->loss_scale.growth_interval = 0;
  return PLAIT_OK;
}

// A wider cache, or another format of the same width, would hold nothing that the model's own does not.
static int check_cache(Recipe *r, Error *error) {
  Dtype cache = recipe_cache_dtype(r), made = (Dtype)r->precision;
  if (cache == made || dtype_size(cache) < FAULT(wide_caches_are_taken, dtype_size(made), 100)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%sinfer.kv_dtype is %s, but keys and values are made in %s, and only a narrower format saves "
                   "memory; take auto%s",
                   recipe_where(r, "infer.kv_dtype"), dtype_name(cache), dtype_name(made),
                   dtype_size(made) > 2 ? " or bf16" : "");
}

// plan: auto chooses mesh.dp as any other open key.
int recipe_settle_data_ranks(Recipe *r, Error *error) {
  if (r->mesh.dp) return PLAIT_OK;
  r->mesh.dp = 1;
  if (r->plan == RECIPE_PLAN_AUTO) r->where[recipe_key_find("mesh.dp") - recipe_keys] = NULL;
  else r->dp_is_auto = true;
  return PLAIT_OK;
}

static bool is_open(const Recipe *r) { return r->dp_is_auto && !r->ranks; }

static int check_all(Recipe *r, int (*const *checks)(Recipe *, Error *), Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; checks[i] && !code; i++) code = checks[i](r, error);
  return code;
}

// Checks that depend on the mesh.
static int check_meshed(Recipe *r, const Recipe *defaults, Error *error) {
  static int (*const checks[])(Recipe *, Error *) = {check_mesh, check_parallel, NULL};
  int code = check_all(r, checks, error);
  if (!code) code = check_needs(r, defaults, error);
  if (!code) code = check_memory(r, error);
  return code ? code : note_idle(r, defaults);
}

int recipe_check_keys(Recipe *r, const Recipe *defaults, Error *error) {
  static int (*const checks[])(Recipe *, Error *) = {check_schedule, check_eval, check_precision, check_cache, NULL};
  int code = PLAIT_OK;
  if (!is_open(r)) code = check_mesh(r, error);
  if (!code && !is_open(r)) code = check_parallel(r, error);
  if (!code) code = check_all(r, checks, error);
  if (code) return code;
  set_betas(r, defaults);
  if (!is_open(r)) code = check_needs(r, defaults, error);
  if (!code && !is_open(r)) code = check_memory(r, error);
  if (!code) code = check_rollback(r, error);
  if (!code) code = recipe_check_devices(r, error);
  return code || is_open(r) ? code : note_idle(r, defaults);
}

int recipe_check(Recipe *r, const Recipe *defaults, Error *error) {
  static int (*const settle[])(Recipe *, Error *) = {check_required, resolve_tokenizer, recipe_settle_precision,
                                                     recipe_settle_data_ranks, NULL};
  int code = check_all(r, settle, error);
  return code ? code : recipe_check_keys(r, defaults, error);
}

int recipe_check_ranks(Recipe *r, const Recipe *defaults, Error *error) {
  int others = r->mesh.pp * r->mesh.cp * r->mesh.tp;
  if (r->ranks < others)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%smesh.dp is auto, but %d rank%s fewer than the %d of pp %d × cp %d × tp %d; start at least %d, or "
        "make an axis smaller",
        recipe_where(r, "mesh.dp"), r->ranks, r->ranks == 1 ? " is" : "s are", others, r->mesh.pp, r->mesh.cp,
        r->mesh.tp, others);
  r->mesh.dp = r->ranks / others;
  return check_meshed(r, defaults, error);
}
