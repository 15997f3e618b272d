// Learning rate by step: a linear warm-up, then cosine, linear, warm-up-stable-decay (WSD) or constant.
#pragma once
#include "recipe/recipe.h"

// The learning rate of step `step`, counted from 0: the first update uses step 0. With W = warmup, N = steps:
//   step < W:  lr · (step + 1) / W                                            (all kinds)
//   cosine:    min_lr + (lr − min_lr) · (1 + cos(π p)) / 2, where p = (step − W) / (N − W)
//              (Loshchilov and Hutter, "SGDR", 2017)
//   linear:    lr + (min_lr − lr) · p
//   wsd:       lr until N − decay_steps, then linear to min_lr at N (Hu et al., "MiniCPM", 2024)
//   constant:  lr
// At and beyond N all but constant give min_lr.
double learning_rate_at(const Recipe *recipe, int64_t step);
