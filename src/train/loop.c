// The training loop: one thread per rank; rank 0 also speaks and writes.
#include "train/loop.h"
#include "base/file.h"
#include "base/memory_usage.h"
#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/huggingface.h"
#include "train/learning_rate.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/save.h"
#include "train/setup.h"
#include "train/state_tensors.h"
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct Loop {
  const Recipe *recipe;
  FILE *out;
  ModelConfig config;
  Job *job;
  RunFolder folder;
  char *checkpoints;      // folder
  Checkpoint *resume;     // NULL: from init
  SaveExtra extra;        // rank 0 keeps step and tokens up to date
  Metrics metrics;
  Progress progress;
  double peak_flops, flops_per_token;
  int64_t first_step;     // steps done before this run
  PlaitWorld *world;
  Rank **ranks;
  int stopped;            // by a signal
} Loop;

typedef struct Worker { Loop *loop; int rank, code; Error error; pthread_t thread; } Worker;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void abort_world(void *world, const char *message) { plait_world_abort(world, message); }

// Start -------------------------------------------------------------------------------------------------------------

// Where the run starts from: a checkpoint (own or named), else init.
static int find_resume(Loop *l, Error *error) {
  const char *how = l->recipe->checkpoint.resume;
  char *warnings = NULL;
  int64_t step = 0;
  if (how[0] == '/') {
    int code = checkpoint_open(&l->resume, how, error);
    if (!code) code = checkpoint_verify(l->resume, error);
    return code;
  }
  int found = checkpoint_latest_valid(l->checkpoints, &step, strcmp(how, "never") ? &l->resume : NULL, &warnings, error);
  if (warnings) fprintf(l->out, "%s%s", warnings, warnings[strlen(warnings) - 1] == '\n' ? "" : "\n");
  free(warnings);
  if (found < 0) return found;
  if (found && !strcmp(how, "never"))
    return error_set(error, PLAIT_BAD_INPUT, "run.dir: %s holds a checkpoint of step %lld already; choose another folder, or checkpoint.resume: auto",
                     l->recipe->run.dir, (long long)step);
  return PLAIT_OK;
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

static int write_metrics(Loop *l, const ProgressStep *p, const StepResult *s, double seconds, double comm_seconds, Error *error) {
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
  metrics_real(m, "data_wait_seconds", s->waited);
  metrics_real(m, "comm_seconds", comm_seconds);
  metrics_integer(m, "memory_bytes", p->memory);
  metrics_integer(m, "skipped", s->skipped);
  return metrics_end(m, error);
}

static int report_step(Loop *l, Rank *r, int64_t step, double lr, const StepResult *s, double seconds, double comm_seconds, Error *error) {
  ProgressStep p = {.step = step, .tokens = (int64_t)l->recipe->batch.global * l->recipe->data.seq_len, .loss = s->loss, .grad_norm = s->grad_norm,
                    .lr = lr, .flops_per_token = l->flops_per_token, .peak_flops = l->peak_flops, .memory = memory_usage_anonymous(),
                    .loader_waited = s->waited > 0.1 * seconds};
  l->extra.step = step;
  l->extra.tokens += s->tokens;
  int code = write_metrics(l, &p, s, seconds, comm_seconds, error);
  progress_step(&l->progress, &p);
  if (s->skipped) progress_note(&l->progress, "step %lld: the gradient norm is not finite; the update was skipped", (long long)step);
  return code;
}

static int evaluate(Loop *l, Rank *r, int64_t step, Error *error) {
  const Recipe *recipe = l->recipe;
  DataSource sources[recipe->data.valid.count];
  LoaderConfig data = setup_loader(recipe, &l->config, 1, sources);
  double loss, tokens;
  int code = rank_evaluate(r, &data, recipe->eval.batches, &loss, &tokens, error);
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
  SaveExtra extra = l->extra;
  extra.step = step;
  int code = save_checkpoint(r, l->checkpoints, &extra, l->recipe->checkpoint.keep, error);
  if (!code && r->rank == 0) {
    progress_note(&l->progress, "step %lld: saved %s/step-%lld", (long long)step, l->checkpoints, (long long)step);
    progress_resume_clock(&l->progress);
  }
  return code;
}

static int barrier(Rank *r, Error *error) {
  if (!r->world || !plait_barrier(r->world, NULL, NULL)) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(r->world));
}

// Rank 0 gathers the reduced gradients of all ranks, which wait, into DIR/step-N.safetensors.
static int dump_gradients(Loop *l, Rank *r, int64_t step, Error *error) {
  int code = barrier(r, error);
  if (!code && r->rank == 0) {
    Vec(CheckpointTensor) all = {0};
    for (int i = 0; i < l->job->options.mesh.ranks; i++) {
      CheckpointTensor *boxes;
      int n = state_tensors(l->ranks[i]->state, 1 << VARIABLE_METRIC, "dump.", 1, &boxes);
      for (int k = 0; k < n; k++) vec_push(&all, boxes[k]);
      free(boxes);
    }
    char *path = xformat("%s/step-%lld.safetensors", l->recipe->run.dump_gradients, (long long)step);
    code = folder_create(l->recipe->run.dump_gradients, error);
    if (!code) code = safetensors_write_gathered(path, all.data, all.count, error);
    if (code) abort_world(l->world, error->message);
    free(path);
    vec_free(&all);
  }
  return code ? code : barrier(r, error);
}

// All ranks must agree whether to stop: rank 0 asks the flag and tells the others.
static int agree_to_stop(Rank *r, int *stop, Error *error) {
  int32_t word = r->rank == 0 && signals_stop();
  PlaitBuffer buffer = {&word, &word, 1};
  if (r->world && r->job->options.mesh.ranks > 1 && plait_broadcast(r->world, &buffer, 1, PLAIT_INT32, 0, NULL, NULL))
    return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(r->world));
  *stop = word;
  return PLAIT_OK;
}

static int one_step(Loop *l, Rank *r, int64_t step, Error *error) {
  StepResult result = {0};
  double start = now(), comm = executor_comm_seconds(r->train), lr = learning_rate_at(l->recipe, step - 1);
  int code = rank_step(r, step, lr, &result, error);
  if (!code && r->rank == 0) code = report_step(l, r, step, lr, &result, now() - start, executor_comm_seconds(r->train) - comm, error);
  if (!code && l->recipe->run.dump_gradients && step <= l->recipe->run.dump_steps) code = dump_gradients(l, r, step, error);
  return code;
}

static int due(int64_t every, int64_t step, int64_t last) { return step == last || (every && step % every == 0); }

static int run_steps(Loop *l, Rank *r, Error *error) {
  const Recipe *recipe = l->recipe;
  int64_t last = recipe->schedule.steps;
  for (int64_t step = l->first_step + 1; step <= last; step++) {
    int stop = 0, code = one_step(l, r, step, error);
    if (!code) code = agree_to_stop(r, &stop, error);
    if (code) return code;
    if (l->job->evaluate && !stop && recipe->eval.every && due(recipe->eval.every, step, last)) code = evaluate(l, r, step, error);
    if (!code && (stop || due(recipe->checkpoint.every, step, last))) code = save(l, r, step, error);
    if (code) return code;
    if (stop && step < last) {
      if (r->rank == 0) l->stopped = 1;
      return PLAIT_OK;
    }
  }
  return PLAIT_OK;
}

// Ranks -------------------------------------------------------------------------------------------------------------

static void *work(void *argument) {
  Worker *w = argument;
  Loop *l = w->loop;
  PlaitComm *world = NULL;
  Rank *r = NULL;
  check_set_rank(w->rank);
  w->code = plait_comm_world(l->world, w->rank, &world, &w->error);
  if (!w->code) w->code = rank_create(l->job, w->rank, world, &r, &w->error);
  if (!w->code) {
    l->ranks[w->rank] = r;
    r->abort = abort_world;
    r->abort_context = l->world;
    w->code = start_rank(l, r, &w->error);
  }
  if (w->code) abort_world(l->world, w->error.message); // the others must not wait for this one
  else if (!(w->code = barrier(r, &w->error)) && (w->code = run_steps(l, r, &w->error))) abort_world(l->world, w->error.message);
  if (r && !w->code) w->code = barrier(r, &w->error); // nobody leaves while another still reads its memory
  rank_destroy(r);
  plait_comm_destroy(world);
  return NULL;
}

static int run_ranks(Loop *l, Error *error) {
  int n = l->job->options.mesh.ranks, code = plait_world_local_create(n, &l->world, error);
  if (code) return code;
  Worker *w = xcalloc((size_t)n, sizeof *w);
  l->ranks = xcalloc((size_t)n, sizeof *l->ranks);
  for (int r = 0; r < n; r++) {
    w[r] = (Worker){.loop = l, .rank = r};
    CHECK(!pthread_create(&w[r].thread, NULL, work, &w[r]), "cannot start the thread of rank %d", r);
  }
  for (int r = 0; r < n; r++) pthread_join(w[r].thread, NULL);
  // The first failure made the others fail with its words: any of them says why; input errors tell the exit status.
  for (int r = 0; r < n; r++) {
    if (!w[r].code) continue;
    if (!code || (w[r].code == PLAIT_BAD_INPUT && code != PLAIT_BAD_INPUT)) *error = w[r].error, code = w[r].code;
  }
  free(w);
  free(l->ranks);
  plait_world_destroy(l->world);
  return code;
}

static int prepare(Loop *l, Error *error) {
  const Recipe *recipe = l->recipe;
  int code = model_config_load(&l->config, recipe->model.config, error);
  if (!code) code = setup_job(recipe, &l->config, &l->job, error);
  if (!code) code = run_folder_open(&l->folder, recipe, error);
  if (code) return code;
  l->checkpoints = run_folder_file(&l->folder, "checkpoints");
  code = find_resume(l, error);
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
  fprintf(l->out, "%s, %s parameters; mesh pp=%d dp=%d cp=%d tp=%d, zero %d, %s; %s a rank; %d threads a rank\n", model_family_name(l->config.family),
          units_count((double)model_config_parameters(&l->config)).s, r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, r->parallel.zero, dtype_name((Dtype)r->precision), units_bytes((double)bytes).s, l->job->threads);
  if (l->resume) fprintf(l->out, "going on from %s\n", checkpoint_path(l->resume));
}

static void measure_peak(Loop *l) {
  int ranks = l->job->options.mesh.ranks, cores = setup_cores(), threads = l->job->threads * ranks;
  Team *team = team_create(threads < cores ? threads : cores);
  l->peak_flops = l->recipe->precision == DTYPE_F32 ? backend_peak_flops(team) : 0;
  team_destroy(team);
  l->flops_per_token = model_config_flops_per_token(&l->config, l->recipe->data.seq_len);
}

int train_run(const Recipe *recipe, FILE *out, Error *error) {
  Loop l = {.recipe = recipe, .out = out};
  l.metrics.fd = -1;
  l.folder.lock = -1;
  int code = prepare(&l, error);
  char *metrics = code ? NULL : run_folder_file(&l.folder, "metrics.jsonl");
  if (!code) code = metrics_truncate_after(metrics, l.first_step, error);
  if (!code) code = metrics_open(&l.metrics, metrics, error);
  if (!code && l.first_step >= recipe->schedule.steps) {
    fprintf(out, "%s: all %lld steps are done\n", recipe->run.dir, (long long)recipe->schedule.steps);
  } else if (!code) {
    announce(&l);
    measure_peak(&l);
    signals_install();
    progress_start(&l.progress, out, l.first_step, recipe->schedule.steps, recipe->run.log_every);
    code = run_ranks(&l, error);
    progress_finish(&l.progress);
    if (!code && l.stopped) {
      fprintf(out, "stopped by signal %d after step %lld, which is saved; the same command goes on from there\n", signals_number(), (long long)l.extra.step);
      code = PLAIT_INTERRUPTED;
    }
  }
  free(metrics);
  metrics_close(&l.metrics);
  checkpoint_close(l.resume);
  save_extra_free(&l.extra);
  free(l.checkpoints);
  job_destroy(l.job);
  run_folder_close(&l.folder);
  model_config_free(&l.config);
  return code;
}
