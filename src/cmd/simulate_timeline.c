// Timelines of simulated steps: the schedule as a picture, or every instruction as a trace.
#include "cmd/simulate_timeline.h"
#include "base/file.h"
#include "schedule/timeline.h"
#include <string.h>

int simulated_timeline_begin(SimulatedTimeline *t, Error *error) {
  const char *dot = strrchr(t->path, '.');
  t->svg = dot && !strcmp(dot, ".svg");
  if (t->svg || (dot && !strcmp(dot, ".json")))
    return file_check_writable(t->path, error) ? error_prefix(error, "--timeline") : PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--timeline %.200s: the name must end in .svg (a picture) or .json (a trace)", t->path);
}

void simulated_timeline_see(void *context, int coordinate, const char *name, const Action *action, double begin,
                            double end, int in_flight) {
  SimulatedTimeline *t = context;
  int micro = action && (action_runs_body(action) || action->kind == ACTION_SEND || action->kind == ACTION_RECV);
  if (t->svg) return;
  vec_push(&t->span, (SimulatedSpan){coordinate, micro ? action->stage : -1, micro ? action->microbatch : -1, in_flight,
                                     name, begin, end});
}

// Microseconds. What is in flight is an asynchronous event, as in runtime/trace.c.
static void write_span(const SimulatedSpan *s, int i, FILE *out) {
  fprintf(out, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"cat\":\"%s\",\"name\":\"%s\"",
          s->in_flight ? "b" : "X", s->coordinate, 1e6 * s->begin, s->in_flight ? "communication" : "instruction",
          s->name);
  if (s->in_flight) fprintf(out, ",\"id\":\"%d.%d\"", s->coordinate, i);
  else fprintf(out, ",\"dur\":%.3f", 1e6 * (s->end - s->begin));
  if (s->stage >= 0) fprintf(out, ",\"args\":{\"stage\":%d,\"microbatch\":%d}", s->stage, s->microbatch);
  fputs("}", out);
  if (s->in_flight)
    fprintf(
        out,
        ",\n{\"ph\":\"e\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"cat\":\"communication\",\"name\":\"%s\",\"id\":\"%d.%d\"}",
        s->coordinate, 1e6 * s->end, s->name, s->coordinate, i);
}

static void write_trace(const SimulatedTimeline *t, int coordinates, int all_ranks, FILE *out) {
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}", out);
  for (int c = 0; c < coordinates; c++)
    fprintf(out,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"%s %d, simulated\"}}",
            c, all_ranks ? "rank" : "pp", c);
  for (int i = 0; i < t->span.count; i++) write_span(&t->span.data[i], i, out);
  fputs("\n]}\n", out);
}

int simulated_timeline_end(SimulatedTimeline *t, const Prediction *p, Error *error) {
  const Program *program = p->job->train.program[0];
  const Schedule *s = program->schedule;
  AtomicFile file = {0};
  int code = file_begin(&file, t->path, error);
  if (!code && t->svg) {
    ScheduleSpans unit = {0};
    code = schedule_replay(s, program->segments, NULL, &unit, error);
    TimelineText text = {p->job->options.parallel.pipeline.schedule->name, code ? 0 : timeline_bubble(s, &unit)};
    if (!code) timeline_svg(s, &p->simulation->spans, &text, file.stream);
    schedule_spans_free(&unit);
  } else if (!code) write_trace(t, p->simulation->ranks, p->simulation->all_ranks, file.stream);
  if (!code) code = file_commit(&file, error);
  file_abandon(&file);
  if (!code) fprintf(stderr, "%s: what runs when\n", t->path);
  return code;
}

void simulated_timeline_free(SimulatedTimeline *t) { vec_free(&t->span); }
