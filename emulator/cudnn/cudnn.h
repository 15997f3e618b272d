// A cuDNN without a card, see ../README.md: what its files share.
#pragma once
#include "../emulator.h"
#include "device/cuda/dnn_abi.h"

#define DNN_ENTRY(result, name, parameters) name##_entry name;
#include "device/cuda/dnn_entries.def"
#undef DNN_ENTRY

enum { MOST_TENSORS = 64, MOST_STEPS = 32, NO_TENSOR = -1, DIMS = 4 };

typedef struct View {
  int64_t number, alignment, size[DIMS], stride[DIMS];
  DnnDtype dtype;
  int is_virtual, is_value;
  int unused; // 0: views are compared by their bytes
} View;

// One operation; x, b, t, y: of the program's tensors, or NO_TENSOR. mode: of its pointwise operation or reduction.
typedef struct Step {
  DnnKind kind;
  unsigned mode;
  int64_t axis;
  int x, b, t, y;
} Step;

// A graph as it is executed. operand: of the call, of tensors that lie in memory; value: of those given by value.
typedef struct Program {
  int tensors, steps, spoiled;
  View tensor[MOST_TENSORS];
  Step step[MOST_STEPS];
  int operand[MOST_TENSORS];
  double value[MOST_TENSORS];
} Program;

size_t dtype_bytes(DnnDtype dtype);
int64_t view_extent(const View *v); // elements from its first to its last
// Ends the program where tensors of an operation do not fit together.
void check_step(const Program *p, const Step *s);
// In double; tensors in memory are read and written by their dtypes.
void program_run(const Program *p, char *const own[]);
