// plait eval: loss, perplexity and bits per byte of a model on a corpus.
#include "base/cores.h"
#include "base/signals.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cmd/model_text.h"
#include "setup/setup.h"
#include "cli/options.h"
#include "tokenizer/tokenizer.h"
#include "infer/inference.h"
#include "infer/text_setup.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOKENS_AT_ONCE = 4096, LONGEST_DEFAULT = 1024 };
static const double REDRAW = 0.5; // seconds, on a terminal

typedef struct Eval {
  const char *asked; // the model, as it was named
  const char *data, *tokenizer_path;
  int64_t seq_len, threads, limit;
  double every; // seconds between lines of progress, where stderr is not a terminal; 0: none
  bool across, json;
  ModelSource source;
  Tokenizer *tokenizer; // NULL: bytes are not known
  Inference model;
  DataSource *sources;
  LoaderConfig loader;
  double loss, tokens; // nats a predicted token, and how many; of rank 0
  int64_t bytes;       // of the text of the predicted tokens, over all ranks
  int64_t windows, all; // sequences that are read, and that the corpus has
  double started, shown;
} Eval;

// ---- preparation ---------------------------------------------------------------------------------------------------

static int choose_length(Eval *e, Error *error) {
  const ModelConfig *c = &e->source.config;
  if (e->seq_len) return model_check_length(c, "--seq-len", e->seq_len, error);
  int64_t usual = model_usual_length(c);
  e->seq_len = e->source.has_recipe ? e->source.recipe.data.seq_len : usual < LONGEST_DEFAULT ? usual : LONGEST_DEFAULT;
  return PLAIT_OK;
}

static int open_tokenizer(Eval *e, Error *error) {
  const char *path = e->tokenizer_path ? e->tokenizer_path : e->source.tokenizer;
  return path ? tokenizer_load(path, &e->tokenizer, error) : PLAIT_OK;
}

static int find_data(Eval *e, Error *error) {
  const Recipe *recipe = e->source.has_recipe ? &e->source.recipe : NULL;
  const RecipeCorpora *held_out = recipe ? recipe_corpora(recipe, true) : NULL;
  int count = e->data ? 1 : recipe ? held_out->count : 0;
  if (!count && recipe)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "the recipe of %s names no held-out text (data.valid or data.split); name one: plait eval %s --data "
        "PREFIX, where PREFIX.bin and PREFIX.idx are what plait tokenize has written",
        e->asked, e->asked);
  if (!count)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%s does not say what to evaluate on; name a corpus: plait eval %s --data PREFIX, where PREFIX.bin "
        "and PREFIX.idx are what plait tokenize has written",
        e->asked, e->asked);
  e->sources = xcalloc((size_t)count, sizeof *e->sources);
  for (int i = 0; i < count; i++)
    e->sources[i] = (DataSource){e->data ? e->data : held_out->items[i].prefix, 1};
  e->loader = (LoaderConfig){.sources = e->sources,
                             .source_count = count,
                             .seq_len = (int)e->seq_len,
                             .document_mask = !e->across && (!recipe || recipe->data.document_mask),
                             .vocab_size = (int)e->source.config.vocab,
                             .evaluation = 1,
                             .limit = e->limit,
                             .split = recipe && !e->data ? recipe->data.split : 0,
                             .prefetch_steps = 2};
  return PLAIT_OK;
}

// The corpus is opened once before the ranks start, so that what is wrong with it is said before.
static int check_data(Eval *e, Error *error) {
  const LoaderConfig *c = &e->loader;
  SamplerConfig config = loader_sampler(c);
  Sampler sampler;
  int code = sampler_open(&sampler, &config, error);
  if (code) return code;
  e->all = sampler.total;
  e->windows = e->limit && e->limit < e->all ? e->limit : e->all;
  sampler_close(&sampler);
  return PLAIT_OK;
}

// Documents that begin or end otherwise than the model has learnt make the loss look worse.
static int note_documents(const Eval *e, bool speaks, Error *error) {
  char text[900];
  int code = PLAIT_OK;
  for (int i = 0; i < e->loader.source_count && code >= 0; i++) {
    code = text_setup_compare(&e->source, e->tokenizer, e->sources[i].prefix, text, sizeof text, error);
    if (code > 0 && speaks) fprintf(stderr, "plait eval: note: %s\n", text);
  }
  return code < 0 ? code : PLAIT_OK;
}

static int prepare(Eval *e, const Operands *words, Launch *launch, Error *error) {
  e->asked = words->words[0];
  int code = model_source_open(&e->source, e->asked, error);
  if (!code) code = choose_length(e, error);
  if (!code) code = open_tokenizer(e, error);
  if (!code) code = find_data(e, error);
  if (!code) code = check_data(e, error);
  if (!code) code = note_documents(e, !launch->rank, error);
  code = launch_agree(launch, code, error);
  if (code) return code;
  static const RecipeInstead instead[] = {
      {"eval.batches", "--limit N, which evaluates on N sequences"},
      {"data.train", "--data PREFIX"},
      {"data.valid", "--data PREFIX"},
      {"data.split", "--data PREFIX"},
      {"data.tokenizer", "--tokenizer FILE"},
      {"data.seq_len", "--seq-len N"},
      {"data.document_mask", "--across-documents"},
      {NULL, NULL}};
  const InferenceOptions o = {.mode = MODEL_EVALUATE,
                              .instead = instead,
                              .command = "plait eval",
                              .seq = e->seq_len,
                              .one_document = !e->loader.document_mask,
                              .rows = e->seq_len < TOKENS_AT_ONCE ? TOKENS_AT_ONCE / e->seq_len : 1,
                              .threads = (int)e->threads,
                              .key_count = words->count - 1,
                              .keys = words->words + 1};
  return inference_open(&e->model, &e->source, &o, launch, error);
}

// ---- the loop ------------------------------------------------------------------------------------------------------

// Bytes of the text that the predicted tokens stand for. Special tokens (end of text) stand for none.
static int count_bytes(const Eval *e, const int32_t *targets, int64_t n, int64_t *bytes, Error *error) {
  const Tokenizer *t = e->tokenizer;
  for (int64_t i = 0; i < n && t; i++) {
    if (targets[i] < 0) continue;
    if (!tokenizer_token(t, targets[i]))
      return error_set(
          error, PLAIT_BAD_INPUT,
          "the data contains token %d, which the tokenizer does not have: the data was made with another tokenizer",
          targets[i]);
    if (!t->token_special[targets[i]]) *bytes += t->decoded[targets[i]].bytes;
  }
  return PLAIT_OK;
}

typedef struct Part {
  Eval *eval;
  double loss_sum, tokens;
  int64_t bytes, windows;
} Part; // loss, tokens and windows of all ranks, bytes of this one

// In place on a terminal, else a line now and then; on stderr, so that stdout is the result alone.
static void show_progress(Eval *e, const Part *p) {
  double t = clock_seconds(), done = (double)p->windows / (double)e->windows;
  bool terminal = isatty(STDERR_FILENO);
  if (p->tokens <= 0 || (!terminal && e->every <= 0) || t - e->shown < (terminal ? REDRAW : e->every)) return;
  e->shown = t;
  fprintf(stderr, "%s%.0f%%  %.0f tokens, loss %.4f, %s left%s", terminal ? "\r" : "plait eval: ",
          done < 1 ? 100 * done : 100, p->tokens, p->loss_sum / p->tokens,
          units_duration(done < 1 ? (t - e->started) * (1 - done) / done : 0).s, terminal ? "\033[K\r" : "\n");
}

static int64_t targets_of(const Batch *b) {
  return b->samples * batch_row(b, INPUT_TARGETS) / (int64_t)sizeof(int32_t);
}

static int after_batch(Rank *r, void *part, const Batch *b, double loss, double tokens, Error *error) {
  Part *p = part;
  int signal = 0, code = PLAIT_OK;
  if (inference_speaks(r)) code = count_bytes(p->eval, batch_input(b, INPUT_TARGETS), targets_of(b), &p->bytes, error);
  if (tokens > 0) p->loss_sum += loss * tokens;
  p->tokens += tokens;
  p->windows += inference_rows(&p->eval->model);
  if (!code) code = rank_signal(r, &signal, error);
  if (code) return code;
  if (r->rank == 0) show_progress(p->eval, p);
  if (signal) signals_request_stop(signal); // in every process
  return signal != 0;
}

static int evaluate(Rank *r, void *eval, Error *error) {
  Eval *e = eval;
  Part part = {.eval = e};
  double loss, tokens;
  int code = rank_open_evaluation(r, &e->loader, error);
  if (!code) code = rank_evaluate(r, 0, after_batch, &part, &loss, &tokens, error);
  if (code) return code;
  if (plait_all_reduce(r->world, &(PlaitBuffer){&part.bytes, &part.bytes, 1}, 1, PLAIT_INT64, PLAIT_SUM, NULL, NULL))
    return plait_comm_failure(r->world, error);
  if (r->rank == 0) e->loss = loss, e->tokens = tokens, e->bytes = part.bytes;
  return PLAIT_OK;
}

static int run(Eval *e, const Launch *launch, Error *error) {
  e->started = e->shown = clock_seconds();
  int code = session_run(e->model.session, evaluate, e, error);
  if (isatty(STDERR_FILENO) && launch->rank == 0) fputs("\033[K", stderr);
  if (code < 0) return code;
  if (signals_stop()) {
    error_set(error, PLAIT_INTERRUPTED, "stopped by %s before the end: there is no result",
              signals_name(signals_number()));
    if (launch->rank) error->message[0] = 0; // all say the same
    return PLAIT_INTERRUPTED;
  }
  if (launch->rank == 0 && e->tokens <= 0)
    code = error_set(error, PLAIT_BAD_INPUT, "%s has no token to predict", e->data ? e->data : "data.valid");
  return launch_agree(launch, code, error);
}

// A number of JSON with all its digits; null where it is not one.
static void print_number(const char *before, double value) {
  if (isfinite(value)) printf("%s%.17g", before, value);
  else printf("%snull", before);
}

static void print_json(const Eval *e, double bits, double seconds) {
  printf("{\"tokens\": %.0f", e->tokens);
  print_number(", \"bytes\": ", e->tokenizer && e->bytes > 0 ? (double)e->bytes : NAN);
  print_number(", \"loss\": ", e->loss);
  print_number(", \"perplexity\": ", exp(e->loss));
  print_number(", \"bits_per_byte\": ", bits);
  printf(", \"sequences\": %lld, \"all_sequences\": %lld, \"seq_len\": %lld", (long long)e->windows, (long long)e->all,
         (long long)e->seq_len);
  print_number(", \"seconds\": ", seconds);
  printf("}\n");
}

static void print_result(const Eval *e) {
  double seconds = clock_seconds() - e->started;
  double bits = e->tokenizer && e->bytes > 0 ? e->loss * e->tokens / log(2) / (double)e->bytes : NAN;
  if (e->json) {
    print_json(e, bits, seconds);
    return;
  }
  char measured[LOADER_WINDOWS_TEXT];
  loader_describe_windows(measured, e->windows, e->all, e->seq_len);
  printf("loss %.4f  perplexity %.2f  ", e->loss, exp(e->loss));
  if (isnan(bits)) printf("bits per byte n/a  (%.0f tokens in %s, %.1f s)\n", e->tokens, measured, seconds);
  else
    printf("bits per byte %.3f  (%.0f tokens in %s, %lld bytes, %.1f s)\n", bits, e->tokens, measured,
           (long long)e->bytes, seconds);
}

int cmd_eval(int argc, char **argv) {
  Eval e = {.threads = cores_available(), .every = 10};
  const Option options[] = {
      {.name = "data",
       .kind = OPTION_TEXT,
       .value = &e.data,
       .argument = "PREFIX",
       .help = "the corpus, PREFIX.bin and PREFIX.idx; without it, the data that the run holds out (data.valid, "
               "data.split)"},
      OPTION_TOKENIZER(&e.tokenizer_path, "that counts bytes"),
      {.name = "seq-len",
       .kind = OPTION_INTEGER,
       .value = &e.seq_len,
       .argument = "N",
       .help = "tokens per window; 0: as in training, or at most 1024",
       .least = 0,
       .most = 1 << 24},
      {.name = "limit",
       .kind = OPTION_INTEGER,
       .value = &e.limit,
       .argument = "N",
       .help = "evaluate on N sequences (windows) of the corpus, of several corpora on equal parts; 0: on all",
       .least = 0,
       .most = 9007199254740992.0},
      {.name = "across-documents",
       .kind = OPTION_FLAG,
       .value = &e.across,
       .help = "let tokens see the documents before theirs (no document mask)"},
      {.name = "json",
       .kind = OPTION_FLAG,
       .value = &e.json,
       .help = "print the result as one JSON object, with all digits"},
      {.name = "progress",
       .kind = OPTION_REAL,
       .value = &e.every,
       .argument = "SECONDS",
       .help = "time between lines of progress where stderr is not a terminal; 0 prints none",
       .least = 0,
       .most = 1e9},
      OPTION_THREADS(&e.threads),
  };
  const CommandHelp help = {
      "eval", "[options] CHECKPOINT|RUN|FOLDER [key=value …]",
      "Computes loss, perplexity and bits per byte of a model on a corpus. The model is a checkpoint, a run (its "
      "newest checkpoint) or a Hugging Face folder.\n"
      "It computes in fp32, as one rank on all cores. Recipe keys after the model choose another mesh, Layout or "
      "precision; the loss is the same up to rounding.\n"
      "Bits per byte are the bits of the predicted tokens divided by the bytes of their text. With a document "
      "mask, the first token of a document is not predicted: neither its bits nor its bytes count. The end of a "
      "text counts as bits, but has no bytes.",
      "  plait eval runs/demo\n"
      "  plait eval runs/demo/checkpoints/step-3400 --data data/demo/valid\n"
      "  plait eval runs/demo/checkpoints/best              # of a run with checkpoint.best: true\n"
      "  plait eval SmolLM-135M --data data/smol-valid --seq-len 512\n"
      "  plait eval runs/demo mesh.dp=2 precision=bf16\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Launch launch;
  int code = launch_begin(&launch, setup_wish_of_keys(operands.count, operands.words), &error);
  signals_install(launch.rank ? NULL : "stopping after this batch; a second Ctrl-C ends it at once");
  if (!code) code = prepare(&e, &operands, &launch, &error);
  if (!code) code = run(&e, &launch, &error);
  if (!code && launch.rank == 0) print_result(&e);
  inference_close(&e.model);
  tokenizer_destroy(e.tokenizer);
  model_source_close(&e.source);
  free(e.sources);
  return command_end("eval", code, &launch, &error);
}
