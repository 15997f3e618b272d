// Texts to and from etcd's JSON gateway.
#include "elastic/store_etcd_parse.h"
#include "base/fault.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Addresses -----------------------------------------------------------------------------------------------------------

static const char clear[] = "etcd://", encrypted[] = "etcds://";

static bool begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }
bool etcd_is_url(const char *text) { return begins(text, clear) || begins(text, encrypted); }

static const char *hosts_of(const char *text) {
  const char *at = strrchr(text, '@');
  return at ? at + 1 : strstr(text, "://") + 3;
}

void etcd_url_describe(const char *text, char *out, size_t size) {
  if (!etcd_is_url(text)) snprintf(out, size, "%s", text);
  else snprintf(out, size, "%s%s", begins(text, clear) ? clear : encrypted, hosts_of(text));
}

// %40 is @. false: a broken one, or it is too long.
static bool decode(const char *text, size_t length, char out[ETCD_NAME]) {
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    if (n + 1 >= ETCD_NAME) return false;
    if (c == '%') {
      char digits[3] = {i + 1 < length ? text[i + 1] : 0, i + 2 < length ? text[i + 2] : 0, 0};
      if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1])) return false;
      c = (char)strtol(digits, NULL, 16);
      if (!c) return false;
      i += 2;
    }
    out[n++] = c;
  }
  out[n] = 0;
  return true;
}

static bool take_user(const char *text, size_t length, EtcdUrl *url) {
  const char *colon = memchr(text, ':', length);
  size_t name = colon ? (size_t)(colon - text) : length;
  return name && decode(text, name, url->user) &&
         (!colon || decode(colon + 1, length - name - 1, url->password));
}

static bool take_endpoint(const char *text, size_t length, EtcdUrl *url) {
  if (url->count == ETCD_ENDPOINTS) return false;
  Endpoint *e = &url->endpoint[url->count];
  if (!endpoint_parse(text, length, false, e)) return false;
  if (!e->port) e->port = ETCD_PORT;
  url->count++;
  return true;
}

int etcd_url_parse(const char *text, EtcdUrl *url, Error *error) {
  *url = (EtcdUrl){.tls = begins(text, encrypted)};
  if (!etcd_is_url(text)) return error_set(error, PLAIT_BAD_INPUT, "--rdzv: not etcd://HOST:2379");
  const char *user = strstr(text, "://") + 3, *list = hosts_of(text);
  if (list > user && !take_user(user, (size_t)(list - 1 - user), url))
    return error_set(error, PLAIT_BAD_INPUT,
                     "--rdzv: what stands before the @ is not USER:PASSWORD of less than %d bytes, where %%40 is a @",
                     ETCD_NAME);
  for (;; list++) {
    size_t length = strcspn(list, ",");
    if (!take_endpoint(list, length, url))
      return error_set(error, PLAIT_BAD_INPUT,
                       "--rdzv: \"%.*s\" is not HOST:PORT, as in etcd://hostA:2379,hostB:2379 (at most %d)",
                       (int)(length < 100 ? length : 100), list, ETCD_ENDPOINTS);
    list += length;
    if (!*list) return PLAIT_OK;
  }
}

char *etcd_prefix(const char *id) {
  char *text = xcalloc(3 * strlen(id) + 8, 1), *out = text + sprintf(text, "plait/");
  for (; *id; id++) {
    if (*id == '/' || *id == '%') out += sprintf(out, "%%%02X", (unsigned)*id);
    else *out++ = *id;
  }
  *out = '/';
  return text;
}

// Base64 --------------------------------------------------------------------------------------------------------------

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *etcd_base64(const void *data, size_t bytes) {
  const uint8_t *in = data;
  char *text = xcalloc((bytes + 2) / 3 * 4 + 1, 1), *out = text;
  for (size_t i = 0; i < bytes; i += 3) {
    size_t left = bytes - i;
    uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
    for (int k = 0; k < 4; k++) *out++ = (size_t)k > left ? '=' : digits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

void *etcd_unbase64(const char *text, size_t length, size_t *bytes) {
  if (length % 4) return NULL;
  uint8_t *data = xcalloc(length / 4 * 3 + 1, 1), *out = data;
  size_t padding = length && text[length - 1] == '=' ? 1 + (text[length - 2] == '=') : 0;
  for (size_t i = 0; i < length; i += 4) {
    uint32_t three = 0;
    for (size_t k = i; k < i + 4; k++) {
      const char *digit = k < length - padding && text[k] ? strchr(digits, text[k]) : NULL;
      if (!digit && k < length - padding) return free(data), NULL;
      three = three << 6 | (digit ? (uint32_t)(digit - digits) : 0);
    }
    *out++ = (uint8_t)(three >> 16), *out++ = (uint8_t)(three >> 8), *out++ = (uint8_t)three;
  }
  *bytes = length / 4 * 3 - padding;
  data[*bytes] = 0;
  return data;
}

// Requests ------------------------------------------------------------------------------------------------------------

static json_t *key_text(const char *key) {
  char *text = etcd_base64(key, strlen(key));
  json_t *json = json_string(text);
  free(text);
  return json;
}

static json_t *number_text(uint64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, number);
  return json_string(text);
}

static char *printed(json_t *object) {
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  CHECK(text, "no memory for a request");
  json_decref(object);
  return text;
}

char *etcd_ask_get(const char *key) { return printed(json_pack("{s:o}", "key", key_text(key))); }

char *etcd_ask_leased(const char *prefix) {
  char *end = xstrdup(prefix);
  end[strlen(end) - 1]++;
  json_t *object = json_pack("{s:o, s:o, s:b}", "key", key_text(prefix), "range_end", key_text(end), "keys_only", 1);
  free(end);
  return printed(object);
}

char *etcd_ask_set(const char *key, uint64_t version, const void *data, size_t bytes, uint64_t lease) {
  char *value = etcd_base64(data, bytes);
  json_t *put = json_pack("{s:o, s:s}", "key", key_text(key), "value", value);
  if (FAULT(etcd_forgets_leases, lease, 0)) json_object_set_new(put, "lease", number_text(lease));
  json_t *compare = json_pack("[{s:o, s:s, s:s, s:o}]", "key", key_text(key), "target", "MOD", "result",
                              FAULT(etcd_sets_any_version, "EQUAL", "GREATER"), "mod_revision",
                              number_text(version));
  free(value);
  return printed(json_pack("{s:o, s:[{s:o}], s:[{s:{s:o}}]}", "compare", compare, "success", "request_put", put,
                           "failure", "request_range", "key", key_text(key)));
}

char *etcd_ask_grant(double seconds) {
  return printed(json_pack("{s:o}", "TTL", number_text((uint64_t)fmin(fmax(1, ceil(seconds)), 1e8))));
}

char *etcd_ask_lease(uint64_t lease) { return printed(json_pack("{s:o}", "ID", number_text(lease))); }

char *etcd_ask_token(const char *user, const char *password) {
  json_t *object = json_pack("{s:s, s:s}", "name", user, "password", password);
  return object ? printed(object) : xstrdup("{}"); // bytes that are not UTF-8: nobody's password
}

char *etcd_ask_watch(const char *key, uint64_t revision) {
  return printed(json_pack("{s:{s:o, s:o}}", "create_request", "key", key_text(key), "start_revision",
                           number_text(revision)));
}

// Answers -------------------------------------------------------------------------------------------------------------

// A missing number is 0, as in protocol buffers. false: it is there, and none.
static bool number_of(const json_t *object, const char *name, uint64_t *number) {
  const json_t *value = json_object_get(object, name);
  *number = 0;
  if (!value) return true;
  if (json_is_integer(value)) return *number = (uint64_t)json_integer_value(value), json_integer_value(value) >= 0;
  const char *text = json_string_value(value);
  if (!text || !isdigit((unsigned char)*text) || strlen(text) > 20) return false;
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return !*end && !errno;
}

static json_t *object_of(const char *text, size_t bytes) {
  json_t *root = json_loadb(text, bytes, 0, NULL);
  if (!json_is_object(root)) json_decref(root), root = NULL;
  return root;
}

// Of a range of one key.
static bool take_range(const json_t *range, StoreValue *now) {
  const json_t *list = json_object_get(range, "kvs"), *kv = json_array_get(list, 0), *value;
  if (!json_is_object(range) || (list && !json_is_array(list))) return false;
  if (!kv) return *now = (StoreValue){0}, true;
  if (!json_is_object(kv) || !number_of(kv, "mod_revision", &now->version) || !now->version) return false;
  value = json_object_get(kv, "value"); // an empty one is left out
  if (value && !json_is_string(value)) return false;
  now->data = etcd_unbase64(value ? json_string_value(value) : "", json_string_length(value), &now->bytes);
  return now->data && now->bytes <= STORE_VALUE;
}

int etcd_take_get(const char *text, size_t bytes, StoreValue *now, uint64_t *revision) {
  json_t *root = object_of(text, bytes);
  const json_t *header = json_object_get(root, "header");
  *now = (StoreValue){0};
  int good = json_is_object(header) && number_of(header, "revision", revision) && take_range(root, now);
  if (!good) store_value_free(now);
  json_decref(root);
  return good;
}

int etcd_take_set(const char *text, size_t bytes, bool *done, StoreValue *now) {
  json_t *root = object_of(text, bytes);
  const json_t *header = json_object_get(root, "header"), *responses = json_object_get(root, "responses");
  *now = (StoreValue){0};
  *done = json_is_true(json_object_get(root, "succeeded"));
  int good = json_is_object(header);
  if (good && *done) good = number_of(header, "revision", &now->version) && now->version;
  else if (good) good = take_range(json_object_get(json_array_get(responses, 0), "response_range"), now);
  if (!good) store_value_free(now);
  json_decref(root);
  return good;
}

int etcd_take_lease(const char *text, size_t bytes, uint64_t *lease, double *seconds) {
  json_t *root = object_of(text, bytes);
  const json_t *result = json_object_get(root, "result"), *o = result ? result : root; // of a keepalive, of a grant
  uint64_t left = 0;
  int good = json_is_object(o) && number_of(o, "ID", lease) && *lease && number_of(o, "TTL", &left);
  *seconds = (double)left;
  json_decref(root);
  return good;
}

int etcd_take_token(const char *text, size_t bytes, char token[ETCD_NAME]) {
  json_t *root = object_of(text, bytes);
  const char *given = json_string_value(json_object_get(root, "token"));
  bool good = given && *given && strlen(given) < ETCD_NAME;
  for (const char *c = given; good && *c; c++) good = isgraph((unsigned char)*c); // it becomes a line of a header
  if (good) snprintf(token, ETCD_NAME, "%s", given);
  json_decref(root);
  return good;
}

int etcd_take_leased(const char *text, size_t bytes, uint64_t one, uint64_t other, bool *others) {
  json_t *root = object_of(text, bytes), *kv;
  const json_t *list = json_object_get(root, "kvs");
  int good = root && (!list || json_is_array(list));
  size_t i;
  *others = false;
  json_array_foreach(list, i, kv) {
    uint64_t lease;
    good = good && number_of(kv, "lease", &lease);
    *others |= good && lease && lease != one && lease != other;
  }
  json_decref(root);
  return good;
}

int etcd_take_watch(const char *text, size_t bytes, bool *changed, bool *over) {
  json_t *root = object_of(text, bytes);
  const json_t *result = json_object_get(root, "result"), *events = json_object_get(result, "events");
  int good = root != NULL;
  *changed = json_array_size(events) > 0;
  *over = !json_is_object(result) || json_is_true(json_object_get(result, "canceled"));
  json_decref(root);
  return good;
}

static void make_printable(const char *text, char *out, size_t size) {
  snprintf(out, size, "%s", text);
  for (char *c = out; *c; c++)
    if (!isprint((unsigned char)*c)) *c = '?';
}

EtcdTrouble etcd_take_trouble(const char *text, size_t bytes, char *sentence, size_t size) {
  enum { INVALID = 3, TOO_LATE = 4, MISSING = 5, ABORTED = 10, UNAVAILABLE = 14, UNAUTHENTICATED = 16 }; // gRPC's
  json_t *root = object_of(text, bytes);
  const json_t *inner = json_object_get(root, "error"), *o = json_is_object(inner) ? inner : root;
  const char *words = json_string_value(json_object_get(o, "message"));
  uint64_t code = 0;
  if (!words) words = json_string_value(inner);
  EtcdTrouble trouble = ETCD_REFUSED;
  if (!words || !number_of(o, o == inner ? "grpc_code" : "code", &code)) trouble = ETCD_STRANGE;
  else if (code == UNAVAILABLE || code == TOO_LATE || code == ABORTED || code == 2) trouble = ETCD_BUSY;
  else if (code == UNAUTHENTICATED || strstr(words, "revision in header is old")) trouble = ETCD_STALE;
  else if (code == MISSING && strstr(words, "lease not found")) trouble = ETCD_LEASE_GONE;
  else if (strstr(words, "authentication is not enabled")) trouble = ETCD_NO_AUTH;
  make_printable(words ? words : "", sentence, size);
  json_decref(root);
  return trouble;
}
