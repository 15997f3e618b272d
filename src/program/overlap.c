// Communication while the rank computes: where gradient collectives of END start (after the last instruction that
// writes one of their accumulators), and until when collectives of a body may be in flight.
#include "program/overlap.h"
#include "base/fault.h"
#include "op/op.h"

typedef struct Start { int node, action, instruction; } Start; // action: index into the schedule's list

static const Body *body_of(const Program *p, const Action *a) {
  return action_runs_body(a) ? &p->micro[a->stage][action_phase(a)] : NULL;
}

// The last instruction of the step's microbatches that writes the Variable; action -1 when none does.
static Start last_writer(const Program *p, int variable) {
  const ActionList *list = &p->schedule->list[p->coordinate];
  for (int i = FAULT(overlap_starts_too_early, list->count - 1, list->count / 2); i >= 0; i--) {
    const Body *body = body_of(p, &list->data[i]);
    for (int k = body ? body->count - 1 : -1; k >= 0; k--) {
      const Node *n = &p->graph->node.data[body->instruction[k].node];
      for (int o = 0; o < n->noutput; o++)
        if (graph_tensor(p->graph, n->output[o])->variable == variable) return (Start){.action = i, .instruction = k};
    }
  }
  return (Start){.action = -1};
}

// 1 and the start of a collective that may go out early: all its inputs are accumulators as MICRO left them, and its
// group lies within this stage (ranks of other stages complete theirs at other times).
static int early(const Program *p, const Node *n, Start *start) {
  *start = (Start){.node = n->id, .action = -1};
  if (!op_def(n->op)->communicates || node_attr(n, CommAttr)->axes >> mesh_pipeline(&p->mesh) & 1) return 0;
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = graph_tensor(p->graph, n->input[k]);
    if (t->variable < 0 || t->producer >= 0 || p->graph->variable.data[t->variable].kind != VARIABLE_GRADIENT) return 0;
    Start s = last_writer(p, t->variable);
    if (s.action < 0) return 0;
    if (s.action > start->action || (s.action == start->action && s.instruction > start->instruction))
      start->action = s.action, start->instruction = s.instruction;
  }
  return 1;
}

static int by_time(const void *a, const void *b) {
  const Start *x = a, *y = b;
  if (x->action != y->action) return x->action - y->action;
  return x->instruction != y->instruction ? x->instruction - y->instruction : x->node - y->node;
}

void overlap_actions(Program *p, int overlap) {
  Vec(Start) starts = {0};
  for (int i = 0; overlap && i < p->end.count; i++) {
    Start s;
    if (early(p, &p->graph->node.data[p->end.instruction[i].node], &s)) vec_push(&starts, s);
  }
  if (starts.count) qsort(starts.data, (size_t)starts.count, sizeof *starts.data, by_time);
  const ActionList *list = &p->schedule->list[p->coordinate];
  for (int i = 0, next = 0; i < list->count; i++) {
    Action a = list->data[i];
    int from = 0;
    for (; next < starts.count && starts.data[next].action == i; next++) {
      int to = starts.data[next].instruction + 1;
      if (to > from) {
        Action part = a;
        part.from = from;
        part.to = to;
        vec_push(&p->actions, part);
        from = to;
      }
      vec_push(&p->actions, (Action){.kind = ACTION_REDUCE,
                                     .stage = a.stage,
                                     .microbatch = a.microbatch,
                                     .node = starts.data[next].node});
    }
    const Body *body = body_of(p, &a);
    if (a.kind == ACTION_SUMS) a.to = p->end_cut;
    if (a.kind == ACTION_END && p->schedule->streams) a.from = p->end_cut, a.to = p->end.count;
    if (!body || from < body->count || !from) {
      if (body) a.from = from, a.to = body->count;
      vec_push(&p->actions, a);
    }
  }
  vec_free(&starts);
}

// Touches memory that a collective in flight reads or writes. Its inputs may be read by others, but not written. A
// write to a Variable's storage counts as one to its Copies too.
static int touches(const Graph *g, const Node *n, const Node *collective) {
  for (int c = 0; c < collective->noutput; c++)
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] == collective->output[c]) return 1;
  for (int c = 0; c < collective->ninput; c++)
    for (int k = 0; k < n->noutput; k++) {
      int v = graph_tensor(g, n->output[k])->variable;
      if (v >= 0 && v == graph_tensor(g, collective->input[c])->variable) return 1;
    }
  return 0;
}

// The instruction of a body before which what instruction i starts must be done, but none before `from`.
static int first_touch(const Program *p, const Body *body, int i, int from) {
  const Graph *g = p->graph;
  while (from < body->count &&
         !touches(g, &g->node.data[body->instruction[from].node], &g->node.data[body->instruction[i].node]))
    from++;
  return from;
}

static int has_kernel(const Program *p, const Body *body, int from, int to) {
  for (int i = from; i < to; i++)
    if (!op_def(p->graph->node.data[body->instruction[i].node].op)->communicates) return 1;
  return 0;
}

void overlap_sums(Program *p) {
  Body *end = &p->end;
  for (int i = 0; i < p->end_cut; i++) {
    const Node *n = &p->graph->node.data[end->instruction[i].node];
    if (!op_def(n->op)->communicates || !(node_attr(n, CommAttr)->axes >> mesh_pipeline(&p->mesh) & 1)) continue;
    end->instruction[i].wait = first_touch(p, end, i, p->end_cut);
  }
}

void overlap_body(Program *p, Body *body) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    if (!op_def(n->op)->communicates) continue;
    int bound = 0, until = first_touch(p, body, i, i + 1);
    for (int k = 0; k < n->noutput; k++) bound |= graph_tensor(p->graph, n->output[k])->variable >= 0;
    if (!bound && has_kernel(p, body, i + 1, until))
      body->instruction[i].wait = FAULT(overlap_waits_too_late, until, until < body->count ? until + 1 : until);
  }
}

static void move_meanwhile(const Program *p, Body *body) {
  for (int i = 0; i < body->count; i++)
    if (node_is(&p->graph->node.data[body->instruction[i].node], ROLE_MOVE))
      body->instruction[i].wait = FAULT(moves_are_not_waited_for, first_touch(p, body, i, i + 1), body->count);
}

void overlap_moves(Program *p) {
  move_meanwhile(p, &p->begin);
  move_meanwhile(p, &p->end);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) move_meanwhile(p, &p->micro[s][phase]);
}
