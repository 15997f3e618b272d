// Records choices of experts and makes a run follow them, by a device of its own kernel for ROUTE.
#include "routing.h"
#include "base/error.h"
#include "base/philox.h"
#include "op/build.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Choice {
  uint64_t step, name; // 0 and 0: the place is empty
  int64_t sample, position;
  uint32_t experts;
  double gap;
} Choice;

enum { PLACES = 1 << 18, NODES = 64 };
struct Routing { Choice place[PLACES]; int64_t count; double smallest; };

typedef struct RoutingNode { uint64_t name, original; char text[64]; } RoutingNode; // philox_name

// The run under way. Its ranks are threads.
static struct {
  const Device *base;
  Device device;
  Routing *record;
  const Routing *follow;
  RoutingFlips flips;
  RoutingNode node[NODES];
  int nodes;
  pthread_mutex_t lock;
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

Routing *routing_create(void) {
  Routing *r = xcalloc(1, sizeof *r);
  r->smallest = INFINITY;
  return r;
}

void routing_destroy(Routing *r) { free(r); }

double routing_smallest_gap(const Routing *r) { return r->smallest; }

RoutingFlips routing_flips(void) { return run.flips; }

void routing_learn(const Graph *g) {
  static const char again[] = "again.";
  for (int i = 0; i < g->node.count; i++) {
    const char *name = g->node.data[i].name, *original = name;
    if (g->node.data[i].op != OP_ROUTE) continue;
    while (!strncmp(original, again, strlen(again))) original += strlen(again); // once for each further run
    CHECK(run.nodes < NODES);
    RoutingNode *node = &run.node[run.nodes++];
    *node = (RoutingNode){.name = philox_name(name), .original = philox_name(original)};
    snprintf(node->text, sizeof node->text, "%s", original);
  }
}

static const RoutingNode *node_of(const KernelCall *call) {
  for (int i = 0; i < run.nodes; i++)
    if (run.node[i].name == call->name) return &run.node[i];
  CHECK(0, "no node");
}

// The token's place in the table: its own, or the empty one where it would be.
static int64_t place_of(const Routing *r, const Choice *c) {
  uint64_t h = c->name ^ c->step * 0x9e3779b97f4a7c15u ^ (uint64_t)c->sample * 0xc2b2ae3d27d4eb4fu ^
               (uint64_t)c->position * 0x165667b19e3779f9u;
  int64_t at = (int64_t)((h ^ h >> 31) % PLACES);
  for (;; at = (at + 1) % PLACES) {
    const Choice *p = &r->place[at];
    if (!p->name || (p->name == c->name && p->step == c->step && p->sample == c->sample && p->position == c->position))
      return at;
  }
}

static uint32_t chosen(const Operand *mask, int64_t at, int64_t width) {
  uint32_t set = 0;
  for (int64_t x = 0; x < width; x++)
    if (operand_load(mask, at + x) != 0) set |= 1u << x;
  return set;
}

// NaN where a logit is not finite, as in a step that is skipped. Scores are p + bias, so a difference between them
// moves the logit of the larger by that over its p.
static double gap_of(const Operand *logits, const Operand *bias, int64_t at, int64_t width, uint32_t experts) {
  double maximum = -INFINITY, sum = 0, mean = 0, squares = 0, p[32], least = INFINITY, most = -INFINITY,
         last = 0, next = 0; // the scores of the last expert that is chosen and the next, and their probabilities
  for (int64_t x = 0; x < width; x++) maximum = fmax(maximum, operand_load(logits, at + x));
  for (int64_t x = 0; x < width; x++) sum += p[x] = exp(operand_load(logits, at + x) - maximum);
  for (int64_t x = 0; x < width; x++) {
    double score = p[x] / sum + (bias->data ? operand_load(bias, x) : 0), logit = operand_load(logits, at + x);
    if (!isfinite(logit)) return NAN;
    mean += logit / (double)width;
    squares += logit * logit / (double)width;
    if (experts >> x & 1) {
      if (score < least) least = score, last = p[x] / sum;
    } else if (score > most) most = score, next = p[x] / sum;
  }
  double deviation = sqrt(fmax(squares - mean * mean, 0));
  return deviation > 0 ? (least - most) / fmax(fmax(last, next), 1e-300) / deviation : 0;
}

// The token's weights for experts that are given: a bias that nothing else comes near chooses them.
static void choose(const KernelCall *call, int64_t at, int64_t width, uint32_t experts) {
  float bias[32];
  Operand input[2] = {call->input[0], {.data = bias, .dtype = DTYPE_F32, .rank = 1, .size = {width}}},
          output[2] = {call->output[0], call->output[1]}, *each[] = {&input[0], &output[0], &output[1]};
  for (int64_t x = 0; x < width; x++) bias[x] = experts >> x & 1 ? 1000 : 0;
  input[1].map[0] = index_whole(width);
  for (int i = 0; i < 3; i++) {
    each[i]->data = (char *)each[i]->data + (size_t)at * dtype_size(each[i]->dtype);
    for (int d = 0; d < 2; d++) each[i]->size[d] = 1, each[i]->map[d] = index_whole(1);
  }
  KernelCall one = *call;
  one.input = input;
  one.output = output;
  op_def(OP_ROUTE)->reference(&one);
}

static void follow(const KernelCall *call, const RoutingNode *node, int64_t at, int64_t width, const Choice *c) {
  const Choice *there = &run.follow->place[place_of(run.follow, c)];
  CHECK(there->name, "%s, step %d, sample %d, position %d was not recorded", node->text, (int)c->step, (int)c->sample,
        (int)c->position);
  if (c->experts == there->experts) return;
  pthread_mutex_lock(&run.lock);
  if (!isnan(there->gap) && (!run.flips.count++ || there->gap > run.flips.widest.gap)) {
    run.flips.widest = (RoutingFlip){.gap = there->gap,
                                     .step = c->step,
                                     .sample = c->sample,
                                     .position = c->position,
                                     .here = c->experts,
                                     .there = there->experts};
    memcpy(run.flips.widest.node, node->text, sizeof node->text);
  }
  pthread_mutex_unlock(&run.lock);
  choose(call, at, width, there->experts);
}

static void record(Choice *c) {
  pthread_mutex_lock(&run.lock);
  Choice *place = &run.record->place[place_of(run.record, c)];
  CHECK(place->name || ++run.record->count < PLACES / 2);
  *place = *c;
  run.record->smallest = fmin(run.record->smallest, c->gap);
  pthread_mutex_unlock(&run.lock);
}

static void route(const KernelCall *call) {
  const Operand *logits = &call->input[0], *mask = &call->output[1];
  int64_t width = logits->size[2];
  const RoutingNode *node = node_of(call);
  DeviceKernel kernel;
  CHECK(width <= 32 && run.base->find(run.base, OP_ROUTE, logits->dtype, &kernel) && kernel.host);
  kernel.host(call);
  for (int64_t b = 0; b < logits->map[0].valid; b++)
    for (int64_t s = 0; s < logits->map[1].valid; s++) {
      int64_t at = (b * logits->size[1] + s) * width;
      Choice c = {.step = call->parameters->step,
                  .name = node->original,
                  .sample = call->parameters->sample_base + index_map(&logits->map[0], b),
                  .position = index_map(&logits->map[1], s),
                  .experts = chosen(mask, at, width)};
      if (run.follow) follow(call, node, at, width, &c);
      else c.gap = gap_of(logits, &call->input[1], at, width, c.experts), record(&c);
    }
}

static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  (void)device;
  int found = run.base->find(run.base, op, dtype, kernel);
  if (found && op == OP_ROUTE) kernel->host = route;
  return found;
}

const Device *routing_device(const Device *base, Routing *record, const Routing *follow) {
  run.base = base;
  run.device = *base;
  run.device.find = find;
  run.record = record;
  run.follow = follow;
  run.flips = (RoutingFlips){0};
  run.nodes = 0;
  return &run.device;
}
