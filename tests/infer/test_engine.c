// tier 1 2; rooms model op program runtime device; numbers
// The engine on golden models: a request's tokens and log-probabilities have the same bits alone and in any batch, for
// chunks of any size, prefixes found, guesses verified and requests preempted; and they are those of an evaluation of
// the text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/engine.h"
#include "model/golden.h"
#include "runtime/session.h"
#include <stdlib.h>

enum { REQUESTS = 12, MOST = 20, TOP = 3 };

typedef struct Answer { int count; int32_t ids[MOST]; double logprobs[MOST], top[MOST][TOP]; } Answer;

static void source_of(const char *name, ModelSource *source) {
  char *folder = xformat("%s/model/golden/%s", TESTS_FOLDER, name);
  SUCCEED(model_source_open(source, folder, &error));
  free(folder);
}

// Prompts that share beginnings; some are sampled, some greedy.
static RequestOptions request_of(int number, int32_t *prompt, int vocab) {
  int n = 1 + number * 5 % 13, stem = number % 3;
  for (int i = 0; i < n; i++) prompt[i] = (int32_t)((i < 8 ? stem * 7 + i * i : number + i) % vocab);
  return (RequestOptions){.prompt = prompt,
                          .count = n,
                          .most = 3 + number * 7 % (MOST - 2),
                          .logprobs = TOP,
                          .sample = {.temperature = number % 2 ? 0.7 : 0, .top_p = 0.9, .seed = (uint64_t)number}};
}

static void read_events(Engine *engine, const int *request_at, Answer *answers) {
  EngineEvent e;
  while (engine_poll(engine, &e)) {
    if (e.id < 0) continue;
    Answer *a = &answers[request_at[e.request]];
    assert_in_range(a->count, 0, MOST - 1);
    a->ids[a->count] = e.id;
    a->logprobs[a->count] = e.logprob;
    memcpy(a->top[a->count++], e.top_logprobs, sizeof *a->top);
  }
}

// A cache of `pages` pages of `page` tokens, in the dtype that it has; 0: of all requests.
static char *kv_memory(const ModelSource *source, const char *keys, int page, int pages) {
  const ModelConfig *c = &source->config;
  const char *own = strstr(keys, "kv_dtype="), *dtype = own ? own : keys;
  int64_t bytes = strstr(dtype, "fp64") ? 8 : strstr(dtype, "16") ? 2 : 4;
  int64_t token = 2 * c->layers * c->kv_heads * c->head_dim * bytes;
  return pages ? xformat(" infer.kv_memory=%lld", (long long)(token * page * pages)) : xstrdup("");
}

static Engine *open_engine(const ModelSource *source, const char *keys, const char *infer) {
  static Launch launch;
  Engine *engine;
  char *words[16], *copy = xformat("%s infer.context=%d %s", keys, SEQ, infer);
  EngineOptions o = {.command = "test", .threads = 2, .keys = words};
  launch = (Launch){.ranks = 1};
  for (char *at = strtok(copy, " "); at; at = strtok(NULL, " ")) words[o.key_count++] = at;
  SUCCEED(engine_open(&engine, source, &o, &launch, &error));
  free(copy);
  return engine;
}

// Requests come while others run: `at_once` to begin with, then one a tick.
static void ask(Engine *engine, const int *order, int at_once, Answer *answers) {
  int request_at[2 * REQUESTS] = {0}, next = 0;
  const int vocab = (int)engine_model(engine)->source->config.vocab;
  memset(answers, 0, sizeof *answers * REQUESTS);
  while (next < REQUESTS || !engine_is_idle(engine)) {
    for (int n = next ? 1 : at_once; n > 0 && next < REQUESTS; n--, next++) {
      int32_t prompt[SEQ];
      int64_t number;
      RequestOptions o = request_of(order[next], prompt, vocab);
      SUCCEED(engine_submit(engine, &o, &number, &error));
      request_at[number] = order[next];
    }
    SUCCEED(engine_tick(engine, &error));
    read_events(engine, request_at, answers);
  }
}

static void expect_same(const Answer *a, const Answer *b, const char *what) {
  for (int i = 0; i < REQUESTS; i++)
    if (memcmp(&a[i], &b[i], sizeof *a) != 0)
      for (int k = 0; k < MOST; k++)
        if (a[i].ids[k] != b[i].ids[k] || a[i].logprobs[k] != b[i].logprobs[k])
          fail_msg("%s: request %d, token %d: %d with %.17g, alone %d with %.17g", what, i, k, b[i].ids[k],
                   b[i].logprobs[k], a[i].ids[k], a[i].logprobs[k]);
}

static int64_t guessed, accepted; // tokens, in all engines

// One at a time, whole prompts, nothing kept.
static void ask_alone(const ModelSource *source, const char *keys, Answer *answers) {
  int order[REQUESTS];
  char *infer = xformat("infer.requests=1 infer.tokens=%d infer.page=4 infer.prefix=false", SEQ);
  for (int i = 0; i < REQUESTS; i++) order[i] = i;
  Engine *engine = open_engine(source, keys, infer);
  ask(engine, order, 1, answers);
  engine_close(engine);
  free(infer);
}

static void check_model(const char *name, const char *keys, int variants) {
  static const struct Together { int requests, tokens, page, speculate, pages; bool forgets; } together[] = {
      {.requests = 5, .tokens = 16, .page = 4, .speculate = 3, .pages = 14},
      {.requests = 8, .tokens = 8, .page = 4},
      {.requests = 3, .tokens = 7, .page = 3, .speculate = 16},
      {.requests = 12, .tokens = 50, .page = 32, .forgets = true},
      {.requests = 1, .tokens = 1, .page = 1},
  };
  static Answer alone[REQUESTS], answers[REQUESTS];
  ModelSource source;
  source_of(name, &source);
  ask_alone(&source, keys, alone);
  int order[REQUESTS], drawn = 0;
  for (int i = 0; i < REQUESTS; i++) order[i] = i * 5 % REQUESTS, drawn += alone[i].count;
  assert_true(drawn > 100);
  for (int k = 0; k < variants; k++) {
    const struct Together *o = &together[k];
    char *memory = kv_memory(&source, keys, o->page, o->pages);
    char *infer = xformat("infer.requests=%d infer.tokens=%d infer.page=%d infer.speculate=%d infer.prefix=%s%s",
                          o->requests, o->tokens, o->page, o->speculate, o->forgets ? "false" : "true", memory);
    Engine *engine = open_engine(&source, keys, infer);
    free(infer);
    free(memory);
    for (int again = 0; again < 2; again++) { // then prefixes are there
      char *what = xformat("%s %s, variant %d%s", name, keys, k, again ? " again" : "");
      ask(engine, order, again ? REQUESTS : 3, answers);
      expect_same(alone, answers, what);
      free(what);
    }
    EngineTimes t = engine_times(engine);
    if (o->pages && !strstr(keys, "dp")) assert_true(t.preempted > 0);
    if (!o->forgets && o->page < 5) assert_true(t.reused_tokens > 0);
    guessed += t.guessed;
    accepted += t.accepted;
    engine_close(engine);
  }
  model_source_close(&source);
}

static void same_bits_in_any_batch(void **state) {
  static const char *const models[] = {"llama-tied", "gpt2-untied", "qwen3_moe-untied"};
  static const char *const keys[] = {"",
                                     "precision=bf16",
                                     "mesh.tp=2 layout.heads=[]",
                                     "mesh.dp=2",
                                     "mesh.pp=2",
                                     "infer.in_flight=2",
                                     "precision=fp16",
                                     "precision=fp64",
                                     "mesh.tp=2 layout.heads=[] mesh.pp=2",
                                     "mesh.dp=2 mesh.pp=2",
                                     "mesh.dp=2 parallel.zero=3",
                                     "mesh.pp=2 infer.in_flight=1",
                                     "mesh.pp=2 infer.in_flight=5",
                                     "mesh.tp=2 layout.heads=[] mesh.pp=2 infer.in_flight=3",
                                     "mesh.pp=3 parallel.layers=[1,1,0] mesh.dp=2"};
  int all = test_tier() > 1;
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
      if (all || k == 0 || (m == 0 && k < 6)) check_model(models[m], keys[k], all ? 5 : 2);
  if (all) check_model("qwen3_moe-untied", "mesh.dp=7 parallel.ep=7", 5);
  print_message("%d of %d guesses were right\n", (int)accepted, (int)guessed);
  assert_true(accepted > 0 && guessed > accepted);
}

// ---- requests that are cancelled

// Now and then a request is cancelled. It has drawn the first tokens that it draws alone, and the others all of them.
static void check_cancelled(const char *keys) {
  static Answer alone[REQUESTS], answers[REQUESTS];
  int at[REQUESTS], cancelled[REQUESTS] = {0}, ends[REQUESTS] = {0}, ticks = 0, count = 0;
  int64_t number[REQUESTS];
  ModelSource source;
  source_of("llama-tied", &source);
  ask_alone(&source, keys, alone);
  Engine *engine = open_engine(&source, keys, "infer.requests=6 infer.tokens=8 infer.page=4 infer.speculate=2");
  memset(answers, 0, sizeof answers);
  for (int i = 0; i < REQUESTS; i++) {
    int32_t prompt[SEQ];
    RequestOptions o = request_of(i, prompt, (int)source.config.vocab);
    SUCCEED(engine_submit(engine, &o, &number[i], &error));
    at[number[i]] = i;
  }
  while (!engine_is_idle(engine)) {
    EngineEvent e;
    SUCCEED(engine_tick(engine, &error));
    if (ticks++ % 3 == 2 && count < REQUESTS / 2) engine_cancel(engine, number[ticks * 5 % REQUESTS]);
    while (engine_poll(engine, &e)) {
      int i = at[e.request];
      assert_int_equal(ends[i], 0);
      if (e.id < 0) ends[i] = (int)e.end, count += cancelled[i] = e.end == REQUEST_CANCELLED;
      else answers[i].ids[answers[i].count++] = e.id;
    }
  }
  assert_true(count > 1);
  for (int i = 0; i < REQUESTS; i++) {
    assert_true(cancelled[i] ? answers[i].count < MOST : answers[i].count == alone[i].count);
    assert_memory_equal(answers[i].ids, alone[i].ids, sizeof(int32_t) * (size_t)answers[i].count);
  }
  engine_close(engine); // ticks of who was cancelled may be under way
  model_source_close(&source);
}

static void cancelled_requests_harm_nobody(void **state) {
  check_cancelled("");
  check_cancelled("mesh.pp=2");
  check_cancelled("mesh.pp=2 infer.in_flight=4");
}

// ---- caches in a narrower dtype

// The first token of each request: where it is the same one, its log-probability is off by rounding, and by no more.
static void check_narrow_cache(const char *name, const char *keys, const char *narrow, double most) {
  static Answer wide[REQUESTS], narrowed[REQUESTS];
  ModelSource source;
  double worst = 0;
  int compared = 0;
  char *both = xformat("%s %s", keys, narrow);
  source_of(name, &source);
  ask_alone(&source, keys, wide);
  ask_alone(&source, both, narrowed);
  for (int i = 0; i < REQUESTS; i++) {
    if (wide[i].ids[0] != narrowed[i].ids[0]) continue;
    worst = fmax(worst, fabs(wide[i].logprobs[0] - narrowed[i].logprobs[0]));
    compared++;
  }
  if (!(worst > 0 && worst <= most)) fail_msg("%s %s: first tokens are off by %.3g of %.3g", name, both, worst, most);
  assert_true(compared > REQUESTS / 2);
  check_model(name, both, 1);
  model_source_close(&source);
  free(both);
}

static void narrow_caches_round_keys_and_values(void **state) {
  check_narrow_cache("llama-tied", "", "infer.kv_dtype=bf16", 0x1p-8);
  check_narrow_cache("llama-tied", "precision=fp64", "infer.kv_dtype=fp32", 0x1p-23);
  if (test_tier() > 1) check_narrow_cache("qwen3_moe-untied", "precision=fp64", "infer.kv_dtype=bf16", 0x1p-8);
}

// ---- prompts with scores

// A text that was drawn alone, as a prompt: its tokens have the log-probabilities that they were drawn with.
static void check_scores(const char *keys, int pages, const char *infer) {
  static Answer alone[REQUESTS];
  int scored[REQUESTS] = {0}, compared = 0;
  int64_t number[REQUESTS], prompts[REQUESTS];
  ModelSource source;
  source_of("llama-tied", &source);
  ask_alone(&source, keys, alone);
  char *memory = kv_memory(&source, keys, 4, pages), *all = xformat("%s%s", infer, memory);
  Engine *engine = open_engine(&source, keys, all);
  free(all);
  free(memory);
  for (int i = 0; i < REQUESTS; i++) {
    int32_t prompt[SEQ];
    RequestOptions r = request_of(i, prompt, (int)source.config.vocab);
    prompts[i] = r.count;
    for (int k = 0; i % 4 && k < alone[i].count && r.count < SEQ; k++) prompt[r.count++] = alone[i].ids[k];
    r.score = i % 4 > 0;
    SUCCEED(engine_submit(engine, &r, &number[i], &error));
  }
  while (!engine_is_idle(engine)) {
    EngineEvent e;
    SUCCEED(engine_tick(engine, &error));
    while (engine_poll(engine, &e)) {
      if (!e.scored) continue;
      int i = 0;
      while (number[i] != e.request) i++;
      int64_t k = ++scored[i] - prompts[i];
      if (k < 0) continue;
      assert_int_equal(e.id, alone[i].ids[k]);
      if (e.logprob != alone[i].logprobs[k] || memcmp(e.top_logprobs, alone[i].top[k], sizeof alone[i].top[k]) != 0)
        fail_msg("%s: request %d, token %d: %.17g, drawn with %.17g", keys, i, (int)k, e.logprob,
                 alone[i].logprobs[k]);
      compared++;
    }
  }
  for (int i = 0; i < REQUESTS; i++) assert_true(!scored[i] == !(i % 4));
  assert_true(compared > 40);
  engine_close(engine);
  model_source_close(&source);
}

static void scores_are_what_was_drawn(void **state) {
  static const char preempted[] = "infer.requests=5 infer.tokens=16 infer.page=4 infer.speculate=3";
  check_scores("", 14, preempted);
  check_scores("", 0, "infer.requests=8 infer.tokens=8 infer.page=4");
  check_scores("", 0, "infer.requests=1 infer.tokens=7");
  check_scores("mesh.dp=2", 14, preempted);
}

// ---- rules

// Allows ids that differ from the last one by at most 9, and knows what was drawn.
typedef struct Near { RequestRules rules; int vocab, count; int32_t ids[MOST]; uint8_t allowed[1024]; } Near;

static const uint8_t *near_allowed(void *context) {
  Near *near = context;
  int last = near->count ? near->ids[near->count - 1] : near->vocab / 2;
  for (int i = 0; i < near->vocab; i++) near->allowed[i] = abs(i - last) <= 9 && i != last;
  return near->allowed;
}
static void near_took(void *context, int32_t id) {
  Near *near = context;
  near->ids[near->count++] = id;
}

static void ask_near(const ModelSource *source, const char *infer, Near *near) {
  Engine *engine = open_engine(source, "", infer);
  Answer answers[REQUESTS] = {0};
  int request_at[REQUESTS] = {0};
  for (int i = 0; i < REQUESTS; i++) {
    int32_t prompt[SEQ];
    int64_t number;
    near[i] = (Near){.rules = {&near[i], near_allowed, near_took}, .vocab = (int)source->config.vocab};
    RequestOptions o = request_of(i, prompt, near[i].vocab);
    o.rules = &near[i].rules;
    SUCCEED(engine_submit(engine, &o, &number, &error));
    request_at[number] = i;
  }
  while (!engine_is_idle(engine)) {
    SUCCEED(engine_tick(engine, &error));
    read_events(engine, request_at, answers);
  }
  guessed += engine_times(engine).guessed;
  engine_close(engine);
  for (int i = 0; i < REQUESTS; i++) {
    assert_int_equal(near[i].count, answers[i].count);
    assert_memory_equal(near[i].ids, answers[i].ids, sizeof(int32_t) * (size_t)near[i].count);
    for (int k = 1; k < near[i].count; k++) assert_in_range(abs(near[i].ids[k] - near[i].ids[k - 1]), 1, 9);
  }
}

static void rules_hold_token_by_token(void **state) {
  static Near alone[REQUESTS], many[REQUESTS];
  ModelSource source;
  source_of("llama-tied", &source);
  assert_in_range(source.config.vocab, 20, 1024);
  ask_near(&source, "infer.requests=1", alone);
  int64_t before = guessed;
  char *memory = kv_memory(&source, "", 4, 14),
       *infer = xformat("infer.requests=5 infer.page=4 infer.speculate=3%s", memory);
  ask_near(&source, infer, many);
  assert_true(guessed > before);
  for (int i = 0; i < REQUESTS; i++) {
    assert_int_equal(alone[i].count, many[i].count);
    assert_memory_equal(alone[i].ids, many[i].ids, sizeof(int32_t) * (size_t)alone[i].count);
  }
  ask_near(&source, "mesh.pp=2 infer.in_flight=3 infer.requests=7 infer.page=4 infer.speculate=2", many);
  for (int i = 0; i < REQUESTS; i++)
    assert_memory_equal(alone[i].ids, many[i].ids, sizeof(int32_t) * (size_t)alone[i].count);
  free(memory);
  free(infer);
  model_source_close(&source);
}

// ---- as an evaluation has it

typedef struct Line { int32_t tokens[SEQ], targets[SEQ], positions[SEQ], documents[SEQ]; double loss; } Line;

static int evaluate(Rank *r, void *line, Error *e) {
  Line *l = line;
  StepInput of[INPUT_COUNT] = {[INPUT_TOKENS] = {l->tokens},       [INPUT_POSITIONS] = {l->positions},
                               [INPUT_DOCUMENTS] = {l->documents}, [INPUT_TARGETS] = {l->targets},
                               [INPUT_STEP_TARGETS] = {l->targets}};
  int code = rank_run(r, &role_evaluate, &(StepInputs){.of = of, .count = INPUT_COUNT}, e);
  l->loss = state_scalar(r->state, KNOWN_LOSS);
  return code;
}

// Each token that a request has drawn within its window: minus its log-probability is the loss of the text so far.
static void check_against_evaluation(const char *name, const char *keys) {
  static Answer alone[REQUESTS];
  ModelSource source;
  Inference model;
  Launch launch = {.ranks = 1};
  char *words[] = {(char *)(uintptr_t)keys};
  source_of(name, &source);
  ask_alone(&source, keys, alone);
  const InferenceOptions options = {.mode = MODEL_EVALUATE, .command = "test", .seq = SEQ, .rows = 1, .threads = 2,
                                    .key_count = *keys != 0, .keys = words};
  SUCCEED(inference_open(&model, &source, &options, &launch, &error));
  int compared = 0;
  for (int i = 0; i < REQUESTS; i++) {
    int32_t prompt[SEQ];
    RequestOptions o = request_of(i, prompt, (int)source.config.vocab);
    for (int k = 0; k < alone[i].count && o.count + k <= SEQ; k++, compared++) {
      Line line = {.documents = {0}};
      int n = (int)o.count + k;
      for (int t = 0; t < SEQ; t++) {
        line.tokens[t] = t < o.count ? prompt[t] : t < n ? alone[i].ids[t - o.count] : 0;
        line.targets[t] = t == n - 1 ? alone[i].ids[k] : -1;
        line.positions[t] = t < n ? t : t - n;
        line.documents[t] = t >= n;
      }
      SUCCEED(session_run(model.session, evaluate, &line, &error));
      if (line.loss != -alone[i].logprobs[k])
        fail_msg("%s %s: request %d, token %d: %.17g, evaluated %.17g", name, keys, i, k, -alone[i].logprobs[k],
                 line.loss);
    }
  }
  assert_true(compared > 60);
  inference_close(&model);
  model_source_close(&source);
}

static void as_an_evaluation_has_it(void **state) {
  check_against_evaluation("llama-tied", "");
  check_against_evaluation("gpt2-untied", "");
  check_against_evaluation("qwen3_moe-untied", "");
  check_against_evaluation("llama-tied", "precision=fp16");
  check_against_evaluation("llama-tied", "precision=bf16");
  check_against_evaluation("gpt2-untied", "precision=bf16");
}

// ---- wrong input

static void refused(Engine *engine, RequestOptions o, const char *sentence) {
  Error e = {0};
  int64_t number;
  assert_int_equal(engine_submit(engine, &o, &number, &e), PLAIT_BAD_INPUT);
  assert_string_equal(e.message, sentence);
}

static void wrong_requests_change_nothing(void **state) {
  ModelSource source;
  source_of("llama-tied", &source);
  Engine *engine = open_engine(&source, "", "infer.requests=2");
  int32_t ids[] = {1, 1000};
  const SampleBias bias = {-3, 1};
  refused(engine, (RequestOptions){.prompt = ids, .most = 1, .logprobs = -1}, "the prompt has no tokens");
  refused(engine, (RequestOptions){.prompt = ids, .count = 1, .logprobs = -1},
          "max_tokens is 0; allowed: 1 to 2147483647");
  RequestOptions o = {.prompt = ids, .count = 1, .most = 5, .logprobs = -1};
  o.sample.temperature = -1;
  refused(engine, o, "temperature is -1; allowed: 0 to 100");
  o.sample = (SampleOptions){.top_p = 1.5};
  refused(engine, o, "top_p is 1.5; allowed: above 0, to 1");
  o.sample = (SampleOptions){.min_p = NAN};
  refused(engine, o, "min_p is nan; allowed: 0 to 1");
  o.sample = (SampleOptions){.bias = &bias, .biases = 1};
  char *sentence = xformat("logit_bias names token -3; allowed: 0 to %d, with a finite number",
                           (int)source.config.vocab - 1);
  refused(engine, o, sentence);
  free(sentence);
  o.sample = (SampleOptions){0};
  o.count = 2;
  sentence = xformat("token 1000 is not in the model's vocabulary of %d: the tokenizer belongs to another model",
                     (int)source.config.vocab);
  refused(engine, o, sentence);
  free(sentence);
  assert_true(engine_is_idle(engine));
  o.count = 1;
  int64_t kept, cancelled;
  SUCCEED(engine_submit(engine, &o, &cancelled, &error));
  SUCCEED(engine_submit(engine, &o, &kept, &error));
  SUCCEED(engine_tick(engine, &error));
  engine_cancel(engine, cancelled);
  engine_cancel(engine, 77);
  int tokens[2] = {0}, ends[2] = {0};
  while (!engine_is_idle(engine)) {
    EngineEvent e;
    SUCCEED(engine_tick(engine, &error));
    while (engine_poll(engine, &e))
      if (e.id >= 0) tokens[e.request == kept]++;
      else ends[e.request == kept] = (int)e.end;
  }
  assert_true(tokens[0] == 1 && tokens[1] == 5 && ends[0] == REQUEST_CANCELLED && ends[1] == REQUEST_IS_FULL);
  engine_close(engine);
  model_source_close(&source);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_in_any_batch),
                                     cmocka_unit_test(cancelled_requests_harm_nobody),
                                     cmocka_unit_test(narrow_caches_round_keys_and_values),
                                     cmocka_unit_test(scores_are_what_was_drawn),
                                     cmocka_unit_test(rules_hold_token_by_token),
                                     cmocka_unit_test(as_an_evaluation_has_it),
                                     cmocka_unit_test(wrong_requests_change_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
