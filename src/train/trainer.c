// Runs training: starts the ranks, loops over steps, ends the run. See trainer.h.
#include "foresight/auto_plan.h"
#include "train/balance.h"
#include "train/saving.h"
#include "base/fault.h"
#include "base/memory_usage.h"
#include "base/signals.h"
#include "checkpoint/huggingface.h"
#include "worker/page.h"
#include "train/ending.h"
#include "train/learning_rate.h"
#include "runtime/state_tensors.h"
#include "train/precision.h"
#include "foresight/run_cluster.h"
#include "train/train.h"
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Start -------------------------------------------------------------------------------------------------------------

static int init_from_folder(Trainer *t, Rank *r, Error *error) {
  CheckpointTensor *tensors;
  int count = state_tensors(r->state, variable_is_loaded, &tensors);
  int code = huggingface_load(t->recipe->model.init, &t->config, tensors, count, error);
  free(tensors);
  return code;
}

static int open_evaluation(Trainer *t, Rank *r, Error *error) {
  DataSource sources[recipe_corpora(t->recipe, true)->count];
  LoaderConfig data = setup_loader(t->recipe, &t->config, 1, sources);
  return rank_open_evaluation(r, &data, error);
}

static int start_rank(Trainer *t, Rank *r, Error *error) {
  char *choices = run_folder_file(&t->folder, "choices.json");
  int code = rank_load(r, t->job, error);
  if (!code) code = rank_choose(r, choices, t->resume != NULL, error);
  free(choices);
  if (code) return code;
  if (t->resume) code = save_load(r, t->resume, error);
  else if (t->recipe->model.init[0] == '/') code = init_from_folder(t, r, error);
  else rank_initialise(r);
  if (code) return code;
  DataSource sources[t->recipe->data.train.count];
  LoaderConfig data = setup_loader(t->recipe, &t->config, 0, sources);
  code = rank_open_data(r, &data, first_step(t), error);
  if (!code && recipe_corpora(t->recipe, true)->count) code = open_evaluation(t, r, error);
  return code ? code : rank_barrier(r, error);
}

// Steps -------------------------------------------------------------------------------------------------------------

static int64_t last_step(const Training *x) { return x->trainer->recipe->schedule.steps; }

// Whether the step may begin the next one: nothing between them needs weights and Variables that are one step's.
static bool runs_on(const Training *x, int64_t step) {
  const Trainer *t = x->trainer;
  return step < last_step(x) && !trainer_due_evaluation(t, step) &&
         !trainer_due(t->recipe->checkpoint.every, step, last_step(x)) &&
         !FAULT(stream_runs_past_hooks, hooks_pause(t, step), false);
}

static int run_step(Training *x, Error *error) {
  Trainer *t = x->trainer;
  Rank *r = x->rank;
  int most = rank_most_ahead(r), ahead = 0;
  x->began = clock_seconds();
  x->result = (StepResult){0};
  x->saved = false;
  for (int k = 0; k <= most; k++) x->rates[k] = learning_rate_at(t->recipe, x->step + k - 1);
  while (!x->stop && ahead < most && runs_on(x, x->step + ahead)) ahead++;
  int code = rank_step_on(r, x->step, x->rates, ahead, &x->result, error);
  if (!(x->result.tokens > 0)) x->result.loss = NAN; // a mean over none
  x->result.seconds = clock_seconds() - x->began;
  if (is_process(t) || r->rank == 0) t->extra.tokens += x->result.tokens; // any process may have to say how many
  return code;
}

// A stop that was asked for does not wait for an evaluation; the next run does it.
static bool evaluates(const Training *x) {
  return trainer_due_evaluation(x->trainer, x->step) && (!x->stop || x->step == last_step(x));
}

static int evaluate(Training *x, Error *error) {
  Rank *r = x->rank;
  HeldOut held_out;
  double begin = trace_begin(r->trace);
  int code = held_out_evaluate(r, x->trainer->recipe, &held_out, error);
  trace_end(r->trace, begin, "evaluation", NULL, "evaluation", -1, -1);
  if (!code) best_update(&x->best, x->step, held_out.loss);
  if (!code && r->rank == 0) code = trainer_report_evaluation(x->trainer, x->step, &held_out, error);
  held_out_free(&held_out);
  return code;
}

static bool has_lost_patience(const Training *x) {
  int64_t patience = x->trainer->recipe->eval.patience;
  return patience && x->best.without >= patience;
}

// Evaluates and saves the step where that is due, and finds whether the run ends with it.
static int finish_step(Training *x, Error *error) {
  Trainer *t = x->trainer;
  const Recipe *recipe = t->recipe;
  bool is_last = x->step == last_step(x), is_start = x->step == first_step(t);
  int code = evaluates(x) ? evaluate(x, error) : PLAIT_OK;
  bool is_best = recipe->checkpoint.best && x->best.step == x->step;
  bool loses_patience = has_lost_patience(x) && !is_last && !x->stop;
  x->ended = is_last || x->stop || loses_patience;
  // The step that the run began with is saved too: its evaluation is in the metrics now, and the next run, which would
  // not repeat it, needs what it found.
  if (!code && (x->ended || is_best || is_start || trainer_due(recipe->checkpoint.every, x->step, last_step(x))))
    code = saving_save(x, !x->ended, error);
  if (code || !x->ended || is_last) return code;
  if (is_process(t) || x->rank->rank == 0) t->outcome = x->stop ? OUTCOME_STOPPED : OUTCOME_ENDED_EARLY;
  return x->stop || x->rank->rank ? PLAIT_OK : trainer_report_patience(t, x->step, &x->best, error);
}

static int run_steps(Training *x, Error *error) {
  int code = x->trainer->evaluate_first ? finish_step(x, error) : PLAIT_OK;
  while (!code && !x->ended) {
    x->step++;
    code = hooks_call(x, HOOK_BEFORE, error);
    if (!code) code = run_step(x, error);
    if (!code && x->rank->rank == 0) code = trainer_report_step(x, error);
    if (!code) code = hooks_call(x, HOOK_AFTER, error);
    if (!code) code = rank_signal(x->rank, &x->stop, error);
    if (code || (x->stop && rank_under_way(x->rank)))
      continue; // a stream has begun the next steps; it stops after them
    if (x->stop && is_process(x->trainer)) signals_request_stop(x->stop); // all processes exit with its status
    code = finish_step(x, error);
    if (!code && !x->ended) code = hooks_call(x, HOOK_BETWEEN, error);
  }
  return code ? code : hooks_call(x, HOOK_END, error);
}

static int train(Rank *r, void *trainer, Error *error) {
  Trainer *t = trainer;
  int code = start_rank(t, r, error);
  if (code) return code;
  Training x = {.trainer = t, .rank = r, .step = first_step(t), .best = t->extra.best};
  x.rates = xcalloc((size_t)rank_most_ahead(r) + 1, sizeof *x.rates);
  code = hooks_open(&x, error);
  if (!code) code = run_steps(&x, error);
  hooks_close(&x);
  free(x.rates);
  return code;
}

// All -----------------------------------------------------------------------------------------------------------------

static int run_ranks(Trainer *t, Error *error) {
  Session *session = NULL;
  WatchdogLimits limits = setup_watchdog(t->recipe);
  SessionOptions o = {.ranks = t->job->options.parallel.mesh.ranks, .limits = &limits};
  if (is_process(t)) o = (SessionOptions){.comm = t->launch->comm, .watchdog = t->watchdog};
  int code = session_open(&o, &session, error);
  if (code) return code;
  code = session_run(session, train, t, error);
  session_close(session);
  if (t->writing.step) checkpoint_abandon(t->checkpoints, t->writing.step);
  return code;
}

// Only the supervisor signals rank 0 then: it asks for a step at which machines can come and go.
static const char *reason_to_stop(void) {
  return worker_job_continues() ? "machines join or leave: stopping after this step, which is saved then" : NULL;
}

static int run(Trainer *t, Error *error) {
  signals_reword(FAULT(supervisors_signal_is_told, reason_to_stop, NULL));
  signals_install(has_rank_0(t) ? "stopping after this step, which is saved then; a second Ctrl-C ends it at once"
                                : NULL);
  int code = trainer_announce(t, error); // a reader who leaves after the header ends nothing
  if (code) return code;
  trainer_tell_changes(t);
  if (has_rank_0(t)) trainer_check_lead(t);
  trainer_measure_peak(t);
  trainer_expect(t);
  malloc_trim(0); // memory that compiling has freed is not counted as the ranks'
  t->memory_before = memory_usage_anonymous();
  progress_start(&t->progress, t->out, first_step(t), t->recipe->schedule.steps, t->recipe->run.log_every);
  t->started = clock_seconds();
  code = run_ranks(t, error);
  progress_finish(&t->progress);
  if (code) return code;
  worker_enter(WORKER_PHASE_ENDING, 0);
  char how[64] = "finished";
  if (t->outcome == OUTCOME_ENDED_EARLY) snprintf(how, sizeof how, "ended early");
  if (t->outcome == OUTCOME_STOPPED) {
    snprintf(how, sizeof how, "stopped by %s", signals_name(signals_number()));
    if (worker_job_continues())
      fprintf(t->out, "step %lld is saved; machines join or leave, and training resumes from this step\n",
              (long long)t->extra.step);
    else
      fprintf(t->out, "%s after step %lld, which is saved; the same command resumes from there\n", how,
              (long long)t->extra.step);
  }
  code = has_rank_0(t) && !t->measures ? trainer_summarise(t, how, error) : PLAIT_OK;
  return code || t->outcome != OUTCOME_STOPPED ? code : PLAIT_INTERRUPTED;
}

static void trainer_free(Trainer *t) {
  metrics_close(&t->metrics);
  metrics_lists_free(&t->balance.shares);
  routers_free(&t->last.routers);
  events_close(&t->events);
  checkpoint_close(t->resume);
  changes_free(&t->changes);
  free(t->split);
  free(t->rowless);
  free(t->documents);
  save_extra_free(&t->extra);
  free(t->checkpoints);
  job_destroy(t->job);
  run_folder_close(&t->folder);
  model_config_free(&t->config);
}

// *asked has the caller's options; the rest of the Trainer is this run's.
static int run_trainer(const Trainer *asked, const Recipe *recipe, FILE *out, Error *error) {
  // Fixed, or the C library keeps what a checkpoint or an evaluation has given back: after the first step memory stays.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  const Launch *launch = asked->launch;
  FILE *nowhere = launch && launch->rank ? fopen("/dev/null", "w") : NULL; // where other ranks than 0 speak
  Recipe own = {0}; // with the precision that auto is in this run
  Trainer t = {.recipe = &own,
               .launch = launch,
               .out = nowhere ? nowhere : out,
               .force = asked->force,
               .lines = asked->lines,
               .measures = asked->measures,
               .last.loss = NAN,
               .metrics.fd = -1,
               .folder.lock = -1,
               .keep_until = INT64_MAX};
  WatchdogLimits limits = setup_watchdog(recipe);
  int code = is_process(&t) ? watchdog_create(&limits, launch->world, launch->rank, 1, &t.watchdog, error) : PLAIT_OK;
  code = launch_agree(launch, code, error);
  if (!code) code = precision_resolve(recipe, launch, t.force, &own, t.precision, sizeof t.precision, error);
  if (!code) code = run_cluster(&own, launch, &t.cluster, error);
  if (!code) code = launch_agree(launch, trainer_prepare(&t, error), error);
  if (!code && !trainer_is_over(&t)) {
    code = balance_begin(&t, error);
    if (!code) code = trainer_begin_writing(&t, error);
    if (!code && t.folder.path) ending_clear(t.folder.path);
    if (!code) code = run(&t, error);
    if (code && code != PLAIT_INTERRUPTED && t.folder.path)
      ending_write(t.folder.path, launch ? launch->rank : 0, error);
  }
  trainer_free(&t);
  recipe_free(&own);
  cluster_free(t.cluster);
  if (nowhere) fclose(nowhere);
  watchdog_destroy(t.watchdog);
  return code;
}

int train_run_launched(const Recipe *recipe, const Launch *launch, bool force, FILE *lines, FILE *out, Error *error) {
  return run_trainer(&(Trainer){.launch = launch, .force = force, .lines = lines}, recipe, out, error);
}

int train_measure(const Recipe *recipe, FILE *out, Error *error) {
  return run_trainer(&(Trainer){.measures = true}, recipe, out, error);
}

int train_run_joined(const Recipe *asked, Launch *launch, bool force, FILE *lines, FILE *out, Error *error) {
  Recipe ranked = {0}, planned = {0};
  int code = launch_agree(launch, recipe_with_ranks(asked, launch_processes(launch), &ranked, error), error);
  if (!code) code = auto_plan(&ranked, launch, out, &planned, error);
  if (!code) code = setup_launch(launch, &planned, error);
  if (!code && launch->idle) code = launch_wait(launch, error);
  else if (!launch->idle) code = launch_agree(launch, code, error);
  if (!code && !launch->idle) code = train_run_launched(&planned, launch, force, lines, out, error);
  recipe_free(&planned);
  recipe_free(&ranked);
  return code;
}

int train_run(const Recipe *recipe, FILE *out, Error *error) {
  Launch launch;
  int code = launch_begin(&launch, setup_wish(recipe), error);
  if (!code) code = train_run_joined(recipe, &launch, false, NULL, out, error);
  launch.outcome = code;
  launch_end(&launch);
  return code;
}
