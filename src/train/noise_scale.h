// The gradient noise scale (McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018),
// from the gradient norms of a batch and of a part of it: E|g|² of n tokens is |G|² + noise / n.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Running means of the two, since their ratio of one step says little. A zeroed one is empty.
typedef struct NoiseScale {
  double noise, signal, tokens;
  double weight; // the running means started at 0: divide noise, signal and tokens by this
  int count;
} NoiseScale;

// Norms of the gradients of a part's and of the whole batch's mean loss, and their target tokens. Values that are not
// finite, or a part that is the whole, are left out.
void noise_scale_add(NoiseScale *n, double part_tokens, double part_norm, double tokens, double norm);
// In sequences, of which a batch has `batch`; NAN: not known yet, or the gradient is lost in noise.
double noise_scale_sequences(const NoiseScale *n, int batch);
// A sentence on which batch it suggests; false: nothing was measured.
bool noise_scale_describe(const NoiseScale *n, int batch, char *text, size_t size);
