// tier 1; rooms model op program runtime device; numbers
// The way of logits to rank 0: only rows that are drawn from travel, and of those from which the most likely token is
// taken one candidate of each rank. Requests have the same bits as where whole rows travel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/engine.h"
#include "model/golden.h"
#include <stdlib.h>

enum { VOCAB = 97, PROMPT = 9, MOST = 6, REQUESTS = 4, TOKENS = 4 };

typedef struct Answer { int32_t ids[MOST]; double logprobs[MOST]; } Answer;

static Engine *open_engine(const ModelSource *source, const char *keys) {
  static Launch launch;
  Engine *engine;
  char *words[16], *copy = xformat("infer.requests=%d infer.tokens=%d %s", REQUESTS, TOKENS, keys);
  EngineOptions o = {.command = "test", .threads = 1, .keys = words};
  launch = (Launch){.ranks = 1};
  for (char *at = strtok(copy, " "); at; at = strtok(NULL, " ")) words[o.key_count++] = at;
  SUCCEED(engine_open(&engine, source, &o, &launch, &error));
  free(copy);
  return engine;
}

// One request, of which ticks have TOKENS tokens of the prompt each. Returns the bytes that rank 0 has received.
static int64_t ask(Engine *engine, double temperature, int logprobs, const uint8_t *allowed, Answer *answer) {
  int32_t prompt[PROMPT];
  int64_t number, before = engine_times(engine).received_bytes;
  int count = 0;
  RequestOptions o = {.prompt = prompt, .count = PROMPT, .most = MOST, .logprobs = logprobs, .allowed = allowed,
                      .sample = {.temperature = temperature, .seed = 3}};
  for (int i = 0; i < PROMPT; i++) prompt[i] = 5 * i + 2;
  *answer = (Answer){{0}};
  SUCCEED(engine_submit(engine, &o, &number, &error));
  while (!engine_is_idle(engine)) {
    EngineEvent e;
    SUCCEED(engine_tick(engine, &error));
    while (engine_poll(engine, &e)) {
      if (e.id < 0) continue;
      answer->ids[count] = e.id;
      answer->logprobs[count++] = e.logprob;
    }
  }
  assert_int_equal(count, MOST);
  return engine_times(engine).received_bytes - before;
}

// others: words that ranks beside rank 0 have for a row, and how many of them send a candidate; numbers: they have its
// maximum and sum, too
static void check(const char *keys, int others, int candidates, int numbers) {
  ModelSource source;
  Answer whole, best, silent, sampled;
  char *folder = xformat("%s/model/golden/llama-tied", TESTS_FOLDER);
  SUCCEED(model_source_open(&source, folder, &error));
  free(folder);
  Engine *engine = open_engine(&source, keys);
  assert_int_equal(source.config.vocab, VOCAB);
  int64_t row = 4 * (others + 2 * numbers) * MOST, candidate = (8 * candidates + 8 * numbers) * MOST;
  assert_int_equal(ask(engine, 0, 2, NULL, &whole), row);
  assert_int_equal(ask(engine, 0, 0, NULL, &best), candidate);
  assert_int_equal(ask(engine, 0, -1, NULL, &silent), candidate);
  assert_int_equal(ask(engine, 1, -1, NULL, &sampled), row);
  assert_memory_equal(&whole, &best, sizeof whole);
  assert_memory_equal(whole.ids, silent.ids, sizeof whole.ids);
  assert_memory_not_equal(whole.ids, sampled.ids, sizeof whole.ids);
  // ids that may not be drawn: the first and last ones, then one among the others
  uint8_t allowed[VOCAB] = {0};
  int32_t first = whole.ids[0];
  memset(allowed + 2, 1, (size_t)first - 2);
  assert_int_equal(ask(engine, 0, 2, allowed, &whole), row);
  assert_int_equal(ask(engine, 0, 0, allowed, &best), candidate);
  assert_memory_equal(&whole, &best, sizeof whole);
  memset(allowed, 1, VOCAB);
  allowed[whole.ids[0]] = 0;
  assert_int_equal(ask(engine, 0, 2, allowed, &whole), row);
  assert_int_equal(ask(engine, 0, 0, allowed, &best), row);
  assert_memory_equal(&whole, &best, sizeof whole);
  assert_int_equal(whole.ids[0], first);
  engine_close(engine);
  model_source_close(&source);
}

static void only_what_is_drawn_from_travels(void **state) {
  check("", 0, 0, 0);
  check("mesh.tp=2 layout.heads=[]", VOCAB / 2, 1, 0);
  check("precision=bf16 mesh.tp=2 layout.heads=[]", VOCAB / 2, 1, 0);
  check("precision=fp64 mesh.tp=2 layout.heads=[]", VOCAB / 2, 1, 0);
  check("mesh.pp=2", VOCAB, 1, 1);
  check("mesh.tp=2 layout.heads=[] mesh.pp=2", VOCAB, 2, 1);
  check("infer.in_flight=2", 0, 0, 0);
  check("mesh.pp=2 infer.speculate=0 precision=fp64", VOCAB, 1, 1);
}

// ---- candidates beside whole rows

enum { ALL = 7 };

// Some are greedy, with a log-probability or none; others are sampled, or want the log-probabilities of other tokens.
static RequestOptions mixed(int i, int32_t *prompt) {
  for (int k = 0; k < PROMPT; k++) prompt[k] = (7 * (i % 3) + (k % 3) * 11 + (k > 5) * i) % VOCAB; // some repeat
  return (RequestOptions){.prompt = prompt, .count = 2 + i % 8, .most = MOST, .logprobs = i % 3 - (i < 3),
                          .sample = {.temperature = i % 4 == 3 ? 0.9 : 0, .seed = (uint64_t)i}};
}

// `at_once` requests at a time.
static void ask_mixed(const ModelSource *source, const char *keys, int at_once, Answer *answer) {
  Engine *engine = open_engine(source, keys);
  int count[ALL] = {0};
  for (int i = 0; i < ALL;) {
    int32_t prompt[PROMPT];
    int64_t number;
    for (int n = 0; n < at_once && i < ALL; n++, i++) {
      RequestOptions o = mixed(i, prompt);
      answer[i] = (Answer){{0}};
      SUCCEED(engine_submit(engine, &o, &number, &error));
      assert_int_equal(number, i);
    }
    while (!engine_is_idle(engine)) {
      EngineEvent e;
      SUCCEED(engine_tick(engine, &error));
      while (engine_poll(engine, &e)) {
        if (e.id < 0) continue;
        answer[e.request].ids[count[e.request]] = e.id;
        answer[e.request].logprobs[count[e.request]++] = e.logprob;
      }
    }
  }
  for (int i = 0; i < ALL; i++) assert_int_equal(count[i], MOST);
  engine_close(engine);
}

static void requests_that_differ_share_ticks(void **state) {
  static const char *const keys[] = {"", "mesh.tp=2 layout.heads=[]", "mesh.dp=2",
                                     "mesh.tp=2 layout.heads=[] mesh.pp=2", "mesh.pp=2 precision=bf16"};
  ModelSource source;
  Answer alone[ALL], together[ALL];
  char *folder = xformat("%s/model/golden/llama-tied", TESTS_FOLDER);
  SUCCEED(model_source_open(&source, folder, &error));
  free(folder);
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    char *guesses = xformat("%s infer.speculate=3 infer.page=4", keys[k]);
    ask_mixed(&source, keys[k], 1, alone);
    ask_mixed(&source, guesses, ALL, together);
    assert_memory_equal(alone, together, sizeof alone);
    free(guesses);
  }
  model_source_close(&source);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_drawn_from_travels),
                                     cmocka_unit_test(requests_that_differ_share_ticks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
