// The golden folders (scripts/golden_models.py), and what tests read and compare of them. cmocka.h is included before.
#pragma once
#include "base/error.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "ir/graph.h"
#include "tier.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {"gpt2-tied",  "gpt2-untied",  "llama-tied",     "llama-untied",
                                    "qwen2-tied", "qwen3-untied", "mistral-untied", "gpt_neo-tied",
                                    "mixtral-untied", "qwen2_moe-tied", "qwen3_moe-untied"};
static inline int next_case(int i) { return i + (test_tier() < 2 ? 5 : 1); } // make test has three of them
enum { CASES = sizeof cases / sizeof *cases, BATCH = 3, SEQ = 24, STEPS = 20 };

#define SUCCEED(call)                                                                                                  \
  do {                                                                                                                 \
    Error error = {0};                                                                                                 \
    if ((call) < 0) fail_msg("%s", error.message);                                                                     \
  } while (0)

// Inputs of a training step, by their names in the files.
typedef struct GoldenInput { KnownInput known; const char *name; } GoldenInput;
enum { GOLDEN_INPUTS = 5 };
static const GoldenInput golden_input[GOLDEN_INPUTS] = {{INPUT_TOKENS, "tokens"},
                                                        {INPUT_POSITIONS, "positions"},
                                                        {INPUT_DOCUMENTS, "documents"},
                                                        {INPUT_TARGETS, "targets"},
                                                        {INPUT_STEP_TARGETS, "targets"}};

// How far loss and norm of a step are from PyTorch's, relatively: must be below `tolerance`.
static inline double golden_step(const char *name, int step, const double got[2], const SafetensorsEntry *loss,
                                 const SafetensorsEntry *norm, double tolerance) {
  double expected[2]; // the file need not align it
  memcpy(&expected[0], (const char *)loss->data + (size_t)step * sizeof(double), sizeof(double));
  memcpy(&expected[1], (const char *)norm->data + (size_t)step * sizeof(double), sizeof(double));
  double worst = 0;
  for (int k = 0; k < 2; k++) {
    double off = fabs(got[k] - expected[k]) / expected[k];
    if (!(off < tolerance))
      fail_msg("%s step %d: %s is %.12g, expected %.12g", name, step, k ? "grad_norm" : "loss", got[k], expected[k]);
    worst = fmax(worst, off);
  }
  return worst;
}

// The weights whose names begin with "after." in a file of training, against those that `save` writes (folder and dtype
// are set here): the largest difference.
static inline double golden_after(HuggingfaceSave save, const ModelConfig *c, const Safetensors *training) {
  char folder[] = "/tmp/plait-golden-XXXXXX";
  assert_non_null(mkdtemp(folder));
  save.folder = folder, save.dtype = DTYPE_F32;
  SUCCEED(huggingface_save(&save, c, &error));
  Safetensors written;
  SUCCEED(safetensors_open_folder(&written, folder, &error));
  double worst = 0;
  int compared = 0;
  for (int i = 0; i < training->count; i++) {
    const SafetensorsEntry *x = &training->entries[i];
    if (strncmp(x->name, "after.", 6)) continue;
    const SafetensorsEntry *y = safetensors_find(&written, x->name + 6);
    assert_true(y && y->bytes == x->bytes);
    for (int64_t k = 0; k < safetensors_elements(x); k++)
      worst = fmax(worst, fabs(dtype_load(x->data, DTYPE_F32, k) - dtype_load(y->data, DTYPE_F32, k)));
    compared++;
  }
  assert_int_equal(compared, 3);
  safetensors_close(&written);
  SUCCEED(folder_remove(folder, &error));
  return worst;
}
