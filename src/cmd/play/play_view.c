// One recipe's step for the page of plait explain --play: pipeline ranks, their bodies, events, memory and shards.
#include "cmd/play/play.h"
#include "program/memory.h"
#include "program/traffic.h"
#include "schedule/timeline.h"
#include <math.h>
#include <string.h>

// The most that a page shows, so that it stays small; it says what is left out.
enum { MOST_COORDINATES = 16, MOST_MICROBATCHES = 2500, STREAM_STEPS = 3 };
enum { RESOLUTION = 1000000 }; // of times: parts of the step

// ---- memory ---------------------------------------------------------------------------------------------------------

static json_t *memory_plan(const Program *p) {
  const MemoryPlan *m = &p->memory;
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters",
                   (json_int_t)m->parameters, "gradients", (json_int_t)m->gradients, "optimizer",
                   (json_int_t)m->optimizer, "other", (json_int_t)m->other, "versions", (json_int_t)m->versions,
                   "activations", (json_int_t)m->activations, "workspace", (json_int_t)m->workspace, "communication",
                   (json_int_t)m->communication, "live", (json_int_t)m->live, "gaps", (json_int_t)m->gaps, "inputs",
                   (json_int_t)p->input_bytes, "total", (json_int_t)m->total);
}

// [[stage, count, bytes that a microbatch has received before its first body], …] of slots, and
// [[stage, phase, count, bytes], …] of staging buffers.
static void add_rings(const Program *p, json_t *coordinate) {
  json_t *slots = json_array(), *staging = json_array();
  for EACH_PROGRAM_STAGE(s, p) {
    int64_t *needed = memory_slot_needed(p, s);
    json_array_append_new(slots, json_pack("[i, i, I]", s, p->slots[s].count, (json_int_t)needed[0]));
    free(needed);
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      if (p->staging[s][phase].bytes)
        json_array_append_new(staging, json_pack("[i, i, i, I]", s, phase, p->staging[s][phase].count,
                                                 (json_int_t)p->staging[s][phase].bytes));
  }
  json_object_set_new(coordinate, "slots", slots);
  json_object_set_new(coordinate, "staging", staging);
}

// Buffers of collectives that are under way from before END, in a stream from its first half, to their last reader:
// [offset, bytes, first step of END, last step of END], by tensor. tensors: their ids.
static json_t *reduced_buffers(const Program *p, const int *step_of, json_t **tensors) {
  const Graph *g = p->graph;
  json_t *list = json_array();
  *tensors = json_object();
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &g->node.data[p->end.instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      char key[16];
      if (t < 0 || p->place[t].area != AREA_COMM) continue;
      snprintf(key, sizeof key, "%d", t);
      json_t *known = json_object_get(*tensors, key);
      int last = step_of[instruction_end(&p->end, i)];
      if (known)
        json_array_set_new(json_array_get(list, (size_t)json_integer_value(known)), 3, json_integer(last));
      else {
        json_object_set_new(*tensors, key, json_integer((json_int_t)json_array_size(list)));
        json_array_append_new(list,
                              json_pack("[I, I, i, i]", (json_int_t)p->offset[p->place[t].first],
                                        (json_int_t)memory_tensor_bytes(p, graph_tensor(g, t)), step_of[i], last));
      }
    }
  }
  return list;
}

// ---- events ---------------------------------------------------------------------------------------------------------

// Numbers of an event's kind beside those of actions.
enum { EVENT_ENTER = ACTION_COUNT, EVENT_LEAVE, EVENT_RECEIVED };

// One pipeline rank's bodies, and where its events go. An event is a list of numbers:
//   BEGIN, F, B, W, SUMS, END   [kind, from, to, stage, microbatch, body, first step, end step, step of the stream]
//   SEND, RECV                  [kind, from, to, stage, microbatch, peer stage, tensor, bytes, name]
//   REDUCE                      [kind, from, to, number of the collective, buffers that it fills …]
//   ENTER, LEAVE, RECEIVED      [kind, from, to, stage, 0: slot or 1 + phase, index of the buffer, microbatch]
typedef struct Rank {
  Play play;
  json_t *bodies, *events, *reduces, *reduced, *tensors;
  int **step_of;      // (bodies)
  int *body;          // (stages · phases) its index; BEGIN is 0, END 1
  int at;             // the Program's next action
} Rank;

typedef struct View { const Job *job; Rank *rank; double scale; } View;

static json_int_t when(const View *v, double clock) { return (json_int_t)llround(clock * v->scale); }

static void add_body_event(const View *v, Rank *r, const Action *a, double from, double to) {
  const Program *p = r->play.program;
  int index = action_runs_body(a) ? r->body[a->stage * PHASE_COUNT + (int)action_phase(a)] : a->kind != ACTION_BEGIN;
  const Body *body = !index ? &p->begin : index == 1 ? &p->end : &p->micro[a->stage][action_phase(a)];
  int last = a->to ? a->to : body->count;
  json_array_append_new(
      r->events, json_pack("[i, I, I, i, i, i, i, i, i]", a->kind, when(v, from), when(v, to), a->stage, a->microbatch,
                           index, r->step_of[index][a->from], r->step_of[index][last], a->step));
}

static void add_reduce_event(const View *v, Rank *r, const Action *a, double at) {
  const Node *n = &r->play.program->graph->node.data[a->node];
  json_t *event = json_pack("[i, I, I, I]", a->kind, when(v, at), when(v, at),
                            (json_int_t)json_array_size(r->reduces));
  json_array_append_new(r->reduces, play_collective(&r->play, n, -1));
  for (int k = 0; k < n->noutput; k++) {
    char key[16];
    snprintf(key, sizeof key, "%d", n->output[k]);
    json_t *buffer = json_object_get(r->tensors, key);
    if (buffer) json_array_append(event, buffer);
  }
  json_array_append_new(r->events, event);
}

// Of a body's time, what passes until the end of a part of it.
static double share_before(const Rank *r, const Action *part) {
  int index = r->body[part->stage * PHASE_COUNT + (int)action_phase(part)];
  const json_t *steps = json_object_get(json_array_get(r->bodies, (size_t)index), "steps");
  double before = 0, all = 0;
  for (size_t i = 0; i < json_array_size(steps); i++) {
    double weight = json_real_value(json_object_get(json_array_get(steps, i), "weight"));
    all += weight;
    if ((int)i < r->step_of[index][part->to]) before += weight;
  }
  return all > 0 ? before / all : 1;
}

// The Program's list is the schedule's, with the last bodies cut and REDUCE in between: the parts of one action of the
// schedule share its time
// by their steps.
static void add_parts(const View *v, Rank *r, const Action *a, double from, double to) {
  const Program *p = r->play.program;
  const Body *body = action_runs_body(a) ? &p->micro[a->stage][action_phase(a)] : NULL;
  double start = from;
  for (int first = 1; r->at < p->actions.count; r->at++) {
    const Action *part = &p->actions.data[r->at];
    if (part->kind == ACTION_REDUCE) {
      add_reduce_event(v, r, part, start);
      continue;
    }
    if (!first && !(body && part->kind == a->kind && part->stage == a->stage && part->microbatch == a->microbatch &&
                    part->from))
      return;
    double end = body && part->to ? from + (to - from) * share_before(r, part) : to;
    add_body_event(v, r, part, start, end);
    start = end;
    first = 0;
  }
}

static void add_message(const View *v, Rank *r, const Action *a, double from, double to) {
  const Program *p = r->play.program;
  json_array_append_new(r->events, json_pack("[i, I, I, i, i, i, i, f, s]", a->kind, when(v, from), when(v, to),
                                             a->stage, a->microbatch, a->peer, a->tensor,
                                             transfer_bytes(p, a),
                                             graph_tensor(p->graph, a->tensor)->name));
}

static void watch(void *context, int coordinate, const WalkStep *step, double before, double after) {
  const View *v = context;
  Rank *r = &v->rank[coordinate];
  const Action *a = step->action;
  int streams = job_train(v->job)->program[0]->schedule->streams;
  if (!r->events) return; // not shown
  if (step->kind != WALK_RUN) {
    int kind = step->kind == WALK_ENTER ? EVENT_ENTER : step->kind == WALK_LEAVE ? EVENT_LEAVE : EVENT_RECEIVED;
    json_array_append_new(r->events,
                          json_pack("[i, I, I, i, i, i, i]", kind, when(v, before), when(v, after), step->buffer.stage,
                                    step->buffer.is_slot ? 0 : 1 + (int)step->buffer.phase, step->buffer.index,
                                    step->microbatch));
  } else if (a->kind == ACTION_SEND || a->kind == ACTION_RECV) {
    add_message(v, r, a, before, after);
    r->at++;
  } else if (streams) {
    Action part = *a; // the Program's list is the stream's in parts: END is cut as there
    if (a->kind == ACTION_SUMS) part.to = r->play.program->end_cut;
    if (a->kind == ACTION_END) part.from = r->play.program->end_cut;
    add_body_event(v, r, &part, before, after);
  } else add_parts(v, r, a, before, after);
}

// ---- a pipeline rank ------------------------------------------------------------------------------------------------

static void add_body(Rank *r, const Body *body, Region region, Phase phase, int stage, int index) {
  r->step_of = xrealloc(r->step_of, sizeof *r->step_of * (size_t)(index + 1));
  json_t *made = play_body(&r->play, body, region, phase, &r->step_of[index]);
  const char *kind = region == REGION_BEGIN ? "begin" : region == REGION_END ? "end" : phase_letter(phase);
  json_object_set_new(made, "kind", json_string(kind));
  json_object_set_new(made, "stage", json_integer(stage));
  json_array_append_new(r->bodies, made);
}

static void make_rank(Rank *r, const Job *job, int coordinate, json_t *ops, json_t *sets, AxesList *axes) {
  const Program *p = job_train(job)->program[coordinate];
  r->play = (Play){.job = job, .program = p, .ops = ops, .sets = sets, .axes = axes};
  r->play.parameter = xcalloc((size_t)p->graph->tensor.count + 1, sizeof(int));
  r->play.group = xcalloc((size_t)p->graph->variable.count + 1, sizeof(int));
  r->body = xcalloc((size_t)p->graph->stages * PHASE_COUNT, sizeof(int));
  r->bodies = json_array();
  r->events = json_array();
  r->reduces = json_array();
  play_find_parameters(&r->play);
}

static void rank_bodies(Rank *r) {
  const Program *p = r->play.program;
  int index = 0;
  add_body(r, &p->begin, REGION_BEGIN, PHASE_FORWARD, 0, index++);
  add_body(r, &p->end, REGION_END, PHASE_FORWARD, 0, index++);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      if (!p->micro[s][phase].count) continue;
      r->body[s * PHASE_COUNT + phase] = index;
      add_body(r, &p->micro[s][phase], REGION_MICRO, (Phase)phase, s, index++);
    }
  r->reduced = reduced_buffers(p, r->step_of[1], &r->tensors);
}

static json_t *stages_of(const Program *p) {
  const Graph *g = p->graph;
  json_t *stages = json_array();
  for EACH_PROGRAM_STAGE(s, p) json_array_append_new(stages, json_pack("[i, i, i]", s, g->cut[s], g->cut[s + 1]));
  return stages;
}

// Bytes that a rank sends in a step: [[set of axes, bytes], …].
static json_t *traffic_of(Play *play) {
  TrafficList list = {0};
  json_t *traffic = json_array();
  program_traffic(play->program, &list);
  for (int i = 0; i < list.count; i++)
    json_array_append_new(traffic, json_pack("[i, f]", play_set(play, list.data[i].axes), list.data[i].bytes));
  vec_free(&list);
  return traffic;
}

static json_t *describe_rank(Rank *r) {
  const Program *p = r->play.program;
  json_t *c = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i}", "pp", p->coordinate, "stages",
                        stages_of(p), "memory", memory_plan(p), "groups", play_groups(&r->play), "ranks",
                        play_ranks(p), "bodies", json_incref(r->bodies), "events", json_incref(r->events), "reduces",
                        json_incref(r->reduces), "reduced", json_incref(r->reduced), "traffic", traffic_of(&r->play),
                        "sums_under_way", p->sums_under_way);
  add_rings(p, c);
  return c;
}

static void free_rank(Rank *r, int coordinate_shown) {
  if (!coordinate_shown) return;
  for (size_t i = 0; i < json_array_size(r->bodies); i++) free(r->step_of[i]);
  free(r->step_of);
  free(r->body);
  free(r->play.parameter);
  free(r->play.group);
  json_decref(r->bodies);
  json_decref(r->events);
  json_decref(r->reduces);
  json_decref(r->reduced);
  json_decref(r->tensors);
}

// ---- the view -------------------------------------------------------------------------------------------------------

// The number of pipeline ranks that are shown, the first and the last among them.
static int shown_count(const Schedule *s) {
  int most = MOST_MICROBATCHES / (s->microbatches * s->steps), count = s->map.coordinates;
  if (most > MOST_COORDINATES) most = MOST_COORDINATES;
  if (most < 2) most = 2;
  return count < most ? count : most;
}

static int is_shown(const Schedule *s, int coordinate) {
  int n = s->map.coordinates, shown = shown_count(s);
  for (int k = 0; k < shown; k++)
    if (coordinate == (shown > 1 ? k * (n - 1) / (shown - 1) : 0)) return 1;
  return 0;
}

// How long the segments take by FLOPs; those without any a little, so that they are seen.
static double (*segment_costs(const Job *job, const Schedule *s))[PHASE_COUNT] {
  double (*cost)[PHASE_COUNT] = xcalloc((size_t)s->stages, sizeof *cost), most = 0;
  for (int stage = 0; stage < s->stages; stage++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      const Program *p = job_train(job)->program[stage_coordinate(stage, s->map)];
      cost[stage][phase] = program_body_flops(p, stage, (Phase)phase);
      if (cost[stage][phase] > most) most = cost[stage][phase];
    }
  for (int stage = 0; stage < s->stages; stage++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      const Program *p = job_train(job)->program[stage_coordinate(stage, s->map)];
      if (p->micro[stage][phase].count && cost[stage][phase] <= 0) cost[stage][phase] = most > 0 ? most / 100 : 1;
    }
  return cost;
}

static json_t *axes_of(const Mesh *mesh) {
  json_t *axes = json_array();
  for (int a = 0; a < mesh->naxis; a++)
    json_array_append_new(axes, json_pack("[s, i]", mesh->axis[a].name, mesh->axis[a].size));
  return axes;
}

// By stage, also of ranks that are not shown.
static json_t *stage_ranks(const Schedule *s) {
  json_t *ranks = json_array();
  for (int stage = 0; stage < s->stages; stage++)
    json_array_append_new(ranks, json_integer(stage_coordinate(stage, s->map)));
  return ranks;
}

static json_t *action_names(void) {
  json_t *names = json_array();
  for (int kind = 0; kind < ACTION_COUNT; kind++) json_array_append_new(names, json_string(action_name(kind)));
  return names;
}

static json_t *describe_view(const View *v, const Schedule *s, const ScheduleSpans *spans, double unit_bubble) {
  const Program *first = job_train(v->job)->program[0];
  return json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:f, s:f, s:f, s:o, s:i, s:o}", "axes",
                   axes_of(&first->mesh), "ranks", first->mesh.ranks, "pipeline_ranks", s->map.coordinates, "layers",
                   first->graph->layers, "microbatches", s->microbatches, "steps", s->steps, "streams", s->streams,
                   "schedule", v->job->options.parallel.pipeline.schedule->name, "bubble",
                   round(timeline_bubble(s, spans) * 1e6) / 1e6, "equal_bubble", round(unit_bubble * 1e6) / 1e6,
                   "flops", spans->total, "actions", action_names(), "resolution", RESOLUTION, "stage_ranks",
                   stage_ranks(s));
}

static json_t *assemble(const View *v, const Schedule *s, const ScheduleSpans *spans, double unit_bubble, json_t *ops,
                        json_t *sets) {
  json_t *coordinates = json_array(), *view = describe_view(v, s, spans, unit_bubble);
  const Rank *any = NULL;
  for (int c = 0; c < s->map.coordinates; c++)
    if (is_shown(s, c)) any = &v->rank[c], json_array_append_new(coordinates, describe_rank(&v->rank[c]));
  play_index_sets(&any->play, coordinates);
  json_object_set_new(view, "coordinates", coordinates);
  json_object_set_new(view, "ops", json_incref(ops));
  json_object_set_new(view, "sets", json_incref(sets));
  return view;
}

static int replay_twice(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT],
                        ScheduleSpans *spans, double *unit_bubble, Error *error) {
  ScheduleSpans unit = {0};
  int code = schedule_replay(s, segments, NULL, &unit, error);
  if (!code) code = schedule_replay(s, segments, cost, spans, error);
  if (!code) *unit_bubble = timeline_bubble(s, &unit);
  schedule_spans_free(&unit);
  return code;
}

int play_view(const Job *job, json_t **view, Error *error) {
  const Program *first = job_train(job)->program[0];
  Schedule *s = first->schedule->streams ? schedule_repeat(first->schedule, STREAM_STEPS) : first->schedule;
  double (*cost)[PHASE_COUNT] = segment_costs(job, s), unit_bubble = 0;
  json_t *ops = json_array(), *sets = json_array();
  AxesList axes = {0};
  ScheduleSpans spans = {0};
  View v = {job, xcalloc((size_t)s->map.coordinates, sizeof *v.rank), 0};
  for (int c = 0; c < s->map.coordinates; c++)
    if (is_shown(s, c)) make_rank(&v.rank[c], job, c, ops, sets, &axes), rank_bodies(&v.rank[c]);
  int code = replay_twice(s, first->segments, (const double (*)[PHASE_COUNT])cost, &spans, &unit_bubble, error);
  v.scale = spans.total > 0 ? RESOLUTION / spans.total : 0;
  if (!code)
    code = schedule_replay_watch(s, first->segments, (const double (*)[PHASE_COUNT])cost, watch, &v, error);
  if (!code) *view = assemble(&v, s, &spans, unit_bubble, ops, sets);
  for (int c = 0; c < s->map.coordinates; c++) free_rank(&v.rank[c], is_shown(s, c));
  schedule_spans_free(&spans);
  json_decref(ops);
  json_decref(sets);
  vec_free(&axes);
  free(v.rank);
  free(cost);
  if (s != first->schedule) schedule_free(s);
  return code;
}
