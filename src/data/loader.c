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
  SlotState state;
} Slot;

struct Loader {
  LoaderConfig config;
  Sampler sampler; // the thread's alone while it runs
  Slot *slots;     // (slot_count) = prefetch_steps + the one in use
  int slot_count;
  int64_t *sample; // (samples) the same in every step
  int64_t *windows; // (source_count) that an evaluation reads
  pthread_t thread;
  pthread_mutex_t mutex; // guards all below and the slots' states
  pthread_cond_t filled, freed;
  int stop;
  int end; // 0 while there are steps to fill, 1 after an evaluation's last step, else the code of `error`
  Error error;
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
  if (c->seq_len < 1) return error_set(error, PLAIT_BAD_INPUT, "data.seq_len is %d, it must be at least 1", c->seq_len);
  if (c->prefetch_steps < 1)
    return error_set(error, PLAIT_BAD_INPUT, "the loader's prefetch is %d steps, it must be at least 1",
                     c->prefetch_steps);
  if (most_samples(c) > INT_MAX / length_of(c))
    return error_set(error, PLAIT_BAD_INPUT,
                     "batch.global %lld is too large: a rank's share of a step exceeds %d tokens",
                     (long long)c->shares->global, INT_MAX);
  return PLAIT_OK;
}

static int64_t sum_up_to(const Loader *l, int64_t most) {
  int64_t sum = 0;
  for (int k = 0; k < l->config.source_count; k++)
    sum += l->sampler.windows[k] < most ? l->sampler.windows[k] : most;
  return sum;
}

// Where there is a limit, an evaluation reads `most` windows of each dataset, or all that it has, and one more of the
// first ones.
static void share_limit(Loader *l) {
  int64_t limit = l->config.limit, most = INT64_MAX, more = 0;
  if (limit && FAULT(evaluation_has_no_limit, limit < l->sampler.total, 0)) {
    int64_t high = limit + 1; // sum_up_to(most) <= limit < sum_up_to(high)
    for (most = 0; high - most > 1;) {
      int64_t middle = most + (high - most) / 2;
      if (sum_up_to(l, middle) <= limit) most = middle;
      else high = middle;
    }
    more = limit - sum_up_to(l, most);
  }
  l->windows = xcalloc((size_t)l->config.source_count, sizeof *l->windows);
  for (int k = 0; k < l->config.source_count; k++) {
    bool longer = l->sampler.windows[k] > most;
    l->windows[k] = longer ? most + (more > 0) : l->sampler.windows[k];
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
  for (int k = 0; k < l->config.source_count; k++) steps += steps_of(l, k) < round ? steps_of(l, k) : round;
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

// Fills one step; PLAIT_OK, 1 when the evaluation has no such step, or an error. All ranks agree on the 1.
static int fill(Loader *loader, Batch *batch, int64_t step, Error *error) {
  const LoaderConfig *c = &loader->config;
  int64_t global = c->shares->global, first = step * global, end = loader->sampler.total, turn;
  if (step > (INT64_MAX - global) / global) return 1;
  batch->step = step;
  batch->source = -1;
  if (c->evaluation) {
    if (!find_turn(loader, step, &batch->source, &turn)) return 1;
    first = sampler_first(&loader->sampler, batch->source) + turn * global;
    end = sampler_first(&loader->sampler, batch->source) + loader->windows[batch->source];
  }
  for (int s = 0; s < batch->samples; s++) {
    int64_t at = (int64_t)s * batch->length, i = first + batch->sample[s];
    int code = sampler_read(&loader->sampler, i < end ? i : loader->sampler.total, batch->tokens + at,
                            batch->targets + at, batch->positions + at, batch->documents + at, error);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

static Slot *find_slot(Loader *loader, SlotState state, int64_t step) {
  for (int i = 0; i < loader->slot_count; i++)
    if (loader->slots[i].state == state && (step < 0 || loader->slots[i].batch.step == step)) return &loader->slots[i];
  return NULL;
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
    pthread_mutex_unlock(&loader->mutex);
    Error error = {0};
    double start = clock_seconds();
    int code = fill(loader, &slot->batch, step, &error);
    double took = clock_seconds() - start;
    pthread_mutex_lock(&loader->mutex);
    slot->state = code == PLAIT_OK ? SLOT_READY : SLOT_FREE;
    loader->end = code;
    loader->error = error;
    loader->stats.filled_seconds += took;
    loader->stats.ready += code == PLAIT_OK;
    pthread_cond_signal(&loader->filled);
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

static void allocate_slots(Loader *loader) {
  const LoaderConfig *c = &loader->config;
  int samples = (int)most_samples(c);
  size_t bytes = (size_t)(samples ? samples : 1) * (size_t)length_of(c) *
                 sizeof(int32_t); // a rank without any has memory all the same
  loader->sample = xcalloc((size_t)samples + 1, sizeof *loader->sample);
  loader->slot_count = c->prefetch_steps + 1;
  loader->slots = xcalloc((size_t)loader->slot_count, sizeof *loader->slots);
  for (int i = 0; i < loader->slot_count; i++) {
    Batch *batch = &loader->slots[i].batch;
    batch->length = length_of(c);
    batch->sample = loader->sample;
    int32_t **arrays[] = {&batch->tokens, &batch->targets, &batch->positions, &batch->documents};
    for (int a = 0; a < 4; a++) // written, so that the pages are there before the first step
      *arrays[a] = memset(xcalloc(bytes, 1), 0xff, bytes);
  }
  find_samples(loader);
}

static void destroy(Loader *loader) {
  for (int i = 0; i < loader->slot_count; i++) {
    Batch *batch = &loader->slots[i].batch;
    free(batch->tokens);
    free(batch->targets);
    free(batch->positions);
    free(batch->documents);
  }
  free(loader->slots);
  free(loader->sample);
  free(loader->windows);
  sampler_close(&loader->sampler);
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
  loader->config.sources = NULL; // not ours to keep
  loader->fill_step = loader->next_step = FAULT(data_restarts_when_resumed, first_step, 0);
  pthread_mutex_init(&loader->mutex, NULL);
  pthread_cond_init(&loader->filled, NULL);
  pthread_cond_init(&loader->freed, NULL);
  SamplerConfig sampler = loader_sampler(config);
  code = sampler_open(&loader->sampler, &sampler, error);
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
  slot->state = SLOT_FREE;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->mutex);
}

// Drops what was read ahead; with the mutex.
static void drop(Loader *loader) {
  CHECK(!held(loader), "a batch is in use");
  while (find_slot(loader, SLOT_FILLING, -1)) pthread_cond_wait(&loader->filled, &loader->mutex);
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
  size_t samples = (size_t)most_samples(c) + !most_samples(c), slots = (size_t)c->prefetch_steps + 1;
  size_t length = (size_t)length_of(c);
  return slots * (4 * samples * length * sizeof(int32_t) + sizeof(Slot)) + samples * sizeof(int64_t) +
         (length + 1) * sizeof(int32_t);
}
