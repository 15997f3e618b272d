// Embeddings, rotary positions, and the scalars of a step's end.
#include "device/cuda/kernels/kernel.h"
#include "op/attributes.h"

KERNEL_MARK(lookups)

// Angle per position of pair i, as rope_frequency (op/formula.h).
INLINE double frequency_of(const RopeArguments *a, int64_t pair) {
  const double f = pow(a->theta, -2.0 * (double)pair / (double)a->width);
  if (a->scaling == 2) return f / a->factor;
  if (a->scaling != 1) return f;
  const double waves = a->original * f / 6.283185307179586476925;
  if (waves < a->low) return f / a->factor;
  if (waves > a->high) return f;
  const double smooth = (waves - a->low) / (a->high - a->low);
  return (1 - smooth) * f / a->factor + smooth * f;
}

// Scalars: one thread of a warp works.
#define SCALAR(x) array_double(x, 0)
INLINE double at_least_one(double x) { return x > 1 ? x : 1; }

KERNEL(gradient_seed_f64, ScalarArguments) {
  if (THREAD) return;
  array_put_double(a.y[0], 0, (a.x[1].data ? SCALAR(a.x[1]) : 1) / at_least_one(SCALAR(a.x[0])));
}

KERNEL(mean_loss_f64, ScalarArguments) {
  if (THREAD) return;
  array_put_double(a.y[0], 0, SCALAR(a.x[0]) / at_least_one(SCALAR(a.x[1])));
}

// value: the greatest norm, or 0
KERNEL(clip_f64, ScalarArguments) {
  if (THREAD) return;
  const double scale = a.x[1].data ? SCALAR(a.x[1]) : 1, norm = sqrt(SCALAR(a.x[0])) / scale;
  const int trial = a.x[2].data && isnan(SCALAR(a.x[2])), skip = !isfinite(norm) || trial;
  array_put_double(a.y[0], 0, norm);
  array_put_double(a.y[1], 0, skip ? 0 : (a.value > 0 && norm > a.value ? a.value / norm : 1) / scale);
  array_put_double(a.y[2], 0, skip);
}

// step, skip
KERNEL(advance_f64, ScalarArguments) {
  if (THREAD == 0) array_put_double(a.y[0], 0, SCALAR(a.x[0]) + (SCALAR(a.x[1]) == 0));
}

// scale, good, skip; n: the interval, 0: the scale stays
KERNEL(loss_scale_f64, ScalarArguments) {
  if (THREAD) return;
  double scale = SCALAR(a.x[0]), good = SCALAR(a.x[1]) + 1;
  if (!a.n) good = 0;
  else if (SCALAR(a.x[2]) != 0) scale = scale / 2 > LOSS_SCALE_LEAST ? scale / 2 : LOSS_SCALE_LEAST, good = 0;
  else if (good >= (double)a.n + FAULT(kernel_loss_scale_grows_late, 0, 1))
    scale = scale * 2 < LOSS_SCALE_MOST ? scale * 2 : LOSS_SCALE_MOST, good = 0;
  array_put_double(a.y[0], 0, scale);
  array_put_double(a.y[1], 0, good);
}

// versions, steps, skip in END
KERNEL(version_turn_f64, ScalarArguments) {
  if (THREAD) return;
  double versions = SCALAR(a.x[0]), steps = SCALAR(a.x[1]), turn;
  if (a.x[2].data) {
    const int skip = SCALAR(a.x[2]) != 0;
    steps++;
    turn = skip ? TURN_STAYS : TURN_NEXT;
    if (!skip) versions = steps;
  } else {
    turn = !steps ? TURN_STARTS : versions < steps ? TURN_NEXT : TURN_STAYS;
    versions = steps;
  }
  array_put_double(a.y[0], 0, versions);
  array_put_double(a.y[1], 0, steps);
  array_put_double(a.y[2], 0, turn);
}

KERNEL(count_targets_f64, ScalarArguments) {
  SHARED(double, scratch, WARP);
  double count = 0;
  for (int64_t i = THREAD; i < a.n; i += THREADS) count += array_integer(a.x[0], i) >= 0;
  count = block_sum_f64(count, scratch);
  if (THREAD == 0) array_put_double(a.y[0], 0, count);
}

#define OF_ELEMENTS "device/cuda/kernels/lookups.h"
#include "device/cuda/kernels/each_real.h"
