// tier 1
// What is said to people who write recipes: notes about what the command line gives, the names of other systems, a
// model.config that is not the folder's; and learning rates as shares.
#include "base/file.h"
#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"
#include "setup/setup.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BASE "model: {config: m.json}\ndata: {train: t}\nrun: {dir: r}\n"

static int parse(const char *text, int n, char **overrides, Recipe *recipe, Error *error) {
  return recipe_parse("x.yaml", text, strlen(text), "/base", n, overrides, recipe, error);
}

// What is printed gives the same recipe.
static void check_round_trip(const Recipe *r) {
  char *text;
  size_t size;
  Recipe again;
  Error error = {0};
  FILE *out = open_memstream(&text, &size);
  assert_non_null(out);
  recipe_print(r, out);
  fclose(out);
  if (parse(text, 0, NULL, &again, &error)) fail_msg("%s", error.message);
  assert_true(recipe_equal(r, &again));
  recipe_free(&again);
  free(text);
}

// What the command line changes is not said of keys in the file that thereby do nothing; what it gives itself is.
static void notes_of_the_command(void **state) {
  static const struct { const char *text, *override, *note;
  } cases[] = {
      {"data: {train: t, valid: v}\neval: {batches: 3}\n", "eval.every=0", NULL},
      {"data: {train: t, valid: v}\neval: {batches: 3, every: 0}\n", "batch.micro=1", "eval.batches is 3"},
      {"data: {train: t, valid: v}\neval: {every: 0}\n", "eval.batches=3",
       "note: eval.batches is 3, but eval.every is 0"},
      {"data: {train: t, valid: v}\neval: {batches: 3}\n", "data.valid=", NULL},
      {"data: {train: t}\nmesh: {dp: 2}\nparallel: {zero: 2}\n", "mesh.dp=1", NULL},
      {"data: {train: t}\nmesh: {dp: 2}\nparallel: {zero: 2}\n", "mesh=", NULL},
      {"data: {train: t}\nmesh: {dp: 2}\nparallel: {bucket_mb: 7}\n", "mesh.dp=1", NULL},
      {"data: {train: t}\nmesh: {dp: 1}\n", "parallel.bucket_mb=7", "parallel.bucket_mb has no effect"},
      {"data: {train: t}\nmesh: {dp: 4}\nparallel: {zero: 1, shard_group: 2}\n", "mesh.dp=2", NULL},
      {"data: {train: t}\nmesh: {dp: 2}\nbatch: {balance: [2, 1]}\n", "batch.balance=even", NULL},
      {"data: {train: t}\nmesh: {tp: 2}\nlayout: {ffn: [tp]}\n", "mesh.tp=1", NULL},
      {"data: {train: t}\nmesh: {tp: 1}\n", "layout.ffn=[tp]", "layout.ffn names tp, but mesh.tp is 1"},
      {"data: {train: t}\noptimizer: {name: sgd, momentum: 0.9}\n", "optimizer.name=adamw", NULL},
      {"data: {train: t}\nmesh: {pp: 2}\nparallel: {pipeline: gpipe}\n", "mesh.pp=1", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    Error error = {0};
    char *text = xformat("model: {config: m.json}\nrun: {dir: r}\n%s", cases[i].text);
    if (parse(text, 1, (char *[]){(char *)cases[i].override}, &r, &error)) fail_msg("case %zu: %s", i, error.message);
    const char *notes = r.notes ? r.notes : "";
    if (!cases[i].note ? *notes : !strstr(notes, cases[i].note))
      fail_msg("case %zu: \"%s\" is not \"%s\"", i, notes, cases[i].note ? cases[i].note : "");
    recipe_free(&r);
    free(text);
  }
}

// schedule.min_lr as a number, and as a share of whatever optimizer.lr is.
static void least_rates(void **state) {
  static const struct { const char *least, *lr; double rate; } cases[] = {
      {"schedule.min_lr=1e-4", "optimizer.lr=1e-3", 1e-4}, {"schedule.min_lr=10 %", "optimizer.lr=1e-3", 1e-4},
      {"schedule.min_lr=10%", "optimizer.lr=5e-6", 5e-7},  {"schedule.min_lr=0%", "optimizer.lr=1e-3", 0},
      {"schedule.min_lr=100 %", "optimizer.lr=7e-4", 7e-4}, {"schedule.min_lr=12.5  %", "optimizer.lr=8", 1},
      {"schedule.min_lr=50 %", "optimizer.lr=0", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    Error error = {0};
    if (parse(BASE, 2, (char *[]){(char *)cases[i].least, (char *)cases[i].lr}, &r, &error))
      fail_msg("%s", error.message);
    if (fabs(recipe_min_lr(&r) - cases[i].rate) > 1e-15 * cases[i].rate)
      fail_msg("%s: %.17g", cases[i].least, recipe_min_lr(&r));
    check_round_trip(&r);
    recipe_free(&r);
  }
}

static void write_text(const char *path, const char *text) {
  AtomicFile file;
  Error error = {0};
  assert_int_equal(file_begin(&file, path, &error), 0);
  fputs(text, file.stream);
  assert_int_equal(file_commit(&file, &error), 0);
}

// A model.config beside a folder to start from must be the folder's model; the folder's own is taken without it.
static void configs_of_folders(void **state) {
  static const char llama[] =
      "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 16, \"intermediate_size\": 32, "
      "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"num_key_value_heads\": %d, "
      "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-5}";
  static const char gpt[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 320, \"n_embd\": 16, \"n_layer\": 2, "
                            "\"n_head\": 4, \"n_positions\": 64}";
  static const struct { int vocab, layers, kv, positions; const char *message;
  } cases[] = {
      {320, 2, 2, 64, NULL},
      {320, 2, 2, 128, NULL}, // as long as it is told to be
      {321, 2, 2, 64,
       "says vocabulary 321, but the folder of model.init, whose weights it should fit, says vocabulary 320"},
      {320, 3, 2, 64, "says layers 3"},
      {320, 2, 4, 64, "key and value heads 4"},
      {0, 0, 0, 0, "says gpt2, but the folder"},
      {-1, 0, 0, 0, NULL}, // none
  };
  char folder[] = "/tmp/plait-recipe-XXXXXX", text[512];
  assert_non_null(mkdtemp(folder));
  char *own = xformat("%s/config.json", folder), *given = xformat("%s/given.json", folder);
  char *keys[] = {xformat("model.init=%s", folder), NULL};
  snprintf(text, sizeof text, llama, 320, 2, 2, 64);
  write_text(own, text);
  char *weights = xformat("%s/model.safetensors", folder);
  write_text(weights, "not read here");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    ModelConfig config = {0};
    Error error = {0};
    if (cases[i].vocab)
      snprintf(text, sizeof text, llama, cases[i].vocab, cases[i].layers, cases[i].kv, cases[i].positions);
    write_text(given, cases[i].vocab ? text : gpt);
    keys[1] = cases[i].vocab < 0 ? xformat("model.config=null") : xformat("model.config=%s", given);
    if (parse(BASE, 2, keys, &r, &error)) fail_msg("%s", error.message);
    int code = setup_model_config(&r, &config, &error);
    if (!cases[i].message ? code : code != PLAIT_BAD_INPUT || !strstr(error.message, cases[i].message))
      fail_msg("case %zu: %s", i, error.message);
    if (code && !strstr(error.message, "leave model.config out")) fail_msg("%s", error.message);
    model_config_free(&config);
    recipe_free(&r);
    free(keys[1]);
  }
  Error error = {0};
  folder_remove(folder, &error);
  free(keys[0]);
  free(own);
  free(given);
  free(weights);
}

// What other systems call things: each name leads to a key that there is, and a value to one that the key allows. No
// name is a key itself.
static void synonyms(void **state) {
  static const char *const forms[] = {"%s=1", "trainer.%s=1", "{\"model\": {\"config\": m}, a: {%s: 1}}"};
  Recipe r;
  Error error;
  for (int i = 0; i < recipe_synonym_count; i++) {
    const RecipeSynonym *s = &recipe_synonyms[i];
    if (!recipe_key_find(s->path)) fail_msg("%s leads to %s, which is not a key", s->theirs, s->path);
    if (recipe_key_find(s->theirs) || recipe_section_exists(s->theirs)) fail_msg("%s is a key itself", s->theirs);
    for (int k = 0; k < recipe_key_count && !strchr(s->theirs, '.'); k++)
      if (!strcmp(recipe_key_leaf(&recipe_keys[k]), s->theirs)) fail_msg("%s is %s", s->theirs, recipe_keys[k].path);
    char *meant = xformat("did you mean %s%s%s%s", s->path, *s->value ? "=" : "", s->value, *s->note ? " (" : "?");
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
      char written[256];
      snprintf(written, sizeof written, forms[f], s->theirs); // NOLINT
      error = (Error){0};
      int code = f == 2 ? parse(written, 0, NULL, &r, &error) : parse(BASE, 1, (char *[]){written}, &r, &error);
      if (code != PLAIT_BAD_INPUT || !strstr(error.message, meant)) fail_msg("%s: %s", written, error.message);
    }
    if (*s->value) {
      char *key = xformat("%s=%s", s->path, s->value);
      error = (Error){0};
      if (parse(BASE, 1, &key, &r, &error)) fail_msg("%s: %s", key, error.message);
      recipe_free(&r);
      free(key);
    }
    free(meant);
  }
}

// The same for values: at least one key has the word, and each that has it names it and takes it.
static void word_synonyms(void **state) {
  for (int i = 0; i < recipe_word_synonym_count; i++) {
    const char *theirs = recipe_word_synonyms[i][0], *word = recipe_word_synonyms[i][1];
    int count = 0;
    for (int k = 0; k < recipe_key_count; k++) {
      const RecipeKey *key = &recipe_keys[k];
      bool truth = key->kind == RECIPE_BOOL && (!strcmp(word, "true") || !strcmp(word, "false"));
      if (!truth && (!recipe_word(key, word) || recipe_word(key, theirs) || key->kind == RECIPE_WORD_OR_PATH)) continue;
      if (!truth && recipe_word(key, word)->later) continue;
      Recipe r;
      Error error = {0};
      char *written = xformat("%s=%s", key->path, theirs), *meant = xformat("did you mean %s?", word);
      if (parse(BASE, 1, &written, &r, &error) != PLAIT_BAD_INPUT || !strstr(error.message, meant))
        fail_msg("%s: %s", written, error.message);
      free(written);
      written = xformat("%s=%s", key->path, word);
      error = (Error){0};
      if (!parse(BASE, 1, &written, &r, &error)) recipe_free(&r);
      else if (strstr(error.message, "must be")) fail_msg("%s: %s", written, error.message); // it may need another key
      free(written);
      free(meant);
      count++;
    }
    if (!count) fail_msg("no key has the word %s", word);
  }
}

// Other spellings and letters that are wrong.
static void near_names(void **state) {
  static const struct { const char *written, *message;
  } cases[] = {
      {"learningRate=1", "did you mean optimizer.lr?"},
      {"train.Learning-Rate=1", "did you mean optimizer.lr?"},
      {"optimizer.learing_rate=1", "did you mean optimizer.lr?"},
      {"parallel.FSDP=1", "did you mean parallel.zero=3?"},
      {"batch.size=1", "did you mean batch.global (sequences"},
      {"fp16.enabled=true", "did you mean precision=fp16?"},
      {"training={max_steps: 3}", "training.max_steps: unknown key; did you mean schedule.steps?"},
      {"precision=BF16", "did you mean bf16?"},
      {"parallel.overlap=True", "did you mean true?"},
      {"parallel.overlap=yes", "did you mean true?"},
      {"zzzz={yyyy: {xxxx: 1}}", "zzzz.yyyy.xxxx: unknown key"},
      {"zzzz={}", "zzzz: unknown key"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    Error error = {0};
    if (parse(BASE, 1, (char *[]){(char *)cases[i].written}, &r, &error) != PLAIT_BAD_INPUT ||
        !strstr(error.message, cases[i].message))
      fail_msg("%s: %s", cases[i].written, error.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(notes_of_the_command), cmocka_unit_test(least_rates), cmocka_unit_test(configs_of_folders),
      cmocka_unit_test(synonyms),             cmocka_unit_test(word_synonyms), cmocka_unit_test(near_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
