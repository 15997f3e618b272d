// Timelines of simulated steps: the schedule as a picture, or every instruction as a trace.
#include "cmd/simulate_timeline.h"
#include "base/file.h"
#include "op/op.h"
#include "runtime/trace.h"
#include "schedule/timeline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int simulated_timeline_begin(SimulatedTimeline *t, Error *error) {
  const char *dot = strrchr(t->path, '.');
  t->svg = dot && !strcmp(dot, ".svg");
  if (t->svg || (dot && !strcmp(dot, ".json")))
    return file_check_writable(t->path, error) ? error_prefix(error, "--timeline") : PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--timeline %.200s: the name must end in .svg (a picture) or .json (a trace)", t->path);
}

void simulated_timeline_see(void *context, int coordinate, const char *name, const Node *node, const Action *action,
                            double begin, double end, int in_flight) {
  SimulatedTimeline *t = context;
  if (t->svg) return;
  if (action && action->step >= t->steps) t->steps = action->step + 1;
  vec_push(&t->span,
           (SimulatedSpan){coordinate, action ? action->kind : ACTION_BEGIN, in_flight, node, name, begin, end});
}

// The spans of runtime/trace.c, in its categories. A message is in flight too, without a node: a run has no such spans.
static TraceSpan instruction_span(const SimulatedSpan *s, const Mesh *mesh) {
  const char *stream = !s->in_flight ? NULL : s->node ? mesh->axis[collective_stream(mesh, s->node)].name : "messages";
  const char *category = s->in_flight ? "in flight" : op_def(s->node->op)->communicates ? "communication" : "kernel";
  return (TraceSpan){s->node ? op_name(s->node->op) : s->name, s->node ? s->node->name : NULL, category, s->begin,
                     s->end, -1, -1, stream};
}

static void add(Trace *t, TraceSpan span) {
  if (t->count == t->capacity) {
    t->capacity = 2 * t->capacity + 64;
    t->span = xrealloc(t->span, sizeof *t->span * (size_t)t->capacity);
  }
  trace_add(t, &span);
}

// BEGIN, END and sums have no spans of a schedule; they are as long as their instructions.
static void add_outer_action(Trace *t, const SimulatedSpan *s, int *open) {
  bool outer = s->kind == ACTION_BEGIN || s->kind == ACTION_END || s->kind == ACTION_SUMS;
  if (s->in_flight) return;
  const char *name = action_name(s->kind);
  if (outer && *open >= 0 && t->span[*open].name == name) t->span[*open].end = s->end;
  else *open = outer ? t->count : -1;
  if (outer && *open == t->count) add(t, (TraceSpan){name, NULL, "action", s->begin, s->end, -1, -1, NULL});
}

static void fill(Trace *trace, const SimulatedTimeline *t, const Simulation *s, const Mesh *mesh) {
  int *open = xcalloc((size_t)s->ranks, sizeof *open);
  for (int c = 0; c < s->ranks; c++) {
    open[c] = -1;
    for (int k = 0; k < t->steps; k++)
      add(&trace[c], (TraceSpan){"step", NULL, "step", k * s->step, (k + 1) * s->step, -1, -1, NULL});
  }
  for (int i = 0; i < s->spans.span.count; i++) {
    const ScheduleSpan *a = &s->spans.span.data[i];
    add(&trace[a->coordinate], (TraceSpan){action_name(a->kind), NULL, "action", a->start, a->end, a->stage,
                                           a->microbatch, NULL});
  }
  for (int i = 0; i < t->span.count; i++) {
    const SimulatedSpan *span = &t->span.data[i];
    add_outer_action(&trace[span->coordinate], span, &open[span->coordinate]);
    add(&trace[span->coordinate], instruction_span(span, mesh));
  }
  free(open);
}

static void write_trace(const SimulatedTimeline *t, const Prediction *p, FILE *out) {
  const Simulation *s = p->simulation;
  Trace *trace = xcalloc((size_t)s->ranks, sizeof *trace);
  fill(trace, t, s, &p->job->options.parallel.mesh);
  trace_print_head(p->job->options.parallel.mesh.ranks, out);
  for (int c = 0; c < s->ranks; c++) {
    trace[c].rank = c;
    snprintf(trace[c].title, sizeof trace[c].title, "%s %d, simulated", s->all_ranks ? "rank" : "pp", c);
    trace_print_rank(&trace[c], c == 0, out);
    free(trace[c].span);
  }
  trace_print_end(out);
  free(trace);
}

int simulated_timeline_end(SimulatedTimeline *t, const Prediction *p, Error *error) {
  const Program *program = job_train(p->job)->program[0];
  const Schedule *s = program->schedule;
  AtomicFile file = {0};
  int code = file_begin(&file, t->path, error);
  if (!code && t->svg) {
    ScheduleSpans unit = {0};
    code = schedule_replay(s, program->segments, NULL, &unit, error);
    TimelineText text = {p->job->options.parallel.pipeline.schedule->name, code ? 0 : timeline_bubble(s, &unit)};
    if (!code) timeline_svg(s, &p->simulation->spans, &text, file.stream);
    schedule_spans_free(&unit);
  } else if (!code) write_trace(t, p, file.stream);
  if (!code) code = file_commit(&file, error);
  file_abandon(&file);
  if (!code) fprintf(stderr, "%s: what runs when\n", t->path);
  return code;
}

void simulated_timeline_free(SimulatedTimeline *t) { vec_free(&t->span); }
