// Completes what a generator returned: communication, slots. Printing.
#include "schedule/walk.h"
#include "base/fault.h"

static const Segment *segment_of(const Segments *segments, const Action *a) {
  return &segments->micro[a->stage][action_phase(a)];
}

static void add_messages(const CrossingList *list, ActionKind kind, const Action *at, StageMap map,
                         ActionList *full) {
  for (int k = 0; k < list->count; k++) {
    const Crossing *c = &list->data[k];
    if (stage_coordinate(c->stage, map) == stage_coordinate(at->stage, map))
      continue; // handed over in memory
    if (FAULT(schedule_drops_a_send, 0, kind == ACTION_SEND && at->microbatch == 1)) continue;
    vec_push(full, (Action){.kind = kind,
                            .stage = at->stage,
                            .microbatch = at->microbatch,
                            .tensor = c->tensor,
                            .peer = c->stage,
                            .phase = action_phase(at),
                            .part = at->part,
                            .step = at->step,
                            .kept = c->kept});
  }
}

// RECV before a segment, SEND after it.
static void add_communication(const Segments *segments, StageMap map, int streams, const ActionList *plain,
                              ActionList *full) {
  if (!streams) vec_push(full, (Action){.kind = ACTION_BEGIN});
  for (int i = 0; i < plain->count; i++) {
    const Action *a = &plain->data[i];
    if (FAULT(schedule_drops_weights, 0, a->kind == ACTION_WEIGHT && a->microbatch == 1)) continue;
    if (!action_runs_body(a)) {
      vec_push(full, *a);
      continue;
    }
    const Segment *s = segment_of(segments, a);
    add_messages(&s->receive, ACTION_RECV, a, map, full);
    vec_push(full, *a);
    add_messages(&s->send, ACTION_SEND, a, map, full);
  }
  if (!streams) vec_push(full, (Action){.kind = ACTION_END});
}

// ---- slots ---------------------------------------------------------------------------------------------------------

typedef struct Stay {
  int first, last;
} Stay; // of a microbatch in a slot: indices of actions; last 0: none (BEGIN is 0)
typedef struct Stays { const Schedule *s; const Walk *walk; Stay *stay; } Stays; // stay[stage][microbatch]

static int note_stay(void *context, const WalkStep *step) {
  Stays *all = context;
  if (step->kind == WALK_RUN || !step->buffer.is_slot) return 1;
  Stay *stay = &all->stay[step->buffer.stage * all->s->microbatches * all->s->steps + step->microbatch];
  if (step->kind == WALK_ENTER) stay->first = walk_at(all->walk);
  if (step->kind == WALK_LEAVE) stay->last = walk_at(all->walk);
  return 1;
}

// Whether two microbatches would be in one slot at the same time.
static int overlaps(const Stay *stay, int microbatches, int slots) {
  for (int m = 0; m < microbatches; m++)
    for (int other = m + slots; other < microbatches; other += slots)
      if (stay[m].first <= stay[other].last && stay[other].first <= stay[m].last) return 1;
  return 0;
}

// Walks with a slot for every microbatch, and sees how many of them are in use at once.
static void count_slots(Schedule *s, const Segments *segments) {
  int microbatches = s->steps * s->microbatches;
  Stay *stay = xcalloc((size_t)s->stages * (size_t)microbatches, sizeof *stay);
  for (int t = 0; t < s->stages; t++) s->slots[t] = microbatches;
  for (int c = 0; c < s->map.coordinates; c++) {
    WalkPlan plan = schedule_walk(s, segments, &s->list[c]);
    Walk *walk = walk_create(&plan);
    walk_run(walk, note_stay, &(Stays){s, walk, stay});
    walk_destroy(walk);
  }
  for (int t = 0; t < s->stages; t++) {
    s->slots[t] = 1;
    while (FAULT(schedule_shares_a_slot, s->slots[t] < microbatches, 0) &&
           overlaps(&stay[t * microbatches], microbatches, s->slots[t]))
      s->slots[t]++;
  }
  free(stay);
}

WalkPlan schedule_walk(const Schedule *s, const Segments *segments, const ActionList *list) {
  return (WalkPlan){list, segments, s->map, s->microbatches, s->slots, STAGING_BUFFERS, s->steps, s->parts};
}

// ---- entry ---------------------------------------------------------------------------------------------------------

// Actions of stages or microbatches that do not exist, or of another coordinate, cannot even be looked at.
static int check_places(const Schedule *s, const ActionList *list, int coordinate, Error *error) {
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    if (s->streams && !action_runs_body(a)) continue; // BEGIN, SUMS, END
    if (a->stage >= 0 && a->stage < s->stages && stage_coordinate(a->stage, s->map) == coordinate &&
        a->microbatch >= 0 && a->microbatch < s->microbatches && action_runs_body(a))
      continue;
    return error_set(error, PLAIT_INFEASIBLE,
                     "schedule: pipeline rank %d is to run stage %d on microbatch %d, which belongs to another rank",
                     coordinate, a->stage, a->microbatch);
  }
  return PLAIT_OK;
}

int schedule_create(const ScheduleGenerator *generator, const Segments *segments, StageMap map, int microbatches,
                    Schedule **out, Error *error) {
  Schedule *s = xcalloc(1, sizeof *s);
  *s = (Schedule){.map = map,
                  .stages = segments->stages,
                  .microbatches = microbatches,
                  .steps = 1,
                  .streams = generator->streams,
                  .parts = generator->streams,
                  .at_once = generator->at_once};
  s->list = xcalloc((size_t)map.coordinates, sizeof *s->list);
  s->slots = xcalloc((size_t)s->stages, sizeof *s->slots);
  int code = PLAIT_OK;
  for (int c = 0; c < map.coordinates && !code; c++) {
    ActionList plain = {0};
    generator->generate(map, segments->stages, microbatches, c, &plain);
    code = check_places(s, &plain, c, error);
    if (!code) add_communication(segments, map, s->streams, &plain, &s->list[c]);
    for (int i = 0; i < plain.count; i++)
      if (plain.data[i].step >= s->steps) s->steps = plain.data[i].step + 1;
    vec_free(&plain);
  }
  // A stream as many steps long as are under way at once: then all of them are once.
  Schedule *whole = !code && s->parts ? schedule_repeat(s, s->steps) : s;
  if (!code) count_slots(whole, segments);
  if (!code) code = schedule_replay(whole, segments, NULL, NULL, error);
  if (whole != s) {
    for (int t = 0; t < s->stages; t++) s->slots[t] = whole->slots[t];
    schedule_free(whole);
  }
  if (code) schedule_free(s);
  else *out = s;
  return code;
}

void schedule_free(Schedule *s) {
  if (!s) return;
  for (int c = 0; c < s->map.coordinates; c++) vec_free(&s->list[c]);
  free(s->list);
  free(s->slots);
  free(s);
}

// With the numbers of steps from the `first` on; those from `end` on are left out.
static void repeat_part(const ActionList *list, ListPart part, int first, int end, ActionList *out) {
  for (int i = 0; i < list->count; i++) {
    Action a = list->data[i];
    a.step += first;
    if (a.part != part || a.step >= end) continue;
    a.part = LIST_BODY;
    vec_push(out, a);
  }
}

Schedule *schedule_repeat(const Schedule *stream, int steps) {
  CHECK(stream->parts && steps > 0);
  Schedule *s = xcalloc(1, sizeof *s);
  *s = *stream;
  s->steps = steps;
  s->parts = 0;
  s->list = xcalloc((size_t)s->map.coordinates, sizeof *s->list);
  s->slots = xcalloc((size_t)s->stages, sizeof *s->slots);
  for (int t = 0; t < s->stages; t++) s->slots[t] = stream->slots[t];
  for (int c = 0; c < s->map.coordinates; c++) {
    repeat_part(&stream->list[c], LIST_PROLOGUE, 0, steps, &s->list[c]);
    for (int k = 0; k < steps; k++) repeat_part(&stream->list[c], LIST_BODY, k, steps, &s->list[c]);
  }
  return s;
}

const char *action_name(ActionKind kind) {
  static const char *const names[] = {
#define ACTION(id, name, meaning) name,
#include "schedule/actions.def"
#undef ACTION
  };
  return names[kind];
}

static void print_action(const Action *a, const Graph *g, const WalkPlan *plan, FILE *out) {
  fprintf(out, "  %s", action_name(a->kind));
  if (action_runs_body(a))
    fprintf(out, " stage %d microbatch %d slot %d, instructions %d to %d", a->stage, a->microbatch,
            action_number(plan, a) % plan->slots[a->stage], a->from, a->to - 1);
  if (a->kind == ACTION_SEND || a->kind == ACTION_RECV)
    fprintf(out, " stage %d microbatch %d %%%d %s %s stage %d", a->stage, a->microbatch, a->tensor,
            graph_tensor(g, a->tensor)->name, a->kind == ACTION_SEND ? "to" : "from", a->peer);
  if (a->kind == ACTION_REDUCE) fprintf(out, " %s %s", op_name(g->node.data[a->node].op), g->node.data[a->node].name);
  fputc('\n', out);
}

typedef struct Printer { const WalkPlan *plan; const Graph *graph; FILE *out; ListPart part; } Printer;

static int print_step(void *context, const WalkStep *step) {
  static const char *const parts[] = {"body", "prologue"};
  Printer *p = context;
  char buffer[64];
  if (step->action && step->action->part != p->part) {
    p->part = step->action->part;
    fprintf(p->out, "%s\n", parts[p->part]);
  }
  if (step->kind == WALK_RUN) return print_action(step->action, p->graph, p->plan, p->out), 1;
  walk_buffer_text(&step->buffer, buffer, sizeof buffer);
  if (step->kind == WALK_ENTER) fprintf(p->out, "    microbatch %d enters %s\n", step->microbatch, buffer);
  if (step->kind == WALK_LEAVE) fprintf(p->out, "    microbatch %d leaves %s\n", step->microbatch, buffer);
  if (step->kind == WALK_WAIT)
    fprintf(p->out, "    wait until %%%d of microbatch %d, sent from %s, has been received\n",
            p->plan->list->data[step->send].tensor, step->microbatch, buffer);
  return 1;
}

void schedule_print(const WalkPlan *plan, const Graph *g, FILE *out) {
  Walk *walk = walk_create(plan);
  walk_run(walk, print_step, &(Printer){plan, g, out, LIST_BODY});
  walk_destroy(walk);
}
