// tier 1; threads numbers
// The loader: the same global batch under every layout, exact resume, bounded queue, errors, many loaders at once.
// Loader threads share only what the loader's mutex guards; the program is clean under TSan.
#include "data/loader.h"
#include "data/synthetic.h"
#include "scratch.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static char folder[64];
static char *first, *second;
static DataSource sources[2];

static int setup(void **state) {
  scratch_create(folder);
  first = scratch_path(folder, "first");
  second = scratch_path(folder, "second");
  sources[0] = (DataSource){first, 2};
  sources[1] = (DataSource){second, 1};
  Error error = {0};
  return synthetic_corpus(first, 60, 1, 80, 300, 1, &error) | synthetic_corpus(second, 30, 5, 30, 300, 2, &error);
}
static int teardown(void **state) {
  free(first);
  free(second);
  scratch_remove(folder);
  return 0;
}

enum { SEQ = 16, GLOBAL = 24 };

// Made once and kept: loaders borrow them.
static const Shares *shares_of(int64_t global, int ranks, int64_t micro) {
  enum { MOST = 1000 };
  static Shares kept[MOST];
  int i = 0;
  while (i < MOST && kept[i].global &&
         (kept[i].global != global || kept[i].ranks != ranks ||
          kept[i].microbatches != shares_microbatches(global, ranks, micro)))
    i++;
  assert_true(i < MOST);
  if (!kept[i].global) kept[i] = shares_create(global, ranks, micro);
  return &kept[i];
}

static LoaderConfig base(void) {
  return (LoaderConfig){.sources = sources,
                        .source_count = 2,
                        .seq_len = SEQ,
                        .document_mask = 1,
                        .vocab_size = 300,
                        .seed = 42,
                        .shares = shares_of(GLOBAL, 1, GLOBAL),
                        .prefetch_steps = 2};
}

static Loader *open_loader(const LoaderConfig *config, int64_t step) {
  Error error = {0};
  Loader *loader;
  if (loader_open(config, step, &loader, &error)) fail_msg("%s", error.message);
  return loader;
}

static Batch *next(Loader *loader) {
  Error error = {0};
  Batch *batch;
  if (loader_next(loader, &batch, NULL, &error)) fail_msg("no batch: %s", error.message);
  return batch;
}

static const int32_t *tokens_of(const Batch *b) { return batch_input(b, INPUT_TOKENS); }
static const int32_t *targets_of(const Batch *b) { return batch_input(b, INPUT_TARGETS); }

static const KnownInput of_text[] = {INPUT_TOKENS, INPUT_TARGETS, INPUT_POSITIONS, INPUT_DOCUMENTS};
enum { OF_TEXT = sizeof of_text / sizeof *of_text };

static int same_sample(const Batch *a, int i, const Batch *b, int j) {
  size_t at = (size_t)i * SEQ, to = (size_t)j * SEQ, bytes = SEQ * sizeof(int32_t);
  for (int k = 0; k < OF_TEXT; k++)
    if (memcmp((int32_t *)batch_input(a, of_text[k]) + at, (int32_t *)batch_input(b, of_text[k]) + to, bytes)) return 0;
  return batch_input(a, INPUT_STEP_TARGETS) == batch_input(a, INPUT_TARGETS) && !batch_input(a, INPUT_INDEX);
}

// The union over data ranks and microbatches is the batch of one rank, each sample where the shares say, and the
// formula where they are even.
static void check_layout(int ranks, int micro) {
  LoaderConfig config = base();
  Loader *whole = open_loader(&config, 0), *parts[GLOBAL];
  const Shares *shares = config.shares = shares_of(GLOBAL, ranks, micro);
  for (config.data_rank = 0; config.data_rank < ranks; config.data_rank++)
    parts[config.data_rank] = open_loader(&config, 0);
  for (int step = 0; step < 3; step++) {
    Batch *all = next(whole);
    int seen[GLOBAL] = {0};
    assert_int_equal(all->samples, GLOBAL);
    assert_int_equal(all->step, step);
    for (int r = 0; r < ranks; r++) {
      Batch *part = next(parts[r]);
      assert_int_equal(part->step, step);
      int s = 0;
      for (int m = 0; m < shares->microbatches; m++)
        for (int64_t place = shares_first(shares, m, r); place < shares_first(shares, m, r + 1); place++, s++) {
          assert_int_equal(part->sample[s], place);
          if (shares->even) assert_int_equal(place, (m * ranks + r) * shares->bound + s % shares->bound);
          assert_true(same_sample(part, s, all, (int)place));
          seen[place]++;
        }
      assert_int_equal(part->samples, s);
      loader_release(parts[r], part);
    }
    for (int i = 0; i < GLOBAL; i++) assert_int_equal(seen[i], 1);
    loader_release(whole, all);
  }
  loader_close(whole);
  for (int r = 0; r < ranks; r++) loader_close(parts[r]);
}

static void test_layouts(void **state) {
  int uneven = 0;
  for (int ranks = 1; ranks <= GLOBAL; ranks++)
    for (int micro = 1; micro * ranks <= GLOBAL; micro++) {
      int divides = GLOBAL % (micro * ranks) == 0;
      if (!divides && micro > 2 && ranks > 3) continue; // enough of them
      check_layout(ranks, micro);
      uneven += !divides;
    }
  assert_true(uneven > 10);
}

// Ranks that divide the sequences of one data rank have all of its batch together.
static void test_parts_of_sequences(void **state) {
  static const WindowPart parts[] = {{2, {{0, 4}, {12, 4}}}, {2, {{4, 4}, {8, 4}}}};
  LoaderConfig config = base();
  config.shares = shares_of(GLOBAL, 2, 4), config.data_rank = 1;
  Loader *whole = open_loader(&config, 3), *half[2];
  for (int r = 0; r < 2; r++) {
    config.part = parts[r];
    half[r] = open_loader(&config, 3);
  }
  size_t all = loader_bytes(&(LoaderConfig){.seq_len = SEQ, .shares = config.shares, .prefetch_steps = 2});
  assert_true(loader_bytes(&config) < all * 6 / 10);
  for (int64_t step = 3; step < 12; step++) {
    Batch *batch = next(whole);
    for (int r = 0; r < 2; r++) {
      Batch *part = next(half[r]);
      assert_true(part->samples == batch->samples &&
                  batch_row(part, INPUT_TOKENS) == SEQ / 2 * (int64_t)sizeof(int32_t) && part->step == step);
      for (int s = 0; s < batch->samples; s++)
        for (int j = 0; j < SEQ / 2; j++) {
          int at = s * SEQ + parts[r].run[j >= 4].first + j % 4, of = s * SEQ / 2 + j;
          for (int k = 0; k < OF_TEXT; k++)
            assert_int_equal(((int32_t *)batch_input(part, of_text[k]))[of],
                             ((int32_t *)batch_input(batch, of_text[k]))[at]);
        }
      loader_release(half[r], part);
    }
    loader_release(whole, batch);
  }
  for (int r = 0; r < 2; r++) loader_close(half[r]);
  loader_close(whole);
}

// The loader gives what the sampler says: sample t·global + k.
static void test_against_sampler(void **state) {
  Error error = {0};
  LoaderConfig config = base();
  SamplerConfig same = {.sources = sources, .source_count = 2, .seq_len = SEQ, .document_mask = 1, .seed = 42};
  Sampler sampler;
  assert_int_equal(sampler_open(&sampler, &same, &error), 0);
  Loader *loader = open_loader(&config, 0);
  for (int64_t step = 0; step < 30; step++) {
    Batch *batch = next(loader);
    for (int k = 0; k < GLOBAL; k++) {
      int32_t tokens[SEQ], targets[SEQ], positions[SEQ], documents[SEQ];
      assert_int_equal(sampler_read(&sampler, step * GLOBAL + k, tokens, targets, positions, documents, &error), 0);
      assert_memory_equal(tokens, tokens_of(batch) + k * SEQ, sizeof tokens);
      assert_memory_equal(targets, targets_of(batch) + k * SEQ, sizeof targets);
    }
    loader_release(loader, batch);
  }
  loader_close(loader);
  sampler_close(&sampler);
}

static void test_resume(void **state) {
  LoaderConfig config = base();
  Loader *through = open_loader(&config, 0);
  for (int64_t step = 0; step < 20; step++) {
    Batch *a = next(through);
    Loader *resumed = open_loader(&config, step);
    Batch *b = next(resumed);
    assert_int_equal(b->step, step);
    for (int i = 0; i < GLOBAL; i++) assert_true(same_sample(a, i, b, i));
    loader_close(resumed); // with the batch in use
    loader_release(through, a);
  }
  loader_close(through);
}

// Every window once, each step of one dataset, the datasets in turns; what is left of a dataset's last step is empty.
static void test_evaluation(void **state) {
  LoaderConfig config = base();
  config.evaluation = 1, config.shares = shares_of(GLOBAL, 2, 2);
  Error error = {0};
  Sampler sampler;
  SamplerConfig same = {.sources = sources, .source_count = 2, .seq_len = SEQ, .document_mask = 1, .evaluation = 1};
  assert_int_equal(sampler_open(&sampler, &same, &error), 0);
  int64_t windows = sampler.total, of[2] = {sampler.windows[0], sampler.windows[1]}, steps = 0;
  for (int k = 0; k < 2; k++) {
    assert_true(of[k] % GLOBAL && of[k] > GLOBAL); // partial last batches are what is tested
    steps += of[k] / GLOBAL + 1;
  }
  int64_t targets = 0, expected = 0;
  for (int64_t i = 0; i < windows; i++) {
    int32_t t[4][SEQ];
    assert_int_equal(sampler_read(&sampler, i, t[0], t[1], t[2], t[3], &error), 0);
    for (int j = 0; j < SEQ; j++) expected += t[1][j] >= 0;
  }
  sampler_close(&sampler);
  for (config.data_rank = 0; config.data_rank < 2; config.data_rank++) {
    Loader *loader = open_loader(&config, 0);
    Batch *batch;
    int64_t had[2] = {0};
    for (int64_t step = 0; step < steps; step++) {
      batch = next(loader);
      int k = batch->source;
      assert_true(step > 1 || k == step);
      for (int s = 0; s < batch->samples; s++)
        for (int j = 0; j < SEQ; j++) {
          int32_t target = targets_of(batch)[s * SEQ + j];
          targets += target >= 0;
          if (had[k] + batch->sample[s] >= of[k]) assert_true(target == -1 && tokens_of(batch)[s * SEQ + j] == 0);
        }
      had[k] += GLOBAL;
      loader_release(loader, batch);
    }
    for (int again = 0; again < 2; again++) {
      assert_int_equal(loader_next(loader, &batch, NULL, &error), 1);
      assert_null(batch);
    }
    loader_close(loader);
  }
  assert_int_equal(targets, expected);
}

// A limit takes windows from the start of each dataset, as many of one as of the other, as far as they last; and the
// text says how many.
static void test_limit(void **state) {
  LoaderConfig config = base();
  config.evaluation = 1;
  Loader *loader = open_loader(&config, 0);
  int64_t all = loader_windows(loader, 0), had[2] = {0}, least;
  assert_int_equal(loader_windows(loader, 2), 2 * GLOBAL); // one batch of each
  loader_close(loader);
  Error error = {0};
  Sampler sampler;
  SamplerConfig same = loader_sampler(&config);
  assert_int_equal(sampler_open(&sampler, &same, &error), 0);
  assert_int_equal(sampler.total, all);
  int64_t of[2] = {sampler.windows[0], sampler.windows[1]};
  least = of[0] < of[1] ? of[0] : of[1];
  const int64_t limits[] = {1, 2, 7, 2 * least, 2 * least + 1, all - 1, all, all + 5};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    config.limit = limits[i];
    int64_t wanted = limits[i] < all ? limits[i] : all, targets = 0, expected = 0;
    for (int k = 0; k < 2; k++) {
      had[k] = (wanted + 1 - k) / 2 < of[k] ? (wanted + 1 - k) / 2 : of[k];
      if (wanted - had[k] > of[1 - k]) had[k] = wanted - of[1 - k]; // the other one has no more
      for (int64_t w = 0; w < had[k]; w++) {
        int32_t t[4][SEQ];
        assert_int_equal(
            sampler_read(&sampler, sampler_first(&sampler, k) + w, t[0], t[1], t[2], t[3], &error), 0);
        for (int j = 0; j < SEQ; j++) expected += t[1][j] >= 0;
      }
    }
    assert_int_equal(had[0] + had[1], wanted);
    loader = open_loader(&config, 0);
    assert_int_equal(loader_windows(loader, 0), wanted);
    assert_int_equal(loader_windows(loader, 1000000), wanted);
    Batch *batch;
    while (!loader_next(loader, &batch, NULL, &error)) {
      for (int at = 0; at < batch->samples * SEQ; at++) targets += targets_of(batch)[at] >= 0;
      loader_release(loader, batch);
    }
    assert_int_equal(targets, expected);
    loader_close(loader);
  }
  sampler_close(&sampler);
  char text[LOADER_WINDOWS_TEXT];
  loader_describe_windows(text, 40, 275, 16);
  assert_string_equal(text, "40 of 275 sequences of 16");
  loader_describe_windows(text, 275, 275, 16);
  assert_string_equal(text, "all 275 sequences of 16");
  loader_describe_windows(text, 1, 1, 5);
  assert_string_equal(text, "1 sequence of 5");
}

// An id over the vocabulary: the steps before it come, then its sentence, again and again.
static void test_error_in_thread(void **state) {
  char *prefix = scratch_path(folder, "bad");
  Error error = {0};
  IndexedWriter w;
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_INT32, &error), 0);
  uint32_t ids[1000];
  for (uint32_t i = 0; i < 1000; i++) ids[i] = i == 900 ? 300 : i % 300;
  assert_int_equal(indexed_writer_add_document(&w, ids, 1000, &error), 0);
  assert_int_equal(indexed_writer_commit(&w, &error), 0);
  DataSource bad = {prefix, 1};
  LoaderConfig config = base();
  config.sources = &bad, config.source_count = 1, config.evaluation = 1;
  Loader *loader = open_loader(&config, 0);
  for (int step = 0; step < 900 / SEQ / GLOBAL; step++) loader_release(loader, next(loader));
  for (int again = 0; again < 2; again++) {
    Batch *batch;
    error = (Error){0};
    assert_int_equal(loader_next(loader, &batch, NULL, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, "bad.bin: the token at position 900 has id 300, allowed are 0 to 299"));
  }
  loader_close(loader);
  free(prefix);
}

// The queue fills up to its bound and no further; what was ready counts as no stall; buffers are the same few for ever.
static void test_bounded(void **state) {
  LoaderConfig config = base();
  config.prefetch_steps = 3;
  Loader *loader = open_loader(&config, 0);
  Batch *mine = next(loader);
  for (time_t end = time(NULL) + 60; loader_stats(loader).ready < 3 && time(NULL) < end;) sched_yield();
  LoaderStats before = loader_stats(loader);
  assert_int_equal(before.ready, 3);
  assert_int_equal(before.steps, 1);
  const int32_t *buffers[4] = {tokens_of(mine)};
  Batch *more[3];
  for (int i = 0; i < 3; i++) { // all ready: none is waited for
    Error error = {0};
    double waited = -1;
    assert_int_equal(loader_next(loader, &more[i], &waited, &error), 0);
    assert_true(waited == 0);
    buffers[i + 1] = tokens_of(more[i]);
  }
  assert_int_equal(loader_stats(loader).stalls, before.stalls);
  loader_release(loader, more[1]); // out of order
  loader_release(loader, mine);
  loader_release(loader, more[2]);
  loader_release(loader, more[0]);
  for (int64_t step = 4; step < 40; step++) {
    Batch *batch = next(loader);
    assert_int_equal(batch->step, step);
    int known = 0;
    for (int i = 0; i < 4; i++) known += tokens_of(batch) == buffers[i]; // with a longer queue another one would come
    assert_int_equal(known, 1);
    loader_release(loader, batch);
  }
  LoaderStats after = loader_stats(loader);
  assert_int_equal(after.steps, 40);
  assert_true(after.filled_seconds > 0 && after.waited_seconds >= before.waited_seconds);
  loader_close(loader);
  loader_close(NULL);
}

// A consumer that asks at once waits for the first step, and the time says so.
static void test_waiting_is_reported(void **state) {
  LoaderConfig config = base();
  config.shares = shares_of(4096, 1, 4096);
  Loader *loader = open_loader(&config, 0);
  Error error = {0};
  double waited = 0, sum = 0;
  time_t end = time(NULL) + 60; // or the loader is always ahead, on a busy machine
  for (int i = 0; i < 10 || (sum == 0 && time(NULL) < end); i++) {
    Batch *batch;
    assert_int_equal(loader_next(loader, &batch, &waited, &error), 0);
    sum += waited;
    loader_release(loader, batch);
  }
  LoaderStats stats = loader_stats(loader);
  assert_true(stats.stalls > 0 && sum > 0);
  assert_true(stats.waited_seconds == sum);
  loader_close(loader);
}

typedef struct Consumer {
  LoaderConfig config;
  int64_t sum;
  int failed;
} Consumer;

static void *consume(void *argument) { // rank threads return errors, only the main thread asserts
  Consumer *c = argument;
  Error error = {0};
  Loader *loader;
  if (loader_open(&c->config, 5, &loader, &error)) return c->failed = 1, NULL;
  for (int step = 0; step < 40; step++) {
    Batch *batch;
    if (loader_next(loader, &batch, NULL, &error)) return c->failed = 1, NULL;
    for (int i = 0; i < batch->samples * SEQ; i++) c->sum += (int64_t)tokens_of(batch)[i] * (targets_of(batch)[i] + 2);
    loader_release(loader, batch);
  }
  loader_close(loader);
  return NULL;
}

static void test_ranks_at_once(void **state) {
  enum { RANKS = 8 };
  Consumer one = {.config = base()}, many[RANKS] = {0};
  pthread_t threads[RANKS];
  consume(&one);
  for (int r = 0; r < RANKS; r++) {
    many[r].config = base();
    many[r].config.shares = shares_of(GLOBAL, RANKS, 3), many[r].config.data_rank = r,
    many[r].config.prefetch_steps = 1 + r % 3;
    assert_int_equal(pthread_create(&threads[r], NULL, consume, &many[r]), 0);
  }
  int64_t sum = 0;
  for (int r = 0; r < RANKS; r++) {
    pthread_join(threads[r], NULL);
    assert_false(many[r].failed);
    sum += many[r].sum;
  }
  assert_int_equal(one.failed, 0);
  assert_int_equal(sum, one.sum);
}

static void test_refusals(void **state) {
  struct {
    int64_t global, micro;
    int ranks, seq, prefetch;
    const char *says;
  } cases[] = {{24, 6, 1, 0, 1, "data.seq_len is 0"},   {24, 6, 1, 16, 0, "prefetch"},
               {1 << 30, 1, 1, 4096, 1, "too large"},   {24, 6, 1, 1 << 20, 1, "too short"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    LoaderConfig config = base();
    config.shares = shares_of(cases[i].global, cases[i].ranks, cases[i].micro);
    config.seq_len = cases[i].seq, config.prefetch_steps = cases[i].prefetch;
    Error error = {0};
    Loader *loader;
    assert_int_equal(loader_open(&config, 0, &loader, &error), PLAIT_BAD_INPUT);
    assert_null(loader);
    assert_non_null(strstr(error.message, cases[i].says));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_layouts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_parts_of_sequences, setup, teardown),
      cmocka_unit_test_setup_teardown(test_against_sampler, setup, teardown),
      cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
      cmocka_unit_test_setup_teardown(test_evaluation, setup, teardown),
      cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
      cmocka_unit_test_setup_teardown(test_error_in_thread, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
      cmocka_unit_test_setup_teardown(test_waiting_is_reported, setup, teardown),
      cmocka_unit_test_setup_teardown(test_ranks_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
