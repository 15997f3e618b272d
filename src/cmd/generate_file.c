// Lines of prompts in, lines of answers out, in the same order; many requests at once.
#include "cmd/generate.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_read.h"
#include "base/signals.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ITEMS = 4096 }; // answers that wait for one before them

typedef struct Item {
  int64_t line, request; // request -1: it is answered
  json_t *answer;
  json_t *logprobs;      // NULL: not asked for
  TokenizerStream stream;
  ByteVector text;
  int64_t tokens;
} Item;

struct PromptFile {
  Generate *g;
  FILE *in, *out;
  int64_t count, answered, refused; // lines in all; answers that are written
  int64_t next;                     // line to read
  Vec(Item) items;                  // from line `answered` on, in order
  char *line;
  size_t capacity;
  double said;
  bool is_new; // the file of answers was not there
};

static const char *const end_words[] = {
    [REQUEST_STOPPED] = "stop", [REQUEST_IS_FULL] = "length", [REQUEST_CANCELLED] = "cancelled"};

static int failed(const PromptFile *l, const char *path, const char *doing, Error *error) {
  return error_set(error, PLAIT_FAILED, "%s: cannot be %s: %s", path, doing, strerror(errno));
}

// ---- a line becomes a request

static int number_at(const json_t *line, const char *key, double *value, Error *error) {
  const json_t *v = json_object_get(line, key);
  if (!v) return PLAIT_OK;
  if (!json_is_number(v)) return error_set(error, PLAIT_BAD_INPUT, "%s is not a number", key);
  *value = json_number_value(v);
  return PLAIT_OK;
}

static int integer_at(const json_t *line, const char *key, int64_t *value, Error *error) {
  const json_t *v = json_object_get(line, key);
  if (!v) return PLAIT_OK;
  double real = json_is_number(v) ? json_number_value(v) : 0.5;
  if (real != floor(real) || fabs(real) > 0x1p53)
    return error_set(error, PLAIT_BAD_INPUT, "%s is not a whole number of at most 2^53", key);
  *value = (int64_t)real;
  return PLAIT_OK;
}

// Zero stands for what an option leaves out; a line that has the key means it.
static int not_zero(const json_t *line, const char *key, const char *allowed, Error *error) {
  const json_t *v = json_object_get(line, key);
  if (!v || json_number_value(v) != 0) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s is 0; allowed: %s", key, allowed);
}

static const char *prompt_key(const PromptFile *l) { return l->g->chats ? "messages" : "prompt"; }

static int check_keys(const PromptFile *l, json_t *line, Error *error) {
  static const char *const known[] = {"id", "max_tokens", "temperature", "top_k", "top_p", "min_p",
                                      "repetition_penalty", "presence_penalty", "frequency_penalty", "seed"};
  const char *key, *chats = l->g->chats ? ", tools, chat_template_kwargs" : "";
  json_t *value;
  json_object_foreach(line, key, value) {
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0) i++;
    bool of_chats = *chats && (!strcmp(key, "tools") || !strcmp(key, "chat_template_kwargs"));
    if (i < sizeof known / sizeof *known || !strcmp(key, prompt_key(l)) || of_chats) continue;
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s is not a key of a prompt; keys: %s, id, max_tokens, temperature, top_k, top_p, min_p, "
                     "repetition_penalty, presence_penalty, frequency_penalty, seed%s",
                     key, prompt_key(l), chats);
  }
  return PLAIT_OK;
}

static int encode(const PromptFile *l, const json_t *line, IdVector *ids, int64_t *missed, Error *error) {
  const json_t *prompt = json_object_get(line, prompt_key(l));
  if (l->g->chats)
    return generate_encode_chat(l->g, prompt, json_object_get(line, "tools"),
                                json_object_get(line, "chat_template_kwargs"), ids, error);
  return generate_encode(l->g, json_string_value(prompt), json_string_length(prompt), ids, missed, error);
}

static int read_request(const json_t *line, RequestOptions *o, Error *error) {
  SampleOptions *s = &o->sample;
  int64_t seed = (int64_t)s->seed;
  int code = integer_at(line, "max_tokens", &o->most, error);
  if (!code) code = number_at(line, "temperature", &s->temperature, error);
  if (!code) code = integer_at(line, "top_k", &s->top_k, error);
  if (!code) code = number_at(line, "top_p", &s->top_p, error);
  if (!code) code = number_at(line, "min_p", &s->min_p, error);
  if (!code) code = number_at(line, "repetition_penalty", &s->repetition, error);
  if (!code) code = number_at(line, "presence_penalty", &s->presence, error);
  if (!code) code = number_at(line, "frequency_penalty", &s->frequency, error);
  if (!code) code = integer_at(line, "seed", &seed, error);
  s->seed = (uint64_t)seed;
  if (!code && seed < 0) code = error_set(error, PLAIT_BAD_INPUT, "seed is %lld; allowed: 0 or more", (long long)seed);
  if (!code) code = not_zero(line, "top_p", "above 0, to 1", error);
  if (!code) code = not_zero(line, "repetition_penalty", "above 0, to 100", error);
  return code;
}

static int submit(PromptFile *l, Item *item, json_t *line, Error *error) {
  Generate *g = l->g;
  RequestOptions o = generate_request(g);
  IdVector ids = {0};
  int64_t missed = 0;
  json_t *prompt = json_object_get(line, prompt_key(l));
  if (!(g->chats ? json_is_array(prompt) : json_is_string(prompt)))
    return error_set(error, PLAIT_BAD_INPUT, "it has no %s under the key %s", g->chats ? "list" : "text",
                     prompt_key(l));
  json_object_set(item->answer, prompt_key(l), prompt);
  if (json_object_get(line, "id")) json_object_set(item->answer, "id", json_object_get(line, "id"));
  int code = check_keys(l, line, error);
  if (!code) code = read_request(line, &o, error);
  if (!code) code = encode(l, line, &ids, &missed, error);
  o.prompt = ids.data;
  o.count = ids.count;
  if (!code) code = engine_submit(g->engine, &o, &item->request, error);
  if (!code) generate_stream(g, &ids, &item->stream);
  if (!code && missed) json_object_set_new(item->answer, "missed_bytes", json_integer(missed));
  int context = engine_options(g->engine)->context;
  if (!code && ids.count > context)
    json_object_set_new(item->answer, "unread_tokens", json_integer(ids.count - context));
  if (!code && o.logprobs >= 0) item->logprobs = json_array();
  vec_free(&ids);
  return code;
}

// Reads a line and asks for its answer; one that cannot be asked for is answered with the reason.
static int read_line(PromptFile *l, Error *error) {
  ssize_t bytes = getline(&l->line, &l->capacity, l->in);
  if (bytes < 0) return failed(l, l->g->prompts, "read", error);
  Error why = {0};
  json_t *line = NULL;
  vec_push(&l->items, (Item){.line = l->next++, .request = -1, .answer = json_object()});
  Item *item = &l->items.data[l->items.count - 1];
  json_object_set_new(item->answer, "line", json_integer(item->line + 1));
  int code = json_read(l->line, (size_t)bytes, "", &line, &why);
  if (code) { // the line of its sentence would always be 1
    why = (Error){0};
    error_set(&why, code, "%s", l->line[strspn(l->line, " \t\r\n")] ? "it is not valid JSON" : "it is empty");
  }
  if (!code && !json_is_object(line)) code = error_set(&why, PLAIT_BAD_INPUT, "it is not a JSON object");
  if (!code) code = submit(l, item, line, &why);
  json_decref(line);
  if (!code) return PLAIT_OK;
  item->request = -1;
  l->refused++;
  json_object_set_new(item->answer, "error", json_string(why.message));
  return PLAIT_OK;
}

// ---- answers

static Item *item_of(PromptFile *l, int64_t request) {
  for (int i = 0; i < l->items.count; i++)
    if (l->items.data[i].request == request) return &l->items.data[i];
  return NULL;
}

static void add_logprob(const PromptFile *l, Item *item, const EngineEvent *e) {
  json_t *top = json_object();
  for (int i = 0; i < e->top; i++) {
    char id[16];
    snprintf(id, sizeof id, "%d", e->top_ids[i]);
    json_object_set_new(top, id, json_real(e->top_logprobs[i]));
  }
  json_t *entry = json_pack("{s:i, s:f}", "id", e->id, "logprob", e->logprob);
  if (e->top) json_object_set(entry, "top", top);
  json_decref(top);
  json_array_append_new(item->logprobs, entry);
}

// Bytes that no tokenizer would have made a character of become U+FFFD.
static json_t *json_of_text(const ByteVector *text) {
  ByteVector valid = {0};
  utf8_append(&valid, text->data, (size_t)text->count);
  json_t *string = json_stringn(valid.data ? valid.data : "", (size_t)valid.count);
  vec_free(&valid);
  return string;
}

static void finish(PromptFile *l, Item *item, RequestEnd end) {
  tokenizer_stream_end(&item->stream, &item->text);
  if (end == REQUEST_BROKEN) {
    json_object_set_new(item->answer, "error",
                        json_string("the model's logits are not finite: its weights are broken"));
    l->refused++;
  } else {
    json_object_set_new(item->answer, "text", json_of_text(&item->text));
    json_object_set_new(item->answer, "tokens", json_integer(item->tokens));
    json_object_set_new(item->answer, "end", json_string(end_words[end]));
    if (item->logprobs) json_object_set(item->answer, "logprobs", item->logprobs);
  }
  item->request = -1;
}

static void read_events(PromptFile *l) {
  EngineEvent e;
  while (engine_poll(l->g->engine, &e)) {
    Item *item = item_of(l, e.request);
    if (!item) continue;
    if (e.id < 0) {
      finish(l, item, e.end);
      continue;
    }
    tokenizer_stream_push(&item->stream, e.id, &item->text);
    item->tokens++;
    if (item->logprobs) add_logprob(l, item, &e);
  }
}

static void free_item(Item *item) {
  json_decref(item->answer);
  json_decref(item->logprobs);
  vec_free(&item->text);
}

// Those at the front that are answered.
static int write_answers(PromptFile *l, Error *error) {
  int n = 0, code = PLAIT_OK;
  for (; n < l->items.count && l->items.data[n].request < 0 && !code; n++) {
    Item *item = &l->items.data[n];
    if (json_dumpf(item->answer, l->out, JSON_COMPACT) || fputc('\n', l->out) == EOF || fflush(l->out))
      code = failed(l, l->g->out_path, "written", error);
    else l->answered++;
    free_item(item);
  }
  if (!n) return code;
  l->items.count -= n;
  memmove(l->items.data, l->items.data + n, sizeof *l->items.data * (size_t)l->items.count);
  return code;
}

static void say_progress(PromptFile *l, bool last) {
  double now = clock_seconds();
  if (!last && now - l->said < 2) return;
  EngineTimes t = engine_times(l->g->engine);
  fprintf(stderr, "%s%lld of %lld prompts, %lld tokens, %.1f tokens/s%s", isatty(2) ? "\r" : "",
          (long long)l->answered, (long long)l->count, (long long)t.drawn_tokens,
          t.seconds > 0 ? (double)t.drawn_tokens / t.seconds : 0.0, isatty(2) && !last ? "  " : "\n");
  l->said = now;
}

// ---- files

// Reads a line of the prompts and one of the answers; the answer must be one to it.
static int check_answer(PromptFile *l, const json_t *answer, Error *error) {
  const char *path = l->g->out_path, *prompts = l->g->prompts;
  Error ignored = {0};
  json_t *line = NULL;
  ssize_t n = getline(&l->line, &l->capacity, l->in);
  if (n < 0)
    return error_set(error, PLAIT_BAD_INPUT, "%s has more answers than %s has prompts", path, prompts);
  const json_t *prompt = json_object_get(answer, prompt_key(l));
  if (prompt) json_read(l->line, (size_t)n, "", &line, &ignored);
  int same = !prompt || json_equal(json_object_get(line, prompt_key(l)), prompt);
  json_decref(line);
  if (same) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: line %lld answers another prompt than line %lld of %s has", path,
                   (long long)l->answered + 1, (long long)l->answered + 1, prompts);
}

static int no_answers(const PromptFile *l, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s: line %lld is not an answer to line %lld of a file of prompts; give --out another name",
                   l->g->out_path, (long long)l->answered + 1, (long long)l->answered + 1);
}

static int check_line(PromptFile *l, ssize_t bytes, Error *error) {
  Error ignored = {0};
  json_t *answer = NULL;
  json_read(l->line, (size_t)bytes, "", &answer, &ignored);
  int code = json_integer_value(json_object_get(answer, "line")) == l->answered + 1 ? check_answer(l, answer, error)
                                                                                 : no_answers(l, error);
  if (!code) l->answered++;
  if (!code && json_object_get(answer, "error")) l->refused++;
  json_decref(answer);
  return code;
}

// Where an earlier run stopped: its whole lines stay, and the beginning of another one goes.
static int resume(PromptFile *l, Error *error) {
  int64_t bytes = 0;
  int code = PLAIT_OK;
  ssize_t n;
  for (; !code && (n = getline(&l->line, &l->capacity, l->out)) > 0 && l->line[n - 1] == '\n'; bytes += n)
    code = check_line(l, n, error);
  char begin[40];
  size_t known = (size_t)snprintf(begin, sizeof begin, "{\"line\":%lld,", (long long)l->answered + 1);
  if (!code && n > 0 && strncmp(l->line, begin, (size_t)n < known ? (size_t)n : known) != 0)
    code = no_answers(l, error);
  clearerr(l->out);
  if (!code && (ftruncate(fileno(l->out), bytes) || fseeko(l->out, bytes, SEEK_SET)))
    code = failed(l, l->g->out_path, "written", error);
  l->next = l->answered;
  if (!code && l->answered)
    fprintf(stderr,
            "%lld of %lld prompts were answered before; their answers stay, also where model or options have changed\n",
            (long long)l->answered, (long long)l->count);
  return code;
}

// Both are read and written in pieces, and must be two files.
static int check_files(const PromptFile *l, Error *error) {
  const char *prompts = l->g->prompts, *out = l->g->out_path;
  struct stat in, to;
  if (stat(prompts, &in)) return failed(l, prompts, "read", error);
  if (!S_ISREG(in.st_mode)) return error_set(error, PLAIT_BAD_INPUT, "--prompts %s is not a file", prompts);
  if (stat(out, &to)) return PLAIT_OK;
  if (!S_ISREG(to.st_mode)) return error_set(error, PLAIT_BAD_INPUT, "--out %s is not a file", out);
  if (in.st_dev == to.st_dev && in.st_ino == to.st_ino)
    return error_set(error, PLAIT_BAD_INPUT, "--prompts and --out are the same file, %s", out);
  return PLAIT_OK;
}

static int open_files(PromptFile *l, Error *error) {
  Generate *g = l->g;
  int code = check_files(l, error);
  if (code) return code;
  if (!(l->in = fopen(g->prompts, "re"))) return failed(l, g->prompts, "read", error);
  while (getline(&l->line, &l->capacity, l->in) > 0) l->count++;
  if (!l->count) return error_set(error, PLAIT_BAD_INPUT, "--prompts %s has no prompts: it is empty", g->prompts);
  rewind(l->in);
  l->out = fopen(g->out_path, "r+e");
  if (!l->out && errno == ENOENT) l->is_new = (l->out = fopen(g->out_path, "w+e")) != NULL;
  if (!l->out) return failed(l, g->out_path, "written", error);
  if (flock(fileno(l->out), LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
    return error_set(error, PLAIT_BAD_INPUT, "another plait generate writes %s", g->out_path);
  return resume(l, error);
}

static int answer(PromptFile *l, Error *error) {
  Generate *g = l->g;
  const SchedulerOptions *o = engine_options(g->engine);
  int64_t ahead = 2 * o->requests * o->rows;
  int code = PLAIT_OK;
  while (!code && l->answered < l->count && !signals_stop()) {
    int open = 0;
    for (int i = 0; i < l->items.count; i++) open += l->items.data[i].request >= 0;
    for (; !code && open < ahead && l->items.count < MOST_ITEMS && l->next < l->count; open++)
      code = read_line(l, error);
    if (!code) code = engine_tick(g->engine, error);
    if (!code) {
      read_events(l);
      code = write_answers(l, error);
    }
    if (!code) say_progress(l, l->answered == l->count);
  }
  return code;
}

int generate_file_open(Generate *g, Error *error) {
  PromptFile *l = g->file = xcalloc(1, sizeof *l);
  l->g = g;
  return open_files(l, error);
}

int generate_file(Generate *g, Error *error) {
  PromptFile *l = g->file;
  l->said = clock_seconds();
  int code = answer(l, error);
  if (!code && fflush(l->out)) code = failed(l, g->out_path, "written", error);
  if (!code && l->answered < l->count)
    fprintf(stderr, "%lld of %lld prompts are answered; the same command continues\n", (long long)l->answered,
            (long long)l->count);
  if (!code && l->refused && l->answered == l->count)
    code = error_set(error, PLAIT_BAD_INPUT, "%lld of the prompts in %s have no answer; %s says why",
                     (long long)l->refused, g->prompts, g->out_path);
  return code;
}

void generate_file_close(Generate *g, int code) {
  PromptFile *l = g->file;
  struct stat is;
  if (!l) return;
  if (code && l->is_new && !fstat(fileno(l->out), &is) && !is.st_size) unlink(g->out_path);
  for (int i = 0; i < l->items.count; i++) free_item(&l->items.data[i]);
  vec_free(&l->items);
  free(l->line);
  if (l->in) fclose(l->in);
  if (l->out) fclose(l->out);
  free(l);
  g->file = NULL;
}
