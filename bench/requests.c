// Generation seen by those who wait for it, through plait/infer.h: how soon a prompt whose begin is in the cache has
// its first token, what a long prompt does to texts that are being drawn, what it takes to answer 32 prompts together,
// and which part of the memory's bandwidth a decode step has. bench/generation runs it and says what the lines mean.
// Usage: bench_requests MODEL THREADS ROUNDS LONG KEY=VALUE …   LONG: tokens of the long prompt
#include "base/clock.h"
#include "base/error.h"
#include "plait/infer.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 4, PROMPTS = 32, BATCH = 8, WARM = 24, MOST_TICKS = 4096, MOST_KEYS = 32 };

static PlaitError error;
static void must(int code) {
  if (!code) return;
  fprintf(stderr, "bench_requests: %s\n", error.message);
  exit(1);
}

typedef struct Bench {
  const char *model, *keys[MOST_KEYS];
  int key_count, threads, rounds, vocab;
  unsigned random;
} Bench;

static PlaitEngine *open_engine(Bench *b, const char *requests, const char *context) {
  PlaitEngine *engine;
  const char *keys[MOST_KEYS + 2];
  memcpy(keys, b->keys, sizeof b->keys);
  keys[b->key_count] = requests;
  keys[b->key_count + 1] = context;
  must(plait_engine_open(b->model, b->key_count + 2, keys, &engine, &error));
  b->vocab = plait_engine_vocab(engine);
  return engine;
}

static void fill(Bench *b, int32_t *ids, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    b->random = b->random * 1664525 + 1013904223;
    ids[i] = (int32_t)((b->random >> 8) % (unsigned)b->vocab);
  }
}

static int64_t submit(PlaitEngine *engine, const int32_t *ids, int64_t n, int64_t most) {
  int64_t number;
  const PlaitRequest request = {.prompt = ids, .prompt_count = n, .max_tokens = most};
  must(plait_engine_submit(engine, &request, &number, &error));
  return number;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double quantile(double *x, int n, double q) {
  qsort(x, (size_t)n, sizeof *x, by_size);
  return x[(int)(q * (n - 1) + 0.5)];
}

// Runs ticks until the request has its first token, and then until all requests have ended. Seconds to the token.
static double first_token(PlaitEngine *engine, int64_t number) {
  double start = clock_seconds(), at = 0;
  while (!plait_engine_is_idle(engine)) {
    must(plait_engine_tick(engine, &error));
    for (PlaitToken t; plait_engine_poll(engine, &t);)
      if (t.request == number && !at) at = clock_seconds() - start;
  }
  return at;
}

static void measure_prefix(Bench *b) {
  enum { ALL = 640, CACHED = 512 };
  PlaitEngine *engine = open_engine(b, "infer.requests=1", "infer.context=1024");
  int32_t *ids = xcalloc(ALL, sizeof *ids);
  double *whole = xcalloc((size_t)b->rounds, sizeof *whole), *rest = xcalloc((size_t)b->rounds, sizeof *rest);
  for (int r = -1; r < b->rounds; r++) { // the first one only warms up
    fill(b, ids, ALL);
    double seconds = first_token(engine, submit(engine, ids, ALL, 1));
    if (r >= 0) whole[r] = seconds;
    fill(b, ids + CACHED, ALL - CACHED);
    seconds = first_token(engine, submit(engine, ids, ALL, 1));
    if (r >= 0) rest[r] = seconds;
  }
  printf("first_token %.6g\nfirst_token_cached %.6g\n", quantile(whole, b->rounds, 0.5),
         quantile(rest, b->rounds, 0.5));
  free(ids);
  free(whole);
  free(rest);
  plait_engine_close(engine);
}

// Ticks until `number` has a token (or `most` ticks); the time of each, in which every stream gets a token, to gap.
static int stream_ticks(PlaitEngine *engine, int64_t number, int most, double *gap) {
  int n = 0;
  for (bool done = false; !done && n < most; n++) {
    double start = clock_seconds();
    must(plait_engine_tick(engine, &error));
    for (PlaitToken t; plait_engine_poll(engine, &t);) done |= t.request == number;
    gap[n] = clock_seconds() - start;
  }
  return n;
}

static double sum_of(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

static void measure_long_prompt(Bench *b, int64_t length) {
  PlaitEngine *engine = open_engine(b, "infer.requests=8", "infer.context=4096");
  int32_t *ids = xcalloc((size_t)length, sizeof *ids);
  int64_t stream[STREAMS];
  static double gap[MOST_TICKS];
  for (int r = 0; r < 2; r++) { // the first one lets the engine measure its ticks
    fill(b, ids, length);
    double alone = first_token(engine, submit(engine, ids, length, 1));
    for (int i = 0; i < STREAMS; i++) fill(b, ids, 16), stream[i] = submit(engine, ids, 16, 2048);
    int n = stream_ticks(engine, -1, 2 * WARM, gap);
    double usual = quantile(gap + WARM, n - WARM, 0.5);
    fill(b, ids, length);
    n = stream_ticks(engine, submit(engine, ids, length, 1), MOST_TICKS, gap);
    double beside = sum_of(gap, n);
    for (int i = 0; i < STREAMS; i++) plait_engine_cancel(engine, stream[i]);
    while (!plait_engine_is_idle(engine)) must(plait_engine_tick(engine, &error));
    for (PlaitToken t; plait_engine_poll(engine, &t);) continue;
    if (r) printf("gap %.6g\ngap_beside %.6g\ngap_beside_most %.6g\nprefill_alone %.6g\nprefill_beside %.6g\n", usual,
                  quantile(gap, n, 0.5), quantile(gap, n, 1), (double)length / alone, (double)length / beside);
  }
  free(ids);
  plait_engine_close(engine);
}

typedef struct Work { int32_t *ids; int64_t prompt, drawn; } Work;

// Answers all prompts, `at_once` of them and then, when these have ended, the next ones.
static double answer(PlaitEngine *engine, const Work *work, int at_once, int *ticks) {
  double start = clock_seconds();
  *ticks = 0;
  for (int from = 0; from < PROMPTS; from += at_once) {
    for (int i = from; i < from + at_once && i < PROMPTS; i++)
      submit(engine, work[i].ids, work[i].prompt, work[i].drawn);
    while (!plait_engine_is_idle(engine)) {
      must(plait_engine_tick(engine, &error));
      for (PlaitToken t; plait_engine_poll(engine, &t);) continue;
      ++*ticks;
    }
  }
  return clock_seconds() - start;
}

// 16 to 256 tokens of prompts, and as many drawn, both spread evenly, in a fixed disorder.
static void measure_requests(Bench *b) {
  const char *keys = "infer.context=512";
  Work work[PROMPTS];
  int64_t tokens = 0, ticks[3];
  double *seconds[3];
  int n;
  PlaitEngine *eight = open_engine(b, "infer.requests=8", keys), *all = open_engine(b, "infer.requests=32", keys);
  for (int i = 0; i < PROMPTS; i++) {
    work[i] = (Work){.prompt = 16 + i * 13 % PROMPTS * 240 / 31, .drawn = 16 + i * 7 % PROMPTS * 240 / 31};
    work[i].ids = xcalloc((size_t)work[i].prompt, sizeof *work[i].ids);
    tokens += work[i].drawn;
  }
  for (int k = 0; k < 3; k++) seconds[k] = xcalloc((size_t)b->rounds, sizeof *seconds[k]);
  for (int r = -1; r < b->rounds; r++)
    for (int k = 0; k < 3; k++) {
      for (int i = 0; i < PROMPTS; i++) fill(b, work[i].ids, work[i].prompt); // that no cache has
      double s = answer(k == 2 ? all : eight, work, k ? PROMPTS : BATCH, &n);
      ticks[k] = n;
      if (r >= 0) seconds[k][r] = s;
    }
  static const char *const names[] = {"static", "eight", "all"};
  printf("drawn %lld\n", (long long)tokens);
  for (int k = 0; k < 3; k++) {
    printf("seconds_%s %.6g\nticks_%s %lld\n", names[k], quantile(seconds[k], b->rounds, 0.5), names[k],
           (long long)ticks[k]);
    free(seconds[k]);
  }
  for (int i = 0; i < PROMPTS; i++) free(work[i].ids);
  plait_engine_close(eight);
  plait_engine_close(all);
}

// ---- bandwidth

typedef struct Reader { const uint64_t *from; size_t count; uint64_t sum; } Reader;
static void *read_all(void *reader) {
  Reader *r = reader;
  uint64_t sum[8] = {0};
  for (size_t i = 0; i + 8 <= r->count; i += 8)
    for (int k = 0; k < 8; k++) sum[k] += r->from[i + (size_t)k];
  for (int k = 0; k < 8; k++) r->sum += sum[k];
  return NULL;
}

// Bytes per second that the threads read from memory together, the best of several times.
static double bandwidth(int threads) {
  size_t count = (size_t)1 << 27; // of 8 bytes
  uint64_t *memory = xcalloc(count, sizeof *memory), sum = 0;
  double best = 0;
  memset(memory, 1, count * sizeof *memory);
  for (int r = 0; r < 8; r++) {
    Reader reader[64] = {{0}};
    pthread_t thread[64];
    double start = clock_seconds();
    for (int t = 0; t < threads; t++) {
      reader[t] = (Reader){.from = memory + count / (size_t)threads * (size_t)t, .count = count / (size_t)threads};
      if (pthread_create(&thread[t], NULL, read_all, &reader[t])) exit(1);
    }
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL), sum += reader[t].sum;
    double rate = (double)(count * sizeof *memory) / (clock_seconds() - start);
    if (rate > best) best = rate;
  }
  if (!sum) exit(1); // it is used
  free(memory);
  return best;
}

// The best is taken, as that of the bandwidth: both are bounds that a busy machine does not reach.
static void measure_decode(Bench *b) {
  PlaitEngine *engine = open_engine(b, "infer.requests=8", "infer.context=256");
  int32_t ids[16];
  for (int streams = 1; streams <= BATCH; streams *= BATCH) {
    static double gap[2 * WARM];
    int64_t number[BATCH];
    for (int i = 0; i < streams; i++) fill(b, ids, 16), number[i] = submit(engine, ids, 16, 200);
    int n = stream_ticks(engine, -1, 2 * WARM, gap);
    printf("decode_%d %.6g\n", streams, quantile(gap + WARM, n - WARM, 0));
    for (int i = 0; i < streams; i++) plait_engine_cancel(engine, number[i]);
    while (!plait_engine_is_idle(engine)) must(plait_engine_tick(engine, &error));
  }
  plait_engine_close(engine);
  printf("bandwidth %.6g\n", bandwidth(b->threads));
}

int main(int argc, char **argv) {
  if (argc < 5 || argc - 5 > MOST_KEYS - 1) {
    fprintf(stderr, "usage: bench_requests MODEL THREADS ROUNDS LONG KEY=VALUE …\n");
    return 2;
  }
  Bench b = {.model = argv[1], .threads = atoi(argv[2]), .rounds = atoi(argv[3])};
  int64_t length = atoll(argv[4]);
  char threads[40];
  if (b.threads < 1 || b.threads > 64 || b.rounds < 1 || length < 1) return 2;
  snprintf(threads, sizeof threads, "run.threads=%d", b.threads);
  b.keys[b.key_count++] = threads;
  for (int i = 5; i < argc; i++) b.keys[b.key_count++] = argv[i];
  measure_decode(&b);
  fflush(stdout);
  measure_prefix(&b);
  fflush(stdout);
  measure_long_prompt(&b, length);
  fflush(stdout);
  measure_requests(&b);
  return 0;
}
