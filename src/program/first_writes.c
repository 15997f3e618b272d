// Which node is the first of a step to touch an accumulator.
#include "program/first_writes.h"
#include "base/fault.h"
#include "op/op.h"

// The first node of a step's microbatches that reads or writes a Variable or its Copies, and in which; NULL: none.
typedef struct Touch {
  const Node *node;
  int microbatch;
} Touch;

static int operand_variable(const Graph *g, const Node *n, int k) {
  int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
  return t < 0 ? -1 : graph_tensor(g, t)->variable;
}

static int times_touched(const Graph *g, const Node *n, int variable) {
  int times = 0;
  for (int k = 0; k < n->ninput + n->noutput; k++) times += operand_variable(g, n, k) == variable;
  return times;
}

static void note_body(const Program *p, const Body *body, int microbatch, Touch *first) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int v = operand_variable(p->graph, n, k);
      if (v >= 0 && !first[v].node) first[v] = (Touch){n, microbatch};
    }
  }
}

// Along the actions of one step. In a stream one turn of the list has actions of several steps: the highest number is
// that of the newest, and so has a step's first actions. A body's first run is enough: others touch nothing new.
static void find_first(const Program *p, Touch *first) {
  const ActionList *list = &p->schedule->list[p->coordinate];
  char *seen = xcalloc((size_t)p->graph->stages * PHASE_COUNT, 1);
  for (int step = p->schedule->steps - 1; step >= 0; step--)
    for (int i = 0; i < list->count; i++) {
      const Action *a = &list->data[i];
      if (a->part != LIST_BODY || a->step != step || !action_runs_body(a)) continue;
      int body = a->stage * PHASE_COUNT + (int)action_phase(a);
      if (seen[body]) continue;
      seen[body] = 1;
      note_body(p, &p->micro[a->stage][action_phase(a)], a->microbatch, first);
    }
  free(seen);
}

// How often BEGIN touches each Variable. The caller frees it.
static int *touches_in_begin(const Program *p) {
  const Graph *g = p->graph;
  int *times = xcalloc((size_t)g->variable.count + 1, sizeof *times);
  for (int i = 0; i < p->begin.count; i++) {
    const Node *n = &g->node.data[p->begin.instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++)
      if (operand_variable(g, n, k) >= 0) times[operand_variable(g, n, k)]++;
  }
  return times;
}

// The Variable that an instruction of BEGIN sets to zero, where BEGIN does nothing else with it; else -1.
static int zeroed(const Program *p, const Node *fill, const int *times) {
  if (!node_is(fill, ROLE_FILL) || node_attr(fill, FillAttr)->value != 0) return -1;
  const Tensor *t = graph_tensor(p->graph, fill->output[0]);
  if (t->variable < 0 || t->copy >= 0) return -1;
  return times[t->variable] == times_touched(p->graph, fill, t->variable) ? t->variable : -1;
}

// Reads the accumulator to add to it and for nothing else, on the ranks that would have set it to zero.
static int may_store(const Program *p, const Node *n, const Node *fill, int variable) {
  int i = op_accumulator(p->graph, n);
  return i >= 0 && operand_variable(p->graph, n, i) == variable && times_touched(p->graph, n, variable) == 2 &&
         node_owner(p->graph, n) == node_owner(p->graph, fill);
}

#ifdef PLAIT_FAULTS
static void mark_all(Program *p, int variable) {
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    int k = n->region == REGION_MICRO ? op_accumulator(p->graph, n) : -1;
    if (k >= 0 && operand_variable(p->graph, n, k) == variable) p->stores[i] = 1 + k;
  }
}
#endif

void first_writes(Program *p) {
  const Graph *g = p->graph;
  p->stores = arena_array(&p->arena, int, g->node.count + 1);
  Touch *first = xcalloc((size_t)g->variable.count + 1, sizeof *first);
  find_first(p, first);
  int kept = 0, *times = touches_in_begin(p);
  for (int i = 0; i < p->begin.count; i++) {
    const Node *fill = &g->node.data[p->begin.instruction[i].node];
    int v = zeroed(p, fill, times);
    const Touch *t = v < 0 ? NULL : &first[v];
    if (!t || !t->node || t->microbatch || !may_store(p, t->node, fill, v)) {
      p->begin.instruction[kept++] = p->begin.instruction[i];
      continue;
    }
    p->stores[t->node->id] = 1 + op_accumulator(g, t->node);
#ifdef PLAIT_FAULTS
    FAULT(every_writer_stores, (void)0, mark_all(p, v));
#endif
  }
  p->begin.count = kept;
  free(times);
  free(first);
}
