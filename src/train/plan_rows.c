// Fills the rows of plait plan from the Program of a pipeline coordinate.
#include "train/plan_rows.h"
#include "setup/setup_memory.h"
#include "runtime/rank.h"

const char *const plan_row_names[PLAN_ROW_COUNT] = {[PLAN_ROW_PARAMETERS] = "parameters",
                                                    [PLAN_ROW_GRADIENTS] = "gradients",
                                                    [PLAN_ROW_OPTIMIZER] = "optimizer",
                                                    [PLAN_ROW_VERSIONS] = "older weights",
                                                    [PLAN_ROW_OTHER] = "counters, metrics",
                                                    [PLAN_ROW_ACTIVATIONS] = "activations",
                                                    [PLAN_ROW_WORKSPACE] = "workspace",
                                                    [PLAN_ROW_COMMUNICATION] = "communication",
                                                    [PLAN_ROW_EVALUATION] = "evaluation",
                                                    [PLAN_ROW_GAPS] = "gaps",
                                                    [PLAN_ROW_ROUNDING] = "rounding",
                                                    [PLAN_ROW_ARENA] = "arena (2 MiB pages)",
                                                    [PLAN_ROW_LOADER] = "loader",
                                                    [PLAN_ROW_EXECUTORS] = "bound instructions",
                                                    [PLAN_ROW_COPY] = "checkpoint copy",
                                                    [PLAN_ROW_TOTAL] = "total"};

const char *const plan_row_keys[PLAN_ROW_COUNT] = {[PLAN_ROW_PARAMETERS] = "parameters",
                                                   [PLAN_ROW_GRADIENTS] = "gradients",
                                                   [PLAN_ROW_OPTIMIZER] = "optimizer",
                                                   [PLAN_ROW_VERSIONS] = "older_weights",
                                                   [PLAN_ROW_OTHER] = "counters",
                                                   [PLAN_ROW_ACTIVATIONS] = "activations",
                                                   [PLAN_ROW_WORKSPACE] = "workspace",
                                                   [PLAN_ROW_COMMUNICATION] = "communication",
                                                   [PLAN_ROW_EVALUATION] = "evaluation",
                                                   [PLAN_ROW_GAPS] = "gaps",
                                                   [PLAN_ROW_ROUNDING] = "rounding",
                                                   [PLAN_ROW_ARENA] = "arena",
                                                   [PLAN_ROW_LOADER] = "loader",
                                                   [PLAN_ROW_EXECUTORS] = "bound_instructions",
                                                   [PLAN_ROW_COPY] = "checkpoint_copy",
                                                   [PLAN_ROW_TOTAL] = "total"};

int64_t plan_rows(const Recipe *recipe, const Job *job, int coordinate, int64_t loader, int64_t row[PLAN_ROW_COUNT]) {
  const Program *p = job->train.program[coordinate];
  const MemoryPlan *m = &p->memory;
  row[PLAN_ROW_PARAMETERS] = m->parameters;
  row[PLAN_ROW_GRADIENTS] = m->gradients;
  row[PLAN_ROW_OPTIMIZER] = m->optimizer;
  row[PLAN_ROW_VERSIONS] = m->versions;
  row[PLAN_ROW_OTHER] = m->other;
  row[PLAN_ROW_ACTIVATIONS] = m->activations;
  row[PLAN_ROW_WORKSPACE] = m->workspace;
  row[PLAN_ROW_COMMUNICATION] = m->communication;
  row[PLAN_ROW_GAPS] = m->gaps;
  row[PLAN_ROW_EVALUATION] = job->work_bytes[coordinate] - program_work_bytes(p); // beyond what training has anyway
  row[PLAN_ROW_ARENA] = job_state_bytes(job, coordinate);
  row[PLAN_ROW_ROUNDING] = row[PLAN_ROW_ARENA];
  for (int i = 0; i < PLAN_ROW_ROUNDING; i++) row[PLAN_ROW_ROUNDING] -= row[i];
  row[PLAN_ROW_LOADER] = loader;
  row[PLAN_ROW_EXECUTORS] = rank_bound_bytes(job, coordinate);
  int64_t sum;
  row[PLAN_ROW_COPY] = setup_copy_bytes(recipe, job, coordinate, &sum);
  row[PLAN_ROW_TOTAL] = row[PLAN_ROW_ARENA] + row[PLAN_ROW_LOADER] + row[PLAN_ROW_EXECUTORS] + row[PLAN_ROW_COPY];
  int ranks = job->options.parallel.mesh.ranks / recipe->mesh.pp;
  return (row[PLAN_ROW_TOTAL] - row[PLAN_ROW_COPY]) * ranks + sum;
}
