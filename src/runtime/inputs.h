// The inputs of a step: where they lie in the host's memory, and how a rank's Program gets at them. A part of a
// Binding.
#pragma once
#include "base/error.h"
#include <stdint.h>

// How the inputs of a step that are FILLED_LATE are waited for. `wait` returns when their memory is filled, or an
// error. Calling it again is allowed.
typedef struct LateInputs {
  int (*wait)(void *self, Error *error);
  void *self;
} LateInputs;

typedef enum InputLies {
  LIES_BY_MICROBATCH, // that of microbatch m at base + m × stride bytes (stride 0 in BEGIN and END)
  LIES_BY_ROW,        // this rank's rows of the step, of `stride` bytes, one microbatch's after the other's
  LIES_BY_ROW_OF_ALL, // all ranks' rows of the step, in their order
} InputLies;

// Memory of a graph input for one step, the host's.
typedef struct StepInput {
  const void *base; // NULL: not given
  int64_t stride;
  InputLies lies;
} StepInput;

// The inputs that a step can read, by their ids (ir/inputs.h).
typedef struct StepInputs {
  StepInput *of; // (count)
  int count;
  LateInputs late; // wait NULL: all are filled
} StepInputs;

// Those of the graph, as addresses of the device's.
// And where the rows of each data rank begin (CallParameters.rank_begins), which kernels of experts read.
typedef struct BoundInputs {
  StepInput *of;          // (inputs of the graph)
  const LateInputs *late; // to be waited for; NULL: nothing is
  int64_t *begins;        // (microbatches, data ranks + 1) the host's; NULL: all ranks have as many
} BoundInputs;

typedef struct Binding Binding;

// Finds every input of the graph among those given, for step number `step` of a pipeline that runs several steps at
// once, else 0. Where the device cannot read the host's memory, it copies those that are FILLED_BEFORE. `given` must
// stay valid until the step is done. PLAIT_FAILED: one is not there.
int binding_inputs(Binding *binding, const StepInputs *given, int64_t step, Error *error);
// Waits for the late inputs of the step of binding->turn, and copies them likewise; does nothing where that has been
// done. After an error the next call waits again.
int binding_wait_inputs(Binding *binding, Error *error);
// Where the rows of each data rank begin in a microbatch of the step of binding->turn: as an address of the device's,
// and the host's. NULL: all have as many.
const int64_t *binding_rank_begins(const Binding *binding, int microbatch);
const int64_t *binding_host_begins(const Binding *binding, int microbatch);
// Where an input lies for a microbatch, as an address of the device's. set: the step's number modulo the steps that may
// run at once.
const char *binding_input_address(const Binding *binding, int input, int set, int microbatch);
