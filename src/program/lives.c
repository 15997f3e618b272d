// From a Program to the packing problem of its working memory, and back to offsets.
#include "program/lives.h"
#include "base/fault.h"
#include "base/hash.h"
#include "program/in_place.h"
#include "program/memory.h"
#include "sharding/redistribute.h"
#include <string.h>

// ---- instances ------------------------------------------------------------------------------------------------------

static int is_working(Area area) {
  return area == AREA_SLOT || area == AREA_STAGING || area == AREA_WORK || area == AREA_COMM;
}

static int staging_buffers(const Program *p) {
  const Schedule *s = p->schedule;
  return s->microbatches < STAGING_BUFFERS && !s->streams ? s->microbatches : STAGING_BUFFERS;
}

// Of what a microbatch has.
static int instances_in_micro(const Program *p, int buffers) {
  return p->packed == PACKED_BY_MICROBATCH ? p->schedule->microbatches : buffers;
}

static int instances_of(const Program *p, const TensorPlace *place, int in_micro) {
  switch (place->area) {
  case AREA_SLOT: return instances_in_micro(p, p->schedule->slots[place->stage]);
  case AREA_STAGING: return instances_in_micro(p, staging_buffers(p));
  case AREA_COMM: return p->sums_under_way;
  default: return in_micro && p->packed ? instances_in_micro(p, p->schedule->slots[place->stage]) : 1;
  }
}

static void number_tensor(Program *p, int tensor, int stage) {
  TensorPlace *place = tensor < 0 ? NULL : &p->place[tensor];
  if (!place || place->count || !is_working(place->area)) return;
  if (place->area == AREA_WORK) place->stage = stage < 0 ? 0 : stage;
  place->first = p->instances;
  place->count = instances_of(p, place, stage >= 0);
  p->instances += place->count;
}

static void number_body(Program *p, Body *body, int stage) {
  for (int i = 0; i < body->count; i++) {
    Instruction *x = &body->instruction[i];
    const Node *n = &p->graph->node.data[x->node];
    for (int k = 0; k < n->ninput + n->noutput; k++)
      number_tensor(p, k < n->ninput ? n->input[k] : n->output[k - n->ninput], stage);
    x->count = 0;
    if (!x->scratch) continue;
    x->first = p->instances;
    x->count = stage >= 0 && p->packed ? instances_in_micro(p, p->schedule->slots[stage]) : 1;
    p->instances += x->count;
  }
}

// Whatever lies in the working memory: also what is received and only sent on.
static void number_instances(Program *p) {
  p->instances = 0;
  for (int t = 0; t < p->graph->tensor.count; t++) p->place[t].first = p->place[t].count = 0;
  for (int t = 0; t < p->graph->tensor.count; t++)
    if (p->place[t].area == AREA_SLOT || p->place[t].area == AREA_STAGING) number_tensor(p, t, p->place[t].stage);
  number_body(p, &p->begin, -1);
  number_body(p, &p->end, -1);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) number_body(p, &p->micro[s][phase], s);
}

// ---- items ----------------------------------------------------------------------------------------------------------

// Tensors of single owners lie in their memory only: no rank has tensors of two owners.
static int are_apart(const void *context, const PackItem *a, const PackItem *b) {
  const Lives *l = context;
  const PackItem *first = l->problem.item.data;
  const Graph *g = l->p->graph;
  return placements_apart(&l->p->mesh, graph_tensor(g, l->tensor[a - first])->placement,
                          graph_tensor(g, l->tensor[b - first])->placement);
}

static int64_t rounded(const Program *p, int64_t bytes) { return round_up(bytes, p->device->space[0].alignment); }

static int add_item(Lives *l, int64_t bytes, int tensor, Area area) {
  vec_push(&l->problem.item, (PackItem){.size = bytes});
  int i = l->problem.item.count - 1;
  l->tensor[i] = tensor;
  l->area[i] = area;
  const Placement *at = tensor < 0 ? NULL : graph_tensor(l->p->graph, tensor)->placement;
  if (at && FAULT(what_others_own_takes_memory, 1, 0))
    l->problem.item.data[i].owners = at->owner_axes, l->problem.item.data[i].owner = at->owner;
  return i;
}

// A buffer that several tensors use, one after the other, belongs to all ranks if one of them does, and to a slot if
// one of them does.
static void widen(const Program *p, const int *root, Lives *l) {
  for (int t = 0; t < p->graph->tensor.count; t++) {
    const Placement *at = graph_tensor(p->graph, t)->placement, *of = graph_tensor(p->graph, root[t])->placement;
    for (int k = 0; k < p->place[root[t]].count && root[t] != t; k++) {
      int item = l->item[p->place[root[t]].first + k];
      if (item < 0) continue;
      if (p->place[t].area == AREA_SLOT) l->area[item] = AREA_SLOT;
      if (!at || !of || at->owner_axes != of->owner_axes || at->owner != of->owner)
        l->problem.item.data[item].owners = 0;
    }
  }
}

static void add_tensor_items(const Program *p, const int *root, Lives *l, int not_in_buffers) {
  for (int t = 0; t < p->graph->tensor.count; t++) {
    const TensorPlace *place = &p->place[t];
    int buffered = place->area == AREA_SLOT || place->area == AREA_STAGING;
    for (int k = 0; k < place->count && root[t] == t && !(not_in_buffers && buffered); k++)
      l->item[place->first + k] = add_item(l, memory_tensor_bytes(p, graph_tensor(p->graph, t)), t, place->area);
  }
}

static void add_scratch_items(const Program *p, const Body *body, Lives *l) {
  for (int i = 0; i < body->count; i++)
    for (int k = 0; k < body->instruction[i].count; k++)
      l->item[body->instruction[i].first + k] =
          add_item(l, rounded(p, body->instruction[i].scratch), -1, AREA_NONE);
}

static void add_all_scratch(const Program *p, Lives *l) {
  add_scratch_items(p, &p->begin, l);
  add_scratch_items(p, &p->end, l);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) add_scratch_items(p, &p->micro[s][phase], l);
}

// ---- along the list -------------------------------------------------------------------------------------------------

static int seen_before(uint64_t *table, size_t size, uint64_t h) {
  size_t i = h % size;
  for (h |= 1; table[i] && table[i] != h;) i = (i + 1) % size;
  int seen = table[i] == h;
  table[i] = h;
  return seen;
}

// Ticks of the list → ticks without the calls of bodies during which what is needed, tick by tick, is what was needed
// during an earlier call. Sets of instances are told apart by sums of 64 random bits. (end + 1)
static int *shorten(const Program *p, const Timeline *t) {
  int *to = xcalloc((size_t)t->end + 2, sizeof *to);
  char *drop = xcalloc((size_t)t->end + 2, 1);
  uint64_t *needed = xcalloc((size_t)t->end + 2, sizeof *needed);
  size_t size = 2 * (size_t)p->actions.count + 7;
  uint64_t *table = xcalloc(size, sizeof *table);
  for (int i = 0; i < t->span.count; i++) {
    uint64_t h = hash_mix((uint64_t)t->span.data[i].instance, 1);
    needed[t->span.data[i].lower] += h, needed[t->span.data[i].upper] -= h;
  }
  for (int i = 1; i <= t->end; i++) needed[i] += needed[i - 1];
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (!action_runs_body(a) || a->from) continue;
    int from = t->start[i], length = p->micro[a->stage][action_phase(a)].count + 1;
    if (a->to && a->to < length - 1) continue; // cut: it is followed by a REDUCE
    uint64_t h = hash_mix((uint64_t)length, 2);
    for (int k = 0; k < length; k++) h = hash_mix(h, needed[from + k]);
    if (seen_before(table, size, h)) memset(drop + from, 1, (size_t)length);
  }
  for (int i = 0; i <= t->end; i++) to[i + 1] = to[i] + !drop[i];
  free(drop);
  free(needed);
  free(table);
  return to;
}

// Times of items, by instance; those that touch become one.
static void set_times(const Program *p, const Timeline *t, const int *to, Lives *l) {
  int *next = xcalloc((size_t)p->instances + 2, sizeof *next);
  LiveSpan *sorted = xcalloc((size_t)t->span.count + 1, sizeof *sorted);
  for (int i = 0; i < t->span.count; i++) next[t->span.data[i].instance + 1]++;
  for (int i = 0; i < p->instances; i++) next[i + 1] += next[i];
  for (int i = 0; i < t->span.count; i++) sorted[next[t->span.data[i].instance]++] = t->span.data[i];
  for (int i = 0; i < t->span.count; i++) {
    PackItem *item = &l->problem.item.data[l->item[sorted[i].instance]];
    int lower = to[sorted[i].lower], upper = to[sorted[i].upper];
    if (lower == upper) continue;
    if (!item->count) item->first = l->problem.time.count;
    PackTime *last = item->count ? &l->problem.time.data[item->first + item->count - 1] : NULL;
    if (last && last->upper >= lower) last->upper = upper > last->upper ? upper : last->upper;
    else {
      vec_push(&l->problem.time, (PackTime){lower, upper});
      item->count++;
    }
  }
  free(next);
  free(sorted);
}

static void follow_list(const Program *p, const int *root, Lives *l) {
  Timeline t;
  add_tensor_items(p, root, l, 0);
  add_all_scratch(p, l);
  widen(p, root, l);
  timeline_make(p, root, &t);
  int *to = shorten(p, &t);
  set_times(p, &t, to, l);
  free(to);
  timeline_free(&t);
}

// ---- body by body ---------------------------------------------------------------------------------------------------

static void set_time(Lives *l, int item, int lower, int upper) {
  PackItem *x = &l->problem.item.data[item];
  if (x->count) {
    PackTime *t = &l->problem.time.data[x->first];
    t->lower = lower < t->lower ? lower : t->lower;
    t->upper = upper > t->upper ? upper : t->upper;
    return;
  }
  *x = (PackItem){.size = x->size, .first = l->problem.time.count, .count = 1, .owners = x->owners, .owner = x->owner};
  vec_push(&l->problem.time, (PackTime){lower, upper});
}

static int slot_item(const Lives *own, int stage, const int *root, int tensor) {
  const TensorPlace *place = tensor < 0 ? NULL : &own->p->place[root[tensor]];
  return place && place->area == AREA_SLOT && place->stage == stage && place->count ? own->item[place->first] : 0;
}

static void pass_body(const Program *p, const Body *body, const int *root, Lives *l, int *now) {
  for (int i = 0; i < body->count; i++) {
    const Instruction *x = &body->instruction[i];
    const Node *n = &p->graph->node.data[x->node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0 || !p->place[t].count || p->place[t].area != AREA_WORK) continue;
      int until = FAULT(memory_dies_too_early, instruction_end(body, i), k < n->ninput ? i : instruction_end(body, i));
      set_time(l, l->item[p->place[root[t]].first], *now + i, *now + until + 1);
    }
    if (x->count) set_time(l, l->item[x->first], *now + i, *now + i + 1);
  }
  *now += body->count + 1;
}

// Tensors of a slot as items, by the time of the stage's own bodies, one after the other from tick 1 on. Tensors that
// other bodies read or send last as long as the slot. own->item: (instances) 1 + the item of a tensor's first instance.
static void slot_lives(const Program *p, int stage, const int *root, Lives *own) {
  const Graph *g = p->graph;
  int now = 1, all = 2;
  *own = (Lives){.p = p};
  own->item = xcalloc((size_t)p->instances + 1, sizeof *own->item);
  own->tensor = xcalloc((size_t)g->tensor.count + 1, sizeof *own->tensor);
  own->area = xcalloc((size_t)g->tensor.count + 1, sizeof *own->area);
  for (int t = 0; t < g->tensor.count; t++)
    if (p->place[t].area == AREA_SLOT && p->place[t].stage == stage && p->place[t].count && root[t] == t)
      own->item[p->place[t].first] = 1 + add_item(own, memory_tensor_bytes(p, graph_tensor(g, t)), t, AREA_SLOT);
  for (int phase = 0; phase < PHASE_COUNT; phase++) all += p->micro[stage][phase].count + 1;
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      const Body *body = &p->micro[s][phase];
      for (int i = 0; i < body->count; i++) {
        const Node *n = &g->node.data[body->instruction[i].node];
        for (int k = 0; k < n->ninput + n->noutput; k++) {
          int item = slot_item(own, stage, root, k < n->ninput ? n->input[k] : n->output[k - n->ninput]);
          if (!item || FAULT(slot_dies_before_weights, 0, phase == PHASE_WEIGHT)) continue;
          if (s != stage) set_time(own, item - 1, 0, all);
          else set_time(own, item - 1, now + i, now + instruction_end(body, i) + 1);
        }
      }
      if (s == stage) now += body->count + 1;
      const CrossingList *lists[] = {&p->segments->micro[s][phase].receive, &p->segments->micro[s][phase].send};
      for (int k = 0; k < 2; k++)
        for (int i = 0; i < lists[k]->count; i++) {
          int item = slot_item(own, stage, root, lists[k]->data[i].tensor);
          if (item && !program_runs(p, lists[k]->data[i].stage)) set_time(own, item - 1, 0, all);
        }
    }
}

// Where backward is split, what forward leaves to B alone and what B leaves to W take each other's place.
static int64_t pack_slot(const Program *p, int stage, const int *root, int64_t *within) {
  Lives own;
  slot_lives(p, stage, root, &own);
  own.problem.shuffle = p->chaos;
  int64_t end = pack(&own.problem, 0);
  for (int t = 0; t < p->graph->tensor.count && within; t++)
    for (int k = 0; k < p->place[t].count && slot_item(&own, stage, root, t); k++)
      within[p->place[t].first + k] = own.problem.item.data[slot_item(&own, stage, root, t) - 1].offset;
  lives_free(&own);
  return end;
}

int64_t *memory_slot_needed(const Program *p, int stage) {
  Lives own;
  int *root = in_place_roots(p, 1), ticks = 2;
  slot_lives(p, stage, root, &own);
  for (int phase = 0; phase < PHASE_COUNT; phase++) ticks += p->micro[stage][phase].count + 1;
  int64_t *needed = xcalloc((size_t)ticks + 1, sizeof *needed);
  for (int i = 0; i < own.problem.item.count; i++) {
    const PackItem *x = &own.problem.item.data[i];
    for (int t = 0; t < x->count; t++)
      for (int at = own.problem.time.data[x->first + t].lower; at < own.problem.time.data[x->first + t].upper; at++)
        needed[at] += x->size;
  }
  lives_free(&own);
  free(root);
  return needed;
}

// Each buffer of a ring is an item for a while.
static void add_ring(const Program *p, Area area, int stage, Phase phase, int buffers, int64_t bytes, int lower,
                     int upper, const int *root, Lives *l) {
  for (int k = 0; k < buffers && bytes; k++) {
    int item = add_item(l, bytes, -1, area);
    set_time(l, item, lower, upper);
    for (int t = 0; t < p->graph->tensor.count; t++) {
      const TensorPlace *place = &p->place[t];
      if (place->area == area && place->stage == stage && (area == AREA_SLOT || place->phase == phase) &&
          place->count && root[t] == t)
        l->item[place->first + k] = item;
    }
  }
}

static int64_t lay_staging(const Program *p, int stage, Phase phase, int64_t *within) {
  int64_t end = 0;
  for (int t = 0; t < p->graph->tensor.count; t++) {
    const TensorPlace *place = &p->place[t];
    if (place->area != AREA_STAGING || place->stage != stage || place->phase != phase || !place->count) continue;
    for (int k = 0; k < place->count && within; k++) within[place->first + k] = end;
    end += memory_tensor_bytes(p, graph_tensor(p->graph, t));
  }
  return end;
}

static void follow_bodies(const Program *p, const int *root, Lives *l) {
  int now = 1, micro, end;
  add_tensor_items(p, root, l, 1);
  add_all_scratch(p, l);
  widen(p, root, l);
  pass_body(p, &p->begin, root, l, &now);
  micro = p->schedule->streams ? 0 : now; // in a stream a step begins while microbatches of others are under way
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) pass_body(p, &p->micro[s][phase], root, l, &now);
  pass_body(p, &p->end, root, l, &now);
  end = now; // messages are waited for after END
  for EACH_PROGRAM_STAGE(s, p) {
    add_ring(p, AREA_SLOT, s, PHASE_FORWARD, p->schedule->slots[s], p->slots[s].bytes, micro, end, root, l);
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      add_ring(p, AREA_STAGING, s, (Phase)phase, p->staging[s][phase].count, p->staging[s][phase].bytes, micro, end,
               root, l);
  }
  for (int t = 0; t < p->graph->tensor.count; t++)
    for (int k = 0; k < p->place[t].count && p->place[t].area == AREA_COMM && root[t] == t; k++)
      set_time(l, l->item[p->place[t].first + k], micro, end);
}

// ---- both -----------------------------------------------------------------------------------------------------------

static double ticks_of(const Program *p) {
  double ticks = p->begin.count + p->end.count;
  for (int i = 0; i < p->actions.count; i++)
    if (action_runs_body(&p->actions.data[i]))
      ticks += p->micro[p->actions.data[i].stage][action_phase(&p->actions.data[i])].count;
  return ticks;
}

void lives_make(Program *p, Lives *l) {
  enum { MOST_BY_MICROBATCH = 6000, MOST_BY_SLOT = 2000, MOST_TICKS = 1000 * 1000, MOST_COORDINATES = 4 };
  p->packed = PACKED_BY_MICROBATCH;
  if (p->schedule->streams || p->schedule->map.coordinates > MOST_COORDINATES || ticks_of(p) > MOST_TICKS)
    p->packed = PACKED_BY_BODY;
  number_instances(p);
  if (p->packed == PACKED_BY_MICROBATCH && p->instances > MOST_BY_MICROBATCH)
    p->packed = PACKED_BY_SLOT, number_instances(p);
  if (p->packed == PACKED_BY_SLOT && p->instances > MOST_BY_SLOT) p->packed = PACKED_BY_BODY, number_instances(p);
  *l = (Lives){.p = p, .problem = {.apart = are_apart, .context = l, .shuffle = p->chaos}};
  l->item = xcalloc((size_t)p->instances + 1, sizeof *l->item);
  l->within = xcalloc((size_t)p->instances + 1, sizeof *l->within);
  // Beside instances, in a ring, one a buffer.
  int most = p->instances;
  for EACH_PROGRAM_STAGE(s, p) most += p->schedule->slots[s] + PHASE_COUNT * STAGING_BUFFERS;
  l->tensor = xcalloc((size_t)most + 1, sizeof *l->tensor);
  l->area = xcalloc((size_t)most + 1, sizeof *l->area);
  for (int i = 0; i < p->instances; i++) l->item[i] = -1;
  int *root = in_place_roots(p, !p->packed), *in_slot = in_place_roots(p, 1);
  for EACH_PROGRAM_STAGE(s, p) {
    p->slots[s] = (Ring){p->schedule->slots[s], pack_slot(p, s, in_slot, p->packed ? NULL : l->within)};
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      p->staging[s][phase] =
          (Ring){staging_buffers(p), lay_staging(p, s, (Phase)phase, p->packed ? NULL : l->within)};
  }
  if (p->packed) follow_list(p, root, l);
  else follow_bodies(p, root, l);
  for (int t = 0; t < p->graph->tensor.count; t++)
    for (int k = 0; k < p->place[t].count && root[t] != t; k++) {
      l->item[p->place[t].first + k] = l->item[p->place[root[t]].first + k];
      l->within[p->place[t].first + k] = l->within[p->place[root[t]].first + k];
    }
  free(root);
  free(in_slot);
}

void lives_free(Lives *l) {
  pack_free(&l->problem);
  free(l->item);
  free(l->within);
  free(l->tensor);
  free(l->area);
}

// Bytes needed at a time, in these areas (bits).
static int64_t needed_at(const Lives *l, int time, unsigned areas) {
  int64_t bytes = 0;
  for (int i = 0; i < l->problem.item.count; i++) {
    const PackItem *x = &l->problem.item.data[i];
    for (int t = 0; t < x->count && areas >> l->area[i] & 1; t++)
      if (l->problem.time.data[x->first + t].lower <= time && time < l->problem.time.data[x->first + t].upper)
        bytes += x->size;
  }
  return bytes;
}

// The most of slots at one time.
static int64_t most_kept(const Lives *l) {
  PackProblem slots = {0};
  for (int i = 0; i < l->problem.item.count; i++)
    if (l->area[i] == AREA_SLOT) vec_push(&slots.item, l->problem.item.data[i]);
  slots.time.data = l->problem.time.data, slots.time.count = l->problem.time.count; // borrowed
  int64_t most = pack_bound(&slots, NULL);
  vec_free(&slots.item);
  return most;
}

// Not a slot, a staging buffer or a result of collectives under way.
static int lives_in_body(const Lives *l, int item) {
  return l->area[item] == AREA_WORK || l->area[item] == AREA_NONE;
}

// The effort of a plan (pack.h): 50 ms.
enum { EFFORT = 16 * 1000 * 1000 };

// Items of one body among those of all, packed from `base` on. Returns their end. Bodies share the effort by how many
// items they have.
static int64_t pack_body(Lives *l, int lower, int upper, int64_t base) {
  PackProblem own = {.apart = l->problem.apart, .context = NULL, .shuffle = l->problem.shuffle};
  Lives some = {.p = l->p};
  Vec(int) from = {0}, tensor = {0};
  for (int i = 0; i < l->problem.item.count; i++) {
    const PackItem *x = &l->problem.item.data[i];
    const PackTime *t = x->count ? &l->problem.time.data[x->first] : NULL;
    if (!t || t->lower < lower || t->upper > upper || !lives_in_body(l, i)) continue;
    vec_push(&from, i);
    vec_push(&tensor, l->tensor[i]);
    vec_push(&own.item, *x);
    own.item.data[own.item.count - 1].first = own.time.count;
    vec_push(&own.time, *t);
  }
  some.tensor = tensor.data;
  some.problem = own;
  some.problem.context = &some;
  some.problem.enough = l->problem.enough - base; // no body need be lower than all
  int64_t effort = l->p->sketch ? 0 : (int64_t)EFFORT / 2 * from.count / (l->problem.item.count + 1);
  int64_t end = base + pack(&some.problem, effort);
  for (int i = 0; i < from.count; i++)
    l->problem.item.data[from.data[i]].offset = base + some.problem.item.data[i].offset;
  pack_free(&some.problem);
  vec_free(&from);
  vec_free(&tensor);
  return end;
}

// Body by body: tensors that live in several of them at the bottom, one after the other; then each body by itself.
// Tensors of two bodies never meet.
static int64_t pack_bodies(const Program *p, Lives *l) {
  int64_t bottom = 0, end;
  int now = 1 + p->begin.count + 1;
  for (int i = 0; i < l->problem.item.count; i++) {
    if (lives_in_body(l, i)) continue;
    l->problem.item.data[i].offset = bottom;
    bottom += l->problem.item.data[i].count ? l->problem.item.data[i].size : 0;
  }
  end = bottom;
  int64_t ends = pack_body(l, 1, now, p->schedule->streams ? bottom : 0);
  end = ends > end ? ends : end;
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      ends = pack_body(l, now, now + p->micro[s][phase].count + 1, bottom);
      end = ends > end ? ends : end;
      now += p->micro[s][phase].count + 1;
    }
  ends = pack_body(l, now, now + p->end.count + 1, bottom);
  return ends > end ? ends : end;
}

// Body by body, and where that is not good enough all at once, the better of both: what lives in several bodies may
// then lie where no body needs anything.
static int64_t pack_bodies_or_all(const Program *p, Lives *l) {
  int64_t end = pack_bodies(p, l);
  if (p->sketch || end <= l->problem.enough || p->chaos) return end;
  int n = l->problem.item.count;
  int64_t *offset = xcalloc((size_t)n + 1, sizeof *offset), other;
  for (int i = 0; i < n; i++) offset[i] = l->problem.item.data[i].offset;
  other = pack(&l->problem, EFFORT / 2);
  for (int i = 0; i < n && other >= end; i++)
    l->problem.item.data[i].offset = offset[i];
  free(offset);
  return other < end ? other : end;
}

void memory_pack(Program *p) {
  Lives l;
  int at;
  lives_make(p, &l);
  MemoryPlan *m = &p->memory;
  m->live = pack_bound(&l.problem, &at);
  l.problem.enough = m->live + m->live / 100;
  p->arena_bytes = !p->packed  ? pack_bodies_or_all(p, &l)
                   : p->sketch ? l.problem.enough
                               : pack(&l.problem, EFFORT);
  p->offset = arena_array(&p->arena, int64_t, p->instances + 1);
  for (int i = 0; i < p->instances; i++)
    p->offset[i] = l.item[i] < 0 || !l.problem.item.data[l.item[i]].count
                       ? -1
                       : l.problem.item.data[l.item[i]].offset + l.within[i];
  for (int t = 0; t < p->graph->tensor.count; t++)
    for (int k = 0; k < p->place[t].count && p->place[t].area == AREA_SLOT; k++)
      p->offset[p->place[t].first + k] =
          FAULT(memory_overlaps_slots, p->offset[p->place[t].first + k], p->offset[p->place[t].first + k] / 128 * 64);
  m->gaps = p->arena_bytes - m->live;
  m->activations = needed_at(&l, at, 1u << AREA_SLOT);
  m->communication = needed_at(&l, at, 1u << AREA_STAGING | 1u << AREA_COMM);
  if (m->activations > m->live) m->activations = m->live; // owners have theirs
  if (m->activations + m->communication > m->live) m->communication = m->live - m->activations;
  m->workspace = m->live - m->activations - m->communication;
  m->kept = most_kept(&l);
  lives_free(&l);
}

void memory_body_lives(const Program *p, const Body *body, LifeList *list) {
  int *root = in_place_roots(p, 1), *index = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *index);
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0 || p->place[t].area != AREA_WORK || p->place[root[t]].area != AREA_WORK) continue;
      t = root[t];
      if (!index[t]) {
        vec_push(list, (Life){.tensor = t,
                              .bytes = memory_tensor_bytes(p, graph_tensor(p->graph, t)),
                              .offset = p->offset[p->place[t].first],
                              .first = i,
                              .last = i});
        index[t] = list->count;
      }
      Life *life = &list->data[index[t] - 1];
      if (instruction_end(body, i) > life->last) life->last = instruction_end(body, i);
    }
  }
  free(root);
  free(index);
}
