// The summary at the end of a run: its results, where they are, and what to type next.
#include "base/clock.h"
#include "base/units.h"
#include "worker/page.h"
#include "train/trainer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Summary {
  int64_t steps;      // of this run
  double tokens, seconds;
  double best, last;  // held-out losses of the whole run; NAN: none
  int64_t best_step, last_step;
} Summary;

char *trainer_path(const char *path) {
  char *real = realpath(path, NULL), *here = getcwd(NULL, 0); // without links and dots, both
  const char *whole = real ? real : path;
  size_t n = here ? strlen(here) : 0;
  int inside = n > 1 && !strncmp(whole, here, n) && whole[n] == '/';
  char *text = xstrdup(whole + (inside ? n + 1 : 0));
  free(real);
  free(here);
  return text;
}

// Evaluations before this run were written to the same file.
static void find_held_out(const char *metrics, Summary *s) {
  MetricsSeries series = {0};
  Error ignored = {0};
  s->best = s->last = NAN;
  if (metrics_read(metrics, "eval_loss", &series, &ignored)) return;
  for (int i = 0; i < series.count; i++) {
    s->last = series.value[i];
    s->last_step = series.step[i];
    if (isfinite(s->last) && !(s->best <= s->last)) s->best = s->last, s->best_step = s->last_step;
  }
  metrics_series_free(&series);
}

static int write_metrics(Trainer *t, const char *how, const Summary *s, const char *checkpoint, Error *error) {
  Metrics *m = &t->metrics;
  metrics_begin(m);
  metrics_text(m, "summary", how);
  metrics_integer(m, "step", t->extra.step);
  metrics_integer(m, "run_steps", s->steps);
  metrics_real(m, "run_tokens", s->tokens);
  metrics_real(m, "run_seconds", s->seconds);
  metrics_real(m, "run_tokens_per_s", s->seconds > 0 ? s->tokens / s->seconds : NAN);
  metrics_real(m, "final_loss", s->steps ? t->last.loss : NAN);
  metrics_real(m, "best_eval_loss", s->best);
  if (s->best_step) metrics_integer(m, "best_eval_step", s->best_step);
  if (t->last.noise.count)
    metrics_real(m, "final_noise_scale", noise_scale_sequences(&t->last.noise, t->recipe->batch.global));
  metrics_text(m, "checkpoint", checkpoint);
  return metrics_end(m, error);
}

static void print_next(const Trainer *t) {
  const Recipe *r = t->recipe;
  char *dir = trainer_path(r->run.dir);
  const char *quote = strpbrk(dir, " ()&;'\"$*?") ? "\"" : ""; // as far as that helps
  fprintf(t->out, "next         plait eval %s%s%s%s\n", quote, dir, quote,
          recipe_corpora(r, true)->count ? "" : " --data PREFIX   # of text that it was not trained on");
  if (r->data.tokenizer) fprintf(t->out, "             plait generate %s%s%s --prompt 'Once'\n", quote, dir, quote);
  free(dir);
}

static void print_path(const Trainer *t, const char *what, const char *path) {
  char *text = trainer_path(path);
  fprintf(t->out, "%-12s %s\n", what, text);
  free(text);
}

static void print(const Trainer *t, const char *how, const Summary *s, const char *checkpoint) {
  if (t->outcome == OUTCOME_STOPPED && worker_job_continues())
    return (void)fflush(t->out);     // the summary comes at the end of the job
  if (t->outcome != OUTCOME_STOPPED) // that has been said
    fprintf(t->out, "%s at step %lld of %lld\n", how, (long long)t->extra.step, (long long)t->recipe->schedule.steps);
  fprintf(t->out, "this run     %lld step%s in %s, %s tokens, %s tokens/s\n", (long long)s->steps,
          s->steps == 1 ? "" : "s", units_duration(s->seconds).s, units_count(s->tokens).s,
          units_count(s->seconds > 0 ? s->tokens / s->seconds : 0).s);
  char passes[128];
  setup_describe_passes(&t->passes, (double)t->extra.step * t->recipe->batch.global * t->recipe->data.seq_len, passes,
                        sizeof passes);
  fprintf(t->out, "data         %s\n", passes);
  if (s->steps && !isnan(t->last.loss)) fprintf(t->out, "loss         %.4f in the last step\n", t->last.loss);
  if (s->best_step == s->last_step && s->best_step)
    fprintf(t->out, "held-out     %.4f at step %lld, the best\n", s->best, (long long)s->best_step);
  else if (s->best_step)
    fprintf(t->out, "held-out     %.4f at step %lld; the best was %.4f at step %lld\n", s->last,
            (long long)s->last_step, s->best, (long long)s->best_step);
  routers_print(&t->last.routers, t->out);
  char noise[256];
  if (noise_scale_describe(&t->last.noise, t->recipe->batch.global, noise, sizeof noise))
    fprintf(t->out, "noise scale  %s\n", noise);
  print_path(t, "checkpoint", checkpoint);
  char *folder = trainer_path(t->checkpoints);
  if (t->recipe->checkpoint.best && checkpoint_best(t->checkpoints))
    fprintf(t->out, "best         %s/best\n", folder); // a link, which is not followed here
  free(folder);
  print_path(t, "metrics", t->metrics.path);
  print_next(t);
  fflush(t->out);
}

int trainer_summarise(Trainer *t, const char *how, Error *error) {
  Summary s = {.steps = t->extra.step - first_step(t), .seconds = clock_seconds() - t->started};
  s.tokens = (double)s.steps * t->recipe->batch.global * t->recipe->data.seq_len;
  find_held_out(t->metrics.path, &s);
  char *checkpoint = xformat("%s/step-%lld", t->checkpoints, (long long)t->extra.step);
  print(t, how, &s, checkpoint);
  int code = write_metrics(t, how, &s, checkpoint, error);
  free(checkpoint);
  return code;
}
