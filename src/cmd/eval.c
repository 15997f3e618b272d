// plait eval: loss, perplexity and bits per byte of a model on a corpus.
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "infer/single.h"
#include "train/setup.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS_AT_ONCE = 4096, LONGEST_DEFAULT = 1024 };

typedef struct Eval {
  const char *data, *tokenizer_path;
  int64_t seq_len, threads;
  bool seq_len_given, across;
  ModelSource source;
  Tokenizer *tokenizer; // NULL: bytes are not known
  Single model;
  Loader *loader;
  double loss_sum, tokens; // nats, predicted tokens
  int64_t bytes;           // of the text of the predicted tokens
  double started, shown;
} Eval;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- preparation ---------------------------------------------------------------------------------------------------

static int choose_length(Eval *e, Error *error) {
  const ModelConfig *c = &e->source.config;
  if (!e->seq_len_given) {
    e->seq_len = e->source.has_recipe             ? e->source.recipe.data.seq_len
                 : c->positions < LONGEST_DEFAULT ? c->positions
                                                  : LONGEST_DEFAULT;
    return PLAIT_OK;
  }
  if (c->family == MODEL_GPT2 && e->seq_len > c->positions)
    return error_set(error, PLAIT_BAD_INPUT, "--seq-len is %lld, but the model has only %lld positions",
                     (long long)e->seq_len, (long long)c->positions);
  return PLAIT_OK;
}

static int open_tokenizer(Eval *e, Error *error) {
  const char *path = e->tokenizer_path ? e->tokenizer_path : e->source.tokenizer;
  return path ? tokenizer_load(path, &e->tokenizer, error) : PLAIT_OK;
}

static int open_data(Eval *e, int64_t batch, Error *error) {
  const Recipe *recipe = e->source.has_recipe ? &e->source.recipe : NULL;
  int count = e->data ? 1 : recipe ? recipe->data.valid.count : 0;
  if (!count)
    return error_set(error, PLAIT_BAD_INPUT, "%s does not say what to evaluate on%s; give --data PREFIX",
                     e->source.path, recipe ? " (its recipe has no data.valid)" : "");
  DataSource *sources = xcalloc((size_t)count, sizeof *sources);
  for (int i = 0; i < count; i++) sources[i] = (DataSource){e->data ? e->data : recipe->data.valid.items[i].prefix, 1};
  const LoaderConfig config = {.sources = sources,
                               .source_count = count,
                               .seq_len = (int)e->seq_len,
                               .document_mask = !e->across && (!recipe || recipe->data.document_mask),
                               .vocab_size = (int)e->source.config.vocab,
                               .evaluation = 1,
                               .global_batch = batch,
                               .micro_batch_global = batch,
                               .data_ranks = 1,
                               .prefetch_steps = 2};
  int code = loader_open(&config, 0, &e->loader, error);
  free(sources);
  return code;
}

static int prepare(Eval *e, const char *path, int64_t *batch, Error *error) {
  int code = model_source_open(&e->source, path, error);
  if (!code) code = choose_length(e, error);
  if (!code) code = open_tokenizer(e, error);
  if (code) return code;
  *batch = e->seq_len < TOKENS_AT_ONCE ? TOKENS_AT_ONCE / e->seq_len : 1;
  code = open_data(e, *batch, error);
  return code ? code : single_create(&e->model, &e->source, MODEL_EVALUATE, *batch, e->seq_len, (int)e->threads, error);
}

// ---- the loop ------------------------------------------------------------------------------------------------------

// Bytes of the text that the predicted tokens stand for. Special tokens (end of text) stand for none.
static int count_bytes(Eval *e, const int32_t *targets, int64_t n, Error *error) {
  const Tokenizer *t = e->tokenizer;
  for (int64_t i = 0; i < n && t; i++) {
    if (targets[i] < 0) continue;
    if (!tokenizer_token(t, targets[i]))
      return error_set(error, PLAIT_BAD_INPUT,
                       "the data holds token %d, which the tokenizer does not have: it is another one's", targets[i]);
    if (!t->token_special[targets[i]]) e->bytes += t->decoded[targets[i]].bytes;
  }
  return PLAIT_OK;
}

static int run_batch(Eval *e, const Batch *b, int64_t batch, Error *error) {
  const SingleInput inputs[] = {{"tokens", b->tokens},
                                {"positions", b->positions},
                                {"documents", b->documents},
                                {"targets", b->targets},
                                {"step_targets", b->targets}};
  int code = single_run(&e->model, inputs, 5, error);
  double n = state_scalar(e->model.state, "target_count");
  if (n > 0) e->loss_sum += state_scalar(e->model.state, "loss") * n;
  e->tokens += n;
  return code ? code : count_bytes(e, b->targets, batch * e->seq_len, error);
}

static void show_progress(Eval *e) {
  double t = now();
  if (t - e->shown < 0.5 || e->tokens <= 0 || !isatty(STDERR_FILENO)) return;
  e->shown = t;
  fprintf(stderr, "\r%.0f tokens, loss %.4f\033[K\r", e->tokens, e->loss_sum / e->tokens);
}

static int run(Eval *e, int64_t batch, Error *error) {
  int code = PLAIT_OK;
  Batch *b;
  e->started = e->shown = now();
  while (!code && !(code = loader_next(e->loader, &b, NULL, error))) {
    code = run_batch(e, b, batch, error);
    loader_release(e->loader, b);
    if (!code && signals_stop()) code = error_set(error, PLAIT_INTERRUPTED, "stopped by a signal");
    if (!code) show_progress(e);
  }
  if (isatty(STDERR_FILENO)) fputs("\033[K", stderr);
  if (code < 0) return code;
  if (e->tokens <= 0)
    return error_set(error, PLAIT_BAD_INPUT, "%s has no token to predict", e->data ? e->data : "data.valid");
  return PLAIT_OK;
}

static void print_result(const Eval *e) {
  double loss = e->loss_sum / e->tokens, seconds = now() - e->started;
  printf("loss %.4f  perplexity %.2f  ", loss, exp(loss));
  if (e->tokenizer && e->bytes > 0)
    printf("bits per byte %.3f  (%.0f tokens, %lld bytes, %.1f s)\n", e->loss_sum / log(2) / (double)e->bytes,
           e->tokens, (long long)e->bytes, seconds);
  else printf("bits per byte n/a  (%.0f tokens, %.1f s)\n", e->tokens, seconds);
}

int cmd_eval(int argc, char **argv) {
  Eval e = {.threads = setup_cores()};
  const Option options[] = {
      {.name = "data",
       .kind = OPTION_TEXT,
       .value = &e.data,
       .argument = "PREFIX",
       .help = "a corpus, PREFIX.bin and PREFIX.idx; else data.valid of the checkpoint's recipe"},
      {.name = "tokenizer",
       .kind = OPTION_TEXT,
       .value = &e.tokenizer_path,
       .argument = "FILE",
       .help = "tokenizer.json, to count bytes; else the model's own"},
      {.name = "seq-len",
       .kind = OPTION_INTEGER,
       .value = &e.seq_len,
       .argument = "N",
       .help = "tokens of a window; 0: as trained, or at most 1024",
       .least = 1,
       .most = 1 << 24,
       .given = &e.seq_len_given},
      {.name = "across-documents",
       .kind = OPTION_FLAG,
       .value = &e.across,
       .help = "predict from the document before, too (no document mask)"},
      {.name = "threads",
       .kind = OPTION_INTEGER,
       .value = &e.threads,
       .argument = "N",
       .help = "threads",
       .least = 1,
       .most = 4096},
  };
  const CommandHelp help = {"eval", "[options] CHECKPOINT|RUN|FOLDER",
                            "Evaluates a checkpoint, the newest checkpoint of a run, or a Hugging Face folder on a "
                            "corpus, in fp32 on all cores.\n"
                            "Bits per byte are the bits of the predicted tokens over the bytes of these tokens' text: "
                            "with a document mask the\n"
                            "first token of a document is not predicted, and neither its bits nor its bytes count; the "
                            "end of a text costs bits\n"
                            "and has no bytes.",
                            "  plait eval runs/demo\n"
                            "  plait eval runs/demo/checkpoints/step-3400 --data data/demo/valid\n"
                            "  plait eval SmolLM-135M --data data/smol-valid --seq-len 512\n"};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, 1, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  int64_t batch = 0;
  signals_install();
  int code = prepare(&e, operands.words[0], &batch, &error);
  if (!code) code = run(&e, batch, &error);
  if (!code) print_result(&e);
  loader_close(e.loader);
  single_destroy(&e.model);
  tokenizer_destroy(e.tokenizer);
  model_source_close(&e.source);
  return code ? command_fail("eval", &error) : 0;
}
