// tier 1; rooms api infer
// Requests through include/plait/infer.h: as the engine has them, with ends, log-probabilities, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "plait/infer.h"
#include <math.h>
#include <string.h>

static const char model[] = TESTS_FOLDER "/model/golden/llama-tied";
static PlaitError error;

static PlaitEngine *open_engine(int count, const char *const *keys) {
  PlaitEngine *engine;
  if (plait_engine_open(model, count, keys, &engine, &error)) fail_msg("%s", error.message);
  return engine;
}

// Runs until nothing is open; tokens of request `number` to ids, their log-probabilities added up. Returns its end.
static PlaitEnd run(PlaitEngine *engine, int64_t number, int32_t *ids, int *count, double *logprob) {
  PlaitEnd end = PLAIT_NO_END;
  *count = 0;
  *logprob = 0;
  while (!plait_engine_is_idle(engine)) {
    assert_int_equal(plait_engine_tick(engine, &error), PLAIT_OK);
    for (PlaitToken t; plait_engine_poll(engine, &t);) {
      if (t.request != number) continue;
      if (t.id < 0) end = t.end;
      else ids[(*count)++] = t.id, *logprob += t.logprob;
    }
  }
  return end;
}

static void requests_end(void **state) {
  PlaitEngine *engine =
      open_engine(4, (const char *[]){"infer.context=24", "infer.requests=3", "infer.speculate=2", "run.threads=1"});
  const int32_t prompt[] = {3, 1, 4};
  PlaitRequest r = {.prompt = prompt, .prompt_count = 3, .max_tokens = 12, .logprobs = 1,
                    .sampling = {.temperature = 1, .top_p = 0.9, .seed = 5}};
  int32_t first[12], second[12];
  int n, m;
  int64_t number, other;
  double logprob, again;
  assert_int_equal(plait_engine_submit(engine, &r, &number, NULL), PLAIT_OK);
  assert_int_equal(run(engine, number, first, &n, &logprob), PLAIT_END_LENGTH);
  assert_true(n == 12 && logprob < 0 && isfinite(logprob));
  for (int i = 0; i < n; i++) assert_in_range(first[i], 0, plait_engine_vocab(engine) - 1);
  r.ends = &first[7]; // beside another one, which is cancelled
  r.end_count = 1;
  assert_int_equal(plait_engine_submit(engine, &r, &other, &error), PLAIT_OK);
  assert_int_equal(plait_engine_submit(engine, &r, &number, &error), PLAIT_OK);
  plait_engine_cancel(engine, other);
  assert_int_equal(run(engine, number, second, &m, &again), PLAIT_END_STOP);
  assert_true(m <= 7);
  assert_memory_equal(first, second, sizeof *first * (size_t)m);
  plait_engine_close(engine);
}

static void wrong_input_has_sentences(void **state) {
  PlaitEngine *engine;
  PlaitError e = {0};
  assert_int_equal(plait_engine_open("/nowhere", 0, NULL, &engine, &e), PLAIT_BAD_INPUT);
  assert_true(!engine && strstr(e.message, "/nowhere does not exist"));
  static const struct { const char *keys[2], *sentence;
  } table[] = {
      {{"infer.requests=9", "infer.tokens=8"},
       "infer.tokens is 8, but each of the 9 requests of a data rank may need one in a tick; give at least 9, or fewer "
       "infer.requests"},
      {{"infer.context=24", "infer.kv_memory=100"},
       "infer.kv_memory: a cache of 100 B has room for 0 tokens, and one request may have 24: that takes"},
      {{"infer.context=24", "infer.speculate=17"}, "infer.speculate must be an integer from 0 to 16, not \"17\""}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    e = (PlaitError){0};
    assert_int_equal(plait_engine_open(model, 2, table[i].keys, &engine, &e), PLAIT_BAD_INPUT);
    assert_null(engine);
    if (!strstr(e.message, table[i].sentence)) fail_msg("%s", e.message);
  }
  engine = open_engine(1, (const char *[]){"infer.context=24"});
  const int32_t id = 5;
  int64_t number;
  e = (PlaitError){0};
  PlaitRequest r = {.prompt = &id, .prompt_count = 1, .max_tokens = 1, .sampling.temperature = NAN};
  assert_int_equal(plait_engine_submit(engine, &r, &number, &e), PLAIT_BAD_INPUT);
  assert_string_equal(e.message, "temperature is nan; allowed: 0 to 100");
  plait_engine_close(engine);
  plait_engine_close(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(requests_end), cmocka_unit_test(wrong_input_has_sentences)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
