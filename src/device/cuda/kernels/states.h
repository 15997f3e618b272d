// STATE_UPDATE and STATE_SCALES of one dtype of weights: a block of threads has the numbers of one scale.
#include "device/cuda/kernels/update.h"

// Number k of the moments, decoded by its old scale.
INLINE REAL NAME(state_of)(const StateArguments *a, int k, int64_t at) {
  if (k >= a->moments) return 0;
  const float scale = ((const float *)a->scales[k])[BLOCK];
  return (REAL)(code_value(&a->code[k], ((const uint8_t *)a->update.moment[k].data)[at]) * scale);
}

// By the rule of the optimizer; returns what MUON_MOMENTUM makes.
INLINE REAL NAME(update_element)(const StateArguments *a, const NAME(Update) *u, int64_t at, REAL *w, REAL m[2]) {
  const REAL gradient = ARRAY(a->update.gradient, at);
  if (a->optimizer == STATES_OF_ADAMW) NAME(adamw_element)(u, gradient, w, &m[0], &m[1]);
  else if (a->optimizer == STATES_OF_SGD) NAME(sgd_element)(u, (REAL)a->update.momentum, gradient, w, &m[0]);
  else if (a->optimizer == STATES_OF_LION) NAME(lion_element)(u, gradient, w, &m[0]);
  else return NAME(muon_element)(u, (REAL)a->update.momentum, (REAL)(1 - a->update.momentum), gradient, &m[0]);
  return 0;
}

// The new scale of moment k, which every thread gets; size: of this thread's number, 0 where it has none.
INLINE float NAME(scale_of)(const StateArguments *a, int k, float size, float *scratch) {
  if (a->given[k]) return ((const float *)a->given[k])[BLOCK];
  return scale_covering(block_max_f32(size, scratch));
}

KERNEL(NAME(states), StateArguments) {
  SHARED(double, correction, 2);
  SHARED(float, scratch, WARP);
  const int64_t lead = BLOCK / a.blocks;
  uint64_t index = 0;
  const int64_t at = state_place(&a, lead, (BLOCK - lead * a.blocks) * STATE_BLOCK + THREAD, &index);
  NAME(Update) u = NAME(update_of)(&a.update);
  REAL w = 0, m[2] = {0, 0}, made = 0;
  if (a.optimizer == STATES_OF_ADAMW) NAME(correct)(&u, &a.update, correction);
  if (at >= 0) {
    if (a.update.w) w = NAME(weight)(&a.update, at);
    m[0] = NAME(state_of)(&a, 0, at);
    m[1] = NAME(state_of)(&a, 1, at);
    if (!u.skip) made = NAME(update_element)(&a, &u, at, &w, m);
  }
  UNLESS_FAULT(kernel_scales_are_written_early) BARRIER(); // the old scales have been read
  const Four random = a.only_scales || at < 0 ? no_random() : state_random_at(&a, index);
  for (int k = 0; k < 2; k++) {
    if (k >= a.moments) break;
    const float x = (float)m[k], scale = NAME(scale_of)(&a, k, size_of_number(x), scratch);
    if (!THREAD) ((float *)a.new_scales[k])[BLOCK] = scale;
    if (a.only_scales || at < 0) continue;
    const uint32_t bits = random.r[index & 3] >> (k ? 16 : 0) & 0xffffu;
    ((uint8_t *)a.update.new_moment[k].data)[at] = code_of(&a.code[k], x, inverse_of(scale), bits);
  }
  if (a.only_scales || at < 0) return;
  if (a.update.w) NAME(put_weight)(&a.update, at, w);
  else PUT(a.update.copy, at, made);
}
