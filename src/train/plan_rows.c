// Fills the rows of plait plan from the Program of a pipeline coordinate.
#include "train/plan_rows.h"
#include "setup/setup_memory.h"
#include "runtime/rank.h"

const PlanRowTraits plan_row_traits[PLAN_ROW_COUNT] = {
#define PLAN_ROW(id, name, key) {name, key},
#include "train/plan_rows.def"
#undef PLAN_ROW
};

int64_t plan_rows(const Recipe *recipe, const Job *job, int coordinate, int64_t loader, int64_t row[PLAN_ROW_COUNT]) {
  const Program *p = job_train(job)->program[coordinate];
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
  row[PLAN_ROW_MIRROR] = job_mirror_bytes(job, coordinate);
  int64_t sum;
  row[PLAN_ROW_COPY] = setup_copy_bytes(recipe, job, coordinate, &sum);
  row[PLAN_ROW_TOTAL] = row[PLAN_ROW_ARENA];
  for (int i = PLAN_ROW_LOADER; i < PLAN_ROW_TOTAL; i++) row[PLAN_ROW_TOTAL] += row[i];
  int ranks = job->options.parallel.mesh.ranks / recipe->mesh.pp;
  return (row[PLAN_ROW_TOTAL] - row[PLAN_ROW_COPY]) * ranks + sum;
}
