// plait explain --algorithms: for every op that can be computed in several ways over several ranks, what each would
// cost and which is taken.
#include "base/units.h"
#include "cmd/explain.h"
#include "compile/algorithm_call.h"
#include "op/op.h"
#include <string.h>

static const struct { const char *key; } choices[] = {
#define ALGORITHM_CHOICE(id, key, what) {key},
#include "ir/algorithms.def"
};
static const struct { AlgorithmChoice choice; } algorithms[] = {
    {CHOICE_COUNT},
#define ALGORITHM(id, choice, name, what) {CHOICE_##choice},
#include "ir/algorithms.def"
};

// A node of forward that was chosen for: gradients are computed as it is.
static int is_chosen(const Node *n) {
  return n->region == REGION_MICRO && n->phase == PHASE_FORWARD && op_def(n->op)->algorithms &&
         algorithm_listed(op_def(n->op)->choice, n->algorithm);
}

static int same_call(const AlgorithmCall *a, const AlgorithmCall *b) {
  return !memcmp(a->size, b->size, sizeof a->size) && a->ranks == b->ranks && a->bytes == b->bytes;
}

static void print_candidate(AlgorithmChoice choice, AlgorithmName name, AlgorithmName taken, const AlgorithmCall *call,
                            FILE *out) {
  const Algorithm *a = algorithm_listed(choice, name);
  char why[160];
  fprintf(out, "  %-9s", algorithm_text(name));
  if (!a) fprintf(out, "is not built yet\n");
  else if (!algorithm_accepts(a, call, why, sizeof why)) fprintf(out, "cannot: %s\n", why);
  else {
    AlgorithmCost cost = a->cost(call);
    fprintf(out, "%14.0f %14.0f %14.0f   %10s%s\n", cost.forward, cost.backward, cost.forward + cost.backward,
            units_bytes(cost.held).s, name == taken ? "   taken" : "");
  }
}

// Why `auto` took it: others may move as little, and of these others may hold as much.
static const char *reason(AlgorithmChoice choice, AlgorithmName taken, const AlgorithmCall *call, char text[160]) {
  const Algorithm *best = algorithm_listed(choice, taken);
  AlgorithmCost least = best->cost(call);
  const char *more = NULL, *equal = NULL;
  for (int name = 1; name < ALGORITHM_COUNT; name++) {
    const Algorithm *a = algorithm_listed(choice, (AlgorithmName)name);
    if (!a || a == best || !algorithm_accepts(a, call, NULL, 0)) continue;
    AlgorithmCost cost = a->cost(call);
    if (cost.forward + cost.backward != least.forward + least.backward) continue;
    *(cost.held == least.held ? &equal : &more) = algorithm_text((AlgorithmName)name);
  }
  if (equal) snprintf(text, 160, "it is the first of those that move the fewest elements and hold the fewest bytes");
  else if (more) snprintf(text, 160, "it moves the fewest elements, as %s does, and holds fewer bytes", more);
  else snprintf(text, 160, "it moves the fewest elements");
  return text;
}

static void print_choice(const Graph *g, const Node *first, const Node *last, int count, const AlgorithmCall *call,
                         int asked, FILE *out) {
  AlgorithmChoice choice = op_def(first->op)->choice;
  char why[160];
  fprintf(out, "%s", first->name);
  if (count > 1) fprintf(out, " … %s (%d of them)", last->name, count);
  fprintf(out, ": %s, over %d ranks, because %s\n", algorithm_text(first->algorithm), call->ranks,
          asked ? "the recipe says so" : reason(choice, first->algorithm, call, why));
  fprintf(out, "  %-9s%14s %14s %14s   %10s\n", "", "forward", "backward", "both", "held");
  for (int name = 1; name < ALGORITHM_COUNT; name++)
    if (algorithms[name].choice == choice) print_candidate(choice, (AlgorithmName)name, first->algorithm, call, out);
}

int explain_algorithms(const Graph *g, const Mesh *mesh, const StepParallel *asked, FILE *out) {
  int said = 0;
  for (int i = 0; i < g->node.count;) {
    const Node *n = &g->node.data[i++], *last = n;
    if (!is_chosen(n)) continue;
    AlgorithmCall call = algorithm_call_of(g, n, mesh, asked->ulysses);
    int count = 1;
    for (int k = i; k < g->node.count; k++) {
      const Node *m = &g->node.data[k];
      if (!is_chosen(m)) continue;
      AlgorithmCall other = algorithm_call_of(g, m, mesh, asked->ulysses);
      if (m->op != n->op || m->algorithm != n->algorithm || !same_call(&call, &other)) break;
      last = m;
      count++;
      i = k + 1;
    }
    if (!said++)
      fprintf(out, "of one operation on one microbatch: elements that a rank receives, and bytes of operands and "
                   "results that it holds in backward\n");
    print_choice(g, n, last, count, &call, asked->context != ALGORITHM_NONE, out);
  }
  if (said) return said;
  fprintf(out, "nothing to choose:");
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) fprintf(out, "%s %s", i ? "," : "", choices[i].key);
  fprintf(out, " has no effect on this mesh\n");
  return 0;
}
