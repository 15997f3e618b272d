// Jobs: graphs and Programs of a model in one parallel configuration.
#include "runtime/job.h"
#include "base/fault.h"
#include "runtime/state.h"

#define JOB_ROLE(name, mode, activity, what) const JobRole role_##name = {#name, MODEL_##mode, ACTIVITY_##activity};
#include "runtime/roles.def"

static const JobRole *role_of(ModelMode mode) {
  static const JobRole *const roles[] = {
#define JOB_ROLE(name, mode, activity, what) &role_##name,
#include "runtime/roles.def"
  };
  int i = 0;
  while (roles[i]->mode != mode) i++;
  return roles[i];
}

Compiled *job_find(const Job *j, const JobRole *role) {
  for (int i = 0; i < j->list.count; i++)
    if (j->list.data[i]->role == role) return j->list.data[i];
  return NULL;
}

int job_find_tick(const Job *j, int64_t tokens) {
  int best = -1;
  for (int i = 0; i < j->list.count; i++) {
    const Compiled *c = j->list.data[i];
    if (c->role == &role_generate && c->tokens >= tokens && (best < 0 || c->tokens < j->list.data[best]->tokens))
      best = i;
  }
  CHECK(best >= 0, "the job generates for fewer than %lld tokens", (long long)tokens);
  return best;
}

Compiled *job_train(const Job *j) {
  Compiled *c = job_find(j, &role_train);
  CHECK(c, "the job does not train");
  return c;
}

int job_pipeline_ranks(const Job *j) { return parallel_pipeline_ranks(&j->options.parallel); }

int job_data_ranks(const Job *j) { return parallel_data_ranks(&j->options.parallel); }

static void compiled_free(const Job *j, Compiled *c) {
  for (int i = job_pipeline_ranks(j) - 1; c->program && i >= 0; i--) program_destroy(c->program[i]);
  free(c->program);
  graph_destroy(c->graph);
  free(c);
}

// One that does not train runs forward alone.
static int create_programs(Job *j, Compiled *c, Error *error) {
  int pp = job_pipeline_ranks(j), code = PLAIT_OK;
  int trains = c->role->mode == MODEL_TRAIN;
  c->program = xcalloc((size_t)pp, sizeof *c->program);
  for (int i = 0; i < pp && !code; i++) {
    ProgramOptions o = {.schedule = trains ? j->options.parallel.pipeline.schedule : &schedule_forward,
                        .microbatches = c->shares.microbatches,
                        .shares = &c->shares,
                        .coordinate = i,
                        .like = i ? c->program[0] : NULL,
                        .device = j->options.device,
                        .threads = j->run.threads,
                        .helpers = j->run.helpers,
                        .sketch = j->run.sketch,
                        .overlap = j->options.parallel.overlap.on,
                        .chaos = j->options.chaos};
    code = program_create(c->graph, &j->options.parallel.mesh, &o, &c->program[i], error);
    if (!code && program_work_bytes(c->program[i]) > j->work_bytes[i])
      j->work_bytes[i] = program_work_bytes(c->program[i]);
  }
  return code;
}

static Shares shares_of(const Job *j, const StepBatch *batch) {
  return shares_balanced(batch->samples, job_data_ranks(j), batch->micro, &batch->balance);
}

// Adds a graph, of the model where there is a config, else `built` with its loss.
static int add(Job *j, const JobRole *role, Shares shares, const CompileOptions *o, const ModelConfig *config,
               Graph *built, int loss_sum, Error *error) {
  CHECK(role == &role_generate || !job_find(j, role), "the job has a graph of the role %s", role->name);
  Compiled *c = xcalloc(1, sizeof *c);
  *c = (Compiled){.role = role, .tokens = o->step.batch.length[DIM_SEQ], .shares = shares};
  int code = config ? compile_graph(config, o, &c->graph, error) : compile_built(built, loss_sum, o, &c->graph, error);
  if (!code) code = create_programs(j, c, error);
  if (code) compiled_free(j, c);
  else vec_push(&j->list, c);
  return code;
}

static Job *job_new(const CompileOptions *options, const JobOptions *run) {
  Job *j = xcalloc(1, sizeof *j);
  *j = (Job){.options = *options, .run = *run};
  j->work_bytes = xcalloc((size_t)job_pipeline_ranks(j), sizeof *j->work_bytes);
  return j;
}

static int finish(Job *j, int code, Job **out) {
  if (!code && j->run.helpers) j->teams = team_group_create(j->options.parallel.mesh.ranks, j->run.helpers);
  j->options.step.batch.balance = (Balance){0}; // its weights are the caller's; the shares have them now
  j->options.step.parallel.layers = NULL;       // likewise; Parallel has them
  if (code) job_destroy(j);
  else *out = j;
  return code;
}

int job_create_built(Graph *g, int loss_sum, const CompileOptions *options, const JobOptions *run, Job **out,
                     Error *error) {
  Job *j = job_new(options, run);
  const JobRole *role = role_of((ModelMode)options->mode);
  return finish(j, add(j, role, shares_of(j, &options->step.batch), options, NULL, g, loss_sum, error), out);
}

// Forward alone would be cut differently, but Variables live where the first graph has them.
static CompileOptions options_beside(const Job *j, const CompileOptions *first, const JobRole *role) {
  CompileOptions o = *first;
  Pipeline *pipeline = &o.parallel.pipeline;
  const int *cut = j->list.data[0]->graph->cut;
  o.mode = role->mode;
  pipeline->cut_given = 1;
  for (int s = 0; s < pipeline->stages; s++) pipeline->layers[s] = cut[s + 1] - cut[s];
  return o;
}

int job_add(Job *j, const JobRole *role, Graph *g, int loss_sum, Error *error) {
  CompileOptions o = options_beside(j, &j->options, role);
  return add(j, role, j->list.data[0]->shares, &o, NULL, g, loss_sum, error);
}

int job_create(const ModelConfig *config, const CompileOptions *options, const JobOptions *run, Job **out,
               Error *error) {
  Job *j = job_new(options, run);
  const JobRole *role = role_of((ModelMode)options->mode);
  j->options.never_trains = FAULT(inference_has_masters, options->mode != MODEL_TRAIN, 0);
  int code = add(j, role, shares_of(j, &options->step.batch), &j->options, config, NULL, -1, error);
  for (int64_t n = 1; !code && options->mode == MODEL_GENERATE && n < options->step.batch.length[DIM_SEQ]; n *= 2) {
    CompileOptions o = options_beside(j, &j->options, role);
    o.step.batch.length[DIM_SEQ] = n;
    code = add(j, role, shares_of(j, &o.step.batch), &o, config, NULL, -1, error);
  }
  if (!code && options->mode == MODEL_TRAIN && run->evaluate_samples) {
    CompileOptions o = options_beside(j, &j->options, &role_evaluate);
    compile_set_batch(&o, run->evaluate_samples, o.step.batch.micro);
    code = add(j, &role_evaluate, shares_of(j, &o.step.batch), &o, config, NULL, -1, error);
  }
  return finish(j, code, out);
}

void job_set_shares(Job *j, const int *rows) {
  for (int i = 0; i < j->list.count; i++) {
    Shares *s = &j->list.data[i]->shares;
    if (!i || (s->weighed && s->global == j->list.data[0]->shares.global)) shares_set(s, rows);
  }
}

void job_destroy(Job *j) {
  if (!j) return;
  for (int i = 0; i < j->list.count; i++) compiled_free(j, j->list.data[i]);
  vec_free(&j->list);
  team_group_destroy(j->teams);
  free(j->work_bytes);
  free(j);
}

const Program *job_program(const Job *j, int coordinate) { return j->list.data[0]->program[coordinate]; }

int64_t job_state_bytes(const Job *j, int coordinate) {
  return state_plan_bytes(job_program(j, coordinate), 0, j->work_bytes[coordinate]);
}

int64_t job_mirror_bytes(const Job *j, int coordinate) {
  Program **all = xcalloc((size_t)j->list.count + 1, sizeof(Program *));
  for (int i = 0; i < j->list.count; i++) all[i] = j->list.data[i]->program[coordinate];
  const int64_t bytes = state_mirror_bytes(all, j->list.count, j->work_bytes[coordinate]);
  free(all);
  return bytes;
}
