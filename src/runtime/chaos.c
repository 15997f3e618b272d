// Poisons memory that the plan says is unused, and delays calls.
#include "runtime/chaos.h"
#include "base/philox.h"
#include "program/in_place.h"
#include "program/lives.h"
#include "program/memory.h"
#include "runtime/observer.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Need { int64_t from, to; } Need; // bytes of the working memory

struct Chaos {
  const Program *p;
  char *work;     // an address of the device's
  DeviceQueue *queue;
  uint64_t state; // of the random numbers
  int rank;
  int *last;      // (nodes) first tensor that dies after the node + 1; 0: none
  int *next;      // (tensors) the next of that list + 1
  Timeline line;  // of a Program that is packed by the list
  int64_t *bytes; // (instances)
  Need *needed;   // (instances) room for those that are needed at a time
  char *variables;           // State's memory, and of it
  Vec(Need) empty;           // the accumulators that a step's first microbatch stores into (Program.stores)
};

uint64_t chaos_of_environment(void) {
  const char *text = getenv("PLAIT_CHAOS");
  return text ? strtoull(text, NULL, 10) : 0;
}

// The last instruction of a body that uses each tensor of the workspace; what nothing reads is looked at by others.
static void find_last_uses(Chaos *c, const Body *body, const int *root, char *shared, int *last) {
  const Graph *g = c->p->graph;
  memset(last, 0, sizeof(int) * (size_t)g->tensor.count);
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    int at = instruction_end(body, i);
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] >= 0 && last[n->input[k]] < at + 1) last[n->input[k]] = at + 1;
    for (int k = 0; k < n->noutput; k++)
      if (last[n->output[k]] && last[n->output[k]] < at + 1) last[n->output[k]] = at + 1;
  }
  for (int i = 0; i < body->count; i++) { // a tensor that is made in the memory of its operand continues to live there
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; k < n->noutput; k++)
      if (root[n->output[k]] != n->output[k]) last[root[n->output[k]]] = 0, shared[n->output[k]] = 1;
  }
  for (int t = 0; t < g->tensor.count; t++) {
    if (!last[t] || shared[t] || last[t] > body->count || c->p->place[t].area != AREA_WORK) continue;
    int node = body->instruction[last[t] - 1].node;
    c->next[t] = c->last[node];
    c->last[node] = t + 1;
  }
}

static void note_scratch(Chaos *c, const Body *body) {
  for (int i = 0; i < body->count; i++)
    for (int k = 0; k < body->instruction[i].count; k++)
      c->bytes[body->instruction[i].first + k] = body->instruction[i].scratch;
}

static void note_times(Chaos *c, const int *root) {
  const Program *p = c->p;
  c->bytes = xcalloc((size_t)p->instances + 1, sizeof *c->bytes);
  c->needed = xcalloc((size_t)p->instances + 1, sizeof *c->needed);
  for (int t = 0; t < p->graph->tensor.count; t++)
    for (int k = 0; k < p->place[t].count; k++)
      c->bytes[p->place[t].first + k] = memory_tensor_bytes(p, graph_tensor(p->graph, t));
  note_scratch(c, &p->begin);
  note_scratch(c, &p->end);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) note_scratch(c, &p->micro[s][phase]);
  timeline_make(p, root, &c->line);
}

// Of the State's own Program: others find their Variables by name. In a stream there are several instances, of
// which some may be in use.
static void find_empty(Chaos *c, const State *state) {
  const Program *p = c->p;
  c->variables = state->in[0].memory;
  for (int i = 0; i < p->graph->node.count && p == state->program && !p->schedule->streams; i++) {
    if (!p->stores[i]) continue;
    const Tensor *t = graph_tensor(p->graph, p->graph->node.data[i].input[p->stores[i] - 1]);
    if (!placement_here(&p->mesh, t->placement, c->rank)) continue;
    int64_t at = program_variable_place(p, t->variable, -1, state->turn).offset;
    vec_push(&c->empty, (Need){at, at + tensor_local_elements(p->graph, t) * (int64_t)dtype_size(t->dtype)});
  }
}

Chaos *chaos_create(const Program *p, const State *state, DeviceQueue *queue) {
  if (!p->chaos) return NULL;
  Chaos *c = xcalloc(1, sizeof *c);
  *c = (Chaos){.p = p,
               .work = state->in[0].work,
               .queue = queue,
               .rank = state->rank,
               .state = (p->chaos * 0x9e3779b97f4a7c15 ^ ((uint64_t)state->rank + 1)) | 1};
  c->last = xcalloc((size_t)p->graph->node.count + 1, sizeof *c->last);
  c->next = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *c->next);
  int *last = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *last), *root = in_place_roots(p, !p->packed);
  char *shared = xcalloc((size_t)p->graph->tensor.count + 1, 1);
  find_last_uses(c, &p->begin, root, shared, last);
  find_last_uses(c, &p->end, root, shared, last);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) find_last_uses(c, &p->micro[s][phase], root, shared, last);
  if (p->packed) note_times(c, root);
  find_empty(c, state);
  free(last);
  free(shared);
  free(root);
  return c;
}

void chaos_destroy(Chaos *c) {
  if (!c) return;
  free(c->last);
  free(c->next);
  timeline_free(&c->line);
  free(c->bytes);
  free(c->needed);
  vec_free(&c->empty);
  free(c);
}

// All bits 1: NaN in every floating-point type.
static void poison(const Chaos *c, char *at, int64_t bytes) {
  if (bytes > 0) device_fill(c->queue, at, 0xff, bytes);
}

static void poison_tensor(const Chaos *c, int tensor, int instance) {
  const TensorPlace *place = &c->p->place[tensor];
  const Tensor *x = graph_tensor(c->p->graph, tensor);
  int64_t at = c->p->offset[place->first + instance % place->count];
  if (at >= 0) poison(c, c->work + at, tensor_allocated(c->p->graph, x) * (int64_t)dtype_size(x->dtype));
}

// Of a Program that is packed body by body: a buffer's own memory.
static void poison_buffer(const Chaos *c, const WalkBuffer *b) {
  const Graph *g = c->p->graph;
  for (int t = 0; t < g->tensor.count && !c->p->packed; t++) {
    const TensorPlace *place = &c->p->place[t];
    if (place->count && place->stage == b->stage &&
        (b->is_slot ? place->area == AREA_SLOT : place->area == AREA_STAGING && place->phase == b->phase))
      poison_tensor(c, t, b->index);
  }
}

static void poison_all(const Chaos *c, Area area) {
  for (int t = 0; t < c->p->graph->tensor.count; t++)
    for (int k = 0; k < c->p->place[t].count && c->p->place[t].area == area; k++) poison_tensor(c, t, k);
}

// Poisons the tensors that live within the body about to run, where memory is packed body by body.
static void poison_body(const Chaos *c, const Action *a) {
  const Body *body = a->kind == ACTION_BEGIN  ? &c->p->begin
                     : action_runs_body(a)    ? &c->p->micro[a->stage][action_phase(a)]
                                              : &c->p->end;
  LifeList lives = {0};
  memory_body_lives(c->p, body, &lives);
  for (int i = 0; i < lives.count; i++) poison_tensor(c, lives.data[i].tensor, 0);
  vec_free(&lives);
}

// Poisons the accumulators of the last step.
static void poison_empty(const Chaos *c, const Action *a) {
  for (int i = 0; i < c->empty.count && a->kind == ACTION_BEGIN; i++)
    poison(c, c->variables + c->empty.data[i].from, c->empty.data[i].to - c->empty.data[i].from);
}

static int by_from(const void *a, const void *b) {
  const Need *x = a, *y = b;
  return x->from < y->from ? -1 : x->from > y->from;
}

// All that is not needed when an action begins.
static void poison_rest(const Chaos *c, const Action *a) {
  int time = c->line.start[a - c->p->actions.data], count = 0;
  for (int i = 0; i < c->line.span.count; i++) {
    const LiveSpan *s = &c->line.span.data[i];
    if (s->lower <= time && time < s->upper && c->p->offset[s->instance] >= 0)
      c->needed[count++] = (Need){c->p->offset[s->instance], c->p->offset[s->instance] + c->bytes[s->instance]};
  }
  if (count) qsort(c->needed, (size_t)count, sizeof *c->needed, by_from);
  int64_t end = 0;
  for (int i = 0; i < count; i++) {
    poison(c, c->work + end, c->needed[i].from - end);
    if (c->needed[i].to > end) end = c->needed[i].to;
  }
  poison(c, c->work + end, c->p->arena_bytes - end);
}

static void delay(Chaos *c) {
  c->state ^= c->state << 13; // xorshift
  c->state ^= c->state >> 7;
  c->state ^= c->state << 17;
  if (c->state >> 32 & 3) return;
  nanosleep(&(struct timespec){0, (long)(c->state % 200000)}, NULL);
}

static void poison_dead(const Chaos *c, const Observation *o) {
  for (int t = c->last[o->node->id]; t; t = c->next[t - 1])
    if (placement_here(&c->p->mesh, graph_tensor(c->p->graph, t - 1)->placement,
                       c->rank)) // else something may lie there
      poison_tensor(c, t - 1, o->microbatch);
}

static void poison_scratch(const Chaos *c, const Observation *o) {
  if (o->scratch) poison(c, o->scratch, o->scratch_bytes);
}

static void see(void *self, const Observation *o) {
  Chaos *c = self;
  const Program *p = c->p;
  switch (o->event) {
  case OBSERVE_STEP: // where sums of several steps are under way, some have begun
    if (!p->packed && p->sums_under_way == 1) poison_all(c, AREA_COMM);
    break;
  case OBSERVE_ENTER: poison_buffer(c, o->buffer); break;
  case OBSERVE_BODY:
    poison_empty(c, o->action);
    if (p->packed) poison_rest(c, o->action);
    else poison_body(c, o->action);
    break;
  case OBSERVE_KERNEL: poison_scratch(c, o); break;
  case OBSERVE_COLLECTIVE:
  case OBSERVE_TRANSFER: delay(c); break;
  case OBSERVE_INSTRUCTION_END: poison_dead(c, o); break;
  default: break;
  }
}

const ObserverDef observer_chaos = {"chaos",
                                    OBSERVES(STEP) | OBSERVES(ENTER) | OBSERVES(BODY) | OBSERVES(KERNEL) |
                                        OBSERVES(COLLECTIVE) | OBSERVES(TRANSFER) | OBSERVES(INSTRUCTION_END),
                                    0, see};
