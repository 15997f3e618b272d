// Bytes touched between a kernel that leaves an operand in the cache and the one that reads it.
#include "machine/cache.h"
#include "base/fault.h"
#include "program/cost.h"

// A place that tensors have in common: a Variable, or one of its Copies; else a tensor has its own.
static int storage_of(const Graph *g, int tensor) {
  const Tensor *t = graph_tensor(g, tensor);
  if (t->variable < 0) return tensor;
  return g->tensor.count + t->variable * (MAX_COPIES + 1) + t->copy + 1;
}

static int operand(const Node *n, int k) { return k < n->ninput ? n->input[k] : n->output[k - n->ninput]; }

void cache_held(const Program *p, const Body *body, int microbatch, double cache, double *held) {
  const Graph *g = p->graph;
  Arena arena = {0};
  double touched = 0, *since = arena_array(&arena, double, g->tensor.count +
                                                               g->variable.count * (MAX_COPIES + 1));
  for (int i = 0; i < body->count; i++) { // since: 1 + the bytes touched before a storage's last kernel; 0: none yet
    const Node *n = &g->node.data[body->instruction[i].node];
    int operands = n->ninput + n->noutput;
    if (n->refreshes) continue; // passed over
    double *bytes = arena_array(&arena, double, operands + 1), begin = touched;
    program_operand_bytes(p, n, microbatch, bytes);
    held[i] = 0;
    for (int k = 0; k < operands; k++) {
      if (operand(n, k) < 0) continue;
      double last = since[storage_of(g, operand(n, k))];
      if (k < n->ninput && last > 0 && FAULT(cache_holds_everything, begin - (last - 1) <= cache, 1))
        held[i] += bytes[k];
      touched += bytes[k];
    }
    for (int k = 0; k < operands; k++)
      if (operand(n, k) >= 0) since[storage_of(g, operand(n, k))] = 1 + begin;
  }
  arena_free(&arena);
}
