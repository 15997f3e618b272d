// Measures, decides, changes and records the shares of a batch.
#include "train/balance.h"
#include "base/fault.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

static Shares *shares_of(const Trainer *t) { return &job_train(t->job)->shares; }

static bool changes(const Trainer *t) { return recipe_is_measured(t->recipe) && shares_of(t)->weighed; }

// Deciding ------------------------------------------------------------------------------------------------------------

// The measurements of a rank since shares could last change.
typedef struct BalanceTimes { double computed, seconds; int steps; bool warm; } BalanceTimes;

// A start's first step is not typical and left out.
static int add(Training *x, Error *error) {
  BalanceTimes *times = x->own[HOOK_BALANCE];
  if (times->warm) {
    times->computed += x->result.computed;
    times->seconds += x->result.seconds;
    times->steps++;
  }
  times->warm = true;
  return PLAIT_OK;
}

static double busiest(const int *rows, const double *each, int ranks) {
  double most = 0;
  for (int r = 0; r < ranks; r++) most = rows[r] * each[r] > most ? rows[r] * each[r] : most;
  return most;
}

bool balance_decide(const Shares *s, const double *computed, double step_seconds, int *rows, double *saved) {
  double each[SHARES_MOST_WEIGHED], speed[SHARES_MOST_WEIGHED], sum = 0;
  int known = 0;
  *saved = 0;
  for (int r = 0; r < s->ranks; r++)
    if (s->rows[r] && computed[r] > 0) sum += computed[r] / s->rows[r], known++;
  if (!known) return false;
  for (int r = 0; r < s->ranks; r++) { // one that had no sequences is taken to be as fast as the mean
    each[r] = s->rows[r] && computed[r] > 0 ? computed[r] / s->rows[r] : sum / known;
    speed[r] = FAULT(slower_ranks_get_more, 1 / each[r], each[r]);
  }
  shares_divide(s->global, s->ranks, s->most, speed, rows);
  *saved = busiest(s->rows, each, s->ranks) - busiest(rows, each, s->ranks);
  return *saved >= 0.05 * step_seconds && *saved > 0;
}

// The times of all ranks, of which those of one data rank wait for the slowest of them.
static int gather(const Rank *r, const BalanceTimes *mine, double *computed, double *seconds, Error *error) {
  const Parallel *p = &r->job->options.parallel;
  BalanceTimes *all = xcalloc((size_t)p->mesh.ranks, sizeof *all);
  int code = plait_all_gather(r->world, &(PlaitBuffer){(void *)(uintptr_t)mine, all, sizeof *all}, 1, PLAIT_UINT8, NULL,
                              NULL);
  for (int i = 0; i < p->mesh.ranks && !code; i++) {
    int data_rank = mesh_index(&p->mesh, i, layout_data_axes(&p->layout));
    double own = all[i].steps ? all[i].computed / all[i].steps : 0,
           whole = all[i].steps ? all[i].seconds / all[i].steps : 0;
    if (own > computed[data_rank]) computed[data_rank] = own;
    if (whole > *seconds) *seconds = whole;
  }
  free(all);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

// Changing ------------------------------------------------------------------------------------------------------------

// "41, 23"; of many ranks the first ones.
static void list(const int *rows, int ranks, char *text, size_t size) {
  enum { SHOWN = 16 };
  size_t n = 0;
  text[0] = 0;
  for (int r = 0; r < ranks && r < SHOWN && n < size; r++)
    n += (size_t)snprintf(text + n, size - n, "%s%d", r ? ", " : "", rows[r]);
  if (ranks > SHOWN && n < size) snprintf(text + n, size - n, " …");
}

// Between two barriers nobody reads the job's shares but who writes them: threads have one job, processes one each.
static int change(Trainer *t, Rank *r, const int *rows, Error *error) {
  int code = rank_barrier(r, error);
  if (code) return code;
  if (is_process(t) || r->rank == 0) job_set_shares(t->job, rows);
  if (r->rank == 0) t->balance.told = false;
  code = rank_barrier(r, error);
  if (!code) UNLESS_FAULT(old_shares_are_read) rank_take_shares(r);
  return code;
}

// The entry of the log that says which shares a step has, or -1.
static int entry_of(const MetricsLists *log, int64_t step) {
  int found = -1;
  for (int i = 0; i < log->count; i++)
    if (log->list[i].step <= step) found = i;
  return found;
}

// Whether shares may change after a step, before the next one.
static bool is_due(const Trainer *t, int64_t step) {
  if (!changes(t)) return false;
  if (t->recipe->batch.replay) return entry_of(&t->balance.shares, step) != entry_of(&t->balance.shares, step + 1);
  return step % BALANCE_EVERY == 0;
}

static void tell(Trainer *t, int64_t step, const int *rows, double saved, double seconds) {
  char before[256], after[256];
  const Shares *s = shares_of(t);
  list(s->rows, s->ranks, before, sizeof before);
  list(rows, s->ranks, after, sizeof after);
  progress_note(
      &t->progress,
      "step %lld: the data ranks' shares of the batch change from %s to %s: the slowest should be done %.0f %% "
      "of a step sooner",
      (long long)step, before, after, 100 * saved / seconds);
}

// Changes them then, where it is worth it.
static int divide_anew(Training *x, Error *error) {
  Trainer *t = x->trainer;
  Rank *r = x->rank;
  BalanceTimes *times = x->own[HOOK_BALANCE];
  if (!is_due(t, x->step)) return PLAIT_OK;
  if (t->recipe->batch.replay)
    return change(t, r, t->balance.shares.list[entry_of(&t->balance.shares, x->step + 1)].value, error);
  Shares now = *shares_of(t);
  double *computed = xcalloc((size_t)now.ranks, sizeof *computed), seconds = 0, saved;
  int *rows = xcalloc((size_t)now.ranks, sizeof *rows);
  int code = gather(r, times, computed, &seconds, error);
  if (!code && balance_decide(&now, computed, seconds, rows, &saved)) {
    if (r->rank == 0) tell(t, x->step, rows, saved, seconds);
    code = change(t, r, rows, error);
  }
  *times = (BalanceTimes){.warm = true};
  free(computed);
  free(rows);
  return code;
}

// The start -----------------------------------------------------------------------------------------------------------

// A reason why shares are wrong for this run, or NULL.
static const char *wrong_with(const Shares *s, const MetricsList *l, char *text, size_t size) {
  int64_t sum = 0;
  if (l->count != s->ranks) {
    snprintf(text, size, "%d data rank%s, but there are %d", l->count, l->count == 1 ? "" : "s", s->ranks);
    return text;
  }
  for (int r = 0; r < l->count; r++) {
    if (l->value[r] > s->most || l->value[r] < 0) {
      snprintf(text, size, "%d sequences for a data rank, but batch.most allows %lld", l->value[r], (long long)s->most);
      return text;
    }
    sum += l->value[r];
  }
  if (sum == s->global) return NULL;
  snprintf(text, size, "%lld sequences, but batch.global is %lld", (long long)sum, (long long)s->global);
  return text;
}

// The shares that the run's own metrics end with, where it resumes with as many ranks; else none, and it begins evenly.
static int read_own(const Trainer *t, MetricsLists *own, Error *error) {
  char *path = run_folder_file(&t->folder, "metrics.jsonl"), why[128];
  bool there = first_step(t) && t->keep_until >= first_step(t) && file_exists(path);
  int code = there ? metrics_read_lists(path, "shares", own, error) : PLAIT_OK;
  int last = code ? -1 : entry_of(own, first_step(t));
  if (!code)
    metrics_lists_keep(own, last >= 0 && !wrong_with(shares_of(t), &own->list[last], why, sizeof why) ? last : -1);
  free(path);
  return code;
}

// Those that batch.replay says, of all steps that are left.
static int read_replay(Trainer *t, Error *error) {
  const char *path = t->recipe->batch.replay, *where = recipe_where(t->recipe, "batch.replay");
  char why[128];
  int code = metrics_read_lists(path, "shares", &t->balance.shares, error), first;
  if (code) return error_prefix(error, "%sbatch.replay", where);
  if ((first = entry_of(&t->balance.shares, first_step(t) + 1)) < 0)
    return error_set(error, PLAIT_BAD_INPUT, "%sbatch.replay: %s has no shares of step %lld", where, path,
                     (long long)first_step(t) + 1);
  for (int i = first; i < t->balance.shares.count; i++) {
    const MetricsList *l = &t->balance.shares.list[i];
    if (l->step <= t->recipe->schedule.steps && wrong_with(shares_of(t), l, why, sizeof why))
      return error_set(error, PLAIT_BAD_INPUT, "%sbatch.replay: the shares of step %lld in %s are of %s", where,
                       (long long)l->step, path, why);
  }
  return PLAIT_OK;
}

// By rank 0: what the run begins with, and whether its metrics have that already.
static int read_log(Trainer *t, Error *error) {
  MetricsLists own = {0};
  int code = read_own(t, &own, error), size = shares_of(t)->ranks;
  if (!code && t->recipe->batch.replay) code = read_replay(t, error);
  else t->balance.shares = own;
  int first = code ? -1 : entry_of(&t->balance.shares, first_step(t) + 1);
  t->balance.told = own.count && first >= 0 &&
                   !memcmp(own.list[0].value, t->balance.shares.list[first].value, sizeof(int) * (size_t)size);
  if (t->recipe->batch.replay) metrics_lists_free(&own);
  return code;
}

int balance_begin(Trainer *t, Error *error) {
  if (!changes(t)) return PLAIT_OK;
  int code = has_rank_0(t) ? read_log(t, error) : PLAIT_OK;
  code = launch_agree(t->launch, code, error);
  char *text = !code && has_rank_0(t) ? metrics_lists_text(&t->balance.shares) : NULL;
  if (!code) code = launch_tell(t->launch, &text, error);
  if (!code && !has_rank_0(t)) metrics_lists_parse(text, &t->balance.shares);
  free(text);
  int first = code ? -1 : entry_of(&t->balance.shares, first_step(t) + 1);
  if (first >= 0) job_set_shares(t->job, t->balance.shares.list[first].value);
  return code;
}

// A line of metrics with the shares, where this step is the first that has them.
static int report(Training *x, Error *error) {
  Trainer *t = x->trainer;
  const Shares *s = shares_of(t);
  if (t->balance.told || !changes(t)) return PLAIT_OK;
  t->balance.told = true;
  Metrics *m = &t->metrics;
  metrics_begin(m);
  metrics_integer(m, "step", x->step);
  metrics_integers(m, "shares", s->rows, s->ranks);
  return metrics_end(m, error);
}

const Hook hook_balance = {.size = sizeof(BalanceTimes),
                           .on = {[HOOK_LOG] = report, [HOOK_AFTER] = add, [HOOK_BETWEEN] = divide_anew},
                           .pauses = is_due};
