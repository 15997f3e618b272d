// plait export: a checkpoint as a Hugging Face folder, verified.
#include "base/file.h"
#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "cmd/cmd.h"
#include "cmd/model_text.h"
#include "cli/options.h"
#include "infer/text_setup.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Export {
  const char *out, *dtype, *tokenizer_path, *shard_size;
  bool force;
  ModelSource source;
  Tokenizer *tokenizer; // NULL: there is none, or none that plait can read
  TextSetup text;
  json_t *files;  // beside the weights and the tokenizer; owned
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

// "5GB", "500 MB", "100000": bytes, in powers of 1000; 0: no limit.
static int choose_shard_bytes(const Export *e, int64_t *bytes, Error *error) {
  static const struct {
    const char *name;
    double bytes;
  } units[] = {{"", 1}, {"B", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  char *end;
  double value = strtod(e->shard_size, &end);
  int found = 0;
  if (end != e->shard_size && value >= 0 && value < 1e9) // not "nan" and the like, which are not below
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
      if (!strcmp(end + strspn(end, " "), units[i].name)) *bytes = (int64_t)(value * units[i].bytes), found = 1;
  if (found) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "--shard-size is \"%.50s\", it must be a number of bytes such as 5GB, 500MB or 100000, or 0 for one file",
      e->shard_size);
}

// How the model is used with text. A tokenizer that plait cannot read is carried all the same, if it came by itself.
static int set_up_text(Export *e, Error *error) {
  Error unreadable = {0};
  int code = PLAIT_OK;
  if (e->tokenizer_path) model_source_set_tokenizer(&e->source, e->tokenizer_path);
  if (e->tokenizer_path) code = tokenizer_load(e->tokenizer_path, &e->tokenizer, error);
  else if ((e->tokenizer_path = e->source.tokenizer) && tokenizer_load(e->tokenizer_path, &e->tokenizer, &unreadable))
    fprintf(stderr, "plait export: note: %s; it is copied, and no file is written for it\n", unreadable.message);
  if (code) return code;
  if ((code = text_setup(&e->text, &e->source, e->tokenizer, error))) return code;
  char text[900];
  if (text_setup_contradicts(&e->text, &e->source, e->tokenizer, text, sizeof text))
    fprintf(stderr, "plait export: note: %s; what is exported says what those files say\n", text);
  e->files = text_setup_files(&e->text, &e->source, e->tokenizer);
  return PLAIT_OK;
}

static int print_written(const Export *e, Error *error) {
  Safetensors written;
  const char *name;
  json_t *text;
  int code = safetensors_open_folder(&written, e->out, error);
  if (code) return code;
  double bytes = 0;
  for (int i = 0; i < written.count; i++) bytes += (double)written.entries[i].bytes;
  if (written.file_count > 1)
    printf("%s: config.json, %d files model-….safetensors and an index", e->out, written.file_count);
  else printf("%s: config.json, model.safetensors", e->out);
  printf(" (%d tensors, %s)%s", written.count, units_bytes(bytes).s, e->tokenizer_path ? ", tokenizer.json" : "");
  json_object_foreach(e->files, name, text) printf(", %s", name);
  printf("%s\n", e->tokenizer_path ? "" : "; no tokenizer.json: none was found");
  if (e->text.eos >= 0 && e->tokenizer)
    printf("a text ends at %s (token %d)\n", tokenizer_token(e->tokenizer, e->text.eos), e->text.eos);
  printf("opened again and verified: names, shapes, every element\n");
  safetensors_close(&written);
  return PLAIT_OK;
}

// Without --force, refuses a model that a Hugging Face folder cannot hold.
static int check_lost(const Export *e, Error *error) {
  double rate = e->source.has_recipe ? e->source.recipe.moe.bias_rate : 0;
  if (!(rate > 0) || e->force) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%s was trained with moe.bias_rate %g, and a Hugging Face folder cannot hold the bias of its routers: "
      "the exported model would choose other experts for some tokens; give --force to export it without",
      e->source.path, rate);
}

static int export(Export *e, const char *path, Error *error) {
  int64_t shard_bytes = 0;
  int dtype, code = choose_dtype(e, &dtype, error);
  if (!code) code = choose_shard_bytes(e, &shard_bytes, error);
  if (!code && file_exists(e->out) && !e->force)
    code = error_set(error, PLAIT_BAD_INPUT,
                     "--out: %s exists already; give a folder that does not, or --force to replace it", e->out);
  if (!code) code = model_source_open(&e->source, path, error);
  if (!code) code = check_lost(e, error);
  if (!code) code = find_dtypes(e, error);
  if (!code) code = set_up_text(e, error);
  if (code) return code;
  const HuggingfaceSave save = {.folder = e->out,
                                .tokenizer = e->tokenizer_path,
                                .files = e->files,
                                .shard_bytes = shard_bytes,
                                .replace = e->force,
                                .dtype = dtype,
                                .dtypes = e->dtypes,
                                .read = read_parameter,
                                .context = &e->source};
  code = huggingface_save(&save, &e->source.config, error); // verifies before it renames
  return code ? code : print_written(e, error);
}

int cmd_export(int argc, char **argv) {
  Export e = {.shard_size = "5GB"};
  static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
  const Option options[] = {
      {.name = "out",
       .kind = OPTION_TEXT,
       .value = &e.out,
       .argument = "FOLDER",
       .help = "the new folder; it must not exist",
       .required = true},
      {.name = "force",
       .kind = OPTION_FLAG,
       .value = &e.force,
       .help =
           "replace the exported model in FOLDER, if there is one (refused if FOLDER holds anything else); export a "
           "model without the bias of its routers (moe.bias_rate), which a Hugging Face folder cannot hold"},
      {.name = "dtype",
       .kind = OPTION_TEXT,
       .value = &e.dtype,
       .argument = "NAME",
       .help = "fp32, bf16 or fp16; without it, as the model came, or fp32",
       .words = dtypes},
      OPTION_TOKENIZER(&e.tokenizer_path, "to include"),
      {.name = "shard-size",
       .kind = OPTION_TEXT,
       .value = &e.shard_size,
       .argument = "SIZE",
       .help =
           "weights larger than SIZE are written as several files with an index, each of at most SIZE; 0 writes one "
           "file"},
  };
  const CommandHelp help = {
      "export", "[options] CHECKPOINT|RUN|FOLDER --out FOLDER",
      "Writes a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json, and what transformers "
      "needs to generate text (tokenizer_config.json, generation_config.json, the chat template). Then it reads the "
      "folder again and compares every element. The model is a checkpoint, a run (its newest checkpoint) or another "
      "Hugging Face folder. The new folder is complete, or it does not exist.\n"
      "The small files come from the folder that the model (model.init) or the tokenizer came from. Those that are "
      "missing are written, so that generation stops where the model ends a text.",
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
  json_decref(e.files);
  text_setup_free(&e.text);
  tokenizer_destroy(e.tokenizer);
  model_source_close(&e.source);
  return code ? command_fail("export", &error) : 0;
}
