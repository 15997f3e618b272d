// The closed forms of the learning-rate schedules.
#include "train/learning_rate.h"
#include <math.h>

double learning_rate_at(const Recipe *recipe, int64_t step) {
  double lr = recipe->optimizer.lr, least = recipe_min_lr(recipe);
  int64_t warmup = recipe->schedule.warmup, steps = recipe->schedule.steps;
  if (step < 0) step = 0;
  if (step < warmup) return lr * (double)(step + 1) / (double)warmup;
  if (recipe->schedule.name == RECIPE_CONSTANT) return lr;
  if (step >= steps) return least;
  int64_t start = recipe->schedule.name == RECIPE_WSD ? steps - recipe_decay_steps(recipe) : warmup;
  if (step < start) return lr;
  double p = (double)(step - start) / (double)(steps - start); // start <= step < steps
  if (recipe->schedule.name == RECIPE_COSINE) return least + (lr - least) * (1 + cos(M_PI * p)) / 2;
  return lr + (least - lr) * p;
}
