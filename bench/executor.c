// The cost of running a step beside its kernels: bench_executor RECIPE [key=value …]. The same Program runs on the null
// device, whose kernels do nothing, and on the recipe's own, with zeroes for data. One rank: collectives are measured
// by `plait bench comm`.
#include "base/clock.h"
#include "runtime/session.h"
#include "setup/setup.h"
#include <stdio.h>

static int fail(const Error *error) { return fprintf(stderr, "executor: %s\n", error->message), 1; }

static int every_one(const Variable *v) { return v != NULL; }

// Seconds of a step, the best of `repeat`; negative after an error.
static double measure(const Job *job, const Device *device, const StepInputs *inputs, int repeat, Error *error) {
  State *state = NULL;
  Team *team = NULL;
  DeviceQueue *queue = NULL;
  Executor *executor = NULL;
  double best = -1;
  int code = team_create(job->run.threads, &team, error);
  if (!code) code = state_create(job_program(job, 0), device, job->work_bytes[0], 0, &state, error);
  if (!code) code = device_queue_create(device, team, &queue, error);
  if (!code) code = executor_create(job_train(job)->program[0], state, queue, NULL, 1, &executor, error);
  if (!code) state_init(state, 1, every_one, NULL);
  for (int i = 0; i < repeat && !code; i++) {
    double start = clock_seconds();
    code = executor_run(executor, (uint64_t)i + 1, inputs, 0, error);
    double took = clock_seconds() - start;
    if (i && (best < 0 || took < best)) best = took; // the first one warms up
  }
  executor_destroy(executor);
  device_queue_destroy(queue);
  state_destroy(state);
  team_destroy(team);
  return code ? -1 : best;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: bench_executor RECIPE [key=value …]\n"), 2;
  Recipe recipe;
  ModelConfig config;
  Job *job;
  Error error = {0};
  if (recipe_load(argv[1], argc - 2, argv + 2, &recipe, &error) ||
      model_config_load(&config, recipe.model.config, &error))
    return fail(&error);
  if (setup_job(&recipe, &config, &job, &error)) return fail(&error);
  if (job->options.parallel.mesh.ranks != 1)
    return fprintf(stderr, "executor: the recipe has %d ranks; allowed: 1\n", job->options.parallel.mesh.ranks), 2;
  int64_t tokens = (int64_t)recipe.batch.global * recipe.data.seq_len,
          stride = tokens / job_train(job)->shares.microbatches * (int64_t)sizeof(int32_t);
  int32_t *zeroes = xcalloc((size_t)tokens, sizeof *zeroes);
  double rate = 1e-3;
  StepInput of[INPUT_COUNT];
  for (int id = 0; id < INPUT_COUNT; id++) of[id] = (StepInput){zeroes, id == INPUT_STEP_TARGETS ? 0 : stride};
  of[INPUT_LEARNING_RATE] = (StepInput){&rate};
  StepInputs inputs = {.of = of, .count = INPUT_COUNT};
  Device null = device_null(job->options.device);
  double empty = measure(job, &null, &inputs, 200, &error),
         full = empty < 0 ? -1 : measure(job, job->options.device, &inputs, 4, &error);
  if (full < 0) return fail(&error);
  const Program *p = job_train(job)->program[0];
  int actions = p->actions.count;
  printf("%d actions, %d nodes: a step takes %.1f ms, of which the executor takes %.1f us: %.3f%%\n", actions,
         p->graph->node.count, 1e3 * full, 1e6 * empty, 100 * empty / full);
  free(zeroes);
  job_destroy(job);
  model_config_free(&config);
  recipe_free(&recipe);
  return 0;
}
