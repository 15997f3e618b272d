// Endpoints as text.
#include "base/endpoint.h"
#include "base/fault.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool take_host(const char *text, size_t length, char out[ENDPOINT_HOST]) {
  if (!length || length >= ENDPOINT_HOST) return false;
  memcpy(out, text, length);
  out[length] = 0;
  return true;
}

static bool is_name(const char *host) {
  for (; *host; host++)
    if (!isalnum((unsigned char)*host) && !strchr("-._", *host)) return false;
  return true;
}

// "fe80::1%eth0"
static bool is_v6(const char *host) {
  char address[INET6_ADDRSTRLEN];
  struct in6_addr unused;
  size_t n = strcspn(host, "%");
  if (n >= sizeof address || (host[n] && (!host[n + 1] || !is_name(host + n + 1)))) return false;
  memcpy(address, host, n);
  address[n] = 0;
  return inet_pton(AF_INET6, address, &unused) == 1;
}

static bool take_port(const char *text, size_t length, int *port) {
  *port = 0;
  if (!length || length > 5) return false;
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)text[i])) return false;
    *port = 10 * *port + text[i] - '0';
  }
  return *port >= 1 && *port <= 65535;
}

static const char *last_colon(const char *text, size_t length) {
  while (length && text[length - 1] != ':') length--;
  return length ? text + length - 1 : NULL;
}

bool endpoint_parse(const char *text, size_t length, bool port_must_be_there, Endpoint *e) {
  const char *end = text + length, *close = memchr(text, ']', length), *colon = last_colon(text, length);
  *e = (Endpoint){0};
  if (length && *text == '[') {
    if (!close || !take_host(text + 1, (size_t)(close - text - 1), e->host) || !is_v6(e->host)) return false;
    if (close + 1 == end) return !port_must_be_there;
    return close[1] == ':' && take_port(close + 2, (size_t)(end - close - 2), &e->port);
  }
  if (!port_must_be_there && take_host(text, length, e->host) && (is_name(e->host) || is_v6(e->host))) return true;
  return colon && take_host(text, (size_t)(colon - text), e->host) &&
         (is_name(e->host) || FAULT(endpoints_need_brackets, is_v6(e->host), false)) &&
         take_port(colon + 1, (size_t)(end - colon - 1), &e->port);
}

const char *endpoint_print(const char *host, int port, char text[ENDPOINT_TEXT]) {
  bool brackets = strchr(host, ':') != NULL;
  char number[8] = "";
  if (port) snprintf(number, sizeof number, ":%d", port);
  snprintf(text, ENDPOINT_TEXT, "%s%.*s%s%s", brackets ? "[" : "", ENDPOINT_HOST - 1, host, brackets ? "]" : "",
           number);
  return text;
}
