// tier 1 2; rooms program; threads
// Planned means allocated once: from when a Program is bound, plait allocates nothing in a step, neither for
// communication nor for anything else. The linker puts the functions below in the place of xcalloc and xrealloc, which
// count. Under mpirun (tests/mpi/mpi_comm.sh) ranks are processes, and the configurations are those of as many ranks;
// what the MPI library allocates is its own matter.
#include "comm/launcher.h"
#include "data/synthetic.h"
#include "runtime/session.h"
#include "recipe/recipe.h"
#include "setup/setup.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

// The vocabulary is a prime, so that its embedding is cut the other way and a collective of it is a list of more
// buffers than a stream has room for by itself.
enum { STEPS = 6, VOCAB = 2053 };
static char folder[64] = "/tmp/plait-steady-XXXXXX";
#define MODEL(tied)                                                                                                    \
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, " \
    "\"vocab_size\": 2053, \"tie_word_embeddings\": " tied ","                                                         \
    " \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"attn_pdrop\": 0.1}"
static const char recipe[] =
    "{model: {config: /none}, data: {train: /none, seq_len: 18}, batch: {global: 16, micro: 1}, run: {dir: /none}}";

static PlaitComm *joined; // of all ranks, where these are processes
static atomic_int allocations;
static atomic_size_t largest;

void *__real_xcalloc(size_t count, size_t size);
void *__real_xrealloc(void *old, size_t size);
void *__wrap_xcalloc(size_t count, size_t size);
void *__wrap_xrealloc(void *old, size_t size);

static void count_one(size_t bytes) {
  size_t most = atomic_load(&largest);
  while (bytes > most && !atomic_compare_exchange_weak(&largest, &most, bytes)) {}
  atomic_fetch_add(&allocations, 1);
}
void *__wrap_xcalloc(size_t count, size_t size) {
  count_one(count * size);
  return __real_xcalloc(count, size);
}
void *__wrap_xrealloc(void *old, size_t size) {
  count_one(size);
  return __real_xrealloc(old, size);
}

typedef struct Training {
  Recipe recipe;
  ModelConfig config;
  Job *job;
  DataSource source;
} Training;

static int start(Rank *r, void *training, Error *error) {
  Training *t = training;
  DataSource source;
  LoaderConfig data = setup_loader(&t->recipe, &t->config, 0, &source);
  data.sources = &t->source;
  int code = rank_load(r, t->job, error);
  if (!code) rank_initialise(r);
  return code ? code : rank_open_data(r, &data, 0, error);
}

static int train(Rank *r, void *training, Error *error) {
  StepResult result;
  double rates[8];
  int code = PLAIT_OK;
  for (int k = 0; k < 8; k++) rates[k] = 1e-2;
  for (int64_t step = 1; step <= STEPS && !code; step++)
    code = rank_step_on(r, step, rates, STEPS - step, &result, error);
  return code;
}

// Every rank has sent something to every other one: ranks that are processes connect when they first do so.
static int meet(Rank *r, void *context, Error *error) {
  enum { MOST = 16 };
  int32_t sent[MOST] = {0}, got[MOST];
  int code = joined ? plait_all_to_all(joined, &(PlaitBuffer){sent, got, 1}, 1, PLAIT_INT32, NULL, NULL) : PLAIT_OK;
  return code ? error_set(error, code, "%s", plait_comm_error(joined)) : rank_barrier(r, error);
}

// How often plait allocates in the steps of a run; the most bytes at a time in `bytes`. -1: it is not for that many
// processes.
static int allocations_of(const char *keys, const char *prefix, size_t *bytes) {
  Training t = {.source = {(char *)(uintptr_t)prefix, 1}};
  Session *s;
  Error error = {0};
  char text[512], words[256], *key[8], *rest = words;
  int count = 0;
  strcpy(text, recipe);
  strcpy(words, keys);
  while ((key[count] = strtok_r(rest, " ", &rest))) count++;
  int code = recipe_parse("test", text, strlen(text), "/", count, key, &t.recipe, &error);
  const char *model = strstr(keys, "pipedream") ? MODEL("false") : MODEL("true");
  if (!code) code = model_config_parse(&t.config, model, strlen(model), "model", &error);
  int ranks = code ? 0 : (int)recipe_rank_count(&t.recipe);
  if (!code && joined && ranks != plait_comm_size(joined))
    return recipe_free(&t.recipe), model_config_free(&t.config), -1;
  if (!code)
    code = setup_job(&t.recipe, &t.config,
                     &(RunSetting){.threads = 1, .helpers = joined ? 0 : setup_helpers(&t.recipe, 1)}, &t.job, &error);
  if (!code) code = session_open(&(SessionOptions){.ranks = ranks, .comm = joined}, &s, &error);
  if (!code) code = session_run(s, start, &t, &error);
  if (!code) code = session_run(s, meet, NULL, &error);
  atomic_store(&allocations, 0);
  atomic_store(&largest, 0);
  if (!code) code = session_run(s, train, &t, &error);
  int made = atomic_load(&allocations);
  *bytes = atomic_load(&largest);
  if (code) fail_msg("%s: %s", keys, error.message);
  session_close(s);
  job_destroy(t.job);
  recipe_free(&t.recipe);
  model_config_free(&t.config);
  return made;
}

static void test_steps_allocate_nothing(void **state) {
  static const char *const meshes[] = {
      "",
      "mesh.dp=4 parallel.zero=3 precision=bf16",
      "mesh.dp=2 parallel.zero=1",
      "mesh.dp=4 parallel.zero=2 parallel.bucket_mb=0",
      "mesh.dp=4 parallel.zero=3 parallel.shard_group=2",
      "mesh.dp=4 parallel.zero=3 parallel.unsplit_tensors=true",
      "mesh.tp=2 parallel.sequence=true",
      "mesh.pp=2",
      "mesh.pp=4 parallel.pipeline=gpipe",
      "mesh.pp=2 parallel.pipeline=interleaved batch.micro=4",
      "mesh.pp=2 parallel.pipeline=zb-v batch.micro=4",
      "mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1 batch.micro=4",
      "mesh.pp=4 parallel.pipeline=pipedream batch.micro=16 optimizer.delay=[3,2,1,0] optimizer.clip=0 "
      "run.non_finite=stop parallel.layers=[1,1,1,1]",
      "mesh.dp=2 parallel.zero=2 batch.global=13",
      "mesh.dp=2 mesh.tp=2 batch.micro=1 batch.global=7 layout.batch=[dp,tp]",
      "mesh.dp=2 mesh.pp=2 mesh.tp=2 parallel.zero=3 parallel.recompute=full precision=bf16"};
  char prefix[80];
  size_t bytes;
  int tried = 0;
  const size_t step = test_tier() < 2 ? 2 : 1;
  snprintf(prefix, sizeof prefix, "%s/corpus", folder);
  for (size_t i = step - 1; i < sizeof meshes / sizeof *meshes; i += step) {
    int made = allocations_of(meshes[i], prefix, &bytes);
    tried += made >= 0;
    if (made > 0) fail_msg("\"%s\": %d allocations in %d steps, of at most %zu bytes", meshes[i], made, STEPS, bytes);
  }
  assert_true(tried >= (joined ? 2 : 16 / (int)step));
}

static int make_folder(void **state) {
  char prefix[80];
  Error error = {0};
  if (!mkdtemp(folder)) return -1;
  snprintf(prefix, sizeof prefix, "%s/corpus", folder);
  return synthetic_corpus(prefix, 60, 1, 45, VOCAB, 7, &error);
}

static int remove_folder(void **state) {
  char command[80];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

int main(void) {
  PlaitWorld *world = NULL;
  Error error = {0};
  if (launcher_find().tasks > 1 && (plait_world_launched_create(&world, &error) ||
                                    plait_comm_world(world, plait_world_rank(world), &joined, &error)))
    return fprintf(stderr, "%s\n", error.message), 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_allocate_nothing)};
  int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
  plait_comm_destroy(joined);
  plait_world_destroy(world);
  return failed;
}
