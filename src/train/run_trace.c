// run.trace: some steps of the run as a timeline.
#include "comm/comm.h"
#include "train/trainer.h"

static int open(Training *x, Error *error) {
  const Recipe *recipe = x->trainer->recipe;
  Rank *r = x->rank;
  if (!recipe->run.trace) return PLAIT_OK;
  rank_trace(r, recipe->run.trace_first, recipe->run.trace_steps);
  return trace_align(r->trace, r->world, plait_world_local_size(r->world->world) == plait_comm_size(r->world), error);
}

// The trace is written after its last step, or when the run ends.
static int turn(Training *x, int64_t step, Error *error) {
  Trace *trace = x->rank->trace;
  return trace && trace_turn(trace, step) ? trace_write(trace, x->rank->world, x->trainer->recipe->run.trace, error)
                                          : PLAIT_OK;
}

static int before(Training *x, Error *error) { return turn(x, x->step, error); }

static int after(Training *x, Error *error) {
  trace_end(x->rank->trace, x->began, "step", NULL, "step", -1, -1);
  return PLAIT_OK;
}

static int end(Training *x, Error *error) { return turn(x, INT64_MAX, error); }

const Hook hook_run_trace = {
    .on = {[HOOK_OPEN] = open, [HOOK_BEFORE] = before, [HOOK_AFTER] = after, [HOOK_END] = end}};
