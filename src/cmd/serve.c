// plait serve: answers requests of OpenAI's clients with a model.
#include "base/cores.h"
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cmd/model_text.h"
#include "setup/setup.h"
#include "cli/options.h"
#include "serve/access.h"
#include "serve/compute.h"
#include "serve/fingerprint.h"
#include "serve/http.h"
#include "serve/model_server.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FLUSH = 2 }; // seconds for the last answers

typedef struct Serve {
  const char *host, *alias, *key_file, *allow_origin;
  int64_t port, queue, threads;
  double drain;
  ModelSource source;
  ModelText text;
  TokenTrie *trie;
  GrammarStore *grammars;
  ServedModel model;
  Engine *engine;
  ModelServer *server;
  char *name;
} Serve;

// The last part of the path that the user gave.
static char *name_of(const char *path) {
  size_t bytes = strlen(path);
  while (bytes > 1 && path[bytes - 1] == '/') bytes--;
  size_t from = bytes;
  while (from && path[from - 1] != '/') from--;
  return xformat("%.*s", (int)(bytes - from), path + from);
}

static int describe_model(Serve *s, const char *path, Error *error) {
  s->name = s->alias ? xstrdup(s->alias) : name_of(path);
  s->trie = token_trie_create(s->text.tokenizer);
  s->grammars = grammar_store_create();
  s->model = (ServedModel){.source = &s->source,
                           .tokenizer = s->text.tokenizer,
                           .text = &s->text.setup,
                           .chat = s->text.chat,
                           .trie = s->trie,
                           .grammars = s->grammars,
                           .allowed = s->text.allowed,
                           .name = s->name,
                           .context = engine_options(s->engine)->context,
                           .created = time(NULL)};
  return served_model_usual(&s->source, &s->model.usual, error);
}

static int compile_engine(Serve *s, const Operands *words, Launch *launch, Error *error) {
  static const RecipeInstead instead[] = {{"data.seq_len", "infer.context"},
                                          {"data.tokenizer", "--tokenizer FILE"},
                                          {"run.seed", "seed in a request"},
                                          {NULL, NULL}};
  const EngineOptions o = {.command = "plait serve",
                           .instead = instead,
                           .threads = (int)s->threads,
                           .key_count = words->count - 1,
                           .keys = words->words + 1};
  return engine_compile(&s->engine, &s->source, &o, launch, error);
}

static int open_server(Serve *s, const Launch *launch, Error *error) {
  const ServeOptions o = {.host = s->host,
                          .port = (int)s->port,
                          .key_file = s->key_file,
                          .allow_origin = s->allow_origin,
                          .most = (int)s->queue};
  if (launch->rank) return PLAIT_OK;
  int code = model_server_open(&s->server, &o, &s->model, error);
  if (!code && !s->key_file && !access_is_local(s->host))
    fprintf(stderr, "plait serve: note: everybody who reaches %s may ask, since there is no --api-key-file\n", s->host);
  return code;
}

static int run(Serve *s, const Launch *launch, Error *error) {
  if (launch->rank) return engine_follow(s->engine, error);
  fingerprint_of(engine_model(s->engine), s->model.fingerprint);
  model_server_ready(s->server);
  bool v6 = strchr(s->host, ':') != NULL;
  printf("serving %s at http://%s%s%s:%d (context %lld, %s)\n", s->name, v6 ? "[" : "", s->host, v6 ? "]" : "",
         model_server_port(s->server), (long long)s->model.context,
         s->text.chat ? "with a chat template" : "without a chat template");
  fflush(stdout);
  int code = compute_run(model_server_queue(s->server), s->engine, s->drain, error);
  model_server_flush(s->server, FLUSH);
  return code;
}

static int serve(Serve *s, const Operands *words, Launch *launch, Error *error) {
  int code = http_check(error);
  if (!code) code = model_source_open(&s->source, words->words[0], error);
  if (!code) code = model_text_open(&s->text, &s->source, true, error);
  if (!code) code = compile_engine(s, words, launch, error);
  if (!code) code = describe_model(s, words->words[0], error);
  if (!code) code = open_server(s, launch, error);
  code = launch_agree(launch, code, error);
  if (!code) code = engine_start(s->engine, error);
  if (!code) code = run(s, launch, error);
  model_server_close(s->server);
  engine_close(s->engine);
  grammar_store_free(s->grammars);
  token_trie_free(s->trie);
  model_text_close(&s->text);
  model_source_close(&s->source);
  free(s->name);
  return code;
}

int cmd_serve(int argc, char **argv) {
  Serve s = {.host = "127.0.0.1", .port = 8080, .queue = 256, .drain = 30, .threads = cores_available()};
  const Option options[] = {
      {.name = "host",
       .kind = OPTION_TEXT,
       .value = &s.host,
       .argument = "HOST",
       .help = "the address to listen at; 0.0.0.0: all of this machine"},
      {.name = "port",
       .kind = OPTION_INTEGER,
       .value = &s.port,
       .argument = "N",
       .help = "the port; 0: one that is free, which is printed",
       .least = 0,
       .most = 65535},
      {.name = "api-key-file",
       .kind = OPTION_TEXT,
       .value = &s.key_file,
       .argument = "FILE",
       .help = "keys, one a line: who asks needs one of them"},
      {.name = "alias",
       .kind = OPTION_TEXT,
       .value = &s.alias,
       .argument = "NAME",
       .help = "the name of the model for clients; without it, the last part of its path"},
      {.name = "allow-origin",
       .kind = OPTION_TEXT,
       .value = &s.allow_origin,
       .argument = "ORIGIN",
       .help = "browsers may let pages of this site ask, as https://example.org; *: of any site"},
      {.name = "drain",
       .kind = OPTION_REAL,
       .value = &s.drain,
       .argument = "S",
       .help = "seconds that running requests have to finish after SIGTERM or SIGINT",
       .least = 0,
       .most = 86400},
      {.name = "queue",
       .kind = OPTION_INTEGER,
       .value = &s.queue,
       .argument = "N",
       .help = "how many run or wait at most; more are told to try again",
       .least = 1,
       .most = 65536},
      OPTION_TOKENIZER(&s.text.tokenizer_path, "to use"),
      OPTION_TEMPLATE(&s.text.template_path, ""),
      OPTION_THREADS(&s.threads),
  };
  const CommandHelp help = {
      "serve", "[options] CHECKPOINT|RUN|FOLDER [key=value …]",
      "Answers requests of OpenAI's clients over HTTP with a model: a checkpoint, a run (its newest checkpoint) or a "
      "Hugging Face folder. docs/serving.md has all fields of requests, metrics and limits. At the root there is a "
      "page "
      "to chat with the model.\n"
      "It computes in fp32, as one rank on all cores. Recipe keys after the model choose another mesh, Layout or "
      "precision.\n"
      "SIGTERM and SIGINT end it: new requests get status 503, and running ones have --drain seconds.",
      "  plait serve runs/demo\n"
      "  plait serve SmolLM2-135M-Instruct --port 8000 --alias smol --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"struct \", \"max_tokens\": 40}'\n"
      "  plait launch --nproc-per-node 2 -- plait serve SmolLM2-135M-Instruct mesh.tp=2\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Launch launch;
  int code = launch_begin(&launch, setup_wish_of_keys(operands.count, operands.words), &error);
  signals_install(launch.rank ? NULL : "running requests finish first; a second Ctrl-C ends it at once");
  if (!code) code = serve(&s, &operands, &launch, &error);
  return command_end("serve", code, &launch, &error);
}
