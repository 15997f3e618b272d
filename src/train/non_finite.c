// Policies after a step that was not finite.
#include "train/non_finite.h"
#include "base/fault.h"
#include "train/saving.h"
#include <stdarg.h>
#include <stdlib.h>

// A rank's view; all ranks come to the same conclusions.
typedef struct Recovery {
  int rollbacks;    // since a checkpoint was saved after a finite step
  bool rolled_back; // the last step ended in one
  int in_a_row;     // steps that were not finite, up to the last one, without those of the search for a loss scale
} Recovery;

// Whether the only cause is the search for a loss scale: gradients that were scaled too much.
static bool is_scaling(const Training *x) {
  const Recipe *recipe = x->trainer->recipe;
  const NonFinite *first = &x->result.first;
  return recipe->loss_scale.initial > 0 && recipe->loss_scale.growth_interval > 0 && first->found &&
         finite_is_gradient(job_train(x->rank->job)->graph, first) &&
         state_scalar(x->rank->state, KNOWN_LOSS_SCALE) > LOSS_SCALE_LEAST;
}

static void describe_first(const Training *x, char *text, size_t size) {
  const Rank *r = x->rank;
  const StepResult *s = &x->result;
  if (s->first.found) finite_describe(job_train(r->job)->graph, &r->job->options.parallel.mesh, &s->first, text, size);
  else if (r->job->options.step.update.in_backward)
    snprintf(text, size, "the gradient norm was not finite, but all gradients are");
  else if (rank_updates_at_once(r)) snprintf(text, size, "the gradient norm was not finite");
  else snprintf(text, size, "the gradient norm was not finite, but running the step again found no such value");
}

void non_finite_describe(const Training *x, char *text, size_t size) {
  const Rank *r = x->rank;
  long long step = x->step;
  char first[512];
  describe_first(x, first, sizeof first);
  if (r->job->options.step.update.in_backward)
    snprintf(text, size, "step %lld: %s; backward had applied it already", step, first);
  else if (rank_updates_at_once(r))
    snprintf(text, size, "step %lld: %s; stages had updated at once (parallel.pipeline %s)", step, first,
             r->job->options.parallel.pipeline.schedule->name);
  else if (!is_scaling(x)) snprintf(text, size, "step %lld: %s; skipped", step, first);
  else
    snprintf(text, size, "step %lld: gradients overflow (%s); skipped, the loss scale is %.15g now", step,
             first, state_scalar(r->state, KNOWN_LOSS_SCALE));
}

__attribute__((format(printf, 3, 4))) static int stop(const Training *x, Error *error, const char *why, ...) {
  const NonFinite *found = &x->result.first;
  char first[512], text[128];
  describe_first(x, first, sizeof first);
  va_list arguments;
  va_start(arguments, why);
  vsnprintf(text, sizeof text, why, arguments);
  va_end(arguments);
  const ErrorFacts facts = {.rank = error_rank(found->found ? found->rank : -1, NULL)};
  return error_set_about(error, PLAIT_FAILED, &facts, "step %lld: %s; %s", (long long)x->step, first, text);
}

static int roll_back(Training *x, Recovery *v, Error *error) {
  Trainer *t = x->trainer;
  Checkpoint *newest = NULL;
  int64_t to;
  int found = checkpoint_latest_valid(t->checkpoints, &to, &newest, NULL, error);
  if (found < 0) return found;
  Checkpoint *from = found ? newest : t->resume; // where the folder has none, what the run began with
  if (!from) return stop(x, error, "there is no checkpoint to roll back to yet");
  to = checkpoint_step(from);
  int code = save_load(x->rank, from, error);
  checkpoint_close(newest);
  v->rollbacks++;
  v->rolled_back = true;
  return code || x->rank->rank ? code : trainer_report_rollback(t, x->step, to, error);
}

// The newest checkpoint may be read, or the run may end: one that is being written must be there first.
static bool needs_files(const Training *x, const Recovery *v) {
  return x->trainer->recipe->run.non_finite != RECIPE_SKIP || v->in_a_row == NON_FINITE_IN_A_ROW;
}

// After a step that was not finite the run may continue from older weights, with the batches that come next.
static int recover(Training *x, Error *error) {
  Recovery *v = x->own[HOOK_NON_FINITE];
  const Recipe *recipe = x->trainer->recipe;
  bool skipped = x->result.skipped;
  v->rolled_back = false;
  if (skipped && is_scaling(x)) return PLAIT_OK;
  v->in_a_row = skipped ? v->in_a_row + 1 : 0;
  if (!skipped) return PLAIT_OK;
  int code = FAULT(rollback_ignores_what_is_written, needs_files(x, v), false) ? saving_settle(x, error) : PLAIT_OK;
  if (code) return code;
  if (v->in_a_row == NON_FINITE_IN_A_ROW)
    return stop(x, error,
                "%d steps in a row were not finite and had to be skipped, so the run ends; a lower optimizer.lr may "
                "help", NON_FINITE_IN_A_ROW);
  if (recipe->run.non_finite == RECIPE_SKIP) return PLAIT_OK;
  if (recipe->run.non_finite == RECIPE_STOP) return stop(x, error, "run.non_finite is stop");
  if (v->rollbacks == NON_FINITE_ROLLBACKS)
    return stop(x, error, "the run has been rolled back %d times already", NON_FINITE_ROLLBACKS);
  return roll_back(x, v, error);
}

// Rollbacks to a checkpoint are counted anew, unless it holds what was rolled back to.
static int after_save(Training *x, Error *error) {
  Recovery *v = x->own[HOOK_NON_FINITE];
  if (x->saved && !v->rolled_back) v->rollbacks = 0;
  return PLAIT_OK;
}

static int write_keys(Training *x, Error *error) {
  const Rank *r = x->rank;
  const StepResult *s = &x->result;
  const CompileOptions *o = &r->job->options;
  Metrics *m = &x->trainer->metrics;
  bool applied = o->step.update.in_backward || rank_updates_at_once(r);
  metrics_integer(m, "skipped", s->skipped && !applied);
  if (state_has(r->state, KNOWN_LOSS_SCALE))
    metrics_real(m, "loss_scale", state_scalar(r->state, KNOWN_LOSS_SCALE)); // of the next step
  if (!s->first.found) return PLAIT_OK;
  char text[512];
  finite_describe(job_train(r->job)->graph, &o->parallel.mesh, &s->first, text, sizeof text);
  metrics_text(m, "non_finite", text);
  return PLAIT_OK;
}

const Hook hook_non_finite = {.size = sizeof(Recovery),
                              .on = {[HOOK_LINE] = write_keys, [HOOK_AFTER] = recover, [HOOK_BETWEEN] = after_save}};
