// Schedules: what generators return is whole and legal, takes the slots that it should, and the replay refuses the
// rest.
#include "schedule/schedule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { BACKWARD_TENSORS = 100 };

// A chain of stages: tensor s goes from stage s to s + 1, tensor 100 + s back from s to s - 1.
static Segments *chain(int stages, int backward) {
  Segments *s = xcalloc(1, sizeof *s);
  s->stages = stages;
  s->micro = xcalloc((size_t)stages, sizeof *s->micro);
  for (int i = 0; i + 1 < stages; i++) {
    vec_push(&s->micro[i][PHASE_FORWARD].send, (Crossing){i, i + 1, PHASE_FORWARD, 0});
    vec_push(&s->micro[i + 1][PHASE_FORWARD].receive, (Crossing){i, i, PHASE_FORWARD, 0});
    if (!backward) continue;
    vec_push(&s->micro[i + 1][PHASE_BACKWARD].send, (Crossing){BACKWARD_TENSORS + i + 1, i, PHASE_BACKWARD, 0});
    vec_push(&s->micro[i][PHASE_BACKWARD].receive, (Crossing){BACKWARD_TENSORS + i + 1, i + 1, PHASE_BACKWARD, 0});
  }
  return s;
}

static int create(const ScheduleGenerator *generator, int stages, int coordinates, int microbatches, Schedule **out,
                  Error *error) {
  Segments *s = chain(stages, generator != &schedule_forward);
  *out = NULL;
  int code = schedule_create(generator, s, (StageMap){coordinates, generator->folded}, microbatches, out, error);
  segments_free(s);
  return code;
}

static int is_segment(const Action *a) { return action_runs_body(a); }
static int phases_of(const ScheduleGenerator *generator) {
  return generator == &schedule_forward ? 1 : generator->splits ? 3 : 2;
}

// Every segment once, on the coordinate of its stage; BEGIN first, END last.
static void check_whole(const Schedule *s, int phases) {
  int *count = xcalloc((size_t)(s->stages * s->microbatches * PHASE_COUNT), sizeof(int));
  for (int c = 0; c < s->map.coordinates; c++) {
    const ActionList *l = &s->list[c];
    assert_true(l->data[0].kind == ACTION_BEGIN && l->data[l->count - 1].kind == ACTION_END);
    for (int i = 1; i < l->count - 1; i++) {
      const Action *a = &l->data[i];
      assert_true(a->kind != ACTION_BEGIN && a->kind != ACTION_END);
      assert_int_equal(stage_coordinate(a->stage, s->map), c);
      if (is_segment(a))
        count[(a->stage * s->microbatches + a->microbatch) * PHASE_COUNT + (a->kind - ACTION_FORWARD)]++;
    }
  }
  for (int i = 0; i < s->stages * s->microbatches * PHASE_COUNT; i++)
    assert_int_equal(count[i], i % PHASE_COUNT < phases);
  free(count);
}

// Whether an action may run: what it needs has been done by other actions.
static int may_run(const Schedule *s, const int *forward, const int *backward, const Action *a) {
  int at = a->stage * s->microbatches + a->microbatch;
  if (a->kind == ACTION_FORWARD) return !a->stage || forward[at - s->microbatches];
  if (a->kind == ACTION_BACKWARD) return forward[at] && (a->stage == s->stages - 1 || backward[at + s->microbatches]);
  if (a->kind == ACTION_WEIGHT) return backward[at];
  return 1;
}

// Runs all lists at once, looking at dependencies alone (not at messages): all must come to their end. On the way a
// slot must never be taken by a microbatch while another one is in it.
static void check_order(const Schedule *s, int phases) {
  size_t n = (size_t)(s->stages * s->microbatches);
  int *forward = xcalloc(n, sizeof(int)), *backward = xcalloc(n, sizeof(int)), at[16] = {0}, done = 0;
  int *slot = xcalloc((size_t)(s->stages * s->microbatches), sizeof(int)); // microbatch + 1 in a stage's slot
  const ActionKind last = (ActionKind)(ACTION_FORWARD + phases - 1);
  for (int progress = 1; progress;) {
    progress = done = 0;
    for (int c = 0; c < s->map.coordinates; c++) {
      for (; at[c] < s->list[c].count && may_run(s, forward, backward, &s->list[c].data[at[c]]);
           at[c]++, progress = 1) {
        const Action *a = &s->list[c].data[at[c]];
        if (!is_segment(a)) continue;
        int *in = &slot[a->stage * s->microbatches + a->microbatch % s->slots[a->stage]];
        if (phases > 1) assert_int_equal(*in, a->kind == ACTION_FORWARD ? 0 : a->microbatch + 1);
        *in = a->kind == last ? 0 : a->microbatch + 1;
        if (a->kind != ACTION_WEIGHT)
          (a->kind == ACTION_FORWARD ? forward : backward)[a->stage * s->microbatches + a->microbatch] = 1;
      }
      done += at[c] == s->list[c].count;
    }
  }
  assert_int_equal(done, s->map.coordinates);
  free(forward);
  free(backward);
  free(slot);
}

// A segment's receives stand directly before it, its sends directly after it.
static void check_messages(const Schedule *s) {
  for (int c = 0; c < s->map.coordinates; c++)
    for (int i = 1; i < s->list[c].count - 1; i++) {
      const Action *a = &s->list[c].data[i], *next = a + 1, *last = a - 1;
      if (a->kind == ACTION_RECV)
        assert_true(next->stage == a->stage && next->microbatch == a->microbatch &&
                    (next->kind == ACTION_RECV || is_segment(next)));
      if (a->kind == ACTION_SEND)
        assert_true(last->stage == a->stage && last->microbatch == a->microbatch &&
                    (last->kind == ACTION_SEND || is_segment(last)));
    }
}

static int least(int a, int b) { return a < b ? a : b; }

// The most microbatches of a stage, or with stage -1 of all of a coordinate's, between their forward and the end of
// their last phase.
static int most_in_flight(const Schedule *s, int coordinate, int stage, int phases) {
  const ActionList *l = &s->list[coordinate];
  int flight = 0, most = 0;
  for (int i = 0; i < l->count; i++) {
    if ((stage >= 0 && l->data[i].stage != stage) || !is_segment(&l->data[i])) continue;
    flight += (l->data[i].kind == ACTION_FORWARD) - ((int)l->data[i].kind == ACTION_FORWARD + phases - 1);
    if (flight > most) most = flight;
  }
  return most;
}

static void is_whole_and_legal(const ScheduleGenerator *generator, int ranks, int stages, int microbatches,
                               int phases) {
  Schedule *s;
  Error error = {0};
  if (create(generator, stages, ranks, microbatches, &s, &error))
    fail_msg("%s, %d stages, %d ranks, %d microbatches: %s", generator->name, stages, ranks, microbatches,
             error.message);
  check_whole(s, phases);
  check_order(s, phases);
  check_messages(s);
  for (int t = 0; t < s->stages; t++)
    assert_int_equal(s->slots[t], phases > 1 ? most_in_flight(s, stage_coordinate(t, s->map), t, phases) : 1);
  schedule_free(s);
}

// Every schedule of the table with everything that its traits allow.
static void generators_are_whole_and_legal(void **state) {
  int runs = 0;
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 9; m++)
      for (int v = 1; v <= 5; v++) {
        for (int i = 0; i < SCHEDULES; i++) {
          if (!schedule_can_run(&schedules[i], v) || schedules[i].streams) continue;
          is_whole_and_legal(&schedules[i], p, v * p, schedules[i].microbatches_multiple_of_ranks ? m * p : m,
                             phases_of(&schedules[i]));
          runs++;
        }
        is_whole_and_legal(&schedule_forward, p, v * p, m, 1);
      }
  assert_true(runs > 700);
}

// What each schedule holds: naive one microbatch, GPipe all, 1F1B no more than stages lie from a stage to the end.
static void schedules_hold_what_they_should(void **state) {
  for (int p = 1; p <= 5; p++)
    for (int m = 1; m <= 8; m++) {
      const ScheduleGenerator *const generator[] = {&schedules[SCHEDULE_NAIVE], &schedules[SCHEDULE_GPIPE],
                                                    &schedules[SCHEDULE_1F1B]};
      for (int k = 0; k < 3; k++) {
        Schedule *s;
        Error error = {0};
        assert_int_equal(create(generator[k], p, p, m, &s, &error), PLAIT_OK);
        for (int t = 0; t < p; t++) assert_int_equal(s->slots[t], k == 0 ? 1 : k == 1 ? m : least(p - t, m));
        schedule_free(s);
      }
    }
}

// ---- bubbles -------------------------------------------------------------------------------------------------------

// Replays with a forward of one unit and a backward of a number of them. Fractions of the total, and of the ideal.
static void bubble(const ScheduleGenerator *generator, int p, int v, int m, double backward, double *of_total,
                   double *of_ideal) {
  Schedule *s;
  Error error = {0};
  Segments *segments = chain(p * v, 1);
  double (*cost)[PHASE_COUNT] = xcalloc((size_t)(p * v), sizeof *cost);
  for (int t = 0; t < p * v; t++) cost[t][PHASE_FORWARD] = 1, cost[t][PHASE_BACKWARD] = backward;
  ScheduleSpans spans;
  assert_int_equal(schedule_create(generator, segments, (StageMap){p, generator->folded}, m, &s, &error), PLAIT_OK);
  assert_int_equal(schedule_replay(s, segments, (const double (*)[PHASE_COUNT])cost, &spans, &error), PLAIT_OK);
  assert_int_equal(spans.span.count, 2 * p * v * m);
  double ideal = v * m * (1 + backward);
  assert_true(fabs(spans.busy - p * ideal) < 1e-9 * spans.busy);
  *of_total = 1 - spans.busy / (p * spans.total);
  *of_ideal = (spans.total - ideal) / ideal;
  schedule_spans_free(&spans);
  schedule_free(s);
  segments_free(segments);
  free(cost);
}

static void bubbles_are_as_published(void **state) {
  double total, ideal;
  for (int b = 1; b <= 2; b++)
    for (int p = 1; p <= 8; p++)
      for (int m = 1; m <= 12; m++) {
        bubble(&schedules[SCHEDULE_GPIPE], p, 1, m, b, &total, &ideal);
        assert_true(fabs(total - (p - 1.0) / (m + p - 1.0)) < 1e-12);
        bubble(&schedules[SCHEDULE_1F1B], p, 1, m, b, &total, &ideal);
        assert_true(fabs(total - (p - 1.0) / (m + p - 1.0)) < 1e-12);
        bubble(&schedules[SCHEDULE_NAIVE], p, 1, m, b, &total, &ideal);
        assert_true(fabs(total - (p - 1.0) / p) < 1e-12);
        for (int v = 2; v <= 5 && m <= 5; v++) {
          bubble(&schedules[SCHEDULE_INTERLEAVED], p, v, m * p, b, &total, &ideal);
          if (fabs(ideal - (p - 1.0) / ((double)v * m * p)) > 1e-12)
            fail_msg("interleaved p %d v %d m %d: %g of the ideal, not %g", p, v, m * p, ideal,
                     (p - 1.0) / ((double)v * m * p));
        }
      }
}

// K steps of m microbatches take (K·m + p − 1)(F + B), all of backward in B.
static void check_stream(const Schedule *s, const Segments *segments) {
  static const double costs[][2] = {{1, 1}, {1, 2}, {3, 2}, {2, 5}};
  static const int steps[] = {1, 2, 3, 7, 12};
  int p = s->stages, m = s->microbatches;
  Error error = {0};
  for (int k = 0; k < 5; k++)
    for (int c = 0; c < 4; c++) {
      double cost[8][PHASE_COUNT];
      ScheduleSpans spans;
      Schedule *all = schedule_repeat(s, steps[k]);
      for (int t = 0; t < p; t++) cost[t][PHASE_FORWARD] = costs[c][0], cost[t][PHASE_BACKWARD] = costs[c][1];
      if (schedule_replay(all, segments, (const double (*)[PHASE_COUNT])cost, &spans, &error))
        fail_msg("p %d m %d, %d steps: %s", p, m, steps[k], error.message);
      double should = (steps[k] * m + p - 1) * (costs[c][0] + costs[c][1]);
      assert_int_equal(spans.span.count, 2 * p * m * steps[k]);
      if (fabs(spans.total - should) > 1e-9)
        fail_msg("p %d m %d, %d steps, F %g B %g: %g, not %g", p, m, steps[k], costs[c][0], costs[c][1], spans.total,
                 should);
      schedule_spans_free(&spans);
      schedule_free(all);
    }
}

// Schedules that never drain wait for the first microbatch alone, and hold as much as 1F1B.
static void streams_wait_for_the_first_microbatch_alone(void **state) {
  for (int p = 1; p <= 8; p++)
    for (int m = p; m <= 2 * p + 2; m++) {
      Segments *segments = chain(p, 1);
      Schedule *s;
      Error error = {0};
      if (schedule_create(&schedules[SCHEDULE_2BW], segments, (StageMap){p, 0}, m, &s, &error))
        fail_msg("p %d m %d: %s", p, m, error.message);
      for (int t = 0; t < p; t++) assert_int_equal(s->slots[t], p - t);
      check_stream(s, segments);
      schedule_free(s);
      segments_free(segments);
    }
}

// PipeDream: a step has one microbatch, and an update of a stage comes before its next forward. What is read at stage s
// is as old as the list p - 1 - s says: that many updates are missing when a step's forward runs.
static void one_microbatch_a_step(void **state) {
  for (int p = 1; p <= 8; p++) {
    Segments *segments = chain(p, 1);
    Schedule *s;
    Error error = {0};
    if (schedule_create(&schedules[SCHEDULE_PIPEDREAM], segments, (StageMap){p, 0}, 1, &s, &error))
      fail_msg("p %d: %s", p, error.message);
    assert_int_equal(s->steps, p);
    for (int t = 0; t < p; t++) assert_int_equal(s->slots[t], p - t);
    check_stream(s, segments);
    Schedule *all = schedule_repeat(s, 12);
    for (int c = 0; c < p; c++)
      for (int i = 0, updates = 0; i < all->list[c].count; i++) {
        const Action *a = &all->list[c].data[i];
        updates += a->kind == ACTION_SUMS;
        if (a->kind == ACTION_FORWARD) assert_int_equal(updates, a->step > p - 1 - c ? a->step - (p - 1 - c) : 0);
      }
    schedule_free(all);
    schedule_free(s);
    segments_free(segments);
  }
}

// What a replay with F, B and W of these lengths gives, and the most halves or microbatches that a rank holds at once.
typedef struct Split { double total, idle; int held; } Split;

static Split split(const ScheduleGenerator *generator, int p, int m, double f, double b, double w) {
  int v = generator->least_stages;
  Schedule *s;
  Error error = {0};
  Segments *segments = chain(p * v, 1);
  double (*cost)[PHASE_COUNT] = xcalloc((size_t)(p * v), sizeof *cost), ends[16][2];
  Split result = {0};
  for (int t = 0; t < p * v; t++)
    cost[t][PHASE_FORWARD] = f, cost[t][PHASE_BACKWARD] = b, cost[t][PHASE_WEIGHT] = w;
  ScheduleSpans spans;
  assert_int_equal(schedule_create(generator, segments, (StageMap){p, generator->folded}, m, &s, &error), PLAIT_OK);
  assert_int_equal(schedule_replay(s, segments, (const double (*)[PHASE_COUNT])cost, &spans, &error), PLAIT_OK);
  assert_int_equal(spans.span.count, 3 * p * v * m);
  for (int i = 0; i < spans.span.count; i++) {
    const ScheduleSpan *span = &spans.span.data[i];
    if (!i || span->coordinate != span[-1].coordinate) ends[span->coordinate][0] = span->start;
    ends[span->coordinate][1] = span->end;
  }
  result.total = spans.total;
  for (int c = 0; c < p; c++) {
    int held = most_in_flight(s, c, -1, 3);
    result.held = held > result.held ? held : result.held;
    result.idle = fmax(result.idle, ends[c][1] - ends[c][0] - v * m * (f + b + w));
  }
  schedule_spans_free(&spans);
  schedule_free(s);
  segments_free(segments);
  free(cost);
  return result;
}

// Qi et al., 2023: m (F + B + W) + (p − 1) (F + B − W), with no more in flight than in 1F1B.
static void zb_h1_is_as_published(void **state) {
  static const double costs[][3] = {{1, 1, 1}, {2, 3, 1}, {3, 2, 2}, {1, 1, 0.5}, {1, 2, 1}, {5, 1, 1}, {1, 3, 0.25}};
  for (int p = 1; p <= 8; p++)
    for (int m = 1; m <= 3 * p + 3; m++)
      for (size_t k = 0; k < sizeof costs / sizeof *costs; k++) {
        double f = costs[k][0], b = costs[k][1], w = costs[k][2];
        Split is = split(&schedules[SCHEDULE_ZB_H1], p, m, f, b, w);
        double should = m * (f + b + w) + (p - 1) * (f + b - w);
        if (m >= p && fabs(is.total - should) > 1e-9)
          fail_msg("zb-h1 p %d m %d F %g B %g W %g: %g, not %g", p, m, f, b, w, is.total, should);
        assert_true(is.held <= least(p, m));
      }
}

// Qi et al., 2023 and 2024: a rank waits for its first microbatch only, and holds as much as the first one in 1F1B.
static void zb_v_is_as_published(void **state) {
  for (int p = 1; p <= 8; p++)
    for (int m = 1; m <= 4 * p + 3; m++) {
      Split is = split(&schedules[SCHEDULE_ZB_V], p, m, 1, 1, 1);
      if (m >= 2 * p && (fabs(is.total - (6 * m + p - 1)) > 1e-9 || fabs(is.idle) > 1e-9))
        fail_msg("zb-v p %d m %d: %g, not %d; %g of a rank's time idle", p, m, is.total, 6 * m + p - 1, is.idle);
      assert_true(is.held <= 2 * p);
    }
}

static void names(void **state) {
  char text[256];
  for (int i = 0; i < SCHEDULES; i++) {
    assert_ptr_equal(schedule_by_name(schedules[i].name), &schedules[i]);
    assert_true(schedules[i].least_stages >= 1 && schedule_can_run(&schedules[i], schedules[i].least_stages));
  }
  assert_int_equal(schedule_by_name("interleaved")->least_stages, 2);
  assert_null(schedule_by_name("2f2b"));
  for (int stages = 1; stages <= 2; stages++) { // each that can run them, and no other; two by "or"
    int listed = 0, able = 0;
    char *word = text, *next;
    schedule_names(stages, text, sizeof text);
    assert_non_null(strstr(text, " or "));
    memcpy(strstr(text, " or "), ",   ", 4);
    for (; word; word = next) {
      if ((next = strchr(word, ','))) *next++ = 0, next += strspn(next, " ");
      assert_true(schedule_by_name(word) && schedule_can_run(schedule_by_name(word), stages));
      listed++;
    }
    for (int i = 0; i < SCHEDULES; i++) able += schedule_can_run(&schedules[i], stages) && !schedules[i].streams;
    assert_true(listed == able && able >= 3);
  }
  schedule_names(2, text, 10);
  assert_string_equal(text, "naive, gp");
}

// Hand-made lists of F and B: "F0 B0 …" for each of two coordinates.
static void from_text(const char *text, int coordinate, ActionList *list) {
  for (const char *p = text; *p; p += p[2] ? 3 : 2)
    vec_push(list, (Action){.kind = p[0] == 'F'   ? ACTION_FORWARD
                                     : p[0] == 'B' ? ACTION_BACKWARD
                                                   : ACTION_WEIGHT,
                             .stage = coordinate,
                             .microbatch = p[1] - '0', .tensor = -1, .peer = -1});
}

#define HAND_MADE(name, first, second)                                                                       \
  static void name##_generate(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) { \
    from_text(coordinate ? second : first, coordinate, list);                                                \
  }                                                                                                          \
  static const ScheduleGenerator name = {#name, name##_generate, .least_stages = 1};
HAND_MADE(fine, "F0 F1 B0 B1", "F0 B0 F1 B1")
HAND_MADE(deadlock, "F0 B0 F1 B1", "F0 F1 B0 B1")
HAND_MADE(crossed_forward, "F0 F1 B0 B1", "F1 F0 B0 B1")
HAND_MADE(crossed_backward, "F0 F1 B0 B1", "F0 F1 B1 B0")
HAND_MADE(never_received, "F0 F1 B0", "F0 B0")
HAND_MADE(never_sent, "F0 B0", "F0 B0 F1 B1")
HAND_MADE(backward_first, "B0 F0 F1 B1", "F0 B0 F1 B1")
HAND_MADE(twice, "F0 F1 B0 B1 B1", "F0 B0 F1 B1")
HAND_MADE(no_backward, "F0 F1 B0", "F0 B0 F1")
HAND_MADE(other_microbatch, "F0 F7 B0 B1", "F0 B0 F1 B1")
HAND_MADE(last_backward_first, "F0 F1 B0 B1", "F0 B1 F1 B0")
HAND_MADE(split_fine, "F0 F1 B0 B1 W0 W1", "F0 B0 W0 F1 B1 W1")
HAND_MADE(no_weight, "F0 F1 B0 B1 W1", "F0 B0 W0 F1 B1 W1")
HAND_MADE(weight_first, "F0 F1 W0 B0 B1 W1", "F0 B0 W0 F1 B1 W1")
HAND_MADE(weight_twice, "F0 F1 B0 W0 W0 B1 W1", "F0 B0 W0 F1 B1 W1")
HAND_MADE(holes, "F0 F1 F2 B1 F3 B0 B2 B3", "F0 F1 F2 B1 F3 B0 B2 B3")

static void refused(const ScheduleGenerator *generator, const char *why) {
  Schedule *s;
  Error error = {0};
  int code = create(generator, 2, 2, 2, &s, &error);
  if (!code) schedule_free(s);
  if (code != PLAIT_INFEASIBLE) fail_msg("%s was not refused (%d)", generator->name, code);
  if (!strstr(error.message, why)) fail_msg("%s: \"%s\" does not say \"%s\"", generator->name, error.message, why);
}

static void the_replay_refuses(void **state) {
  Schedule *s;
  Error error = {0};
  assert_int_equal(create(&fine, 2, 2, 2, &s, &error), PLAIT_OK);
  schedule_free(s);
  refused(&deadlock, "deadlock");
  refused(&never_sent, "deadlock");
  refused(&backward_first, "deadlock");
  refused(&crossed_forward, "sends microbatch 0 first");
  refused(&crossed_backward, "sends microbatch 1 first");
  refused(&never_received, "never received");
  refused(&twice, "deadlock"); // the second B1 waits for a gradient that is sent once
  refused(&no_backward, "never runs backward on microbatch 1");
  refused(&other_microbatch, "belongs to another rank");
  refused(&last_backward_first, "backward on microbatch 1 before forward");
  assert_int_equal(create(&split_fine, 2, 2, 2, &s, &error), PLAIT_OK);
  assert_true(s->slots[0] == 2 && s->slots[1] == 1); // a slot ends with W
  schedule_free(s);
  refused(&no_weight, "stage 0 never runs weight on microbatch 0");
  refused(&weight_first, "stage 0 runs weight on microbatch 0 before backward");
  refused(&weight_twice, "stage 0 runs weight twice on microbatch 0");
}

// Microbatches that leave out of order need more slots than are in flight, because a slot belongs to microbatch mod
// slots.
static void slots_are_never_shared(void **state) {
  Schedule *s;
  Error error = {0};
  assert_int_equal(create(&holes, 2, 2, 4, &s, &error), PLAIT_OK);
  check_order(s, 2);
  assert_int_equal(s->slots[0], 4);
  schedule_free(s);
}

// Two stages on one rank hand over in memory, without messages: the order is checked all the same.
static void in_memory_out_of_order(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  const ActionKind kind[] = {ACTION_FORWARD, ACTION_FORWARD, ACTION_BACKWARD, ACTION_BACKWARD};
  const int stage[] = {1, 0, 1, 0};
  for (int i = 0; i < 4; i++) vec_push(list, (Action){.kind = kind[i], .stage = stage[i]});
}

static void hand_over_in_memory(void **state) {
  const ScheduleGenerator bad = {"bad", in_memory_out_of_order, .least_stages = 2};
  Schedule *s;
  Error error = {0};
  assert_int_equal(create(&bad, 2, 1, 1, &s, &error), PLAIT_INFEASIBLE);
  assert_non_null(
      strstr(error.message, "stage 1 runs forward on microbatch 0 before stage 0 has run forward, on the same rank"));
  assert_int_equal(create(&schedules[SCHEDULE_GPIPE], 2, 1, 3, &s, &error), PLAIT_OK);
  for (int i = 0; i < s->list[0].count; i++)
    assert_true(s->list[0].data[i].kind != ACTION_SEND && s->list[0].data[i].kind != ACTION_RECV);
  schedule_free(s);
}

// A tensor of stage 0 that stage 2 of the same rank reads holds stage 0's slot until then.
static void readers_of_other_stages_hold_slots(void **state) {
  Segments *segments = chain(2, 1);
  Schedule *s;
  Error error = {0};
  segments_free(segments);
  segments = chain(4, 0);
  vec_push(&segments->micro[2][PHASE_FORWARD].receive, (Crossing){50, 0, PHASE_FORWARD, 0});
  assert_int_equal(schedule_create(&schedule_forward, segments, (StageMap){2, 0}, 4, &s, &error), PLAIT_OK);
  assert_int_equal(s->slots[0], 1);
  schedule_free(s);
  segments->micro[2][PHASE_FORWARD].holders = stages_one(0); // as segments_of finds it
  assert_int_equal(schedule_create(&schedule_forward, segments, (StageMap){2, 0}, 4, &s, &error), PLAIT_OK);
  assert_int_equal(s->slots[0], 2);
  assert_int_equal(s->slots[2], 1);
  schedule_free(s);
  segments_free(segments);
}

// Messages that wait for each other in a circle.
static void generate_stuck(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  static const char *const text[] = {"F0 B0 F1 B1", "F0 B0 F1 B1"};
  from_text(text[coordinate], coordinate, list);
}

static void messages_can_deadlock(void **state) {
  const ScheduleGenerator generator = {"stuck", generate_stuck, .least_stages = 1};
  Segments *segments = chain(2, 1);
  Schedule *s;
  Error error = {0};
  // What stage 0 sends in its backward of a microbatch stage 1 takes in its backward of that microbatch, which comes
  // after the gradient that this needs: a message in a circle.
  vec_push(&segments->micro[0][PHASE_BACKWARD].send, (Crossing){60, 1, PHASE_BACKWARD, 0});
  vec_push(&segments->micro[1][PHASE_BACKWARD].receive, (Crossing){60, 0, PHASE_BACKWARD, 0});
  assert_int_equal(schedule_create(&generator, segments, (StageMap){2, 0}, 2, &s, &error), PLAIT_INFEASIBLE);
  assert_non_null(strstr(error.message, "deadlock"));
  segments_free(segments);
}

// Two ranks with two stages each. The second rank takes microbatch 1 only after it has run all of microbatch 0, and for
// that it needs a gradient that the first rank computes after stage 0 has run all microbatches.
static void generate_ahead(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  int stage[] = {coordinate, coordinate + map.coordinates};
  for (int k = 0; k < 2; k++) vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = stage[k], .microbatch = 0});
  for (int k = 1; coordinate && k >= 0; k--)
    vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = stage[k], .microbatch = 0});
  for (int m = 1; m < microbatches; m++)
    vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = stage[0], .microbatch = m});
  for (int k = 1; !coordinate && k >= 0; k--)
    vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = stage[k], .microbatch = 0});
  for (int m = 1; m < microbatches; m++) {
    vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = stage[1], .microbatch = m});
    for (int k = 1; k >= 0; k--) vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = stage[k], .microbatch = m});
  }
}

// Buffers are finite: stage 0 cannot send more microbatches than it has buffers while none of them is taken.
static void buffers_can_deadlock(void **state) {
  const ScheduleGenerator generator = {"ahead", generate_ahead, .least_stages = 1};
  Schedule *s;
  Error error = {0};
  if (create(&generator, 4, 2, STAGING_BUFFERS + 1, &s, &error))
    fail_msg("%s", error.message); // the first has been taken
  schedule_free(s);
  assert_int_equal(create(&generator, 4, 2, STAGING_BUFFERS + 2, &s, &error), PLAIT_INFEASIBLE);
  assert_non_null(strstr(error.message, "microbatch 3 waits for a buffer of stage 0"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(generators_are_whole_and_legal),
      cmocka_unit_test(schedules_hold_what_they_should),
      cmocka_unit_test(names),
      cmocka_unit_test(the_replay_refuses),
      cmocka_unit_test(slots_are_never_shared),
      cmocka_unit_test(bubbles_are_as_published),
      cmocka_unit_test(streams_wait_for_the_first_microbatch_alone),
      cmocka_unit_test(one_microbatch_a_step),
      cmocka_unit_test(zb_h1_is_as_published),
      cmocka_unit_test(zb_v_is_as_published),
      cmocka_unit_test(hand_over_in_memory),
      cmocka_unit_test(readers_of_other_stages_hold_slots),
      cmocka_unit_test(messages_can_deadlock),
      cmocka_unit_test(buffers_can_deadlock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
