// A replayed schedule as a picture (SVG) and as a trace that ui.perfetto.dev and chrome://tracing open.
#pragma once
#include "schedule/schedule.h"

typedef struct TimelineText {
  const char *name;    // of the schedule, "1f1b"
  double unit_bubble;  // of the total, were all segments equally long
} TimelineText;

// Bubble: the part of all coordinates' time in which nothing runs, 0 … 1.
double timeline_bubble(const Schedule *s, const ScheduleSpans *spans);

// One row a pipeline rank, one box a segment with its microbatch's number, colours by direction and by which of the
// rank's stages it is. The title says the bubble.
void timeline_svg(const Schedule *s, const ScheduleSpans *spans, const TimelineText *text, FILE *out);
// The same as complete events, one thread a pipeline rank; a segment of average length is a millisecond.
void timeline_json(const Schedule *s, const ScheduleSpans *spans, const TimelineText *text, FILE *out);
