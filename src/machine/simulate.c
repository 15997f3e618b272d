// A simulation is one run of the clock, or several: where transfers share links, where the critical path is asked for,
// and where a schedule never drains.
#include "machine/simulate.h"
#include "base/fault.h"
#include "machine/simulate_clock.h"
#include <math.h>

const char *const time_part_names[TIME_PARTS] = {
#define TIME_PART(id, name, meaning) [TIME_##id] = name,
#include "machine/time_parts.def"
#undef TIME_PART
};

const char *const time_part_meanings[TIME_PARTS] = {
#define TIME_PART(id, name, meaning) [TIME_##id] = meaning,
#include "machine/time_parts.def"
#undef TIME_PART
};

static void free_times(RankTime *time, int n) {
  for (int c = 0; c < n; c++) vec_free(&time[c].link);
  free(time);
}

// A simulation of one step, or of several if the schedule streams.
typedef struct Runs {
  Program *const *programs;
  const RankCosts *costs;
  const SimulateOptions *options;
  int steps, shared;    // shared: transfers that meet share links
  RankTime *time;       // (ranks) written: what each did
  ScheduleSpans *spans; // written; NULL: not asked for
  double total, met;    // written: seconds; transfers_met_most
} Runs;

// silent: nobody sees it.
static int run(Runs *runs, int silent, Critical *critical, Error *error) {
  Program *const *programs = runs->programs;
  SimulateOptions options = *runs->options;
  const SimulateOptions *o = &options;
  RankTime *time = runs->time;
  ScheduleSpans *spans = runs->spans;
  if (silent) options.see = NULL, options.issue = NULL;
  const Program *p = programs[0];
  Arena arena = {0};
  Schedule *stream = p->schedule->streams ? schedule_repeat(p->schedule, runs->steps) : NULL;
  Simulator s = {.critical = critical, .shared = runs->shared};
  simulator_make(&s, programs, runs->costs, o, stream ? runs->steps : 1, &arena);
  const ActionList **lists = arena_array(&arena, const ActionList *, s.coordinates);
  double *end = arena_array(&arena, double, s.ranks);
  for (int c = 0; c < s.coordinates; c++) lists[c] = &programs[c]->actions;
  ScheduleClock clock = simulator_clock(&s);
  int code = stream ? schedule_replay_by(stream, p->segments, NULL, &clock, spans, end, error)
                    : schedule_replay_by(p->schedule, p->segments, lists, &clock, spans, end, error);
  runs->total = 0;
  runs->met = transfers_met_most(s.transfers);
  for (int c = 0; c < s.ranks; c++) runs->total = fmax(runs->total, end[c]);
  for (int c = 0; c < s.ranks; c++) time[c] = simulator_rank_ends(&s, c, end[c], code ? end[c] : runs->total);
  simulator_free(&s);
  if (stream) schedule_free(stream);
  arena_free(&arena);
  return code;
}

static void forget_run(Runs *runs) {
  for (int c = 0; c < runs->costs->ranks; c++) {
    vec_free(&runs->time[c].link);
    runs->time[c] = (RankTime){.met = 0};
  }
  if (runs->spans) schedule_spans_free(runs->spans);
}

// Runs as if every transfer had its links alone. Where some met, runs again, so that these share them: that takes a few
// times longer. Not on a machine whose collectives were measured, where messages go through memory, and not with a
// number of ranks for which it would take minutes.
static int run_shared(Runs *runs, Error *error) {
  enum { MOST_RANKS = 512 };
  const double little = 1e-6; // of the step
  int code = run(runs, 1, NULL, error);
  if (code || runs->options->cluster->table || runs->costs->ranks > MOST_RANKS) return code;
  runs->shared = FAULT(simulated_links_are_not_shared, runs->met > little * runs->total, 0);
  if (!runs->shared) return PLAIT_OK;
  forget_run(runs);
  return run(runs, 1, NULL, error);
}

// Subtracts `less` from `more`, and divides by `steps` steps.
static void subtract(RankTime *more, const RankTime *less, int steps) {
  for (int i = 0; i < TIME_PARTS; i++) more->part[i] = (more->part[i] - less->part[i]) / steps;
  more->flops = (more->flops - less->flops) / steps;
  more->met = fmax(0, more->met - less->met) / steps;
  for (int i = 0; i < more->link.count; i++) {
    LinkTime *l = &more->link.data[i], none = {0};
    const LinkTime *m = &none;
    for (int k = 0; k < less->link.count; k++)
      if (less->link.data[k].axes == l->axes && less->link.data[k].level == l->level &&
          less->link.data[k].messages == l->messages)
        m = &less->link.data[k];
    l->exposed = (l->exposed - m->exposed) / steps, l->all = (l->all - m->all) / steps;
    l->bytes = (l->bytes - m->bytes) / steps, l->calls = (l->calls - m->calls) / steps;
  }
}

// A schedule that never drains: what a further step costs, once the pipeline is full.
static int run_stream(Runs *runs, Simulation *out, Error *error) {
  enum { FURTHER = 4 };
  int n = out->ranks;
  Runs less = *runs;
  less.steps = runs->programs[0]->schedule->steps + 1;
  less.time = xcalloc((size_t)n, sizeof *less.time);
  less.spans = NULL;
  runs->steps = less.steps + FURTHER;
  int code = run_shared(runs, error);
  less.shared = runs->shared;
  if (!code) code = run(&less, 1, NULL, error);
  if (!code && (runs->options->see || runs->options->issue)) forget_run(runs), code = run(runs, 0, NULL, error);
  for (int c = 0; c < n && !code; c++) subtract(&out->rank[c], &less.time[c], FURTHER);
  out->step = (runs->total - less.total) / FURTHER;
  free_times(less.time, n);
  return code;
}

static int run_step(Runs *runs, Simulation *out, Error *error) {
  const SimulateOptions *o = runs->options;
  Critical *critical = o->critical ? critical_create(out->ranks) : NULL;
  int code = run_shared(runs, error);
  if (!code && (critical || o->see || o->issue)) forget_run(runs), code = run(runs, 0, critical, error);
  out->step = runs->total;
  if (!code && critical) { // once more: now it is known which times count
    Runs again = *runs;
    again.spans = NULL;
    again.time = xcalloc((size_t)out->ranks, sizeof *again.time);
    critical_trace(critical, out->step);
    code = run(&again, 1, critical, error);
    free_times(again.time, out->ranks);
    critical_items(critical, o->critical, out);
  }
  critical_free(critical);
  return code;
}

static double worked(const RankTime *t) {
  return t->part[TIME_COMPUTE] + t->part[TIME_OPTIMIZER] + t->part[TIME_COLLECTIVE] + t->part[TIME_HOST];
}

int simulate(Program *const *programs, const SimulateOptions *o, Simulation **out, Error *error) {
  RankCosts costs;
  int code = rank_costs_create(programs, o->cluster, o->all_ranks, &costs, error);
  if (code) return code;
  Simulation *s = xcalloc(1, sizeof *s);
  s->ranks = costs.ranks;
  s->all_ranks = o->all_ranks;
  s->rank = xcalloc((size_t)s->ranks, sizeof *s->rank);
  Runs runs = {programs, &costs, o, .steps = 1, .time = s->rank, .spans = &s->spans};
  code = programs[0]->schedule->streams ? run_stream(&runs, s, error) : run_step(&runs, s, error);
  s->shared = runs.shared;
  for (int c = 0; c < s->ranks; c++)
    if (worked(&s->rank[c]) > worked(&s->rank[s->busiest])) s->busiest = c;
  for (int c = 0; c < s->ranks; c++)
    if (costs.of_rank[c]->guessed) s->guessed = costs.of_rank[c]->guessed;
  rank_costs_free(&costs);
  if (code) simulation_free(s);
  else *out = s;
  return code;
}

int simulate_steps(Program *const *programs, const SimulateOptions *o, int steps, Error *error) {
  RankCosts costs;
  int streams = programs[0]->schedule->streams,
      code = rank_costs_create(programs, o->cluster, o->all_ranks, &costs, error);
  if (code) return code;
  for (int i = 0; i < (streams ? 1 : steps) && !code; i++) {
    Runs runs = {programs, &costs, o, .steps = streams ? steps : 1,
                 .time = xcalloc((size_t)costs.ranks, sizeof(RankTime))};
    code = run(&runs, 0, NULL, error);
    free_times(runs.time, costs.ranks);
  }
  rank_costs_free(&costs);
  return code;
}

void simulation_free(Simulation *s) {
  if (!s) return;
  free_times(s->rank, s->ranks);
  vec_free(&s->critical);
  schedule_spans_free(&s->spans);
  arena_free(&s->arena);
  free(s);
}
