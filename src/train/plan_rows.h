// Memory of a rank by what lies there: the rows of plait plan.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef enum PlanRow {
#define PLAN_ROW(id, name, key) PLAN_ROW_##id,
#include "train/plan_rows.def"
#undef PLAN_ROW
  PLAN_ROW_COUNT
} PlanRow;

typedef struct PlanRowTraits { const char *name, *key; } PlanRowTraits; // for people, for JSON
extern const PlanRowTraits plan_row_traits[PLAN_ROW_COUNT];

// All rows of one pipeline coordinate; `loader`: setup_loader_bytes. The rows up to ROUNDING add up to ARENA, which is
// what State allocates. Returns the bytes of all its ranks, of which some may write less to checkpoints than the row
// says.
int64_t plan_rows(const Recipe *recipe, const Job *job, int coordinate, int64_t loader, int64_t row[PLAN_ROW_COUNT]);
