// Jobs: graphs and Programs of a model in one parallel configuration.
#include "runtime/job.h"
#include "runtime/state.h"

int job_pipeline_ranks(const Job *j) { return parallel_pipeline_ranks(&j->options.parallel); }

int job_data_ranks(const Job *j) { return parallel_data_ranks(&j->options.parallel); }

static int create_programs(Job *j, Compiled *c, const ScheduleGenerator *schedule, Error *error) {
  int pp = job_pipeline_ranks(j), code = PLAIT_OK;
  c->program = xcalloc((size_t)pp, sizeof *c->program);
  for (int i = 0; i < pp && !code; i++) {
    ProgramOptions o = {.schedule = schedule,
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

static int create_compiled(Job *j, const ModelConfig *config, const CompileOptions *o,
                           const ScheduleGenerator *schedule, Compiled *c, Error *error) {
  c->shares = shares_balanced(o->step.batch.samples, job_data_ranks(j), o->step.batch.micro, &o->step.batch.balance);
  int code = compile_graph(config, o, &c->graph, error);
  return code ? code : create_programs(j, c, schedule, error);
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
  j->train.shares = shares_balanced(options->step.batch.samples, job_data_ranks(j), options->step.batch.micro,
                                    &options->step.batch.balance);
  int code = compile_built(g, loss_sum, options, &j->train.graph, error);
  if (!code) code = create_programs(j, &j->train, options->parallel.pipeline.schedule, error);
  return finish(j, code, out);
}

// Forward alone would be cut differently, but Variables live where training has them.
static CompileOptions evaluation_of(const Job *j, const CompileOptions *training) {
  CompileOptions o = *training;
  Pipeline *pipeline = &o.parallel.pipeline;
  o.mode = MODEL_EVALUATE;
  pipeline->cut_given = 1;
  for (int s = 0; s < pipeline->stages; s++)
    pipeline->layers[s] = j->train.graph->cut[s + 1] - j->train.graph->cut[s];
  return o;
}

int job_add_evaluation(Job *j, Graph *g, int loss_sum, Error *error) {
  CompileOptions o = evaluation_of(j, &j->options);
  j->evaluate.shares = j->train.shares;
  int code = compile_built(g, loss_sum, &o, &j->evaluate.graph, error);
  return code ? code : create_programs(j, &j->evaluate, &schedule_forward, error);
}

int job_create(const ModelConfig *config, const CompileOptions *options, const JobOptions *run, Job **out,
               Error *error) {
  Job *j = job_new(options, run);
  int code;
  if (options->mode == MODEL_EVALUATE)
    code = create_compiled(j, config, options, &schedule_forward, &j->evaluate, error);
  else if (options->mode == MODEL_GENERATE)
    code = create_compiled(j, config, options, &schedule_forward, &j->generate, error);
  else code = create_compiled(j, config, options, options->parallel.pipeline.schedule, &j->train, error);
  if (!code && options->mode == MODEL_TRAIN && run->evaluate_samples) {
    CompileOptions o = evaluation_of(j, options);
    compile_set_batch(&o, run->evaluate_samples, o.step.batch.micro);
    code = create_compiled(j, config, &o, &schedule_forward, &j->evaluate, error);
  }
  return finish(j, code, out);
}

void job_set_shares(Job *j, const int *rows) {
  shares_set(&j->train.shares, rows);
  if (j->evaluate.shares.weighed && j->evaluate.shares.global == j->train.shares.global)
    shares_set(&j->evaluate.shares, rows);
}

static void compiled_free(const Job *j, Compiled *c) {
  for (int i = job_pipeline_ranks(j) - 1; c->program && i >= 0; i--) program_destroy(c->program[i]);
  free(c->program);
  graph_destroy(c->graph);
}

void job_destroy(Job *j) {
  if (!j) return;
  compiled_free(j, &j->train);
  compiled_free(j, &j->evaluate);
  compiled_free(j, &j->generate);
  team_group_destroy(j->teams);
  free(j->work_bytes);
  free(j);
}

const Program *job_program(const Job *j, int coordinate) {
  const Compiled *c = j->train.graph ? &j->train : j->evaluate.graph ? &j->evaluate : &j->generate;
  return c->program[coordinate];
}

int64_t job_state_bytes(const Job *j, int coordinate) {
  return state_plan_bytes(job_program(j, coordinate), 0, j->work_bytes[coordinate]);
}
