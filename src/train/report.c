// Writes what a run prints for people and records in metrics.jsonl.
#include "train/trainer.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/memory_usage.h"
#include "base/clock.h"
#include "base/units.h"
#include "setup/setup.h"
#include "train/non_finite.h"
#include "setup/setup_memory.h"
#include "foresight/estimate.h"
#include "foresight/peak.h"
#include "train/plan_print.h"
#include "train/run_times.h"
#include "worker/notice.h"
#include "worker/worker.h"
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

// Prints the value that mesh.dp: auto became, and the ranks that it leaves out.
static void announce_ranks(const Trainer *t) {
  const Recipe *r = t->recipe;
  const Shares *s = &job_train(t->job)->shares;
  int used = recipe_rank_count(r), all = r->ranks > used ? r->ranks : used;
  if (!r->dp_is_auto) return;
  fprintf(t->out,
          "mesh.dp: auto is %d on %d rank%s: %d sequences are %d microbatch%s of at most %lld on each data rank",
          r->mesh.dp, all, all == 1 ? "" : "s", r->batch.global, s->microbatches, s->microbatches == 1 ? "" : "es",
          (long long)s->bound);
  double idle = shares_idle(s, 1);
  if (idle > 0 && !s->weighed) fprintf(t->out, ", which leaves these idle for %.1f %% of their time", 100 * idle);
  if (all == used + 1) fprintf(t->out, "; rank %d has no place in the mesh and is idle", used);
  if (all > used + 1) fprintf(t->out, "; ranks %d to %d have no place in the mesh and are idle", used, all - 1);
  fprintf(t->out, "\n");
}

// Prints which failures the run survives with copies in memory (checkpoint.memory_every).
static void announce_memory(const Trainer *t) {
  long long every = t->recipe->checkpoint.memory_every, files = t->recipe->checkpoint.every;
  if (!every || t->measures) return;
  if (!t->later.keeping) {
    fprintf(t->out, "note: checkpoint.memory_every is not used: only under plait launch, with a process for each rank, "
                    "is there memory that outlives a process\n");
    return;
  }
  fprintf(t->out,
          "the state is kept in memory every %lld step%s: a crash of processes loses at most %lld step%s; losing "
          "a machine loses ",
          every, every == 1 ? "" : "s", every, every == 1 ? "" : "s");
  if (t->later.keeping == KEEPING_MACHINE_ALONE)
    fprintf(t->out, "no more: the ranks of each machine have all of the state\n");
  else if (t->later.keeping == KEEPING_MACHINE_COPIED)
    fprintf(t->out, "no more: the next one has a copy of what each keeps (checkpoint.copies: 1)\n");
  else if (files) fprintf(t->out, "the steps since the last checkpoint (checkpoint.every: %lld)\n", files);
  else fprintf(t->out, "all steps since the run was started or resumed (checkpoint.every: 0)\n");
  int ranks = t->job->options.parallel.mesh.ranks;
  if (t->recipe->checkpoint.copies && t->later.keeping == KEEPING_PROCESS)
    fprintf(t->out, "note: checkpoint.copies is not used: %s\n",
            worker_memory_ranks(t->later.memory, ranks) == ranks ? "there is one machine"
                                                      : "plait launch was not given the recipe, but a program");
}

// More ranks than cores give the same model, and take longer than fewer.
static void note_cores(const Trainer *t) {
  int here = is_process(t) ? plait_world_local_size(t->launch->world) : recipe_rank_count(t->recipe);
  long cores = is_process(t) ? sysconf(_SC_NPROCESSORS_ONLN) : cores_available(); // processes may be bound to some
  if (here > FAULT(ranks_share_cores_silently, cores, here))
    fprintf(t->out, "note: %d ranks share %ld core%s of this machine and take turns; as many ranks as cores, or fewer "
                    "with more threads, are faster\n", here, cores, cores == 1 ? "" : "s");
}

int trainer_announce(const Trainer *t, Error *error) {
  const Recipe *r = t->recipe;
  Recipe planned;
  int code = trainer_planned(t, &planned, error);
  if (code) return code;
  int64_t bytes = plan_most_bytes(&planned, &t->config, t->job);
  recipe_free(&planned);
  char parallel[256], lend[512];
  setup_describe(r, &t->job->options.step, parallel, sizeof parallel);
  char active[48] = "";
  if (t->config.facts.active < t->config.facts.parameters)
    snprintf(active, sizeof active, " (%s active)", units_count((double)t->config.facts.active).s);
  setup_describe_lend(r, t->job->run.threads, is_process(t), lend, sizeof lend);
  fprintf(t->out, "%s, %s parameters%s; mesh pp=%d dp=%d cp=%d tp=%d, %s, %s; %s a rank; %d thread%s a rank%s\n",
          model_family_name(t->config.family), units_count((double)model_config_parameters(&t->config)).s, active,
          r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, parallel, dtype_name((Dtype)r->precision),
          units_bytes((double)bytes).s, t->job->run.threads, t->job->run.threads > 1 ? "s" : "",
          t->job->run.helpers ? ", with work stealing" : "");
  if (r->parallel.grad_dtype == DTYPE_BF16 && job_train(t->job)->shares.microbatches > 1)
    fprintf(t->out, "gradients of %d microbatches are added in bf16: addends smaller than 1/256 of the sum are lost\n",
            job_train(t->job)->shares.microbatches);
  announce_ranks(t);
  note_cores(t);
  char experts[256];
  const Parallel *layout = &t->job->options.parallel;
  routers_describe(r, &t->config, mesh_size(&layout->mesh, layout_expert_axes(&layout->layout)), experts,
                   sizeof experts);
  if (r->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO) {
    char *list = recompute_list_text(&t->job->options.step.recompute.list);
    fprintf(t->out, "recompute auto: [%s]\n", list);
    free(list);
  }
  if (*experts) fprintf(t->out, "experts: %s\n", experts);
  char reference[1024];
  graph_reference_ops(job_train(t->job)->graph, t->job->options.device, reference, sizeof reference);
  if (*reference) fprintf(t->out, "note: no fast kernel for %s: these use a plain, slower one\n", reference);
  graph_host_ops(job_train(t->job)->graph, t->job->options.device, reference, sizeof reference);
  if (*reference)
    fprintf(t->out, "note: run on the host, for %s has no kernels for them: %s\n", t->job->options.device->name,
            reference);
  if (r->notes) fputs(r->notes, t->out);
  fputs(lend, t->out);
  fputs(t->precision, t->out);
  if (setup_saves_later(r) && !t->later.writes)
    fprintf(t->out, "note: checkpoint.async: auto is off in this run: there is no memory for a copy of the state, so "
                    "steps wait until checkpoints are written\n");
  announce_memory(t);
  if (t->resume) fprintf(t->out, "resuming from %s\n", checkpoint_path(t->resume));
  fflush(t->out); // at once, to a pipe as well
  return PLAIT_OK;
}

// How many processes of this run measure and train beside each other on this machine; 0: its ranks are threads.
static int processes_here(const Trainer *t) { return is_process(t) ? plait_world_local_size(t->launch->world) : 0; }

void trainer_measure_peak(Trainer *t) {
  int ranks = is_process(t) ? 1 : t->job->options.parallel.mesh.ranks;
  t->peak_flops = peak_flops_again(t->job->options.device, (Dtype)t->recipe->precision, t->job->run.threads * ranks,
                                   is_process(t) ? processes_here(t) : 1);
  if (is_process(t)) t->peak_flops *= t->launch->ranks; // all processes measure at the same time
}

void trainer_expect(const Trainer *t) {
  Estimate e;
  int64_t steps = t->recipe->schedule.steps - first_step(t);
  if (!has_rank_0(t) || !estimate_run(t->recipe, t->job, processes_here(t), steps, &e)) return;
  char *source = estimate_source(&e);
  fprintf(t->out, "expected: %s for %lld step%s, %s tokens/s (%s)\n", estimate_duration(&e, e.run_seconds).s,
          (long long)steps, steps == 1 ? "" : "s", estimate_tokens(&e).s, source);
  free(source);
  estimate_warn(t->recipe, &t->config, &e, processes_here(t), first_step(t), steps, t->out);
  fflush(t->out);
}

static int write_metrics(Training *x, const ProgressStep *p, Error *error) {
  Trainer *t = x->trainer;
  const StepResult *s = &x->result;
  double seconds = s->seconds, idle = seconds - s->computed - s->communicated - s->waited;
  Metrics *m = &t->metrics;
  metrics_begin(m);
  metrics_integer(m, "step", p->step);
  metrics_real(m, "loss", s->loss);
  metrics_real(m, "grad_norm", s->grad_norm);
  metrics_real(m, "lr", p->lr);
  metrics_integer(m, "tokens", p->tokens);
  metrics_real(m, "target_tokens", s->tokens);
  metrics_real(m, "tokens_per_s", (double)p->tokens / seconds);
  if (p->peak_flops > 0)
    metrics_real(m, "mfu", (double)p->tokens / seconds * p->flops_per_token / p->peak_flops);
  else metrics_unknown(m, "mfu");
  metrics_real(m, "step_seconds", seconds);
  metrics_real(m, "compute_seconds", s->computed); // these four make up step_seconds
  metrics_real(m, "comm_seconds", s->communicated);
  metrics_real(m, "data_wait_seconds", s->waited);
  metrics_real(m, "idle_seconds", idle > 0 ? idle : 0);
  metrics_integer(m, "memory_bytes", p->memory);
  if (p->step == first_step(t) + 1) metrics_integer(m, "memory_before_bytes", t->memory_before);
  int code = hooks_call(x, HOOK_LINE, error);
  return code ? code : metrics_end(m, error);
}

int trainer_report_step(Training *x, Error *error) {
  Trainer *t = x->trainer;
  const StepResult *s = &x->result;
  const Routers *routers = &t->last.routers;
  ProgressStep p = {.step = x->step,
                    .tokens = (int64_t)t->recipe->batch.global * t->recipe->data.seq_len,
                    .loss = s->loss,
                    .grad_norm = s->grad_norm,
                    .lr = x->rates[0],
                    .flops_per_token = model_config_flops_per_token(&t->config, t->recipe->data.seq_len),
                    .peak_flops = t->peak_flops,
                    .memory = memory_usage_anonymous(),
                    .loader_waited = s->waited > 0.1 * s->seconds};
  t->extra.step = x->step;
  if (s->tokens > 0) t->last.loss = s->loss;
  int code = t->folder.path ? run_folder_fence(t->folder.path, error) : PLAIT_OK;
  if (!code) code = hooks_call(x, HOOK_LOG, error);
  if (!code) code = write_metrics(x, &p, error);
  if (routers->layers) p.load_peak = routers_worst(routers), p.dropped = routers_dropped(routers);
  if (x->step == first_step(t) + 1) worker_notice_step(x->step);
  progress_step(&t->progress, &p);
  char text[640];
  if (s->skipped) non_finite_describe(x, text, sizeof text);
  if (s->skipped) progress_note(&t->progress, "%s", text);
  if (s->verified.calls)
    progress_note(
        &t->progress,
        "run.verify: step %lld: %lld kernels gave what the host's give; the largest error is %.3f of its bound, of "
        "%s",
        (long long)x->step, (long long)s->verified.calls, s->verified.share, s->verified.worst);
  if (!(s->tokens > 0))
    progress_note(
        &t->progress,
        "step %lld: no token to predict, so there is no loss and nothing is learned: each of its documents has "
        "one token",
        (long long)x->step);
  return code;
}

// "eval_loss/wiki" in metrics, "wiki 3.2100, code 2.1000" in a line.
static void report_sources(Trainer *t, const HeldOut *h, char *line, size_t size) {
  enum { MOST = 50 }; // of them are shown
  size_t n = 0;
  for (int k = 0; k < h->count && k < MOST; k++) {
    char name[HELD_OUT_NAME], key[HELD_OUT_NAME + 16], loss[32] = "n/a";
    held_out_name(h, k, name);
    snprintf(key, sizeof key, "eval_loss/%s", name);
    metrics_real(&t->metrics, key, h->source_loss[k]);
    if (!isnan(h->source_loss[k])) snprintf(loss, sizeof loss, "%.4f", h->source_loss[k]);
    if (n < size) n += (size_t)snprintf(line + n, size - n, "%s%s %s", k ? ", " : "", name, loss);
  }
}

int trainer_report_evaluation(Trainer *t, int64_t step, const HeldOut *h, Error *error) {
  char line[4096] = "", measured[LOADER_WINDOWS_TEXT + 32];
  metrics_begin(&t->metrics);
  metrics_integer(&t->metrics, "step", step);
  metrics_real(&t->metrics, "eval_loss", h->loss);
  metrics_real(&t->metrics, "eval_tokens", h->tokens);
  if (h->count > 1) report_sources(t, h, line, sizeof line);
  int code = metrics_end(&t->metrics, error);
  loader_describe_windows(measured, h->windows, h->all, t->recipe->data.seq_len);
  if (h->windows < h->all)
    snprintf(measured + strlen(measured), sizeof measured - strlen(measured), ", eval.batches %d",
             t->recipe->eval.batches);
  progress_eval(&t->progress, step, h->loss, h->tokens, NAN, measured);
  if (h->count > 1) progress_note(&t->progress, "  of each source: %s", line);
  progress_resume_clock(&t->progress);
  return code;
}

int trainer_report_patience(Trainer *t, int64_t step, const BestLoss *best, Error *error) {
  metrics_begin(&t->metrics);
  metrics_integer(&t->metrics, "step", step);
  metrics_integer(&t->metrics, "ended_early", 1);
  metrics_integer(&t->metrics, "best_eval_step", best->step);
  progress_note(&t->progress,
                "step %lld: the run ends early: the held-out loss was lowest at step %lld (%.4f), and %lld evaluations "
                "since then were not better (eval.patience)",
                (long long)step, (long long)best->step, best->loss, (long long)best->without);
  return metrics_end(&t->metrics, error);
}

int trainer_report_rollback(Trainer *t, int64_t step, int64_t to, Error *error) {
  metrics_begin(&t->metrics);
  metrics_integer(&t->metrics, "step", step);
  metrics_integer(&t->metrics, "rolled_back_to", to);
  progress_note(&t->progress,
                "step %lld: rolled back to the weights of step %lld; training continues with the next batches",
                (long long)step, (long long)to);
  return metrics_end(&t->metrics, error);
}

int trainer_report_save(Trainer *t, int64_t step, Error *error) {
  char *folder = trainer_path(t->checkpoints);
  progress_note(&t->progress, "step %lld: saved %s/step-%lld", (long long)step, folder, (long long)step);
  free(folder);
  malloc_trim(0);
  progress_resume_clock(&t->progress);
  metrics_begin(&t->metrics);
  metrics_integer(&t->metrics, "step", step);
  metrics_real(&t->metrics, "checkpoint_seconds", clock_seconds() - t->writing.since);
  return metrics_end(&t->metrics, error);
}

void trainer_check_lead(const Trainer *t) {
  double lead = worker_supervised()->lead, needed;
  RunTimes times = run_times_read(t->recipe->run.dir);
  needed = run_times_to_stop(&times);
  if (!(lead > 0) || !times.known || lead >= needed) return;
  fprintf(
      t->out,
      "note: the signal comes %.0f s before the time is up, but a step has taken %s and a checkpoint %s, so that the "
      "last steps may be lost; give plait slurm --lead %.0f\n",
      lead, units_duration(times.step).s, units_duration(times.save).s, ceil(2 * needed));
}
