// plait export: a checkpoint as a Hugging Face folder, verified.
#include "base/file.h"
#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "infer/model_source.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct Export {
  const char *out, *dtype, *tokenizer_path;
  ModelSource source;
  json_t *dtypes; // of the folder that the model came from; owned
} Export;

// A signal ends it here, so that huggingface_save removes the folder that it has begun.
static int read_parameter(void *context, const char *name, const Box *part, float *out, Error *error) {
  if (signals_stop())
    return error_set(error, PLAIT_INTERRUPTED, "stopped by %s, nothing was written", signals_name(signals_number()));
  return model_source_read(context, name, part, out, error);
}

// A model that came from a Hugging Face folder goes out in the same dtypes.
static int find_dtypes(Export *e, Error *error) {
  if (!e->source.checkpoint) return huggingface_dtypes(e->source.path, &e->source.config, &e->dtypes, error);
  json_t *dtypes = json_object_get(checkpoint_extra(e->source.checkpoint), "huggingface_dtypes");
  if (json_is_object(dtypes)) e->dtypes = json_incref(dtypes);
  return PLAIT_OK;
}

static int choose_dtype(const Export *e, int *dtype, Error *error) {
  *dtype = e->dtype ? dtype_from_name(e->dtype) : -1;
  if (!e->dtype || *dtype == DTYPE_F32 || *dtype == DTYPE_BF16 || *dtype == DTYPE_F16) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--dtype is \"%.50s\", it must be one of fp32, bf16, fp16", e->dtype);
}

static int print_written(const Export *e, Error *error) {
  Safetensors written;
  int code = safetensors_open_folder(&written, e->out, error);
  if (code) return code;
  double bytes = 0;
  for (int i = 0; i < written.count; i++) bytes += (double)written.entries[i].bytes;
  printf("%s: config.json, model.safetensors (%d tensors, %s)%s\n", e->out, written.count, units_bytes(bytes).s,
         e->tokenizer_path ? ", tokenizer.json" : "; no tokenizer.json: none was found");
  printf("opened again and verified: names, shapes, every element\n");
  safetensors_close(&written);
  return PLAIT_OK;
}

static int export(Export *e, const char *path, Error *error) {
  int dtype, code = choose_dtype(e, &dtype, error);
  if (!code && file_exists(e->out))
    code = error_set(error, PLAIT_BAD_INPUT, "--out: %s exists already; give a folder that does not", e->out);
  if (!code) code = model_source_open(&e->source, path, error);
  if (!code) code = find_dtypes(e, error);
  if (code) return code;
  if (!e->tokenizer_path) e->tokenizer_path = e->source.tokenizer;
  const HuggingfaceSave save = {.folder = e->out,
                                .tokenizer = e->tokenizer_path,
                                .dtype = dtype,
                                .dtypes = e->dtypes,
                                .read = read_parameter,
                                .context = &e->source};
  code = huggingface_save(&save, &e->source.config, error); // verifies before it renames
  return code ? code : print_written(e, error);
}

int cmd_export(int argc, char **argv) {
  Export e = {0};
  static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
  const Option options[] = {
      {.name = "out",
       .kind = OPTION_TEXT,
       .value = &e.out,
       .argument = "FOLDER",
       .help = "the new folder; it must not exist",
       .required = true},
      {.name = "dtype",
       .kind = OPTION_TEXT,
       .value = &e.dtype,
       .argument = "NAME",
       .help = "fp32, bf16 or fp16; without it, as the model came, or fp32",
       .words = dtypes},
      {.name = "tokenizer",
       .kind = OPTION_TEXT,
       .value = &e.tokenizer_path,
       .argument = "FILE",
       .help = "the tokenizer.json to include; without it, the model's own"},
  };
  const CommandHelp help = {
      "export", "[options] CHECKPOINT|RUN|FOLDER --out FOLDER",
      "Writes a model as a Hugging Face folder (config.json, model.safetensors, tokenizer.json), then reads the "
      "folder again and compares every element. The model is a checkpoint, a run (its newest checkpoint) or "
      "another Hugging Face folder. The new folder is complete, or it does not exist.",
      "  plait export runs/demo --out exports/demo\n"
      "  plait export runs/demo/checkpoints/step-3400 --out exports/demo-bf16 --dtype bf16\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, 1, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  signals_install(NULL);
  int code = export(&e, operands.words[0], &error);
  json_decref(e.dtypes);
  model_source_close(&e.source);
  return code ? command_fail("export", &error) : 0;
}
