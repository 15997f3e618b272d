// Replayed schedules, for claims: all segments take as long, and transfers no time.
#include "base/fault.h"
#include "schedule/timeline.h"
#include "foresight/claims_count.h"

static int replay(const ClaimRun *run, ScheduleSpans *spans, Error *error) {
  const Program *p = job_train(run->job)->program[0];
  return schedule_replay(p->schedule, p->segments, NULL, spans, error);
}

int claim_bubble(const ClaimRun *run, double *number, Error *error) {
  ScheduleSpans spans = {0};
  int code = replay(run, &spans, error);
  if (!code)
    *number = FAULT(claims_see_no_bubble, timeline_bubble(job_train(run->job)->program[0]->schedule, &spans), 0);
  schedule_spans_free(&spans);
  return code;
}

int claim_speed_up(const ClaimRun *run, double *number, Error *error) {
  ScheduleSpans spans = {0};
  int code = replay(run, &spans, error);
  if (!code) *number = spans.busy / spans.total;
  schedule_spans_free(&spans);
  return code;
}
