// Completes what a generator returned and replays it.
#include "pipeline/schedule.h"
#include <string.h>

static const ScheduleGenerator *const generators[] = {&schedule_gpipe, &schedule_1f1b, &schedule_forward};

const ScheduleGenerator *schedule_by_name(const char *name) {
  for (size_t i = 0; i < sizeof generators / sizeof *generators; i++)
    if (!strcmp(generators[i]->name, name)) return generators[i];
  return NULL;
}

// RECV before a segment, SEND after it. Stages on the same coordinate hand over in memory.
static void add_communication(const Segments *segments, int coordinates, const ActionList *plain, ActionList *full) {
  vec_push(full, (Action){.kind = ACTION_BEGIN, .stage = 0, .microbatch = 0});
  for (int i = 0; i < plain->count; i++) {
    Action a = plain->data[i];
    const Segment *s = &segments->micro[a.stage][a.kind == ACTION_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD];
    for (int k = 0; k < s->receive.count; k++)
      if ((s->receive.data[k].stage - a.stage) % coordinates)
        vec_push(full, (Action){.kind = ACTION_RECV, .stage = a.stage, .microbatch = a.microbatch, .tensor = s->receive.data[k].tensor, .peer = s->receive.data[k].stage});
    vec_push(full, a);
    for (int k = 0; k < s->send.count; k++)
      if ((s->send.data[k].stage - a.stage) % coordinates)
        vec_push(full, (Action){.kind = ACTION_SEND, .stage = a.stage, .microbatch = a.microbatch, .tensor = s->send.data[k].tensor, .peer = s->send.data[k].stage});
  }
  vec_push(full, (Action){.kind = ACTION_END, .stage = 0, .microbatch = 0});
}

// Messages of one ordered pair of coordinates and one direction travel in order.
static const Action *nth_send(const Schedule *s, int from, int to, int forward, int n) {
  const ActionList *list = &s->list[from];
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    if (a->kind == ACTION_SEND && a->peer % s->coordinates == to && (a->peer > a->stage) == forward && n-- == 0) return a;
  }
  return NULL;
}

// Replays all coordinates: a SEND is posted and does not wait, a RECV waits for the SEND of the same rank in its queue.
// Messages must meet in order, and everybody must reach the end.
static int replay(const Schedule *s, Error *error) {
  int n = s->coordinates, done = 0;
  int *at = xcalloc((size_t)n, sizeof(int)), *sent = xcalloc((size_t)n * n * 2, sizeof(int)), *got = xcalloc((size_t)n * n * 2, sizeof(int));
  int code = PLAIT_OK;
  for (int progress = 1; progress && !code;) {
    progress = done = 0;
    for (int c = 0; c < n && !code; c++) {
      for (; at[c] < s->list[c].count && !code; at[c]++, progress = 1) {
        const Action *a = &s->list[c].data[at[c]];
        int peer = a->peer % n;
        if (a->kind == ACTION_SEND) sent[(c * n + peer) * 2 + (a->peer > a->stage)]++;
        if (a->kind != ACTION_RECV) continue;
        int queue = (peer * n + c) * 2 + (a->stage > a->peer);
        if (sent[queue] <= got[queue]) break;
        const Action *send = nth_send(s, peer, c, a->stage > a->peer, got[queue]++);
        if (send->tensor != a->tensor || send->microbatch != a->microbatch)
          code = error_set(error, PLAIT_INFEASIBLE, "schedule: stage %d expects microbatch %d from stage %d, which sends microbatch %d first",
                           a->stage, a->microbatch, a->peer, send->microbatch);
      }
      done += at[c] == s->list[c].count;
    }
  }
  for (int c = 0; c < n && !code && done < n; c++)
    if (at[c] < s->list[c].count) {
      const Action *a = &s->list[c].data[at[c]];
      code = error_set(error, PLAIT_INFEASIBLE, "schedule: deadlock: stage %d waits for microbatch %d of stage %d, which is never sent before",
                       a->stage, a->microbatch, a->peer);
    }
  for (int q = 0; q < n * n * 2 && !code; q++)
    if (sent[q] > got[q])
      code = error_set(error, PLAIT_INFEASIBLE, "schedule: a message from pipeline rank %d to %d is never received", q / 2 / n, q / 2 % n);
  free(at);
  free(sent);
  free(got);
  return code;
}

// Whether a microbatch would enter a slot (microbatch mod slots) that another one of its stage has not left yet.
static int slot_is_shared(const Schedule *s, const ActionList *list, int slots) {
  int *holder = xcalloc((size_t)s->stages * slots, sizeof(int)), shared = 0; // microbatch + 1; 0: free
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    if (a->kind != ACTION_FORWARD && a->kind != ACTION_BACKWARD) continue;
    int *in = &holder[a->stage * slots + a->microbatch % slots];
    shared |= a->kind == ACTION_FORWARD && *in;
    *in = a->kind == ACTION_FORWARD ? a->microbatch + 1 : 0;
  }
  free(holder);
  return shared;
}

// The fewest slots that hold every microbatch from its forward to its backward, in any stage. One for forward alone.
static int count_slots(const Schedule *s) {
  int slots = 1;
  for (int c = 0; c < s->coordinates; c++) {
    int backward = 0;
    for (int i = 0; i < s->list[c].count; i++) backward |= s->list[c].data[i].kind == ACTION_BACKWARD;
    while (backward && slots < s->microbatches && slot_is_shared(s, &s->list[c], slots)) slots++;
  }
  return slots;
}

int schedule_create(const ScheduleGenerator *generator, const Segments *segments, int coordinates, int microbatches,
                    Schedule **out, Error *error) {
  Schedule *s = xcalloc(1, sizeof *s);
  *s = (Schedule){.coordinates = coordinates, .stages = segments->stages, .microbatches = microbatches};
  s->list = xcalloc((size_t)coordinates, sizeof *s->list);
  for (int c = 0; c < coordinates; c++) {
    ActionList plain = {0};
    generator->generate(coordinates, segments->stages, microbatches, c, &plain);
    add_communication(segments, coordinates, &plain, &s->list[c]);
    vec_free(&plain);
  }
  s->slots = count_slots(s);
  int code = replay(s, error);
  if (code) schedule_free(s);
  else *out = s;
  return code;
}

void schedule_free(Schedule *s) {
  if (!s) return;
  for (int c = 0; c < s->coordinates; c++) vec_free(&s->list[c]);
  free(s->list);
  free(s);
}

const char *action_name(ActionKind kind) {
  static const char *const names[] = {
#define ACTION(id, name, meaning) name,
#include "pipeline/actions.def"
#undef ACTION
  };
  return names[kind];
}

void schedule_print(const ActionList *list, const Graph *g, int slots, FILE *out) {
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    fprintf(out, "  %s", action_name(a->kind));
    if (a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD)
      fprintf(out, " stage %d microbatch %d slot %d, instructions %d to %d", a->stage, a->microbatch, a->microbatch % slots, a->from, a->to - 1);
    if (a->kind == ACTION_SEND || a->kind == ACTION_RECV)
      fprintf(out, " microbatch %d %%%d %s %s stage %d", a->microbatch, a->tensor, graph_tensor(g, a->tensor)->name,
              a->kind == ACTION_SEND ? "to" : "from", a->peer);
    if (a->kind == ACTION_REDUCE) fprintf(out, " %s %s", op_name(g->node.data[a->node].op), g->node.data[a->node].name);
    fputc('\n', out);
  }
}
