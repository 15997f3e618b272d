// Schedules: what generators return is whole and legal, takes the slots that it should, and the replay refuses the rest.
#include "pipeline/schedule.h"
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
    vec_push(&s->micro[i][PHASE_FORWARD].send, (Crossing){i, i + 1});
    vec_push(&s->micro[i + 1][PHASE_FORWARD].receive, (Crossing){i, i});
    if (!backward) continue;
    vec_push(&s->micro[i + 1][PHASE_BACKWARD].send, (Crossing){BACKWARD_TENSORS + i + 1, i});
    vec_push(&s->micro[i][PHASE_BACKWARD].receive, (Crossing){BACKWARD_TENSORS + i + 1, i + 1});
  }
  return s;
}

static int create(const ScheduleGenerator *generator, int stages, int coordinates, int microbatches, Schedule **out, Error *error) {
  Segments *s = chain(stages, generator != &schedule_forward);
  *out = NULL;
  int code = schedule_create(generator, s, coordinates, microbatches, out, error);
  segments_free(s);
  return code;
}

static int is_segment(const Action *a) { return a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD; }

// Every segment once, on the coordinate of its stage; BEGIN first, END last.
static void check_whole(const Schedule *s, int phases) {
  int *count = xcalloc((size_t)(s->stages * s->microbatches * 2), sizeof(int));
  for (int c = 0; c < s->coordinates; c++) {
    const ActionList *l = &s->list[c];
    assert_true(l->data[0].kind == ACTION_BEGIN && l->data[l->count - 1].kind == ACTION_END);
    for (int i = 1; i < l->count - 1; i++) {
      const Action *a = &l->data[i];
      assert_true(a->kind != ACTION_BEGIN && a->kind != ACTION_END);
      assert_int_equal(a->stage % s->coordinates, c);
      if (is_segment(a)) count[(a->stage * s->microbatches + a->microbatch) * 2 + (a->kind == ACTION_BACKWARD)]++;
    }
  }
  for (int i = 0; i < s->stages * s->microbatches; i++) {
    assert_int_equal(count[i * 2], 1);
    assert_int_equal(count[i * 2 + 1], phases - 1);
  }
  free(count);
}

// Whether an action may run: what it needs has been done by other actions.
static int may_run(const Schedule *s, const int *forward, const int *backward, const Action *a) {
  int at = a->stage * s->microbatches + a->microbatch;
  if (a->kind == ACTION_FORWARD) return !a->stage || forward[at - s->microbatches];
  if (a->kind == ACTION_BACKWARD) return forward[at] && (a->stage == s->stages - 1 || backward[at + s->microbatches]);
  return 1;
}

// Runs all lists at once, looking at dependencies alone (not at messages): all must come to their end. On the way a slot must
// never be taken by a microbatch while another one is in it.
static void check_order(const Schedule *s) {
  size_t n = (size_t)(s->stages * s->microbatches);
  int *forward = xcalloc(n, sizeof(int)), *backward = xcalloc(n, sizeof(int)), at[16] = {0}, done = 0, training = 0;
  int *slot = xcalloc((size_t)(s->stages * s->slots), sizeof(int)); // microbatch + 1 in a stage's slot
  for (int i = 0; i < s->list[0].count; i++) training |= s->list[0].data[i].kind == ACTION_BACKWARD;
  for (int progress = 1; progress;) {
    progress = done = 0;
    for (int c = 0; c < s->coordinates; c++) {
      for (; at[c] < s->list[c].count && may_run(s, forward, backward, &s->list[c].data[at[c]]); at[c]++, progress = 1) {
        const Action *a = &s->list[c].data[at[c]];
        if (!is_segment(a)) continue;
        int *in = &slot[a->stage * s->slots + a->microbatch % s->slots];
        if (training) assert_int_equal(*in, a->kind == ACTION_FORWARD ? 0 : a->microbatch + 1);
        *in = a->kind == ACTION_FORWARD ? a->microbatch + 1 : 0;
        (a->kind == ACTION_FORWARD ? forward : backward)[a->stage * s->microbatches + a->microbatch] = 1;
      }
      done += at[c] == s->list[c].count;
    }
  }
  assert_int_equal(done, s->coordinates);
  free(forward);
  free(backward);
  free(slot);
}

// A segment's receives stand directly before it, its sends directly behind it.
static void check_messages(const Schedule *s) {
  for (int c = 0; c < s->coordinates; c++)
    for (int i = 1; i < s->list[c].count - 1; i++) {
      const Action *a = &s->list[c].data[i], *next = a + 1, *last = a - 1;
      if (a->kind == ACTION_RECV) assert_true(next->stage == a->stage && next->microbatch == a->microbatch && (next->kind == ACTION_RECV || is_segment(next)));
      if (a->kind == ACTION_SEND) assert_true(last->stage == a->stage && last->microbatch == a->microbatch && (last->kind == ACTION_SEND || is_segment(last)));
    }
}

static int least(int a, int b) { return a < b ? a : b; }

static void generators_are_whole_and_legal(void **state) {
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 9; m++) {
      const struct { const ScheduleGenerator *generator; int stages, slots, phases; } table[] = {
          {&schedule_gpipe, p, m, 2},   {&schedule_1f1b, p, least(p, m), 2}, {&schedule_forward, p, 1, 1},
          {&schedule_gpipe, 2 * p, m, 2}, {&schedule_forward, 3 * p, 1, 1}};
      for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Schedule *s;
        Error error = {0};
        if (create(table[i].generator, table[i].stages, p, m, &s, &error)) fail_msg("%s, %d stages, %d ranks, %d microbatches: %s", table[i].generator->name, table[i].stages, p, m, error.message);
        check_whole(s, table[i].phases);
        check_order(s);
        check_messages(s);
        assert_int_equal(s->slots, table[i].slots);
        schedule_free(s);
      }
    }
}

// 1F1B: no stage holds more microbatches than stages lie from it to the end.
static void one_f_one_b_holds_few(void **state) {
  Schedule *s;
  Error error = {0};
  assert_int_equal(create(&schedule_1f1b, 4, 4, 8, &s, &error), PLAIT_OK);
  for (int c = 0; c < 4; c++) {
    int flight = 0, most = 0;
    for (int i = 0; i < s->list[c].count; i++) {
      flight += (s->list[c].data[i].kind == ACTION_FORWARD) - (s->list[c].data[i].kind == ACTION_BACKWARD);
      if (flight > most) most = flight;
    }
    assert_int_equal(most, 4 - c);
  }
  schedule_free(s);
}

static void names(void **state) {
  assert_ptr_equal(schedule_by_name("gpipe"), &schedule_gpipe);
  assert_ptr_equal(schedule_by_name("1f1b"), &schedule_1f1b);
  assert_null(schedule_by_name("2f2b"));
}

// Hand-made lists of F and B: "F0 B0 …" for each of two coordinates.
static void from_text(const char *text, int coordinate, ActionList *list) {
  for (const char *p = text; *p; p += p[2] ? 3 : 2)
    vec_push(list, (Action){.kind = p[0] == 'F' ? ACTION_FORWARD : ACTION_BACKWARD, .stage = coordinate,
                             .microbatch = p[1] - '0', .tensor = -1, .peer = -1});
}

#define HAND_MADE(name, first, second)                                                                       \
  static void name##_generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) { \
    from_text(coordinate ? second : first, coordinate, list);                                                \
  }                                                                                                          \
  static const ScheduleGenerator name = {#name, name##_generate};
HAND_MADE(fine, "F0 F1 B0 B1", "F0 B0 F1 B1")
HAND_MADE(deadlock, "F0 B0 F1 B1", "F0 F1 B0 B1")
HAND_MADE(crossed_forward, "F0 F1 B0 B1", "F1 F0 B0 B1")
HAND_MADE(crossed_backward, "F0 F1 B0 B1", "F0 F1 B1 B0")
HAND_MADE(never_received, "F0 F1 B0", "F0 B0")
HAND_MADE(never_sent, "F0 B0", "F0 B0 F1 B1")
HAND_MADE(backward_first, "B0 F0 F1 B1", "F0 B0 F1 B1")
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
}

// Microbatches that leave out of order need more slots than are in flight, because a slot belongs to microbatch mod slots.
static void slots_are_never_shared(void **state) {
  Schedule *s;
  Error error = {0};
  assert_int_equal(create(&holes, 2, 2, 4, &s, &error), PLAIT_OK);
  check_order(s);
  assert_int_equal(s->slots, 4);
  schedule_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(generators_are_whole_and_legal), cmocka_unit_test(one_f_one_b_holds_few), cmocka_unit_test(names),
      cmocka_unit_test(the_replay_refuses),             cmocka_unit_test(slots_are_never_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
