// tier 1 2 3; rooms comm program runtime; numbers
// What the plan says that each rank sends and receives over each axis goes over the wire, to the byte, where ranks are
// processes: in the layouts of the parity matrix, of a model so small that sums take one hop, and of one with weights
// of 64 KiB and more, whose reductions go by ranges. A sample of the matrix under ctest, all with PARITY_ALL=1.
#include "corpora.h"
#include "counted_bytes.h"
#include "matrix.h"
#include "tier.h"
#include "wire_in_memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { STEPS = 2, MOST_AHEAD = 16 };

typedef struct Run {
  const ParityCase *c;
  Job *job;
  LoaderConfig data;
  int steps;
  pthread_mutex_t lock;
  double sum;
  Error *error; // the first
  int code;
} Run;

static void fail_once(Run *run, int code, const char *text) {
  pthread_mutex_lock(&run->lock);
  if (!run->code) {
    error_set(run->error, PLAIT_FAILED, "%s", text);
    run->code = code;
  }
  pthread_mutex_unlock(&run->lock);
}

static int task(Rank *r, void *context, Error *error) {
  Run *run = context;
  Counted before[COUNTED_MOST], after[COUNTED_MOST];
  char text[256];
  double rates[MOST_AHEAD + 1];
  StepResult step;
  int code = rank_load(r, run->job, error);
  if (code) return code;
  rank_initialise(r);
  code = rank_open_data(r, &run->data, 0, error);
  if (code) return code;
  CHECK(rank_most_ahead(r) <= MOST_AHEAD);
  for (int i = 0; i <= MOST_AHEAD; i++) rates[i] = 1e-3;
  int n = counted_of(r, before);
  for (int i = 0; i < run->steps && !code; i++) {
    int most = rank_most_ahead(r), left = run->steps - i - 1;
    code = rank_step_on(r, i + 1, rates, left < most ? left : most, &step, error);
  }
  if (!code) code = rank_barrier(r, error);
  CHECK(code || counted_of(r, after) == n);
  for (int i = 0; i < n && !code; i++) after[i].sent -= before[i].sent, after[i].received -= before[i].received;
  if (code) return code;
  if (counted_differ(r, after, n, run->steps, text, sizeof text)) fail_once(run, 1, text);
  pthread_mutex_lock(&run->lock);
  for (int i = 0; i < n; i++) run->sum += after[i].sent / run->steps;
  pthread_mutex_unlock(&run->lock);
  return PLAIT_OK;
}

static void one_process(PlaitComm *comm, int rank, void *context) {
  Run *run = context;
  Session *session = NULL;
  Error error = {0};
  int code = session_open(&(SessionOptions){.comm = comm}, &session, &error);
  if (!code) code = session_run(session, task, run, &error);
  if (code) fail_once(run, code, error.message);
  if (session) session_close(session);
}

// Trains the case for some steps, its ranks as processes, and compares. 0: as planned; 1: not, and `error` says where
// first; negative: it did not run. *sum: bytes sent by all ranks in a step.
static int bytes_differ(const ParityCase *c, double *sum, Error *error) {
  ModelConfig config = {0};
  Run run = {.c = c, .steps = STEPS, .lock = PTHREAD_MUTEX_INITIALIZER, .error = error};
  int code = parity_config(c, &config, error);
  if (!code) code = parity_job(c, &run.job, error);
  DataSource source = {corpus_for(c->model, CORPUS_RAGGED), 1};
  run.data = (LoaderConfig){.sources = &source,
                            .source_count = 1,
                            .seq_len = c->seq ? c->seq : PARITY_SEQ,
                            .document_mask = 1,
                            .vocab_size = (int)config.vocab,
                            .seed = 99,
                            .prefetch_steps = MOST_AHEAD};
  if (!code) hub_run(run.job->options.parallel.mesh.ranks, 0, one_process, &run);
  *sum = run.sum;
  job_destroy(run.job);
  model_config_free(&config);
  return code ? code : run.code;
}

// Heads and layers stay: what is cut is cut alike.
static void widen(ModelConfig *config) {
  enum { TIMES = 8 };
  config->embed *= TIMES;
  config->head_dim *= TIMES;
  config->ffn *= TIMES;
  config->expert_ffn *= TIMES;
  config->shared_ffn *= TIMES;
  model_measure(config);
}

static int hold(const MatrixLayout *layout, int model, MatrixLeg leg, int wide) {
  MatrixLayout l = matrix_fitted(layout, matrix_model(layout, model), leg);
  ParityCase c = matrix_case(&l, model, leg);
  c.poison = 0;
  if (wide) c.config = widen, c.bucket_bytes = 1 << 20;
  if (!parity_wanted(&c)) return 0;
  Error error = {0};
  double sum = 0;
  int wrong = bytes_differ(&c, &sum, &error);
  if (getenv("PARITY_LOUD")) printf("%-12s %s%s: %.0f bytes\n", c.model, l.name, wide ? ", wide" : "", sum);
  if (wrong) printf("%-12s %s%s: %s  WRONG\n", c.model, l.name, wide ? ", wide" : "", error.message);
  return wrong != 0;
}

static void sample(int wide) {
  const char *all = getenv("PARITY_ALL"), *size = getenv("PARITY_SAMPLE");
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), wanted = count, wrong = 0, runs = 0, tier = test_tier();
  const int usual = tier < 2 ? 3 : tier < 3 ? 15 : 30;
  if (!all || !strcmp(all, "0")) wanted = matrix_sample(layout, count, size ? atoi(size) : usual, matrix_seed());
  for (int i = 0; i < wanted; i++) {
    if (!matrix_mine(i)) continue;
    runs++;
    wrong += hold(&layout[i], i % MATRIX_MODELS, i % 2 ? MATRIX_BF16 : MATRIX_FP32, wide);
  }
  printf("bytes: %d of %d layouts, %d not as planned\n", runs, count, wrong);
  free(layout);
  assert_int_equal(wrong, 0);
}

static void of_small_models(void **state) { sample(0); }
static void of_wide_models(void **state) { sample(1); }

// What was planned wrongly once, and kinds of calls of which a sample may have none.
static void each_kind_of_call(void **state) {
  static const char *const names[] = {
      "whole tensors + ZeRO 1 (dp 2)", "whole tensors + ZeRO 1 (dp 4)", "tp 2d summa (tp 4)", "uneven + ZeRO 3",
      "uneven + tp + sequence", "muon + dp", "experts over dp", "ulysses + ZeRO 1", "ring + dp", "zb-v + ZeRO 1",
      "pipedream + tp", "2bw + dp", "tp 3d + 1f1b", "interleaved + dp", "whole tensors + ZeRO 3 + 1f1b"};
  int wrong = 0, few = test_tier() < 2;
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i += few && i >= 3 ? 4 : 1) {
    uint64_t features;
    MatrixMesh mesh = {0};
    if (matrix_parse(names[i], &features, &mesh) || matrix_reason(features, mesh) != MATRIX_IN) {
      printf("%s: no layout\n", names[i]);
      wrong++;
      continue;
    }
    MatrixLayout l = matrix_layout(features, MATRIX_REAL, mesh);
    wrong += hold(&l, i % MATRIX_MODELS, MATRIX_FP32, 1) + (few ? 0 : hold(&l, i % MATRIX_MODELS, MATRIX_BF16, 0));
  }
  assert_int_equal(wrong, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_of_call), cmocka_unit_test(of_small_models),
                                     cmocka_unit_test(of_wide_models)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
