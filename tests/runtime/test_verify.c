// rooms check; numbers
// run.verify: the observer that compares kernels with those of the host, by kernels that are right, and one that is
// not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/op_case.h"
#include "runtime/observer.h"
#include "runtime/verify.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A call as the executor reports it; `factor` is what is wrong with an element of the output then.
static int observe(const char *name, double factor, VerifyResult *result, Error *error) {
  OpCase c = op_case_named(name);
  const Program program = {.graph = c.graph};
  DeviceQueue *queue;
  assert_int_equal(device_queue_create(device_cpu(), NULL, &queue, error), 0);
  Verify *v = verify_create(&program, queue, 3);
  KernelCall call = op_case_call(&c);
  const Node *node = &c.graph->node.data[c.node];
  observer_verify.see(v, &(Observation){.event = OBSERVE_KERNEL, .node = node, .call = &call, .microbatch = 2});
  op_case_run(&c);
  operand_store(&c.output[0], 5, operand_load(&c.output[0], 5) * factor);
  observer_verify.see(
      v, &(Observation){.event = OBSERVE_INSTRUCTION_END, .node = node, .output = c.output, .microbatch = 2});
  int code = verify_end(v, 7, result, error);
  verify_destroy(v);
  device_queue_destroy(queue);
  op_case_free(&c);
  return code;
}

static void right_kernels_pass(void **state) {
  static const char *const names[] = {"rms_norm", "matmul nt", "matmul tn accumulate", "adamw", "dispatch"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    VerifyResult result;
    Error error = {0};
    if (observe(names[i], 1, &result, &error)) fail_msg("%s", error.message);
    assert_int_equal(result.calls, 1);
    assert_true(result.share == 0);
    assert_non_null(strstr(result.worst, names[i]));
  }
}

static void a_wrong_kernel_is_named(void **state) {
  VerifyResult result;
  Error error = {0};
  assert_int_equal(observe("rms_norm", 1 + 1e-10, &result, &error), PLAIT_FAILED);
  assert_non_null(strstr(error.message,
                         "run.verify: step 7: the first kernel whose result is not that of the reference "
                         "kernel: rms_norm rms_norm, forward of microbatch 2, rank 3: output 0 [5]: "));
  error = (Error){0}; // an update in place: its operands are those from before it
  assert_int_equal(observe("adamw", 1 + 1e-10, &result, &error), PLAIT_FAILED);
  error = (Error){0};
  assert_int_equal(observe("rms_norm", NAN, &result, &error), PLAIT_FAILED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right_kernels_pass), cmocka_unit_test(a_wrong_kernel_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
