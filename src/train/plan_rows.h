// Memory of a rank by what lies there: the rows of plait plan.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef enum PlanRow {
  PLAN_ROW_PARAMETERS,
  PLAN_ROW_GRADIENTS,
  PLAN_ROW_OPTIMIZER,
  PLAN_ROW_VERSIONS,
  PLAN_ROW_OTHER,
  PLAN_ROW_ACTIVATIONS,
  PLAN_ROW_WORKSPACE,
  PLAN_ROW_COMMUNICATION,
  PLAN_ROW_GAPS,
  PLAN_ROW_EVALUATION,
  PLAN_ROW_ROUNDING,
  PLAN_ROW_ARENA,
  PLAN_ROW_LOADER,
  PLAN_ROW_EXECUTORS,
  PLAN_ROW_COPY,
  PLAN_ROW_TOTAL,
  PLAN_ROW_COUNT
} PlanRow;

extern const char *const plan_row_names[PLAN_ROW_COUNT]; // for people
extern const char *const plan_row_keys[PLAN_ROW_COUNT];  // for JSON

// All rows of one pipeline coordinate; `loader`: setup_loader_bytes. The rows up to ROUNDING add up to ARENA, which is
// what State allocates. Returns the bytes of all its ranks, of which some may write less to checkpoints than the row
// says.
int64_t plan_rows(const Recipe *recipe, const Job *job, int coordinate, int64_t loader, int64_t row[PLAN_ROW_COUNT]);
