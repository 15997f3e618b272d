// plait chat: a conversation with a model.
#include "base/cores.h"
#include "base/file.h"
#include "base/json_read.h"
#include "base/signals.h"
#include "chat/chat_parser.h"
#include "cli/options.h"
#include "cmd/chat_input.h"
#include "cmd/cmd.h"
#include "cmd/generate.h"
#include "cmd/launched.h"
#include "serve/model.h"
#include "setup/setup.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Talk {
  Generate g;
  const char *system, *load, *save, *kwargs_text;
  char *typed_system; // owned; of /system
  json_t *messages, *kwargs;
  int64_t again;    // how often the last answer was asked for again: each time with another seed
  ByteVector content, reasoning; // of the answer
  bool answered;    // since the messages were saved
  int unanswered, failed_commands;
  bool shows;       // to a terminal, where reasoning is dim
  bool in_reasoning;
} Talk;

// ---- the messages

static void begin(Talk *t) {
  json_array_clear(t->messages);
  if (t->system) json_array_append_new(t->messages, json_pack("{s:s, s:s}", "role", "system", "content", t->system));
  t->again = 0;
}

static const char *role_of(const Talk *t, size_t i) {
  const char *role = json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
  return role ? role : "";
}

static int check_message(const json_t *message, size_t i, const char *path, Error *error) {
  static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
  const char *role = json_string_value(json_object_get(message, "role"));
  const json_t *content = json_object_get(message, "content");
  size_t k = 0;
  if (!role) return error_set(error, PLAIT_BAD_INPUT, "%s: messages[%zu] has no role", path, i);
  while (k < sizeof roles / sizeof *roles && strcmp(role, roles[k]) != 0) k++;
  if (k == sizeof roles / sizeof *roles)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: messages[%zu].role is \"%.40s\"; roles are system, developer, user, assistant and tool", path,
                     i, role);
  if (json_is_string(content) || json_is_array(content) || json_object_get(message, "tool_calls")) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: messages[%zu].content is not a text", path, i);
}

// *tree: of a chat's file, with its *messages; the caller releases it, also after an error.
static int read_chat(const char *path, json_t **tree, json_t **messages, Error *error) {
  json_t *message;
  size_t i;
  *tree = NULL;
  int found = json_read_file(path, 64 << 20, tree, error);
  if (!found) return error_set(error, PLAIT_BAD_INPUT, "%s: there is no such file", path);
  if (found < 0) return found;
  *messages = json_is_object(*tree) ? json_object_get(*tree, "messages") : *tree;
  if (!json_is_array(*messages)) return error_set(error, PLAIT_BAD_INPUT, "%s: it has no list of messages", path);
  int code = PLAIT_OK;
  json_array_foreach(*messages, i, message) if (!code) code = check_message(message, i, path, error);
  return code;
}

// The system message of the file is that of the chat, also after /reset.
static int load(Talk *t, const char *path, Error *error) {
  json_t *tree, *messages;
  int code = read_chat(path, &tree, &messages, error);
  if (!code) {
    json_decref(t->messages);
    t->messages = json_deep_copy(messages);
    t->again = 0;
    const char *system = json_string_value(json_object_get(json_array_get(t->messages, 0), "content"));
    free(t->typed_system);
    t->typed_system = system && !strcmp(role_of(t, 0), "system") ? xstrdup(system) : NULL;
    t->system = t->typed_system;
    size_t n = json_array_size(t->messages);
    if (n && !strcmp(role_of(t, n - 1), "user"))
      fprintf(stderr, "plait chat: note: the last message of %s has no answer; /retry answers it\n", path);
  }
  json_decref(tree);
  return code;
}

// Nothing but a chat is written over.
static int check_over(const char *path, Error *error) {
  json_t *tree = NULL, *messages;
  Error ignored = {0};
  if (!file_exists(path)) return PLAIT_OK;
  int code = read_chat(path, &tree, &messages, &ignored);
  json_decref(tree);
  return code ? error_set(error, PLAIT_BAD_INPUT, "%s is there and holds no chat; give the chat another name", path)
              : PLAIT_OK;
}

static int save(const Talk *t, const char *path, Error *error) {
  AtomicFile file;
  int code = check_over(path, error);
  if (!code) code = file_begin(&file, path, error);
  if (code < 0) return code;
  json_t *tree = json_pack("{s:O}", "messages", t->messages);
  if (json_dumpf(tree, file.stream, JSON_INDENT(2)) || fputc('\n', file.stream) == EOF) {
    code = file_write_failed(path, errno, 0, error);
    file_abandon(&file);
  } else code = file_commit(&file, error);
  json_decref(tree);
  return code;
}

// ---- an answer

static void show_delta(void *context, const ChatDelta *d) {
  Talk *t = context;
  bool reasons = d->kind == CHAT_REASONING;
  if (reasons && !t->in_reasoning) fputs(t->shows ? "\033[2m" : "<think>\n", stdout);
  if (!reasons && t->in_reasoning) fputs(t->shows ? "\033[0m\n\n" : "\n</think>\n", stdout);
  t->in_reasoning = reasons;
  fwrite(d->text, 1, d->bytes, stdout);
  bytes_append(reasons ? &t->reasoning : &t->content, d->text, d->bytes);
}

static int draw(Talk *t, TokenizerStream *stream, ChatParser *parser, int64_t request, Error *error) {
  Engine *engine = t->g.engine;
  ByteVector text = {0};
  int code = PLAIT_OK;
  while (!code && !engine_is_idle(engine) && !ferror(stdout)) {
    EngineEvent e;
    if (signals_stop()) engine_cancel(engine, request);
    code = engine_tick(engine, error);
    while (!code && engine_poll(engine, &e)) {
      if (e.id >= 0 && !e.scored) tokenizer_stream_push(stream, e.id, &text);
      else if (e.id < 0 && e.end == REQUEST_BROKEN)
        code = error_set(error, PLAIT_FAILED, "the model's logits are not finite: its weights are broken");
    }
    chat_parser_push(parser, text.data, (size_t)text.count);
    text.count = 0;
    fflush(stdout);
  }
  tokenizer_stream_end(stream, &text);
  chat_parser_push(parser, text.data, (size_t)text.count);
  chat_parser_end(parser);
  vec_free(&text);
  return code;
}

static json_t *text_json(const ByteVector *v) { // what no tokenizer has made of text becomes U+FFFD
  ByteVector valid = {0};
  for (size_t at = 0, bytes = (size_t)v->count; at < bytes;) {
    size_t whole = utf8_prefix(v->data + at, bytes - at);
    bytes_append(&valid, v->data + at, whole);
    at += whole;
    if (at < bytes) bytes_append(&valid, "\xef\xbf\xbd", 3), at++;
  }
  json_t *s = json_stringn(valid.data ? valid.data : "", (size_t)valid.count);
  vec_free(&valid);
  return s;
}

static void keep_answer(Talk *t) {
  json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", text_json(&t->content));
  if (t->reasoning.count) json_object_set_new(message, "reasoning_content", text_json(&t->reasoning));
  json_array_append_new(t->messages, message);
}

static int check_length(const Talk *t, const IdVector *ids, RequestOptions *o, Error *error) {
  int context = engine_options(t->g.engine)->context;
  bool is_first = json_array_size(t->messages) - !strcmp(role_of(t, 0), "system") <= 1;
  if (ids->count >= context && is_first)
    return error_set(error, PLAIT_BAD_INPUT,
                     "the message makes a prompt of %d tokens, and the model looks back on %d (infer.context)",
                     ids->count, context);
  if (ids->count >= context)
    return error_set(error, PLAIT_BAD_INPUT,
                     "the chat has %d tokens, and the model looks back on %d (infer.context); /reset begins anew",
                     ids->count, context);
  if (!o->most || o->most > context - ids->count) o->most = context - ids->count;
  return PLAIT_OK;
}

// The model's answer to the messages, of which the last is the user's; nothing changes where it cannot be asked for.
static int answer(Talk *t, Error *error) {
  Generate *g = &t->g;
  IdVector ids = {0};
  RequestOptions o = generate_request(g);
  TokenizerStream stream;
  int64_t request;
  o.sample.seed += (uint64_t)t->again;
  int code = generate_encode_chat(g, t->messages, NULL, t->kwargs, &ids, error);
  if (!code) code = check_length(t, &ids, &o, error);
  o.prompt = ids.data;
  o.count = ids.count;
  if (!code) code = engine_submit(g->engine, &o, &request, error);
  if (!code) {
    ByteVector end = {0};
    tokenizer_decode(g->text.tokenizer, ids.data + (ids.count > 8 ? ids.count - 8 : 0), ids.count > 8 ? 8 : ids.count,
                     0, &end, error);
    ChatParserOptions options = {.reasoning = chat_has_reasoning(g->text.chat),
                                 .in_reasoning = chat_begins_reasoning(&end),
                                 .tell = show_delta,
                                 .context = t};
    ChatParser *parser = chat_parser_create(&options);
    t->content.count = t->reasoning.count = 0;
    t->in_reasoning = false;
    generate_stream(g, &ids, &stream);
    code = draw(t, &stream, parser, request, error);
    if (t->in_reasoning) fputs(t->shows ? "\033[0m" : "\n</think>", stdout);
    fputc('\n', stdout);
    fflush(stdout);
    chat_parser_destroy(parser);
    vec_free(&end);
    if (!code) keep_answer(t), t->answered = true;
  }
  vec_free(&ids);
  return code;
}

// ---- what the user says

static const char help_text[] =
    "/reset           begin anew\n"
    "/retry           answer the last message again\n"
    "/system TEXT     begin anew with this system message\n"
    "/save FILE.json  write the messages\n"
    "/load FILE.json  go back to messages that were written\n"
    "/exit            end, as Ctrl-D does\n"
    "Ctrl-C ends an answer. A line that ends with \\ has another one after it; lines between two lines \"\"\" are one\n"
    "message. A message that begins with / is written with //.\n";

static int retry(Talk *t, Error *error) {
  size_t n = json_array_size(t->messages);
  if (n && !strcmp(role_of(t, n - 1), "assistant")) json_array_remove(t->messages, --n);
  if (!n || strcmp(role_of(t, n - 1), "user") != 0)
    return error_set(error, PLAIT_BAD_INPUT, "there is no message to answer again");
  t->again++;
  return answer(t, error);
}

// The rest of a line after a command; NULL: it is another one.
static const char *after(const char *line, const char *command) {
  size_t n = strlen(command);
  if (strncmp(line, command, n) != 0 || (line[n] && line[n] != ' ')) return NULL;
  return line + n + strspn(line + n, " ");
}

static int command(Talk *t, const char *line, bool *ends, Error *error) {
  const char *rest;
  if (after(line, "/exit") || after(line, "/quit")) *ends = true;
  else if (after(line, "/help")) fputs(help_text, stdout);
  else if (after(line, "/reset")) begin(t);
  else if (after(line, "/retry")) return retry(t, error);
  else if ((rest = after(line, "/system"))) {
    if (utf8_prefix(rest, strlen(rest)) != strlen(rest))
      return error_set(error, PLAIT_BAD_INPUT, "the system message is not UTF-8");
    free(t->typed_system);
    t->typed_system = xstrdup(rest);
    t->system = *rest ? t->typed_system : NULL;
    begin(t);
  } else if ((rest = after(line, "/save")) || (rest = after(line, "/load"))) {
    if (!*rest) return error_set(error, PLAIT_BAD_INPUT, "%.5s needs the name of a file", line);
    int code = line[1] == 's' ? save(t, rest, error) : load(t, rest, error);
    return code ? PLAIT_BAD_INPUT : PLAIT_OK; // also a full disk ends no chat
  } else return error_set(error, PLAIT_BAD_INPUT, "there is no command %.40s; /help lists them", line);
  return PLAIT_OK;
}

static int say(Talk *t, const ByteVector *message, bool *ends, Error *error) {
  const char *text = message->data;
  if (text[0] == '/' && text[1] != '/') return command(t, text, ends, error);
  json_t *content = json_string(text + (text[0] == '/'));
  if (!content) return error_set(error, PLAIT_BAD_INPUT, "the message is not UTF-8");
  json_array_append_new(t->messages, json_pack("{s:s, s:o}", "role", "user", "content", content));
  t->again = 0;
  int code = answer(t, error);
  if (code == PLAIT_BAD_INPUT) json_array_remove(t->messages, json_array_size(t->messages) - 1);
  return code;
}

// One message or command: what is wrong with it is said, and ends no chat. Other failures do.
static int take(Talk *t, ByteVector *message, bool *ends, Error *error) {
  Error why = {0};
  bool is_command = message->count && message->data[0] == '/' && (message->count < 2 || message->data[1] != '/');
  vec_push(message, 0);
  bool whole = strlen(message->data) + 1 == (size_t)message->count;
  int code = whole ? say(t, message, ends, &why) : error_set(&why, PLAIT_BAD_INPUT, "the message has a NUL byte");
  signals_take(SIGINT);
  if (code && code != PLAIT_BAD_INPUT) return error_take(error, &why);
  if (!code && t->save && t->answered) code = save(t, t->save, &why);
  t->answered = false;
  if (!code) return PLAIT_OK;
  fprintf(stderr, "plait chat: %s\n", why.message);
  if (is_command) t->failed_commands++;
  else t->unanswered++;
  return PLAIT_OK;
}

static int say_failed(const Talk *t, Error *error) {
  char messages[64] = "", commands[64] = "";
  int m = t->unanswered, c = t->failed_commands;
  if (m) snprintf(messages, sizeof messages, "%d message%s had no answer", m, m > 1 ? "s" : "");
  if (c) snprintf(commands, sizeof commands, "%d command%s failed", c, c > 1 ? "s" : "");
  return error_set(error, PLAIT_BAD_INPUT, "%s%s%s", messages, m && c ? ", and " : "", commands);
}

static int talk(Talk *t, Error *error) {
  ChatInput in = {.tells = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
  ByteVector message = {0};
  bool ends = false;
  int code = PLAIT_OK;
  int64_t count = 0;
  t->shows = isatty(STDOUT_FILENO);
  if (in.tells) fputs("Ctrl-C ends an answer, Ctrl-D the chat; /help lists commands.\n", stdout);
  for (; !code && !ends && !ferror(stdout) && !signals_stop() && chat_input_next(&in, &message) == INPUT_MESSAGE;
       count++)
    code = take(t, &message, &ends, error);
  if (!code && !count && !in.tells && !signals_stop())
    fprintf(stderr, "plait chat: note: no message came from the standard input; processes of plait launch have none\n");
  if (in.tells && !ends) fputc('\n', stdout);
  vec_free(&message);
  vec_free(&in.read);
  return !code && !in.tells && (t->unanswered || t->failed_commands) ? say_failed(t, error) : code;
}

// A chat that is there is not lost to a new one.
static int check_save(const Talk *t, Error *error) {
  int code = check_over(t->save, error);
  if (!code) code = file_check_writable(t->save, error);
  if (!code && file_exists(t->save) && !(t->load && !strcmp(t->load, t->save)))
    code = error_set(error, PLAIT_BAD_INPUT, "%s holds a chat; continue it with --load %s, or give --save another name",
                     t->save, t->save);
  return code;
}

static int prepare(Talk *t, Error *error) {
  Generate *g = &t->g;
  SampleOptions usual;
  int code = served_model_usual(&g->source, &usual, error);
  if (code) return code;
  if (g->sample.temperature < 0) g->sample.temperature = usual.temperature;
  if (g->sample.top_k < 0) g->sample.top_k = usual.top_k;
  if (g->sample.top_p < 0) g->sample.top_p = usual.top_p;
  if (g->sample.min_p < 0) g->sample.min_p = usual.min_p;
  if (g->sample.repetition < 0) g->sample.repetition = usual.repetition;
  if (t->kwargs_text && json_read(t->kwargs_text, strlen(t->kwargs_text), "--template-kwargs", &t->kwargs, error))
    return PLAIT_BAD_INPUT;
  if (t->kwargs && !json_is_object(t->kwargs))
    return error_set(error, PLAIT_BAD_INPUT, "--template-kwargs is not a JSON object, as {\"enable_thinking\": false}");
  if (chat_check_kwargs(t->kwargs, "--template-kwargs", error)) return PLAIT_BAD_INPUT;
  if (t->system && utf8_prefix(t->system, strlen(t->system)) != strlen(t->system))
    return error_set(error, PLAIT_BAD_INPUT, "--system is not UTF-8");
  if (t->system && t->load)
    return error_set(error, PLAIT_BAD_INPUT, "--load has a system message of its own, if any; leave --system out");
  begin(t);
  if (t->load) code = load(t, t->load, error);
  return code || !t->save ? code : check_save(t, error);
}

static int chat(Talk *t, const Operands *words, Launch *launch, Error *error) {
  Generate *g = &t->g;
  int code = model_source_open(&g->source, words->words[0], error);
  t->messages = json_array();
  if (!code) code = generate_open_text(g, error);
  if (!code) code = prepare(t, error);
  code = launch_agree(launch, code, error);
  static const RecipeInstead instead[] = {{"data.seq_len", "infer.context"},
                                          {"data.tokenizer", "--tokenizer FILE"},
                                          {"run.seed", "--seed N"},
                                          {NULL, NULL}};
  const EngineOptions o = {.command = "plait chat",
                           .instead = instead,
                           .requests = 1,
                           .threads = (int)g->threads,
                           .key_count = words->count - 1,
                           .keys = words->words + 1};
  if (!code) code = engine_open(&g->engine, &g->source, &o, launch, error);
  if (!code) code = launch->rank ? engine_follow(g->engine, error) : talk(t, error);
  signals_take(SIGINT); // it has ended an answer of rank 0, not the program
  engine_close(g->engine);
  model_text_close(&g->text);
  model_source_close(&g->source);
  json_decref(t->messages);
  json_decref(t->kwargs);
  free(t->typed_system);
  vec_free(&t->content);
  vec_free(&t->reasoning);
  return code;
}

int cmd_chat(int argc, char **argv) {
  Talk t = {.g = {.chats = true,
                  .sample = {.temperature = -1, .top_k = -1, .top_p = -1, .min_p = -1, .repetition = -1},
                  .logprobs = -1,
                  .threads = cores_available()}};
  Generate *g = &t.g;
  static const char usual[] = "as generation_config.json says";
  const Option options[] = {
      {.name = "system",
       .kind = OPTION_TEXT,
       .value = &t.system,
       .argument = "TEXT",
       .help = "the system message, with which the chat begins"},
      {.name = "load",
       .kind = OPTION_TEXT,
       .value = &t.load,
       .argument = "FILE.json",
       .help =
           "messages to begin with: {\"messages\": [{\"role\": \"user\", \"content\": TEXT}]}, or the list alone"},
      {.name = "save",
       .kind = OPTION_TEXT,
       .value = &t.save,
       .argument = "FILE.json",
       .help = "where the messages are written after each answer"},
      OPTION_TEMPLATE(&g->text.template_path, ""),
      {.name = "template-kwargs",
       .kind = OPTION_TEXT,
       .value = &t.kwargs_text,
       .argument = "JSON",
       .help = "variables for the template, as '{\"enable_thinking\": false}'"},
      {.name = "max-tokens",
       .kind = OPTION_INTEGER,
       .value = &g->max_tokens,
       .argument = "N",
       .help = "the most tokens of an answer",
       .shown = "what infer.context has room for",
       .least = 1,
       .most = 2147483647.0},
      OPTIONS_SAMPLE(&g->sample, usual),
      OPTION_SEED(&g->seed, "the same seed gives the same answers; /retry takes the next one"),
      OPTION_TOKENIZER(&g->text.tokenizer_path, "to use"),
      OPTION_THREADS(&g->threads),
  };
  const CommandHelp help = {
      "chat", "[options] CHECKPOINT|RUN|FOLDER [key=value …]",
      "Talks to a model: what you type is a message, and the model answers. The model's chat template makes texts of "
      "the messages; a model without one needs --template.\n"
      "Ctrl-C ends an answer, Ctrl-D the chat; /help lists commands (/reset, /retry, /save …). A line that ends with "
      "\\ "
      "has another one after it. From a pipe, each line is a message.\n"
      "Recipe keys after the model choose how it computes, as for plait generate.",
      "  plait chat SmolLM2-135M-Instruct\n"
      "  plait chat SmolLM2-135M-Instruct --system 'Answer in one sentence.' --save chat.json\n"
      "  echo 'What is a river?' | plait chat SmolLM2-135M-Instruct --temperature 0\n"
      "  plait chat SmolLM3-3B --template-kwargs '{\"enable_thinking\": false}' precision=bf16\n",
      .takes = TAKES_MODEL};
  Operands operands;
  int status = options_parse(&help, options, sizeof options / sizeof *options, 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Launch launch;
  signals_install(NULL);
  int code = launch_begin(&launch, setup_wish_of_keys(operands.count, operands.words), &error);
  if (!code) code = chat(&t, &operands, &launch, &error);
  if (!code && signals_stop()) code = PLAIT_INTERRUPTED;
  return command_end("chat", code, &launch, &error);
}
