// The training loop: what each rank does between a run's start and its end. See trainer.h.
#include "foresight/auto_plan.h"
#include "train/balance.h"
#include "train/trainer.h"
#include "base/fault.h"
#include "base/memory_usage.h"
#include "base/signals.h"
#include "checkpoint/huggingface.h"
#include "worker/page.h"
#include "runtime/gather.h"
#include "train/ending.h"
#include "train/learning_rate.h"
#include "setup/setup.h"
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

static int start_trace(const Trainer *t, Rank *r, Error *error) {
  if (!t->recipe->run.trace) return PLAIT_OK;
  rank_trace(r, t->recipe->run.trace_first, t->recipe->run.trace_steps);
  return trace_align(r->trace, r->world, t->one_machine, error);
}

static int open_evaluation(Trainer *t, Rank *r, Error *error) {
  DataSource sources[recipe_corpora(t->recipe, true)->count];
  LoaderConfig data = setup_loader(t->recipe, &t->config, 1, sources);
  return rank_open_evaluation(r, &data, error);
}

static int start_rank(Trainer *t, Rank *r, Error *error) {
  int code = rank_load(r, t->job, error);
  if (code) return code;
  if (t->resume) code = save_load(r, t->resume, error);
  else if (t->recipe->model.init[0] == '/') code = init_from_folder(t, r, error);
  else rank_initialise(r);
  if (code) return code;
  DataSource sources[t->recipe->data.train.count];
  LoaderConfig data = setup_loader(t->recipe, &t->config, 0, sources);
  r->measure_every = t->recipe->run.noise_scale;
  code = rank_open_data(r, &data, t->first_step, error);
  if (!code && recipe_corpora(t->recipe, true)->count) code = open_evaluation(t, r, error);
  if (!code) code = rank_barrier(r, error);
  return code ? code : start_trace(t, r, error);
}

// Steps -------------------------------------------------------------------------------------------------------------

// *best is this rank's; all come to the same, since all have the same loss.
static int evaluate(Trainer *t, Rank *r, int64_t step, BestLoss *best, Error *error) {
  HeldOut held_out;
  double begin = trace_begin(r->trace);
  int code = held_out_evaluate(r, t->recipe, &held_out, error);
  trace_end(r->trace, begin, "evaluation", NULL, "evaluation", -1, -1);
  if (!code) best_update(best, step, held_out.loss);
  if (!code && r->rank == 0) code = trainer_report_evaluation(t, step, &held_out, error);
  held_out_free(&held_out);
  return code;
}

// Rank 0, when a checkpoint lies there.
static int tell_saved(Trainer *t, int64_t step, Error *error) {
  t->saving = 0;
  int code = trainer_report_save(t, step, error);
  if (code) return code;
  return t->recipe->checkpoint.resume[0] == '/' ? trainer_write_recipe(t, true, error) : PLAIT_OK;
}

// Waits for the checkpoint that is being written, if any.
static int settle(Trainer *t, Rank *r, SaveLater *later, int64_t step, Error *error) {
  int64_t saved = 0, written = r->rank ? 0 : t->saving;
  double seconds = 0, begin = trace_begin(r->trace);
  int code = later ? save_later_settle(later, &saved, &seconds, error) : PLAIT_OK;
  if (seconds > 0) trace_end(r->trace, begin, "wait for a checkpoint", NULL, "checkpoint", -1, -1);
  if (code || !saved) return code;
  code = tell_saved(t, saved, error);
  if (seconds >= 0.1) // what a person would notice
    progress_note(&t->progress, "step %lld: waited %.1f s until the checkpoint of step %lld was written",
                  (long long)step, seconds, (long long)written);
  return code;
}

// Called by every rank after each step; not collective.
static int look_at_writing(Trainer *t, SaveLater *later, Error *error) {
  int64_t saved = 0;
  int code = later ? save_later_look(later, &saved, error) : PLAIT_OK;
  return code || !saved ? code : tell_saved(t, saved, error);
}

static SaveExtra extra_at(const Trainer *t, int64_t step, const BestLoss *best) {
  SaveExtra extra = t->extra; // borrows what it owns
  extra.step = step;
  extra.best = *best;
  extra.is_best = t->recipe->checkpoint.best && best->step == step;
  return extra;
}

// Of a step without a checkpoint (checkpoint.memory_every).
static bool is_kept(const Trainer *t, int64_t step) {
  int64_t every = t->recipe->checkpoint.memory_every;
  return t->later.keeping && every && step % every == 0 && step < t->recipe->schedule.steps;
}

static int keep(const Trainer *t, Rank *r, SaveLater *later, int64_t step, const BestLoss *best, Error *error) {
  SaveExtra extra = extra_at(t, step, best);
  double begin = trace_begin(r->trace);
  int code = save_later_keep(later, &extra, t->recipe->checkpoint.keep, error);
  trace_end(r->trace, begin, "keep in memory", NULL, "checkpoint", -1, -1);
  return code;
}

// `later`, where not NULL, may write it while the next steps run; more: there are some.
static int save(Trainer *t, Rank *r, SaveLater *later, int64_t step, const BestLoss *best, bool more,
                Error *error) {
  if (t->measures) return PLAIT_OK;
  int code = settle(t, r, later, step, error);
  if (code) return code;
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_CHECKPOINT, step);
  SaveExtra extra = extra_at(t, step, best);
  if (!t->later.writes) later = NULL; // it keeps copies in memory only
  if (r->rank == 0) {
    t->saving = step;
    t->saving_since = clock_seconds();
    if (!later || !more) fsync(t->metrics.fd); // a checkpoint must not outlive the lines that lead to it
  }
  double begin = trace_begin(r->trace);
  if (later && more) code = save_later_begin(later, &extra, t->recipe->checkpoint.keep, error);
  else code = save_checkpoint(r, t->checkpoints, &extra, t->recipe->checkpoint.keep, error);
  trace_end(r->trace, begin, "checkpoint", NULL, "checkpoint", -1, -1);
  return code || r->rank || (later && more) ? code : tell_saved(t, step, error);
}

// Rank 0 gathers the reduced gradients of all ranks into DIR/step-N.safetensors; the others wait.
static int dump_gradients(Trainer *t, Rank *r, int64_t step, Error *error) {
  CheckpointTensor *boxes;
  Gathered all = {0};
  int n = state_tensors_of(r->state, OF_DUMP, &boxes);
  int code = gather_boxes(r->world, boxes, n, &all, error);
  free(boxes);
  if (!code && r->rank == 0) {
    char *path = xformat("%s/step-%lld.safetensors", t->recipe->run.dump_gradients, (long long)step);
    code = folder_create(t->recipe->run.dump_gradients, error);
    if (!code) code = safetensors_write_gathered(path, all.boxes, all.count, error);
    free(path);
  }
  gather_free(&all);
  return code ? code : rank_barrier(r, error);
}

// After a step that was not finite: the run may continue from older weights, with the batches that come next.
static int recover(Trainer *t, Rank *r, SaveLater *later, Recovery *v, int64_t step, const StepResult *s,
                   Error *error) {
  int64_t to;
  int code = FAULT(rollback_ignores_what_is_written, non_finite_needs_files(v, r, s), 0)
                 ? settle(t, r, later, step, error)
                 : PLAIT_OK;
  if (!code) code = non_finite_recover(v, r, step, s, &to, error);
  if (code) return code;
  return to < 0 || r->rank ? PLAIT_OK : trainer_report_rollback(t, step, to, error);
}

// Whether the step may begin the next one: nothing between them needs weights and Variables that are one step's.
static bool goes_on(const Trainer *t, int64_t step) {
  int64_t last = t->recipe->schedule.steps;
  return step < last && !trainer_due_evaluation(t, step) && !trainer_due(t->recipe->checkpoint.every, step, last) &&
         !is_kept(t, step) && !balance_due(t, step);
}

// rates: room for that of the step, and of those that it may begin.
static int one_step(Trainer *t, Rank *r, SaveLater *later, Recovery *v, BalanceTimes *times, int64_t step, bool drains,
                    double *rates, Error *error) {
  StepResult result = {0};
  double start = clock_seconds();
  int64_t ahead = 0;
  for (int k = 0; k <= rank_most_ahead(r); k++) rates[k] = learning_rate_at(t->recipe, step + k - 1);
  while (!drains && ahead < rank_most_ahead(r) && goes_on(t, step + ahead)) ahead++;
  int code = rank_step_on(r, step, rates, ahead, &result, error);
  if (!(result.tokens > 0)) result.loss = NAN; // a mean over none
  result.seconds = clock_seconds() - start;
  balance_add(times, &result);
  if (is_process(t) || r->rank == 0) t->extra.tokens += result.tokens; // any process may have to say how many
  if (!code && r->rank == 0) code = trainer_report_step(t, r, v, step, rates[0], &result, error);
  trace_end(r->trace, start, "step", NULL, "step", -1, -1);
  if (!code && t->recipe->run.dump_gradients && step <= t->recipe->run.dump_steps)
    code = dump_gradients(t, r, step, error);
  if (!code) code = look_at_writing(t, later, error);
  return code ? code : recover(t, r, later, v, step, &result, error);
}

// The trace is written after its last step, or when the run ends.
static int turn_trace(const Trainer *t, Rank *r, int64_t step, Error *error) {
  return r->trace && trace_turn(r->trace, step) ? trace_write(r->trace, r->world, t->recipe->run.trace, error)
                                                : PLAIT_OK;
}

static bool has_lost_patience(const Recipe *recipe, const BestLoss *best) {
  return recipe->eval.patience && best->without >= recipe->eval.patience;
}

static int end_early(Trainer *t, Rank *r, int64_t step, const BestLoss *best, Error *error) {
  if (r->rank == 0 || is_process(t)) t->patience_over = 1;
  return r->rank ? PLAIT_OK : trainer_report_patience(t, step, best, error);
}

static int run_steps(Trainer *t, Rank *r, SaveLater *later, double *rates, Error *error) {
  const Recipe *recipe = t->recipe;
  Recovery recovery = {.recipe = recipe, .checkpoints = t->checkpoints, .start = t->resume};
  int64_t last = recipe->schedule.steps;
  BestLoss best = t->extra.best;
  BalanceTimes times = {0};
  int code = PLAIT_OK, stop = 0;
  if (t->evaluate_first) code = evaluate(t, r, t->first_step, &best, error);
  // Saved, since the metrics hold it now: the next run would neither evaluate again nor know it.
  bool ends = t->evaluate_first && has_lost_patience(recipe, &best);
  if (!code && t->evaluate_first) code = save(t, r, later, t->first_step, &best, !ends, error);
  if (code) return code;
  if (ends) return end_early(t, r, t->first_step, &best, error);
  for (int64_t step = t->first_step + 1; step <= last; step++) {
    code = turn_trace(t, r, step, error);
    if (!code) code = one_step(t, r, later, &recovery, &times, step, stop != 0, rates, error);
    if (!code) code = rank_signal(r, &stop, error);
    if (code) return code;
    if (stop && rank_under_way(r)) continue; // a stream has begun the next steps, and stops after them
    if (stop && is_process(t)) signals_request_stop(stop); // all processes exit with its status
    // Who asks for a stop may not wait long: the next run makes up for an evaluation that is left out.
    if ((!stop || step == last) && trainer_due_evaluation(t, step))
      code = evaluate(t, r, step, &best, error);
    bool is_best = recipe->checkpoint.best && best.step == step,
         over = has_lost_patience(recipe, &best) && step < last && !stop;
    if (!code && (stop || is_best || over || trainer_due(recipe->checkpoint.every, step, last))) {
      code = save(t, r, later, step, &best, step < last && !stop && !over, error);
      non_finite_saved(&recovery);
    } else if (!code && is_kept(t, step)) code = keep(t, r, later, step, &best, error);
    if (code) return code;
    if (stop && step < last) {
      if (r->rank == 0 || is_process(t)) t->stopped = 1;
      return PLAIT_OK;
    }
    if (over) return end_early(t, r, step, &best, error);
    if (step < last && (code = balance_after(t, r, &times, step, error))) return code;
  }
  return PLAIT_OK;
}

static int train(Rank *r, void *trainer, Error *error) {
  Trainer *t = trainer;
  int code = start_rank(t, r, error);
  double *rates = code ? NULL : xcalloc((size_t)rank_most_ahead(r) + 1, sizeof *rates);
  SaveLater *later = NULL;
  char *log = run_folder_file(&t->folder, "metrics.jsonl");
  SaveLaterOptions options = t->later;
  options.dir = t->checkpoints;
  options.log_path = log;
  options.log = t->metrics.fd;
  if (!code) code = save_later_create(r, &options, &later, error);
  if (!code) code = run_steps(t, r, later, rates, error);
  save_later_destroy(later);
  free(log);
  free(rates);
  return code ? code : turn_trace(t, r, INT64_MAX, error);
}

// All -----------------------------------------------------------------------------------------------------------------

static int run_ranks(Trainer *t, Error *error) {
  Session *session = NULL;
  WatchdogLimits limits = setup_watchdog(t->recipe);
  SessionOptions o = {.ranks = t->job->options.parallel.mesh.ranks, .limits = &limits};
  if (is_process(t)) o = (SessionOptions){.comm = t->launch->comm, .watchdog = t->watchdog};
  int code = session_open(&o, &session, error);
  if (code) return code;
  t->one_machine = plait_world_local_size(session_world(session)) == session_ranks(session);
  code = session_run(session, train, t, error);
  session_close(session);
  if (t->saving) checkpoint_abandon(t->checkpoints, t->saving);
  return code;
}

// Nobody has sent rank 0 a signal but its supervisor, which asks for a step at which machines can come and go.
static const char *reason_to_stop(void) {
  return worker_job_continues() ? "machines join or leave: stopping after this step, which is saved then" : NULL;
}

static int run(Trainer *t, Error *error) {
  signals_reword(FAULT(supervisors_signal_is_told, reason_to_stop, NULL));
  signals_install(has_rank_0(t) ? "stopping after this step, which is saved then; a second Ctrl-C ends it at once"
                                : NULL);
  trainer_announce(t); // a reader who leaves after the header ends nothing
  trainer_tell_changes(t);
  if (has_rank_0(t)) trainer_check_lead(t);
  trainer_measure_peak(t);
  trainer_expect(t);
  malloc_trim(0); // what compiling and checking has given back is not to hide what the ranks take
  t->memory_before = memory_usage_anonymous();
  progress_start(&t->progress, t->out, t->first_step, t->recipe->schedule.steps, t->recipe->run.log_every);
  t->started = clock_seconds();
  int code = run_ranks(t, error);
  progress_finish(&t->progress);
  if (code) return code;
  worker_enter(WORKER_PHASE_ENDING, 0);
  char how[64] = "finished";
  if (t->patience_over) snprintf(how, sizeof how, "ended early");
  if (t->stopped) {
    snprintf(how, sizeof how, "stopped by %s", signals_name(signals_number()));
    if (worker_job_continues())
      fprintf(t->out, "step %lld is saved; machines join or leave, and training resumes from this step\n",
              (long long)t->extra.step);
    else
      fprintf(t->out, "%s after step %lld, which is saved; the same command resumes from there\n", how,
              (long long)t->extra.step);
  }
  code = has_rank_0(t) && !t->measures ? trainer_summarise(t, how, error) : PLAIT_OK;
  return code || !t->stopped ? code : PLAIT_INTERRUPTED;
}

static void trainer_free(Trainer *t) {
  metrics_close(&t->metrics);
  metrics_lists_free(&t->shares);
  routers_free(&t->routers);
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
  Recipe own = *recipe; // with the precision that auto is in this run; all else is borrowed
  Trainer t = {.recipe = &own,
               .launch = launch,
               .out = nowhere ? nowhere : out,
               .force = asked->force,
               .lines = asked->lines,
               .measures = asked->measures,
               .last_loss = NAN,
               .metrics.fd = -1,
               .folder.lock = -1,
               .keep_until = INT64_MAX};
  WatchdogLimits limits = setup_watchdog(recipe);
  int code = is_process(&t) ? watchdog_create(&limits, launch->world, launch->rank, 1, &t.watchdog, error) : PLAIT_OK;
  code = launch_agree(launch, code, error);
  if (!code) code = precision_resolve(&own, launch, t.force, t.precision, sizeof t.precision, error);
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
