// run.verify: each kernel of a step is compared with the CPU's on the operands that it really had: where a run goes
// wrong on a device, this names the first kernel that does.
#pragma once
#include "device/device.h"
#include "program/program.h"

typedef struct Verify Verify;

// `rank` is said where something differs. The Program and the queue, of the rank's kernels, are borrowed. A CPU's own
// kernels are compared with the reference kernels.
Verify *verify_create(const Program *program, DeviceQueue *queue, int rank);
void verify_destroy(Verify *v); // NULL is fine

typedef struct VerifyResult {
  int64_t calls;   // that were compared
  double share;    // the largest error over its bound
  char worst[128]; // the node of it
} VerifyResult;
// After the step that it has observed: PLAIT_FAILED, with a sentence that names the first node that differs.
int verify_end(Verify *v, int64_t step, VerifyResult *result, Error *error);
