// tier 1 2; rooms compile device infer op program runtime; numbers
// The whole machinery on one rank (compile, Program, State, executor, fast kernels, Job and Rank) against PyTorch:
// logits of the first batch, and loss and gradient norm over 20 steps of AdamW for each golden folder
// (scripts/golden_models.py) and of Lion for GPT-2 (scripts/golden_lion.py).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "golden.h"
#include "infer/engine.h"
#include "runtime/session.h"
#include "runtime/state_tensors.h"

enum { THREADS = 2 };

typedef struct Golden {
  ModelSource source;
  Safetensors data;     // batches and logits
  Safetensors training; // losses, norms, weights after it
} Golden;

// `training`: the file of that run.
static void golden_open(Golden *g, const char *name, const char *training) {
  char *folder = xformat("%s/model/golden/%s", TESTS_FOLDER, name), *file = xformat("%s/golden.safetensors", folder),
       *run = xformat("%s/%s.safetensors", folder, training);
  SUCCEED(model_source_open(&g->source, folder, &error));
  SUCCEED(safetensors_open(&g->data, file, &error));
  SUCCEED(safetensors_open(&g->training, run, &error));
  free(folder);
  free(file);
  free(run);
}

static void golden_close(Golden *golden) {
  safetensors_close(&golden->training);
  safetensors_close(&golden->data);
  model_source_close(&golden->source);
}

static const void *golden_find(const Golden *golden, const char *name) {
  const SafetensorsEntry *entry = safetensors_find(&golden->data, name);
  return entry ? entry->data : NULL;
}

// One step's batch, aligned.
static int32_t *batch_of(const Golden *golden, const char *name, int step) {
  int32_t *copy = xcalloc(BATCH * SEQ, sizeof *copy);
  memcpy(copy, (const int32_t *)golden_find(golden, name) + (size_t)step * BATCH * SEQ, sizeof *copy * BATCH * SEQ);
  return copy;
}

// ---- logits --------------------------------------------------------------------------------------------------------

// Documents of a row are requests, which lie in pages of the cache in no order. A tick has the tokens [from, to).
enum { REQUESTS = 8, PAGE = 4, PAGES = SEQ / PAGE };
typedef struct Ticks {
  const int32_t *tokens, *positions, *documents; // (BATCH, SEQ)
  int from, to;
  int64_t rows; // of the batch; those from BATCH on have no tokens
  int logits;   // wanted of each row, the last of a tick: 1, or SEQ for all
  Dtype dtype;
  void *out;    // (rows, logits, vocab)
} Ticks;

static int32_t page_of(int request, int page) { return (int32_t)((request * PAGES + page) * 5 % (REQUESTS * PAGES)); }

static int run_tick(Rank *r, void *ticks, Error *e) {
  const Ticks *t = ticks;
  int one = t->to - t->from == 1, length = one ? 1 : SEQ, rows = (int)(t->rows / r->data_ranks),
      first = (int)r->data_rank * rows;
  int32_t in[INPUT_COUNT][BATCH * SEQ + BATCH * REQUESTS * PAGES];
  StepInput of[INPUT_COUNT] = {{0}};
  for (int b = 0; b < rows; b++) {
    for (int i = 0; i < length; i++) {
      int at = b * length + i, from = (first + b) * SEQ + t->from + i, there = t->from + i < t->to && first + b < BATCH;
      int request = there ? t->documents[from] : -1, position = there ? t->positions[from] : 0;
      in[INPUT_TOKENS][at] = there ? t->tokens[from] : 0;
      in[INPUT_POSITIONS][at] = position;
      in[INPUT_REQUESTS][at] = request;
      in[INPUT_CACHE_ROWS][at] = there ? page_of(request, position / PAGE) * PAGE + position % PAGE : -1;
    }
    for (int i = 0; i < REQUESTS * PAGES; i++)
      in[INPUT_PAGES][b * REQUESTS * PAGES + i] = page_of(i / PAGES, i % PAGES);
    for (int i = 0; i < t->logits; i++)
      in[INPUT_INDEX][b * t->logits + i] = t->logits == 1 ? t->to - t->from - 1 : i < t->to - t->from ? i : -1;
  }
  for (int id = 0; id < INPUT_COUNT; id++) of[id].base = in[id];
  int code = rank_run_tick(r, length, &(StepInputs){.of = of, .count = INPUT_COUNT}, e);
  return code ? code : inference_output(r, KNOWN_LOGITS, t->dtype, t->out, e);
}

typedef struct Off { double worst, largest; } Off;

static void compare_logits(const float *got, const float *expected, int64_t vocab, int s, Off *off) {
  for (int b = 0; b < BATCH; b++)
    for (int v = 0; v < vocab; v++) {
      float wanted;
      memcpy(&wanted, expected + ((size_t)b * SEQ + (size_t)s) * (size_t)vocab + v, sizeof wanted);
      double by = fabs((double)got[b * vocab + v] - (double)wanted);
      off->worst = by <= off->worst ? off->worst : by; // a NaN stays
      off->largest = fmax(off->largest, fabs((double)wanted));
    }
}

static void open_model(const Golden *golden, const char *const *keys, int logits, Launch *launch, Inference *model) {
  InferenceOptions options = {.mode = MODEL_GENERATE,
                              .command = "test",
                              .seq = SEQ,
                              .context = SEQ,
                              .page = PAGE,
                              .requests = REQUESTS,
                              .logits = logits,
                              .rows = BATCH,
                              .threads = THREADS,
                              .keys = (char **)(uintptr_t)keys};
  while (keys[options.key_count]) options.key_count++;
  SUCCEED(inference_open(model, &golden->source, &options, launch, &error));
  assert_true(inference_rows(model) >= BATCH);
}

// An unmodified Hugging Face folder on one rank, or on the mesh that the keys say: PyTorch's logits, and the
// same bits for chunks of any size. The cache of the chunks before, of another size, is written again.
static void check_logits(const char *name, const char *const *keys) {
  static const int chunks[] = {1, SEQ, 7};
  Golden golden;
  Inference model;
  Launch launch = {.ranks = 1};
  golden_open(&golden, name, "golden");
  open_model(&golden, keys, 1, &launch, &model);
  int32_t *tokens = batch_of(&golden, "tokens", 0), *positions = batch_of(&golden, "positions", 0),
          *documents = batch_of(&golden, "documents", 0);
  int64_t vocab = golden.source.config.vocab;
  Ticks ticks = {tokens, positions, documents, .rows = BATCH, .logits = 1, .dtype = DTYPE_F32,
                 .out = xcalloc((size_t)(BATCH * vocab), sizeof(float))};
  size_t count = (size_t)(BATCH * vocab);
  float *alone = xcalloc(SEQ * count, sizeof *alone); // of each position, when it is the only one of a tick
  Off off = {0};
  for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
    for (ticks.from = 0; ticks.from < SEQ; ticks.from = ticks.to) {
      ticks.to = ticks.from + chunks[c] < SEQ ? ticks.from + chunks[c] : SEQ;
      SUCCEED(session_run(model.session, run_tick, &ticks, &error));
      float *same = alone + (size_t)(ticks.to - 1) * count;
      if (chunks[c] == 1) memcpy(same, ticks.out, count * sizeof *same);
      else assert_memory_equal(same, ticks.out, count * sizeof *same);
      compare_logits(ticks.out, golden_find(&golden, "logits"), vocab, ticks.to - 1, &off);
    }
  print_message("%s on %d ranks: logits up to %.3g, off by at most %.2g\n", name, session_ranks(model.session),
                off.largest, off.worst);
  assert_true(off.worst < 1e-4 && off.largest > 0.1);
  free(tokens);
  free(positions);
  free(documents);
  free(ticks.out);
  free(alone);
  inference_close(&model);
  golden_close(&golden);
}

// The logits of all positions in fp64 (SEQ, BATCH, vocab), of ticks of `chunk` tokens.
static void all_logits(const Golden *golden, const char *const *keys, int chunk, double *out) {
  Inference model;
  Launch launch = {.ranks = 1};
  size_t vocab = (size_t)golden->source.config.vocab;
  open_model(golden, keys, SEQ, &launch, &model);
  int32_t *tokens = batch_of(golden, "tokens", 0), *positions = batch_of(golden, "positions", 0),
          *documents = batch_of(golden, "documents", 0);
  double *tick = xcalloc((size_t)inference_rows(&model) * SEQ * vocab, sizeof *tick);
  Ticks t = {tokens,        positions,          documents,  .rows = inference_rows(&model),
             .logits = SEQ, .dtype = DTYPE_F64, .out = tick};
  for (t.from = 0; t.from < SEQ; t.from = t.to) {
    t.to = t.from + chunk < SEQ ? t.from + chunk : SEQ;
    SUCCEED(session_run(model.session, run_tick, &t, &error));
    for (size_t b = 0; b < BATCH; b++)
      for (int i = t.from; i < t.to; i++)
        memcpy(out + ((size_t)i * BATCH + b) * vocab, tick + (b * SEQ + (size_t)(i - t.from)) * vocab,
               vocab * sizeof *out);
  }
  free(tokens);
  free(positions);
  free(documents);
  free(tick);
  inference_close(&model);
}

// On every mesh, in chunks, the logits are those of one rank that computes the whole text at once.
static void check_meshes(const char *name, const char *const (*keys)[5], int count) {
  Golden golden;
  golden_open(&golden, name, "golden");
  size_t n = (size_t)(SEQ * BATCH * golden.source.config.vocab);
  double *whole = xcalloc(n, sizeof *whole), *parts = xcalloc(n, sizeof *parts), worst = 0, largest = 0;
  all_logits(&golden, (const char *const[]){"precision=fp64", NULL}, SEQ, whole);
  for (int k = 0; k < count; k++) {
    all_logits(&golden, keys[k], (int[]){1, 7, 3}[k % 3], parts);
    for (size_t i = 0; i < n; i++) {
      double by = fabs(parts[i] - whole[i]);
      if (!(by <= 1e-10)) fail_msg("%s %s %s: logit %zu is %.17g, %.17g at once on one rank", name, keys[k][1],
                                   keys[k][2] ? keys[k][2] : "", i, parts[i], whole[i]);
      worst = fmax(worst, by);
      largest = fmax(largest, fabs(whole[i]));
    }
  }
  print_message("%s: %d meshes, logits up to %.3g, off by at most %.2g\n", name, count, largest, worst);
  assert_true(largest > 0.1);
  free(whole);
  free(parts);
  golden_close(&golden);
}

static void test_meshes_in_fp64(void **state) {
  static const char *const llama[][5] = {{"precision=fp64", "mesh.tp=4"}, // more than key-value heads
                                         {"precision=fp64", "mesh.pp=2", "mesh.tp=2"},
                                         {"precision=fp64", "mesh.dp=3", "parallel.zero=3"},
                                         {"precision=fp64", "mesh.dp=3", "mesh.tp=2", "mesh.pp=2"},
                                         {"precision=fp64", "mesh.tp=2", "layout.heads=[]"}};
  static const char *const experts[][5] = {{"precision=fp64", "mesh.dp=7", "parallel.ep=7"},
                                           {"precision=fp64", "mesh.tp=2"},
                                           {"precision=fp64", "mesh.dp=3", "mesh.tp=2", "mesh.pp=2"},
                                           {"precision=fp64", "mesh.pp=2"}};
  check_meshes("llama-tied", llama, sizeof llama / sizeof *llama);
  check_meshes("qwen3_moe-untied", experts, sizeof experts / sizeof *experts);
}

static void test_logits(void **state) {
  static const char *const keys[][4] = {{NULL},
                                        {"mesh.pp=2", NULL},
                                        {"mesh.dp=3", "parallel.zero=3", NULL},
                                        {"mesh.tp=2", "layout.heads=[]", NULL},
                                        {"mesh.tp=2", "mesh.pp=2", "layout.heads=[]", NULL},
                                        {"precision=fp64", NULL}};
  for (int i = 0; i < CASES; i = next_case(i))
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) check_logits(cases[i], keys[k]);
}

// The first token that an engine draws, after a prompt shorter than the window: unpadded positions, one document.
static void check_engine(const char *name) {
  Golden golden;
  Engine *engine;
  golden_open(&golden, name, "golden");
  Launch launch = {.ranks = 1};
  char *keys[] = {xformat("infer.context=%d", SEQ), xstrdup("infer.requests=1"), xstrdup("infer.tokens=5")};
  const EngineOptions options = {.command = "test", .threads = THREADS, .key_count = 3, .keys = keys};
  SUCCEED(engine_open(&engine, &golden.source, &options, &launch, &error));
  for (int i = 0; i < 3; i++) free(keys[i]);
  int32_t *tokens = batch_of(&golden, "tokens", 0), *documents = batch_of(&golden, "documents", 0);
  int n = 0, drawn = 0;
  while (n < SEQ - 3 && documents[n] == 0) n++; // the first document: later ones of ragged cases are cut off
  RequestOptions request = {.prompt = tokens, .count = n, .most = 2 * SEQ, .logprobs = 1};
  int64_t number, vocab = golden.source.config.vocab;
  SUCCEED(engine_submit(engine, &request, &number, &error));
  const float *expected = (const float *)golden_find(&golden, "logits") + (size_t)(n - 1) * (size_t)vocab;
  int best = 0;
  double sum = 0;
  for (int v = 0; v < vocab; v++) {
    sum += exp((double)expected[v]);
    if (expected[v] > expected[best]) best = v;
  }
  while (!engine_is_idle(engine)) { // where the window is full its later half is kept
    EngineEvent e;
    SUCCEED(engine_tick(engine, &error));
    while (engine_poll(engine, &e)) {
      if (e.id < 0) continue;
      if (!drawn++) {
        assert_int_equal(e.id, best);
        assert_true(fabs(e.logprob - ((double)expected[best] - log(sum))) < 1e-4);
      }
      assert_true(e.id < vocab && e.top == 1 && e.top_ids[0] == e.id && e.top_logprobs[0] == e.logprob);
    }
  }
  assert_int_equal(drawn, 2 * SEQ);
  free(tokens);
  free(documents);
  engine_close(engine);
  golden_close(&golden);
}

static void test_engine(void **state) {
  for (int i = 0; i < CASES; i = next_case(i)) check_engine(cases[i]);
}

// ---- training ------------------------------------------------------------------------------------------------------

static int load_weights(Rank *r, void *golden, Error *e) {
  return model_source_load(&((Golden *)golden)->source, r->state, NULL, e);
}

// What the loader would give, and the learning rate.
static void run_step(Rank *r, const Golden *golden, int step, double rate) {
  StepInput of[INPUT_COUNT] = {[INPUT_LEARNING_RATE] = {&rate}};
  int32_t *data[GOLDEN_INPUTS];
  int64_t stride = (int64_t)sizeof(int32_t) * BATCH * SEQ / job_train(r->job)->shares.microbatches;
  for (int k = 0; k < GOLDEN_INPUTS; k++) {
    KnownInput known = golden_input[k].known;
    data[k] = batch_of(golden, golden_input[k].name, step);
    of[known] = (StepInput){data[k], known == INPUT_STEP_TARGETS ? 0 : stride, 0};
  }
  SUCCEED(executor_run(r->train, (uint64_t)step + 1, &(StepInputs){.of = of, .count = INPUT_COUNT}, 0, &error));
  for (int k = 0; k < GOLDEN_INPUTS; k++) free(data[k]);
}

// For huggingface_save: the weights after training.
static int read_variable(void *context, const char *name, const Box *part, float *out, Error *error) {
  const State *s = context;
  int id = graph_find_variable(s->program->graph, name);
  assert_true(id >= 0);
  const Variable *v = &s->program->graph->variable.data[id];
  int64_t elements = box_elements(part); // of an expert, or of all
  ShardBoxes b = state_boxes(s, id, -1);
  double *values = xcalloc((size_t)elements, sizeof *values); // of any dtype
  assert_true(shard_next(&b));
  assert_int_equal(box_elements(&b.box), shape_elements(&v->shape));
  state_read(s, id, -1, part, values);
  for (int64_t i = 0; i < elements; i++) out[i] = (float)dtype_load(values, v->dtype, i);
  free(values);
  return PLAIT_OK;
}

// What PyTorch trained with.
typedef struct Training { const char *file; double rate; StepUpdate update; } Training;
static const Training adamw = {
    "golden", 1e-3, {.optimizer = OP_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1}};
static const Training lion = {"lion", 1e-4, {.optimizer = OP_LION, .beta1 = 0.9, .beta2 = 0.99, .decay = 1, .clip = 1}};

static void train(const char *name, const Training *training, Dtype dtype, int64_t micro, const char *loss_key,
                  const char *norm_key, double tolerance) {
  Golden golden;
  golden_open(&golden, name, training->file);
  const SafetensorsEntry *losses = safetensors_find(&golden.training, loss_key),
                         *norms = safetensors_find(&golden.training, norm_key);
  if (!losses) return golden_close(&golden);
  CompileOptions options = {.device = device_cpu(),
                            .mode = MODEL_TRAIN,
                            .step = {.parallel = parallel_default(1, 1, 1, 0),
                                     .batch.length = {[DIM_SEQ] = SEQ},
                                     .precision = dtype,
                                     .update = training->update}};
  options.parallel = parallel_create(&options.step, &(StepModel){.size = {[DIM_KV_HEADS] = 1}});
  compile_set_batch(&options, BATCH, micro);
  Job *job;
  Session *session;
  JobOptions run = {.threads = THREADS, .seed = 1};
  SUCCEED(job_create(&golden.source.config, &options, &run, &job, &error));
  SUCCEED(session_open(&(SessionOptions){.ranks = 1}, &session, &error));
  SUCCEED(session_load(session, job, &error));
  SUCCEED(session_run(session, load_weights, &golden, &error));
  Rank *r = session_rank(session, 0);
  double worst = 0;
  for (int step = 0; step < STEPS; step++) {
    run_step(r, &golden, step, training->rate);
    double got[2] = {state_scalar(r->state, KNOWN_LOSS), state_scalar(r->state, KNOWN_GRAD_NORM)};
    worst = fmax(worst, golden_step(name, step, got, losses, norms, tolerance));
  }
  double weights = golden_after((HuggingfaceSave){.read = read_variable, .context = r->state}, &golden.source.config,
                                &golden.training);
  print_message("%s, %s, %s, micro %d: loss and norm within %.2g, weights within %.2g\n", name, training->file,
                dtype_name(dtype), (int)micro, worst, weights);
  assert_true(weights < 0.1 * training->rate); // a step moves a weight by up to the learning rate
  session_close(session);
  job_destroy(job);
  golden_close(&golden);
}

static void test_training(void **state) {
  for (int i = 0; i < CASES; i = next_case(i)) train(cases[i], &adamw, DTYPE_F32, BATCH, "loss", "grad_norm", 1e-4);
}

static void test_accumulation(void **state) { // three microbatches of one sequence: the same step
  for (int i = 0; i < CASES; i = next_case(i)) train(cases[i], &adamw, DTYPE_F32, 1, "loss", "grad_norm", 1e-4);
}

static void test_training_fp64(void **state) { // PyTorch clips by norm + 1e-6
  for (int i = 0; i < CASES; i = next_case(i)) train(cases[i], &adamw, DTYPE_F64, 1, "loss64", "grad_norm64", 1e-7);
}

static void test_lion(void **state) {
  for (int i = 0; i < 2; i++) train(cases[i], &lion, DTYPE_F64, 1, "loss64", "grad_norm64", 1e-7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_meshes_in_fp64),
                                     cmocka_unit_test(test_engine),
                                     cmocka_unit_test(test_training), cmocka_unit_test(test_accumulation),
                                     cmocka_unit_test(test_training_fp64), cmocka_unit_test(test_lion)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
