// Problems of parallel configurations as sentences.
#include "parallel/parallel_problem.h"
#include <stdarg.h>
#include <stdio.h>

int parallel_refuse(ParallelProblem *problem, const char *key, const char *format, ...) {
  problem->key = key;
  if (problem->unread) return PLAIT_INFEASIBLE;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem->text, sizeof problem->text, format, arguments);
  va_end(arguments);
  return PLAIT_INFEASIBLE;
}

const char *parallel_nearest(ParallelProblem *problem, int64_t below, int64_t above, char text[64]) {
  problem->nearest[0] = below;
  problem->nearest[1] = above;
  if (below && above) snprintf(text, 64, "%lld or %lld", (long long)below, (long long)above);
  else snprintf(text, 64, "%lld", (long long)(below ? below : above));
  return text;
}
