// An op says which outputs may be made in the memory of inputs (OpDef.in_place, OpDef.accumulated); here is found where
// an input's life ends.
#include "program/in_place.h"
#include "base/fault.h"
#include "op/op.h"
#include "program/memory.h"
#include <string.h>

// Of a tensor: the group of bodies that make it and read it (BEGIN, END, or a stage, whose phases follow each other);
// when the last reading ends, and when that began; the end of all others.
typedef struct Use { int group, made, last, begun, others, elsewhere; } Use;

static void note_use(Use *u, int group, int begins, int ends) {
  if (u->group != group) u->elsewhere = 1;
  int other = ends > u->last ? u->last : ends;
  if (ends > u->last) u->last = ends, u->begun = begins;
  if (other > u->others) u->others = other;
}

// Times of a group's bodies follow one another, from `*time` on.
static void note_body(const Program *p, const Body *body, int group, int *time, Use *use) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->noutput; k++) use[n->output[k]].group = group, use[n->output[k]].made = 1;
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] >= 0) note_use(&use[n->input[k]], group, *time + i, *time + instruction_end(body, i));
  }
  *time += body->count + 1;
}

// A message may be under way for as long as its buffer is not needed again. One that has been received is made before
// all instructions of its stage.
static void note_messages(const Program *p, int stage, int group, Use *use) {
  for (int phase = 0; phase < PHASE_COUNT; phase++) {
    const Segment *s = &p->segments->micro[stage][phase];
    for (int i = 0; i < s->send.count; i++)
      if (!program_runs(p, s->send.data[i].stage)) use[s->send.data[i].tensor].elsewhere = 1;
    for (int i = 0; i < s->receive.count; i++)
      if (!program_runs(p, s->receive.data[i].stage))
        use[s->receive.data[i].tensor].group = group, use[s->receive.data[i].tensor].made = 1;
  }
}

// Of an instruction that begins then. A collective that is under way may end after others that read its operand: they
// must have ended before it writes there.
static int may_share(const Program *p, const Use *use, int in, int out, int begins, int within_areas) {
  const Tensor *a = graph_tensor(p->graph, in), *b = graph_tensor(p->graph, out);
  Area x = p->place[in].area, y = p->place[out].area;
  if ((x != AREA_WORK && x != AREA_SLOT) || (y != AREA_WORK && y != AREA_SLOT) || (within_areas && x != y)) return 0;
  const Use *u = &use[in];
  return u->made && FAULT(in_place_of_what_is_read, !u->elsewhere && u->begun == begins && u->others < begins, 1) &&
         u->group == use[out].group && a->dtype == b->dtype &&
         tensor_allocated(p->graph, a) == tensor_allocated(p->graph, b) && a->mask == b->mask &&
         memory_tensor_bytes(p, a) == memory_tensor_bytes(p, b);
}

static void share_in_body(const Program *p, const Body *body, int *time, const Use *use, int within_areas, int *root) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    const OpDef *op = op_def(n->op);
    int pairs = node_calls(n, COMM_REDUCE) ? n->noutput : op->in_place; // a bucket of sums that one rank owns
    for (int k = 0; k < pairs && k < n->noutput && k < n->ninput; k++)
      if (n->input[k] >= 0 &&
          may_share(p, use, n->input[k], n->output[k], *time + i, within_areas))
        root[n->output[k]] = root[n->input[k]];
    int sum = op->accumulated ? op->accumulated(n) : -1, added = n->ninput - 1;
    if (sum >= 0 && root[n->output[sum]] == n->output[sum] &&
        may_share(p, use, n->input[added], n->output[sum], *time + i, within_areas))
      root[n->output[sum]] = root[n->input[added]];
  }
  *time += body->count + 1;
}

int *in_place_roots(const Program *p, int within_areas) {
  int count = p->graph->tensor.count, *root = xcalloc((size_t)count + 1, sizeof *root);
  Use *use = xcalloc((size_t)count + 1, sizeof *use);
  for (int t = 0; t < count; t++) root[t] = t, use[t].last = use[t].others = use[t].begun = use[t].group = -1;
  for (int pass = 0; pass < 2; pass++) { // uses, then shares
    int time = 0;
    const Body *alone[] = {&p->begin, &p->end};
    for (int b = 0; b < 2; b++)
      if (!pass) note_body(p, alone[b], b, &time, use);
      else share_in_body(p, alone[b], &time, use, within_areas, root);
    for EACH_PROGRAM_STAGE(s, p) {
      if (!pass) note_messages(p, s, 2 + s, use);
      for (int phase = 0; phase < PHASE_COUNT; phase++)
        if (!pass) note_body(p, &p->micro[s][phase], 2 + s, &time, use);
        else share_in_body(p, &p->micro[s][phase], &time, use, within_areas, root);
    }
  }
  free(use);
  return root;
}
