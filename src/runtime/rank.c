// What a rank does with its job: loading, steps, evaluation, generation.
#include "runtime/rank.h"
#include "base/fault.h"
#include "base/signals.h"
#include "comm/comm.h"
#include "runtime/choices.h"
#include <math.h>
#include <string.h>

// The rank's place among those that divide the batch.
static void find_data_rank(Rank *r) {
  r->data_rank =
      mesh_index(&r->job->options.parallel.mesh, r->rank, layout_data_axes(&r->job->options.parallel.layout));
  r->data_ranks = job_data_ranks(r->job);
}

// A rank that waits for others lends them its threads.
static int lend(void *team) { return team_help(team); }

// Not where a queue's own thread computes with the team: a rank that waits does not know whether it is busy.
static int lends(const Job *job) {
  const DeviceImplementation *implementation = job->options.device->implementation;
  return job->teams && implementation && implementation->at_once;
}

// One for each graph of the job, in its order.
static int create_executors(Rank *r, int coordinate, Error *error) {
  int code = PLAIT_OK;
  r->executor = xcalloc((size_t)r->job->list.count, sizeof *r->executor);
  for (int i = 0; i < r->job->list.count && !code; i++)
    code = executor_create(r->job->list.data[i]->program[coordinate], r->state, r->queue, r->world, r->job->run.seed,
                           &r->executor[i], error);
  r->train = rank_executor(r, &role_train);
  return code;
}

static void destroy_executors(Rank *r) {
  for (int i = r->job->list.count - 1; r->executor && i >= 0; i--) executor_destroy(r->executor[i]);
  free(r->executor);
}

// Inputs that the job's graphs have: those of the table, and the user's own.
static int count_inputs(const Job *job) {
  int count = INPUT_COUNT;
  for (int i = 0; i < job->list.count; i++)
    for (int k = 0; k < job->list.data[i]->graph->input.count; k++) {
      int id = job->list.data[i]->graph->input.data[k].id;
      if (id >= count) count = id + 1;
    }
  return count;
}

// Of the steps under way, and one more, for what is run beside them.
static void create_inputs(Rank *r) {
  int steps = r->train ? rank_most_ahead(r) + 2 : 1, count = count_inputs(r->job);
  r->inputs = xcalloc((size_t)steps, sizeof *r->inputs);
  r->input = xcalloc((size_t)(steps * count), sizeof *r->input);
  for (int k = 0; k < steps; k++) r->inputs[k] = (StepInputs){.of = r->input + k * count, .count = count};
  r->beside = steps - 1;
}

Executor *rank_executor(const Rank *r, const JobRole *role) {
  for (int i = 0; i < r->job->list.count; i++)
    if (r->job->list.data[i]->role == role) return r->executor[i];
  return NULL;
}

static int is_not_loaded(const Variable *v) { return !variable_is_loaded(v); }

int rank_load(Rank *r, const Job *job, Error *error) {
  const Mesh *mesh = &job->options.parallel.mesh;
  int c = mesh_pipeline_coordinate(mesh, r->rank);
  CHECK(!r->job, "a rank loads one job");
  r->job = job;
  find_data_rank(r);
  const Device *device;
  int number = FAULT(ranks_share_an_instance, r->rank % plait_world_local_size(r->world->world), 0);
  int code = device_instance(job->options.device, device_number(&job->run.devices, number), &device, error);
  if (!code && (job->run.threads > 1 || job->teams))
    code = team_create_in(job->teams, job->run.threads, &r->team, error);
  if (!code && lends(job)) comm_set_idle(r->world, (Idle){lend, r->team});
  if (!code) code = state_create(job_program(job, c), device, job->work_bytes[c], r->rank, &r->state, error);
  if (!code) code = device_queue_create(device, r->team, &r->queue, error);
  if (code) return code;
  r->queue->believes = job->run.believes;
  state_init(r->state, job->run.seed, is_not_loaded, r->team);
  code = create_executors(r, c, error);
  if (!code && r->train) r->batch = xcalloc((size_t)rank_most_ahead(r) + 1, sizeof(Batch *));
  if (!code) create_inputs(r);
  if (!code && r->train && job_train(job)->program[0]->schedule->streams) {
    code = plait_stream_create(r->world, &r->signals, error);
    if (!code) stream_reserve(r->signals, 1, 0);
  }
  if (code || !r->train) return code;
  if (job->run.verify) r->verify = verify_create(job_train(job)->program[c], r->queue, r->rank);
  executor_observe(r->train, OBSERVER_VERIFY, r->verify);
  if (!job->run.check) return PLAIT_OK;
  r->desync = desync_create(job_train(job)->program[c], r->state, r->world);
  executor_observe(r->train, OBSERVER_DESYNC, r->desync);
  return PLAIT_OK;
}

int rank_choose(Rank *r, const char *path, int resumes, Error *error) {
  const StateMemory *s = &r->state->in[0];
  return choices_settle(r->queue, r->world, path, resumes, s->work, s->work ? s->bytes - (s->work - s->memory) : 0,
                        error);
}

int64_t rank_bound_bytes(const Job *job, int coordinate) {
  const Mesh *mesh = &job->options.parallel.mesh;
  Device null = device_null(job->options.device);
  Error error = {0};
  Rank r = {.job = job};
  int64_t bytes = 0;
  while (mesh_pipeline_coordinate(mesh, r.rank) != coordinate) r.rank++;
  int code = state_create(job_program(job, coordinate), &null, job->work_bytes[coordinate], r.rank, &r.state, &error);
  if (!code) code = device_queue_create(&null, NULL, &r.queue, &error);
  if (!code) code = create_executors(&r, coordinate, &error);
  CHECK(!code, "%s", error.message);
  for (int i = 0; i < job->list.count; i++) bytes += executor_host_bytes(r.executor[i]);
  destroy_executors(&r);
  device_queue_destroy(r.queue);
  state_destroy(r.state);
  return bytes;
}

void rank_initialise(Rank *r) { state_init(r->state, r->job->run.seed, variable_is_loaded, r->team); }

void rank_unload(Rank *r) {
  if (!r->job) return;
  if (lends(r->job)) comm_set_idle(r->world, (Idle){0});
  loader_close(r->loader);
  loader_close(r->evaluation);
  plait_stream_destroy(r->signals);
  destroy_executors(r);
  desync_destroy(r->desync);
  verify_destroy(r->verify);
  device_queue_destroy(r->queue);
  state_destroy(r->state);
  trace_destroy(r->trace);
  team_destroy(r->team);
  free(r->batch);
  free(r->inputs);
  free(r->input);
  *r = (Rank){.rank = r->rank, .world = r->world, .watchdog = r->watchdog};
}

int rank_barrier(Rank *r, Error *error) {
  return plait_barrier(r->world, NULL, NULL)
             ? plait_comm_failure(r->world, error)
             : PLAIT_OK;
}

// Before any other call over all ranks.
static int settle_signals(Rank *r, Error *error) {
  if (!r->asking) return PLAIT_OK;
  r->asking = 0;
  r->answered = 1;
  return plait_event_wait(r->asked) ? plait_comm_failure(r->world, error)
                                    : PLAIT_OK;
}

// Asks, for the end of the next step.
static int ask_for_signals(Rank *r, Error *error) {
  PlaitBuffer buffer = {&r->signal[0], &r->signal[1], 1};
  r->signal[0] = signals_number();
  r->asking = 1;
  return plait_all_reduce(r->world, &buffer, 1, PLAIT_INT32, PLAIT_MAX, r->signals, &r->asked)
             ? plait_comm_failure(r->world, error)
             : PLAIT_OK;
}

int rank_signal(Rank *r, int *number, Error *error) {
  int32_t signal = signals_number();
  PlaitBuffer buffer = {&signal, &signal, 1};
  int code = settle_signals(r, error);
  *number = r->answered ? r->signal[1] : 0;
  r->answered = 0;
  if (code || *number) return code;
  if (r->signals && rank_under_way(r)) return ask_for_signals(r, error);
  if (plait_comm_size(r->world) > 1 && plait_all_reduce(r->world, &buffer, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL))
    return plait_comm_failure(r->world, error);
  *number = signal;
  return PLAIT_OK;
}

void rank_trace(Rank *r, int64_t first, int64_t steps) {
  enum { MOST = 1 << 22, BETWEEN = 8 }; // spans; BETWEEN: of a step, data, checkpoint, evaluation
  const Mesh *mesh = &r->job->options.parallel.mesh;
  char title[64];
  int n = snprintf(title, sizeof title, "rank %d:", r->rank);
  for (int a = 0; a < mesh->naxis && n < (int)sizeof title; a++)
    n += snprintf(title + n, sizeof title - (size_t)n, " %s %d", mesh->axis[a].name, mesh_coordinate(mesh, r->rank, a));
  int64_t spans = steps * (trace_program_spans(r->state->program) + BETWEEN);
  r->trace = trace_create(r->rank, title, first, steps, (int)(spans < MOST ? spans : MOST));
  executor_observe(r->train, OBSERVER_TRACE, r->trace);
}

WindowPart rank_window_part(const Job *job, int rank) {
  const Parallel *p = &job->options.parallel;
  Shape shape = shape_of(1, &job->options.step.batch.length[DIM_SEQ], (DimName[]){DIM_SEQ});
  Placement placement = layout_placement(&p->layout, &p->mesh, ROLE_DATA, &shape);
  WindowPart part = {0};
  for (ShardBoxes b = {.shard = shard_of(&p->mesh, &placement, &shape, rank)}; shard_next(&b); part.runs++) {
    CHECK(part.runs < WINDOW_RUNS);
    part.run[part.runs].first = (int)b.box.offset[0];
    part.run[part.runs].length = (int)b.box.local[0];
  }
  return part;
}

// What the loader reads for inputs of the graph's own: (own_count) of config, which the caller frees after loader_open.
static LoaderInput *own_inputs(const Rank *r, const Compiled *c, int *count) {
  *count = count_inputs(r->job) - INPUT_COUNT;
  LoaderInput *own = xcalloc((size_t)*count + 1, sizeof *own);
  for (int i = 0; i < c->graph->input.count; i++) {
    const GraphInput *in = &c->graph->input.data[i];
    const Tensor *t = graph_tensor(c->graph, in->tensor);
    if (input_own(in) < 0 || in->from != FROM_LOADER) continue;
    int64_t row = (int64_t)dtype_size(t->dtype);
    for (int d = 1; d < t->shape.rank; d++) row *= tensor_local(c->graph, t)[d];
    own[input_own(in)] = (LoaderInput){in->name, row, in->filled};
  }
  return own;
}

static int open_loader(const Rank *r, const LoaderConfig *config, const Compiled *of, int64_t first_step, Loader **out,
                       Error *error) {
  LoaderConfig c = *config;
  CHECK(!c.document_mask || !r->job->options.step.batch.one_document,
        "the Program attends to all of a sample, and its data has documents");
  LoaderInput *own = own_inputs(r, of, &c.own_count);
  c.own = own;
  c.data_rank = r->data_rank;
  c.shares = &of->shares;
  c.part = rank_window_part(r->job, r->rank);
  int code = loader_open(&c, first_step, out, error);
  free(own);
  return code;
}

int rank_open_data(Rank *r, const LoaderConfig *config, int64_t first_step, Error *error) {
  return open_loader(r, config, job_train(r->job), first_step, &r->loader, error);
}

int rank_open_evaluation(Rank *r, const LoaderConfig *config, Error *error) {
  LoaderConfig c = *config;
  c.evaluation = 1;
  return open_loader(r, &c, job_find(r->job, &role_evaluate), 0, &r->evaluation, error);
}

void rank_take_shares(Rank *r) {
  CHECK(!r->batches, "batches of the next steps are in use");
  if (r->loader) loader_take_shares(r->loader);
  if (r->evaluation) loader_take_shares(r->evaluation);
}

static int wait_late(void *batch, Error *error) { return batch_wait_late(batch, error); }

// What step k of those under way reads of a batch. learning_rate NULL: an evaluation.
static void set_inputs(Rank *r, int k, Batch *b, const double *learning_rate) {
  StepInputs *inputs = &r->inputs[k];
  for (int id = 0; id < inputs->count; id++)
    inputs->of[id] = (StepInput){batch_input(b, id), batch_row(b, id), LIES_BY_ROW};
  inputs->late = (LateInputs){wait_late, b};
  inputs->of[INPUT_LEARNING_RATE] = (StepInput){.base = learning_rate};
}

enum { MAX_COUNTERS = 16 };

// The counters of a checkpoint that are scalars: what a skipped step changes (its loss scale). Saves, or puts back.
static void keep_counters(State *s, double *kept, int put_back) {
  const Graph *g = s->program->graph;
  int n = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v->kind != VARIABLE_COUNTER || v->shape.rank || v->dtype != DTYPE_F64) continue;
    CHECK(n < MAX_COUNTERS, "%s", v->name);
    if (put_back) state_write(s, i, -1, &(Box){0}, &kept[n]);
    else state_read(s, i, -1, &(Box){0}, &kept[n]);
    n++;
  }
}

static int share_first(Rank *r, NonFinite *first, Error *error) {
  int ranks = r->job->options.parallel.mesh.ranks, code = PLAIT_OK;
  if (ranks == 1) return PLAIT_OK;
  NonFinite *all = xcalloc((size_t)ranks, sizeof *all);
  PlaitBuffer buffer = {first, all, sizeof *all};
  if (plait_all_gather(r->world, &buffer, 1, PLAIT_UINT8, NULL, NULL))
    code = plait_comm_failure(r->world, error);
  for (int i = 0; i < ranks && !code; i++)
    if (finite_before(job_train(r->job)->graph, &all[i], first)) *first = all[i];
  free(all);
  return code;
}

// A skipped step has left everything as it was but the loss scale, so that it can be run again, this time looking at
// every value on the way. Healthy steps pay nothing for it.
static int find_first(Rank *r, int64_t step, const StepInputs *inputs, double *counters, NonFinite *first,
                      Error *error) {
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_STEP, step);
  keep_counters(r->state, counters, 1);
  FiniteSearch search = {job_train(r->job)->graph, {.rank = r->rank, .variable = -1}};
  executor_observe(r->train, OBSERVER_FINITE, &search);
  executor_observe(r->train, OBSERVER_TRACE, NULL);
  int code = executor_run(r->train, (uint64_t)step, inputs, 0, error);
  if (!code) code = executor_take_back(r->train, error);
  executor_observe(r->train, OBSERVER_FINITE, NULL);
  executor_observe(r->train, OBSERVER_TRACE, r->trace);
  *first = search.first;
  return code ? code : share_first(r, first, error);
}

// Sum of squares of the part of a Variable that this rank has, if any.
static double sum_of_squares(const Rank *r, int variable) {
  enum { AT_ONCE = 1 << 12 };
  double piece[AT_ONCE], sum = 0; // room for elements of any dtype
  Dtype dtype = state_dtype(r->state, variable, -1);
  for (ShardBoxes b = state_boxes(r->state, variable, -1); shard_next(&b);) {
    BoxPieces pieces = {.whole = b.box, .most = AT_ONCE};
    while (box_next_piece(&pieces)) {
      state_read(r->state, variable, -1, &pieces.piece, piece);
      for (int64_t i = 0, n = box_elements(&pieces.piece); i < n; i++) {
        double x = dtype_load(piece, dtype, i);
        sum += x * x;
      }
    }
  }
  return sum;
}

// A scalar in fp64, 0 where it does not live here.
static double scalar_or_0(const Rank *r, int variable) {
  double x = 0;
  for (ShardBoxes b = state_boxes(r->state, variable, -1); shard_next(&b);)
    state_read(r->state, variable, -1, &b.box, &x);
  return x;
}

// The same where updates are made in backward: weights are not what they were, but the sums of squares of the gradients
// that were applied tell, and the gradients that were left for END (of tied parameters) are still there.
static int find_first_gradient(Rank *r, NonFinite *first, Error *error) {
  const Graph *g = job_train(r->job)->graph;
  *first = (NonFinite){.rank = r->rank, .variable = -1};
  for (int i = 0; i < g->node.count && !first->found; i++) {
    const Node *n = &g->node.data[i];
    if (!node_is(n, ROLE_NORM_TERM)) continue;
    int parameter = graph_tensor(g, n->input[0])->parameter;
    double sum = n->update ? scalar_or_0(r, graph_find_of(g, OF_SQUARE, parameter))
                           : sum_of_squares(r, graph_find_of(g, OF_GRADIENT, parameter));
    if (!isfinite(sum)) *first = (NonFinite){1, r->rank, i, 0, 0, -1, sum};
  }
  return share_first(r, first, error);
}

// Targets of sequences of the step from `first` on become none, and are what they were again. A target is below 2^24.
static void hide_targets(Batch *b, int64_t first, bool hide) {
  enum { FAR = 1 << 30 };
  int64_t length = batch_row(b, INPUT_TARGETS) / (int64_t)sizeof(int32_t);
  int32_t *targets = batch_input(b, INPUT_TARGETS);
  for (int row = 0; row < b->samples; row++)
    for (int64_t i = row * length; b->sample[row] >= first && i < (row + 1) * length; i++) {
      if (hide && targets[i] >= 0) targets[i] -= FAR;
      if (!hide && targets[i] < -FAR / 2) targets[i] += FAR;
    }
}

// The gradient norm of a part of the batch: the step is tried without the other targets, which changes nothing but
// metrics, as they will be after the step itself, and the loss scale, which is put back.
static int measure_part(Rank *r, int64_t step, Batch *batch, StepResult *result, Error *error) {
  const double none = NAN;
  double counters[MAX_COUNTERS];
  int64_t sequences = job_train(r->job)->shares.global, part = (sequences + 7) / 8;
  set_inputs(r, r->beside, batch, &none);
  keep_counters(r->state, counters, 0);
  executor_observe(r->train, OBSERVER_TRACE, NULL);
  hide_targets(batch, FAULT(part_is_the_batch, part, sequences), true);
  int code = executor_run(r->train, (uint64_t)step, &r->inputs[r->beside], 0, error);
  if (!code) code = executor_take_back(r->train, error);
  hide_targets(batch, part, false);
  executor_observe(r->train, OBSERVER_TRACE, r->trace);
  keep_counters(r->state, counters, 1);
  result->part_norm = state_scalar(r->state, KNOWN_GRAD_NORM);
  result->part_tokens = state_scalar(r->state, KNOWN_TARGET_COUNT);
  return code;
}

int rank_under_way(const Rank *r) { return executor_under_way(r->train); }

bool rank_updates_at_once(const Rank *r) { return job_train(r->job)->program[0]->schedule->at_once; }

int rank_most_ahead(const Rank *r) { return job_train(r->job)->program[0]->schedule->steps - 1; }

// The batches of the step and of so many that follow it, of which a stream may have read some already.
static int take_batches(Rank *r, int ahead, StepResult *result, Error *error) {
  int code = PLAIT_OK;
  for (double waited; r->batches <= ahead && !code; r->batches += !code) {
    code = loader_next(r->loader, &r->batch[r->batches], &waited, error);
    if (!code) result->waited += waited;
  }
  return code;
}

// Behind a step: those of the steps that follow stay.
static void release_batch(Rank *r) {
  if (!r->batches) return;
  loader_release(r->loader, r->batch[0]);
  r->batches--;
  memmove(r->batch, r->batch + 1, sizeof *r->batch * (size_t)r->batches);
}

// Whether this step may double the loss scale, which the next one has to know when it begins.
static bool moves_scale(const Rank *r) {
  int64_t interval = r->job->options.step.update.loss_scale_interval;
  return interval && state_has(r->state, KNOWN_LOSS_SCALE_GOOD_STEPS) &&
         state_scalar(r->state, KNOWN_LOSS_SCALE_GOOD_STEPS) + 1 >= (double)interval;
}

static bool measures(const Rank *r, int64_t step) { return r->measure_every && step % r->measure_every == 0; }

// How many of the steps that follow are run in part with this one. Once some have not begun that could have, no others
// do before those under way are done.
static int steps_ahead(const Rank *r, int64_t step, int64_t goes_on) {
  int most = rank_most_ahead(r), begun = rank_under_way(r), ahead = 0;
  if (begun && begun < most) return begun - 1;
  while (ahead < most && ahead < goes_on && !measures(r, step + ahead + 1) &&
         FAULT(stream_goes_on_with_the_old_scale, !moves_scale(r), 1))
    ahead++;
  return ahead > begun - 1 ? ahead : begun - 1;
}

// With the batches of the steps that are under way then.
static int run_step(Rank *r, int64_t step, const double *learning_rate, int ahead, StepResult *result, Error *error) {
  int code = take_batches(r, ahead, result, error);
  for (int k = 0; k <= ahead && !code; k++)
    set_inputs(r, k, r->batch[k], &learning_rate[FAULT(stream_begins_with_the_old_rate, k, 0)]);
  return code ? code : executor_run(r->train, (uint64_t)step, r->inputs, ahead, error);
}

// Stages have updated with what was not finite, and some with later steps: those that have begun are finished, and
// what comes of them is for nobody. What is read of the State are still the results of this step.
static int finish_begun(Rank *r, int64_t step, const double *learning_rate, Error *error) {
  int code = PLAIT_OK, begun = rank_under_way(r);
  for (int k = 1; k <= begun && !code; k++) {
    for (int i = k; i <= begun; i++) set_inputs(r, i - k, r->batch[i], &learning_rate[i]);
    code = executor_run(r->train, (uint64_t)(step + k), r->inputs, begun - k, error);
  }
  r->state->turn.step -= begun;
  return code;
}

int rank_step(Rank *r, int64_t step, double learning_rate, StepResult *result, Error *error) {
  return rank_step_on(r, step, &learning_rate, 0, result, error);
}

static void read_result(const Rank *r, StepResult *result) {
  result->loss = state_scalar(r->state, KNOWN_LOSS);
  result->grad_norm = state_scalar(r->state, KNOWN_GRAD_NORM);
  result->tokens = state_scalar(r->state, KNOWN_TARGET_COUNT);
  result->skipped = state_scalar(r->state, KNOWN_SKIP) != 0;
}

// What the schedule has begun behind a step that was not finite comes to an end, and the first such value is found.
static int after_skip(Rank *r, int64_t step, const double *learning_rate, double *counters, StepResult *result,
                      Error *error) {
  if (rank_updates_at_once(r)) return finish_begun(r, step, learning_rate, error);
  int code = executor_take_back(r->train, error);
  if (code) return code;
  return r->job->options.step.update.in_backward ? find_first_gradient(r, &result->first, error)
                                            : find_first(r, step, r->inputs, counters, &result->first, error);
}

// The first step is over: what it gave is right, or names the first kernel that was wrong.
static int end_verify(Rank *r, int64_t step, StepResult *result, Error *error) {
  int code = verify_end(r->verify, step, &result->verified, error);
  executor_observe(r->train, OBSERVER_VERIFY, NULL);
  verify_destroy(r->verify);
  r->verify = NULL;
  return code;
}

int rank_step_on(Rank *r, int64_t step, const double *learning_rate, int64_t goes_on, StepResult *result,
                 Error *error) {
  result->waited = 0;
  result->first = (NonFinite){0};
  result->verified.calls = 0;
  double start = trace_begin(r->trace);
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_DATA, step);
  int code = take_batches(r, 0, result, error);
  if (code) return code;
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_STEP, step);
  trace_end(r->trace, start, "wait for data", NULL, "data", -1, -1);
  result->part_norm = result->part_tokens = 0;
  if (measures(r, step)) code = measure_part(r, step, r->batch[0], result, error);
  if (code) return release_batch(r), code;
  double begin = clock_seconds(), communicated = executor_comm_seconds(r->train),
         stalled = executor_stalled_seconds(r->train);
  double counters[MAX_COUNTERS];
  keep_counters(r->state, counters, 0);
  code = run_step(r, step, learning_rate, steps_ahead(r, step, goes_on), result, error);
  if (!code && r->verify) code = end_verify(r, step, result, error);
  read_result(r, result);
  if (!code && (!rank_under_way(r) || result->skipped)) code = settle_signals(r, error);
  if (!code && result->skipped) code = after_skip(r, step, learning_rate, counters, result, error);
  if (!code && !rank_under_way(r)) code = desync_check(r->desync, step, error);
  result->communicated = executor_comm_seconds(r->train) - communicated;
  result->computed = clock_seconds() - begin - result->communicated - (executor_stalled_seconds(r->train) - stalled);
  release_batch(r);
  return code;
}

static int evaluate_batch(Rank *r, Batch *batch, double *loss, double *tokens, Error *error) {
  set_inputs(r, r->beside, batch, NULL);
  int code = executor_run(rank_executor(r, &role_evaluate), 0, &r->inputs[r->beside], 0, error);
  *loss = state_scalar(r->state, KNOWN_LOSS);
  *tokens = state_scalar(r->state, KNOWN_TARGET_COUNT);
  return code;
}

int rank_evaluate(Rank *r, int64_t batches, EvaluationVisitor visit, void *context, double *loss, double *tokens,
                  Error *error) {
  int code = PLAIT_OK;
  double sum = 0, count = 0;
  for (int64_t i = 0; !code && (!batches || i < batches); i++) {
    Batch *batch;
    double l, n;
    watchdog_enter(r->watchdog, r->rank, ACTIVITY_EVALUATION_DATA, i + 1);
    code = loader_next(r->evaluation, &batch, NULL, error);
    if (code) break;
    watchdog_enter(r->watchdog, r->rank, ACTIVITY_EVALUATION, i + 1);
    code = evaluate_batch(r, batch, &l, &n, error);
    if (!code && n > 0) sum += l * n;
    if (!code) count += n;
    if (!code && visit) code = visit(r, context, batch, l, n, error);
    loader_release(r->evaluation, batch);
  }
  loader_rewind(r->evaluation);
  *loss = count > 0 ? sum / count : 0;
  *tokens = count;
  return code < 0 ? code : PLAIT_OK;
}

int rank_run(Rank *r, const JobRole *role, const StepInputs *inputs, Error *error) {
  watchdog_enter(r->watchdog, r->rank, role->activity, 0);
  return executor_run(rank_executor(r, role), 0, inputs, 0, error);
}

int rank_run_tick(Rank *r, int64_t tokens, const StepInputs *inputs, Error *error) {
  watchdog_enter(r->watchdog, r->rank, role_generate.activity, 0);
  return executor_run(r->executor[job_find_tick(r->job, tokens)], 0, inputs, 0, error);
}
