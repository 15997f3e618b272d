// The loader's thread, its slots and its queue.
#include "data/loader.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum SlotState { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD } SlotState;

// A batch must be the first member: loader_release gets back from it to its slot.
typedef struct Slot {
  Batch batch;
  Loader *loader;
  SlotState state;
  int late;      // code of filling the late inputs; 1: not done yet
  int64_t first; // sample of the step
} Slot;

struct Loader {
  LoaderConfig config;
  Sampler sampler;     // of text
  SampleSource source; // the thread's alone while it runs
  BatchInput *input;   // (inputs)
  int inputs;
  bool any_late;
  int64_t bytes; // of a batch
  void **to;     // (inputs) scratch
  Slot *slots;     // (slot_count) = prefetch_steps + the one in use
  int slot_count;
  int64_t *sample; // (samples) the same in every step
  int64_t *windows; // (datasets) that an evaluation reads
  pthread_t thread;
  pthread_mutex_t mutex; // guards all below and the slots' states
  pthread_cond_t filled, freed;
  int stop;
  int end; // 0 while there are steps to fill, 1 after an evaluation's last step, else the code of `error`
  Error error;     // of filling, also of late inputs
  int64_t fill_step, next_step; // to be filled next, to give out next
  LoaderStats stats;
};

static int64_t rank_samples(const LoaderConfig *c) {
  return shares_rows_before(c->shares, c->shares->microbatches, c->data_rank, 1);
}

// Room for the most that the rank may ever have.
static int64_t most_samples(const LoaderConfig *c) { return c->shares->weighed ? c->shares->most : rank_samples(c); }

static int length_of(const LoaderConfig *c) { return window_part_length(&c->part, c->seq_len); }

static int check_config(const LoaderConfig *c, int64_t first_step, Error *error) {
  CHECK(first_step >= 0 && c->shares && c->data_rank >= 0 && c->data_rank < c->shares->ranks);
  if (!c->samples && c->seq_len < 1)
    return error_set(error, PLAIT_BAD_INPUT, "data.seq_len is %d, it must be at least 1", c->seq_len);
  if (c->prefetch_steps < 1)
    return error_set(error, PLAIT_BAD_INPUT, "the loader's prefetch is %d steps, it must be at least 1",
                     c->prefetch_steps);
  if (!c->samples && most_samples(c) > INT_MAX / length_of(c))
    return error_set(error, PLAIT_BAD_INPUT,
                     "batch.global %lld is too large: a rank's share of a step exceeds %d tokens",
                     (long long)c->shares->global, INT_MAX);
  return PLAIT_OK;
}

static int64_t sum_up_to(const Loader *l, int64_t most) {
  int64_t sum = 0;
  for (int k = 0; k < l->source.datasets; k++)
    sum += l->source.windows[k] < most ? l->source.windows[k] : most;
  return sum;
}

// Where there is a limit, an evaluation reads `most` windows of each dataset, or all that it has, and one more of the
// first ones.
static void share_limit(Loader *l) {
  int64_t limit = l->config.limit, most = INT64_MAX, more = 0;
  if (limit && FAULT(evaluation_has_no_limit, limit < l->source.total, 0)) {
    int64_t high = limit + 1; // sum_up_to(most) <= limit < sum_up_to(high)
    for (most = 0; high - most > 1;) {
      int64_t middle = most + (high - most) / 2;
      if (sum_up_to(l, middle) <= limit) most = middle;
      else high = middle;
    }
    more = limit - sum_up_to(l, most);
  }
  l->windows = xcalloc((size_t)l->source.datasets, sizeof *l->windows);
  for (int k = 0; k < l->source.datasets; k++) {
    bool longer = l->source.windows[k] > most;
    l->windows[k] = longer ? most + (more > 0) : l->source.windows[k];
    more -= longer;
  }
}

static int64_t steps_of(const Loader *l, int dataset) {
  int64_t global = l->config.shares->global;
  return l->windows[dataset] / global + (l->windows[dataset] % global > 0);
}

// Steps of an evaluation before its round `round`, in which every dataset that is left takes a turn.
static int64_t steps_before(const Loader *l, int64_t round) {
  int64_t steps = 0;
  for (int k = 0; k < l->source.datasets; k++) steps += steps_of(l, k) < round ? steps_of(l, k) : round;
  return steps;
}

// Finds the dataset that an evaluation's step reads, and which of its batches that is (from 0); false: the evaluation
// has no such step.
static bool find_turn(const Loader *l, int64_t step, int *dataset, int64_t *turn) {
  int64_t low = 0, high = step + 1; // steps_before(low) <= step < steps_before(high)
  if (steps_before(l, high) <= step) return false;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (steps_before(l, middle) <= step) low = middle;
    else high = middle;
  }
  int64_t nth = step - steps_before(l, low);
  for (*dataset = 0; steps_of(l, *dataset) <= low || nth-- > 0;) ++*dataset;
  *turn = FAULT(turn_is_the_first, low, 0);
  return true;
}

// Finds which samples a step has. PLAIT_OK, or 1 when the evaluation has no such step: all ranks agree on it.
static int find_step(const Loader *loader, Slot *slot, int64_t step) {
  int64_t global = loader->config.shares->global, turn = step;
  Batch *batch = &slot->batch;
  if (step > (INT64_MAX - global) / global) return 1;
  batch->step = step;
  batch->source = -1;
  if (loader->config.evaluation && !find_turn(loader, step, &batch->source, &turn)) return 1;
  slot->first = turn * global;
  for (int k = 0; k < batch->source; k++) slot->first += loader->source.windows[k];
  return PLAIT_OK;
}

// An evaluation reads no sample of a dataset from here on.
static int64_t end_of(const Loader *loader, int dataset) {
  if (dataset < 0) return loader->source.total;
  int64_t end = loader->windows[dataset];
  for (int k = 0; k < dataset; k++) end += loader->source.windows[k];
  return end;
}

// Fills the inputs of a step that are filled before it, or late. PLAIT_OK or an error.
static int fill(Loader *l, const Slot *slot, InputFilled filled, Error *error) {
  const Batch *batch = &slot->batch;
  int64_t end = end_of(l, batch->source);
  for (int s = 0; s < batch->samples; s++) {
    int64_t i = slot->first + batch->sample[s];
    for (int id = 0; id < l->inputs; id++) {
      const BatchInput *in = &l->input[id];
      l->to[id] = in->row && in->filled == filled ? batch->memory + in->offset + s * in->row : NULL;
    }
    int code = l->source.read(l->source.self, i < end ? i : l->source.total, l->to, error);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

static Slot *find_slot(Loader *loader, SlotState state, int64_t step) {
  for (int i = 0; i < loader->slot_count; i++)
    if (loader->slots[i].state == state && (step < 0 || loader->slots[i].batch.step == step)) return &loader->slots[i];
  return NULL;
}

// While whoever has the batch runs its forward pass; with the mutex.
static void fill_late(Loader *loader, Slot *slot) {
  Error error = {0};
  pthread_mutex_unlock(&loader->mutex);
  int code = fill(loader, slot, FILLED_LATE, &error);
  pthread_mutex_lock(&loader->mutex);
  if (code < 0) loader->error = error;
  slot->late = code;
  pthread_cond_broadcast(&loader->filled);
}

static void *run(void *argument) {
  Loader *loader = argument;
  pthread_mutex_lock(&loader->mutex);
  for (;;) {
    Slot *slot = NULL;
    while (!loader->stop && (loader->end || !(slot = find_slot(loader, SLOT_FREE, -1))))
      pthread_cond_wait(&loader->freed, &loader->mutex);
    if (loader->stop) break;
    int64_t step = loader->fill_step++;
    slot->state = SLOT_FILLING;
    slot->late = loader->any_late;
    pthread_mutex_unlock(&loader->mutex);
    Error error = {0};
    double start = clock_seconds();
    int code = find_step(loader, slot, step);
    if (!code) code = fill(loader, slot, FILLED_BEFORE, &error);
    double took = clock_seconds() - start;
    pthread_mutex_lock(&loader->mutex);
    slot->state = code == PLAIT_OK ? SLOT_READY : SLOT_FREE;
    loader->end = code;
    if (code < 0) loader->error = error;
    loader->stats.filled_seconds += took;
    loader->stats.ready += code == PLAIT_OK;
    pthread_cond_broadcast(&loader->filled);
    if (code) slot->late = PLAIT_OK;
    else if (slot->late) fill_late(loader, slot);
  }
  pthread_mutex_unlock(&loader->mutex);
  return NULL;
}

// Which rows of a step are this rank's.
static void find_samples(Loader *loader) {
  const LoaderConfig *c = &loader->config;
  int n = 0, rank = FAULT(data_ranks_read_the_same, c->data_rank, 0);
  for (int m = 0; m < c->shares->microbatches; m++)
    for (int64_t j = 0; j < shares_rows(c->shares, m, c->data_rank, 1); j++)
      loader->sample[n++] = shares_first(c->shares, m, rank) + FAULT(share_is_off_by_one, j, j + (rank > 0));
  for (int i = 0; i < loader->slot_count; i++) loader->slots[i].batch.samples = n;
}

static void add_input(Loader *l, int id, int64_t row, InputFilled filled) {
  enum { ALIGNMENT = 64 };
  if (!row) return;
  l->input[id] = (BatchInput){FAULT(batch_inputs_overlap, l->bytes, 0), row, filled};
  l->bytes += (most_samples(&l->config) * row + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  l->any_late |= filled == FILLED_LATE;
}

// What a batch has of each input: of the table what the source fills, and what the graph has of its own.
static int lay_out(Loader *l, const LoaderConfig *c, Error *error) {
  l->inputs = INPUT_COUNT + c->own_count;
  l->input = xcalloc((size_t)l->inputs, sizeof *l->input);
  l->to = xcalloc((size_t)l->inputs, sizeof *l->to);
  for (int id = 0; id < INPUT_COUNT; id++)
    if (input_def(id)->from == FROM_LOADER)
      add_input(l, id, l->source.row(l->source.self, id), input_def(id)->filled);
  for (int k = 0; k < c->own_count; k++) {
    int id = INPUT_COUNT + k;
    int64_t row = c->own[k].row ? l->source.row(l->source.self, id) : 0;
    if (row != c->own[k].row)
      return error_set(error, PLAIT_FAILED, "the graph reads %lld bytes of a sample's %s, and the data has %lld",
                       (long long)c->own[k].row, c->own[k].name, (long long)row);
    add_input(l, id, c->own[k].row, c->own[k].filled);
  }
  return PLAIT_OK;
}

static void allocate_slots(Loader *loader) {
  const LoaderConfig *c = &loader->config;
  size_t bytes = (size_t)loader->bytes + !loader->bytes; // a rank without any sample has memory all the same
  loader->sample = xcalloc((size_t)most_samples(c) + 1, sizeof *loader->sample);
  loader->slot_count = c->prefetch_steps + 1;
  loader->slots = xcalloc((size_t)loader->slot_count, sizeof *loader->slots);
  for (int i = 0; i < loader->slot_count; i++) {
    Slot *slot = &loader->slots[i];
    slot->loader = loader;
    slot->batch.input = loader->input;
    slot->batch.inputs = loader->inputs;
    slot->batch.sample = loader->sample;
    slot->batch.memory = memset(xcalloc(bytes, 1), 0xff, bytes); // written, so that the pages are there
  }
  find_samples(loader);
}

static void destroy(Loader *loader) {
  for (int i = 0; i < loader->slot_count; i++) free(loader->slots[i].batch.memory);
  free(loader->slots);
  free(loader->sample);
  free(loader->windows);
  free(loader->input);
  free(loader->to);
  if (loader->source.close) loader->source.close(loader->source.self);
  pthread_cond_destroy(&loader->filled);
  pthread_cond_destroy(&loader->freed);
  pthread_mutex_destroy(&loader->mutex);
  free(loader);
}

SamplerConfig loader_sampler(const LoaderConfig *c) {
  return (SamplerConfig){c->sources,    c->source_count, c->seq_len, c->document_mask,
                         c->vocab_size, c->evaluation,   c->seed,    c->split,
                         c->part};
}

int loader_open(const LoaderConfig *config, int64_t first_step, Loader **result, Error *error) {
  *result = NULL;
  int code = check_config(config, first_step, error);
  if (code != PLAIT_OK) return code;
  Loader *loader = xcalloc(1, sizeof *loader);
  loader->config = *config;
  loader->config.sources = NULL; // not ours to keep, as are the others
  loader->config.own = NULL;
  loader->fill_step = loader->next_step = FAULT(data_restarts_when_resumed, first_step, 0);
  pthread_mutex_init(&loader->mutex, NULL);
  pthread_cond_init(&loader->filled, NULL);
  pthread_cond_init(&loader->freed, NULL);
  SamplerConfig sampler = loader_sampler(config);
  if (config->samples) loader->source = *config->samples;
  else if (!(code = sampler_open(&loader->sampler, &sampler, error))) loader->source = sampler_source(&loader->sampler);
  if (code == PLAIT_OK) code = lay_out(loader, config, error);
  if (code == PLAIT_OK) {
    share_limit(loader);
    allocate_slots(loader);
    code = thread_start(&loader->thread, run, loader, error, "the loader's thread");
  }
  if (code == PLAIT_OK) *result = loader;
  else destroy(loader);
  return code;
}

void loader_close(Loader *loader) {
  if (!loader) return;
  pthread_mutex_lock(&loader->mutex);
  loader->stop = 1;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->mutex);
  pthread_join(loader->thread, NULL);
  destroy(loader);
}

static int input_rows_of(int id) { return input_def(id)->from == FROM_TARGETS ? INPUT_TARGETS : id; }

int64_t batch_row(const Batch *b, int id) {
  int of = input_rows_of(id);
  return of < b->inputs ? b->input[of].row : 0;
}

void *batch_input(const Batch *b, int id) {
  return batch_row(b, id) ? b->memory + b->input[input_rows_of(id)].offset : NULL;
}

int batch_wait_late(Batch *batch, Error *error) {
  Slot *slot = (Slot *)batch;
  Loader *loader = slot->loader;
  pthread_mutex_lock(&loader->mutex);
  loader->stats.late += slot->late > 0;
  while (slot->late > 0) pthread_cond_wait(&loader->filled, &loader->mutex);
  int code = slot->late;
  if (code) error_set(error, code, "%s", loader->error.message);
  pthread_mutex_unlock(&loader->mutex);
  return code;
}

static int held(const Loader *loader) {
  int count = 0;
  for (int i = 0; i < loader->slot_count; i++) count += loader->slots[i].state == SLOT_HELD;
  return count;
}

int loader_next(Loader *loader, Batch **batch, double *waited_seconds, Error *error) {
  *batch = NULL;
  double waited = 0;
  pthread_mutex_lock(&loader->mutex);
  CHECK(held(loader) < loader->slot_count, "all %d batches are in use, release one first", loader->slot_count);
  Slot *slot = find_slot(loader, SLOT_READY, loader->next_step);
  if (!slot && !loader->end) {
    double start = clock_seconds();
    while (!(slot = find_slot(loader, SLOT_READY, loader->next_step)) && !loader->end)
      pthread_cond_wait(&loader->filled, &loader->mutex);
    waited = clock_seconds() - start;
    loader->stats.stalls += slot != NULL;
    loader->stats.waited_seconds += waited;
  }
  int code = PLAIT_OK;
  if (slot) {
    slot->state = SLOT_HELD;
    loader->stats.ready--;
    loader->stats.steps++;
    loader->next_step++;
    *batch = &slot->batch;
  } else {
    code = loader->end;
    if (code < 0) error_set(error, code, "%s", loader->error.message);
  }
  pthread_mutex_unlock(&loader->mutex);
  if (waited_seconds) *waited_seconds = waited;
  return code;
}

void loader_release(Loader *loader, Batch *batch) {
  Slot *slot = (Slot *)batch;
  pthread_mutex_lock(&loader->mutex);
  CHECK(slot->state == SLOT_HELD);
  while (slot->late > 0) pthread_cond_wait(&loader->filled, &loader->mutex);
  slot->state = SLOT_FREE;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->mutex);
}

// Drops what was read ahead; with the mutex.
static void drop(Loader *loader) {
  CHECK(!held(loader), "a batch is in use");
  for (int i = 0; i < loader->slot_count; i++)
    while (loader->slots[i].state == SLOT_FILLING || loader->slots[i].late > 0)
      pthread_cond_wait(&loader->filled, &loader->mutex);
  for (int i = 0; i < loader->slot_count; i++) loader->slots[i].state = SLOT_FREE;
  loader->stats.ready = 0;
  loader->end = PLAIT_OK;
}

void loader_rewind(Loader *loader) {
  pthread_mutex_lock(&loader->mutex);
  drop(loader);
  loader->fill_step = loader->next_step = 0;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->mutex);
}

void loader_take_shares(Loader *loader) {
  pthread_mutex_lock(&loader->mutex);
  drop(loader);
  find_samples(loader);
  loader->fill_step = loader->next_step;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->mutex);
}

int64_t loader_windows(const Loader *l, int64_t steps) {
  int64_t global = l->config.shares->global, windows = 0, turn;
  int dataset;
  for (int64_t step = 0; (!steps || step < steps) && find_turn(l, step, &dataset, &turn); step++) {
    int64_t left = l->windows[dataset] - turn * global;
    windows += left < global ? left : global;
  }
  return windows;
}

void loader_describe_windows(char text[LOADER_WINDOWS_TEXT], int64_t windows, int64_t all, int64_t seq_len) {
  if (windows < all)
    snprintf(text, LOADER_WINDOWS_TEXT, "%lld of %lld sequences of %lld", (long long)windows, (long long)all,
             (long long)seq_len);
  else
    snprintf(text, LOADER_WINDOWS_TEXT, "%s%lld sequence%s of %lld", all > 1 ? "all " : "", (long long)all,
             all > 1 ? "s" : "", (long long)seq_len);
}

LoaderStats loader_stats(Loader *loader) {
  pthread_mutex_lock(&loader->mutex);
  LoaderStats stats = loader->stats;
  pthread_mutex_unlock(&loader->mutex);
  return stats;
}

size_t loader_bytes(const LoaderConfig *c) {
  size_t samples = (size_t)most_samples(c) + !most_samples(c), slots = (size_t)c->prefetch_steps + 1, row = 0;
  SamplerConfig sampler = loader_sampler(c);
  for (int id = 0; id < INPUT_COUNT; id++) row += (size_t)sampler_row(&sampler, id);
  return slots * (samples * row + sizeof(Slot)) + samples * sizeof(int64_t) +
         ((size_t)length_of(c) + 1) * sizeof(int32_t);
}
