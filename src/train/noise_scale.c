// Estimating the gradient noise scale.
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>

static const double KEPT = 0.95; // of the mean, with each new measurement

void noise_scale_add(NoiseScale *n, double part_tokens, double part_norm, double tokens, double norm) {
  double small = part_norm * part_norm, large = norm * norm;
  if (!(part_tokens > 0) || !(tokens > part_tokens) || !isfinite(small) || !isfinite(large)) return;
  double signal = (tokens * large - part_tokens * small) / (tokens - part_tokens);
  double noise = (small - large) / (1 / part_tokens - 1 / tokens);
  n->signal = KEPT * n->signal + (1 - KEPT) * signal;
  n->noise = KEPT * n->noise + (1 - KEPT) * noise;
  n->tokens = KEPT * n->tokens + (1 - KEPT) * tokens;
  n->weight = KEPT * n->weight + (1 - KEPT); // all three are this much too small
  n->count++;
}

double noise_scale_sequences(const NoiseScale *n, int batch) {
  if (!n->count || !(n->signal > 0)) return NAN;
  return fmax(n->noise, 0) / n->signal / (n->tokens / n->weight) * batch;
}

bool noise_scale_describe(const NoiseScale *n, int batch, char *text, size_t size) {
  enum { FEW = 10 };
  double scale = noise_scale_sequences(n, batch);
  if (!n->count) return false;
  if (isnan(scale)) {
    snprintf(text, size, "not known: noise hides the gradient of %d sequences; larger batches would help", batch);
    return true;
  }
  int k = snprintf(text, size, "about %.3g sequence%s; ", scale, scale < 1.5 ? "" : "s");
  const char *form = scale > 2 * batch
                         ? "with batch.global up to about that (now %d), steps get fewer and tokens hardly more"
                     : scale < batch / 2. ? "a batch.global near that (now %d) would learn as much from fewer tokens"
                                          : "batch.global %d is near it, a good balance of steps and tokens";
  if (k > 0 && (size_t)k < size) k += snprintf(text + k, size - (size_t)k, form, batch);
  if (n->count < FEW && k > 0 && (size_t)k < size)
    snprintf(text + k, size - (size_t)k, "; measured only %d time%s", n->count, n->count > 1 ? "s" : "");
  return true;
}

static int open(Training *x, Error *error) {
  x->rank->measure_every = x->trainer->recipe->run.noise_scale;
  return PLAIT_OK;
}

static int write_keys(Training *x, Error *error) {
  const StepResult *s = &x->result;
  NoiseScale *n = &x->trainer->last.noise;
  Metrics *m = &x->trainer->metrics;
  if (!(s->part_tokens > 0)) return PLAIT_OK;
  noise_scale_add(n, s->part_tokens, s->part_norm, s->tokens, s->grad_norm);
  metrics_real(m, "part_target_tokens", s->part_tokens);
  metrics_real(m, "part_grad_norm", s->part_norm);
  metrics_real(m, "noise_scale", noise_scale_sequences(n, x->trainer->recipe->batch.global)); // smoothed
  return PLAIT_OK;
}

const Hook hook_noise_scale = {.on = {[HOOK_OPEN] = open, [HOOK_LINE] = write_keys}};
