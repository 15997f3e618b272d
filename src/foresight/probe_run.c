// Runs a recipe for some steps with a trace, and sorts its spans by kinds of kernels and collectives.
#include "foresight/probe_run.h"
#include "base/clock.h"
#include "op/op.h"
#include "machine/kernel_table.h"
#include "program/cost.h"
#include "program/traffic.h"
#include "setup/setup.h"
#include "runtime/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ProbeTask {
  const Recipe *recipe;
  const ModelConfig *config;
  const Job *job;
  int64_t steps;
  double *seconds; // (steps) of rank 0, or of this process's
  int alone;       // this process has one rank
} ProbeTask;

enum { WARM_UP = 1 }; // steps that are not measured

static int run_rank(Rank *r, void *context, Error *error) {
  ProbeTask *task = context;
  DataSource sources[task->recipe->data.train.count];
  LoaderConfig data = setup_loader(task->recipe, task->config, 0, sources);
  int code = rank_load(r, task->job, error);
  if (code) return code;
  rank_initialise(r);
  code = rank_open_data(r, &data, 0, error);
  if (!code) code = rank_barrier(r, error);
  if (!code) rank_trace(r, WARM_UP + 1, task->steps);
  for (int64_t step = 1; step <= WARM_UP + task->steps && !code; step++) {
    StepResult result;
    trace_turn(r->trace, step);
    if (rank_barrier(r, error)) return PLAIT_FAILED;
    double start = clock_seconds();
    code = rank_step(r, step, 1e-4, &result, error);
    if ((r->rank == 0 || task->alone) && step > WARM_UP) task->seconds[step - WARM_UP - 1] = clock_seconds() - start;
  }
  return code;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The mean of the middle: what disturbs a call now and then is left out, what varies from place to place is not.
static double middle(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  int cut = n / 8, count = n - 2 * cut;
  double sum = 0;
  for (int i = cut; i < n - cut; i++) sum += x[i];
  return sum / count;
}

// Spans -------------------------------------------------------------------------------------------------------------

typedef Vec(double) Samples;

// By node, of all ranks of a pipeline coordinate.
static void collect(const Trace *t, const Program *p, Samples *of) {
  for (int i = 0; i < t->count; i++) {
    const TraceSpan *s = &t->span[i];
    if (s->stream || !s->detail) continue;
    for (int n = 0; n < p->graph->node.count; n++)
      if (p->graph->node.data[n].name == s->detail) {
        vec_push(&of[n], s->end - s->begin);
        break;
      }
  }
}

int probe_same_kernel(const MeasuredKernel *a, const MeasuredKernel *b) {
  return !strcmp(a->op, b->op) && a->dtype == b->dtype && a->threads == b->threads && a->active == b->active &&
         a->kind == b->kind && !memcmp(a->size, b->size, sizeof a->size);
}

// Nodes that are alike count as one: their samples go together.
static void add_kernels(const Job *job, const Program *p, double cache, Samples *of, ProbeTimes *times) {
  int ranks = job->options.parallel.mesh.ranks;
  Vec(MeasuredKernel) kernel = {0};
  Vec(Samples) samples = {0};
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    if (!of[i].count || op_def(n->op)->communicates) continue;
    int microbatch = p->schedule->microbatches > 1; // the first one does not read accumulators, the others do
    OpWork work = program_work(p, n, n->region == REGION_MICRO ? microbatch : -1);
    MeasuredKernel k;
    kernel_describe(p, n, &work, cache, &k);
    k.threads = job->run.threads, k.active = k.threads * ranks;
    int at = 0;
    while (at < kernel.count && !probe_same_kernel(&kernel.data[at], &k)) at++;
    if (at == kernel.count) {
      vec_push(&kernel, k);
      vec_push(&samples, (Samples){0});
    }
    for (int j = 0; j < of[i].count; j++) vec_push(&samples.data[at], of[i].data[j]);
  }
  for (int i = 0; i < kernel.count; i++) {

    kernel.data[i].calls = samples.data[i].count;
    kernel.data[i].seconds = middle(samples.data[i].data, samples.data[i].count);
    vec_push(&times->kernel, kernel.data[i]);
    vec_free(&samples.data[i]);
  }
  vec_free(&kernel);
  vec_free(&samples);
}

static void read_times(const Session *session, const Job *job, double cache, ProbeTimes *times) {
  const Mesh *mesh = &job->options.parallel.mesh;
  for (int c = 0; c < job_pipeline_ranks(job); c++) {
    const Program *p = job_train(job)->program[c];
    Samples *of = xcalloc((size_t)p->graph->node.count, sizeof *of);
    for (int r = 0; r < mesh->ranks; r++)
      if (mesh_pipeline_coordinate(mesh, r) == c && session_rank(session, r))
        collect(session_rank(session, r)->trace, p, of);
    add_kernels(job, p, cache, of, times);
    for (int i = 0; i < p->graph->node.count; i++) vec_free(&of[i]);
    free(of);
  }
}

// The n-th collective of a rank is the n-th of all: whoever comes last waits least.
static double skew_of(const Session *session) {
  int ranks = session_ranks(session), *at = xcalloc((size_t)ranks, sizeof *at);
  double skew = 0;
  for (int more = ranks > 1 && session_is_local(session); more;) { // another process's trace is not here
    double least = INFINITY, sum = 0;
    for (int r = 0; r < ranks && more; r++) {
      const Trace *t = session_rank(session, r)->trace;
      while (at[r] < t->count && strcmp(t->span[at[r]].category, "communication")) at[r]++;
      more = at[r] < t->count;
      double seconds = more ? t->span[at[r]].end - t->span[at[r]].begin : 0;
      least = fmin(least, seconds);
      sum += seconds;
      at[r]++;
    }
    if (more) skew += sum / ranks - least;
  }
  free(at);
  return skew;
}

static void read_result(const Session *session, ProbeTask *task, ProbeResult *result) {
  *result = (ProbeResult){.step = middle(task->seconds, (int)task->steps),
                          .skew = skew_of(session) / (double)task->steps};
  int ranks = session_ranks(session);
  for (int r = 0; r < ranks; r++) {
    if (!session_rank(session, r)) continue;
    const Trace *t = session_rank(session, r)->trace;
    double kernels = 0, waits = 0, instructions = 0;
    for (int i = 0; i < t->count; i++) {
      double seconds = (t->span[i].end - t->span[i].begin) / (double)task->steps;
      int kernel = !strcmp(t->span[i].category, "kernel"),
          communication = !strcmp(t->span[i].category, "communication");
      kernels += kernel ? seconds : 0;
      waits += communication ? seconds : 0;
      instructions += (kernel || communication) / (double)task->steps;
    }
    if (kernels > result->kernels)
      result->kernels = kernels, result->waits = waits, result->instructions = instructions;
  }
}

int probe_run(const Recipe *recipe, const ModelConfig *config, int64_t steps, double cache, PlaitComm *comm,
              ProbeTimes *times, ProbeResult *result, Error *error) {
  Job *job = NULL;
  Session *session = NULL;
  int threads = recipe->run.threads / recipe_rank_count(recipe);
  RunSetting setting = {.threads = !comm ? 0 : threads > 0 ? threads : 1};
  int code = setup_job(recipe, config, &setting, &job, error);
  if (code) return code;
  ProbeTask task = {recipe, config, job, steps, xcalloc((size_t)steps, sizeof *task.seconds), comm != NULL};
  code = session_open(&(SessionOptions){.ranks = comm ? 0 : job->options.parallel.mesh.ranks, .comm = comm}, &session,
                      error);
  if (!code) code = session_run(session, run_rank, &task, error);
  if (!code) read_times(session, job, cache, times);
  if (!code && result) read_result(session, &task, result);
  session_close(session);
  job_destroy(job);
  free(task.seconds);
  return code;
}

void probe_times_free(ProbeTimes *times) {
  vec_free(&times->kernel);
  vec_free(&times->collective);
}
