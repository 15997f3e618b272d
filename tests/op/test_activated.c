// tier 1; rooms device; numbers
// Products with their activation on the CPU, where other devices send them: at each level, in each dtype, the bits of
// the product and of the activation apart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cpu/cpu.h"
#include "same_case.h"
#include <stdlib.h>
#include <string.h>

static void run(CpuLevel level, Op op, const KernelCall *call) {
  const KernelEntry *entry = cpu_find(level, op, call->input[0].dtype);
  KernelCall with = *call;
  assert_non_null(entry);
  size_t bytes = entry->workspace ? entry->workspace(call->input, call->output, call->attr, 1) : 0;
  with.workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
  with.workspace_size = bytes;
  entry->kernel(&with);
  free(with.workspace);
}

// Two nodes: the product into what the joined node keeps, or into its output, and what is applied to it.
static void run_apart(CpuLevel level, const OpCase *c) {
  KernelCall call = op_case_call(c);
  const MatmulActivationAttr *attr = call.attr;
  const ActivationAttr kind = {attr->kind};
  const int is_slope = c->op == OP_MATMUL_ACTIVATION_GRAD;
  Operand x[2 + DEVICE_OPTIONAL_OPERANDS] = {attr->keeps ? c->output[1] : c->output[0]}, input[CASE_INPUTS] = {{0}};
  for (int k = 0; k < c->ninput - is_slope; k++) input[k] = c->input[k];
  KernelCall product = call, second = call;
  product.ninput -= is_slope;
  product.noutput = second.noutput = 1;
  product.input = input;
  product.attr = &attr->product;
  Operand made[1 + DEVICE_OPTIONAL_OPERANDS] = {x[0]};
  product.output = made;
  if (is_slope) x[1] = x[0], x[0] = c->input[2];
  second.input = x;
  second.ninput = 1 + is_slope;
  second.attr = &kind;
  run(level, OP_MATMUL, &product);
  run(level, is_slope ? OP_ACTIVATION_GRAD : OP_ACTIVATION, &second);
}

static void bits_of_two_nodes(void **state) {
  int compared = 0;
  for (int i = 0; i < op_cases_count(); i++) {
    if (!strstr(op_case_name(i), "matmul_activation")) continue;
    for (int level = 0; level < CPU_LEVELS; level++)
      for (int dtype = DTYPE_F64; dtype <= DTYPE_F16 && cpu_level_available((CpuLevel)level); dtype++) {
        OpCase joined, apart, slow;
        char where[160];
        op_case_get(i, (Dtype)dtype, &joined);
        op_case_copy(&joined, &apart);
        op_case_copy(&joined, &slow);
        snprintf(where, sizeof where, "%s %s %s", joined.name, dtype_name((Dtype)dtype),
                 cpu_level_name((CpuLevel)level));
        KernelCall call = op_case_call(&joined);
        run((CpuLevel)level, joined.op, &call);
        run_apart((CpuLevel)level, &apart);
        op_case_run(&slow);
        op_case_same_bits(&joined, &apart, where);
        op_case_compare(&joined, &slow, where);
        op_case_free(&slow);
        op_case_free(&apart);
        op_case_free(&joined);
        compared++;
      }
  }
  assert_true(compared >= 36);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bits_of_two_nodes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
