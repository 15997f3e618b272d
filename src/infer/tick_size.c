// A larger tick reads weights for more tokens, and everyone in it waits for it.
#include "infer/tick_size.h"
#include "base/fault.h"

int tick_size_of(int64_t tokens) {
  int i = 0;
  while ((int64_t)1 << i < tokens) i++;
  return i;
}

static double token_seconds(const double *seconds, int i) { return seconds[i] / (double)((int64_t)1 << i); }

int tick_size_choose(const double *seconds, int sizes, int decode) {
  int i = 0, without = tick_size_of(decode);
  double least = token_seconds(seconds, 0);
  if (without >= sizes) without = sizes - 1;
  for (int j = 1; j < sizes; j++)
    if (token_seconds(seconds, j) < least) least = token_seconds(seconds, j);
  while (FAULT(ticks_are_small, 0.95, 0) * token_seconds(seconds, i) > least) i++;
  for (int j = i; j < sizes; j++)
    if (seconds[j] <= TICK_MOST_SLOWER * seconds[without]) i = j;
  return 1 << i;
}
