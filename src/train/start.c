// Everything before the first step: compiling, checks, the run folder, and the checkpoint to start from.
#include "train/trainer.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/memory_usage.h"
#include "base/units.h"
#include "checkpoint/huggingface.h"
#include "worker/page.h"
#include "worker/worker.h"
#include "tokenizer/folder_check.h"
#include "train/plan_print.h"
#include "train/resume.h"
#include "train/run_text.h"
#include "setup/device_room.h"
#include "setup/setup.h"
#include "setup/setup_memory.h"
#include "runtime/machine_state.h"
#include <string.h>
#include <time.h>

// Generation would miss it when the run is over.
static int check_tokenizer(Trainer *t, Error *error) {
  const char *path = t->recipe->data.tokenizer;
  if (file_exists(path)) return setup_check_tokenizer(t->recipe, &t->config, true, &t->rowless, error);
  folder_check_tokenizer(path, error);
  return error_prefix(error, "%sdata.tokenizer", recipe_where(t->recipe, "data.tokenizer"));
}

// Before anything is allocated: evaluation would meet its own corpora only after many steps.
static int check_data(Trainer *t, Error *error) {
  int code = PLAIT_OK;
  if (t->recipe->data.tokenizer && has_rank_0(t)) code = check_tokenizer(t, error);
  if (!code) code = setup_check_data(t->recipe, &t->config, &t->split, &t->passes, error);
  return code || !has_rank_0(t) ? code : setup_check_documents(t->recipe, &t->documents, error);
}

// Resident memory that the ranks of this machine will take.
static int64_t bytes_here(const Trainer *t, const Recipe *recipe) {
  int64_t bytes = plan_all_bytes(recipe, &t->config, t->job);
  if (is_process(t)) bytes = bytes / t->launch->ranks * plait_world_local_size(t->launch->world);
  if (t->later.keeping != KEEPING_MACHINE_ALONE) return bytes;
  const WorkerMemory *memory = t->later.memory;
  return bytes + WORKER_MEMORIES * machine_spare_bytes(t->job, memory->first,
                                                       worker_memory_ranks(memory, t->launch->ranks));
}

// A supervisor holds one rank's memory, so ranks that are threads of one process have none.
static const WorkerMemory *find_memory(const Trainer *t) {
  const WorkerMemory *memory = &worker_supervised()->memory;
  bool is_one_rank = is_process(t) || t->job->options.parallel.mesh.ranks == 1;
  return !t->measures && is_one_rank && memory->count ? memory : NULL;
}

// Collective.
static Keeping find_keeping(const Trainer *t, const WorkerMemory *memory) {
  int ranks = t->job->options.parallel.mesh.ranks, here = memory ? worker_memory_ranks(memory, ranks) : 0;
  Error none = {0};
  if (!setup_keeps(t->recipe) || !memory) return KEEPING_NOTHING;
  if (here == ranks) return KEEPING_PROCESS;
  if (!machine_has_all(t->job, memory->first, here)) error_set(&none, PLAIT_FAILED, "a machine lacks a part");
  if (!launch_agree(t->launch, none.code, &none)) return KEEPING_MACHINE_ALONE;
  return t->recipe->checkpoint.copies && memory->copies ? KEEPING_MACHINE_COPIED : KEEPING_PROCESS;
}

int trainer_planned(const Trainer *t, Recipe *planned, Error *error) {
  char keys[128];
  snprintf(keys, sizeof keys, "%s%s%s", t->later.writes ? "" : " checkpoint.async=off",
           t->later.keeping ? "" : " checkpoint.memory_every=0",
           t->later.keeping == KEEPING_MACHINE_COPIED ? "" : " checkpoint.copies=0");
  return recipe_variant(t->recipe, keys, planned, error);
}

// Against what the machine has: the system would end the process without a word.
static int compare_memory(const Trainer *t, Error *error) {
  Recipe planned;
  int code = trainer_planned(t, &planned, error);
  if (code) return code;
  int here = is_process(t) ? plait_world_local_size(t->launch->world) : t->job->options.parallel.mesh.ranks,
      first = is_process(t) ? t->launch->rank / here * here : 0;
  int64_t bytes = bytes_here(t, &planned) - device_bytes_here(t->job, first, here);
  MemoryAvailable have = memory_usage_available_in("");
  recipe_free(&planned);
  code = device_check_room(t->job, first, here, error);
  if (code) return code;
  if (have.bytes < 0 || bytes <= have.bytes) return PLAIT_OK;
  return error_set(
      error, PLAIT_NO_MEMORY,
      "the ranks of this machine need %s of memory, but only %s are available%s (plait plan shows for what)",
      units_bytes((double)bytes).s, units_bytes((double)have.bytes).s, have.why);
}

// checkpoint.async: auto is on where all machines have the memory for it.
static int check_memory(Trainer *t, Error *error) {
  Error ignored = {0};
  t->later.memory = find_memory(t);
  t->later.keeping = find_keeping(t, t->later.memory);
  t->later.writes = setup_saves_later(t->recipe) && !t->measures;
  if (!t->later.writes || t->later.keeping || t->recipe->checkpoint.async == RECIPE_ASYNC_ON)
    return compare_memory(t, error);
  t->later.writes = !launch_agree(t->launch, compare_memory(t, &ignored), &ignored);
  return t->later.writes ? PLAIT_OK : compare_memory(t, error);
}

int trainer_due_evaluation(const Trainer *t, int64_t step) {
  return job_find(t->job, &role_evaluate) && t->recipe->eval.every &&
         trainer_due(t->recipe->eval.every, step, t->recipe->schedule.steps);
}

// Of its own run: a checkpoint that another run.dir names is where a new run begins, which may well be another one.
static bool resumes_itself(const Trainer *t) {
  return t->resume && resume_lies_in(checkpoint_path(t->resume), t->checkpoints);
}

// Finds the changes since the checkpoint. By rank 0, which will tell.
static int check_changes(Trainer *t, Error *error) {
  t->extra.facts = changes_facts(t->recipe);
  if (!t->resume) return PLAIT_OK;
  changes_find(t->recipe, &t->config, t->extra.facts, t->resume, &t->changes);
  if (!FAULT(another_run_resumes, t->changes.other_run, NULL) || t->force || !resumes_itself(t)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s holds a run at step %lld that differs in what makes it this run: %.600s; choose another run.dir "
                   "for a new run, or resume all the same with --force",
                   t->recipe->run.dir, (long long)checkpoint_step(t->resume), t->changes.other_run);
}

void trainer_tell_changes(const Trainer *t) {
  const Recipe *r = t->recipe;
  char passes[128];
  setup_note_model(r, &t->config, t->out);
  if (t->split) fputs(t->split, t->out);
  if (t->rowless) fputs(t->rowless, t->out);
  if (t->documents) fputs(t->documents, t->out);
  setup_describe_passes(&t->passes, (double)r->schedule.steps * r->batch.global * r->data.seq_len, passes,
                        sizeof passes);
  fprintf(t->out, "data: %lld step%s of %lld tokens are %s\n", (long long)r->schedule.steps,
          r->schedule.steps == 1 ? "" : "s", (long long)r->batch.global * r->data.seq_len, passes);
  if (!t->resume) return;
  if (t->changes.listed) fprintf(t->out, "changed: %s\n", t->changes.listed);
  if (t->changes.unknown) fprintf(t->out, "note: %s\n", t->changes.unknown);
  if (t->changes.follows) fputs(t->changes.follows, t->out);
  if (t->changes.other_run && resumes_itself(t))
    fprintf(t->out, "note: --force: from step %lld on this is another run than before: %s\n",
            (long long)first_step(t) + 1, t->changes.other_run);
  if (r->model.init[0] == '/')
    fprintf(t->out, "note: %smodel.init is %s, but a run that resumes has its weights from its checkpoint and does not "
            "read it again\n", recipe_where(r, "model.init"), r->model.init);
}

static bool patience_is_over(const Trainer *t) {
  const BestLoss *best = &t->extra.best;
  int64_t patience = t->recipe->eval.patience;
  if (!t->resume || !patience || best->without < patience) return false;
  fprintf(
      t->out,
      "%s: the run ended early at step %lld: the held-out loss was lowest at step %lld (%.4f), and %lld evaluations "
      "since then were not better; to train on all the same: plait train %s/recipe.yaml eval.patience=0\n",
      t->recipe->run.dir, (long long)first_step(t), (long long)best->step, best->loss, (long long)best->without,
      t->recipe->run.dir);
  return true;
}

bool trainer_is_over(const Trainer *t) {
  const char *dir = t->recipe->run.dir;
  int64_t steps = t->recipe->schedule.steps, done = first_step(t);
  if (done < steps) return patience_is_over(t);
  if (done == steps) fprintf(t->out, "%s: all %lld steps are done", dir, (long long)steps);
  else
    fprintf(t->out, "%s: nothing to do: the run has done %lld steps, and schedule.steps is %lld", dir, (long long)done,
            (long long)steps);
  fprintf(t->out, "; to train longer: plait train %s/recipe.yaml schedule.steps=%lld\n", dir, (long long)done * 2);
  return true;
}

static int find_resume(Trainer *t, Error *error) {
  ResumeFrom from;
  int code = resume_find(t->recipe, t->checkpoints, t->force, RESUME_VERIFY, &from, error);
  if (!code) {
    if (from.notes) fputs(from.notes, t->out);
    t->keep_until = from.keep_until;
    t->resume = from.checkpoint;
    from.checkpoint = NULL;
  }
  resume_free(&from);
  return code;
}

// Rank 0 opens the run folder and chooses where to start; the other processes are told.
static int open_folder(Trainer *t, Error *error) {
  int code = PLAIT_OK;
  if (has_rank_0(t)) code = run_folder_open(&t->folder, t->recipe, error);
  else t->folder.path = xstrdup(t->recipe->run.dir);
  if (!code) t->checkpoints = run_folder_file(&t->folder, "checkpoints");
  if (!code && has_rank_0(t)) code = find_resume(t, error);
  code = launch_agree(t->launch, code, error);
  char *path = t->resume ? xstrdup(checkpoint_path(t->resume)) : NULL;
  if (!code) code = launch_tell(t->launch, &path, error);
  if (!code && path && !t->resume) code = checkpoint_open(&t->resume, path, error);
  free(path);
  return code;
}

// Sends facts that only rank 0 has found, where another machine may have to write a checkpoint without it.
static int tell_extra(Trainer *t, Error *error) {
  SaveExtra *e = &t->extra;
  if (t->later.keeping != KEEPING_MACHINE_ALONE) return PLAIT_OK;
  json_t *json = json_pack("{s:f, s:O?, s:O?, s:O?, s:O?}", "tokens", e->tokens, "dtypes", e->dtypes, "facts", e->facts,
                           "began_at", e->began_at, "text", e->text);
  char *text = json_dumps(json, 0);
  json_decref(json);
  int code = launch_tell(t->launch, &text, error);
  json = !code && !has_rank_0(t) ? json_loads(text, 0, NULL) : NULL;
  free(text);
  if (!json) return code;
  const struct { const char *key; json_t **to; } parts[] = {
      {"dtypes", &e->dtypes}, {"facts", &e->facts}, {"began_at", &e->began_at}, {"text", &e->text}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    json_t *part = json_object_get(json, parts[i].key);
    json_decref(*parts[i].to);
    *parts[i].to = json_is_null(part) ? NULL : json_incref(part);
  }
  e->tokens = json_number_value(json_object_get(json, "tokens"));
  json_decref(json);
  return PLAIT_OK;
}

// All processes must come to the same conclusions from it.
static int tell_best(Trainer *t, Error *error) {
  json_t *json = best_to_json(&t->extra.best);
  char *text = json_dumps(json, 0);
  json_decref(json);
  int code = launch_tell(t->launch, &text, error);
  if (!code && (json = json_loads(text, 0, NULL))) t->extra.best = best_from_json(json);
  if (!code) json_decref(json);
  free(text);
  return code;
}

// Takes over the run's results so far from the checkpoint. Held-out losses count only if they are of the same run.
static int take_over(Trainer *t, Error *error) {
  const Recipe *recipe = t->recipe;
  json_t *extra = t->resume ? checkpoint_extra(t->resume) : NULL;
  bool own = resumes_itself(t);
  if (has_rank_0(t)) {
    t->extra.text = run_text_describe(recipe, extra);
    t->extra.began_at = resume_origins(recipe, own ? t->resume : NULL);
  }
  if (!t->resume)
    return recipe->model.init[0] == '/'
               ? huggingface_dtypes(recipe->model.init, &t->config, &t->extra.dtypes, error)
               : PLAIT_OK;
  t->extra.tokens = json_number_value(json_object_get(extra, "tokens"));
  t->extra.dtypes = json_incref(json_object_get(extra, "huggingface_dtypes"));
  if (FAULT(patience_is_forgotten, own, false) && !t->changes.other_run)
    t->extra.best = best_from_json(json_object_get(extra, "best"));
  return PLAIT_OK;
}

int trainer_prepare(Trainer *t, Error *error) {
  const Recipe *recipe = t->recipe;
  int threads = 1, code = setup_model_config(recipe, &t->config, error);
  code = launch_agree(t->launch, code, error);
  if (!code) code = launch_threads(t->launch, recipe->run.threads, recipe_rank_count(recipe), &threads, error);
  worker_enter(WORKER_PHASE_COMPILING, 0);
  if (!code)
    code = setup_job(recipe, &t->config,
                     &(RunSetting){.threads = threads,
                                   .helpers = is_process(t) ? 0 : setup_helpers(recipe, threads),
                                   .cluster = t->cluster},
                     &t->job, error);
  worker_enter(WORKER_PHASE_LOADING, 0);
  if (!code) code = check_data(t, error);
  code = launch_agree(t->launch, code, error);
  if (!code) code = launch_agree(t->launch, check_memory(t, error), error);
  if (!code) code = open_folder(t, error);
  if (!code && t->resume && (code = save_compare(t->job, t->resume, error)))
    code = save_explain(recipe, t->resume, error);
  if (!code && !t->resume && recipe->model.init[0] == '/')
    code = huggingface_load(recipe->model.init, &t->config, NULL, 0, error);
  code = launch_agree(t->launch, code, error); // one process may fail to read what the others can
  if (code) return code;
  code = save_extra_create(recipe, &t->config, &t->extra, error);
  if (!code && has_rank_0(t)) code = check_changes(t, error);
  if (!code) code = take_over(t, error);
  code = launch_agree(t->launch, code, error);
  if (!code) code = tell_extra(t, error);
  return code ? code : tell_best(t, error);
}

// checkpoints/best is what the checkpoint says: a run that was killed had no time to set it, and one that goes back to
// an older checkpoint leaves what came after.
static int mend_best(Trainer *t, Error *error) {
  BestLoss *best = &t->extra.best;
  int64_t marked = checkpoint_best(t->checkpoints);
  if (marked == best->step || (!marked && !t->recipe->checkpoint.best)) return PLAIT_OK;
  char *path = xformat("%s/step-%lld/checkpoint.json", t->checkpoints, (long long)best->step);
  bool there = best->step && file_exists(path);
  free(path);
  if (!there && t->recipe->checkpoint.best) best->step = 0; // not kept: the next one is the best that there is
  return there || marked > first_step(t) ? checkpoint_mark_best(t->checkpoints, there ? best->step : 0, error)
                                         : PLAIT_OK;
}

int trainer_write_recipe(const Trainer *t, bool has_checkpoints, Error *error) {
  if (!has_checkpoints || t->recipe->checkpoint.resume[0] != '/')
    return run_folder_write_recipe(&t->folder, t->recipe, error);
  Recipe resuming = {0};
  Error ignored = {0};
  // Where it needs the path (a rollback without checkpoints of its own), the path stays: it resumes likewise.
  bool stays = recipe_variant(t->recipe, "checkpoint.resume=auto", &resuming, &ignored);
  int code = run_folder_write_recipe(&t->folder, stays ? t->recipe : &resuming, error);
  recipe_free(&resuming);
  return code;
}

// From here on the run folder is changed: all that could be refused has been.
static int open_metrics(Trainer *t, Error *error) {
  char *path = run_folder_file(&t->folder, "metrics.jsonl");
  MetricsSeries done = {0};
  int64_t keep_until = t->keep_until < first_step(t) ? 0 : first_step(t); // of another run: none of its metrics
  int code = PLAIT_OK;
  if (FAULT(later_checkpoints_stay, t->keep_until, INT64_MAX) < INT64_MAX)
    code = resume_set_aside(t->recipe, t->checkpoints, t->keep_until, t->out, error);
  if (!code) code = trainer_write_recipe(t, resumes_itself(t), error);
  if (!code && t->resume) code = mend_best(t, error);
  if (!code) code = run_text_keep(&t->folder, t->recipe, error);
  if (!code) code = metrics_truncate_after(path, keep_until, error);
  if (!code) code = metrics_open(&t->metrics, path, error);
  t->metrics.copy = t->lines;
  if (!code && t->recipe->run.tensorboard && first_step(t) < t->recipe->schedule.steps) {
    code = events_open(&t->events, t->folder.path, first_step(t) + 1, (double)time(NULL), error);
    t->metrics.events = &t->events;
  }
  if (!code && first_step(t) && trainer_due_evaluation(t, first_step(t))) {
    code = metrics_read(path, "eval_loss", &done, error);
    t->evaluate_first = !done.count || done.step[done.count - 1] != first_step(t);
  }
  metrics_series_free(&done);
  free(path);
  return code;
}

int trainer_begin_writing(Trainer *t, Error *error) {
  int code = has_rank_0(t) ? open_metrics(t, error) : PLAIT_OK;
  code = launch_agree(t->launch, code, error);
  char *first = t->evaluate_first ? xstrdup("evaluate") : NULL;
  if (!code) code = launch_tell(t->launch, &first, error);
  t->evaluate_first = first;
  free(first);
  return code ? code : tell_best(t, error);
}

