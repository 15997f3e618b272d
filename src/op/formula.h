// Scalar formulas that reference kernels and devices share: activations, rope frequencies, dropout masks.
#pragma once
#include "base/philox.h"
#include "op/attributes.h"
#include <math.h>

static inline double activation_value(int kind, double x) {
  switch (kind) {
  case ACTIVATION_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
  case ACTIVATION_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  case ACTIVATION_SILU: return x / (1 + exp(-x));
  case ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
  default: return x > 0 ? x : 0;
  }
}

// d activation_value / dx
static inline double activation_slope(int kind, double x) {
  switch (kind) {
  case ACTIVATION_GELU:
    return 0.5 * (1 + erf(x * 0.70710678118654752440)) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
  case ACTIVATION_GELU_TANH: {
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
  }
  case ACTIVATION_SILU: {
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
  }
  case ACTIVATION_SIGMOID: {
    double s = 1 / (1 + exp(-x));
    return s * (1 - s);
  }
  default: return x > 0;
  }
}

// Angle per position of pair i (elements i and i + d/2) of a head of d elements (Su et al., "RoFormer", 2021), with the
// scalings of Hugging Face's `rope_scaling`.
static inline double rope_frequency(const RopeAttr *attr, int64_t pair, int64_t d) {
  double f = pow(attr->theta, -2.0 * (double)pair / (double)d);
  if (attr->scaling == 2) return f / attr->factor;
  if (attr->scaling != 1) return f;
  // Llama 3: long waves are stretched, short ones are kept, those between are mixed.
  double waves = attr->original_positions * f / 6.283185307179586476925; // that fit into the original context
  if (waves < attr->low_frequency_factor) return f / attr->factor;
  if (waves > attr->high_frequency_factor) return f;
  double smooth =
      (waves - attr->low_frequency_factor) / (attr->high_frequency_factor - attr->low_frequency_factor);
  return (1 - smooth) * f / attr->factor + smooth * f;
}

// Dropout masks: 4 uniforms at one counter cover 4 neighbours of the last index; kept when uniform >= probability.
static inline int attention_keep(PhiloxKey key, int64_t sample, int64_t head, int64_t query, int64_t t,
                                 double probability) {
  uint32_t r[4];
  philox4x32(key, (uint32_t)sample, (uint32_t)head, (uint32_t)query, (uint32_t)(t / 4), r);
  return philox_uniform(r[t % 4]) >= probability;
}
static inline int dropout_keep(PhiloxKey key, int64_t sample, int64_t position, int64_t feature, double probability) {
  uint32_t r[4];
  philox4x32(key, (uint32_t)sample, (uint32_t)position, (uint32_t)(feature / 4), 0, r);
  return philox_uniform(r[feature % 4]) >= probability;
}
