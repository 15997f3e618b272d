// Programs compiled from a recipe, for tests that read them: a temporary folder with the recipe, recipe.yaml, and the
// configs that it names. A test writes these in its setup. After cmocka.h.
#pragma once
#include "base/file.h"
#include "setup/setup.h"
#include "runtime/job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char test_folder[32];

// The path of a file there; the last four stay.
static inline char *path_of(const char *name) {
  static char path[4][128];
  static int next;
  snprintf(path[next = (next + 1) % 4], sizeof path[0], "%s/%s", test_folder, name);
  return path[next];
}

static inline void write_file(const char *name, const char *text) {
  FILE *f = fopen(path_of(name), "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

// moe.json, a small model with experts, and recipe.yaml, which names gpt.json: the test writes that one.
static inline void write_experts_and_recipe(void) {
  write_file("moe.json",
             "{\"model_type\": \"mixtral\", \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 3,"
             " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 16,"
             " \"vocab_size\": 128, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"rms_norm_eps\": 1e-5,"
             " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml",
             "model: {config: gpt.json}\ndata: {train: none, seq_len: 16}\nbatch: {global: 8, micro: 1}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\nprecision: fp32\n");
}

static inline int make_folder(void) {
  strcpy(test_folder, "/tmp/plait-test-XXXXXX");
  return mkdtemp(test_folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
  Error error = {0};
  return folder_remove(test_folder, &error);
}

typedef struct Case { Recipe recipe; ModelConfig config; Job *job; } Case;

// The recipe with some keys, and its model; not compiled yet.
static inline Case loaded_with(int count, char **keys) {
  Case c = {0};
  Error error = {0};
  if (recipe_load(path_of("recipe.yaml"), count, keys, &c.recipe, &error) ||
      model_config_load(&c.config, c.recipe.model.config, &error))
    fail_msg("%s", error.message);
  return c;
}

// keys: "key=value …"
static inline Case loaded(const char *keys) {
  char text[512], *words[32], *next = text;
  int n = 0;
  assert_true(strlen(keys) < sizeof text);
  strcpy(text, keys);
  for (char *word; (word = strtok_r(next, " ", &next));) {
    assert_true(n < 32);
    words[n++] = word;
  }
  return loaded_with(n, words);
}

// For training.
static inline void compile_case(Case *c) {
  Error error = {0};
  if (setup_job(&c->recipe, &c->config, &(RunSetting){.threads = 1}, &c->job, &error)) fail_msg("%s", error.message);
}

static inline Case compiled_by(const char *keys) {
  Case c = loaded(keys);
  compile_case(&c);
  return c;
}

// keys: NULL-terminated
static inline Case compiled_by_list(const char *const *keys) {
  int n = 0;
  while (keys[n]) n++;
  Case c = loaded_with(n, (char **)(uintptr_t)keys); // reads them only
  compile_case(&c);
  return c;
}

static inline void release(Case *c) {
  job_destroy(c->job);
  model_config_free(&c->config);
  recipe_free(&c->recipe);
}
