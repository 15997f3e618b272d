// The judge of delayed gradients: a delay for each layer, and what cannot be delayed.
#include "compile/parallel_delay.h"
#include "compile/parallel_problem.h"

// An update in backward leaves no weights of before, and what the head and the embedding share has one delay.
int parallel_check_delay(const ParallelOptions *o, const Workload *w, ParallelProblem *problem) {
  const Delay *d = w->delay;
  int most = 0;
  for (int i = 0; d && i < d->count; i++) most = d->of[i] > most ? d->of[i] : most;
  if (w->model && d && d->count > 1 && d->count != w->layers)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay has %d numbers, but %.400s has %lld layers; give one number for each of "
                           "them, or one for all",
                           d->count, w->model, (long long)w->layers);
  if (!most) return PLAIT_OK;
  if (w->update_in_backward)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay is %s%d, but parallel.update is in_backward, which changes weights before "
                           "the step that they are kept for is over; take parallel.update: end, or optimizer.delay 0",
                           d->count > 1 ? "up to " : "", most);
  int first = d->of[0], last = d->of[d->count - 1];
  if (w->model && w->tied && first != last)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay is %d for the first layer and %d for the last one, but the head of %.400s "
                           "is its embedding, which has one delay; give both layers the same number, or take a model "
                           "whose head is not tied",
                           first, last, w->model);
  return PLAIT_OK;
}
