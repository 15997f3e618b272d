// Messages of a tick: its description from rank 0, and logits to rank 0.
#include "infer/flight.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

enum { PARTS = 2 }; // of a description: header and inputs

// Numbers of a description: width (INPUT_COUNT) of a row for each input, then what is wanted of each row of logits.
static int describe(const FlightShape *s, int tokens, int *width) {
  const int all[INPUT_COUNT] = {[INPUT_TOKENS] = tokens,
                                [INPUT_POSITIONS] = tokens,
                                [INPUT_CACHE_ROWS] = tokens,
                                [INPUT_REQUESTS] = tokens,
                                [INPUT_PAGES] = s->requests * s->pages,
                                [INPUT_INDEX] = s->wanted};
  int count = s->rows * s->wanted * (int)(sizeof(RowWant) / sizeof(int32_t));
  memcpy(width, all, sizeof all);
  for (int id = 0; id < INPUT_COUNT; id++) count += s->rows * width[id];
  return count;
}

int64_t flight_bytes(const FlightShape *s, int flights, int rank) {
  int width[INPUT_COUNT];
  int64_t described = (int64_t)sizeof(int32_t) * describe(s, s->tokens, width), all = logits_map_bytes(s->logits, rank);
  if (!rank || s->processes) all += flights * described;
  if (rank || s->overlap) all += flights * logits_bytes(s->logits, rank, NULL);
  for (int i = 1; !rank && i < s->ranks; i++) all += logits_bytes(s->logits, i, NULL);
  return all;
}

void flight_create(TickFlight *f, const FlightShape *shape) {
  size_t ranks = (size_t)shape->ranks;
  int width[INPUT_COUNT];
  *f = (TickFlight){.shape = shape};
  vec_reserve(&f->block, describe(shape, shape->tokens, width)); // once, for the largest
  f->told = xcalloc(PARTS * ranks, sizeof *f->told);
  f->message = xcalloc(ranks, sizeof *f->message);
  f->sent = xcalloc(ranks, sizeof *f->sent);
  f->used = xcalloc(2 * (size_t)shape->rows, sizeof *f->used);
}

void flight_destroy(TickFlight *f) {
  for (int i = 0; f->message && i < f->shape->ranks; i++) free(f->message[i]);
  free(f->message);
  free(f->told);
  free(f->sent);
  vec_free(&f->block);
  vec_free(&f->tick.parts);
  vec_free(&f->first);
  free(f->used);
  *f = (TickFlight){0};
}

// ---- the description

static void place_inputs(TickFlight *f, int tokens) {
  const FlightShape *s = f->shape;
  int at = 0;
  f->block.count = describe(s, tokens, f->width);
  CHECK(f->block.count <= f->block.capacity);
  for (int id = 0; id < INPUT_COUNT; id++) {
    f->input[id] = f->width[id] ? f->block.data + at : NULL;
    at += s->rows * f->width[id];
  }
  f->want = (RowWant *)(void *)(f->block.data + at);
  f->header.tokens = tokens;
  f->header.count = f->block.count;
}

// One part's tokens from place `at` of its row on.
static void fill_part(TickFlight *f, const SchedulerOptions *o, const TickPart *part, int at) {
  const Request *r = part->request;
  int64_t row = (int64_t)r->row * f->header.tokens + at;
  for (int i = 0; i < part->tokens; i++) {
    int64_t token = part->from + i, position = FAULT(chunks_begin_at_0, token - r->begin, i);
    int known = part->tokens - part->drafts;
    f->input[INPUT_TOKENS][row + i] = i < known ? r->ids.data[token] : part->draft[i - known];
    f->input[INPUT_POSITIONS][row + i] = (int32_t)position;
    f->input[INPUT_CACHE_ROWS][row + i] = r->pages.data[position / o->page] * o->page + (int32_t)(position % o->page);
    f->input[INPUT_REQUESTS][row + i] = r->slot;
  }
  int32_t *pages = f->input[INPUT_PAGES] + ((int64_t)r->row * o->requests + r->slot) * f->shape->pages;
  memcpy(pages, r->pages.data, sizeof *pages * (size_t)r->pages.count);
}

static void fill_empty(TickFlight *f) {
  const FlightShape *s = f->shape;
  memset(f->block.data, 0, sizeof *f->block.data * (size_t)f->block.count);
  int64_t tokens = (int64_t)s->rows * f->header.tokens;
  memset(f->input[INPUT_CACHE_ROWS], -1, sizeof(int32_t) * (size_t)tokens);
  memset(f->input[INPUT_REQUESTS], -1, sizeof(int32_t) * (size_t)tokens);
  memset(f->input[INPUT_INDEX], -1, sizeof(int32_t) * (size_t)(s->rows * s->wanted));
  for (int i = 0; i < s->rows * s->wanted; i++) f->want[i] = FAULT(unused_rows_travel, ROW_UNUSED, ROW_WHOLE);
}

// The description of the flight's last tick may still be on its way. A failure is the next message's, too.
static void wait_told(TickFlight *f) {
  for (int i = 0; i < PARTS * f->shape->ranks; i++) plait_event_wait(f->told[i]);
}

// Where a request takes the most likely token, and tells no others, one candidate of each rank is enough.
static RowWant want_of(const TickPart *part, int k) {
  const Request *r = part->request;
  bool best = sample_takes_best(&r->options.sample) && r->may_draw.end && r->options.logprobs <= 0 && k >= part->scores;
  return FAULT(greedy_rows_travel, best, false) ? r->may_draw : ROW_WHOLE;
}

void flight_fill(TickFlight *f, const SchedulerOptions *o, int tokens) {
  const int wanted = f->shape->wanted;
  int *at = f->used, *rows = at + o->rows;
  memset(at, 0, 2 * sizeof *at * (size_t)o->rows);
  wait_told(f);
  place_inputs(f, tokens);
  fill_empty(f);
  f->first.count = 0;
  f->prompt_tokens = 0;
  for (int i = 0; i < f->tick.parts.count; i++) {
    const TickPart *part = &f->tick.parts.data[i];
    int row = part->request->row, known = part->tokens - part->drafts;
    fill_part(f, o, part, at[row]);
    f->prompt_tokens += part->drawn > part->scores ? known - 1 : known;
    vec_push(&f->first, row * wanted + rows[row]);
    at[row] += part->tokens;
    for (int k = 0; k < part->drawn; k++) {
      int of = row * wanted + rows[row]++;
      f->input[INPUT_INDEX][of] = at[row] - part->drawn + k;
      f->want[of] = want_of(part, k);
    }
  }
}

void flight_stop(TickFlight *f) {
  wait_told(f);
  f->header.stop = 1;
}

static int tell(TickFlight *f, Rank *r, Error *error) {
  const PlaitBuffer header = {&f->header, NULL, sizeof f->header / sizeof(int32_t)},
                    block = {f->block.data, NULL, (size_t)f->header.count};
  int code = PLAIT_OK;
  for (int to = 1; to < f->shape->ranks && !code; to++) {
    code = plait_send(r->world, &header, 1, PLAIT_INT32, to, NULL, &f->told[PARTS * to]);
    if (!code && !f->header.stop)
      code = plait_send(r->world, &block, 1, PLAIT_INT32, to, NULL, &f->told[PARTS * to + 1]);
  }
  if (!code && f->header.stop) wait_told(f);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

static int hear(TickFlight *f, Rank *r, Error *error) {
  if (!f->shape->processes) return PLAIT_OK;
  if (!r->rank) return tell(f, r, error);
  PlaitBuffer buffer = {NULL, &f->header, sizeof f->header / sizeof(int32_t)};
  int code = plait_recv(r->world, &buffer, 1, PLAIT_INT32, 0, NULL, NULL);
  if (code) return plait_comm_failure(r->world, error);
  if (f->header.stop) return PLAIT_OK;
  place_inputs(f, f->header.tokens);
  buffer = (PlaitBuffer){NULL, f->block.data, (size_t)f->header.count};
  code = plait_recv(r->world, &buffer, 1, PLAIT_INT32, 0, NULL, NULL);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

// ---- the logits

int flight_settle(Rank *r, void *flight, Error *error) {
  const TickFlight *f = flight;
  return plait_event_wait(f->sent[r->rank]) ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

// The next tick writes over the logits where they are. Rank 0's own stay there if they are taken before.
static int send_logits(TickFlight *f, Rank *r, Error *error) {
  LogitsMap *map = f->shape->logits;
  char **message = &f->message[r->rank];
  if (!r->rank && !f->shape->overlap) return PLAIT_OK;
  int code = flight_settle(r, f, error);
  int64_t bytes = logits_bytes(map, r->rank, f->want);
  if (code || !bytes) return code;
  if (!*message) *message = xcalloc((size_t)logits_bytes(map, r->rank, NULL), 1);
  logits_pack(map, r->state, f->want, *message);
  if (!r->rank) return PLAIT_OK;
  const PlaitBuffer buffer = {*message, NULL, (size_t)bytes};
  code = plait_send(r->world, &buffer, 1, PLAIT_UINT8, 0, NULL, &f->sent[r->rank]);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

int flight_compute(Rank *r, void *flight, Error *error) {
  TickFlight *f = flight;
  int code = hear(f, r, error);
  if (code || f->header.stop) return code;
  StepInput of[INPUT_COUNT] = {{0}};
  for (int id = 0; id < INPUT_COUNT; id++)
    if (f->input[id]) of[id].base = f->input[id] + (int64_t)r->data_rank * f->shape->local_rows * f->width[id];
  code = rank_run_tick(r, f->header.tokens, &(StepInputs){.of = of, .count = INPUT_COUNT}, error);
  return code ? code : send_logits(f, r, error);
}

void flight_results_create(FlightResults *all, const FlightShape *shape) {
  *all = (FlightResults){.received = xcalloc((size_t)shape->ranks, sizeof *all->received)};
  logits_rows_create(&all->rows, shape->logits);
}

static int receive_from(TickFlight *f, Rank *r, int rank, int64_t bytes, FlightResults *all, Error *error) {
  LogitsMap *map = f->shape->logits;
  char **received = &all->received[rank];
  if (!*received) *received = xcalloc((size_t)logits_bytes(map, rank, NULL), 1);
  const PlaitBuffer buffer = {NULL, *received, (size_t)bytes};
  if (plait_recv(r->world, &buffer, 1, PLAIT_UINT8, rank, NULL, NULL)) return plait_comm_failure(r->world, error);
  all->bytes += bytes;
  logits_unpack(&all->rows, map, rank, f->want, *received);
  return PLAIT_OK;
}

int flight_receive(TickFlight *f, Rank *r, FlightResults *all, Error *error) {
  LogitsMap *map = f->shape->logits;
  int code = PLAIT_OK;
  logits_begin(&all->rows, map);
  if (!f->shape->overlap) logits_own(&all->rows, map, r->state, f->want);
  else if (f->message[0]) logits_unpack(&all->rows, map, 0, f->want, f->message[0]);
  for (int i = 1; i < f->shape->ranks && !code; i++) {
    int64_t bytes = logits_bytes(map, i, f->want);
    if (bytes) code = receive_from(f, r, i, bytes, all, error);
  }
  return code;
}

void flight_results_free(FlightResults *all, const FlightShape *shape) {
  for (int i = 0; all->received && i < shape->ranks; i++) free(all->received[i]);
  free(all->received);
  logits_rows_destroy(&all->rows);
  *all = (FlightResults){0};
}
