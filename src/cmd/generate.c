// plait generate: continues a prompt, token by token.
#include "base/clock.h"
#include "base/cores.h"
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "setup/setup.h"
#include "cli/options.h"
#include "tokenizer/tokenizer.h"
#include "infer/generator.h"
#include "infer/text_setup.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WINDOW = 4096 }; // by default: its keys and values take memory

typedef struct Generate {
  const char *prompt, *tokenizer_path;
  int64_t max_tokens, window, seed, top_k, threads;
  double temperature, top_p;
  bool ignore_eos, stop_at_end, verbose;
  FILE *out; // of rank 0; the others have none to write to
  ModelSource source;
  Tokenizer *tokenizer;
  TextSetup text;
  Generator generator;
  uint8_t *allowed; // (vocab) ids that stand for something
} Generate;

static int open_tokenizer(Generate *g, Error *error) {
  const char *path = g->tokenizer_path ? g->tokenizer_path : g->source.tokenizer;
  if (!path)
    return error_set(error, PLAIT_BAD_INPUT, "%s has no tokenizer.json; give --tokenizer FILE", g->source.path);
  int code = tokenizer_load(path, &g->tokenizer, error);
  if (code) return code;
  if (g->tokenizer_path) model_source_set_tokenizer(&g->source, path);
  if ((code = text_setup(&g->text, &g->source, g->tokenizer, error))) return code;
  g->allowed = xcalloc((size_t)g->source.config.vocab, 1);
  for (int64_t i = 0; i < g->source.config.vocab && i < tokenizer_vocab_size(g->tokenizer); i++)
    g->allowed[i] = tokenizer_token(g->tokenizer, (int32_t)i) != NULL;
  return PLAIT_OK;
}

static int choose_window(Generate *g, Error *error) {
  const ModelConfig *c = &g->source.config;
  if (g->window) return model_check_length(c, "--window", g->window, error);
  g->window = g->source.has_recipe ? g->source.recipe.data.seq_len : model_usual_length(c);
  if (g->window > LONGEST_WINDOW) g->window = LONGEST_WINDOW;
  return PLAIT_OK;
}

// Encodes the prompt; a warning where the vocabulary lacks some of it.
static int encode_prompt(const Generate *g, bool speaks, IdVector *ids, Error *error) {
  size_t bytes = strlen(g->prompt);
  TokenizerScratch *scratch = tokenizer_scratch_create(g->tokenizer);
  int code = tokenizer_encode_with(g->tokenizer, scratch, g->prompt, bytes, 0, ids, error);
  int64_t missed = code ? 0 : tokenizer_missed(scratch).bytes;
  tokenizer_scratch_destroy(scratch);
  if (missed && speaks)
    fprintf(stderr, "plait generate: warning: the tokenizer's vocabulary lacks %lld byte%s of the prompt\n",
            (long long)missed, missed > 1 ? "s" : "");
  return code;
}

// The prompt's ids, after what the tokenizer puts before a text (BOS); an empty one starts after an end of text.
static int push_prompt(Generate *g, TokenizerStream *stream, bool speaks, Error *error) {
  IdVector ids = {0};
  ByteVector unused = {0};
  for (int i = 0; i < g->text.before.count; i++) vec_push(&ids, g->text.before.data[i]);
  int code = encode_prompt(g, speaks, &ids, error);
  if (!code && !ids.count && g->text.bos >= 0) vec_push(&ids, g->text.bos);
  if (!code && !ids.count)
    code = error_set(error, PLAIT_BAD_INPUT,
                     "--prompt is empty, and the tokenizer has no end-of-text token to start from");
  if (!code) code = generator_push(&g->generator, ids.data, ids.count, error);
  // The stream must know what came before: some tokenizers drop the first token's space. The prompt itself is printed
  // as given.
  for (int i = 0; i < ids.count && *g->prompt; i++) tokenizer_stream_push(stream, ids.data[i], &unused);
  unused.count = 0;
  tokenizer_stream_end(stream, &unused);
  vec_free(&ids);
  vec_free(&unused);
  return code;
}

static void put(const Generate *g, ByteVector *text) {
  if (text->count) fwrite(text->data, 1, (size_t)text->count, g->out);
  fflush(g->out);
  text->count = 0;
}

// All processes stop at the same token.
static int wants_to_stop(const Generate *g, const Launch *launch, int *stop, Error *error) {
  int32_t now[2] = {signals_number(), ferror(g->out) != 0};
  int code = PLAIT_OK;
  if (launch->world &&
      plait_all_reduce(launch->comm, &(PlaitBuffer){now, now, 2}, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL))
    code = plait_comm_failure(launch->comm, error);
  if (now[0]) signals_request_stop(now[0]);
  *stop = now[0] || now[1];
  return code;
}

static bool ends_text(const Generate *g, int32_t id) {
  for (int i = 0; i < g->text.ends.count && !g->ignore_eos; i++)
    if (g->text.ends.data[i] == id) return true;
  return false;
}

// On stderr: the text alone is the output.
static void print_speed(const Generate *g, int64_t tokens, double seconds, bool ended) {
  fprintf(stderr, "%lld tokens in %.2f s: %.1f tokens/s%s\n", (long long)tokens, seconds,
          seconds > 0 ? (double)tokens / seconds : 0.0, ended ? ", then the end of the text" : "");
}

static int run(Generate *g, const Launch *launch, Error *error) {
  TokenizerStream stream;
  ByteVector text = {0};
  int stop = 0;
  bool ended = false;
  int64_t i = 0;
  tokenizer_stream_begin(&stream, g->tokenizer, 0);
  int code = launch_agree(launch, push_prompt(g, &stream, !launch->rank, error), error);
  if (!code) fputs(g->prompt, g->out), fflush(g->out);
  double started = clock_seconds();
  for (; !code && i < g->max_tokens; i++) {
    int32_t id;
    code = wants_to_stop(g, launch, &stop, error);
    if (code || stop) break;
    code = generator_next(&g->generator, &id, error);
    if (code || (ended = ends_text(g, id))) break;
    tokenizer_stream_push(&stream, id, &text);
    put(g, &text);
  }
  tokenizer_stream_end(&stream, &text);
  put(g, &text);
  if (g->generator.count) fputc('\n', g->out);
  vec_free(&text);
  if (!code && g->verbose && !launch->rank) print_speed(g, i, clock_seconds() - started, ended);
  return code;
}

static int generate(Generate *g, const Operands *words, Launch *launch, Error *error) {
  const SampleOptions sample = {
      .temperature = g->temperature, .top_k = g->top_k, .top_p = g->top_p, .seed = (uint64_t)g->seed};
  int code = model_source_open(&g->source, words->words[0], error);
  if (!code) code = open_tokenizer(g, error);
  if (!code) code = choose_window(g, error);
  code = launch_agree(launch, code, error);
  static const RecipeInstead instead[] = {{"data.seq_len", "--window N"},
                                          {"data.tokenizer", "--tokenizer FILE"},
                                          {"run.seed", "--seed N"},
                                          {NULL, NULL}};
  const InferenceOptions o = {.command = "plait generate",
                              .instead = instead,
                              .seq = g->window,
                              .threads = (int)g->threads,
                              .key_count = words->count - 1,
                              .keys = words->words + 1};
  if (!code) code = generator_create(&g->generator, &g->source, &o, &sample, launch, error);
  g->generator.allowed = g->allowed;
  if (!code) code = run(g, launch, error);
  generator_destroy(&g->generator);
  text_setup_free(&g->text);
  tokenizer_destroy(g->tokenizer);
  model_source_close(&g->source);
  free(g->allowed);
  return code;
}

int cmd_generate(int argc, char **argv) {
  Generate g = {.max_tokens = 200, .temperature = 0.8, .top_p = 0.95, .threads = cores_available()};
  const Option options[] = {
      {.name = "prompt",
       .kind = OPTION_TEXT,
       .value = &g.prompt,
       .argument = "TEXT",
       .help = "the text to continue",
       .required = true},
      {.name = "max-tokens",
       .kind = OPTION_INTEGER,
       .value = &g.max_tokens,
       .argument = "N",
       .help = "tokens to generate",
       .least = 0,
       .most = 2147483647.0},
      {.name = "temperature",
       .kind = OPTION_REAL,
       .value = &g.temperature,
       .argument = "T",
       .help = "how random the choice of tokens is; 0: always the most likely token",
       .least = 0,
       .most = 100},
      {.name = "top-k",
       .kind = OPTION_INTEGER,
       .value = &g.top_k,
       .argument = "K",
       .help = "choose among the K most likely tokens; 0: among all",
       .least = 0,
       .most = 2147483647.0},
      {.name = "top-p",
       .kind = OPTION_REAL,
       .value = &g.top_p,
       .argument = "P",
       .help = "choose among the fewest tokens whose probabilities add up to P",
       .least = 1e-9,
       .most = 1},
      {.name = "seed",
       .kind = OPTION_INTEGER,
       .value = &g.seed,
       .argument = "N",
       .help = "the same seed gives the same text",
       .least = 0,
       .most = 9007199254740992.0},
      {.name = "ignore-eos",
       .kind = OPTION_FLAG,
       .value = &g.ignore_eos,
       .help = "continue past the end of text, instead of stopping there"},
      {.name = "stop-at-end", .kind = OPTION_FLAG, .value = &g.stop_at_end}, // now the default; not in the help
      {.name = "verbose", .kind = OPTION_FLAG, .value = &g.verbose, .help = "print tokens/s at the end, on stderr"},
      {.name = "window",
       .kind = OPTION_INTEGER,
       .value = &g.window,
       .argument = "N",
       .help = "the most tokens that the model looks back on; where they are full, the newer half stays; 0: as in "
               "training, at most 4096",
       .least = 0,
       .most = 1 << 24},
      {.name = "tokenizer",
       .kind = OPTION_TEXT,
       .value = &g.tokenizer_path,
       .argument = "FILE",
       .help = "the tokenizer.json to use; without it, the model's own"},
      {.name = "threads",
       .kind = OPTION_INTEGER,
       .value = &g.threads,
       .argument = "N",
       .help = "threads of all ranks on this machine together",
       .shown = "all cores",
       .least = 1,
       .most = 4096},
  };
  const CommandHelp help = {
      "generate", "[options] CHECKPOINT|RUN|FOLDER --prompt TEXT [key=value …]",
      "Continues a text with a model: a checkpoint, a run (its newest checkpoint) or a Hugging Face folder.\n"
      "It stops where the model ends the text: at the end-of-text token of generation_config.json, of config.json, or "
      "of the documents that the model was trained on.\n"
      "It computes in fp32, as one rank on all cores. Recipe keys after the model choose another mesh, Layout or "
      "precision; the text is the same up to rounding. Ranks of mesh.dp all compute the same text, but can share "
      "the weights (parallel.zero=3).",
      "  plait generate runs/demo --prompt 'struct '\n"
      "  plait generate runs/demo/checkpoints/step-3400 --prompt 'extern int ' --temperature 0 --max-tokens 60\n"
      "  plait generate runs/demo/checkpoints/best --prompt 'struct '   # of a run with checkpoint.best: true\n"
      "  plait generate SmolLM-135M --prompt 'Once upon a time' --top-k 40 --seed 7 --verbose\n"
      "  plait generate SmolLM-135M --prompt 'Once' mesh.tp=3 mesh.pp=2\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Launch launch;
  signals_install(NULL); // a token takes no time
  int code = launch_begin(&launch, setup_wish_of_keys(operands.count, operands.words), &error);
  g.out = launch.rank ? fopen("/dev/null", "w") : stdout;
  if (!code) code = generate(&g, &operands, &launch, &error);
  if (!code && signals_stop()) code = PLAIT_INTERRUPTED;
  if (launch.rank && g.out) fclose(g.out);
  return command_end("generate", code, &launch, &error);
}
