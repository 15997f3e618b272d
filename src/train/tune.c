// Successive halving of plans by measured time. See tune.h.
#include "train/tune.h"
#include "base/fault.h"
#include <stdlib.h>

static int half(int plans) { return plans > 2 ? (plans + 1) / 2 : plans; }

int tune_rounds(int plans) {
  int rounds = 1;
  for (; plans > 2; plans = half(plans)) rounds++;
  return rounds;
}

int tune_steps(int plans, int round, int most) {
  int steps = most >> (tune_rounds(plans) - 1 - round);
  if (steps < TUNE_LEAST_STEPS) steps = TUNE_LEAST_STEPS;
  return steps < most ? steps : most;
}

// Rounds are comparable only within themselves, since a machine's speed drifts.
static int by_time(const void *a, const void *b) {
  const TunePlan *x = a, *y = b;
  if (x->failed != y->failed) return x->failed - y->failed;
  if (!x->seconds != !y->seconds) return !x->seconds - !y->seconds;
  if (x->round != y->round) return y->round - x->round;
  return x->seconds != y->seconds ? (x->seconds > y->seconds) - (x->seconds < y->seconds) : x->plan - y->plan;
}

// Of a round that was interrupted no plan may gain by having been measured sooner: what the others took before counts.
static void forget_round(TunePlan *plans, int count, int round) {
  for (int i = 0; i < count; i++)
    if (!plans[i].failed && plans[i].seconds > 0 && plans[i].round == round && round) plans[i].round--;
}

static int measure_one(TunePlan *p, int steps, int round, TuneMeasure *measure, void *context) {
  double seconds = 0;
  Error why = {0};
  int code = measure(context, p->plan, steps, &seconds, &why);
  if (code == PLAIT_INTERRUPTED) return code;
  p->failed = code != PLAIT_OK;
  p->why = why;
  p->seconds = code ? 0 : seconds;
  p->steps = steps;
  p->round = round;
  return PLAIT_OK;
}

int tune_halve(TunePlan *plans, int count, int steps, TuneMeasure *measure, void *context) {
  for (int i = 0; i < count; i++) plans[i] = (TunePlan){.plan = i};
  int left = count, code = PLAIT_OK;
  for (int round = 0; round < tune_rounds(count) && left && !code; round++) {
    int failed = 0;
    for (int i = 0; i < left && !code; i++) {
      code = measure_one(&plans[i], tune_steps(count, round, steps), round, measure, context);
      failed += !code && plans[i].failed;
    }
    if (code) forget_round(plans, left, round);
    qsort(plans, (size_t)count, sizeof *plans, by_time);
    left = FAULT(tune_keeps_all, half(left - failed), left - failed);
  }
  return code;
}
