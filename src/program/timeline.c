// The time of a list of actions: a walk along it that notes when each instance is made and needed last.
#include "base/fault.h"
#include "program/lives.h"
#include "program/memory.h"
#include "schedule/walk.h"
#include <string.h>

typedef struct Open { int lower, last; } Open; // of an instance that holds something; lower -1: it does not

typedef struct Clock {
  const Program *p;
  const int *root;
  Timeline *t;
  Open *open; // (instances)
  int now, body; // body: tick of the first instruction of the one under way
} Clock;

static void close_span(Clock *c, int instance) {
  Open *o = &c->open[instance];
  if (o->lower >= 0) vec_push(&c->t->span, (LiveSpan){instance, o->lower, o->last + 1});
  o->lower = -1;
}

static int instance_of(const Clock *c, int tensor, int number) {
  const TensorPlace *place = &c->p->place[c->root[tensor]];
  return place->count ? place->first + number % place->count : -1;
}

static void make(Clock *c, int instance, int until) {
  close_span(c, instance);
  c->open[instance] = (Open){c->now, until};
}

// A tensor that is read without having been made is a term that another pipeline rank has.
static void need(Clock *c, int instance, int until) {
  if (c->open[instance].lower < 0) make(c, instance, until);
  if (until > c->open[instance].last) c->open[instance].last = until;
}

static void read(Clock *c, const Action *a, int tensor, int until) {
  int instance = tensor < 0 ? -1 : instance_of(c, tensor, a->microbatch);
  if (instance < 0) return;
  if (FAULT(slot_dies_before_weights, 0, a->kind == ACTION_WEIGHT && c->p->place[tensor].area == AREA_SLOT)) return;
  need(c, instance, FAULT(memory_dies_too_early, until, 0));
}

// A tensor that a REDUCE has started, or that is made in the memory of an input, is there already.
static void write(Clock *c, const Action *a, int tensor, int until) {
  int instance = instance_of(c, tensor, a->microbatch);
  if (instance < 0) return;
  if (c->root[tensor] != tensor || c->p->place[tensor].area == AREA_COMM) need(c, instance, until);
  else make(c, instance, until);
}

static void run_body(Clock *c, const Body *body, const Action *a) {
  int end = a->to ? a->to : body->count;
  if (!a->from) c->body = c->now;
  CHECK(c->now == c->body + a->from, "a part of a body does not follow the one before");
  for (int i = a->from; i < end; i++, c->now++) {
    const Instruction *x = &body->instruction[i];
    const Node *n = &c->p->graph->node.data[x->node];
    int until = c->body + instruction_end(body, i);
    for (int k = 0; k < n->ninput; k++) read(c, a, n->input[k], until);
    for (int k = 0; k < n->noutput; k++) write(c, a, n->output[k], until);
    if (x->count)
      vec_push(&c->t->span, (LiveSpan){x->first + a->microbatch % x->count, c->now, c->now + 1});
  }
  if (end == body->count) c->now++;
}

static void run(Clock *c, const Action *a) {
  const Program *p = c->p;
  c->t->start[a - p->actions.data] = c->now;
  if (action_runs_body(a)) run_body(c, &p->micro[a->stage][action_phase(a)], a);
  else if (a->kind == ACTION_BEGIN) run_body(c, &p->begin, a);
  else if (a->kind == ACTION_END) run_body(c, &p->end, a);
  else if (a->kind == ACTION_RECV) make(c, instance_of(c, a->tensor, a->microbatch), c->now), c->now++;
  else if (a->kind == ACTION_REDUCE) {
    const Node *n = &p->graph->node.data[a->node];
    for (int k = 0; k < n->noutput; k++)
      if (p->place[n->output[k]].count) make(c, instance_of(c, n->output[k], 0), c->now);
  }
}

static int visit(void *context, const WalkStep *step) {
  Clock *c = context;
  if (step->kind == WALK_RUN) run(c, step->action);
  if (step->kind != WALK_WAIT) return 1;
  int instance = instance_of(c, c->p->actions.data[step->send].tensor, step->microbatch);
  if (FAULT(memory_of_messages_is_reused, instance >= 0, 0)) need(c, instance, c->now);
  c->now++;
  return 1;
}

void timeline_make(const Program *p, const int *root, Timeline *t) {
  *t = (Timeline){.start = xcalloc((size_t)p->actions.count + 1, sizeof *t->start)};
  Clock c = {.p = p, .root = root, .t = t, .open = xcalloc((size_t)p->instances + 1, sizeof *c.open)};
  for (int i = 0; i < p->instances; i++) c.open[i].lower = -1;
  WalkPlan plan = program_walk(p);
  Walk *walk = walk_create(&plan);
  walk_run(walk, visit, &c);
  walk_destroy(walk);
  for (int i = 0; i < p->instances; i++) close_span(&c, i);
  t->end = c.now;
  free(c.open);
}

void timeline_free(Timeline *t) {
  vec_free(&t->span);
  free(t->start);
}
