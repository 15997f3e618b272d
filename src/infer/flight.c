// Messages of a tick: its description from rank 0, and logits to rank 0.
#include "infer/flight.h"
#include "base/fault.h"
#include "runtime/gather.h"
#include "runtime/state_tensors.h"
#include <stdlib.h>
#include <string.h>

enum { PARTS = 2 }; // of a description: header and inputs

void flight_create(TickFlight *f, const FlightShape *shape) {
  size_t ranks = (size_t)shape->ranks;
  *f = (TickFlight){.shape = shape};
  f->told = xcalloc(PARTS * ranks, sizeof *f->told);
  f->message = xcalloc(ranks, sizeof *f->message);
  f->sent = xcalloc(ranks, sizeof *f->sent);
}

void flight_destroy(TickFlight *f) {
  for (int i = 0; f->message && i < f->shape->ranks; i++) free(f->message[i]);
  free(f->message);
  free(f->told);
  free(f->sent);
  vec_free(&f->block);
  vec_free(&f->tick.parts);
  vec_free(&f->first);
  *f = (TickFlight){0};
}

// ---- the description

static void place_inputs(TickFlight *f, int tokens) {
  const FlightShape *s = f->shape;
  const int width[INPUT_COUNT] = {[INPUT_TOKENS] = tokens,
                                  [INPUT_POSITIONS] = tokens,
                                  [INPUT_CACHE_ROWS] = tokens,
                                  [INPUT_REQUESTS] = tokens,
                                  [INPUT_PAGES] = s->requests * s->pages,
                                  [INPUT_INDEX] = s->wanted};
  int at = 0;
  memcpy(f->width, width, sizeof f->width);
  for (int id = 0; id < INPUT_COUNT; id++) at += s->rows * width[id];
  vec_reserve(&f->block, at);
  f->block.count = at;
  at = 0;
  for (int id = 0; id < INPUT_COUNT; id++) {
    f->input[id] = width[id] ? f->block.data + at : NULL;
    at += s->rows * width[id];
  }
  f->header.tokens = tokens;
  f->header.count = at;
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
}

// The description of the flight's last tick may still be on its way. A failure is the next message's, too.
static void wait_told(TickFlight *f) {
  for (int i = 0; i < PARTS * f->shape->ranks; i++) plait_event_wait(f->told[i]);
}

void flight_fill(TickFlight *f, const SchedulerOptions *o, int tokens) {
  const int wanted = f->shape->wanted;
  int *at = xcalloc((size_t)o->rows, sizeof *at), *rows = xcalloc((size_t)o->rows, sizeof *rows);
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
    for (int k = 0; k < part->drawn; k++)
      f->input[INPUT_INDEX][row * wanted + rows[row]++] = at[row] - part->drawn + k;
  }
  free(at);
  free(rows);
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

static const KnownVariable outputs[] = {KNOWN_LOGITS, KNOWN_LOGITS_MAXIMUM, KNOWN_LOGITS_SUM};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

// A rank's boxes of all outputs, in one list to be freed.
static CheckpointTensor *boxes_of(Rank *r, int *count) {
  CheckpointTensor *all = NULL;
  *count = 0;
  for (int i = 0; i < OUTPUTS; i++) {
    CheckpointTensor *some;
    int n = state_tensor(r->state, r->state->program->graph->known[outputs[i]], &some);
    all = xrealloc(all, sizeof *all * (size_t)(*count + n + 1));
    if (n) memcpy(all + *count, some, sizeof *all * (size_t)n);
    *count += n;
    free(some);
  }
  return all;
}

static char *pack(Rank *r, int64_t *bytes) {
  int count;
  CheckpointTensor *boxes = boxes_of(r, &count);
  char *message = gather_pack(boxes, count, bytes);
  free(boxes);
  return message;
}

int flight_settle(Rank *r, void *flight, Error *error) {
  const TickFlight *f = flight;
  return plait_event_wait(f->sent[r->rank]) ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

// The next tick writes over the logits where they are. Rank 0's own stay there if they are taken before.
static int send_logits(TickFlight *f, Rank *r, Error *error) {
  int64_t bytes;
  if (!r->rank && !f->shape->overlap) return PLAIT_OK;
  int code = flight_settle(r, f, error);
  if (code) return code;
  free(f->message[r->rank]);
  char *message = f->message[r->rank] = pack(r, &bytes);
  if (!bytes || !r->rank) return PLAIT_OK;
  const PlaitBuffer buffer = {message, NULL, (size_t)bytes};
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

int flight_measure(Rank *r, void *measure, Error *error) {
  const FlightMeasure *m = measure;
  FlightResults *all = m->results;
  size_t rows = (size_t)(m->shape->rows * m->shape->wanted), ranks = (size_t)m->shape->ranks;
  int64_t bytes;
  free(pack(r, &bytes));
  if (!r->rank) {
    all->bytes = xcalloc(ranks, sizeof *all->bytes);
    all->received = xcalloc(ranks, sizeof *all->received);
    all->logits = xcalloc(rows * (size_t)m->shape->vocab, sizeof *all->logits);
    all->maximum = xcalloc(rows, sizeof *all->maximum);
    all->sum = xcalloc(rows, sizeof *all->sum);
  }
  const PlaitBuffer buffer = {&bytes, r->rank ? NULL : all->bytes, 1};
  int code = plait_gather(r->world, &buffer, 1, PLAIT_INT64, 0, NULL, NULL);
  if (code) return plait_comm_failure(r->world, error);
  for (int i = 1; !r->rank && i < m->shape->ranks; i++)
    if (all->bytes[i]) all->received[i] = xcalloc((size_t)all->bytes[i], 1);
  return PLAIT_OK;
}

static void take_boxes(const Rank *r, const CheckpointTensor *box, int count, FlightResults *all) {
  const Graph *g = r->state->program->graph;
  float *const to[OUTPUTS] = {all->logits, all->maximum, all->sum};
  for (int i = 0; i < count; i++)
    for (int k = 0; k < OUTPUTS; k++)
      if (box[i].primary && !strcmp(box[i].name, g->variable.data[g->known[outputs[k]]].name))
        checkpoint_tensor_to_whole(&box[i], to[k], DTYPE_F32);
}

int flight_receive(TickFlight *f, Rank *r, FlightResults *all, Error *error) {
  Gathered boxes = {0};
  int own = 0, code = PLAIT_OK;
  CheckpointTensor *mine = f->shape->overlap ? NULL : boxes_of(r, &own);
  if (f->message[0]) gather_unpack(f->message[0], &boxes);
  for (int i = 1; i < f->shape->ranks && !code; i++) {
    const PlaitBuffer buffer = {NULL, all->received[i], (size_t)all->bytes[i]};
    if (!all->bytes[i]) continue;
    code = plait_recv(r->world, &buffer, 1, PLAIT_UINT8, i, NULL, NULL);
    if (!code) gather_unpack(all->received[i], &boxes);
  }
  if (!code) take_boxes(r, mine, own, all);
  if (!code) take_boxes(r, boxes.boxes, boxes.count, all);
  free(mine);
  gather_free(&boxes);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

void flight_results_free(FlightResults *all, const FlightShape *shape) {
  for (int i = 0; all->received && i < shape->ranks; i++) free(all->received[i]);
  free(all->received);
  free(all->bytes);
  free(all->logits);
  free(all->maximum);
  free(all->sum);
  *all = (FlightResults){0};
}
