// The judge of delayed gradients: a delay for each layer, and what cannot be delayed.
#include "parallel/parallel_delay.h"
#include "parallel/parallel_problem.h"
#include <string.h>

// Where stages update at once, each without a word from the others. The delays themselves are judged where the layers
// have been cut (compile/stage.c).
static int check_at_once(const Step *s, const StepModel *m, int microbatches, ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  const char *name = o->schedule->name;
  if (microbatches > 1) {
    int64_t rows = ((int64_t)microbatches * s->batch.micro);
    problem->also = "parallel.pipeline";
    problem->nearest[1] = rows;
    return parallel_refuse(problem, "batch.micro",
                           "batch.global %lld with batch.micro %lld makes %d microbatches, but parallel.pipeline is "
                           "%s, which takes one a step; take batch.micro %lld, or parallel.pipeline 2bw",
                           (long long)s->batch.samples, (long long)s->batch.micro, microbatches, name, (long long)rows);
  }
  char clip[120];
  snprintf(clip, sizeof clip, "optimizer.clip is %.15g, and the global norm is known only when the last stage is done",
           s->update.clip);
  const struct { int bad; const char *key, *why, *take;
  } obstacles[] = {
      {s->update.clip > 0, "optimizer.clip", clip, "optimizer.clip 0"},
      {s->precision == DTYPE_F16, "precision",
       "precision: fp16 skips steps that overflow, when stages have updated already", "precision: bf16"},
      {s->update.skips, "run.non_finite", "run.non_finite is skip, and what a stage has updated cannot be taken back",
       "run.non_finite stop or rollback"},
      {s->update.trials, "run.noise_scale", "run.noise_scale tries steps that update nothing", "run.noise_scale 0"},
      {m->tied, "model.config", "the head of the model is its embedding, which would have two delays",
       "a model whose head is not tied"},
      {s->update.bias_rate > 0, "moe.bias_rate", "moe.bias_rate moves the routers' biases when a step is over",
       "moe.bias_rate 0"},
  };
  char why[420] = "", take[160] = "";
  for (size_t i = 0; i < sizeof obstacles / sizeof *obstacles; i++) {
    if (!obstacles[i].bad) continue;
    size_t n = strlen(why), k = strlen(take);
    snprintf(why + n, sizeof why - n, "%s%s", n ? "; " : "", obstacles[i].why);
    snprintf(take + k, sizeof take - k, "%s%s", k ? " and " : "", obstacles[i].take);
  }
  if (!why[0]) return PLAIT_OK;
  return parallel_refuse(problem, "parallel.pipeline",
                         "parallel.pipeline is %s, whose stages update at once, but %s; take %s, or parallel.pipeline "
                         "1f1b",
                         name, why, take);
}

// A stream begins a step before the last one has ended: gradients are those of a step ago, there are at least as many
// microbatches as ranks to be ahead of, and what a step leaves to the next one, beside weights, would come too late.
int parallel_check_stream(const Step *s, const StepModel *m, int pp, int microbatches,
                          ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  const char *name = o->schedule->name;
  const Delay *d = &s->update.delay;
  int all_one = d && d->count;
  for (int i = 0; d && i < d->count; i++) all_one &= d->of[i] == 1;
  if (!o->schedule->streams || pp == 1) return PLAIT_OK;
  if (o->schedule->at_once) return check_at_once(s, m, microbatches, problem);
  if (!all_one) {
    problem->also = "parallel.pipeline";
    problem->nearest[0] = 1;
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay is not 1, but parallel.pipeline is %s, whose gradients are those of the "
                           "weights of one step ago; take optimizer.delay 1, or parallel.pipeline 1f1b",
                           name);
  }
  if (microbatches < pp) {
    problem->also = "batch.micro";
    return parallel_refuse(problem, "mesh.pp",
                           "mesh.pp is %d, but parallel.pipeline %s takes at least as many microbatches as pipeline "
                           "ranks, and batch.global %lld with batch.micro %lld makes %d; take mesh.pp %d, or a smaller "
                           "batch.micro",
                           pp, name, (long long)s->batch.samples, (long long)s->batch.micro, microbatches,
                           microbatches);
  }
  if (s->update.bias_rate > 0)
    return parallel_refuse(problem, "parallel.pipeline",
                           "parallel.pipeline is %s, which begins a step before the last one has moved the routers' "
                           "biases, but moe.bias_rate is above 0; take parallel.pipeline 1f1b, or moe.bias_rate 0",
                           name);
  return PLAIT_OK;
}

// An update in backward leaves no weights of before, and what the head and the embedding share has one delay.
int parallel_check_delay(const Step *s, const StepModel *m, ParallelProblem *problem) {
  const Delay *d = &s->update.delay;
  int most = 0;
  for (int i = 0; d && i < d->count; i++) most = d->of[i] > most ? d->of[i] : most;
  if (m->known && d && d->count > 1 && d->count != m->layers)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay has %d numbers, but %.400s has %lld layers; give one number for each of "
                           "them, or one for all",
                           d->count, m->name, (long long)m->layers);
  if (!most) return PLAIT_OK;
  if (s->update.in_backward)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay is %s%d, but parallel.update is in_backward, which changes weights before "
                           "the step that they are kept for is over; take parallel.update: end, or optimizer.delay 0",
                           d->count > 1 ? "up to " : "", most);
  int first = d->of[0], last = d->of[d->count - 1];
  if (m->known && m->tied && first != last)
    return parallel_refuse(problem, "optimizer.delay",
                           "optimizer.delay is %d for the first layer and %d for the last one, but the head of %.400s "
                           "is its embedding, which has one delay; give both layers the same number, or take a model "
                           "whose head is not tied",
                           first, last, m->name);
  return PLAIT_OK;
}
