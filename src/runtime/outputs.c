// Copies outputs of a graph to the host.
#include "runtime/outputs.h"
#include "base/fault.h"
#include "runtime/observer.h"
#include <string.h>

// The rows of a microbatch that x holds, to their place in the step's.
static void copy_rows(const Outputs *o, const OutputCopy *to, const Observation *seen) {
  const Operand *x = &seen->output[0];
  int64_t rows = x->size[0], n = operand_elements(x), width = rows ? n / rows : 0;
  if (!n) return;
  char *copy = xcalloc((size_t)n, dtype_size(x->dtype));
  device_copy(seen->queue, DEVICE_TO_HOST, 0, copy, x->data, n * (int64_t)dtype_size(x->dtype));
  int64_t first =
      shares_first(o->shares, seen->microbatch, 0) + FAULT(outputs_of_one_rank, index_map(&x->map[0], 0), 0);
  if (!device_drain(seen->queue, NULL)) // else the run will say so
    for (int64_t i = 0; i < n; i++) dtype_store(to->data, to->dtype, first * width + i, dtype_load(copy, x->dtype, i));
  free(copy);
}

static void see(void *self, const Observation *seen) {
  const Outputs *o = self;
  if (!node_is(seen->node, ROLE_OUTPUT) || seen->left_to_owner) return;
  for (int i = 0; i < o->count; i++)
    if (o->output[i].data && !strcmp(o->output[i].node, seen->node->name)) copy_rows(o, &o->output[i], seen);
}

const ObserverDef observer_outputs = {"outputs", OBSERVES(INSTRUCTION_END), 0, see};
