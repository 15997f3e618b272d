// Replays a schedule on all coordinates at once, in any unit of time: what validates it, and what draws it.
#include "pipeline/schedule.h"
#include <string.h>

typedef struct Message { const Action *send; double sent, received; } Message; // received < 0: not yet
typedef Vec(Message) Queue;                                                  // of one ordered pair of coordinates and one direction
typedef struct Posted { int queue, index; } Posted;
typedef struct Buffer { int microbatch; Vec(Posted) sent; } Buffer;          // a slot, or mail of a segment; -1: nobody has been in it

typedef struct Replay {
  const Schedule *s;
  const Segments *segments;
  const double (*cost)[PHASE_COUNT];
  ScheduleSpans *spans;
  int *at;          // (coordinates) next action
  double *clock;    // (coordinates)
  Queue *queue;     // (coordinates, coordinates, 2)
  int *received;    // as queue: messages taken
  Buffer **slot;    // (stages, slots of the stage)
  Buffer (*mail)[PHASE_COUNT][MAIL_BUFFERS]; // (stages)
  char *ran;        // (stages, PHASE_COUNT, microbatches)
  Error *error;
} Replay;

static int queue_of(const Replay *r, int from, int to, int forward) { return (from * r->s->coordinates + to) * 2 + forward; }
static char *ran(const Replay *r, int stage, Phase phase, int microbatch) {
  return &r->ran[(stage * PHASE_COUNT + (int)phase) * r->s->microbatches + microbatch];
}

static Buffer *slot_of(const Replay *r, const Action *a) { return &r->slot[a->stage][a->microbatch % r->s->slots[a->stage]]; }

static Phase phase_of(const Action *a) {
  return a->kind == ACTION_FORWARD ? PHASE_FORWARD : a->kind == ACTION_BACKWARD ? PHASE_BACKWARD : a->phase;
}
static Buffer *mail_of(const Replay *r, const Action *a) { return &r->mail[a->stage][phase_of(a)][a->microbatch % MAIL_BUFFERS]; }

// 0 while something that the buffer's last microbatch sent has not been received.
static int enter(Replay *r, int coordinate, Buffer *b, int microbatch) {
  if (b->microbatch == microbatch) return 1;
  for (int i = 0; i < b->sent.count; i++) {
    const Message *m = &r->queue[b->sent.data[i].queue].data[b->sent.data[i].index];
    if (m->received < 0) return 0;
    if (m->received > r->clock[coordinate]) r->clock[coordinate] = m->received;
  }
  b->sent.count = 0;
  b->microbatch = microbatch;
  return 1;
}

static int enter_buffers(Replay *r, int coordinate, const Action *a) {
  if (!enter(r, coordinate, mail_of(r, a), a->microbatch)) return 0;
  return phase_of(a) == PHASE_BACKWARD || enter(r, coordinate, slot_of(r, a), a->microbatch);
}

static void send(Replay *r, int coordinate, const Action *a) {
  int q = queue_of(r, coordinate, a->peer % r->s->coordinates, a->peer > a->stage);
  vec_push(&r->queue[q], (Message){a, r->clock[coordinate], -1});
  Buffer *from = a->kept ? slot_of(r, a) : mail_of(r, a);
  vec_push(&from->sent, (Posted){q, r->queue[q].count - 1});
}

// 1 when the message was there, 0 when not, an error when another one came first.
static int receive(Replay *r, int coordinate, const Action *a) {
  int q = queue_of(r, a->peer % r->s->coordinates, coordinate, a->stage > a->peer);
  if (r->queue[q].count <= r->received[q]) return 0;
  Message *m = &r->queue[q].data[r->received[q]++];
  if (m->send->tensor != a->tensor || m->send->microbatch != a->microbatch)
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d expects microbatch %d from stage %d, which sends microbatch %d first",
                     a->stage, a->microbatch, a->peer, m->send->microbatch);
  if (m->sent > r->clock[coordinate]) r->clock[coordinate] = m->sent;
  m->received = r->clock[coordinate];
  return 1;
}

static const char *phase_name(Phase phase) { return phase == PHASE_FORWARD ? "forward" : "backward"; }

// A segment runs once, backward behind forward, and behind those of the same coordinate that leave it something in memory.
static int run_segment(Replay *r, int coordinate, const Action *a) {
  Phase phase = phase_of(a);
  const Segment *segment = &r->segments->micro[a->stage][phase];
  if ((*ran(r, a->stage, phase, a->microbatch))++)
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d runs %s twice on microbatch %d", a->stage, phase_name(phase), a->microbatch);
  if (phase == PHASE_BACKWARD && !*ran(r, a->stage, PHASE_FORWARD, a->microbatch))
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d runs backward on microbatch %d before forward", a->stage, a->microbatch);
  for (int i = 0; i < segment->receive.count; i++) {
    const Crossing *c = &segment->receive.data[i];
    if (c->stage % r->s->coordinates == coordinate && !*ran(r, c->stage, c->phase, a->microbatch))
      return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d runs %s on microbatch %d before stage %d has run %s, on the same rank",
                       a->stage, phase_name(phase), a->microbatch, c->stage, phase_name(c->phase));
  }
  double start = r->clock[coordinate];
  r->clock[coordinate] += r->cost ? r->cost[a->stage][phase] : 1;
  if (!r->spans) return 1;
  vec_push(&r->spans->span, (ScheduleSpan){coordinate, a->stage, a->microbatch, a->kind, start, r->clock[coordinate]});
  r->spans->busy += r->clock[coordinate] - start;
  if (r->clock[coordinate] > r->spans->total) r->spans->total = r->clock[coordinate];
  return 1;
}

// 1: done, 0: it has to wait, or an error.
static int run_action(Replay *r, int coordinate, const Action *a) {
  if (a->kind == ACTION_BEGIN || a->kind == ACTION_END) return 1;
  if (a->kind == ACTION_SEND) return send(r, coordinate, a), 1;
  if (!enter_buffers(r, coordinate, a)) return 0;
  if (a->kind == ACTION_RECV) return receive(r, coordinate, a);
  return run_segment(r, coordinate, a);
}

static int run_all(Replay *r) {
  const Schedule *s = r->s;
  for (int progress = 1; progress;) {
    progress = 0;
    for (int c = 0; c < s->coordinates; c++) {
      for (; r->at[c] < s->list[c].count; r->at[c]++, progress = 1) {
        int code = run_action(r, c, &s->list[c].data[r->at[c]]);
        if (code < 0) return code;
        if (!code) break;
      }
    }
  }
  return PLAIT_OK;
}

static int check_deadlock(const Replay *r) {
  for (int c = 0; c < r->s->coordinates; c++) {
    if (r->at[c] == r->s->list[c].count) continue;
    const Action *a = &r->s->list[c].data[r->at[c]];
    if (a->kind == ACTION_RECV && mail_of(r, a)->microbatch == a->microbatch && (a->phase == PHASE_BACKWARD || slot_of(r, a)->microbatch == a->microbatch))
      return error_set(r->error, PLAIT_INFEASIBLE, "schedule: deadlock: stage %d waits for microbatch %d of stage %d, which waits for this stage itself",
                       a->stage, a->microbatch, a->peer);
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: deadlock: microbatch %d waits for a buffer of stage %d, which is never left before",
                     a->microbatch, a->stage);
  }
  return PLAIT_OK;
}

// No message may be left over, and what any stage does with a microbatch all must do with all.
static int check_whole(const Replay *r) {
  const Schedule *s = r->s;
  int n = s->coordinates, training = 0;
  for (int q = 0; q < n * n * 2; q++)
    if (r->queue[q].count > r->received[q])
      return error_set(r->error, PLAIT_INFEASIBLE, "schedule: a message from pipeline rank %d to %d is never received", q / 2 / n, q / 2 % n);
  for (int t = 0; t < s->stages; t++)
    for (int m = 0; m < s->microbatches; m++) training |= *ran(r, t, PHASE_BACKWARD, m);
  for (int t = 0; t < s->stages; t++)
    for (int m = 0; m < s->microbatches; m++)
      for (int phase = 0; phase < (training ? 2 : 1); phase++)
        if (!*ran(r, t, (Phase)phase, m))
          return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d never runs %s on microbatch %d", t, phase_name((Phase)phase), m);
  return PLAIT_OK;
}

static int by_coordinate(const void *a, const void *b) {
  const ScheduleSpan *x = a, *y = b;
  if (x->coordinate != y->coordinate) return x->coordinate - y->coordinate;
  return (x->start > y->start) - (x->start < y->start);
}

static void replay_free(Replay *r) {
  int n = r->s->coordinates;
  for (int q = 0; q < n * n * 2; q++) vec_free(&r->queue[q]);
  for (int t = 0; t < r->s->stages; t++) {
    for (int i = 0; i < r->s->slots[t]; i++) vec_free(&r->slot[t][i].sent);
    free(r->slot[t]);
    for (int i = 0; i < PHASE_COUNT * MAIL_BUFFERS; i++) vec_free(&r->mail[t][i / MAIL_BUFFERS][i % MAIL_BUFFERS].sent);
  }
  free(r->at);
  free(r->clock);
  free(r->queue);
  free(r->received);
  free(r->slot);
  free(r->mail);
  free(r->ran);
}

int schedule_replay(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT], ScheduleSpans *spans, Error *error) {
  size_t n = (size_t)s->coordinates;
  Replay r = {.s = s, .segments = segments, .cost = cost, .spans = spans, .error = error};
  r.at = xcalloc(n, sizeof *r.at);
  r.clock = xcalloc(n, sizeof *r.clock);
  r.queue = xcalloc(n * n * 2, sizeof *r.queue);
  r.received = xcalloc(n * n * 2, sizeof *r.received);
  r.slot = xcalloc((size_t)s->stages, sizeof *r.slot);
  r.mail = xcalloc((size_t)s->stages, sizeof *r.mail);
  r.ran = xcalloc((size_t)s->stages * PHASE_COUNT * (size_t)s->microbatches, 1);
  for (int t = 0; t < s->stages; t++) {
    r.slot[t] = xcalloc((size_t)s->slots[t], sizeof *r.slot[t]);
    for (int i = 0; i < s->slots[t]; i++) r.slot[t][i].microbatch = -1;
    for (int i = 0; i < PHASE_COUNT * MAIL_BUFFERS; i++) r.mail[t][i / MAIL_BUFFERS][i % MAIL_BUFFERS].microbatch = -1;
  }
  if (spans) *spans = (ScheduleSpans){0};
  int code = run_all(&r);
  if (!code) code = check_deadlock(&r);
  if (!code) code = check_whole(&r);
  if (code && spans) schedule_spans_free(spans);
  if (!code && spans && spans->span.count) qsort(spans->span.data, (size_t)spans->span.count, sizeof *spans->span.data, by_coordinate);
  replay_free(&r);
  return code;
}

void schedule_spans_free(ScheduleSpans *spans) { vec_free(&spans->span); }
