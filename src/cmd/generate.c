// plait generate: continues a prompt, token by token, or those of a file.
#include "cmd/generate.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/signals.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "setup/setup.h"
#include "cli/options.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int generate_open_text(Generate *g, Error *error) {
  int code = model_text_open(&g->text, &g->source, g->chats, error);
  if (!code && g->chats && !g->text.chat)
    code = error_set(error, PLAIT_BAD_INPUT, "%s has no chat template; give --template FILE", g->source.path);
  return code;
}

int generate_encode_chat(const Generate *g, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         IdVector *ids, Error *error) {
  const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
  const char *role = json_string_value(json_object_get(last, "role"));
  const ChatPrompt prompt = {.messages = messages,
                             .tools = tools,
                             .kwargs = kwargs,
                             .answer = true,
                             .prefill = role && !strcmp(role, "assistant")};
  return chat_encode(g->text.chat, &prompt, ids, error);
}

RequestOptions generate_request(const Generate *g) {
  RequestOptions o = {.most = g->max_tokens,
                      .ends = g->text.setup.ends.data,
                      .end_count = g->ignore_eos ? 0 : g->text.setup.ends.count,
                      .allowed = g->text.allowed,
                      .logprobs = (int)g->logprobs,
                      .sample = g->sample};
  o.sample.seed = (uint64_t)g->seed;
  return o;
}

int generate_encode(const Generate *g, const char *prompt, size_t bytes, IdVector *ids, int64_t *missed, Error *error) {
  return text_setup_encode(&g->text.setup, g->text.tokenizer, prompt, bytes, ids, missed, error);
}

void generate_stream(const Generate *g, const IdVector *ids, TokenizerStream *stream) {
  ByteVector unused = {0};
  tokenizer_stream_begin(stream, g->text.tokenizer, 0);
  for (int i = 0; i < ids->count; i++) tokenizer_stream_push(stream, ids->data[i], &unused);
  unused.count = 0;
  tokenizer_stream_end(stream, &unused);
  vec_free(&unused);
}

static double rate(int64_t tokens, double seconds) { return seconds > 0 ? (double)tokens / seconds : 0; }

static void print_rates(const EngineTimes *t) {
  fprintf(stderr, "prefill: %lld tokens of prompts at %.1f tokens/s; decode: %lld tokens at %.1f tokens/s\n",
          (long long)t->prompt_tokens, rate(t->prompt_tokens, t->prompt_seconds), (long long)t->decoded_tokens,
          rate(t->decoded_tokens, t->seconds - t->prompt_seconds));
}

static void print_bytes(const Engine *engine) {
  const Inference *model = engine_model(engine);
  for (int r = 0; r < model->job->options.parallel.mesh.ranks; r++) {
    const RankBytes *b = &model->bytes[r];
    fprintf(stderr, "rank %d: %s read of files, %s held", r, units_bytes((double)b->read).s,
            units_bytes((double)(b->held + engine_flight_bytes(engine, r))).s);
    fprintf(stderr, ", %s of these for the cache\n", units_bytes((double)b->cache).s);
  }
}

// On stderr: the text alone is the output.
void generate_print_speed(const Generate *g, bool ended) {
  if (!g->verbose) return;
  EngineTimes t = engine_times(g->engine);
  double tokens = (double)t.drawn_tokens;
  fprintf(stderr, "%lld tokens in %.2f s: %.1f tokens/s%s\n", (long long)t.drawn_tokens, t.seconds,
          t.seconds > 0 ? tokens / t.seconds : 0.0, ended ? ", then the end of the text" : "");
  fprintf(stderr, "%lld ticks; %lld tokens of prompts, %lld more found in the cache; %.1f%% of the time outside of the "
                  "model\n",
          (long long)t.ticks, (long long)t.prompt_tokens, (long long)t.reused_tokens,
          t.seconds > 0 ? 100 * (1 - t.model_seconds / t.seconds) : 0.0);
  print_rates(&t);
  print_bytes(g->engine);
  if (t.received_bytes) fprintf(stderr, "rank 0 received %s of logits\n", units_bytes((double)t.received_bytes).s);
  if (t.guessed)
    fprintf(stderr, "%lld of %lld guessed tokens were right\n", (long long)t.accepted, (long long)t.guessed);
  if (t.preempted)
    fprintf(stderr, "%lld times a request lost its pages of the cache and was computed again\n",
            (long long)t.preempted);
}

static void put(ByteVector *text) {
  if (text->count) fwrite(text->data, 1, (size_t)text->count, stdout);
  fflush(stdout);
  text->count = 0;
}

// Prints what is drawn until the text ends, somebody stops it, or nobody reads.
static int print_text(Generate *g, TokenizerStream *stream, bool *ended, Error *error) {
  ByteVector text = {0};
  int code = PLAIT_OK;
  while (!code && !engine_is_idle(g->engine) && !signals_stop() && !ferror(stdout)) {
    EngineEvent e;
    code = engine_tick(g->engine, error);
    while (!code && engine_poll(g->engine, &e)) {
      if (e.id >= 0) tokenizer_stream_push(stream, e.id, &text);
      else if (e.end == REQUEST_BROKEN)
        code = error_set(error, PLAIT_FAILED, "the model's logits are not finite: its weights are broken");
      else *ended = e.end == REQUEST_STOPPED;
    }
    put(&text);
  }
  tokenizer_stream_end(stream, &text);
  put(&text);
  fputc('\n', stdout);
  vec_free(&text);
  return code;
}

static int generate_one(Generate *g, Error *error) {
  TokenizerStream stream;
  IdVector ids = {0};
  RequestOptions o = generate_request(g);
  int64_t missed = 0, request;
  bool ended = false;
  json_t *message = json_pack("[{s:s, s:s}]", "role", "user", "content", g->prompt);
  int code = g->chats && !message ? error_set(error, PLAIT_BAD_INPUT, "--prompt is not UTF-8")
             : g->chats           ? generate_encode_chat(g, message, NULL, NULL, &ids, error)
                                  : generate_encode(g, g->prompt, strlen(g->prompt), &ids, &missed, error);
  json_decref(message);
  if (!code && missed)
    fprintf(stderr, "plait generate: warning: the tokenizer's vocabulary lacks %lld byte%s of the prompt\n",
            (long long)missed, missed > 1 ? "s" : "");
  int context = engine_options(g->engine)->context;
  if (!code && ids.count > context)
    fprintf(stderr,
            "plait generate: note: the model looks back on %d tokens (infer.context), so that it reads the last %d of "
            "the prompt's %d\n",
            context, context, ids.count);
  o.prompt = ids.data;
  o.count = ids.count;
  if (!code && o.most) code = engine_submit(g->engine, &o, &request, error);
  // The prompt itself is printed as given, but for a question, whose answer alone is.
  if (*g->prompt || g->chats) generate_stream(g, &ids, &stream);
  else tokenizer_stream_begin(&stream, g->text.tokenizer, 0);
  if (!code) {
    if (!g->chats) fputs(g->prompt, stdout), fflush(stdout);
    code = print_text(g, &stream, &ended, error);
  }
  if (!code) generate_print_speed(g, ended);
  vec_free(&ids);
  return code;
}

static int run(Generate *g, const Launch *launch, Error *error) {
  if (launch->rank) return engine_follow(g->engine, error);
  if (!g->prompts) return generate_one(g, error);
  int code = generate_file(g, error);
  if (!code || code == PLAIT_BAD_INPUT) generate_print_speed(g, false);
  return code;
}

static int check_words(const Generate *g, const Operands *words, Error *error) {
  for (int i = 1; i < words->count && g->window; i++)
    if (!strncmp(words->words[i], "infer.context=", 14))
      return error_set(error, PLAIT_BAD_INPUT, "--window N is infer.context by its old name; give one of them");
  if (!g->prompt == !g->prompts)
    return error_set(error, PLAIT_BAD_INPUT, "give one of --prompt TEXT and --prompts FILE");
  if (!g->prompts != !g->out_path)
    return error_set(error, PLAIT_BAD_INPUT, "--prompts FILE and --out FILE need each other");
  if (g->text.template_path && !g->chats) return error_set(error, PLAIT_BAD_INPUT, "--template FILE is for --chat");
  if (g->logprobs >= 0 && !g->prompts)
    return error_set(error, PLAIT_BAD_INPUT, "--logprobs is for --prompts: they stand in the file of answers");
  return PLAIT_OK;
}

static int generate(Generate *g, const Operands *words, Launch *launch, Error *error) {
  int code = check_words(g, words, error);
  if (!code) code = model_source_open(&g->source, words->words[0], error);
  if (!code) code = generate_open_text(g, error);
  if (!code && g->prompts && !launch->rank) code = generate_file_open(g, error);
  code = launch_agree(launch, code, error);
  static const RecipeInstead instead[] = {{"data.seq_len", "infer.context"},
                                          {"data.tokenizer", "--tokenizer FILE"},
                                          {"run.seed", "--seed N"},
                                          {NULL, NULL}};
  char *context = xformat("infer.context=%lld", (long long)g->window), **keys = words->words;
  int count = words->count - 1;
  if (g->window) keys[0] = context; // the path was read; keys after it are stronger
  const EngineOptions o = {.command = "plait generate",
                           .instead = instead,
                           .requests = g->prompts ? 0 : 1,
                           .threads = (int)g->threads,
                           .key_count = g->window ? count + 1 : count,
                           .keys = g->window ? keys : keys + 1};
  if (!code) code = engine_open(&g->engine, &g->source, &o, launch, error);
  if (!code) code = run(g, launch, error);
  engine_close(g->engine);
  free(context);
  generate_file_close(g, code);
  model_text_close(&g->text);
  model_source_close(&g->source);
  return code;
}

int cmd_generate(int argc, char **argv) {
  Generate g = {.max_tokens = 200,
                .sample = {.temperature = 0.8, .top_p = 0.95, .repetition = 1},
                .logprobs = -1,
                .threads = cores_available()};
  const Option options[] = {
      {.name = "prompt", .kind = OPTION_TEXT, .value = &g.prompt, .argument = "TEXT", .help = "the text to continue"},
      {.name = "prompts",
       .kind = OPTION_TEXT,
       .value = &g.prompts,
       .argument = "FILE",
       .help = "instead a file of prompts, a JSON object a line: {\"prompt\": TEXT}, with id, max_tokens, temperature, "
               "top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed of its own"},
      {.name = "out",
       .kind = OPTION_TEXT,
       .value = &g.out_path,
       .argument = "FILE",
       .help = "of --prompts: the file of answers, a line for each prompt in the same order; what an earlier run has "
               "answered stays"},
      {.name = "chat",
       .kind = OPTION_FLAG,
       .value = &g.chats,
       .help = "prompts are chats, which the model's chat template makes texts of: --prompt is a user's message, and "
               "lines of --prompts have {\"messages\": [{\"role\": \"user\", \"content\": TEXT}]} in the place of "
               "prompt, perhaps with tools and chat_template_kwargs"},
      OPTION_TEMPLATE(&g.text.template_path, "of --chat: "),
      {.name = "logprobs",
       .kind = OPTION_INTEGER,
       .value = &g.logprobs,
       .argument = "N",
       .help = "of --prompts: answers have the log-probability of each token, and those of the N most likely ones",
       .shown = "none",
       .least = 0,
       .most = 100},
      {.name = "max-tokens",
       .kind = OPTION_INTEGER,
       .value = &g.max_tokens,
       .argument = "N",
       .help = "tokens to generate",
       .least = 0,
       .most = 2147483647.0},
      OPTIONS_SAMPLE(&g.sample, NULL),
      OPTION_SEED(&g.seed, "the same seed gives the same text"),
      {.name = "ignore-eos",
       .kind = OPTION_FLAG,
       .value = &g.ignore_eos,
       .help = "continue past the end of text, instead of stopping there"},
      {.name = "stop-at-end", .kind = OPTION_FLAG, .value = &g.stop_at_end}, // now the default; not in the help
      {.name = "verbose",
       .kind = OPTION_FLAG,
       .value = &g.verbose,
       .help = "print tokens/s and the bytes of each rank at the end, on stderr"},
      {.name = "window",
       .kind = OPTION_INTEGER,
       .value = &g.window,
       .argument = "N",
       .help = "the key infer.context by its old name; 0: auto",
       .least = 0,
       .most = 1 << 24},
      OPTION_TOKENIZER(&g.text.tokenizer_path, "to use"),
      OPTION_THREADS(&g.threads),
  };
  const CommandHelp help = {
      "generate", "[options] CHECKPOINT|RUN|FOLDER --prompt TEXT|--prompts FILE --out FILE [key=value …]",
      "Continues a text with a model: a checkpoint, a run (its newest checkpoint) or a Hugging Face folder.\n"
      "It stops where the model ends the text: at the end-of-text token of generation_config.json, of config.json, or "
      "of the documents that the model was trained on.\n"
      "It computes in fp32, as one rank on all cores. Recipe keys after the model choose another mesh, Layout or "
      "precision; the text is the same up to rounding. Ranks of mesh.dp share the prompts of --prompts; one prompt is "
      "computed by one of them, but they can share the weights (parallel.zero=3).",
      "  plait generate runs/demo --prompt 'struct '\n"
      "  plait generate runs/demo/checkpoints/step-3400 --prompt 'extern int ' --temperature 0 --max-tokens 60\n"
      "  plait generate runs/demo/checkpoints/best --prompt 'struct '   # of a run with checkpoint.best: true\n"
      "  plait generate SmolLM-135M --prompt 'Once upon a time' --top-k 40 --seed 7 --verbose\n"
      "  plait generate SmolLM-135M --prompt 'Once' mesh.tp=3 mesh.pp=2\n"
      "  plait generate SmolLM-135M --prompts questions.jsonl --out answers.jsonl infer.requests=16\n"
      "  plait generate SmolLM2-135M-Instruct --chat --prompt 'What is a river?'\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Launch launch;
  signals_install(NULL); // a token takes no time
  int code = launch_begin(&launch, setup_wish_of_keys(operands.count, operands.words), &error);
  if (!code) code = generate(&g, &operands, &launch, &error);
  if (!code && signals_stop()) code = PLAIT_INTERRUPTED;
  return command_end("generate", code, &launch, &error);
}
