// tier 1; threads
// What the ranks of a machine have of the state together, and what of it is spare.
#include "setup/setup.h"
#include "runtime/machine_state.h"
#include "runtime/state_tensors.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, "
    "\"vocab_size\": 61, \"activation_function\": \"gelu_new\"}";

// all: of machines of 1, 2, 4 and 8 ranks, which have the whole state, by the size of the first (bits).
static const struct { const char *keys; unsigned all; } table[] = {
    {"mesh.dp=8", 1 | 2 | 4 | 8},
    {"mesh.dp=8 parallel.zero=1", 8},
    {"mesh.dp=8 parallel.zero=3", 8},
    {"mesh.dp=4 mesh.tp=2", 2 | 4 | 8},
    {"mesh.dp=2 mesh.tp=4", 4 | 8},
    {"mesh.dp=2 mesh.tp=2 mesh.pp=2", 8}, // the ranks of a stage are neighbours
    {"mesh.dp=4 mesh.cp=2", 1 | 2 | 4 | 8},
};

static void each_layout(void **state) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 16}, batch: {global: 16, micro: 1}, "
                  "run: {dir: /none}}";
    char *keys[8], *word = xstrdup(table[i].keys), *rest = word;
    int count = 0;
    Recipe recipe;
    ModelConfig config;
    Job *job;
    Error error = {0};
    while ((keys[count] = strtok_r(rest, " ", &rest))) count++;
    if (recipe_parse("test", text, strlen(text), "/", count, keys, &recipe, &error) ||
        model_config_parse(&config, model, strlen(model), "model", &error) ||
        setup_job(&recipe, &config, &(RunSetting){.threads = 1}, &job, &error))
      fail_msg("%s: %s", table[i].keys, error.message);
    for (int size = 1, bit = 1; size <= 8; size *= 2, bit *= 2)
      for (int first = 0; first < 8; first += size) {
        bool all = machine_has_all(job, first, size);
        if (all != (table[i].all / (unsigned)bit % 2))
          fail_msg("%s: ranks %d to %d have%s all", table[i].keys, first, first + size - 1, all ? "" : " not");
        // Together with what they write anyway: the first machine that has all writes all.
        int64_t spare = machine_spare_bytes(job, first, size);
        if (size == 8 && spare) fail_msg("%s: %lld bytes are spare of one machine", table[i].keys, (long long)spare);
        if (all && first == 0 && spare) fail_msg("%s: the first machine has spare pieces", table[i].keys);
        if (all && first > 0 && !spare) fail_msg("%s: the machine of rank %d has none", table[i].keys, first);
      }
    job_destroy(job);
    recipe_free(&recipe);
    model_config_free(&config);
    free(word);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_layout)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
