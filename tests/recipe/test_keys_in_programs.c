// tier 1 2; rooms compile program schedule sharding
// Every key of mesh.* and parallel.* against what was compiled: a configuration that runs is the one that was asked
// for.
//
// A row says how Programs show a key (key_views.h). The key table itself is gone through: a key without a row is red.
// Each value of a row is compiled, and compiled again without the key (or with another value where it cannot be left
// out): then the row must say that the value is not there. Random recipes follow, of which every row judges all keys,
// those that are not given too.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "key_views.h"
#include "recipe/recipe_keys.h"
#include "tier.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("dense.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 240, \"intermediate_size\": 480, \"num_hidden_layers\": 4,"
             " \"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"max_position_embeddings\": 48,"
             " \"vocab_size\": 144, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("moe.json",
             "{\"model_type\": \"mixtral\", \"hidden_size\": 240, \"intermediate_size\": 96, \"num_hidden_layers\": 4,"
             " \"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"max_position_embeddings\": 48,"
             " \"vocab_size\": 144, \"num_local_experts\": 24, \"num_experts_per_tok\": 2, \"rms_norm_eps\": 1e-5,"
             " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml", "model: {config: dense.json}\ndata: {train: none, seq_len: 48}\n"
                            "batch: {global: 48, micro: 2}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: fp32\n");
  return 0;
}

#define MOE "model.config=moe.json"

// 0: refused, with the sentence. Where buffers lie is left out, which takes most of the time, but for parallel.memory.
static int compiles(const Asked *a, Case *c, Error *error) {
  char *keys[MOST_KEYS], moe[SETTING];
  snprintf(moe, sizeof moe, "model.config=%s", path_of("moe.json")); // paths given here are not the recipe's
  for (int i = 0; i < a->count; i++)
    keys[i] = strcmp(a->setting[i], MOE) ? (char *)(uintptr_t)a->setting[i] : moe; // reads them only
  *c = (Case){0};
  *error = (Error){0};
  int code = recipe_load(path_of("recipe.yaml"), a->count, keys, &c->recipe, error);
  if (!code) code = model_config_load(&c->config, c->recipe.model.config, error);
  if (!code && c->recipe.parallel.memory)
    code = setup_job(&c->recipe, &c->config, &(RunSetting){.threads = 1}, &c->job, error);
  else if (!code) code = setup_job(&c->recipe, &c->config, &(RunSetting){.sketch = true}, &c->job, error);
  if (code) release(c);
  return !code;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define ONE_MICROBATCH "optimizer.clip=0 run.non_finite=stop mesh.dp=2 batch.micro=24"

// with: what a value needs to do anything; the first mesh that is tried.
// ignored: what stands for the key where nobody heeds it; NULL: the recipe without it.
typedef struct Row {
  const char *key;
  Shown (*shows)(View *v, const char *value);
  struct { const char *value, *with; } values[8];
  const char *ignored;
} Row;

static const Row rows[] = {
    {"mesh.pp", shows_pp, {{"2", ""}, {"4", ""}}, NULL},
    {"mesh.dp", shows_dp, {{"2", ""}, {"3", ""}, {"4", ""}, {"6", ""}}, NULL},
    {"mesh.cp", shows_cp, {{"2", ""}, {"3", ""}, {"4", ""}}, NULL},
    {"mesh.tp", shows_tp, {{"2", ""}, {"3", ""}, {"4", "parallel.tensor=2d"}, {"8", "parallel.tensor=2.5d"}}, NULL},
    {"parallel.zero",
     shows_zero,
     {{"1", "mesh.dp=2"}, {"2", "mesh.dp=3"}, {"3", "mesh.dp=2"}, {"3", "mesh.cp=2"}},
     NULL},
    {"parallel.reshard", shows_reshard, {{"false", "mesh.dp=2 parallel.zero=3"}}, NULL},
    {"parallel.gather",
     shows_gather,
     {{"layer", "mesh.dp=2 parallel.zero=3"},
      {"1 MB", "mesh.dp=2 parallel.zero=3"},
      {"10 MB", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.shard_group",
     shows_shard_group,
     {{"2", "mesh.dp=4 parallel.zero=1"}, {"2", "mesh.dp=6 parallel.zero=3"}, {"3", "mesh.dp=6 parallel.zero=2"}},
     NULL},
    {"parallel.unsplit_tensors",
     shows_unsplit,
     {{"true", "mesh.dp=2 parallel.zero=1"}, {"true", "mesh.dp=3 parallel.zero=3"}},
     NULL},
    {"parallel.sequence", shows_sequence, {{"true", "mesh.tp=2"}, {"true", "mesh.tp=3 mesh.cp=2"}}, NULL},
    {"parallel.tensor",
     shows_tensor,
     {{"2d", "mesh.tp=4"}, {"2d", "mesh.tp=6"}, {"2.5d", "mesh.tp=8"}, {"3d", "mesh.tp=8"}},
     NULL},
    {"parallel.rows",
     shows_rows,
     {{"3", "mesh.tp=6 parallel.tensor=2d"},
      {"2", "mesh.tp=12 parallel.tensor=2d"},
      {"4", "mesh.tp=8 parallel.tensor=2d"}},
     NULL},
    {"parallel.depth",
     shows_depth,
     {{"16", "mesh.tp=64 parallel.tensor=2.5d"},
      {"1", "mesh.tp=4 parallel.tensor=2.5d"},
      {"4", "mesh.tp=16 parallel.tensor=2.5d"}},
     NULL},
    {"parallel.summa",
     shows_summa,
     {{"true", "mesh.tp=4 parallel.tensor=2d"}, {"true", "mesh.tp=8 parallel.tensor=2.5d"}},
     NULL},
    {"parallel.recompute",
     shows_recompute,
     {{"selective", ""}, {"full", ""}, {"[full x 2, keep, selective]", ""}, {"[selective, keep x 3]", "mesh.pp=2"}},
     NULL},
    {"parallel.memory", shows_memory, {{"44MB", "parallel.recompute=auto"}}, "1GB"},
    {"parallel.recompute_layers",
     shows_recompute_layers,
     {{"1", "parallel.recompute=full"},
      {"1", "parallel.recompute=selective mesh.pp=2"},
      {"3", "parallel.recompute=full"}},
     NULL},
    {"parallel.pipeline",
     shows_pipeline,
     {{"naive", "mesh.pp=2"},
      {"gpipe", "mesh.pp=2"},
      {"interleaved", "mesh.pp=2"},
      {"zb-h1", "mesh.pp=2"},
      {"zb-v", "mesh.pp=2"},
      {"2bw", "mesh.pp=2 optimizer.delay=1"},
      {"pipedream", "mesh.pp=2 optimizer.clip=0 run.non_finite=stop batch.micro=48 optimizer.delay=[1,1,0,0]"}},
     NULL},
    {"parallel.logits",
     shows_logits,
     {{"recompute", "mesh.pp=2 parallel.pipeline=zb-h1"}, {"recompute", "mesh.pp=2 parallel.pipeline=zb-v"}},
     NULL},
    {"parallel.stages_per_rank",
     shows_stages_per_rank,
     {{"2", "mesh.pp=2 parallel.pipeline=gpipe"}, {"2", "mesh.pp=2 parallel.pipeline=naive"}},
     NULL},
    {"parallel.layers",
     shows_layers,
     {{"[1, 3]", "mesh.pp=2"}, {"[3, 1]", "mesh.pp=2"}, {"[0, 1, 1, 2]", "mesh.pp=2 parallel.pipeline=interleaved"}},
     NULL},
    {"parallel.overlap",
     shows_overlap,
     {{"false", "mesh.dp=2"}, {"false", "mesh.tp=2"}, {"false", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.bucket_mb",
     shows_bucket_mb,
     {{"0", "mesh.dp=2"}, {"1", "mesh.dp=2"}, {"3", "mesh.dp=2"}, {"6", "mesh.dp=2 parallel.zero=1"}},
     NULL},
    {"parallel.grad_dtype", shows_grad_dtype, {{"bf16", ""}, {"bf16", "mesh.dp=2 parallel.zero=2"}}, NULL},
    {"parallel.accumulate",
     shows_accumulate,
     {{"local", "mesh.dp=2 parallel.zero=2"}, {"local", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.update",
     shows_update,
     {{"in_backward", ONE_MICROBATCH}, {"in_backward", ONE_MICROBATCH " parallel.zero=3"}},
     NULL},
    {"parallel.context",
     shows_context,
     {{"gather", "mesh.cp=2"}, {"ring", "mesh.cp=4"}, {"ulysses", "mesh.cp=3"}},
     NULL},
    {"parallel.ulysses", shows_ulysses, {{"2", "mesh.cp=4 parallel.context=ring"}}, NULL},
    {"parallel.ep",
     shows_ep,
     {{"2", "mesh.dp=2 " MOE},
      {"4", "mesh.dp=8 " MOE},
      {"8", "mesh.dp=16 " MOE},
      {"6", "mesh.dp=6 mesh.tp=2 " MOE},
      {"4", "mesh.dp=12 parallel.zero=1 " MOE},
      {"2", "mesh.tp=2 mesh.dp=2 " MOE},
      {"12", "mesh.cp=2 mesh.dp=6 " MOE}},
     NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int values_of(const Row *row) {
  int n = 0;
  while (n < (int)(sizeof row->values / sizeof *row->values) && row->values[n].value) n++;
  return n;
}

static Shown shown(const Row *row, const Asked *a, const Case *c, const char *value, char says[SHOWN_TEXT]) {
  View v = {.asked = a, .c = c, .g = job_train(c->job)->graph, .p = job_train(c->job)->program[0]};
  v.mesh = &v.p->mesh;
  Shown result = row->shows(&v, value);
  snprintf(says, SHOWN_TEXT, "%s", v.says);
  return result;
}

// ---- the tests ------------------------------------------------------------------------------------------------------

static void every_key_has_a_row(void **state) {
  for (int i = 0; i < recipe_key_count; i++) {
    const char *key = recipe_keys[i].path;
    int found = 0;
    if (strncmp(key, "mesh.", 5) && strncmp(key, "parallel.", 9)) continue;
    for (int r = 0; r < ROWS; r++) found += !strcmp(rows[r].key, key);
    if (found != 1) fail_msg("%s has %d rows here: say how a compiled Program shows it", key, found);
  }
  for (int r = 0; r < ROWS; r++) {
    const RecipeKey *key = recipe_key_find(rows[r].key);
    if (!key) fail_msg("%s is not a key", rows[r].key);
    for (int i = 0; i < values_of(&rows[r]); i++)
      if (key->fallback && !strcmp(key->fallback, rows[r].values[i].value))
        fail_msg("%s: %s is the default", rows[r].key, key->fallback);
    assert_true(values_of(&rows[r]) > 0);
  }
}

static Asked asked_by(const Row *row, int i) {
  Asked a = {0};
  if (!ask_all(&a, row->values[i].with) || !ask(&a, row->key, row->values[i].value))
    fail_msg("%s: %s contradicts itself", row->key, row->values[i].with);
  return a;
}

// All rows, of a recipe that compiles: the keys that are given, and the others at their defaults.
static void judge(const Asked *a, const Case *c, int *seen) {
  for (int r = 0; r < ROWS; r++) {
    const char *value = asked(a, rows[r].key);
    char says[SHOWN_TEXT];
    if (!value || !strcmp(value, "auto")) continue; // plait chooses
    Shown result = shown(&rows[r], a, c, value, says);
    if (result == ANOTHER) fail_msg("%s: %s is %s, but compiled is: %s", asked_text(a), rows[r].key, value, says);
    seen[r] += result == AS_ASKED && value != recipe_key_find(rows[r].key)->fallback;
  }
}

// Each value is there, and is missed where nobody heeds the key (make test: the first value of each key). Other values
// than the first may be refused without the key, where nothing else allows their mesh.
static void values_are_compiled(void **state) {
  int seen[ROWS] = {0}, missed = 0;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < values_of(&rows[r]); i++) {
      const char *value = rows[r].values[i].value;
      Asked a = asked_by(&rows[r], i), less = without(&a, rows[r].key);
      Case c;
      Error error;
      char says[SHOWN_TEXT];
      if (!compiles(&a, &c, &error)) fail_msg("%s: %s", asked_text(&a), error.message);
      int before = seen[r];
      judge(&a, &c, seen);
      if (seen[r] == before) fail_msg("%s: nothing shows %s", asked_text(&a), rows[r].key);
      release(&c);
      if (test_tier() < 2 && i) continue;
      if (rows[r].ignored) ask(&less, rows[r].key, rows[r].ignored);
      if (!compiles(&less, &c, &error)) {
        if (!i) fail_msg("%s: %s", asked_text(&less), error.message);
        continue;
      }
      // Where plait chooses without the key, it may choose the same.
      const char *fallback = recipe_key_find(rows[r].key)->fallback;
      Shown result = shown(&rows[r], &a, &c, value, says);
      missed += result == ANOTHER;
      if (result != ANOTHER && (!i || !fallback || strcmp(fallback, "auto")))
        fail_msg("%s: nobody heeds %s, and its row does not notice that", asked_text(&a), rows[r].key);
      release(&c);
    }
  print_message("%d keys; without theirs, %d of their values are missed\n", ROWS, missed);
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Several values at once, as far as they agree, over a mesh of any size.
static Asked random_recipe(uint64_t *random) {
  static const char *const meshes[] = {"mesh.pp=2", "mesh.dp=2", "mesh.dp=4", "mesh.dp=6", "mesh.cp=2", "mesh.tp=2",
                                       "mesh.tp=4", "mesh.dp=12", "mesh.tp=3", MOE, MOE};
  Asked a = {0};
  int keys = 2 + (int)(next_random(random) % 4), cuts = (int)(next_random(random) % 3);
  for (int k = 0; k < keys; k++) {
    const Row *row = &rows[next_random(random) % ROWS];
    int i = (int)(next_random(random) % (uint64_t)values_of(row));
    Asked more = a;
    if (ask_all(&more, row->values[i].with) && ask(&more, row->key, row->values[i].value)) a = more;
  }
  for (int k = 0; k < cuts; k++) {
    Asked more = a;
    if (ask_all(&more, meshes[next_random(random) % (sizeof meshes / sizeof *meshes)])) a = more;
  }
  return a;
}

static void random_recipes_are_what_was_asked_for(void **state) {
  int seen[ROWS] = {0}, compiled = 0, refused = 0, wanted = test_tier() < 2 ? 60 : 500;
  uint64_t random = 37;
  while (compiled < wanted) {
    Asked a = random_recipe(&random);
    Case c;
    Error error;
    if (!compiles(&a, &c, &error)) {
      assert_true(++refused < 20 * wanted);
      continue;
    }
    judge(&a, &c, seen);
    release(&c);
    compiled++;
  }
  print_message("%d recipes, beside %d that are refused\n", compiled, refused);
  for (int r = 0; r < ROWS; r++) {
    print_message("%s%s %d", r ? ", " : "values that were asked for and seen: ", rows[r].key, seen[r]);
    if (test_tier() > 1 && seen[r] < 5) fail_msg("%s was seen %d times only", rows[r].key, seen[r]);
  }
  print_message("\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_has_a_row), cmocka_unit_test(values_are_compiled),
                                     cmocka_unit_test(random_recipes_are_what_was_asked_for)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
