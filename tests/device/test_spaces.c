// tier 1 2; rooms compile program runtime; numbers
// A second space of a device: moments lie in far memory, which no kernel and no pointer of the host's reaches, and are
// moved for the update.
#include "proof.h"
#include "runtime/session.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the three above first
#include <cmocka.h>

static int is_moment(const Variable *v) { return v->kind == VARIABLE_OPTIMIZER && v->shape.rank > 0; }
static int is_large(const Variable *v) { return variable_is_saved(v) && v->shape.rank > 1; }
static void moments_are_far(CompileOptions *o) { o->far = is_moment; }
static void all_matrices_are_far(CompileOptions *o) { o->far = is_large; }

static const Device *two_spaces(void) {
  static Device device;
  if (!device.spaces) device = device_beside_far(device_cpu());
  return &device;
}

static void moments_in_far_memory(void **state) {
  proof_of(&(Proof){.device = two_spaces(), .set = moments_are_far});
}

// Parameters, too: MICRO fetches them for every microbatch, forward and backward.
static void matrices_in_far_memory(void **state) {
  Proof p = {.keys = "mesh.dp=2", .device = two_spaces(), .set = all_matrices_are_far, .first = 1, .last = PROOF_STEPS};
  const ProofResult *far = proof_run(&p);
  p.device = NULL;
  p.set = NULL;
  const ProofResult *plain = proof_run(&p);
  assert_memory_equal(far, plain, sizeof *far);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(moments_in_far_memory),
                                     cmocka_unit_test(matrices_in_far_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
