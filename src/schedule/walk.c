// The walk: from a list of actions to steps.
#include "schedule/walk.h"
#include "base/fault.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

// Who is in a buffer, and which SENDs of the list sent from it and were not waited for yet: send[waited … sends).
typedef struct Buffer { int microbatch, sends, waited, *send; } Buffer; // microbatch -1: nobody yet

typedef struct Leave { int action, microbatch; WalkBuffer buffer; } Leave; // after the action; its index: see place

struct Walk {
  WalkPlan plan;
  int at, ran;   // next action; its RUN is done
  int end;       // after the last action of this part of a stream, or of the list
  int ahead;     // actions of later steps are left out
  int follows;   // a body has been gone along
  int drained;   // nothing is under way at the end: all that was sent is waited for
  int base, period; // microbatch n uses buffer (n + base) mod count; base < period, which all counts divide
  StageSet stages; // those that the list touches: those of its pipeline rank. Of the others nothing is kept
  Buffer *buffer;
  int *slot;     // (stages) index of a stage's first slot among the buffers; -1: not touched
  int *staging;  // (stages · phases) of a segment's first staging buffer; -1: it stages nothing
  int buffers;
  int *send;     // all buffers' lists
  Leave *leave;  // in the order of the actions
  int leaves, left;
};

Phase action_phase(const Action *a) {
  return action_runs_body(a) ? (Phase)(a->kind - ACTION_FORWARD) : a->phase;
}

static int is_message(const Action *a) { return a->kind == ACTION_SEND || a->kind == ACTION_RECV; }

// With the index that a microbatch has now.
static WalkBuffer place(const Walk *w, WalkBuffer b, int microbatch) {
  b.index = (microbatch + w->base) % (b.is_slot ? w->plan.slots[b.stage] : w->plan.staging);
  return b;
}

static WalkBuffer slot_of(const Walk *w, const Action *a) {
  return place(w, (WalkBuffer){.stage = a->stage, .is_slot = 1}, action_number(&w->plan, a));
}

static WalkBuffer staging_of(const Walk *w, const Action *a) {
  return place(w, (WalkBuffer){.stage = a->stage, .phase = action_phase(a)}, action_number(&w->plan, a));
}

static int total_microbatches(const WalkPlan *p) { return (p->steps ? p->steps : 1) * p->microbatches; }

static Buffer *find(const Walk *w, const WalkBuffer *b) {
  int first = b->is_slot ? w->slot[b->stage] : w->staging[b->stage * PHASE_COUNT + (int)b->phase];
  return &w->buffer[first + b->index];
}

// The stages in whose slots of the microbatch an action reads or writes.
static StageSet touched_slots(const WalkPlan *p, const Action *a) {
  StageSet set = {{0}};
  if (FAULT(walk_leaves_before_weights, 0, a->kind == ACTION_WEIGHT)) return set;
  if (action_runs_body(a)) set = p->segments->micro[a->stage][action_phase(a)].holders;
  if (action_runs_body(a) || (is_message(a) && a->kept)) stages_add(&set, a->stage);
  return set;
}

static StageSet touched_stages(const WalkPlan *p) {
  StageSet set = {{0}};
  for (int i = 0; i < p->list->count; i++) {
    const Action *a = &p->list->data[i];
    if (!action_runs_body(a) && !is_message(a)) continue;
    StageSet slots = touched_slots(p, a);
    stages_unite(&set, &slots);
    stages_add(&set, a->stage);
  }
  return set;
}

// Does the segment send or receive what no other body reads?
static int has_staging(const WalkPlan *p, int stage, int phase) {
  const Segment *s = &p->segments->micro[stage][phase];
  const CrossingList *lists[] = {&s->send, &s->receive};
  for (int l = 0; l < 2; l++)
    for (int i = 0; i < lists[l]->count; i++)
      if (!lists[l]->data[i].kept &&
          stage_coordinate(lists[l]->data[i].stage, p->map) != stage_coordinate(stage, p->map))
        return 1;
  return 0;
}

// The buffers that an action's microbatch must be in before it runs. Backward's and weight's slot was entered by
// forward.
static int entered(const Walk *w, const Action *a, WalkBuffer out[2]) {
  int n = 0;
  if (!action_runs_body(a) && a->kind != ACTION_RECV) return 0;
  Phase phase = action_phase(a);
  if (w->staging[a->stage * PHASE_COUNT + (int)phase] >= 0) out[n++] = staging_of(w, a);
  if (phase == PHASE_FORWARD) out[n++] = slot_of(w, a);
  return n;
}

// Making --------------------------------------------------------------------------------------------------------------

// own: of a touched stage its number among these. known: of its buffers, by kind, and microbatches, whether it has been
// met when the microbatch leaves. last: of a stream, by kind and microbatch of a step, one more than the lowest number
// of a step with which a body touches it; 0: none does.
typedef struct Leaving { int *own; char *known; int *last; } Leaving;

// kind 0: the slot, else 1 + phase of staging buffers.
static int *last_step(const Walk *w, const Leaving *l, int stage, int kind, int microbatch) {
  return &l->last[(l->own[stage] * (1 + PHASE_COUNT) + kind) * w->plan.microbatches + microbatch];
}

static void note_step(const Walk *w, const Leaving *l, const Action *a, int stage, int kind) {
  int *last = last_step(w, l, stage, kind, a->microbatch);
  if (a->part == LIST_BODY && (!*last || a->step + 1 < *last)) *last = a->step + 1;
}

// Notes that a microbatch leaves a buffer after the action, unless it is known already to leave it later; in a stream
// that is in a body in which its step has a lower number, or in the next.
static void note_leave(Walk *w, const Leaving *l, int action, int stage, int kind) {
  const WalkPlan *p = &w->plan;
  const Action *a = &p->list->data[action];
  int microbatch = action_number(p, a), last = *last_step(w, l, stage, kind, a->microbatch);
  char *here = &l->known[(l->own[stage] * (1 + PHASE_COUNT) + kind) * total_microbatches(p) + microbatch];
  if (*here ||
      (FAULT(stream_leaves_in_the_first_body, p->parts, 0) && last && a->step + (a->part != LIST_BODY) >= last))
    return;
  *here = 1;
  WalkBuffer b = {.stage = stage, .is_slot = !kind, .phase = kind ? (Phase)(kind - 1) : PHASE_FORWARD};
  w->leave[w->leaves++] = (Leave){action, microbatch, b};
}

// The buffers that an action's microbatch touches: slots by stage, from the last one, then a staging buffer.
static void each_touched(Walk *w, const Leaving *l, int action, int notes_steps) {
  const WalkPlan *p = &w->plan;
  const Action *a = &p->list->data[action];
  int phase = (int)action_phase(a);
  StageSet slots = touched_slots(p, a);
  for (int s = stages_previous(&slots, p->segments->stages - 1); s >= 0; s = stages_previous(&slots, s - 1)) {
    if (notes_steps) note_step(w, l, a, s, 0);
    else note_leave(w, l, action, s, 0);
  }
  if ((!action_runs_body(a) && !is_message(a)) || w->staging[a->stage * PHASE_COUNT + phase] < 0) return;
  if (notes_steps) note_step(w, l, a, a->stage, 1 + phase);
  else note_leave(w, l, action, a->stage, 1 + phase);
}

// Each (stage, microbatch) leaves its slot, and each segment's microbatch its staging buffer, after the last action
// that touches it: the first that is met from the end. After one action staging buffers are left before slots, and
// slots by stage.
static void find_leaves(Walk *w) {
  const WalkPlan *p = &w->plan;
  size_t most = (size_t)stages_count(&w->stages) * (1 + PHASE_COUNT) * (size_t)total_microbatches(p);
  Leaving l = {xcalloc((size_t)p->segments->stages, sizeof *l.own), xcalloc(most + 1, 1),
               xcalloc(most + 1, sizeof *l.last)};
  int touched = 0;
  for EACH_STAGE(stage, &w->stages) l.own[stage] = touched++;
  w->leave = xcalloc(most + 1, sizeof *w->leave);
  for (int i = 0; i < p->list->count && p->parts; i++) each_touched(w, &l, i, 1);
  for (int i = p->list->count - 1; i >= 0; i--) each_touched(w, &l, i, 0);
  for (int i = 0, k = w->leaves - 1; i < k; i++, k--) {
    Leave first = w->leave[i];
    w->leave[i] = w->leave[k];
    w->leave[k] = first;
  }
  free(l.own);
  free(l.known);
  free(l.last);
}

// Room for a SEND in the buffer that it is from; in a stream in each of its kind, as microbatches take turns in them.
static int count_send(Walk *w, const Action *a) {
  WalkBuffer from = a->kept ? slot_of(w, a) : staging_of(w, a);
  int count = !w->plan.parts ? 1 : from.is_slot ? w->plan.slots[a->stage] : w->plan.staging;
  for (int i = 0; i < count; i++) {
    find(w, &from)->sends++;
    if (count > 1) from.index = (from.index + 1) % count;
  }
  return count;
}

// With room for every SEND of the list from each buffer: these are counted first, then laid out.
static void make_buffers(Walk *w) {
  const WalkPlan *p = &w->plan;
  int stages = p->segments->stages, total = 0;
  w->slot = xcalloc((size_t)stages, sizeof *w->slot);
  w->staging = xcalloc((size_t)(stages * PHASE_COUNT), sizeof *w->staging);
  for (int s = 0; s < stages; s++) {
    int touched = stages_have(&w->stages, s);
    w->slot[s] = touched ? w->buffers : -1;
    w->buffers += touched ? p->slots[s] : 0;
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      int staged = touched && has_staging(p, s, phase);
      w->staging[s * PHASE_COUNT + phase] = staged ? w->buffers : -1;
      w->buffers += staged ? p->staging : 0;
    }
  }
  w->buffer = xcalloc((size_t)w->buffers, sizeof *w->buffer);
  for (int pass = 0; pass < 2; pass++) { // counts, then lays out
    for (int b = 0; b < w->buffers && pass; b++) {
      w->buffer[b].send = w->send + total;
      total += w->buffer[b].sends;
    }
    for (int i = 0; i < p->list->count && !pass; i++) {
      const Action *a = &p->list->data[i];
      if (a->kind != ACTION_SEND) continue;
      total += count_send(w, a);
    }
    if (!pass) w->send = xcalloc((size_t)total, sizeof *w->send), total = 0;
  }
}

Walk *walk_create(const WalkPlan *plan) {
  Walk *w = xcalloc(1, sizeof *w);
  w->plan = *plan;
  w->stages = touched_stages(plan);
  w->period = plan->staging;
  for EACH_STAGE(stage, &w->stages) {
    if (!plan->parts) break; // nothing moves
    int step = w->period;
    while (w->period % plan->slots[stage]) w->period += step;
  }
  make_buffers(w);
  find_leaves(w);
  walk_rewind(w);
  return w;
}

void walk_destroy(Walk *w) {
  if (!w) return;
  free(w->buffer);
  free(w->slot);
  free(w->staging);
  free(w->send);
  free(w->leave);
  free(w);
}

void walk_rewind(Walk *w) {
  w->at = w->ran = w->left = w->follows = w->base = 0;
  w->end = w->plan.list->count;
  w->ahead = INT_MAX;
  w->drained = 1;
  for (int b = 0; b < w->buffers; b++) w->buffer[b].microbatch = -1, w->buffer[b].sends = w->buffer[b].waited = 0;
}

void walk_go(Walk *w, ListPart part, int ahead) {
  const ActionList *list = w->plan.list;
  int shift = w->follows ? -w->plan.microbatches : 0;
  for (w->at = 0; w->at < list->count && list->data[w->at].part != part;) w->at++;
  for (w->end = w->at; w->end < list->count && list->data[w->end].part == part;) w->end++;
  for (w->left = 0; w->left < w->leaves && w->leave[w->left].action < w->at;) w->left++;
  w->ran = 0;
  w->follows = part == LIST_BODY;
  w->ahead = ahead;
  w->drained = part == LIST_BODY && !ahead;
  for (int b = 0; b < w->buffers; b++)
    if (w->buffer[b].microbatch >= 0) w->buffer[b].microbatch += shift;
  w->base = ((w->base - shift) % w->period + w->period) % w->period;
}

void walk_stop(Walk *w) {
  w->at = w->end = w->plan.list->count;
  w->drained = 1;
}

int walk_base(const Walk *w) { return w->base; }

// Stepping -----------------------------------------------------------------------------------------------------------

static WalkStep wait_for(const Walk *w, const Action *a, const WalkBuffer *where, const Buffer *b) {
  int send = b->send[b->waited];
  return (WalkStep){WALK_WAIT, a, *where, action_number(&w->plan, &w->plan.list->data[send]), send};
}

// After the last action: for all that was sent.
static int next_wait_at_end(const Walk *w, WalkStep *step) {
  for (int s = 0; s < w->plan.segments->stages; s++)
    for (int kind = 0; kind < 1 + PHASE_COUNT; kind++) {
      WalkBuffer where = {.stage = s, .is_slot = !kind, .phase = kind ? (Phase)(kind - 1) : PHASE_FORWARD};
      int count = w->slot[s] < 0                               ? 0
                  : !kind                                      ? w->plan.slots[s]
                  : w->staging[s * PHASE_COUNT + kind - 1] < 0 ? 0
                                                               : w->plan.staging;
      for (; where.index < count; where.index++) {
        const Buffer *b = find(w, &where);
        if (b->waited < b->sends) return *step = wait_for(w, NULL, &where, b), 1;
      }
    }
  return 0;
}

// The step that comes next; 0: none.
static int next(Walk *w, WalkStep *step) {
  for (; w->at < w->end; w->at++, w->ran = 0) {
    const Action *a = &w->plan.list->data[w->at];
    int number = action_number(&w->plan, a);
    WalkBuffer need[2];
    if (a->step > FAULT(stream_begins_one_too_many, w->ahead, w->ahead + 1)) {
      while (w->left < w->leaves && w->leave[w->left].action == w->at) w->left++;
      continue;
    }
    for (int i = 0, n = w->ran ? 0 : entered(w, a, need); i < n; i++) {
      const Buffer *b = find(w, &need[i]);
      if (b->microbatch == number) continue;
      if (FAULT(walk_never_waits, b->waited < b->sends, 0)) *step = wait_for(w, a, &need[i], b);
      else *step = (WalkStep){WALK_ENTER, a, need[i], number, -1};
      return 1;
    }
    if (!w->ran) return *step = (WalkStep){.kind = WALK_RUN, .action = a, .microbatch = number, .send = -1}, 1;
    if (w->left < w->leaves && w->leave[w->left].action == w->at) {
      const Leave *l = &w->leave[w->left];
      return *step = (WalkStep){WALK_LEAVE, a, place(w, l->buffer, l->microbatch), l->microbatch, -1}, 1;
    }
  }
  return w->drained && next_wait_at_end(w, step);
}

static void note_send(Walk *w, const Action *a) {
  WalkBuffer from = a->kept ? slot_of(w, a) : staging_of(w, a);
  Buffer *b = find(w, &from);
  b->send[b->sends++] = w->at;
}

static void done(Walk *w, const WalkStep *step) {
  switch (step->kind) {
  case WALK_WAIT: find(w, &step->buffer)->waited++; break;
  case WALK_ENTER: {
    Buffer *b = find(w, &step->buffer);
    b->microbatch = step->microbatch;
    b->sends = b->waited = 0;
    break;
  }
  case WALK_RUN:
    if (step->action->kind == ACTION_SEND) note_send(w, step->action);
    w->ran = 1;
    break;
  case WALK_LEAVE: w->left++; break;
  }
}

int walk_step(Walk *w, WalkVisitor visit, void *context) {
  WalkStep step;
  if (!next(w, &step)) return 0;
  int code = visit(context, &step);
  if (code > 0) done(w, &step);
  return code;
}

int walk_run(Walk *w, WalkVisitor visit, void *context) {
  int code;
  while ((code = walk_step(w, visit, context)) > 0) {}
  CHECK(code < 0 || walk_ended(w), "a walk stands still");
  return code;
}

int walk_at(const Walk *w) { return w->at; }

int walk_ended(const Walk *w) {
  WalkStep step;
  return w->at == w->end && (!w->drained || !next_wait_at_end(w, &step));
}

void walk_buffer_text(const WalkBuffer *b, char *text, size_t size) {
  if (b->is_slot) snprintf(text, size, "slot %d of stage %d", b->index, b->stage);
  else snprintf(text, size, "%s staging buffer %d of stage %d", phase_letter(b->phase), b->index, b->stage);
}
