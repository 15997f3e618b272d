// A tick: rank 0 plans it, every process hears what it is, all ranks compute it, rank 0 draws.
#include "infer/engine.h"
#include "base/clock.h"
#include "base/fault.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  TOKENS = 256,
  REQUESTS = 8,
  LEAST_PROMPT = 8,
  MOST_DRAWN = REQUEST_MOST_DRAFTS + 1,
  SIZES = 32,
  LONGEST_CONTEXT = 4096
};

// All that every process has to know of a tick, followed by its inputs, for all rows.
typedef struct Header { int32_t stop, tokens, sums, count; } Header; // tokens: of the graph; count: of the inputs

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
  int rows, local_rows, vocab, wanted, pages_of_request; // wanted: positions of a row's tick whose logits are wanted
  Header header;
  Vec(int32_t) block;          // the inputs of all rows, one after the other
  int32_t *input[INPUT_COUNT]; // where they are in the block; NULL: not read
  int width[INPUT_COUNT];      // of a row
  float *logits, *maximum, *sum; // (rows, wanted, vocab), (rows, wanted), on rank 0
  SampleScratch *scratch;        // (slots of rank 0's team)
  int slots;
  Vec(int) first;              // of each part: its first row of the logits
  Vec(Drawn) drawn;            // of each part
  Vec(Request *) open;
  Vec(EngineEvent) events;
  int read;                    // of them
  double seconds[SIZES];       // of a tick of 2^i tokens, as measured; 0: not yet
  bool ran[SIZES];             // such a tick; the first one finds its memory cold, and does not count
  EngineTimes times;
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
                          .speculate = r->infer.speculate,
                          .prefix = r->infer.prefix};
  if (!s->tokens) s->tokens = (int)most(context < TOKENS ? context : TOKENS, requests);
}

static int check_scheduler(const SchedulerOptions *s, const Recipe *r, const ModelConfig *config, Error *error) {
  int64_t of_request = (s->context + s->page - 1) / s->page, most_requests = INT32_MAX / (of_request * s->page);
  if (s->tokens < s->requests)
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
  size_t rows = (size_t)(e->rows * e->wanted);
  e->logits = xcalloc(rows * (size_t)e->vocab, sizeof *e->logits);
  e->maximum = xcalloc(rows, sizeof *e->maximum);
  e->sum = xcalloc(rows, sizeof *e->sum);
  const Rank *r = session_rank(e->model.session, 0);
  e->slots = team_slots(r->team);
  e->scratch = xcalloc((size_t)e->slots, sizeof *e->scratch);
  for (int i = 0; i < e->slots; i++) sample_scratch_create(&e->scratch[i], e->vocab);
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
  if (!code) fill_scheduler(r, o, source, &s);
  if (!code) code = check_scheduler(&s, r, &source->config, error);
  if (code) return code;
  fill_model(&s, r, &m);
  r->data.seq_len = s.tokens;
  code = inference_compile(&e->model, &m, launch, error);
  if (code) return code;
  s.pages = (int)(e->model.job->options.step.batch.length[DIM_CACHE] / s.page);
  e->rows = s.rows = (int)inference_rows(&e->model);
  e->local_rows = (int)inference_local_rows(&e->model);
  e->wanted = s.logits = (int)m.logits;
  e->pages_of_request = (s.context + s.page - 1) / s.page;
  scheduler_create(&e->scheduler, &s);
  return PLAIT_OK;
}

int engine_start(Engine *e, Error *error) {
  int code = inference_start(&e->model, e->launch, error);
  if (code) return code;
  e->failed = false;
  if (e->launch->rank == 0) create_rank_0(e);
  return PLAIT_OK;
}

int engine_open(Engine **engine, const ModelSource *source, const EngineOptions *options, Launch *launch,
                Error *error) {
  int code = launch_agree(launch, engine_compile(engine, source, options, launch, error), error);
  return code ? code : engine_start(*engine, error);
}

static void place_inputs(Engine *e, int tokens) {
  const int width[INPUT_COUNT] = {[INPUT_TOKENS] = tokens,
                                  [INPUT_POSITIONS] = tokens,
                                  [INPUT_CACHE_ROWS] = tokens,
                                  [INPUT_REQUESTS] = tokens,
                                  [INPUT_PAGES] = e->scheduler.options.requests * e->pages_of_request,
                                  [INPUT_INDEX] = e->wanted};
  int at = 0;
  memcpy(e->width, width, sizeof e->width);
  for (int id = 0; id < INPUT_COUNT; id++) at += e->rows * width[id];
  vec_reserve(&e->block, at);
  e->block.count = at;
  at = 0;
  for (int id = 0; id < INPUT_COUNT; id++) {
    e->input[id] = width[id] ? e->block.data + at : NULL;
    at += e->rows * width[id];
  }
  e->header.count = at;
}

// ---- the tick on a rank

static bool is_local(const Engine *e) { return session_is_local(e->model.session); }

static int tell(Rank *r, void *data, int64_t count, Error *error) {
  PlaitBuffer buffer = {data, data, (size_t)count};
  return plait_broadcast(r->world, &buffer, 1, PLAIT_INT32, 0, NULL, NULL) ? plait_comm_failure(r->world, error)
                                                                           : PLAIT_OK;
}

static int hear(Engine *e, Rank *r, Error *error) {
  if (is_local(e)) return PLAIT_OK;
  int code = tell(r, &e->header, sizeof e->header / sizeof(int32_t), error);
  if (code || e->header.stop) return code;
  if (r->rank) place_inputs(e, e->header.tokens);
  return tell(r, e->block.data, e->header.count, error);
}

static double logprob_of(const Engine *e, int row, int32_t id) {
  return -((double)e->maximum[row] + log((double)e->sum[row]) -
           (double)e->logits[(int64_t)row * e->vocab + id]); // as the loss
}

// The most likely ids in their order; ties go to the lowest.
static void find_top(const Engine *e, int row, int n, int32_t *ids, double *logprobs) {
  const float *logits = e->logits + (int64_t)row * e->vocab;
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
  const TickPart *part = &e->scheduler.tick.parts.data[index];
  Request *r = part->request;
  Drawn *d = &e->drawn.data[index];
  const RequestOptions *o = &r->options;
  int64_t have = r->ids.count;
  bool more = part->drawn > part->scores;
  score_part(e, part, e->first.data[index], d);
  for (int k = 0; more; k++) {
    int row = FAULT(logits_of_other_rows, e->first.data[index], 0) + part->scores + k;
    SampleText text = {r->ids.data, have + k, o->count};
    const uint8_t *allowed = o->rules ? o->rules->allowed(o->rules->context) : o->allowed;
    int32_t id = d->id[d->count++] =
        sample_token(e->logits + (int64_t)row * e->vocab, allowed, &o->sample, &text, &e->scratch[slot]);
    if (o->logprobs >= 0 && id >= 0) {
      d->logprob[k] = logprob_of(e, row, id);
      find_top(e, row, o->logprobs, d->top_ids + k * o->logprobs, d->top_logprobs + k * o->logprobs);
    }
    if (id >= 0) r->ids.data[have + k] = id;
    if (o->rules && FAULT(rules_see_first_draws, id >= 0, id >= 0 && !k)) o->rules->took(o->rules->context, id);
    more = scheduler_accepts(part, k + 1, id);
  }
}

static int compute_tick(Rank *r, void *engine, Error *error) {
  Engine *e = engine;
  int code = hear(e, r, error);
  if (code || e->header.stop) return code;
  StepInput of[INPUT_COUNT] = {{0}};
  for (int id = 0; id < INPUT_COUNT; id++)
    if (e->input[id]) of[id].base = e->input[id] + (int64_t)r->data_rank * e->local_rows * e->width[id];
  code = rank_run_tick(r, e->header.tokens, &(StepInputs){.of = of, .count = INPUT_COUNT}, error);
  if (!code) code = inference_output(r, KNOWN_LOGITS, DTYPE_F32, e->logits, error);
  if (!code && e->header.sums) code = inference_output(r, KNOWN_LOGITS_MAXIMUM, DTYPE_F32, e->maximum, error);
  if (!code && e->header.sums) code = inference_output(r, KNOWN_LOGITS_SUM, DTYPE_F32, e->sum, error);
  if (!code && r->rank == 0) {
    e->times.model_seconds += clock_seconds(); // drawing is not the model's
    team_each(r->team, e->scheduler.tick.parts.count, draw_part, e);
    e->times.model_seconds -= clock_seconds();
  }
  return code;
}

int engine_follow(Engine *e, Error *error) {
  int code = PLAIT_OK;
  while (!code && !e->header.stop) code = session_run(e->model.session, compute_tick, e, error);
  return code;
}

void engine_close(Engine *e) {
  if (!e) return;
  Error ignored = {0};
  if (!e->failed && e->launch->rank == 0 && !is_local(e)) {
    e->header.stop = 1;
    session_run(e->model.session, compute_tick, e, &ignored);
  }
  inference_close(&e->model);
  scheduler_destroy(&e->scheduler);
  for (int i = 0; i < e->drawn.count; i++) {
    free(e->drawn.data[i].top_ids);
    free(e->drawn.data[i].top_logprobs);
    free(e->drawn.data[i].score);
  }
  for (int i = 0; i < e->slots; i++) sample_scratch_destroy(&e->scratch[i]);
  free(e->scratch);
  free(e->logits);
  free(e->maximum);
  free(e->sum);
  vec_free(&e->block);
  vec_free(&e->first);
  vec_free(&e->drawn);
  vec_free(&e->open);
  vec_free(&e->events);
  free(e);
}

// ---- a tick on rank 0

// One part's tokens from place `at` of its row on.
static void fill_part(Engine *e, const TickPart *part, int at) {
  const Request *r = part->request;
  const SchedulerOptions *o = &e->scheduler.options;
  int64_t row = (int64_t)r->row * e->header.tokens + at;
  for (int i = 0; i < part->tokens; i++) {
    int64_t token = part->from + i, position = FAULT(chunks_begin_at_0, token - r->begin, i);
    int known = part->tokens - part->drafts;
    e->input[INPUT_TOKENS][row + i] = i < known ? r->ids.data[token] : part->draft[i - known];
    e->input[INPUT_POSITIONS][row + i] = (int32_t)position;
    e->input[INPUT_CACHE_ROWS][row + i] = r->pages.data[position / o->page] * o->page + (int32_t)(position % o->page);
    e->input[INPUT_REQUESTS][row + i] = r->slot;
  }
  int32_t *pages = e->input[INPUT_PAGES] + ((int64_t)r->row * o->requests + r->slot) * e->pages_of_request;
  memcpy(pages, r->pages.data, sizeof *pages * (size_t)r->pages.count);
}

static void fill_empty(Engine *e) {
  memset(e->block.data, 0, sizeof *e->block.data * (size_t)e->block.count);
  int64_t tokens = (int64_t)e->rows * e->header.tokens;
  memset(e->input[INPUT_CACHE_ROWS], -1, sizeof(int32_t) * (size_t)tokens);
  memset(e->input[INPUT_REQUESTS], -1, sizeof(int32_t) * (size_t)tokens);
  memset(e->input[INPUT_INDEX], -1, sizeof(int32_t) * (size_t)(e->rows * e->wanted));
}

static void prepare_drawn(Engine *e, int index, const TickPart *part) {
  while (e->drawn.count <= index) vec_push(&e->drawn, (Drawn){0});
  Drawn *d = &e->drawn.data[index];
  Request *r = part->request;
  d->count = 0;
  if (!part->drawn) return;
  vec_reserve(&r->ids, r->ids.count + MOST_DRAWN);
  if (r->options.logprobs < 0) return;
  e->header.sums = 1;
  size_t top = (size_t)((MOST_DRAWN + part->scores) * r->options.logprobs);
  d->score = xrealloc(d->score, sizeof *d->score * (size_t)(part->scores + 1));
  d->top_ids = xrealloc(d->top_ids, sizeof *d->top_ids * (top + 1));
  d->top_logprobs = xrealloc(d->top_logprobs, sizeof *d->top_logprobs * (top + 1));
}

static void fill_tick(Engine *e) {
  const Tick *tick = &e->scheduler.tick;
  int *at = xcalloc((size_t)e->rows, sizeof *at), *rows = xcalloc((size_t)e->rows, sizeof *rows);
  const Job *job = e->model.job;
  e->header = (Header){.tokens = (int32_t)job->list.data[job_find_tick(job, tick->tokens)]->tokens};
  place_inputs(e, e->header.tokens);
  fill_empty(e);
  e->first.count = 0;
  for (int i = 0; i < tick->parts.count; i++) {
    const TickPart *part = &tick->parts.data[i];
    int row = part->request->row;
    fill_part(e, part, at[row]);
    prepare_drawn(e, i, part);
    vec_push(&e->first, row * e->wanted + rows[row]);
    at[row] += part->tokens;
    for (int k = 0; k < part->drawn; k++)
      e->input[INPUT_INDEX][row * e->wanted + rows[row]++] = at[row] - part->drawn + k;
  }
  free(at);
  free(rows);
}

static int size_of(int64_t tokens) {
  int i = 0;
  while ((int64_t)1 << i < tokens) i++;
  return i;
}

// Seconds of a tick of a size: measured, else at most twice those of one of half the size.
static double seconds_of(const Engine *e, int size) {
  double by = 1;
  for (; size >= 0; size--, by *= 2)
    if (e->seconds[size] > 0) return by * e->seconds[size];
  return 0;
}

// Tokens of prompts beside requests that decode: such a tick may take 2.5 times as long as one without. They fill a
// graph, whose rows cost the same whether they are used or not.
static int prompt_tokens(const Engine *e) {
  const SchedulerOptions *o = &e->scheduler.options;
  int decode = (e->scheduler.running + o->rows - 1) / o->rows * (1 + o->speculate),
      size = size_of(decode + LEAST_PROMPT);
  double most = 2.5 * seconds_of(e, size_of(decode));
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
  scheduler_free(&e->scheduler, r);
}

static void take_tick(Engine *e) {
  Tick *tick = &e->scheduler.tick;
  for (int i = 0; i < tick->parts.count; i++) {
    TickPart *part = &tick->parts.data[i];
    const Drawn *d = &e->drawn.data[i];
    push_events(e, part, d);
    int known = part->tokens - part->drafts;
    e->times.prompt_tokens += part->drawn > part->scores ? known - 1 : known;
    e->times.guessed += part->drafts;
    e->times.accepted += d->count > 1 ? d->count - 1 : 0;
    scheduler_took(&e->scheduler, part, d->id, d->count);
    if (part->request->end) end_event(e, part->request);
  }
}

static void forget_read(Engine *e) {
  if (!e->read) return;
  e->events.count -= e->read;
  memmove(e->events.data, e->events.data + e->read, sizeof *e->events.data * (size_t)e->events.count);
  e->read = 0;
}

int engine_tick(Engine *e, Error *error) {
  CHECK(!e->failed);
  forget_read(e);
  double began = clock_seconds();
  if (!scheduler_plan(&e->scheduler, prompt_tokens(e))) return PLAIT_OK;
  fill_tick(e);
  double model = clock_seconds();
  int code = session_run(e->model.session, compute_tick, e, error);
  if (code) {
    e->failed = true;
    return code;
  }
  int size = size_of(e->header.tokens);
  double now = clock_seconds(), *seconds = &e->seconds[size];
  e->times.model_seconds += now - model;
  int64_t prompts = e->times.prompt_tokens, drawn = e->times.drawn_tokens;
  take_tick(e);
  if (e->ran[size]) *seconds = *seconds > 0 ? 0.8 * *seconds + 0.2 * (now - model) : now - model;
  e->ran[size] = true;
  e->times.ticks++;
  began = clock_seconds() - began;
  e->times.seconds += began;
  if (e->times.prompt_tokens > prompts) e->times.prompt_seconds += began;
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

int engine_submit(Engine *e, const RequestOptions *options, int64_t *number, Error *error) {
  int code = check_request(e, options, error);
  if (code) return code;
  Request *r = scheduler_submit(&e->scheduler, options);
  vec_push(&e->open, r);
  *number = r->number;
  return PLAIT_OK;
}

void engine_cancel(Engine *e, int64_t number) {
  for (int i = 0; i < e->open.count; i++) {
    Request *r = e->open.data[i];
    if (r->number != number) continue;
    scheduler_cancel(&e->scheduler, r);
    end_event(e, r);
    return;
  }
}

bool engine_is_idle(const Engine *e) { return !e->open.count; }

const Inference *engine_model(const Engine *e) { return &e->model; }

const SchedulerOptions *engine_options(const Engine *e) { return &e->scheduler.options; }
