// tier 1
// Weights where nothing trains: stored in the dtype in which the model computes, without masters. The loss has the bits
// that an evaluation beside training has, whose weights are Copies of masters, and a rank's memory is less by those.
#include "job_of_text.h"
#include "program/memory.h"
#include "runtime/session.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

enum { SEQ = 8, VOCAB = 32, ROWS = 4 };

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 16, \"n_head\": 2, \"n_positions\": 8, \"n_inner\": 32, "
    "\"vocab_size\": 32, \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, "
    "\"attn_pdrop\": 0}";

static const char *const layouts[] = {"", "mesh.tp=2", "mesh.dp=2 parallel.zero=0",
                                      "mesh.dp=2 parallel.zero=1", "mesh.dp=2 parallel.zero=3", "mesh.pp=2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static Job *job_of(ModelMode mode, const char *precision, const char *layout) {
  static const char text[] = "{model: {config: /none}, data: {train: /none, valid: /none, seq_len: 8}, "
                             "run: {dir: /none}, batch: {global: 4, micro: 2}}";
  char *keys = xformat("precision=%s %s", precision, layout);
  Job *job;
  SUCCEED(job_of_text(text, model, keys, mode, &job, &error));
  free(keys);
  return job;
}

static int load(Rank *r, void *job, Error *e) {
  int code = rank_load(r, job, e);
  if (!code) rank_initialise(r);
  return code;
}

static int evaluate(Rank *r, void *inputs, Error *e) { return rank_run(r, &role_evaluate, inputs, e); }

// The mean loss of some tokens; weights follow from the seed.
static double loss_of(Job *job) {
  int32_t tokens[ROWS * SEQ], positions[ROWS * SEQ], documents[ROWS * SEQ] = {0};
  for (int i = 0; i < ROWS * SEQ; i++) tokens[i] = i * 7 % VOCAB, positions[i] = i % SEQ;
  int64_t stride = (int64_t)sizeof *tokens * SEQ * job->options.micro_samples / job_data_ranks(job);
  StepInput of[INPUT_COUNT] = {[INPUT_TOKENS] = {tokens, stride},       [INPUT_POSITIONS] = {positions, stride},
                               [INPUT_DOCUMENTS] = {documents, stride}, [INPUT_TARGETS] = {tokens, stride},
                               [INPUT_STEP_TARGETS] = {tokens, 0}};
  Session *session;
  SUCCEED(session_open(&(SessionOptions){.ranks = job->options.parallel.mesh.ranks}, &session, &error));
  SUCCEED(session_run(session, load, job, &error));
  SUCCEED(session_run(session, evaluate, &(StepInputs){.of = of, .count = INPUT_COUNT}, &error));
  double loss = state_scalar(session_rank(session, 0)->state, KNOWN_LOSS);
  session_close(session);
  return loss;
}

// Of each pipeline rank: the Variables of an evaluation alone are those of one beside training, less the masters of its
// matrices. `stored`: matrices are stored beside their Copies, since ZeRO divides only the storage.
static void check_memory(const Job *training, const Job *alone, Dtype compute, int stored) {
  const Compiled *with = job_find(training, &role_evaluate), *without = job_find(alone, &role_evaluate);
  const Graph *g = with->graph, *h = without->graph;
  assert_int_equal(g->variable.count, h->variable.count);
  for (int c = 0; c < job_pipeline_ranks(alone); c++) {
    const Program *p = with->program[c], *q = without->program[c];
    int64_t masters = 0, matrices = 0, narrow = 0;
    for (int i = 0; i < g->variable.count; i++) {
      const Variable *v = &g->variable.data[i], *w = &h->variable.data[i];
      assert_string_equal(v->name, w->name);
      assert_int_equal(w->dtype, variable_is_stored(v) && v->narrow_copy ? compute : v->dtype);
      if (!variable_is_stored(v) || !v->narrow_copy) continue;
      assert_int_equal(v->dtype, DTYPE_F32);
      assert_int_equal(w->copies, stored);
      if (p->variable_place[i].offset < 0) continue;
      masters += memory_variable_bytes(p, v, -1);
      narrow += memory_variable_bytes(q, w, -1);
      matrices++;
    }
    assert_true(matrices > 2 && masters > 0);
    assert_int_equal(q->state_bytes[0], p->state_bytes[0] - masters + (stored ? narrow : 0));
  }
}

static void same_bits_without_masters(void **state) {
  static const struct { const char *name; Dtype dtype;
  } precision[] = {{"bf16", DTYPE_BF16}, {"fp16", DTYPE_F16}};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < LAYOUTS; i++) {
      Job *training = job_of(MODEL_TRAIN, precision[k].name, layouts[i]),
          *alone = job_of(MODEL_EVALUATE, precision[k].name, layouts[i]);
      check_memory(training, alone, precision[k].dtype, strstr(layouts[i], "zero=1") != NULL);
      double expected = loss_of(training), loss = loss_of(alone);
      assert_true(expected > 1 && expected < 10);
      assert_memory_equal(&loss, &expected, sizeof loss);
      job_destroy(training);
      job_destroy(alone);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_without_masters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
