// A tick: rank 0 plans it, every process hears what it is, all ranks compute it, rank 0 draws. Over pipeline stages
// several ticks of different requests are under way: each stage computes another one.
#include "infer/engine.h"
#include "infer/flight.h"
#include "infer/masks.h"
#include "infer/tick_size.h"
#include "foresight/estimate.h"
#include "base/clock.h"
#include "base/fault.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  TOKENS = 256,       // of a tick, where nothing is known of the machine
  MOST_TOKENS = 1024, // where it is
  REQUESTS = 8,
  LEAST_PROMPT = 8,
  MOST_DRAWN = REQUEST_MOST_DRAFTS + 1,
  LONGEST_CONTEXT = 4096
};

// The ids that were drawn for a part (count), and for each its log-probability and the most likely ones.
typedef struct Drawn {
  int count;
  int32_t id[MOST_DRAWN];
  double logprob[MOST_DRAWN];
  int32_t *top_ids; // (MOST_DRAWN + scores, logprobs) where the request asks for them: scores come last
  double *top_logprobs, *score; // score: (scores) of tokens of the prompt
} Drawn;

struct Engine {
  Inference model;
  Launch *launch;
  Scheduler scheduler;
  int vocab;
  FlightShape shape;
  LogitsMap logits;
  TickFlight *flight;              // (in_flight) tick k is in k % in_flight
  int in_flight;
  int64_t begun, taken;        // ticks
  FlightResults results;       // of the tick that is taken
  Masks *masks;                // of requests for which ticks under way draw
  SampleScratch *scratch;      // (slots of rank 0's team)
  int slots;
  Vec(Drawn) drawn;            // of each part of the tick that is taken
  Vec(Request *) open;
  Vec(EngineEvent) events;
  int read;                    // of them
  double seconds[TICK_SIZES];       // of a tick of 2^i tokens, as measured; 0: not yet
  bool ran[TICK_SIZES];             // such a tick; the first one finds its memory cold, and does not count
  EngineTimes times;
  TokensFrom tokens_from;
  double taken_at;             // when the last tick was
  bool failed;
};

// ---- open and close

// Where infer.context is auto: keys and values take memory.
static int64_t usual_context(const ModelSource *source) {
  int64_t length = source->has_recipe ? source->recipe.data.seq_len : model_usual_length(&source->config);
  return length < LONGEST_CONTEXT ? length : LONGEST_CONTEXT;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Values for keys that are auto.
static void fill_scheduler(const Recipe *r, const EngineOptions *o, const ModelSource *source, SchedulerOptions *s) {
  int64_t context = r->infer.context ? r->infer.context : usual_context(source);
  int requests = r->infer.requests ? r->infer.requests : o->requests ? o->requests : REQUESTS;
  *s = (SchedulerOptions){.requests = requests,
                          .tokens = r->infer.tokens,
                          .page = r->infer.page,
                          .context = (int)context,
                          .in_flight = r->infer.in_flight ? r->infer.in_flight : r->mesh.pp,
                          .speculate = r->infer.speculate,
                          .prefix = r->infer.prefix};
}

// infer.tokens: auto, with ticks of at most `bound` tokens
static int tokens_within(const SchedulerOptions *s, int bound) {
  return (int)most(s->context < bound ? s->context : bound, s->requests);
}

static int check_scheduler(const SchedulerOptions *s, const Recipe *r, const ModelConfig *config, Error *error) {
  int64_t of_request = (s->context + s->page - 1) / s->page, most_requests = INT32_MAX / (of_request * s->page);
  if (s->tokens && s->tokens < s->requests)
    return error_set(error, PLAIT_BAD_INPUT,
                     "infer.tokens is %d, but each of the %d requests of a data rank may need one in a tick; give at "
                     "least %d, or fewer infer.requests",
                     s->tokens, s->requests, s->requests);
  if (s->requests > most_requests && !r->infer.kv_memory)
    return error_set(error, PLAIT_BAD_INPUT,
                     "a cache for %d requests of %d tokens is larger than plait can number; take at most %lld "
                     "infer.requests, or say with infer.kv_memory how much memory it may have",
                     s->requests, s->context, (long long)most_requests);
  return model_check_length(config, "infer.context", s->context, error);
}

// The description of a tick (flight.h) has a number for each page that a request may have.
static int check_description(const SchedulerOptions *s, Error *error) {
  enum { MOST = 1 << 28 };
  int64_t of_request = (s->context + s->page - 1) / s->page;
  double all = (double)s->rows * s->requests * (double)of_request;
  if (all <= MOST) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%d requests of %d tokens in pages of %d are %.3g page numbers in each tick, and %d are allowed; take "
      "fewer infer.requests, a smaller infer.context or a larger infer.page",
      s->rows * s->requests, s->context, s->page, all, MOST);
}

static void fill_model(const SchedulerOptions *s, const Recipe *r, InferenceOptions *m) {
  int64_t drawn = (int64_t)s->requests * (1 + s->speculate), of_request = (s->context + s->page - 1) / s->page;
  m->seq = s->tokens;
  m->context = s->context;
  m->requests = s->requests;
  m->page = s->page;
  m->pages = s->requests * of_request;
  m->kv_memory = (double)r->infer.kv_memory;
  m->logits = drawn < s->tokens ? drawn : s->tokens;
}

static void create_rank_0(Engine *e) {
  const Rank *r = session_rank(e->model.session, 0);
  e->masks = masks_create();
  flight_results_create(&e->results, &e->shape);
  e->slots = team_slots(r->team);
  e->scratch = xcalloc((size_t)e->slots, sizeof *e->scratch);
  for (int i = 0; i < e->slots; i++) sample_scratch_create(&e->scratch[i], e->vocab);
}

static int compile_for(Engine *e, const SchedulerOptions *s, InferenceOptions *m, Launch *launch, Error *error) {
  fill_model(s, &e->model.recipe, m);
  e->model.recipe.data.seq_len = s->tokens;
  return inference_compile(&e->model, m, launch, error);
}

// Seconds of ticks of 1, 2, 4 … tokens; returns how many of these are known.
static int measured_ticks(const Job *j, double *seconds) {
  int n = 0;
  for (; n < TICK_SIZES && (int64_t)1 << n <= j->list.data[0]->tokens; n++) {
    const Compiled *c = j->list.data[job_find_tick(j, (int64_t)1 << n)];
    if (c->tokens != (int64_t)1 << n || !estimate_measured_step(j, c, &seconds[n])) return 0;
  }
  return n;
}

// A job with large ticks is compiled to see what they would take, where ranks are threads: measurements of several
// machines may differ.
static int choose_tokens(Engine *e, SchedulerOptions *s, InferenceOptions *m, Launch *launch, Error *error) {
  double seconds[TICK_SIZES];
  s->tokens = tokens_within(s, TOKENS);
  e->tokens_from = TOKENS_USUAL;
  if (launch->world || !estimate_has_measurements()) return PLAIT_OK;
  SchedulerOptions large = *s;
  large.tokens = tokens_within(s, MOST_TOKENS);
  int code = compile_for(e, &large, m, launch, error);
  int known = code ? 0 : measured_ticks(e->model.job, seconds);
  if (known) {
    int decode = (s->requests + s->in_flight - 1) / s->in_flight * (1 + s->speculate);
    int chosen = tick_size_choose(seconds, known, decode);
    s->tokens = 2 * chosen > large.tokens ? large.tokens : (int)most(chosen, s->requests);
    e->tokens_from = TOKENS_MEASURED;
  }
  job_destroy(e->model.job);
  e->model.job = NULL;
  return code;
}

int engine_compile(Engine **engine, const ModelSource *source, const EngineOptions *o, Launch *launch, Error *error) {
  Engine *e = *engine = xcalloc(1, sizeof *e);
  SchedulerOptions s;
  InferenceOptions m = {.mode = MODEL_GENERATE,
                        .command = o->command,
                        .instead = o->instead,
                        .rows = 1,
                        .seq = 1,
                        .threads = o->threads,
                        .key_count = o->key_count,
                        .keys = o->keys};
  Recipe *r = &e->model.recipe;
  e->failed = true; // until the ranks run
  e->launch = launch;
  e->vocab = (int)source->config.vocab;
  int code = inference_recipe(&e->model, source, &m, launch, error);
  if (code) return code;
  fill_scheduler(r, o, source, &s);
  code = check_scheduler(&s, r, &source->config, error);
  if (!code && !s.tokens) code = choose_tokens(e, &s, &m, launch, error);
  if (!code) code = compile_for(e, &s, &m, launch, error);
  if (code) return code;
  s.pages = (int)(e->model.job->options.step.batch.length[DIM_CACHE] / s.page);
  s.rows = (int)inference_rows(&e->model);
  code = check_description(&s, error);
  if (code) return code;
  s.logits = (int)m.logits;
  e->in_flight = s.in_flight;
  logits_map_create(&e->logits, e->model.job, s.rows, s.logits, e->vocab);
  e->shape = (FlightShape){.ranks = e->model.job->options.parallel.mesh.ranks,
                           .rows = s.rows,
                           .local_rows = (int)inference_local_rows(&e->model),
                           .requests = s.requests,
                           .pages = (s.context + s.page - 1) / s.page,
                           .tokens = s.tokens,
                           .wanted = s.logits,
                           .logits = &e->logits,
                           .overlap = FAULT(own_logits_are_the_next_ticks, s.in_flight > 1, false)};
  scheduler_create(&e->scheduler, &s);
  return PLAIT_OK;
}

int engine_start(Engine *e, Error *error) {
  int code = inference_start(&e->model, e->launch, error);
  if (code) return code;
  e->shape.processes = !session_is_local(e->model.session);
  e->flight = xcalloc((size_t)e->in_flight, sizeof *e->flight);
  for (int i = 0; i < e->in_flight; i++) flight_create(&e->flight[i], &e->shape);
  e->failed = false;
  if (e->launch->rank == 0) create_rank_0(e);
  return PLAIT_OK;
}

int engine_open(Engine **engine, const ModelSource *source, const EngineOptions *options, Launch *launch,
                Error *error) {
  int code = launch_agree(launch, engine_compile(engine, source, options, launch, error), error);
  return code ? code : engine_start(*engine, error);
}

// ---- drawing

static TickFlight *oldest(const Engine *e) { return &e->flight[e->taken % e->in_flight]; }

static double logprob_of(const Engine *e, int row, int32_t id) {
  const LogitsRows *all = &e->results.rows;
  float logit = all->row[row] ? all->row[row][id] : all->best[row].value;
  return -((double)all->maximum[row] + log((double)all->sum[row]) - (double)logit); // as the loss
}

// The most likely ids in their order; ties go to the lowest.
static void find_top(const Engine *e, int row, int n, int32_t *ids, double *logprobs) {
  const float *logits = e->results.rows.row[row];
  int count = 0;
  for (int32_t id = 0; id < e->vocab && n; id++) {
    if (count == n && !(logits[id] > logits[ids[n - 1]])) continue;
    int at = count < n ? count++ : n - 1;
    for (; at > 0 && logits[id] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
    ids[at] = id;
  }
  for (int i = 0; i < count; i++) logprobs[i] = logprob_of(e, row, ids[i]);
}

static void score_part(const Engine *e, const TickPart *part, int row, Drawn *d) {
  const Request *r = part->request;
  int n = r->options.logprobs;
  for (int i = 0; i < part->scores; i++) {
    d->score[i] = logprob_of(e, row + i, r->ids.data[part->from + i + FAULT(scores_are_of_other_tokens, 1, 0)]);
    find_top(e, row + i, n, d->top_ids + (MOST_DRAWN + i) * n, d->top_logprobs + (MOST_DRAWN + i) * n);
  }
}

// Ids that are drawn stand after the request's own until scheduler_took takes them.
static void draw_part(void *engine, int slot, int64_t index) {
  Engine *e = engine;
  const TickFlight *f = oldest(e);
  const TickPart *part = &f->tick.parts.data[index];
  Request *r = part->request;
  Drawn *d = &e->drawn.data[index];
  const RequestOptions *o = &r->options;
  int64_t have = r->ids.count;
  bool more = part->drawn > part->scores;
  if (r->end) return; // cancelled meanwhile
  score_part(e, part, f->first.data[index], d);
  for (int k = 0; more; k++) {
    int row = FAULT(logits_of_other_rows, f->first.data[index], 0) + part->scores + k;
    SampleText text = {r->ids.data, have + k, o->count};
    const uint8_t *allowed = o->rules ? k ? o->rules->allowed(o->rules->context) : masks_take(e->masks, o->rules)
                                      : o->allowed;
    const float *logits = e->results.rows.row[row];
    int32_t id = d->id[d->count++] = logits ? sample_token(logits, allowed, &o->sample, &text, &e->scratch[slot])
                                            : e->results.rows.best[row].id;
    if (o->logprobs >= 0 && id >= 0) {
      d->logprob[k] = logprob_of(e, row, id);
      find_top(e, row, o->logprobs, d->top_ids + k * o->logprobs, d->top_logprobs + k * o->logprobs);
    }
    if (id >= 0) r->ids.data[have + k] = id;
    if (o->rules && FAULT(rules_see_first_draws, id >= 0, id >= 0 && !k)) o->rules->took(o->rules->context, id);
    more = scheduler_accepts(part, k + 1, id);
  }
}

// On rank 0.
static int collect_tick(Rank *r, void *engine, Error *error) {
  Engine *e = engine;
  int code = flight_receive(oldest(e), r, &e->results, error);
  if (code) return code;
  e->times.model_seconds += clock_seconds(); // drawing is not the model's
  team_each(r->team, oldest(e)->tick.parts.count, draw_part, e);
  e->times.model_seconds -= clock_seconds();
  return PLAIT_OK;
}

int engine_follow(Engine *e, Error *error) {
  int code = PLAIT_OK;
  for (bool stop = false; !code && !stop; e->begun++) {
    TickFlight *f = &e->flight[e->begun % e->in_flight];
    code = session_run(e->model.session, flight_compute, f, error);
    stop = f->header.stop;
  }
  for (int i = 0; i < e->in_flight && !code; i++)
    code = session_run(e->model.session, flight_settle, &e->flight[i], error);
  return code;
}

// Ticks under way come to their end, for nobody.
static void stop_ticks(Engine *e, Error *error) {
  int code = PLAIT_OK;
  for (; !code && e->taken < e->begun; e->taken++) {
    oldest(e)->tick.parts.count = 0;
    code = session_run_on(e->model.session, 0, collect_tick, e, error);
    if (!code) code = session_wait(e->model.session, oldest(e)->task, error);
  }
  TickFlight *f = &e->flight[e->begun % e->in_flight];
  if (code || !e->shape.processes) return;
  flight_stop(f);
  session_run(e->model.session, flight_compute, f, error);
}

void engine_close(Engine *e) {
  if (!e) return;
  Error ignored = {0};
  if (!e->failed && e->launch->rank == 0) stop_ticks(e, &ignored);
  inference_close(&e->model);
  masks_destroy(e->masks);
  scheduler_destroy(&e->scheduler);
  for (int i = 0; e->flight && i < e->in_flight; i++) flight_destroy(&e->flight[i]);
  flight_results_free(&e->results, &e->shape);
  logits_map_destroy(&e->logits);
  for (int i = 0; i < e->drawn.count; i++) {
    free(e->drawn.data[i].top_ids);
    free(e->drawn.data[i].top_logprobs);
    free(e->drawn.data[i].score);
  }
  for (int i = 0; i < e->slots; i++) sample_scratch_destroy(&e->scratch[i]);
  free(e->scratch);
  free(e->flight);
  vec_free(&e->drawn);
  vec_free(&e->open);
  vec_free(&e->events);
  free(e);
}

// ---- a tick on rank 0

static void prepare_drawn(Engine *e, int index, const TickPart *part) {
  while (e->drawn.count <= index) vec_push(&e->drawn, (Drawn){0});
  Drawn *d = &e->drawn.data[index];
  Request *r = part->request;
  d->count = 0;
  if (!part->drawn) return;
  vec_reserve(&r->ids, r->ids.count + MOST_DRAWN);
  if (r->options.logprobs < 0) return;
  size_t top = (size_t)((MOST_DRAWN + part->scores) * r->options.logprobs);
  d->score = xrealloc(d->score, sizeof *d->score * (size_t)(part->scores + 1));
  d->top_ids = xrealloc(d->top_ids, sizeof *d->top_ids * (top + 1));
  d->top_logprobs = xrealloc(d->top_logprobs, sizeof *d->top_logprobs * (top + 1));
}

// Seconds of a tick of a size: measured, else at most twice those of one of half the size.
static double seconds_of(const Engine *e, int size) {
  double by = 1;
  for (; size >= 0; size--, by *= 2)
    if (e->seconds[size] > 0) return by * e->seconds[size];
  return 0;
}

// Tokens of prompts beside requests that decode, by what such ticks took. They fill a graph, whose rows cost the same
// whether they are used or not.
static int prompt_tokens(const Engine *e) {
  const SchedulerOptions *o = &e->scheduler.options;
  int sharers = o->rows * e->in_flight,
      decode = (scheduler_decoding(&e->scheduler) + sharers - 1) / sharers * (1 + o->speculate),
      size = tick_size_of(decode + LEAST_PROMPT);
  double most = TICK_MOST_SLOWER * seconds_of(e, tick_size_of(decode));
  while (1 << size < o->tokens && seconds_of(e, size + 1) <= most) size++;
  int room = (1 << size < o->tokens ? 1 << size : o->tokens) - decode;
  return room < LEAST_PROMPT ? LEAST_PROMPT : room;
}

static void push_scores(Engine *e, const TickPart *part, const Drawn *d) {
  const Request *r = part->request;
  int n = r->options.logprobs;
  for (int i = 0; i < part->scores; i++)
    vec_push(&e->events, (EngineEvent){.request = r->number,
                                       .id = r->ids.data[part->from + i + 1],
                                       .scored = true,
                                       .logprob = d->score[i],
                                       .top = n,
                                       .top_ids = d->top_ids + (MOST_DRAWN + i) * n,
                                       .top_logprobs = d->top_logprobs + (MOST_DRAWN + i) * n});
}

static void push_events(Engine *e, const TickPart *part, const Drawn *d) {
  const Request *r = part->request;
  const RequestOptions *o = &r->options;
  push_scores(e, part, d);
  for (int k = 0; k < d->count; k++) {
    if (d->id[k] < 0 || request_ends_with(r, d->id[k])) return;
    EngineEvent event = {.request = r->number, .id = d->id[k]};
    if (o->logprobs >= 0) {
      event.logprob = d->logprob[k];
      event.top = o->logprobs;
      event.top_ids = d->top_ids + k * o->logprobs;
      event.top_logprobs = d->top_logprobs + k * o->logprobs;
    }
    vec_push(&e->events, event);
    e->times.drawn_tokens++;
  }
}

static void forget_open(Engine *e, const Request *r) {
  int kept = 0;
  for (int i = 0; i < e->open.count; i++)
    if (e->open.data[i] != r) e->open.data[kept++] = e->open.data[i];
  e->open.count = kept;
}

static void end_event(Engine *e, Request *r) {
  vec_push(&e->events, (EngineEvent){.request = r->number, .id = -1, .end = r->end, .reused = r->reused});
  forget_open(e, r);
  if (!r->drawing) scheduler_free(&e->scheduler, r);
}

// A part of a prompt from which nothing is drawn: ticks run in their order, so the next one may continue after it.
static void take_silent(Engine *e, TickFlight *f) {
  int kept = 0;
  for (int i = 0; i < f->tick.parts.count; i++) {
    TickPart *part = &f->tick.parts.data[i];
    if (!part->drawn) {
      scheduler_took(&e->scheduler, part, NULL, 0);
      continue;
    }
    f->first.data[kept] = f->first.data[i];
    f->tick.parts.data[kept++] = *part;
  }
  f->first.count = f->tick.parts.count = kept;
}

// The tokens so far decide which may be drawn: that is found out while the model computes.
static void begin_masks(Engine *e, const TickFlight *f) {
  for (int i = 0; i < f->tick.parts.count; i++) {
    const TickPart *part = &f->tick.parts.data[i];
    const RequestRules *rules = part->request->options.rules;
    if (rules && part->drawn > part->scores) masks_begin(e->masks, rules);
  }
}

static void take_part(Engine *e, TickPart *part, const Drawn *d) {
  Request *r = part->request;
  if (r->end) { // cancelled meanwhile, and told so
    scheduler_took(&e->scheduler, part, NULL, 0);
    scheduler_free(&e->scheduler, r);
    return;
  }
  push_events(e, part, d);
  e->times.guessed += part->drafts;
  e->times.accepted += d->count > 1 ? d->count - 1 : 0;
  scheduler_took(&e->scheduler, part, d->id, d->count);
  if (r->end) end_event(e, r);
}

static void take_tick(Engine *e) {
  Tick *tick = &oldest(e)->tick;
  e->times.prompt_tokens += oldest(e)->prompt_tokens;
  for (int i = 0; i < tick->parts.count; i++) take_part(e, &tick->parts.data[i], &e->drawn.data[i]);
  e->taken++;
}

static void forget_read(Engine *e) {
  if (!e->read) return;
  e->events.count -= e->read;
  memmove(e->events.data, e->events.data + e->read, sizeof *e->events.data * (size_t)e->events.count);
  e->read = 0;
}

// false: there is nothing to do, but for what is under way.
static bool begin_tick(Engine *e) {
  Scheduler *s = &e->scheduler;
  TickFlight *f = &e->flight[e->begun % e->in_flight];
  if (!scheduler_plan(s, prompt_tokens(e))) return false;
  Tick planned = s->tick;
  s->tick = f->tick;
  f->tick = planned;
  const Job *job = e->model.job;
  flight_fill(f, &s->options, (int)job->list.data[job_find_tick(job, planned.tokens)]->tokens);
  take_silent(e, f);
  begin_masks(e, f);
  f->began = clock_seconds();
  f->task = session_begin(e->model.session, flight_compute, f);
  e->begun++;
  return true;
}

// Of the oldest tick; what it took since the last one was taken counts as its time.
static int end_tick(Engine *e, Error *error) {
  TickFlight *f = oldest(e);
  for (int i = 0; i < f->tick.parts.count; i++) prepare_drawn(e, i, &f->tick.parts.data[i]);
  double waits = clock_seconds();
  int code = session_run_on(e->model.session, 0, collect_tick, e, error);
  if (!code) code = session_wait(e->model.session, f->task, error);
  if (code) return code;
  double now = clock_seconds(), began = f->began > e->taken_at ? f->began : e->taken_at, took = now - began;
  int size = tick_size_of(f->header.tokens);
  double *seconds = &e->seconds[size];
  e->times.model_seconds += e->model.recipe.mesh.pp > 1 ? now - waits : took;
  if (e->ran[size]) *seconds = *seconds > 0 ? 0.8 * *seconds + 0.2 * took : took;
  e->ran[size] = true;
  e->taken_at = now;
  take_tick(e);
  return PLAIT_OK;
}

int engine_tick(Engine *e, Error *error) {
  CHECK(!e->failed);
  forget_read(e);
  double began = clock_seconds();
  while (e->begun - e->taken < e->in_flight && begin_tick(e)) {}
  if (e->begun == e->taken) return PLAIT_OK;
  bool prompts = oldest(e)->prompt_tokens > 0;
  int64_t drawn = e->times.drawn_tokens;
  int code = end_tick(e, error);
  e->failed = code != PLAIT_OK;
  if (code) return code;
  e->times.ticks++;
  began = clock_seconds() - began;
  e->times.seconds += began;
  if (prompts) e->times.prompt_seconds += began;
  else e->times.decoded_tokens += e->times.drawn_tokens - drawn;
  return PLAIT_OK;
}

bool engine_poll(Engine *e, EngineEvent *event) {
  if (e->read == e->events.count) return false;
  *event = e->events.data[e->read++];
  return true;
}

EngineTimes engine_times(const Engine *e) {
  EngineTimes t = e->times;
  t.preempted = e->scheduler.preempted;
  t.reused_tokens = e->scheduler.reused;
  t.received_bytes = e->results.bytes;
  return t;
}

EngineLoad engine_load(const Engine *e) {
  const Scheduler *s = &e->scheduler;
  EngineLoad load = {.running = s->running, .waiting = s->waiting.count};
  for (int i = 0; i < s->options.rows; i++) {
    load.pages += s->pool[i].count;
    load.pages_used += s->pool[i].count - s->pool[i].unused;
  }
  return load;
}

// ---- requests

static int out_of_range(Error *error, const char *name, double value, const char *allowed) {
  return error_set(error, PLAIT_BAD_INPUT, "%s is %g; allowed: %s", name, value, allowed);
}

static int check_sample(const SampleOptions *s, int vocab, Error *error) {
  if (!(s->temperature >= 0 && s->temperature <= 100))
    return out_of_range(error, "temperature", s->temperature, "0 to 100");
  if (s->top_k < 0) return out_of_range(error, "top_k", (double)s->top_k, "0 (all) or more");
  if (!(s->top_p >= 0 && s->top_p <= 1)) return out_of_range(error, "top_p", s->top_p, "above 0, to 1");
  if (!(s->min_p >= 0 && s->min_p <= 1)) return out_of_range(error, "min_p", s->min_p, "0 to 1");
  if (!(s->repetition >= 0 && s->repetition <= 100))
    return out_of_range(error, "repetition_penalty", s->repetition, "above 0, to 100");
  if (!(fabs(s->presence) <= 100)) return out_of_range(error, "presence_penalty", s->presence, "-100 to 100");
  if (!(fabs(s->frequency) <= 100)) return out_of_range(error, "frequency_penalty", s->frequency, "-100 to 100");
  for (int i = 0; i < s->biases; i++)
    if (s->bias[i].id < 0 || s->bias[i].id >= vocab || !isfinite(s->bias[i].bias))
      return error_set(error, PLAIT_BAD_INPUT, "logit_bias names token %d; allowed: 0 to %d, with a finite number",
                       s->bias[i].id, vocab - 1);
  return PLAIT_OK;
}

static int check_request(const Engine *e, const RequestOptions *o, Error *error) {
  if (o->count < 1) return error_set(error, PLAIT_BAD_INPUT, "the prompt has no tokens");
  if (o->most < 1 || o->most > INT32_MAX)
    return out_of_range(error, "max_tokens", (double)o->most, "1 to 2147483647");
  if (o->logprobs > e->vocab || o->logprobs > 100)
    return out_of_range(error, "logprobs", (double)o->logprobs, "at most 100, and the vocabulary");
  if (o->score && (o->logprobs < 0 || o->count > e->scheduler.options.context))
    return error_set(error, PLAIT_BAD_INPUT,
                     "a prompt that is scored has log-probabilities, and at most the context's %d tokens",
                     e->scheduler.options.context);
  for (int64_t i = 0; i < o->count; i++)
    if (o->prompt[i] < 0 || o->prompt[i] >= e->vocab)
      return error_set(error, PLAIT_BAD_INPUT,
                       "token %d is not in the model's vocabulary of %d: the tokenizer belongs to another model",
                       o->prompt[i], e->vocab);
  return check_sample(&o->sample, e->vocab, error);
}

// Ids that stand for nothing are mostly the first or last ones, where a vocabulary is padded.
static SampleRange range_of(const Engine *e, const RequestOptions *o) {
  SampleRange r = {0, o->rules ? 0 : e->vocab};
  if (!o->allowed || o->rules) return r;
  while (r.first < e->vocab && !o->allowed[r.first]) r.first++;
  while (r.end > r.first && !o->allowed[r.end - 1]) r.end--;
  for (int i = r.first; i < r.end; i++)
    if (FAULT(holes_are_allowed, !o->allowed[i], false)) return (SampleRange){0, 0};
  return r.first < r.end ? r : (SampleRange){0, 0};
}

int engine_submit(Engine *e, const RequestOptions *options, int64_t *number, Error *error) {
  int code = check_request(e, options, error);
  if (code) return code;
  Request *r = scheduler_submit(&e->scheduler, options);
  r->may_draw = range_of(e, options);
  vec_push(&e->open, r);
  *number = r->number;
  return PLAIT_OK;
}

void engine_cancel(Engine *e, int64_t number) {
  for (int i = 0; i < e->open.count; i++) {
    Request *r = e->open.data[i];
    if (r->number != number) continue;
    scheduler_cancel(&e->scheduler, r);
    if (r->options.rules) masks_drop(e->masks, r->options.rules);
    end_event(e, r);
    return;
  }
}

void engine_forget_rules(Engine *e) {
  if (e->masks) masks_drop(e->masks, NULL);
}

bool engine_is_idle(const Engine *e) { return !e->open.count; }

const Inference *engine_model(const Engine *e) { return &e->model; }

const SchedulerOptions *engine_options(const Engine *e) { return &e->scheduler.options; }

int64_t engine_flight_bytes(const Engine *e, int rank) {
  return FAULT(flights_are_free, flight_bytes(&e->shape, e->in_flight, rank), 0);
}

TokensFrom engine_tokens_from(const Engine *e) { return e->tokens_from; }
