// tier 1 2; rooms recipe sharding
// The judge of parallel configurations: what it allows compiles, what it refuses is refused for a reason that holds,
// the nearest values that it names are valid, and the pairs that the table of features refuses are refused.
#include "base/error.h"
#include "model/config.h"
#include "compile/compile.h"
#include "parallel/parallel_experts.h"
#include "program/program.h"
#include "recipe/layouts.h"
#include "recipe/recipe.h"
#include "setup/setup.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char gpt[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 61, \"n_positions\": 24, \"n_embd\": 24, "
                          "\"n_layer\": 4, \"n_head\": 6, \"n_inner\": 60, \"activation_function\": \"gelu_new\"}";
static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 24, \"num_hidden_layers\": 4, "
    "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, "
    "\"intermediate_size\": 48, \"max_position_embeddings\": 24, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5}";

// Layer 1 is dense, the others have experts and a shared one.
#define TWO_WIDTHS(ffn, shared)                                                                                        \
  "{\"model_type\": \"qwen2_moe\", \"vocab_size\": 61, \"hidden_size\": 24, \"num_hidden_layers\": 4, "                \
  "\"num_attention_heads\": 6, \"num_key_value_heads\": 6, \"intermediate_size\": " ffn                                \
  ", \"shared_expert_intermediate_size\": " shared ", \"moe_intermediate_size\": 30, \"num_experts\": 6, "             \
  "\"num_experts_per_tok\": 2, \"mlp_only_layers\": [1], \"max_position_embeddings\": 24, "                            \
  "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6}"

static int parse(const char *text, int count, char **keys, Recipe *recipe, Error *error) {
  static const char base[] =
      "model: {config: /m}\ndata: {train: /d, seq_len: 12}\nrun: {dir: /r}\nbatch: {global: 24, micro: 2}\n";
  char all[1024];
  snprintf(all, sizeof all, "%s%s", base, text);
  return recipe_parse("r.yaml", all, strlen(all), "/", count, keys, recipe, error);
}

// The whole way to Programs, for every pipeline rank; the judge has been asked before. `number` counts what is asked:
// make test compiles one in twelve.
static int compiles(int number, const Recipe *recipe, const ModelConfig *config, Error *error) {
  Job *job = NULL;
  if (test_tier() < 2 && number % 12) return 1;
  int code = setup_job(recipe, config, &(RunSetting){.threads = 1}, &job, error);
  job_destroy(job);
  return !code;
}

static const char *const variants[] = {"",
                                       "parallel: {sequence: true}\n",
                                       "layout: {name: data, batch: [dp, tp]}\n",
                                       "layout: {name: data, embed: [tp]}\n",
                                       "layout: {vocab: [tp, dp]}\n",
                                       "parallel: {zero: 3, shard_group: 2}\n",
                                       "parallel: {zero: 2, unsplit_tensors: true}\n",
                                       "parallel: {pipeline: interleaved}\n",
                                       "parallel: {pipeline: gpipe, stages_per_rank: 2}\n",
                                       "layout: {heads: [dp, tp], ffn: []}\n",
                                       "layout: {name: data, head_dim: [tp], ffn: [dp]}\n",
                                       "layout: {name: data, position: [tp]}\n",
                                       "mesh: {cp: 2}\nparallel: {sequence: true, zero: 2}\n",
                                       "mesh: {cp: 3}\nparallel: {zero: 3, shard_group: 1}\n",
                                       "mesh: {cp: 2}\nlayout: {seq: [], ffn: [cp], vocab: [tp, cp]}\n",
                                       "parallel: {tensor: 2d}\n",
                                       "parallel: {tensor: 2d, rows: 2, zero: 2}\n",
                                       "parallel: {tensor: 2.5d, depth: 2}\n",
                                       "parallel: {tensor: 2.5d}\n",
                                       "parallel: {tensor: 3d}\n",
                                       "parallel: {tensor: 2d, summa: true, zero: 3}\n",
                                       "parallel: {tensor: 2.5d, depth: 1, summa: true, pipeline: zb-h1}\n",
                                       "parallel: {tensor: 2d}\nlayout: {vocab: [tp, dp], width: []}\n",
                                       "parallel: {tensor: 2d}\nlayout: {interior: [dp]}\n"};

// Every size of each axis up to 6: allowed is what compiles.
static void allowed_is_what_compiles(void **state) {
  int allowed = 0, refused = 0;
  for (int family = 0; family < 2; family++) {
    ModelConfig config = {0};
    Error error = {0};
    const char *json = family ? llama : gpt;
    if (model_config_parse(&config, json, strlen(json), "m.json", &error)) fail_msg("%s", error.message);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
      for (int k = 0; k < 6 * 6 * 4 + 8; k++) {
        Recipe recipe;
        char dp[16], tp[16], pp[16], *keys[] = {dp, tp, pp};
        snprintf(dp, sizeof dp, "mesh.dp=%d", k % 6 + 1);
        snprintf(tp, sizeof tp, "mesh.tp=%d", k / 6 % 6 + 1);
        snprintf(pp, sizeof pp, "mesh.pp=%d", k / 36 + 1);
        if (k >= 6 * 6 * 4) { // cubes, and depths of squares
          snprintf(tp, sizeof tp, "mesh.tp=%d", k % 2 ? 8 : 12);
          snprintf(pp, sizeof pp, "mesh.pp=%d", k / 2 % 2 + 1);
        }
        error = (Error){0};
        int code = parse(variants[v], 3, keys, &recipe, &error);
        if (!code) {
          // Nothing but the judge refuses: what it has allowed goes through all passes, whose own checks are then bugs.
          code = recipe_check_parallel(&recipe, &config, &error);
          allowed += !code;
          if (!code && (k < 36 || k % 7 == 0 || k >= 6 * 6 * 4) && !compiles(allowed, &recipe, &config, &error))
            fail_msg("%s%s %s %s is allowed, but: %s", variants[v], dp, tp, pp, error.message);
        }
        refused += code != 0;
        recipe_free(&recipe);
      }
    model_config_free(&config);
  }
  assert_true(allowed > 400 && refused > 400);
}

// The nearest values of the axis that is blamed are valid, and none in between is.
static void nearest_is_valid(void **state) {
  int named = 0;
  StepModel model;
  Step step;
  ModelConfig config = {0};
  Error error = {0};
  if (model_config_parse(&config, llama, sizeof llama - 1, "m.json", &error)) fail_msg("%s", error.message);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
    for (int tp = 1; tp <= 24; tp += test_tier() < 2 ? 4 : 1) {
      Recipe recipe;
      ParallelProblem problem, other;
      if (parse(variants[v], 0, NULL, &recipe, &error)) {
        recipe_free(&recipe);
        error = (Error){0};
        continue;
      }
      recipe.mesh.tp = tp;
      step_model_of(&config, &model);
      recipe_step(&recipe, &model, &step);
      assert_int_equal(parallel_check(&step, &model, NULL), parallel_check(&step, &model, &problem));
      if (parallel_check(&step, &model, &problem) && !strcmp(problem.key, "mesh.tp")) {
        named++;
        for (int t = 1; t < 8 * tp; t++) {
          recipe.mesh.tp = t;
          recipe_step(&recipe, &model, &step);
          int valid = !parallel_check(&step, &model, &other) || strcmp(other.key, "mesh.tp") != 0,
              is_nearest = t == problem.nearest[0] || t == problem.nearest[1];
          int between = t > problem.nearest[0] && (t < problem.nearest[1] || !problem.nearest[1]);
          if ((is_nearest && !valid) || (between && valid))
            fail_msg("tp %d: %s; but %d is%s valid", tp, problem.text, t, valid ? "" : " not");
        }
      }
      recipe_free(&recipe);
    }
  model_config_free(&config);
  assert_true(named > (test_tier() < 2 ? 10 : 40));
}

// How attention crosses cp: what is allowed compiles, and the nearest values of what is refused are valid.
static void contexts_that_are_allowed_compile(void **state) {
  static const char *const contexts[] = {"parallel.context=gather", "parallel.context=ulysses", "parallel.context=ring",
                                         "parallel.context=auto"};
  static const char *const more[] = {"parallel.ulysses=auto", "parallel.ulysses=2", "parallel.ulysses=3",
                                     "parallel.sequence=true", "parallel.ulysses=4", "parallel.ulysses=6"};
  enum { CONTEXTS = 4, MORE = 6, RANKS = 12 };
  int allowed = 0, refused = 0, ways = 0;
  StepModel model;
  Step step;
  for (int k = 0; k < 2 * CONTEXTS * MORE * RANKS * 3; k++) {
    const char *json = k % 2 ? llama : gpt;
    int ranks = k / (2 * CONTEXTS * MORE) % RANKS + 1;
    ModelConfig config = {0};
    Error error = {0};
    Recipe recipe;
    char cp[16], tp[16], length[] = "data.seq_len=24";
    char *keys[] = {(char *)contexts[k / 2 % CONTEXTS], (char *)more[k / (2 * CONTEXTS) % MORE], cp, tp, length};
    snprintf(cp, sizeof cp, "mesh.cp=%d", ranks);
    snprintf(tp, sizeof tp, "mesh.tp=%d", k / (2 * CONTEXTS * MORE * RANKS) + 1);
    if (model_config_parse(&config, json, strlen(json), "m.json", &error)) fail_msg("%s", error.message);
    int code = parse("", 5, keys, &recipe, &error);
    step_model_of(&config, &model);
    recipe_step(&recipe, &model, &step);
    ParallelProblem problem, other;
    if (!code)
      assert_int_equal(parallel_check(&step, &model, NULL),
                       parallel_check(&step, &model, &problem)); // with no sentence
    if (!code && !parallel_check(&step, &model, &problem)) {
      allowed++;
      if ((k / (2 * CONTEXTS) % MORE < 4 || k % 5 == 0) && !compiles(allowed, &recipe, &config, &error))
        fail_msg("%s %s %s %s is allowed, but: %s", keys[0], keys[1], cp, tp, error.message);
    } else if (!code) {
      refused++;
      int of_cp = !strcmp(problem.key, "mesh.cp"), of_ulysses = !strcmp(problem.key, "parallel.ulysses");
      for (int i = 0; i < 3 && (of_cp || of_ulysses); i++) { // the last: leave parallel.ulysses out
        int64_t value = i < 2 ? problem.nearest[i] : 0;
        if (!value && (i < 2 || !strstr(problem.text, "leave parallel.ulysses out"))) continue;
        if (of_cp && i < 2) recipe.mesh.cp = (int)value;
        if (of_ulysses) recipe.parallel.ulysses = (int)value;
        if (of_cp && i == 2)
          recipe.parallel.ulysses = 0, recipe.mesh.cp = ranks, recipe.parallel.context = ALGORITHM_GATHER;
        recipe_step(&recipe, &model, &step);
        if (parallel_check(&step, &model, &other) && (of_ulysses || !strcmp(other.key, problem.key)))
          fail_msg("%s %s %s %s: %s; but then: %s", keys[0], keys[1], cp, tp, problem.text, other.text);
        ways += of_ulysses;
      }
    }
    recipe_free(&recipe);
    model_config_free(&config);
  }
  if (allowed < 100 || refused < 50 || ways < 50)
    fail_msg("%d allowed, %d refused, %d ways out", allowed, refused, ways);
}

static void refused_pairs_are_refused(void **state) {
  int pairs = 0;
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++) {
      if (!layouts_refused((LayoutFeature)a, (LayoutFeature)b)) continue;
      char settings[512], *keys[16], *next = settings;
      int count = 0;
      int cube = a == LAYOUT_GRID_3D || b == LAYOUT_GRID_3D || a == LAYOUT_GRID_2_5D || b == LAYOUT_GRID_2_5D;
      int square = a == LAYOUT_SUMMA || b == LAYOUT_SUMMA;
      snprintf(settings, sizeof settings, "mesh.dp=2 mesh.tp=%d mesh.pp=2 batch.micro=%d %s %s",
               cube     ? 8
               : square ? 4
                        : 2,
               a == LAYOUT_IN_BACKWARD || b == LAYOUT_IN_BACKWARD ? 3 : 2, layout_traits[a].settings,
               layout_traits[b].settings);
      for (char *word; count < 16 && (word = strtok_r(next, " ", &next));) keys[count++] = word;
      Recipe recipe;
      Error error = {0};
      if (!parse("", count, keys, &recipe, &error))
        fail_msg("%s with %s is not refused", layout_traits[a].name, layout_traits[b].name);
      recipe_free(&recipe);
      pairs++;
    }
  assert_true(pairs >= 3);
}

// SUMMA needs a square of rows and columns, which products of no other kind have.
static void summa_needs_a_square(void **state) {
  static const struct { const char *text, *tp, *says;
  } cases[] = {
      {"parallel: {tensor: 2d, summa: true}\n", "mesh.tp=4", NULL},
      {"parallel: {tensor: 2d, rows: 1, summa: true}\n", "mesh.tp=4", "1 rows by 4 columns"},
      {"parallel: {tensor: 2d, summa: true}\n", "mesh.tp=2", "1 rows by 2 columns"},
      {"parallel: {tensor: 3d, summa: true}\n", "mesh.tp=8", "take 2d or 2.5d"},
      {"parallel: {summa: true}\n", "mesh.tp=4", "parallel.tensor"},
      {"parallel: {tensor: 2d, summa: true, pipeline: zb-h1}\nmesh: {pp: 2}\n", "mesh.tp=4", "take 1f1b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char tp[16], *keys[] = {tp};
    Recipe recipe;
    Error error = {0};
    snprintf(tp, sizeof tp, "%s", cases[i].tp);
    int code = parse(cases[i].text, 1, keys, &recipe, &error);
    if (!code != !cases[i].says || (code && !strstr(error.message, cases[i].says)))
      fail_msg("%s%s: %s", cases[i].text, tp, code ? error.message : "it is not refused");
    recipe_free(&recipe);
  }
}

// What is said first of a recipe; NULL: it is allowed.
static const struct { const char *model, *settings, *says; } sentences[] = {
    // Without the model nobody knows yet which algorithm auto takes: here ulysses, then gather.
    {gpt, "mesh.cp=2 data.seq_len=18", NULL},
    {llama, "mesh.cp=2 data.seq_len=18 parallel.context=ulysses", NULL},
    {llama, "mesh.cp=2 data.seq_len=18",
     "it must be a multiple of 2 · 2; the nearest data.seq_len is 16 or 20, or take parallel.context ulysses"},
    {llama, "mesh.cp=4 data.seq_len=12 parallel.context=ring", "the nearest data.seq_len is 8 or 16"},
    {llama, "mesh.cp=2 data.seq_len=15", "the nearest data.seq_len is 12 or 16"},
    {llama, "mesh.cp=6 data.seq_len=24 parallel.context=ring parallel.ulysses=4",
     "must divide mesh.cp (6); the nearest is 3, or leave parallel.ulysses out"},
    {llama, "mesh.cp=4 data.seq_len=24 parallel.context=ring parallel.ulysses=4",
     "the nearest is 2, or leave parallel.ulysses out"},
    {llama, "mesh.cp=4 mesh.tp=2 data.seq_len=24 parallel.context=ring parallel.ulysses=2",
     "but on each rank of tp the model of m.json has 3 heads (with 1 key and value head), which they do not divide "
     "evenly; the nearest is 1, or leave parallel.ulysses out"},
    {llama, "mesh.cp=6 data.seq_len=24 parallel.context=gather parallel.ulysses=6",
     "leave parallel.ulysses out, or take parallel.context ulysses"},
    {llama, "mesh.cp=6 data.seq_len=24 parallel.context=gather parallel.ulysses=3", "or take parallel.context ring"},
    // Rows, depth and columns of tp.
    {llama, "mesh.tp=8 parallel.tensor=2.5d parallel.rows=8",
     "parallel.rows is 8, but mesh.tp ÷ depth (8 ÷ 2) is rows · columns, which it must divide; the nearest is 4"},
    {llama, "mesh.tp=8 parallel.tensor=2.5d parallel.rows=3", "the nearest is 2 or 4"},
    {llama, "mesh.tp=6 parallel.tensor=2d parallel.rows=4", "but mesh.tp (6) is rows · columns"},
    {llama, "mesh.tp=6 parallel.tensor=2.5d parallel.rows=2", "mesh.tp is 6, but parallel.tensor 2.5d takes depth"},
    // What was not given is not blamed.
    {llama, "mesh.tp=4 parallel.tensor=2d layout.batch=[]",
     "layout.batch is [], which cuts the samples into 1 part, but layout.interior is [dp, tp_row], which cuts those "
     "inside blocks into 2, and that must divide the former; leave layout.batch out"},
    {llama, "mesh.tp=4 parallel.tensor=2d layout.batch=[] layout.interior=[tp]", "leave layout.interior out"},
    {llama, "mesh.tp=4 mesh.cp=2 parallel.tensor=2d layout.seq=[cp,tp]", "as well; take tp out of layout.seq"},
    {llama, "mesh.tp=4 mesh.cp=2 parallel.tensor=2d parallel.sequence=true", "as well; leave parallel.sequence out"},
    // Too few layers: a schedule of the same kind.
    {llama, "mesh.pp=4 parallel.pipeline=zb-v", "take parallel.pipeline zb-h1 with parallel.stages_per_rank 1"},
    {llama, "mesh.pp=4 parallel.pipeline=interleaved", "take parallel.pipeline 1f1b with parallel.stages_per_rank 1"},
    {llama, "mesh.pp=4 parallel.pipeline=zb-h1 parallel.stages_per_rank=1", NULL},
    {llama, "mesh.pp=5", "mesh.pp is 5, but the model of m.json has only 4 layers to divide; the nearest mesh.pp is 4"},
    // Of widths that differ it is told which does not divide, and whose it is: 85 and 51 have 17 in common.
    {TWO_WIDTHS("85", "51"), "mesh.tp=3",
     "mesh.tp is 3, which does not divide the feed-forward width (85 of layer.1.ffn.gate) of the model of m.json"},
    {TWO_WIDTHS("84", "52"), "mesh.tp=3",
     "mesh.tp is 3, which does not divide the feed-forward width (52 of layer.0.shared.gate) of the model"},
    {TWO_WIDTHS("85", "50"), "mesh.tp=3",
     "the feed-forward width (50 of layer.0.shared.gate, 85 of layer.1.ffn.gate) of the model"},
    {TWO_WIDTHS("50", "50"), "mesh.tp=3", "which does not divide the feed-forward width (50) of the model of m.json"},
    {TWO_WIDTHS("84", "51"), "mesh.tp=3", NULL},
    {TWO_WIDTHS("90", "48"), "mesh.tp=4 mesh.dp=4 layout.heads=[] layout.ffn=[dp,tp]",
     "layout.ffn is [dp, tp], 16 ranks, which do not divide the feed-forward width (90 of layer.1.ffn.gate) of the "
     "model of m.json evenly; take one"},
    {TWO_WIDTHS("85", "48"), "mesh.tp=4 parallel.tensor=2d parallel.ep=1",
     "does not divide the feed-forward width (85 of layer.1.ffn.gate) of the model of m.json evenly"},
    // The first and the last stage can do without.
    {llama, "mesh.pp=6 parallel.layers=[0,1,1,1,1,0]", NULL},
    {llama, "mesh.pp=5 parallel.layers=[0,1,1,1,1]", NULL},
    {llama, "mesh.pp=5 parallel.layers=[1,1,1,1,0]", NULL},
    {llama, "mesh.pp=4 parallel.layers=[0,2,2,0]", NULL},
    {llama, "mesh.pp=3 parallel.pipeline=interleaved parallel.stages_per_rank=2 parallel.layers=[0,1,1,1,1,0]", NULL},
    {llama, "mesh.pp=6 parallel.layers=[0,1,1,0,1,1]",
     "parallel.layers gives stage 3 no layers; only the first, which has the embedding, and the last, which has the "
     "head, can do without"},
    {llama, "mesh.pp=6 parallel.layers=[0,0,1,1,1,1]", "parallel.layers gives stage 1 no layers"},
    {llama, "mesh.pp=5 parallel.layers=[1,1,1,1,1]",
     "parallel.layers adds up to 5, but the model of m.json has 4 layers"},
    {llama, "mesh.pp=7 parallel.layers=[0,1,1,1,1,1,0]",
     "parallel.layers adds up to 5, but the model of m.json has 4 layers"},
};

static void sentences_name_what_was_given(void **state) {
  for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
    ModelConfig config = {0};
    Error error = {0};
    const char *json = sentences[i].model;
    if (model_config_parse(&config, json, strlen(json), "m.json", &error)) fail_msg("%s", error.message);
    char settings[256], *keys[16], *next = settings;
    int count = 0;
    snprintf(settings, sizeof settings, "%s", sentences[i].settings);
    for (char *word; count < 16 && (word = strtok_r(next, " ", &next));) keys[count++] = word;
    Recipe recipe;
    int code = parse("", count, keys, &recipe, &error);
    if (!code) code = recipe_check_parallel(&recipe, &config, &error);
    if (!code != !sentences[i].says || (code && !strstr(error.message, sentences[i].says)))
      fail_msg("%s: %s", sentences[i].settings, code ? error.message : "it is not refused");
    recipe_free(&recipe);
    model_config_free(&config);
  }
}

// ---- experts --------------------------------------------------------------------------------------------------------

// A model, and what is asked of a step beside its parallel configuration.
typedef struct Work { StepModel model; StepBatch batch; int chunks; } Work;
static const Work routed = {
    .model = {.known = 1, .name = "the model", .family = "the moe model", .layers = 4,
              .size = {[DIM_EMBED] = 24, [DIM_KV_HEADS] = 2, [DIM_GROUP] = 6, [DIM_HEAD_DIM] = 4, [DIM_VOCAB] = 64,
                       [DIM_EXPERT] = 12, [DIM_EXPERT_FFN] = 24}},
    .batch = {.samples = 48, .micro = 2, .length = {[DIM_SEQ] = 48}}};

static Step step_of(const StepParallel *o, const Work *w) {
  Step step = {.parallel = *o, .batch = w->batch, .transform.chunks = w->chunks};
  step_choose(&step, &w->model);
  return step;
}

static int judge(const StepParallel *o, const Work *w, ParallelProblem *problem) {
  Step step = step_of(o, w);
  return parallel_check(&step, &w->model, problem);
}

static StepParallel over(int dp, int cp, int tp, int experts) {
  StepParallel o = parallel_default(1, dp, tp, 0);
  o.mesh = mesh_create(4, (const char *[]){"pp", "dp", "cp", "tp"}, (int[]){1, dp, cp, tp});
  o.experts = experts > 1 ? experts : 0;
  return o;
}

// The experts fold over tp, then over cp, then over a part of dp; the sentence names the nearest numbers of ranks.
static void experts_fold_over_the_innermost_ranks(void **state) {
  int allowed = 0, named = 0;
  for (int mesh = 0; mesh < 6 * 3 * 4; mesh++)
    for (int ep = 2; ep <= 72; ep++) {
      int dp = mesh % 6 + 1, cp = mesh / 6 % 3 + 1, tp = mesh / 18 + 1;
      StepParallel o = over(dp, cp, tp, ep);
      ParallelProblem problem, other;
      int fits = 12 % ep == 0 && (ep == tp || (ep % (tp * cp) == 0 && dp % (ep / tp / cp) == 0)),
          code = judge(&o, &routed, &problem);
      if (code && strcmp(problem.key, "parallel.ep") != 0) continue; // the mesh itself does not fit
      if ((code == 0) != fits) fail_msg("ep %d over %d · %d · %d: %s", ep, dp, cp, tp, code ? problem.text : "allowed");
      allowed += !code;
      for (int k = 0; k < 2 && code; k++) {
        StepParallel near = over(dp, cp, tp, (int)problem.nearest[k]);
        if (problem.nearest[k] && judge(&near, &routed, &other))
          fail_msg("ep %d over %d · %d · %d: %s; but %s", ep, dp, cp, tp, problem.text, other.text);
        named += problem.nearest[k] > 0;
      }
    }
  assert_true(allowed > 30 && named > 1000);
}

// A model and a step that fit a mesh, whatever it is.
static Work fitting(int dp, int cp, int tp, int ep) {
  int64_t all = (int64_t)cp * tp;
  Work w = routed;
  w.batch = (StepBatch){.samples = dp, .micro = 1, .length = {[DIM_SEQ] = 2 * all}};
  for (int d = 0; d < DIM_COUNT; d++)
    if (w.model.size[d]) w.model.size[d] = 2 * all;
  w.model.size[DIM_EXPERT] = ep;
  return w;
}

// The axes that experts lie over are the innermost of the mesh, and have as many ranks as were asked for; samples are
// divided as ever.
static void expect_expert_ranks(const StepParallel *o, const Work *w, int dp, int cp, int tp) {
  ParallelProblem problem;
  Step step = step_of(o, w);
  if (parallel_check(&step, &w->model, &problem))
    fail_msg("ep %d over %d · %d · %d, groups of %d: %s", o->experts, dp, cp, tp, o->shard_group, problem.text);
  Parallel p = parallel_create(&step, &w->model);
  uint32_t experts = layout_expert_axes(&p.layout);
  int innermost = 1, data = parallel_data_ranks(&p);
  for (int a = p.mesh.naxis - 1, outside = 0; a >= 0; a--) {
    if (p.mesh.axis[a].size == 1) continue;
    if (!(experts >> a & 1)) outside = 1;
    else innermost &= !outside;
  }
  if (mesh_size(&p.mesh, experts) != o->experts || !innermost || data != dp)
    fail_msg(
        "ep %d over %d · %d · %d, groups of %d: the experts are divided over %d ranks, %sthe innermost, the samples "
        "over %d",
        o->experts, dp, cp, tp, o->shard_group, mesh_size(&p.mesh, experts), innermost ? "" : "not ", data);
}

// Every mesh up to 64 in each axis, and every parallel.ep up to 64. make test takes all of
// them that fold over cp, and of those that fold over tp alone one mesh in 41.
static void experts_lie_on_as_many_ranks_as_asked(void **state) {
  enum { MOST = 64 };
  int allowed = 0, parts = 0;
  for (int tp = 1; tp <= MOST; tp++)
    for (int cp = 1; cp <= MOST; cp++)
      for (int dp = 1; dp <= MOST; dp++) {
        int over_tp_alone = test_tier() > 1 || (dp + 5 * cp + 7 * tp) % 41 == 0; // in which of the meshes that is tried
        if (tp * cp > MOST && !over_tp_alone) continue;
        StepParallel o = over(dp, cp, tp, 0);
        o.zero = 1; // groups divide storage
        for (int ep = 2; ep <= MOST; ep++) {
          ExpertFold fold;
          int of_dp = ep % (tp * cp) ? 0 : ep / tp / cp, fits = ep == tp || (of_dp && dp % of_dp == 0);
          if (!parallel_expert_fold(&o, ep, &fold) != !fits)
            fail_msg("ep %d over %d · %d · %d %s", ep, dp, cp, tp, fits ? "is refused" : "is allowed");
          if (!fits || (ep == tp && cp > 1 && !over_tp_alone)) continue;
          Work w = fitting(dp, cp, tp, ep);
          o.experts = ep;
          for (o.shard_group = 0; o.shard_group <= dp; o.shard_group++) {
            if (o.shard_group == 1 || (o.shard_group && dp % o.shard_group)) continue;
            if (!parallel_expert_fold(&o, ep, &fold)) continue; // a part of dp that does not divide the groups
            expect_expert_ranks(&o, &w, dp, cp, tp);
            allowed++, parts += of_dp > 1 && of_dp < dp && of_dp * of_dp > dp;
          }
          o.shard_group = 0;
        }
      }
  print_message("%d meshes and numbers of ranks, of which %d with a part of dp that is larger than what is left\n",
                allowed, parts);
  assert_true(allowed > 10000 && parts > 400);
}

static void experts_are_refused_by_name(void **state) {
  ParallelProblem problem;
  Work dense = routed;
  dense.model.size[DIM_EXPERT] = dense.model.size[DIM_EXPERT_FFN] = 0;
  dense.model.size[DIM_FFN] = 24;
  StepParallel o = over(4, 1, 2, 8);
  assert_true(judge(&o, &dense, &problem) && strstr(problem.text, "the moe model has no experts"));
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "must divide the 12 experts of the model"));
  assert_true(strstr(problem.text, "the nearest is 4"));
  Work many = routed;
  many.model.size[DIM_EXPERT] = many.batch.samples = 2048;
  o = over(2048, 1, 1, 2048);
  assert_true(judge(&o, &many, &problem) && strstr(problem.text, "at most 1024 ranks; the nearest is 1024"));
  o.experts = 0;
  o.layout.row[LAYOUT_ROW_EXPERT] = (LayoutWords){1, {AXIS_DP}};
  assert_true(judge(&o, &many, &problem) && strstr(problem.text, "layout.expert is 2048 ranks"));
  many.model.known = 0; // without a model there is no nearest value
  o = over(3, 1, 2, 4);
  assert_true(!judge(&o, &many, &problem));
  o = over(4, 1, 2, 4);
  assert_true(!judge(&o, &routed, &problem));
  o.layout.row[LAYOUT_ROW_EXPERT] = (LayoutWords){1, {AXIS_DP}};
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "leave one of them out"));
  o.experts = 0; // over dp, inside over tp
  assert_true(!judge(&o, &routed, &problem));
  o.layout.row[LAYOUT_ROW_EXPERT] = (LayoutWords){2, {AXIS_DP, AXIS_TP}};
  o.layout.row[LAYOUT_ROW_EXPERT_FFN] = (LayoutWords){0};
  o.mesh = over(2, 1, 2, 0).mesh;
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "take layout.expert=[tp, dp]"));
  o.layout.row[LAYOUT_ROW_EXPERT] = (LayoutWords){2, {AXIS_TP, AXIS_DP}};
  assert_true(!judge(&o, &routed, &problem));
  o.layout.row[LAYOUT_ROW_SEQ] = (LayoutWords){2, {AXIS_CP, AXIS_TP}};
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "take layout.expert=[dp, tp]"));
  o = over(1, 2, 2, 0);
  o.layout.row[LAYOUT_ROW_SEQ] = (LayoutWords){2, {AXIS_CP, AXIS_TP}};
  o.layout.row[LAYOUT_ROW_EXPERT] = (LayoutWords){1, {AXIS_CP}};
  assert_true(!judge(&o, &routed, &problem));
  o.layout.row[LAYOUT_ROW_EXPERT_FFN] = (LayoutWords){0};
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "within which layout.seq cuts tp further"));
  o = over(4, 1, 1, 4);
  o.zero = 1;
  o.shard_group = 2;
  assert_true(!judge(&o, &routed, &problem));
  o = over(1, 1, 4, 4);
  o.tensor = LAYOUT_TENSOR_2D;
  o.layout = layout_of_tensor(LAYOUT_TENSOR_2D);
  assert_true(judge(&o, &routed, &problem) && strstr(problem.text, "parallel.tensor is 2d"));
}

// Parts of the positions that go through experts one after the other.
static void chunks_divide_the_positions_of_a_rank(void **state) {
  ParallelProblem problem;
  Work w = routed;
  StepParallel o = over(2, 1, 2, 2);
  for (w.chunks = 1; w.chunks <= 60; w.chunks++) {
    int code = judge(&o, &w, &problem);
    if (!code != (48 % w.chunks == 0)) fail_msg("%d chunks: %s", w.chunks, code ? problem.text : "allowed");
  }
  w.chunks = 5;
  assert_true(
      judge(&o, &w, &problem) && !strcmp(problem.key, "moe.chunks") &&
      strstr(problem.text, "must divide the 48 positions of a sequence (data.seq_len 48); the nearest is 4 or 6"));
  o.sequence = 1;
  o.layout = layout_shipped(LAYOUT_SHIPPED_SEQUENCE);
  w.chunks = 16;
  assert_true(judge(&o, &w, &problem) && strstr(problem.text, "the 24 positions of a rank"));
  assert_true(strstr(problem.text, "(data.seq_len 48 over 2 ranks); the nearest is 12 or 24"));
  o = over(1, 2, 1, 2);
  o.context = ALGORITHM_GATHER;
  assert_true(judge(&o, &w, &problem) && strstr(problem.text, "the 12 positions of a piece"));
  assert_true(strstr(problem.text, "over 2 ranks, in two pieces each); the nearest is 12"));
  o.context = ALGORITHM_ULYSSES;
  w.chunks = 24;
  assert_true(!judge(&o, &w, &problem));
  w = routed;
  w.chunks = 5;
  w.model.size[DIM_EXPERT] = w.model.size[DIM_EXPERT_FFN] = 0; // that there are no experts is said elsewhere
  w.model.size[DIM_FFN] = 24;
  o = over(2, 1, 1, 1);
  assert_true(!judge(&o, &w, &problem));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(allowed_is_what_compiles), cmocka_unit_test(nearest_is_valid),
                                     cmocka_unit_test(contexts_that_are_allowed_compile),
                                     cmocka_unit_test(refused_pairs_are_refused),
                                     cmocka_unit_test(summa_needs_a_square),
                                     cmocka_unit_test(experts_fold_over_the_innermost_ranks),
                                     cmocka_unit_test(experts_lie_on_as_many_ranks_as_asked),
                                     cmocka_unit_test(experts_are_refused_by_name),
                                     cmocka_unit_test(chunks_divide_the_positions_of_a_rank),
                                     cmocka_unit_test(sentences_name_what_was_given)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
