// Attention and its gradient as a graph of cuDNN's, and a plan by which it runs. Nothing here needs a device: a plan
// can be made for the properties of one (tests/device/test_cuda_attention_plans.c).
#pragma once
#include "base/dtype.h"
#include "base/vec.h"
#include "device/cuda/library.h"

// All that a plan depends on. q, out: (b, t, g, r, d), k, v: (b, t, g, d), logsumexp: (b, g, r, t), as the op has them.
// A query sees the keys from the first of its document (whole: of the sample) up to its own position. gradient: of it.
// same_bits: in each run, at the price of workspace as large as all scores.
typedef struct AttentionKey {
  int64_t b, t, g, r, d;
  double scale;
  int32_t dtype, gradient, same_bits, whole; // without padding: keys are compared by their bytes
} AttentionKey;

// Operands in memory, and the three numbers that a graph takes by value. starts (b, t), i32, unless whole: the first
// key of a query's document; sums (b, g, r, t), f32: Σ dout out, which a gradient uses within; dq_sums (b, g, r, t, d),
// f32: dq before it is rounded.
typedef enum AttentionOperand {
  ATTENTION_Q,
  ATTENTION_K,
  ATTENTION_V,
  ATTENTION_OUT,
  ATTENTION_LOGSUMEXP,
  ATTENTION_STARTS,
  ATTENTION_DOUT,
  ATTENTION_DQ,
  ATTENTION_DK,
  ATTENTION_DV,
  ATTENTION_SUMS,
  ATTENTION_DQ_SUMS,
  ATTENTION_SCALE,
  ATTENTION_MASKED,
  ATTENTION_ONE,
  ATTENTION_OPERANDS
} AttentionOperand;

// Numbers of tensors are those of AttentionOperand plus 1; of others they begin here.
enum { ATTENTION_NUMBER = 1, ATTENTION_INNER = 100, ATTENTION_ALIGNED = 16 };

// Plans are made for a device that is there, by its handle, or for the properties of one (DNN_PROPERTIES).
typedef struct DnnTarget { DnnHandle handle; DnnDescriptor properties; } DnnTarget;

typedef struct AttentionPlan {
  DnnDescriptor plan;
  int64_t workspace;           // bytes
  Vec(DnnDescriptor) made;     // all descriptors, in order
  int used[ATTENTION_OPERANDS]; // whether it is an operand
  const char *failed;          // which call the library has refused
} AttentionPlan;

// Bytes of workspace that a plan may have: those that cuDNN's were seen to ask for, and 1 MiB.
int64_t attention_plan_room(const AttentionKey *key);

// The first plan that the library proposes and can make. *plan: to be freed after an error too.
DnnStatus attention_plan_make(const CudaDnn *dnn, const DnnTarget *target, const AttentionKey *key,
                              AttentionPlan *plan);
void attention_plan_free(const CudaDnn *dnn, AttentionPlan *plan);
// Puts it into the handle's stream. at: of each operand that is used, in the device's memory.
DnnStatus attention_plan_run(const CudaDnn *dnn, DnnHandle handle, const AttentionPlan *plan, const AttentionKey *key,
                             void *const at[ATTENTION_OPERANDS], void *workspace);
