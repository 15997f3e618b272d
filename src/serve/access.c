// Keys in constant time; the origins of pages.
#include "serve/access.h"
#include "base/endpoint.h"
#include "base/fault.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_KEYS = 1024, MOST_KEY = 512 };

bool access_is_local(const char *host) {
  struct in_addr address; // 127.0.0.1.example.org is a name of somebody else's
  return !strcasecmp(host, "localhost") || !strcmp(host, "::1") ||
         (!strncmp(host, "127.", 4) && inet_pton(AF_INET, host, &address) == 1);
}

static int read_keys(Access *a, const char *path, Error *error) {
  char line[MOST_KEY + 2];
  FILE *f = fopen(path, "re");
  if (!f) return error_set(error, PLAIT_BAD_INPUT, "--api-key-file %s cannot be read: %s", path, strerror(errno));
  while (fgets(line, sizeof line, f) && a->keys.count < MOST_KEYS) {
    line[strcspn(line, "\r\n")] = 0;
    if (strlen(line) > MOST_KEY - 1) {
      fclose(f);
      return error_set(error, PLAIT_BAD_INPUT, "--api-key-file %s has a line of more than %d bytes", path,
                       MOST_KEY - 1);
    }
    if (line[strspn(line, " \t")]) vec_push(&a->keys, xstrdup(line));
  }
  fclose(f);
  if (!a->keys.count) return error_set(error, PLAIT_BAD_INPUT, "--api-key-file %s holds no key", path);
  return PLAIT_OK;
}

// As browsers write it: a scheme and a host, perhaps with a port, and nothing after them.
static bool is_origin(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.";
  size_t scheme = strspn(text, letters);
  const char *host = text + scheme + 3;
  Endpoint place;
  if (!scheme || strncmp(text + scheme, "://", 3) != 0 || strpbrk(host, "/?#@ ")) return false;
  return endpoint_parse(host, strlen(host), false, &place);
}

int access_open(Access *a, const char *host, const char *key_file, const char *allow_origin, Error *error) {
  *a = (Access){.allow_origin = allow_origin, .local = access_is_local(host)};
  if (allow_origin && strcmp(allow_origin, "*") != 0 && !is_origin(allow_origin))
    return error_set(error, PLAIT_BAD_INPUT,
                     "--allow-origin %.200s is not an origin: give * or a scheme and a host, as https://example.org",
                     allow_origin);
  return key_file ? read_keys(a, key_file, error) : PLAIT_OK;
}

void access_close(Access *a) {
  for (int i = 0; i < a->keys.count; i++) free(a->keys.data[i]);
  vec_free(&a->keys);
}

// Looks at as many bytes whatever they are, and at all keys.
static bool is_key(const Access *a, const char *given) {
  char padded[MOST_KEY] = {0};
  size_t bytes = strlen(given);
  unsigned found = 0;
  if (bytes >= MOST_KEY) return false;
  memcpy(padded, given, bytes);
  for (int i = 0; i < a->keys.count; i++) {
    char key[MOST_KEY] = {0};
    volatile unsigned char differ = 0;
    memcpy(key, a->keys.data[i], strlen(a->keys.data[i]));
    for (int k = 0; k < MOST_KEY; k++) differ |= (unsigned char)(key[k] ^ padded[k]);
    found |= differ == 0;
  }
  return FAULT(any_key_is_right, found, 1);
}

static int check_key(const Access *a, const HttpExchange *x, Refusal *f) {
  const char *given = http_header(x, "Authorization");
  if (!a->keys.count) return 0;
  if (!given || strncasecmp(given, "Bearer ", 7) != 0)
    return refusal_set(f, 401, "invalid_api_key", NULL, "a key is needed: Authorization: Bearer KEY");
  return is_key(a, given + 7) ? 0 : refusal_set(f, 401, "invalid_api_key", NULL, "this key is not right");
}

// At an address of this machine a browser asks by such a name, but for one that somebody else lets point here, or that
// --allow-origin says.
static int check_host(const Access *a, const HttpExchange *x, Refusal *f) {
  const char *host = http_header(x, "Host"), *at = a->allow_origin ? strstr(a->allow_origin, "://") : NULL;
  Endpoint to;
  if (!a->local || !host || (endpoint_parse(host, strlen(host), false, &to) && access_is_local(to.host))) return 0;
  if (a->allow_origin && (!strcmp(a->allow_origin, "*") || (at && !strcasecmp(at + 3, host)))) return 0;
  return refusal_set(f, 403, "host_not_allowed", NULL, "%.200s is not a name of this machine; see --allow-origin",
                     host);
}

// A page of another site, or a name that somebody else lets point here: a browser sends what its user never asked for.
static int check_origin(const Access *a, const HttpExchange *x, Refusal *f) {
  const char *origin = http_header(x, "Origin"), *host = http_header(x, "Host");
  Endpoint to;
  if (!origin) return 0;
  if (a->allow_origin && (!strcmp(a->allow_origin, "*") || !strcmp(a->allow_origin, origin))) return 0;
  const char *at = strstr(origin, "://");
  bool own = at && host && !strcasecmp(at + 3, host);
  if (own && a->local) own = endpoint_parse(host, strlen(host), false, &to) && access_is_local(to.host);
  return FAULT(pages_of_others_may_ask, own, true)
             ? 0
             : refusal_set(f, 403, "origin_not_allowed", NULL, "pages of %.200s may not ask; see --allow-origin",
                           origin);
}

int access_check(const Access *a, const HttpExchange *x, bool needs_key, Refusal *f) {
  int code = check_host(a, x, f);
  if (!code) code = check_origin(a, x, f);
  return code || !needs_key ? code : check_key(a, x, f);
}
