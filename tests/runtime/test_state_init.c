// tier 1; rooms base; threads numbers
// Initial values are functions of seed, name and global index, whichever thread of a rank makes them, and also where
// weights lie in panels.
#include "base/dtype.h"
#include "base/philox.h"
#include "setup/setup.h"
#include "runtime/session.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants some of the above first
#include <cmocka.h>

enum { SEED = 11 };
static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

// Rows of 50 elements, of which none begins where a thread's part does, and more than 65,536 of them.
static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 50, \"n_head\": 2, \"n_positions\": 20, \"n_inner\": 130, "
    "\"vocab_size\": 1501, \"activation_function\": \"gelu_new\"}";

static int64_t compare(const State *s, int v, const Variable *variable, const ShardBoxes *b) {
  int64_t elements = box_elements(&b->box), index[BOX_MAX_RANK] = {0};
  int rank = variable->shape.rank;
  double *values = xcalloc((size_t)elements + 1, sizeof *values);
  PhiloxKey key = philox_key(SEED, 0, philox_name(variable->name));
  state_read(s, v, -1, &b->box, values);
  for (int64_t i = 0; i < elements; i++) {
    int64_t global = 0;
    double expected = variable->init.value;
    for (int d = 0; d < rank; d++) global = global * variable->shape.size[d] + b->box.offset[d] + index[d];
    if (variable->init.kind == INIT_NORMAL) expected *= philox_normal(key, (uint64_t)global);
    if (dtype_load(values, variable_dtype(variable), i) != (double)(float)expected)
      fail_msg("%s, element %lld: %g instead of %g", variable->name, (long long)global,
               dtype_load(values, variable_dtype(variable), i), expected);
    for (int d = rank - 1; d >= 0 && ++index[d] == b->box.local[d]; d--) index[d] = 0;
  }
  free(values);
  return elements;
}

static int initialise(Rank *r, void *job, Error *e) {
  int64_t elements = 0, in_panels = 0;
  int code = rank_load(r, job, e);
  if (code) return code;
  rank_initialise(r);
  const Graph *g = r->state->program->graph;
  for (int v = 0; v < g->variable.count; v++) {
    const Variable *variable = &g->variable.data[v];
    if (!variable_is_loaded(variable) || variable->init.kind == INIT_ZERO) continue;
    in_panels += variable->panels.rows > 0;
    for (ShardBoxes b = state_boxes(r->state, v, -1); shard_next(&b);) elements += compare(r->state, v, variable, &b);
  }
  assert_true(elements > 40000);
  const int generates = r->job->options.mode == MODEL_GENERATE && device_cpu()->panel_bytes;
  if (!generates) assert_int_equal(in_panels, 0);
  else if (r->job->options.parallel.mesh.ranks > 1) assert_true(in_panels > 4);
  else assert_int_equal(in_panels, 2 * 6 + 1); // all matrices of products, and not the table of positions
  return PLAIT_OK;
}

static void values_follow_from_indices(void **state) {
  static const struct { int threads; const char *keys; ModelMode mode; } cases[] = {
      {1, "mesh.dp=1", MODEL_TRAIN},        {3, "mesh.dp=1", MODEL_TRAIN},
      {2, "mesh.tp=2", MODEL_TRAIN},        {2, "mesh.dp=2 parallel.zero=3", MODEL_TRAIN},
      {1, "mesh.dp=1", MODEL_GENERATE},     {2, "mesh.tp=2", MODEL_GENERATE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 18}, batch: {global: 12, micro: 2}, "
                  "precision: fp32, run: {dir: /none, seed: 11}}";
    char *keys[4], *word = xstrdup(cases[i].keys), *rest = word;
    int count = 0;
    Recipe recipe;
    ModelConfig config;
    Job *job;
    Session *session;
    while ((keys[count] = strtok_r(rest, " ", &rest))) count++;
    SUCCEED(recipe_parse("test", text, strlen(text), "/", count, keys, &recipe, &error));
    SUCCEED(model_config_parse(&config, model, strlen(model), "model", &error));
    SUCCEED(
        setup_job(&recipe, &config, &(RunSetting){.threads = cases[i].threads, .mode = cases[i].mode}, &job, &error));
    SUCCEED(session_open(&(SessionOptions){.ranks = recipe_rank_count(&recipe)}, &session, &error));
    SUCCEED(session_run(session, initialise, job, &error));
    session_close(session);
    job_destroy(job);
    recipe_free(&recipe);
    model_config_free(&config);
    free(word);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_follow_from_indices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
