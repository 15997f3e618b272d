// Policies after a step that was not finite.
#include "train/non_finite.h"
#include "train/save.h"
#include <stdarg.h>
#include <stdlib.h>

int non_finite_is_scaling(const Recovery *v, const Rank *r, const StepResult *s) {
  int dynamic = v->recipe->loss_scale.initial > 0 && v->recipe->loss_scale.growth_interval > 0;
  return dynamic && s->first.found && finite_is_gradient(job_train(r->job)->graph, &s->first) &&
         state_scalar(r->state, KNOWN_LOSS_SCALE) > LOSS_SCALE_LEAST;
}

static void describe_first(const Rank *r, const StepResult *s, char *text, size_t size) {
  if (s->first.found) finite_describe(job_train(r->job)->graph, &r->job->options.parallel.mesh, &s->first, text, size);
  else if (r->job->options.step.update.in_backward)
    snprintf(text, size, "the gradient norm was not finite, but all gradients are");
  else if (rank_updates_at_once(r)) snprintf(text, size, "the gradient norm was not finite");
  else snprintf(text, size, "the gradient norm was not finite, but running the step again found no such value");
}

void non_finite_describe(const Recovery *v, const Rank *r, int64_t step, const StepResult *s, char *text, size_t size) {
  char first[512];
  describe_first(r, s, first, sizeof first);
  if (r->job->options.step.update.in_backward)
    snprintf(text, size, "step %lld: %s; backward had applied it already", (long long)step, first);
  else if (rank_updates_at_once(r))
    snprintf(text, size, "step %lld: %s; stages had updated at once (parallel.pipeline %s)", (long long)step, first,
             r->job->options.parallel.pipeline.schedule->name);
  else if (!non_finite_is_scaling(v, r, s)) snprintf(text, size, "step %lld: %s; skipped", (long long)step, first);
  else
    snprintf(text, size, "step %lld: gradients overflow (%s); skipped, the loss scale is %.15g now", (long long)step,
             first, state_scalar(r->state, KNOWN_LOSS_SCALE));
}

__attribute__((format(printf, 5, 6))) static int stop(const Rank *r, int64_t step, const StepResult *s, Error *error,
                                                      const char *why, ...) {
  char first[512], text[128];
  describe_first(r, s, first, sizeof first);
  va_list arguments;
  va_start(arguments, why);
  vsnprintf(text, sizeof text, why, arguments);
  va_end(arguments);
  const ErrorFacts facts = {.rank = error_rank(s->first.found ? s->first.rank : -1, NULL)};
  return error_set_about(error, PLAIT_FAILED, &facts, "step %lld: %s; %s", (long long)step, first, text);
}

int non_finite_needs_files(const Recovery *v, const Rank *r, const StepResult *s) {
  if (!s->skipped || non_finite_is_scaling(v, r, s)) return 0;
  return v->recipe->run.non_finite != RECIPE_SKIP || v->in_a_row + 1 == NON_FINITE_IN_A_ROW;
}

int non_finite_recover(Recovery *v, Rank *r, int64_t step, const StepResult *s, int64_t *to, Error *error) {
  *to = -1;
  v->rolled_back = 0;
  if (s->skipped && non_finite_is_scaling(v, r, s)) return PLAIT_OK;
  v->in_a_row = s->skipped ? v->in_a_row + 1 : 0;
  if (!s->skipped) return PLAIT_OK;
  if (v->in_a_row == NON_FINITE_IN_A_ROW)
    return stop(
        r, step, s, error,
        "%d steps in a row were not finite and had to be skipped, so the run ends; a lower optimizer.lr may help",
        NON_FINITE_IN_A_ROW);
  if (v->recipe->run.non_finite == RECIPE_SKIP) return PLAIT_OK;
  if (v->recipe->run.non_finite == RECIPE_STOP) return stop(r, step, s, error, "run.non_finite is stop");
  if (v->rollbacks == NON_FINITE_ROLLBACKS)
    return stop(r, step, s, error, "the run has been rolled back %d times already", NON_FINITE_ROLLBACKS);
  Checkpoint *newest = NULL;
  int found = checkpoint_latest_valid(v->checkpoints, to, &newest, NULL, error);
  if (found < 0) return found;
  if (!found && v->start) *to = checkpoint_step(v->start);
  else if (!found) return stop(r, step, s, error, "there is no checkpoint to roll back to yet");
  int code = save_load(r, found ? newest : v->start, error);
  checkpoint_close(newest);
  v->rollbacks++;
  v->rolled_back = 1;
  return code;
}

void non_finite_saved(Recovery *v) {
  if (!v->rolled_back) v->rollbacks = 0;
}
