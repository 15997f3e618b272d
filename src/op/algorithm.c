// Looks algorithms up and chooses by cost.
#include "op/algorithm.h"
#include "base/fault.h"
#include "op/op.h"

static const Algorithm *find(const OpDef *def, AlgorithmName name) {
  for (int i = 0; i < def->algorithms; i++)
    if (def->algorithm[i].name == name) return &def->algorithm[i];
  return NULL;
}

const Algorithm *algorithm_of_node(const Node *node) {
  const OpDef *def = op_def(node->op);
  if (!def->algorithms) return NULL;
  const Algorithm *a = node->algorithm ? find(def, node->algorithm) : &def->algorithm[0];
  CHECK(a, "%s: its op has no algorithm %s", node->name, algorithm_text(node->algorithm));
  return a;
}

const Algorithm *algorithm_listed(AlgorithmChoice choice, AlgorithmName name) {
  for (int op = 0; op < OP_COUNT; op++) {
    const OpDef *def = op_def((Op)op);
    const Algorithm *a = def->algorithms && def->choice == choice ? find(def, name) : NULL;
    if (a && a->cost) return a;
  }
  return NULL;
}

int algorithm_accepts(const Algorithm *a, const AlgorithmCall *call, char *why, size_t size) {
  if (size) why[0] = 0;
  return !a->accepts || a->accepts(call, why, size);
}

AlgorithmName algorithm_cheapest(AlgorithmChoice choice, const AlgorithmCall *call) {
  AlgorithmName best = ALGORITHM_NONE;
  AlgorithmCost least = {0};
  for (int name = 1; name < ALGORITHM_COUNT; name++) {
    const Algorithm *a = algorithm_listed(choice, (AlgorithmName)name);
    if (!a || !algorithm_accepts(a, call, NULL, 0)) continue;
    AlgorithmCost cost = a->cost(call);
    double moved = cost.forward + cost.backward, before = least.forward + least.backward;
    if (best && FAULT(algorithm_by_bytes_alone, moved > before || (moved == before && cost.held >= least.held),
                      cost.held >= least.held))
      continue;
    best = (AlgorithmName)name;
    least = cost;
  }
  return best;
}
