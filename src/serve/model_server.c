// Endpoints: from a request of HTTP to its answer.
#include "serve/model_server.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "serve/access.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/page.h"
#include "serve/reply.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WAIT = 1, QUIET = 10 }; // seconds: of one wait, and until a stream says that it still lives

struct ModelServer {
  ServeOptions options;
  const ServedModel *model;
  Access access;
  TicketQueue queue;
  Metrics metrics;
  Http *http;
  pthread_mutex_t mutex;
  pthread_cond_t answered;
  int answering; // requests whose answers are not sent yet
};

static const HttpLimits limits = {.connections = 1024,
                                  .body = 8 << 20,
                                  .bodies = 256 << 20,
                                  .header_seconds = 10,
                                  .idle_seconds = 60,
                                  .body_seconds = 60,
                                  .read_seconds = 30};

typedef struct ServerEndpoint {
  const char *path, *method;
  bool needs_key;
  void (*answer)(ModelServer *, HttpExchange *);
} ServerEndpoint;

#define ENDPOINT(path, method, who, function) static void function(ModelServer *s, HttpExchange *x);
#include "serve/endpoints.def"
#undef ENDPOINT

static const ServerEndpoint endpoints[] = {
#define OPEN false
#define KEY true
#define ENDPOINT(path, method, who, function) {path, method, who, function},
#include "serve/endpoints.def"
#undef ENDPOINT
};
enum { ENDPOINTS = sizeof endpoints / sizeof *endpoints };

static bool is_at(const ServerEndpoint *e, const char *path) {
  size_t bytes = strlen(e->path);
  bool is_prefix = bytes > 1 && e->path[bytes - 1] == '/';
  return is_prefix ? !strncmp(e->path, path, bytes) && path[bytes] : !strcmp(e->path, path);
}

static int find_endpoint(const char *path) {
  int i = 0;
  while (i < ENDPOINTS && !is_at(&endpoints[i], path)) i++;
  return i;
}

// ---- answers

static void reply_text(ModelServer *s, HttpExchange *x, int status, const char *type, const char *text, size_t bytes) {
  const char *headers[9] = {NULL};
  int n = 0;
  if (s->options.allow_origin) {
    headers[n++] = "Access-Control-Allow-Origin", headers[n++] = s->options.allow_origin;
    headers[n++] = "Vary", headers[n++] = "Origin";
  }
  if (status == 429 || status == 503) headers[n++] = "Retry-After", headers[n++] = status == 429 ? "1" : "5";
  if (status == 405) headers[n++] = "Allow", headers[n++] = endpoints[find_endpoint(x->path)].method;
  if (status == 401) headers[n++] = "WWW-Authenticate", headers[n++] = "Bearer";
  http_reply(x, status, type, text, bytes, headers);
}

static void reply_refusal(ModelServer *s, HttpExchange *x, const Refusal *f) {
  char *text = refusal_print(f);
  reply_text(s, x, f->status, "application/json", text, strlen(text));
  free(text);
}

static void reply_tree(ModelServer *s, HttpExchange *x, int status, json_t *tree) {
  char *text = json_dumps(tree, JSON_COMPACT);
  CHECK(text);
  reply_text(s, x, status, "application/json", text, strlen(text));
  free(text);
  json_decref(tree);
}

static int not_ready(ModelServer *s, Refusal *f) {
  static const char *const sentence[] = {[QUEUE_LOADS] = "the model is being loaded",
                                         [QUEUE_IS_READY] = "",
                                         [QUEUE_DRAINS] = "the server stops",
                                         [QUEUE_HAS_FAILED] = "the server has failed and stops"};
  QueueState state = ticket_queue_state(&s->queue);
  return refusal_set(f, 503, "not_ready", NULL, "%s", state == QUEUE_IS_READY ? "the server is busy" : sentence[state]);
}

// ---- text

typedef struct Answer {
  ModelServer *server;
  Call call;
  Reply reply;
  int socket;
  ByteVector out; // events that are not sent yet
  int sent;       // of them
  double said;    // when something was sent last
  double since;   // when the first token came that the events tell; 0: none
  bool over;
} Answer;

static void answer_free(Answer *a) {
  if (a->reply.choice && !reply_is_whole(&a->reply)) ticket_queue_cancel(&a->server->queue, a->call.ticket, -1);
  reply_free(&a->reply);
  call_free(&a->call);
  vec_free(&a->out);
  free(a);
}

static void answer_over(void *answer) { answer_free(answer); }

static int enqueue(Answer *a, Refusal *f) {
  ModelServer *s = a->server;
  switch (ticket_queue_add(&s->queue, a->call.ticket)) {
  case QUEUE_TAKES_IT: break;
  case QUEUE_IS_NOT_READY: return not_ready(s, f);
  case QUEUE_IS_FULL:
    if (a->call.ticket->count > s->queue.most)
      return refusal_set(f, 400, "invalid_value", "n", "this server takes at most %d choices at a time (--queue)",
                         s->queue.most);
    return refusal_set(f, 429, "queue_full", NULL, "%d choices wait or run; try again", s->queue.most);
  }
  reply_begin(&a->reply, &a->call, s->model, &s->queue);
  return 0;
}

static HttpWait wait_for_mail(const Answer *a) {
  const Ticket *t = a->call.ticket;
  return http_wait(a->socket, t->wake, t->wake < 0 ? 0.01 : WAIT);
}

static int update(Answer *a, Refusal *f) {
  bool first = !a->reply.first;
  int code = reply_update(&a->reply, f);
  if (first && a->reply.first) metrics_first_token(&a->server->metrics, a->reply.first - a->reply.asked);
  return code;
}

// *left: the client has.
static int wait_for_whole(Answer *a, bool *left, Refusal *f) {
  int code = 0;
  while (!code && !reply_is_whole(&a->reply)) {
    if (wait_for_mail(a) == HTTP_CLIENT_LEFT) *left = true;
    if (*left) return refusal_set(f, 499, NULL, NULL, "the client has left");
    code = update(a, f);
  }
  return code;
}

// Until the engine has taken the request, or not: what it refuses has a status of its own.
static int wait_for_begin(Answer *a, bool *left, Refusal *f) {
  Ticket *t = a->call.ticket;
  for (;;) {
    pthread_mutex_lock(&t->mutex);
    bool waits = t->state == TICKET_WAITS;
    pthread_mutex_unlock(&t->mutex);
    if (!waits) return update(a, f);
    if (wait_for_mail(a) == HTTP_CLIENT_LEFT) *left = true;
    if (*left) return refusal_set(f, 499, NULL, NULL, "the client has left");
  }
}

static void fill_out(Answer *a) {
  Refusal f;
  a->sent = a->out.count = 0;
  HttpWait wait = wait_for_mail(a);
  if (wait == HTTP_CLIENT_LEFT) return;
  if (update(a, &f)) {
    reply_events(&a->reply, &a->out);
    reply_refusal_event(&f, &a->out);
    a->over = true;
  } else {
    reply_events(&a->reply, &a->out);
    a->over = reply_is_whole(&a->reply);
  }
  if (a->reply.mail.events.count && a->out.count) a->since = a->reply.mail.since;
  static const char lives[] = ": waiting\n\n"; // a comment: clients that stop after silence do not
  if (!a->out.count && clock_seconds() - a->said > QUIET) bytes_append(&a->out, lives, sizeof lives - 1);
}

static ssize_t read_answer(void *answer, char *out, size_t room) {
  Answer *a = answer;
  while (a->sent == a->out.count) {
    if (a->over) return HTTP_END;
    if (http_wait(a->socket, -1, -1e-3) == HTTP_CLIENT_LEFT) return HTTP_LEFT;
    fill_out(a);
  }
  size_t n = (size_t)(a->out.count - a->sent);
  if (n > room) n = room;
  memcpy(out, a->out.data + a->sent, n);
  a->sent += (int)n;
  a->said = clock_seconds();
  if (a->since > 0) metrics_delivery(&a->server->metrics, a->said - a->since);
  a->since = 0;
  return (ssize_t)n;
}

static void stream_answer(Answer *a, HttpExchange *x) {
  ModelServer *s = a->server;
  const char *headers[7] = {"Cache-Control", "no-cache", NULL};
  if (s->options.allow_origin) {
    headers[2] = "Access-Control-Allow-Origin", headers[3] = s->options.allow_origin;
    headers[4] = "Vary", headers[5] = "Origin";
  }
  a->said = clock_seconds();
  reply_events(&a->reply, &a->out);
  a->over = reply_is_whole(&a->reply);
  http_stream(x, 200, "text/event-stream", &(HttpStream){a, read_answer, answer_over}, headers);
}

static void answer_text(ModelServer *s, HttpExchange *x, bool chat) {
  Refusal f = {0};
  bool left = false;
  Answer *a = xcalloc(1, sizeof *a);
  *a = (Answer){.server = s, .socket = x->socket};
  int code = call_read(&a->call, s->model, x->body, x->bytes, chat, &f);
  metrics_ignored(&s->metrics, a->call.ignored);
  if (!code) code = enqueue(a, &f);
  if (!code) code = a->call.stream ? wait_for_begin(a, &left, &f) : wait_for_whole(a, &left, &f);
  if (!code && a->call.stream) {
    stream_answer(a, x);
    return;
  }
  json_t *tree = code ? NULL : reply_json(&a->reply, &f);
  if (tree) reply_tree(s, x, 200, tree);
  else reply_refusal(s, x, &f);
  answer_free(a);
}

static void answer_completion(ModelServer *s, HttpExchange *x) { answer_text(s, x, false); }
static void answer_chat(ModelServer *s, HttpExchange *x) { answer_text(s, x, true); }

// ---- the other endpoints

static int read_object(const HttpExchange *x, json_t **object, Refusal *f) {
  Error error = {0};
  *object = NULL;
  if (json_read(x->body ? x->body : "", x->bytes, "the request", object, &error))
    return refusal_set(f, 400, "invalid_json", NULL, "%s", error.message);
  return json_is_object(*object) ? 0 : refusal_set(f, 400, "invalid_json", NULL, "the request is not a JSON object");
}

static int tokenize(ModelServer *s, const json_t *request, IdVector *ids, Refusal *f) {
  const json_t *text = json_object_get(request, "prompt"), *list = json_object_get(request, "messages");
  bool special = true, prefill;
  int64_t ignored = 0;
  Error error = {0};
  if (!text) text = json_object_get(request, "content");
  int code = field_flag(request, "add_special_tokens", &special, f);
  if (code) return code;
  if (list) {
    json_t *messages = call_messages(list, &prefill, &ignored, f);
    if (!messages) return -1;
    const json_t *tools, *kwargs = json_object_get(request, "chat_template_kwargs");
    code = call_tools(request, s->model, &tools, f);
    const ChatPrompt chat = {
        .messages = messages, .tools = tools, .kwargs = kwargs, .answer = !prefill, .prefill = prefill};
    if (!code) code = call_encode_chat(s->model, &chat, ids, f);
    json_decref(messages);
    return code;
  }
  if (!json_is_string(text))
    return refusal_set(f, 400, text ? "invalid_value" : "missing_field", "prompt",
                       "prompt must be a text, or messages a list");
  if (special && json_string_length(text)) return call_encode_text(s->model, text, ids, f);
  code = tokenizer_encode(s->model->tokenizer, json_string_value(text), json_string_length(text), 0, ids, &error);
  return code ? refusal_set(f, 400, "invalid_value", "prompt", "%s", error.message) : 0;
}

static void answer_tokenize(ModelServer *s, HttpExchange *x) {
  Refusal f = {0};
  json_t *request;
  IdVector ids = {0};
  int code = read_object(x, &request, &f);
  if (!code) code = tokenize(s, request, &ids, &f);
  if (code) {
    reply_refusal(s, x, &f);
  } else {
    json_t *list = json_array();
    for (int i = 0; i < ids.count; i++) json_array_append_new(list, json_integer(ids.data[i]));
    reply_tree(s, x, 200, json_pack("{s:i, s:I, s:o}", "count", ids.count, "max_model_len",
                                    (json_int_t)s->model->context, "tokens", list));
  }
  vec_free(&ids);
  json_decref(request);
}

static int detokenize(ModelServer *s, const json_t *request, ByteVector *text, Refusal *f) {
  const json_t *list = json_object_get(request, "tokens"), *item;
  size_t i;
  IdVector ids = {0};
  Error error = {0};
  if (!json_is_array(list))
    return refusal_set(f, 400, list ? "invalid_value" : "missing_field", "tokens",
                       "tokens must be a list of token ids");
  json_array_foreach(list, i, item) {
    int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
    vec_push(&ids, id < 0 || id > INT32_MAX ? -1 : (int32_t)id);
  }
  int code = tokenizer_decode(s->model->tokenizer, ids.data, ids.count, 0, text, &error);
  vec_free(&ids);
  return code ? refusal_set(f, 400, "invalid_value", "tokens", "%s", error.message) : 0;
}

static void answer_detokenize(ModelServer *s, HttpExchange *x) {
  Refusal f = {0};
  json_t *request;
  ByteVector text = {0}, valid = {0};
  int code = read_object(x, &request, &f);
  if (!code) code = detokenize(s, request, &text, &f);
  if (code) {
    reply_refusal(s, x, &f);
  } else {
    utf8_append(&valid, text.data ? text.data : "", (size_t)text.count);
    json_t *string = json_stringn(valid.data ? valid.data : "", (size_t)valid.count);
    reply_tree(s, x, 200, json_pack("{s:O, s:o}", "prompt", string, "content", string));
  }
  vec_free(&text);
  vec_free(&valid);
  json_decref(request);
}

static json_t *describe_model(const ServedModel *m) {
  return json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", m->name, "object", "model", "created", (json_int_t)m->created,
                   "owned_by", "plait", "max_model_len", (json_int_t)m->context);
}

static void answer_models(ModelServer *s, HttpExchange *x) {
  reply_tree(s, x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", describe_model(s->model)));
}

static void answer_model(ModelServer *s, HttpExchange *x) {
  Refusal f;
  if (!served_model_check(s->model, x->path + strlen("/v1/models/"), &f))
    reply_tree(s, x, 200, describe_model(s->model));
  else reply_refusal(s, x, &f);
}

static void answer_health(ModelServer *s, HttpExchange *x) {
  static const char *const word[] = {"loading", "ready", "stopping", "failed"};
  QueueState state = ticket_queue_state(&s->queue);
  bool ready = state == QUEUE_IS_READY;
  reply_tree(s, x, ready ? 200 : 503, json_pack("{s:s, s:b, s:b}", "status", word[state], "live", 1, "ready", ready));
}

static void answer_page(ModelServer *s, HttpExchange *x) {
  static const char *const headers[] = {
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
      "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
      "X-Content-Type-Options", "nosniff", "Referrer-Policy", "no-referrer", NULL};
  http_reply(x, 200, "text/html; charset=utf-8", serve_page, strlen(serve_page), headers);
}

// ---- who gets what

static void answer_metrics(ModelServer *s, HttpExchange *x) {
  const char *names[ENDPOINTS + 1];
  ByteVector out = {0};
  for (int i = 0; i < ENDPOINTS; i++) names[i] = endpoints[i].path;
  names[ENDPOINTS] = "other";
  metrics_print(&s->metrics, &s->queue, names, &out);
  reply_text(s, x, 200, "text/plain; version=0.0.4", out.data, (size_t)out.count);
  vec_free(&out);
}

static bool is_method(const ServerEndpoint *e, const char *method) {
  return !strcmp(e->method, method) || (!strcmp(e->method, "GET") && !strcmp(method, "HEAD"));
}

// Refuses a request by its headers.
static int check(ModelServer *s, const HttpExchange *x, Refusal *f) {
  int i = find_endpoint(x->path);
  if (x->headers_too_large)
    return refusal_set(f, 431, "headers_too_large", NULL, "the headers of a request have at most %d bytes",
                       HTTP_HEADERS);
  int code = access_check(&s->access, x, i == ENDPOINTS || endpoints[i].needs_key, f);
  if (code) return code;
  if (i == ENDPOINTS) return refusal_set(f, 404, "not_found", NULL, "there is no %.100s here", x->path);
  if (!is_method(&endpoints[i], x->method))
    return refusal_set(f, 405, "method_not_allowed", NULL, "%s takes %s", endpoints[i].path, endpoints[i].method);
  if (x->too_large)
    return refusal_set(f, 413, "body_too_large", NULL, "a request has at most %zu bytes", limits.body);
  if (x->too_busy) return refusal_set(f, 503, "busy", NULL, "too much is being sent at a time; try again");
  return 0;
}

static bool wants(void *server, const HttpExchange *x) {
  Refusal f;
  ModelServer *s = server;
  pthread_mutex_lock(&s->mutex);
  s->answering++;
  pthread_mutex_unlock(&s->mutex);
  return !check(s, x, &f);
}

// The question of a browser before it lets a page of another site ask.
static bool is_preflight(ModelServer *s, const HttpExchange *x) {
  return s->options.allow_origin && !strcmp(x->method, "OPTIONS");
}

static void reply_preflight(ModelServer *s, HttpExchange *x) {
  const char *headers[] = {"Access-Control-Allow-Origin", s->options.allow_origin, "Access-Control-Allow-Methods",
                           "GET, POST", "Access-Control-Allow-Headers", "Authorization, Content-Type", NULL};
  http_reply(x, 204, "text/plain", "", 0, headers);
}

static void answer(void *server, HttpExchange *x) {
  ModelServer *s = server;
  Refusal f = {0};
  if (is_preflight(s, x)) reply_preflight(s, x);
  else if (check(s, x, &f)) reply_refusal(s, x, &f);
  else endpoints[find_endpoint(x->path)].answer(s, x);
}

static void over(void *server, const HttpExchange *x) {
  ModelServer *s = server;
  if (x->status) metrics_answered(&s->metrics, find_endpoint(x->path), x->status);
  pthread_mutex_lock(&s->mutex);
  s->answering--;
  pthread_cond_broadcast(&s->answered);
  pthread_mutex_unlock(&s->mutex);
}

// ---- open and close

int model_server_open(ModelServer **server, const ServeOptions *options, const ServedModel *model, Error *error) {
  ModelServer *s = *server = xcalloc(1, sizeof *s);
  s->options = *options;
  s->model = model;
  ticket_queue_create(&s->queue, options->most);
  metrics_create(&s->metrics);
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->answered, NULL);
  int code = access_open(&s->access, options->host, options->key_file, options->allow_origin, error);
  const HttpHandler handler = {s, wants, answer, over};
  if (!code) code = http_open(&s->http, &(HttpPlace){options->host, options->port}, &limits, &handler, error);
  if (!code) return PLAIT_OK;
  model_server_close(s);
  *server = NULL;
  return code;
}

void model_server_ready(ModelServer *s) { ticket_queue_set_state(&s->queue, QUEUE_IS_READY); }
TicketQueue *model_server_queue(ModelServer *s) { return &s->queue; }
int model_server_port(const ModelServer *s) { return http_port(s->http); }

void model_server_flush(ModelServer *s, double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)seconds;
  pthread_mutex_lock(&s->mutex);
  while (s->answering > 0 && !pthread_cond_timedwait(&s->answered, &s->mutex, &until)) {}
  pthread_mutex_unlock(&s->mutex);
}

void model_server_close(ModelServer *s) {
  if (!s) return;
  http_close(s->http);
  access_close(&s->access);
  ticket_queue_destroy(&s->queue);
  metrics_destroy(&s->metrics);
  pthread_cond_destroy(&s->answered);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}
