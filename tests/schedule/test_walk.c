// The walk along actions: the steps of a small pipeline one by one, and what must hold for the steps of every schedule.
#include "schedule/walk.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

// A chain of stages: tensor s goes from stage s to s + 1, tensor 100 + s back from s to s - 1. Forward's lie in slots
// (kept) or not.
static Segments *chain(int stages, int kept) {
  Segments *s = xcalloc(1, sizeof *s);
  s->stages = stages;
  s->micro = xcalloc((size_t)stages, sizeof *s->micro);
  for (int i = 0; i + 1 < stages; i++) {
    vec_push(&s->micro[i][PHASE_FORWARD].send, (Crossing){i, i + 1, PHASE_FORWARD, kept});
    vec_push(&s->micro[i + 1][PHASE_FORWARD].receive, (Crossing){i, i, PHASE_FORWARD, kept});
    vec_push(&s->micro[i + 1][PHASE_BACKWARD].send, (Crossing){101 + i, i, PHASE_BACKWARD, 0});
    vec_push(&s->micro[i][PHASE_BACKWARD].receive, (Crossing){101 + i, i + 1, PHASE_BACKWARD, 0});
  }
  return s;
}

static Schedule *create(const ScheduleGenerator *generator, const Segments *segments, int coordinates,
                        int microbatches) {
  Schedule *s;
  Error error = {0};
  if (schedule_create(generator, segments, (StageMap){coordinates, generator->folded}, microbatches, &s, &error))
    fail_msg("%s", error.message);
  return s;
}

// One word a step: "+s0.1:2" microbatch 2 enters slot 1 of stage 0, "+f0.1:2" a forward staging buffer; "-" leaves;
// "?f0.1:2" waits for what microbatch 2 sent from it; "F0:2" and so on runs.
typedef struct Text { char words[4096]; int stopped, refuse; } Text;

static int write_step(void *context, const WalkStep *step) {
  Text *t = context;
  size_t n = strlen(t->words);
  if (t->refuse && n % 3 == 0 && !t->stopped) return t->stopped = 1, 0; // some steps are not done at first
  t->stopped = 0;
  const WalkBuffer *b = &step->buffer;
  if (step->kind == WALK_RUN && (step->action->kind == ACTION_BEGIN || step->action->kind == ACTION_END))
    snprintf(t->words + n, sizeof t->words - n, "%s ", action_name(step->action->kind));
  else if (step->kind == WALK_RUN)
    snprintf(t->words + n, sizeof t->words - n, "%s%d:%d ", action_name(step->action->kind), step->action->stage,
             step->microbatch);
  else
    snprintf(t->words + n, sizeof t->words - n, "%c%c%d.%d:%d ", "?+!-"[step->kind],
             b->is_slot ? 's' : "fbw"[b->phase],
             b->stage, b->index, step->microbatch);
  return 1;
}

static void expect(const Schedule *s, const Segments *segments, int coordinate, const char *words) {
  WalkPlan plan = schedule_walk(s, segments, &s->list[coordinate]);
  Walk *walk = walk_create(&plan);
  for (int time = 0; time < 3; time++) {
    Text text = {.refuse = time == 2}; // a step that could not be done comes again
    walk_rewind(walk);
    while (!walk_ended(walk)) assert_true(walk_step(walk, write_step, &text) >= 0);
    assert_int_equal(walk_step(walk, write_step, &text), 0);
    assert_string_equal(text.words, words);
  }
  walk_destroy(walk);
}

static void steps_of_a_small_pipeline(void **state) {
  Segments *segments = chain(2, 0);
  Schedule *s = create(&schedules[SCHEDULE_1F1B], segments, 2, 3);
  expect(s, segments, 0,
         "begin +f0.0:0 +s0.0:0 F0:0 send0:0 -f0.0:0 +f0.1:1 +s0.1:1 F0:1 send0:1 -f0.1:1 "
         "+b0.0:0 recv0:0 B0:0 -b0.0:0 -s0.0:0 ?f0.0:0 +f0.0:2 +s0.0:2 F0:2 send0:2 -f0.0:2 "
         "+b0.1:1 recv0:1 B0:1 -b0.1:1 -s0.1:1 +b0.0:2 recv0:2 B0:2 -b0.0:2 -s0.0:2 end ?f0.0:2 ?f0.1:1 ");
  expect(s, segments, 1,
         "begin +f1.0:0 +s1.0:0 recv1:0 F1:0 -f1.0:0 +b1.0:0 B1:0 -s1.0:0 send1:0 -b1.0:0 "
         "+f1.1:1 +s1.0:1 recv1:1 F1:1 -f1.1:1 +b1.1:1 B1:1 -s1.0:1 send1:1 -b1.1:1 "
         "+f1.0:2 +s1.0:2 recv1:2 F1:2 -f1.0:2 ?b1.0:0 +b1.0:2 B1:2 -s1.0:2 send1:2 -b1.0:2 end ?b1.0:2 ?b1.1:1 ");
  schedule_free(s);
  segments_free(segments);
  segments = chain(2, 1); // what backward reads too lies in the slot, and is waited for when the slot is entered anew
  s = create(&schedules[SCHEDULE_1F1B], segments, 2, 3);
  expect(s, segments, 0,
         "begin +s0.0:0 F0:0 send0:0 +s0.1:1 F0:1 send0:1 +b0.0:0 recv0:0 B0:0 -b0.0:0 -s0.0:0 "
         "?s0.0:0 +s0.0:2 F0:2 send0:2 +b0.1:1 recv0:1 B0:1 -b0.1:1 -s0.1:1 +b0.0:2 recv0:2 B0:2 -b0.0:2 -s0.0:2 end "
         "?s0.0:2 ?s0.1:1 ");
  schedule_free(s);
  segments_free(segments);
}

// Without a pipeline nothing is staged and nothing waited for.
static void one_rank(void **state) {
  Segments *segments = chain(1, 0);
  Schedule *s = create(&schedules[SCHEDULE_1F1B], segments, 1, 2);
  expect(s, segments, 0, "begin +s0.0:0 F0:0 B0:0 -s0.0:0 +s0.0:1 F0:1 B0:1 -s0.0:1 end ");
  schedule_free(s);
  segments_free(segments);
}

// What must hold for every walk.
typedef struct Law {
  const WalkPlan *plan;
  const Walk *walk;
  int *in, *waited, *ran, sends;
} Law; // in: (stages · (1 + phases), microbatches) buffers

static int *holder(Law *l, const WalkBuffer *b) {
  int kind = b->is_slot ? 0 : 1 + (int)b->phase;
  return &l->in[(b->stage * (1 + PHASE_COUNT) + kind) * (l->plan->steps * l->plan->microbatches + STAGING_BUFFERS) +
                b->index];
}

static int obey(void *context, const WalkStep *step) {
  Law *l = context;
  int at = walk_at(l->walk);
  switch (step->kind) {
  case WALK_WAIT:
    assert_true(l->ran[step->send] && !l->waited[step->send]++); // each message once, after it was sent
    assert_int_equal(l->plan->list->data[step->send].kind, ACTION_SEND);
    break;
  case WALK_ENTER: { // an empty buffer, whose messages have all been received
    assert_int_equal(*holder(l, &step->buffer), 0);
    *holder(l, &step->buffer) = 1 + step->microbatch;
    for (int i = 0; i < at; i++) {
      const Action *a = &l->plan->list->data[i];
      if (a->kind != ACTION_SEND || l->waited[i] || a->stage != step->buffer.stage) continue;
      if (a->kept != step->buffer.is_slot || (!a->kept && a->phase != step->buffer.phase)) continue;
      int count = a->kept ? l->plan->slots[a->stage] : l->plan->staging;
      assert_int_not_equal(action_number(l->plan, a) % count, step->buffer.index);
    }
    break;
  }
  case WALK_RUN: {
    const Action *a = step->action;
    int in_slot = action_runs_body(a) || ((a->kind == ACTION_SEND || a->kind == ACTION_RECV) && a->kept);
    WalkBuffer slot = {.stage = a->stage, .is_slot = 1, .index = action_number(l->plan, a) % l->plan->slots[a->stage]};
    if (in_slot) assert_int_equal(*holder(l, &slot), 1 + action_number(l->plan, a));
    l->ran[at] = 1;
    l->sends += a->kind == ACTION_SEND;
    break;
  }
  case WALK_LEAVE:
    assert_int_equal(*holder(l, &step->buffer), 1 + step->microbatch);
    *holder(l, &step->buffer) = 0;
    break;
  }
  return 1;
}

static void check_laws(const Schedule *s, const Segments *segments) {
  for (int c = 0; c < s->map.coordinates; c++) {
    WalkPlan plan = schedule_walk(s, segments, &s->list[c]);
    Walk *walk = walk_create(&plan);
    size_t actions = (size_t)s->list[c].count,
           buffers = (size_t)(s->stages * (1 + PHASE_COUNT) * (s->steps * s->microbatches + STAGING_BUFFERS));
    Law law = {.plan = &plan,
               .walk = walk,
               .in = xcalloc(buffers, sizeof(int)),
               .waited = xcalloc(actions, sizeof(int)),
               .ran = xcalloc(actions, sizeof(int))};
    assert_int_equal(walk_run(walk, obey, &law), PLAIT_OK);
    int waited = 0;
    for (size_t i = 0; i < actions; i++) waited += law.waited[i], assert_true(law.ran[i]);
    assert_int_equal(waited, law.sends); // nothing is left unreceived
    for (size_t i = 0; i < buffers; i++) assert_int_equal(law.in[i], 0);
    free(law.in);
    free(law.waited);
    free(law.ran);
    walk_destroy(walk);
  }
}

static void laws_hold_for_every_schedule(void **state) {
  for (int p = 1; p <= 4; p++)
    for (int m = 1; m <= 6; m++)
      for (int kept = 0; kept < 2; kept++) {
        const struct { const ScheduleGenerator *generator; int stages, microbatches;
        } table[] = {{&schedules[SCHEDULE_NAIVE], p, m},
                     {&schedules[SCHEDULE_GPIPE], 2 * p, m},
                     {&schedules[SCHEDULE_1F1B], p, m},
                     {&schedules[SCHEDULE_INTERLEAVED], 3 * p, m * p},
                     {&schedules[SCHEDULE_ZB_H1], p, m},
                     {&schedules[SCHEDULE_ZB_V], 2 * p, m}};
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
          Segments *segments = chain(table[i].stages, kept);
          Schedule *s = create(table[i].generator, segments, p, table[i].microbatches);
          check_laws(s, segments);
          schedule_free(s);
          segments_free(segments);
        }
      }
}

// A stream that is walked part by part does what a walk along all of its steps does.
typedef struct Tape { Vec(WalkStep) step; int at; } Tape;

static int record(void *context, const WalkStep *step) {
  Tape *tape = context;
  vec_push(&tape->step, *step);
  return 1;
}

static int same_action(const Action *a, const Action *b) {
  return a == b || (a && b && a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch &&
                    a->tensor == b->tensor);
}

static int compare(void *context, const WalkStep *step) {
  Tape *tape = context;
  assert_true(tape->at < tape->step.count);
  const WalkStep *whole = &tape->step.data[tape->at++];
  assert_int_equal(step->kind, whole->kind);
  assert_true(same_action(step->action, whole->action));
  assert_memory_equal(&step->buffer, &whole->buffer, sizeof step->buffer);
  return 1;
}

static void walk_in_parts(const ScheduleGenerator *generator, int p, int m) {
  enum { STEPS = 8 };
      for (int variant = 0; variant < 2 * STEPS; variant++) {
        int steps = 1 + variant / 2;
        Segments *segments = chain(p, variant % 2);
        Schedule *s = create(generator, segments, p, m), *all = schedule_repeat(s, steps);
        check_laws(all, segments);
        for (int c = 0; c < p; c++) {
          WalkPlan whole = schedule_walk(all, segments, &all->list[c]), parts = schedule_walk(s, segments, &s->list[c]);
          Walk *walk = walk_create(&whole), *by_parts = walk_create(&parts);
          Tape tape = {0};
          assert_int_equal(walk_run(walk, record, &tape), PLAIT_OK);
          for (int time = 0; time < 2; time++) {
            tape.at = 0;
            walk_rewind(by_parts);
            for (int k = -1; k < steps; k++) {
              walk_go(by_parts, k < 0 ? LIST_PROLOGUE : LIST_BODY, steps - 1 - (k < 0 ? 0 : k));
              assert_int_equal(walk_run(by_parts, compare, &tape), PLAIT_OK);
            }
            assert_int_equal(tape.at, tape.step.count);
          }
          vec_free(&tape.step);
          walk_destroy(walk);
          walk_destroy(by_parts);
        }
        schedule_free(all);
        schedule_free(s);
        segments_free(segments);
      }
}

static void parts_of_a_stream(void **state) {
  for (int p = 1; p <= 4; p++)
    for (int m = p > 1 ? p : 2; m <= 7; m++) walk_in_parts(&schedules[SCHEDULE_2BW], p, m);
  for (int p = 1; p <= 6; p++) walk_in_parts(&schedules[SCHEDULE_PIPEDREAM], p, 1);
}

// A slot is left after W, by which time the next microbatch has another one; what is sent back does not wait for it.
static void slots_end_with_weights(void **state) {
  Segments *segments = chain(2, 0);
  Schedule *s = create(&schedules[SCHEDULE_ZB_H1], segments, 2, 2);
  expect(s, segments, 1,
         "begin +f1.0:0 +s1.0:0 recv1:0 F1:0 -f1.0:0 +b1.0:0 B1:0 send1:0 -b1.0:0 +f1.1:1 +s1.1:1 recv1:1 F1:1 -f1.1:1 "
         "+b1.1:1 B1:1 send1:1 -b1.1:1 W1:0 -s1.0:0 W1:1 -s1.1:1 end ?b1.0:0 ?b1.1:1 ");
  schedule_free(s);
  segments_free(segments);
}

static int fail_at_backward(void *context, const WalkStep *step) {
  ++*(int *)context;
  return step->kind == WALK_RUN && step->action->kind == ACTION_BACKWARD ? PLAIT_FAILED : 1;
}

static void an_error_ends_the_walk(void **state) {
  Segments *segments = chain(1, 0);
  Schedule *s = create(&schedules[SCHEDULE_1F1B], segments, 1, 2);
  WalkPlan plan = schedule_walk(s, segments, &s->list[0]);
  Walk *walk = walk_create(&plan);
  int steps = 0;
  assert_int_equal(walk_run(walk, fail_at_backward, &steps), PLAIT_FAILED);
  assert_int_equal(steps, 4); // begin, enter, F, B
  assert_false(walk_ended(walk));
  walk_destroy(walk);
  schedule_free(s);
  segments_free(segments);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_of_a_small_pipeline), cmocka_unit_test(one_rank),
                                     cmocka_unit_test(laws_hold_for_every_schedule),
                                     cmocka_unit_test(parts_of_a_stream),
                                     cmocka_unit_test(slots_end_with_weights),
                                     cmocka_unit_test(an_error_ends_the_walk)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
