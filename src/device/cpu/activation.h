// Activations and their slopes; included for every dtype, after its sigmoid.

INLINE V TYPED(act)(int kind, V x) {
  if (kind == ACTIVATION_SILU) return x * TYPED(sigmoid)(x);
  if (kind == ACTIVATION_SIGMOID) return TYPED(sigmoid)(x);
  if (kind == ACTIVATION_GELU) return x * MATH(normal_cdf)(x);
  if (kind == ACTIVATION_GELU_TANH) { // (1 + tanh u) / 2 = sigmoid(2u)
    V u = MATH(splat)((REAL)1.59576912160573071176) * x * MATH(fma)(MATH(splat)((REAL)0.044715) * x, x, MATH(splat)(1));
    return x * TYPED(sigmoid)(u);
  }
  return MATH(select)(x > (V){0}, x, (V){0});
}

INLINE V TYPED(act_slope)(int kind, V x) {
  V one = MATH(splat)(1);
  if (kind == ACTIVATION_SILU) {
    V s = TYPED(sigmoid)(x);
    return s * MATH(fma)(x, one - s, one);
  }
  if (kind == ACTIVATION_SIGMOID) {
    V s = TYPED(sigmoid)(x);
    return s * (one - s);
  }
  if (kind == ACTIVATION_GELU) {
    V density = MATH(splat)((REAL)0.39894228040143267794) * MATH(exp)(MATH(splat)((REAL)-0.5) * x * x);
    return MATH(fma)(x, density, MATH(normal_cdf)(x));
  }
  if (kind == ACTIVATION_GELU_TANH) {
    V c = MATH(splat)((REAL)1.59576912160573071176), xx = x * x;
    V s = TYPED(sigmoid)(c * x * MATH(fma)(MATH(splat)((REAL)0.044715), xx, one));
    V du = c * MATH(fma)(MATH(splat)((REAL)(3 * 0.044715)), xx, one);
    return MATH(fma)(x * s * (one - s), du, s);
  }
  return MATH(select)(x > (V){0}, one, (V){0});
}
