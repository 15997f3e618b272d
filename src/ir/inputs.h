// The table of inputs: ir/inputs.def. Inputs of a graph of a user's own have the ids after those of the table, in the
// order in which they were made.
#pragma once
#include "base/dtype.h"

typedef enum KnownInput {
#define INPUT(id, name, dtype, dims, from, filled, what) INPUT_##id,
#include "ir/inputs.def"
  INPUT_COUNT
} KnownInput;

typedef enum InputFrom {
  FROM_LOADER,
  FROM_TARGETS,
  FROM_STEP,
  FROM_CALLER,
} InputFrom;

typedef enum InputFilled { FILLED_BEFORE, FILLED_LATE } InputFilled;

typedef struct InputDef {
  const char *name;
  Dtype dtype;
  const char *dims;
  InputFrom from;
  InputFilled filled;
  const char *what;
} InputDef;

const InputDef *input_def(int id); // of one that is not in the table: what is said of all of these
