// The training loop: one thread or process per rank; rank 0 also speaks and writes.
#include "train/loop.h"
#include "base/file.h"
#include "base/memory_usage.h"
#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/huggingface.h"
#include "train/gather.h"
#include "train/learning_rate.h"
#include "train/metrics.h"
#include "train/non_finite.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/save.h"
#include "train/setup.h"
#include "train/state_tensors.h"
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Loop {
  const Recipe *recipe;
  const Launch *launch;   // NULL or without a world: all ranks are threads of this process, else it is one of them
  FILE *out;
  ModelConfig config;
  Job *job;
  RunFolder folder;
  char *checkpoints;      // folder
  Checkpoint *resume;     // NULL: from init
  SaveExtra extra;        // rank 0 keeps step and tokens up to date
  Metrics metrics;
  Events events;          // what the metrics say, for TensorBoard
  Progress progress;
  double peak_flops, flops_per_token;
  int64_t first_step;     // steps done before this run
  PlaitWorld *world;
  Watchdog *watchdog;
  Rank **ranks;
  _Atomic int culprit;    // the rank whose failure came first; the others fail with its words. -1: none
  int64_t memory_before;  // resident anonymous bytes before the ranks take theirs
  int evaluate_first;     // the run was stopped before the evaluation of first_step
  int64_t saving;         // step of the checkpoint being written; 0: none
  int stopped;            // by a signal
} Loop;

typedef struct Worker { Loop *loop; int rank, code; Error error; PlaitComm *world; pthread_t thread; } Worker;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Start -------------------------------------------------------------------------------------------------------------

static int is_process(const Loop *l) { return l->launch && l->launch->world; }
static int speaks(const Loop *l) { return !is_process(l) || l->launch->rank == 0; } // has rank 0

// A run's folder is easily named instead of one of its checkpoints.
static int check_checkpoint(const char *path, Error *error) {
  char *file = xformat("%s/checkpoint.json", path), *inside = xformat("%s/checkpoints", path);
  int code = PLAIT_OK;
  if (!file_exists(path)) code = error_set(error, PLAIT_BAD_INPUT, "%s does not exist", path);
  else if (!file_exists(file) && file_exists(inside))
    code = error_set(error, PLAIT_BAD_INPUT, "%s is a run and not a checkpoint; take one of %s", path, inside);
  else if (!file_exists(file))
    code = error_set(error, PLAIT_BAD_INPUT, "%s is no checkpoint, which is a folder with checkpoint.json, as RUN/checkpoints/step-100 is", path);
  free(file);
  free(inside);
  return code;
}

// Where the run starts from: a checkpoint (own or named), else init.
static int find_resume(Loop *l, Error *error) {
  const char *how = l->recipe->checkpoint.resume;
  char *warnings = NULL;
  int64_t step = 0;
  if (how[0] == '/') {
    int code = check_checkpoint(how, error);
    if (!code) code = checkpoint_open(&l->resume, how, error);
    if (!code) code = checkpoint_verify(l->resume, error);
    if (code) error_prefix(error, "%scheckpoint.resume", recipe_where(l->recipe, "checkpoint.resume"));
    return code;
  }
  int found = checkpoint_latest_valid(l->checkpoints, &step, strcmp(how, "never") ? &l->resume : NULL, &warnings, error);
  if (warnings && found) fprintf(l->out, "%s%s", warnings, warnings[strlen(warnings) - 1] == '\n' ? "" : "\n");
  if (warnings && !found) // to begin again would drop the metrics of what a person may still save
    found = error_set(error, PLAIT_BAD_INPUT, "run.dir: no checkpoint in %s can be read (%.*s); move them away to begin again",
                      l->checkpoints, (int)strcspn(warnings, "\n"), warnings);
  free(warnings);
  if (found < 0) return found;
  if (found && !strcmp(how, "never"))
    return error_set(error, PLAIT_BAD_INPUT, "run.dir: %s holds a checkpoint of step %lld already; choose another folder, or checkpoint.resume: auto",
                     l->recipe->run.dir, (long long)step);
  return PLAIT_OK;
}

// Generation would miss it when the run is over.
static int check_tokenizer(const Loop *l, Error *error) {
  const char *path = l->recipe->data.tokenizer;
  if (file_exists(path)) return setup_check_tokenizer(l->recipe, &l->config, error);
  return error_set(error, PLAIT_BAD_INPUT, "%sdata.tokenizer: %s does not exist; plait tokenize --train makes one", recipe_where(l->recipe, "data.tokenizer"), path);
}

// The corpora are opened once before anything is allocated: evaluation would meet its own only after many steps.
static int check_data(const Loop *l, Error *error) {
  const Recipe *r = l->recipe;
  int code = PLAIT_OK;
  if (r->data.tokenizer && speaks(l)) code = check_tokenizer(l, error);
  for (int validation = 0; validation < 2 && !code; validation++) {
    int count = validation ? r->data.valid.count : r->data.train.count;
    if (!count) continue;
    DataSource *sources = xcalloc((size_t)count, sizeof *sources);
    LoaderConfig c = setup_loader(r, &l->config, validation, sources);
    SamplerConfig config = {sources, count, c.seq_len, c.document_mask, c.vocab_size, validation, c.seed};
    Sampler sampler;
    code = sampler_open(&sampler, &config, error);
    const char *key = validation ? "data.valid" : "data.train";
    if (code) error_prefix(error, "%s%s", recipe_where(r, key), key);
    else sampler_close(&sampler);
    free(sources);
  }
  return code;
}

// Resident memory that the ranks will take, against what the machine has: the system would end the process without a word.
static int check_memory(const Loop *l, Error *error) {
  int pp = l->recipe->mesh.pp;
  int64_t bytes = 0, available = memory_usage_available();
  for (int c = 0; c < pp; c++) bytes += state_plan_bytes(l->job->program[c], l->job->work_bytes) * (l->job->options.mesh.ranks / pp);
  if (is_process(l)) bytes = bytes / l->launch->ranks * plait_world_local_size(l->launch->world);
  if (available < 0 || bytes <= available) return PLAIT_OK;
  return error_set(error, PLAIT_NO_MEMORY, "the ranks of this machine need %s of memory, but only %s are available (plait plan shows for what)",
                   units_bytes((double)bytes).s, units_bytes((double)available).s);
}

static int init_from_folder(Loop *l, Rank *r, Error *error) {
  CheckpointTensor *tensors;
  int count = state_tensors(r->state, 1 << VARIABLE_PARAMETER, "", 0, &tensors);
  int code = huggingface_load(l->recipe->model.init, &l->config, tensors, count, error);
  free(tensors);
  return code;
}

static int start_rank(Loop *l, Rank *r, Error *error) {
  int code = PLAIT_OK;
  if (l->resume) code = save_load(r, l->resume, error);
  else if (l->recipe->model.init[0] == '/') code = init_from_folder(l, r, error);
  if (code) return code;
  DataSource sources[l->recipe->data.train.count];
  LoaderConfig data = setup_loader(l->recipe, &l->config, 0, sources);
  return rank_open_data(r, &data, l->first_step, error);
}

// Steps -------------------------------------------------------------------------------------------------------------

static int write_metrics(Loop *l, const Rank *r, const ProgressStep *p, const StepResult *s, Error *error) {
  double seconds = s->seconds, idle = seconds - s->computed - s->communicated - s->waited;
  Metrics *m = &l->metrics;
  metrics_begin(m);
  metrics_integer(m, "step", p->step);
  metrics_real(m, "loss", s->loss);
  metrics_real(m, "grad_norm", s->grad_norm);
  metrics_real(m, "lr", p->lr);
  metrics_integer(m, "tokens", p->tokens);
  metrics_real(m, "target_tokens", s->tokens);
  metrics_real(m, "tokens_per_s", (double)p->tokens / seconds);
  metrics_real(m, "mfu", p->peak_flops > 0 ? (double)p->tokens / seconds * p->flops_per_token / p->peak_flops : NAN);
  metrics_real(m, "step_seconds", seconds);
  metrics_real(m, "compute_seconds", s->computed); // these four make up step_seconds
  metrics_real(m, "comm_seconds", s->communicated);
  metrics_real(m, "data_wait_seconds", s->waited);
  metrics_real(m, "idle_seconds", idle > 0 ? idle : 0);
  metrics_integer(m, "memory_bytes", p->memory);
  if (p->step == l->first_step + 1) metrics_integer(m, "memory_before_bytes", l->memory_before);
  metrics_integer(m, "skipped", s->skipped && !r->job->options.update.in_backward); // backward had applied it
  if (l->recipe->loss_scale.initial > 0) metrics_real(m, "loss_scale", state_scalar(r->state, "loss_scale")); // of the next step
  if (s->first.found) {
    char text[512];
    finite_describe(r->job->train, &r->job->options.mesh, &s->first, text, sizeof text);
    metrics_text(m, "non_finite", text);
  }
  return metrics_end(m, error);
}

static int report_step(Loop *l, Rank *r, const Recovery *v, int64_t step, double lr, const StepResult *s, Error *error) {
  ProgressStep p = {.step = step, .tokens = (int64_t)l->recipe->batch.global * l->recipe->data.seq_len, .loss = s->loss, .grad_norm = s->grad_norm,
                    .lr = lr, .flops_per_token = l->flops_per_token, .peak_flops = l->peak_flops, .memory = memory_usage_anonymous(),
                    .loader_waited = s->waited > 0.1 * s->seconds};
  l->extra.step = step;
  l->extra.tokens += s->tokens;
  int code = write_metrics(l, r, &p, s, error);
  progress_step(&l->progress, &p);
  char text[640];
  if (s->skipped) non_finite_describe(v, r, step, s, text, sizeof text);
  if (s->skipped) progress_note(&l->progress, "%s", text);
  return code;
}

static int evaluate(Loop *l, Rank *r, int64_t step, Error *error) {
  const Recipe *recipe = l->recipe;
  DataSource sources[recipe->data.valid.count];
  LoaderConfig data = setup_loader(recipe, &l->config, 1, sources);
  double loss, tokens, begin = trace_begin(r->trace);
  int code = rank_evaluate(r, &data, recipe->eval.batches, &loss, &tokens, error);
  trace_end(r->trace, begin, "evaluation", NULL, "evaluation", -1, -1);
  if (code || r->rank) return code;
  metrics_begin(&l->metrics);
  metrics_integer(&l->metrics, "step", step);
  metrics_real(&l->metrics, "eval_loss", loss);
  metrics_real(&l->metrics, "eval_tokens", tokens);
  code = metrics_end(&l->metrics, error);
  progress_eval(&l->progress, step, loss, NAN);
  progress_resume_clock(&l->progress);
  return code;
}

static int save(Loop *l, Rank *r, int64_t step, Error *error) {
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_CHECKPOINT, step);
  SaveExtra extra = l->extra;
  extra.step = step;
  if (r->rank == 0) {
    l->saving = step;
    fsync(l->metrics.fd); // a checkpoint must not outlive the lines that lead to it
  }
  double begin = trace_begin(r->trace);
  int code = save_checkpoint(r, l->checkpoints, &extra, l->recipe->checkpoint.keep, error);
  trace_end(r->trace, begin, "checkpoint", NULL, "checkpoint", -1, -1);
  if (!code && r->rank == 0) {
    l->saving = 0;
    malloc_trim(0);
    progress_note(&l->progress, "step %lld: saved %s/step-%lld", (long long)step, l->checkpoints, (long long)step);
    progress_resume_clock(&l->progress);
  }
  return code;
}

static int barrier(Rank *r, Error *error) {
  if (!r->world || !plait_barrier(r->world, NULL, NULL)) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(r->world));
}

// Rank 0 gathers the reduced gradients of all ranks into DIR/step-N.safetensors; the others wait.
static int dump_gradients(Loop *l, Rank *r, int64_t step, Error *error) {
  CheckpointTensor *boxes;
  Gathered all = {0};
  int n = state_tensors(r->state, 1 << VARIABLE_METRIC, "dump.", 1, &boxes);
  int code = gather_boxes(r->world, boxes, n, &all, error);
  free(boxes);
  if (!code && r->rank == 0) {
    char *path = xformat("%s/step-%lld.safetensors", l->recipe->run.dump_gradients, (long long)step);
    code = folder_create(l->recipe->run.dump_gradients, error);
    if (!code) code = safetensors_write_gathered(path, all.boxes, all.count, error);
    free(path);
  }
  gather_free(&all);
  return code ? code : barrier(r, error);
}

// All ranks must agree whether to stop: a signal may have come to any process, and to some sooner than to others.
static int agree_to_stop(Loop *l, Rank *r, int *stop, Error *error) {
  int32_t number = signals_number();
  PlaitBuffer buffer = {&number, &number, 1};
  if (r->world && r->job->options.mesh.ranks > 1 && plait_all_reduce(r->world, &buffer, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL))
    return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(r->world));
  if (number && is_process(l)) signals_request_stop(number); // all exit with its status
  *stop = number != 0;
  return PLAIT_OK;
}

// After a step that was not finite: the run may go on from older weights, with the batches that come next.
static int recover(Loop *l, Rank *r, Recovery *v, int64_t step, const StepResult *s, Error *error) {
  int64_t to;
  int code = non_finite_recover(v, r, step, s, &to, error);
  if (code || to < 0 || r->rank) return code;
  metrics_begin(&l->metrics);
  metrics_integer(&l->metrics, "step", step);
  metrics_integer(&l->metrics, "rolled_back_to", to);
  progress_note(&l->progress, "step %lld: rolled back to the weights of step %lld; the batches go on", (long long)step, (long long)to);
  return metrics_end(&l->metrics, error);
}

static int one_step(Loop *l, Rank *r, Recovery *v, int64_t step, Error *error) {
  StepResult result = {0};
  double start = now(), lr = learning_rate_at(l->recipe, step - 1);
  int code = rank_step(r, step, lr, &result, error);
  result.seconds = now() - start;
  if (!code && r->rank == 0) code = report_step(l, r, v, step, lr, &result, error);
  trace_end(r->trace, start, "step", NULL, "step", -1, -1);
  if (!code && l->recipe->run.dump_gradients && step <= l->recipe->run.dump_steps) code = dump_gradients(l, r, step, error);
  if (!code) code = recover(l, r, v, step, &result, error);
  return code;
}

static int due(int64_t every, int64_t step, int64_t last) { return step == last || (every && step % every == 0); }

static int due_evaluation(const Loop *l, int64_t step) {
  return l->job->evaluate && l->recipe->eval.every && due(l->recipe->eval.every, step, l->recipe->schedule.steps);
}

// The trace is written when its last step is behind, or the run ends.
static int turn_trace(const Loop *l, Rank *r, int64_t step, Error *error) {
  return r->trace && trace_turn(r->trace, step) ? trace_write(r->trace, r->world, l->recipe->run.trace, error) : PLAIT_OK;
}

static int start_trace(const Loop *l, Rank *r, Error *error) {
  if (!l->recipe->run.trace) return PLAIT_OK;
  rank_trace(r, l->recipe->run.trace_first, l->recipe->run.trace_steps);
  return trace_align(r->trace, r->world, plait_world_local_size(l->world) == r->job->options.mesh.ranks, error);
}

static int run_steps(Loop *l, Rank *r, Error *error) {
  const Recipe *recipe = l->recipe;
  Recovery recovery = {.recipe = recipe, .checkpoints = l->checkpoints, .start = l->resume};
  int64_t last = recipe->schedule.steps;
  int code = l->evaluate_first ? evaluate(l, r, l->first_step, error) : PLAIT_OK;
  if (code) return code;
  for (int64_t step = l->first_step + 1; step <= last; step++) {
    int stop = 0;
    code = turn_trace(l, r, step, error);
    if (!code) code = one_step(l, r, &recovery, step, error);
    if (!code) code = agree_to_stop(l, r, &stop, error);
    if (code) return code;
    // Who asks for a stop may not wait long: the next run makes up for an evaluation that is left out.
    if ((!stop || step == last) && due_evaluation(l, step)) code = evaluate(l, r, step, error);
    if (!code && (stop || due(recipe->checkpoint.every, step, last))) {
      code = save(l, r, step, error);
      non_finite_saved(&recovery);
    }
    if (code) return code;
    if (stop && step < last) {
      if (r->rank == 0 || is_process(l)) l->stopped = 1;
      return PLAIT_OK;
    }
  }
  return PLAIT_OK;
}

// Ranks -------------------------------------------------------------------------------------------------------------

// "step 3: layer 1, …, rank 0 (dp 0): not a number" needs no other rank in front, which has only met the agreement.
static int names_rank(const char *message) {
  for (const char *at = message; (at = strstr(at, "rank ")); at++)
    if ((at == message || at[-1] == ' ') && at[5] >= '0' && at[5] <= '9') return 1;
  return 0;
}

// The others must not wait for this rank: they fail with its words, which say where they come from.
static void fail(Worker *w) {
  Loop *l = w->loop;
  int none = -1;
  if (atomic_compare_exchange_strong(&l->culprit, &none, w->rank) && l->job->options.mesh.ranks > 1 && !names_rank(w->error.message))
    error_prefix(&w->error, "rank %d", w->rank);
  plait_world_abort(l->world, w->error.message);
}

static void *work(void *argument) {
  Worker *w = argument;
  Loop *l = w->loop;
  Rank **r = &l->ranks[w->rank];
  check_set_rank(w->rank);
  if (is_process(l)) w->world = l->launch->comm;
  else w->code = plait_comm_world(l->world, w->rank, &w->world, &w->error);
  if (!w->code) w->code = rank_create(l->job, w->rank, w->world, r, &w->error);
  if (!w->code) (*r)->watchdog = l->watchdog;
  if (!w->code) w->code = start_rank(l, *r, &w->error);
  if (!w->code) w->code = barrier(*r, &w->error);
  if (!w->code) w->code = start_trace(l, *r, &w->error);
  if (!w->code) w->code = run_steps(l, *r, &w->error);
  if (!w->code) w->code = turn_trace(l, *r, INT64_MAX, &w->error);
  if (w->code) fail(w);
  watchdog_enter(l->watchdog, w->rank, ACTIVITY_END, 0);
  return NULL;
}

// The ranks of this process: all of them as threads, or its own one.
static int run_ranks(Loop *l, Error *error) {
  int ranks = l->job->options.mesh.ranks, first = is_process(l) ? l->launch->rank : 0, n = is_process(l) ? 1 : ranks, code = PLAIT_OK;
  if (is_process(l)) l->world = l->launch->world;
  else if ((code = plait_world_local_create(ranks, &l->world, error))) return code;
  Worker *w = xcalloc((size_t)n, sizeof *w);
  l->ranks = xcalloc((size_t)ranks, sizeof *l->ranks);
  if (!is_process(l)) l->watchdog = watchdog_create(l->recipe, l->world, first, n);
  for (int i = 0; i < n; i++) {
    w[i] = (Worker){.loop = l, .rank = first + i};
    CHECK(!pthread_create(&w[i].thread, NULL, work, &w[i]), "cannot start the thread of rank %d", w[i].rank);
  }
  for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
  if (!is_process(l)) watchdog_destroy(l->watchdog);
  for (int i = 0; i < n; i++) { // only now: another rank may have been reading its memory
    rank_destroy(l->ranks[w[i].rank]);
    if (!is_process(l)) plait_comm_destroy(w[i].world);
  }
  if (l->saving) checkpoint_abandon(l->checkpoints, l->saving);
  if (l->culprit >= 0) *error = w[l->culprit - first].error, code = w[l->culprit - first].code;
  free(w);
  free(l->ranks);
  if (!is_process(l)) plait_world_destroy(l->world);
  return code;
}

// Rank 0 opens the run folder and chooses where to start; the other processes are told.
static int open_folder(Loop *l, Error *error) {
  int code = PLAIT_OK;
  if (speaks(l)) code = run_folder_open(&l->folder, l->recipe, error);
  else l->folder.path = xstrdup(l->recipe->run.dir);
  if (!code) l->checkpoints = run_folder_file(&l->folder, "checkpoints");
  if (!code && speaks(l)) code = find_resume(l, error);
  code = launch_agree(l->launch, code, error);
  char *path = l->resume ? xstrdup(checkpoint_path(l->resume)) : NULL;
  if (!code) code = launch_tell(l->launch, &path, error);
  if (!code && path && !l->resume) code = checkpoint_open(&l->resume, path, error);
  free(path);
  return code;
}

static int prepare(Loop *l, Error *error) {
  const Recipe *recipe = l->recipe;
  int threads = 1, code = setup_model_config(recipe, &l->config, error);
  code = launch_agree(l->launch, code, error);
  if (!code) code = launch_threads(l->launch, recipe, &threads, error);
  if (!code) code = setup_job_threads(recipe, &l->config, threads, is_process(l) ? 0 : setup_helpers(recipe, threads), &l->job, error);
  if (!code) code = check_data(l, error);
  if (!code) code = check_memory(l, error);
  code = launch_agree(l->launch, code, error);
  if (!code) code = open_folder(l, error);
  if (!code && l->resume && (code = save_compare(l->job, l->resume, error))) code = save_explain(recipe, l->resume, error);
  if (!code && !l->resume && recipe->model.init[0] == '/') code = huggingface_load(recipe->model.init, &l->config, NULL, 0, error);
  if (code) return code;
  code = save_extra_create(recipe, &l->config, &l->extra, error);
  if (l->resume) {
    json_t *extra = checkpoint_extra(l->resume);
    l->first_step = checkpoint_step(l->resume);
    l->extra.tokens = json_number_value(json_object_get(extra, "tokens"));
    l->extra.dtypes = json_incref(json_object_get(extra, "huggingface_dtypes"));
  } else if (recipe->model.init[0] == '/' && !code) {
    code = huggingface_dtypes(recipe->model.init, &l->config, &l->extra.dtypes, error);
  }
  return code;
}

static void announce(const Loop *l) {
  const Recipe *r = l->recipe;
  int64_t bytes = 0;
  for (int c = 0; c < r->mesh.pp; c++) {
    int64_t b = l->job->program[c]->state_bytes + l->job->work_bytes;
    bytes = b > bytes ? b : bytes;
  }
  char parallel[256], lend[512];
  setup_describe(r, parallel, sizeof parallel);
  setup_describe_lend(r, l->job->threads, is_process(l), lend, sizeof lend);
  fprintf(l->out, "%s, %s parameters; mesh pp=%d dp=%d cp=%d tp=%d, %s, %s; %s a rank; %d thread%s a rank%s\n", model_family_name(l->config.family),
          units_count((double)model_config_parameters(&l->config)).s, r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, parallel, dtype_name((Dtype)r->precision),
          units_bytes((double)bytes).s, l->job->threads, l->job->threads > 1 ? "s" : "", l->job->helpers ? ", lent while it waits" : "");
  if (r->parallel.grad_dtype == DTYPE_BF16 && l->job->microbatches > 1)
    fprintf(l->out, "gradients of %d microbatches are added in bf16: what one adds to a sum 256 times as large is lost\n", l->job->microbatches);
  if (r->notes) fputs(r->notes, l->out);
  fputs(lend, l->out);
  if (l->resume) fprintf(l->out, "going on from %s\n", checkpoint_path(l->resume));
}

static void measure_peak(Loop *l) {
  int ranks = is_process(l) ? 1 : l->job->options.mesh.ranks, cores = setup_cores(), threads = l->job->threads * ranks;
  Team *team = team_create(threads < cores ? threads : cores);
  l->peak_flops = l->recipe->precision == DTYPE_F32 ? backend_peak_flops(team) : 0;
  if (is_process(l)) l->peak_flops *= l->launch->ranks; // all processes measure at the same time
  team_destroy(team);
  l->flops_per_token = model_config_flops_per_token(&l->config, l->recipe->data.seq_len);
}

// From here on the run folder is changed: all that could be refused has been.
static int open_metrics(Loop *l, Error *error) {
  char *path = run_folder_file(&l->folder, "metrics.jsonl");
  MetricsSeries done = {0};
  int code = run_folder_write_recipe(&l->folder, l->recipe, error);
  if (!code) code = metrics_truncate_after(path, l->first_step, error);
  if (!code) code = metrics_open(&l->metrics, path, error);
  if (!code && l->recipe->run.tensorboard && l->first_step < l->recipe->schedule.steps) {
    code = events_open(&l->events, l->folder.path, l->first_step + 1, (double)time(NULL), error);
    l->metrics.events = &l->events;
  }
  if (!code && l->first_step && due_evaluation(l, l->first_step)) {
    code = metrics_read(path, "eval_loss", &done, error);
    l->evaluate_first = !done.count || done.step[done.count - 1] != l->first_step;
  }
  metrics_series_free(&done);
  free(path);
  return code;
}

static int begin_writing(Loop *l, Error *error) {
  int code = speaks(l) ? open_metrics(l, error) : PLAIT_OK;
  code = launch_agree(l->launch, code, error);
  char *first = l->evaluate_first ? xstrdup("evaluate") : NULL;
  if (!code) code = launch_tell(l->launch, &first, error);
  l->evaluate_first = first != NULL;
  free(first);
  return code;
}

int train_run_launched(const Recipe *recipe, const Launch *launch, FILE *out, Error *error) {
  // Fixed, or the C library keeps what a checkpoint or an evaluation has given back: after the first step memory stays.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  FILE *nowhere = launch && launch->rank ? fopen("/dev/null", "w") : NULL; // where other ranks than 0 speak
  if (nowhere) out = nowhere;
  Loop l = {.recipe = recipe, .launch = launch, .out = out, .culprit = -1};
  l.metrics.fd = -1;
  l.folder.lock = -1;
  if (is_process(&l)) l.watchdog = watchdog_create(recipe, launch->world, launch->rank, 1);
  int code = launch_agree(launch, prepare(&l, error), error);
  if (!code) code = begin_writing(&l, error);
  if (!code && l.first_step >= recipe->schedule.steps) {
    fprintf(out, "%s: all %lld steps are done\n", recipe->run.dir, (long long)recipe->schedule.steps);
  } else if (!code) {
    announce(&l);
    measure_peak(&l);
    signals_install();
    malloc_trim(0); // what compiling and checking has given back is not to hide what the ranks take
    l.memory_before = memory_usage_anonymous();
    progress_start(&l.progress, out, l.first_step, recipe->schedule.steps, recipe->run.log_every);
    code = run_ranks(&l, error);
    progress_finish(&l.progress);
    if (!code && l.stopped) {
      fprintf(out, "stopped by signal %d after step %lld, which is saved; the same command goes on from there\n", signals_number(), (long long)l.extra.step);
      code = PLAIT_INTERRUPTED;
    }
  }
  metrics_close(&l.metrics);
  events_close(&l.events);
  checkpoint_close(l.resume);
  save_extra_free(&l.extra);
  free(l.checkpoints);
  job_destroy(l.job);
  run_folder_close(&l.folder);
  model_config_free(&l.config);
  if (nowhere) fclose(nowhere);
  if (is_process(&l)) watchdog_destroy(l.watchdog);
  return code;
}

int train_run(const Recipe *recipe, FILE *out, Error *error) {
  Launch launch;
  int code = launch_begin(&launch, error);
  if (!code) code = launch_agree(&launch, launch_choose(&launch, recipe, error), error);
  if (!code) code = train_run_launched(recipe, &launch, out, error);
  launch_end(&launch);
  return code;
}
