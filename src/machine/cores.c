// Kernels that share cores.
#include "machine/cores.h"
#include "base/error.h"
#include "base/fault.h"
#include <math.h>
#include <stdlib.h>

typedef enum WorkState { WORK_NONE, WORK_UNDER_WAY, WORK_DONE } WorkState;
typedef struct Work {
  WorkState state;
  CoreSeconds kernel;
  double begin, left, busy, end; // left: 1 … 0, a part of the kernel
} Work;

struct Cores {
  CoresOptions options;
  double time; // up to which `left` counts
  Work *work;  // (coordinates)
};

Cores *cores_create(const CoresOptions *o) {
  Cores *c = xcalloc(1, sizeof *c);
  c->options = *o;
  c->work = xcalloc((size_t)o->coordinates, sizeof *c->work);
  return c;
}

void cores_free(Cores *c) {
  if (!c) return;
  free(c->work);
  free(c);
}

int cores_run(Cores *c, int coordinate, const CoreSeconds *kernel, double busy, double *now) {
  Work *w = &c->work[coordinate];
  if (w->state == WORK_NONE) *w = (Work){WORK_UNDER_WAY, *kernel, *now, 1, busy, 0};
  if (w->state == WORK_UNDER_WAY) return 0;
  w->state = WORK_NONE;
  *now = w->end;
  return 1;
}

static int computes(const Cores *c, const Work *w) { return w->state == WORK_UNDER_WAY && w->begin <= c->time; }

// Seconds of a whole kernel at this moment. Between one coordinate that computes and all of them, as many as do.
static double seconds_now(const Cores *c, const Work *w, int computing) {
  const CoresOptions *o = &c->options;
  double least =
      FAULT(simulated_ranks_do_not_help, o->helpers, 0) ? fmin(w->kernel.helped, w->kernel.full) : w->kernel.alone;
  double part = o->coordinates > 1 ? (computing - 1.0) / (o->coordinates - 1.0) : 1;
  double seconds = least + (w->kernel.full - least) * FAULT(simulated_cores_are_not_shared, part, 0);
  double threads = (double)computing * o->ranks * o->threads;
  if (w->busy > c->time) seconds *= fmax(1, (threads + o->ranks) / o->cores);
  return fmax(seconds, 1e-12);
}

// The next moment at which somebody's rate changes or a kernel ends; *ends: whose, or -1.
static double next_moment(const Cores *c, int computing, int *ends) {
  double next = INFINITY;
  *ends = -1;
  for (int i = 0; i < c->options.coordinates; i++) {
    const Work *w = &c->work[i];
    if (w->state != WORK_UNDER_WAY) continue;
    if (w->begin > c->time) {
      if (w->begin < next) next = w->begin, *ends = -1;
      continue;
    }
    double end = c->time + w->left * seconds_now(c, w, computing);
    if (w->busy > c->time && w->busy < end) {
      if (w->busy < next) next = w->busy, *ends = -1;
    } else if (end < next) {
      next = end, *ends = i;
    }
  }
  return next;
}

int cores_pass(Cores *c) {
  int ends = -1, under_way = 0;
  double first = INFINITY;
  for (int i = 0; i < c->options.coordinates; i++) {
    if (c->work[i].state != WORK_UNDER_WAY) continue;
    under_way++;
    first = fmin(first, c->work[i].begin);
  }
  if (!under_way) return 0;
  c->time = fmax(c->time, first);
  while (ends < 0) {
    int computing = 0;
    for (int i = 0; i < c->options.coordinates; i++) computing += computes(c, &c->work[i]);
    double next = next_moment(c, computing, &ends);
    for (int i = 0; i < c->options.coordinates; i++)
      if (computes(c, &c->work[i]))
        c->work[i].left -= (next - c->time) / seconds_now(c, &c->work[i], computing);
    c->time = next;
  }
  c->work[ends].state = WORK_DONE;
  c->work[ends].end = c->time;
  return 1;
}
