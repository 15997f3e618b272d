// tier 1; rooms sharding
// Layouts written out in recipes: the same Program as the shipped one, what is refused and with which words.
#include "setup/setup.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char config_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 2, \"vocab_size\": 53, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5}";
#define BASE "model: {config: m.json}\ndata: {train: t, seq_len: 16}\nrun: {dir: r}\nbatch: {global: 32, micro: 4}\n"

static int parse(const char *text, Recipe *recipe, Error *error) {
  return recipe_parse("x.yaml", text, strlen(text), "/", 0, NULL, recipe, error);
}

// All Programs of a recipe as text; or the error.
static char *programs(const char *text, Error *error) {
  Recipe recipe = {0};
  ModelConfig config = {0};
  Job *job = NULL;
  char *out_text = NULL;
  size_t size;
  int code = parse(text, &recipe, error);
  if (!code) code = model_config_parse(&config, config_text, strlen(config_text), "m.json", error);
  if (!code) code = setup_job(&recipe, &config, &(RunSetting){.threads = 1}, &job, error);
  if (!code) {
    FILE *out = open_memstream(&out_text, &size);
    for (int c = 0; c < recipe.mesh.pp; c++) program_print(job_train(job)->program[c], NULL, out);
    fclose(out);
  }
  job_destroy(job);
  model_config_free(&config);
  recipe_free(&recipe);
  return out_text;
}

static void same(const char *a, const char *b, int expected) {
  Error error = {0};
  char *x = programs(a, &error), *y = programs(b, &error);
  if (!x || !y) fail_msg("%s", error.message);
  if ((strcmp(x, y) == 0) != expected) fail_msg("%s\n%s\n%s", a, expected ? "differs from" : "is the same as", b);
  free(x);
  free(y);
}

static void written_out_is_the_same_program(void **state) {
  static const char *const meshes[] = {"mesh: {dp: 2, tp: 2}\n", "mesh: {dp: 2, pp: 2}\nparallel: {zero: 3}\n",
                                       "mesh: {tp: 8}\nparallel: {zero: 1}\n",
                                       "mesh: {dp: 4, tp: 4}\nparallel: {zero: 1, shard_group: 2}\n"};
  char plain[512], named[512], written[512], other[512];
  for (int i = 0; i < 4; i++) {
    snprintf(plain, sizeof plain, BASE "%s", meshes[i]);
    snprintf(named, sizeof named, BASE "%slayout: {name: tensor}\n", meshes[i]);
    snprintf(written, sizeof written, BASE "%slayout: {name: data, ffn: [tp], heads: [tp], vocab: [tp]}\n", meshes[i]);
    snprintf(other, sizeof other, BASE "%slayout: {ffn: []}\n", meshes[i]);
    same(plain, named, 1);
    same(plain, written, 1);
    same(plain, other, !strstr(meshes[i], "tp"));
  }
  same(BASE "mesh: {tp: 2}\nparallel: {sequence: true}\n", BASE "mesh: {tp: 2}\nlayout: {name: sequence}\n", 1);
  same(BASE "mesh: {tp: 2}\nparallel: {sequence: true}\n", BASE "mesh: {tp: 2}\nlayout: {seq: [tp]}\n", 1);
  same(BASE "mesh: {tp: 2}\nparallel: {sequence: true}\n", BASE "mesh: {tp: 2}\n", 0);
}

static void effective_recipes_say_it_again(void **state) {
  Recipe one, two;
  Error error = {0};
  char *text;
  size_t size;
  assert_int_equal(parse(BASE "mesh: {tp: 2, dp: 2}\nlayout: {name: data, batch: [dp, tp], ffn: []}\n", &one, &error),
                   PLAIT_OK);
  FILE *out = open_memstream(&text, &size);
  recipe_print(&one, out);
  fclose(out);
  assert_non_null(strstr(text, "  name: data\n  batch: [dp, tp]\n  seq: auto\n"));
  if (parse(text, &two, &error)) fail_msg("%s", error.message);
  assert_true(recipe_equal(&one, &two));
  recipe_free(&one);
  recipe_free(&two);
  free(text);
}

static void wrong_layouts_are_refused(void **state) {
  static const struct { const char *text, *words;
  } cases[] = {
      {BASE "layout: {fnn: [tp]}\n", "x.yaml:5:10: layout.fnn: unknown key; did you mean layout.ffn?"},
      {BASE "layout: {ffn: [tq]}\n", "x.yaml:5:16: layout.ffn: \"tq\" is not a mesh axis that cuts dims; allowed are "
                                     "dp, cp, tp, tp_row and tp_depth; did you mean tp?"},
      {BASE "layout: {ffn: [pp]}\n",
       "layout.ffn: pp cuts layers, not dims; allowed are dp, cp, tp, tp_row and tp_depth; parallel.layers "
       "says how the layers are divided over pp"},
      {BASE "layout: {ffn: tp}\n", "x.yaml:5:15: layout.ffn must be auto, or a list"},
      {BASE "layout: {ffn: [tp, tp]}\n", "x.yaml:5:20: layout.ffn names tp twice; an axis cuts a dim once"},
      {BASE "layout: {ffn: {tp: 1}}\n", "not a map"},
      {BASE "layout: {name: megatron}\n", "layout.name must be one of auto, data, tensor, sequence"},
      {BASE "mesh: {tp: 2}\nlayout: {embed: [tp]}\n", "x.yaml:6:17: layout: embed and heads are both cut over tp"},
      {BASE "mesh: {tp: 2, dp: 2}\nlayout: {seq: [dp]}\n", "batch and seq are both cut over dp"},
      {BASE "mesh: {tp: 2}\nparallel: {sequence: true}\nlayout: {seq: []}\n",
       "x.yaml:7:15: layout.seq is [], but parallel.sequence is true"},
      {BASE "mesh: {tp: 2, dp: 2}\nlayout: {batch: [tp, dp]}\n",
       "layout.batch is [tp, dp], but ranks read their samples in the order of the mesh"},
      {BASE "mesh: {tp: 3}\nlayout: {name: data, seq: [tp]}\n", "the nearest data.seq_len is 15 or 18"},
      {BASE "mesh: {tp: 3}\n",
       "x.yaml:5:12: mesh.tp is 3, which does not divide the heads (8, with 2 key and value heads) of the "
       "model of m.json evenly; the nearest is 2 or 4, or take tp out of layout.heads"},
      {BASE "mesh: {tp: 16}\n", "the nearest is 8"},
      {BASE "mesh: {pp: 2}\nparallel: {layers: [1, 2]}\n",
       "x.yaml:6:20: parallel.layers adds up to 3, but the model of m.json has 2 layers"},
      {BASE "mesh: {pp: 4}\n",
       "x.yaml:5:12: mesh.pp is 4, but the model of m.json has only 2 layers to divide; the nearest mesh.pp is 2"},
      {BASE "mesh: {tp: 3}\nlayout: {heads: [], ffn: []}\nparallel: {sequence: true}\n",
       "data.seq_len is 16, but the Layout cuts the sequence over [tp], 3 ranks, "
       "which must divide it; the nearest data.seq_len is 15 or 18"},
      {BASE "mesh: {dp: 2}\nlayout: {position: [dp]}\n",
       "x.yaml:6:20: layout.position is given, but the llama model has no learned positions"},
      {BASE "mesh: {tp: 5}\nlayout: {name: data, embed: [tp]}\n",
       "mesh.tp is 5, which does not divide the embedding width (32) of the model of m.json evenly; the nearest is 4 "
       "or "
       "8, or take tp out of layout.embed"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error error = {0};
    char *text = programs(cases[i].text, &error);
    if (text || (error.code != PLAIT_BAD_INPUT && error.code != PLAIT_INFEASIBLE) ||
        !strstr(error.message, cases[i].words))
      fail_msg("case %zu: code %d, \"%s\" lacks \"%s\"", i, error.code, error.message, cases[i].words);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(written_out_is_the_same_program),
                                     cmocka_unit_test(effective_recipes_say_it_again),
                                     cmocka_unit_test(wrong_layouts_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
