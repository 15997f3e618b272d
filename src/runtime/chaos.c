// Poisons memory that the plan says is unused, and delays calls.
#include "runtime/chaos.h"
#include "base/philox.h"
#include "runtime/observer.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Chaos {
  const Program *p;
  char *work;     // an address of the device's
  DeviceQueue *queue;
  uint64_t state; // of the random numbers
  int rank;
  int *last;      // (nodes) first tensor that dies behind the node + 1; 0: none
  int *next;      // (tensors) the next of that list + 1
};

uint64_t chaos_of_environment(void) {
  const char *text = getenv("PLAIT_CHAOS");
  return text ? strtoull(text, NULL, 10) : 0;
}

// The last instruction of a body that uses each tensor of the workspace; what nothing reads is looked at by others.
static void find_last_uses(Chaos *c, const Body *body, int *last) {
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
  for (int i = 0; i < body->count; i++) { // what is made in the memory of its operand goes on living there
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; op_def(n->op)->communicates && k < n->noutput; k++) {
      const Place *in = &c->p->place[n->input[k]], *out = &c->p->place[n->output[k]];
      if (in->area == AREA_WORK && out->area == AREA_WORK && in->offset == out->offset) last[n->input[k]] = 0;
    }
  }
  for (int t = 0; t < g->tensor.count; t++) {
    if (!last[t] || last[t] > body->count || c->p->place[t].area != AREA_WORK) continue;
    int node = body->instruction[last[t] - 1].node;
    c->next[t] = c->last[node];
    c->last[node] = t + 1;
  }
}

Chaos *chaos_create(const Program *p, const State *state, DeviceQueue *queue) {
  if (!p->chaos) return NULL;
  Chaos *c = xcalloc(1, sizeof *c);
  *c = (Chaos){.p = p,
               .work = state->work,
               .queue = queue,
               .rank = state->rank,
               .state = (p->chaos * 0x9e3779b97f4a7c15 ^ ((uint64_t)state->rank + 1)) | 1};
  c->last = xcalloc((size_t)p->graph->node.count + 1, sizeof *c->last);
  c->next = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *c->next);
  int *last = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *last);
  find_last_uses(c, &p->begin, last);
  find_last_uses(c, &p->end, last);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) find_last_uses(c, &p->micro[s][phase], last);
  free(last);
  return c;
}

void chaos_destroy(Chaos *c) {
  if (!c) return;
  free(c->last);
  free(c->next);
  free(c);
}

// All bits 1: NaN in every floating-point type.
static void poison(const Chaos *c, char *at, int64_t bytes) {
  if (bytes > 0) device_fill(c->queue, at, 0xff, bytes);
}

static void poison_buffer(const Chaos *c, const WalkBuffer *b) {
  const Ring *ring = b->is_slot ? &c->p->slots[b->stage] : &c->p->staging[b->stage][b->phase];
  if (ring->count) poison(c, c->work + ring->offset + b->index % ring->count * ring->bytes, ring->bytes);
}

static void delay(Chaos *c) {
  c->state ^= c->state << 13; // xorshift
  c->state ^= c->state >> 7;
  c->state ^= c->state << 17;
  if (c->state >> 32 & 3) return;
  nanosleep(&(struct timespec){0, (long)(c->state % 200000)}, NULL);
}

static void poison_dead(const Chaos *c, const Node *n) {
  for (int t = c->last[n->id]; t; t = c->next[t - 1]) {
    const Tensor *x = graph_tensor(c->p->graph, t - 1);
    if (!placement_here(&c->p->mesh, x->placement, c->rank)) continue; // something of this rank's may lie there
    poison(c, c->work + program_work_offset(c->p) + c->p->place[x->id].offset,
           x->allocated * (int64_t)dtype_size(x->dtype));
  }
}

static void see(void *self, const Observation *o) {
  Chaos *c = self;
  const Program *p = c->p;
  char *work = c->work + program_work_offset(p);
  switch (o->event) {
  case OBSERVE_STEP: // where sums of several steps are under way, some have begun
    if (p->sums_under_way == 1) poison(c, work - p->comm_bytes, p->comm_bytes);
    break;
  case OBSERVE_ENTER: poison_buffer(c, o->buffer); break;
  case OBSERVE_BODY: poison(c, work, p->work_bytes); break;
  case OBSERVE_KERNEL: poison(c, c->work + program_scratch_offset(p), p->scratch_bytes); break;
  case OBSERVE_COLLECTIVE:
  case OBSERVE_TRANSFER: delay(c); break;
  case OBSERVE_INSTRUCTION_END: poison_dead(c, o->node); break;
  default: break;
  }
}

const ObserverDef observer_chaos = {"chaos",
                                    OBSERVES(STEP) | OBSERVES(ENTER) | OBSERVES(BODY) | OBSERVES(KERNEL) |
                                        OBSERVES(COLLECTIVE) | OBSERVES(TRANSFER) | OBSERVES(INSTRUCTION_END),
                                    0, see};
