// The numbers of plait plan as a JSON object.
#include "train/plan_json.h"
#include "program/cost.h"
#include "setup/setup.h"
#include "setup/setup_memory.h"
#include "foresight/estimate.h"
#include "train/plan_rows.h"
#include "train/precision.h"
#include "foresight/predict.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// NULL, which json_object_set_new leaves out, where it is not a number.
static json_t *number(double value) { return isfinite(value) ? json_real(value) : NULL; }

static json_t *memory_json(const Recipe *recipe, const ModelConfig *config, const Job *job, int64_t *all) {
  int64_t loader = setup_loader_bytes(recipe, config, job), row[PLAN_ROW_COUNT];
  json_t *list = json_array();
  *all = 0;
  for (int c = 0; c < recipe->mesh.pp; c++) {
    json_t *column = json_pack("{s:i}", "pp", c);
    *all += plan_rows(recipe, job, c, loader, row);
    for (int i = 0; i < PLAN_ROW_COUNT; i++)
      if (i != PLAN_ROW_MIRROR || row[i])
        json_object_set_new(column, plan_row_traits[i].key, json_integer(row[i]));
    json_array_append_new(list, column);
  }
  return list;
}

static int cluster_time(const Recipe *recipe, const ModelConfig *config, json_t *object, Error *error) {
  Cluster *cluster = NULL;
  Prediction p = {.job = NULL};
  int code = predict_cluster(recipe, NULL, &cluster, error);
  SimulateOptions options = {.cluster = cluster};
  if (!code) code = predict(recipe, config, &options, &p, error);
  if (!code) {
    json_object_set_new(object, "step_seconds", number(p.simulation->step));
    json_object_set_new(object, "run_seconds", number(p.run_seconds));
    json_object_set_new(object, "tokens_per_s", number(p.tokens_per_s));
    json_object_set_new(object, "mfu", number(p.mfu));
    json_object_set_new(object, "room_bytes", number(p.room));
    json_object_set_new(object, "time_from", json_sprintf("simulated on %s", cluster->name));
  }
  prediction_free(&p);
  cluster_free(cluster);
  return code;
}

static void estimated_time(const Recipe *recipe, const Job *job, json_t *object) {
  Estimate e;
  if (!estimate_run(recipe, job, recipe_has_processes(recipe), recipe->schedule.steps, &e)) return;
  char *source = estimate_source(&e);
  json_object_set_new(object, "step_seconds", number(e.step_seconds));
  json_object_set_new(object, "run_seconds", number(e.run_seconds));
  json_object_set_new(object, "tokens_per_s", number(e.tokens_per_s));
  json_object_set_new(object, "time_from", json_string(source));
  free(source);
}

static json_t *describe(const Recipe *r, const ModelConfig *config, const Job *job) {
  double token = model_config_flops_per_token(config, r->data.seq_len), most = 0;
  int64_t tokens = (int64_t)r->batch.global * r->data.seq_len, all;
  json_t *memory = memory_json(r, config, job, &all);
  for (int c = 0; c < r->mesh.pp; c++) most = fmax(most, program_flops(job_train(job)->program[c]));
  return json_pack("{s:s, s:I, s:{s:i, s:i, s:i, s:i}, s:i, s:i, s:s, s:I, s:o, s:I, s:f, s:f, s:f}", "family",
                   model_family_name(config->family), "parameters", (json_int_t)model_config_parameters(config), "mesh",
                   "pp", r->mesh.pp, "dp", r->mesh.dp, "cp", r->mesh.cp, "tp", r->mesh.tp, "ranks",
                   job->options.parallel.mesh.ranks, "threads", job->run.threads, "precision",
                   dtype_name((Dtype)r->precision), "tokens_per_step", (json_int_t)tokens, "memory", memory,
                   "all_ranks_bytes", (json_int_t)all, "flops_per_token", token, "flops_per_step",
                   token * (double)tokens, "flops_per_rank_step", most);
}

int plan_json(const Recipe *asked, FILE *out, Error *error) {
  Recipe own; // with the precision that auto is in a run that is there
  const Recipe *recipe = &own;
  bool kept;
  ModelConfig config = {0};
  Job *job = NULL;
  RunPlan planned = {0};
  char *note = NULL;
  json_t *object = NULL;
  int code = precision_of_run(asked, &own, &kept, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  if (!code) code = setup_check_tokenizer(recipe, &config, false, &note, error);
  if (!code) code = resolve(recipe, &config, &(RunSetting){.shows_recompute = true}, &planned, error);
  if (!code) code = run_plan_job(&planned, &job, error);
  if (!code) {
    object = describe(recipe, &config, job);
    bool elsewhere = recipe->run.cluster && strcmp(recipe->run.cluster, "probe");
    if (elsewhere) code = cluster_time(recipe, &config, object, error);
    else estimated_time(recipe, job, object);
  }
  if (!code) {
    json_dumpf(object, out, JSON_INDENT(2));
    fputc('\n', out);
  }
  json_decref(object);
  job_destroy(job);
  free(note);
  run_plan_free(&planned);
  model_config_free(&config);
  recipe_free(&own);
  return code;
}
