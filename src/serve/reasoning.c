// Finding <think> and </think> in a text that grows.
#include "serve/reasoning.h"
#include <string.h>

#define OPEN "<think>"
#define CLOSE "</think>"

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static int skip_blanks(const char *text, int from, int to) {
  while (from < to && is_blank(text[from])) from++;
  return from;
}

void reasoning_begin(Reasoning *r, bool thinks) {
  *r = (Reasoning){.state = thinks ? REASONING_THINKS : REASONING_BEGINS};
}

static void look_for_open(Reasoning *r, const char *text, int bytes, bool last) {
  int at = skip_blanks(text, 0, bytes), n = (int)strlen(OPEN), have = bytes - at;
  if (have >= n && !memcmp(text + at, OPEN, (size_t)n)) {
    r->state = REASONING_THINKS;
    r->reasoning = r->reasoning_to = at + n;
  } else if (last || (have && memcmp(text + at, OPEN, (size_t)(have < n ? have : n)) != 0)) {
    r->state = REASONING_ANSWERS;
  }
}

static void look_for_close(Reasoning *r, const char *text, int bytes, bool last) {
  int n = (int)strlen(CLOSE);
  if (r->reasoning == r->reasoning_to) r->reasoning = r->reasoning_to = skip_blanks(text, r->reasoning, bytes);
  int from = r->reasoning_to, to = bytes;
  const char *at = memmem(text + from, (size_t)(bytes - from), CLOSE, (size_t)n);
  if (at) {
    to = (int)(at - text);
    r->state = REASONING_ANSWERS;
    r->content = r->content_to = to + n;
  } else {
    int held = bytes - from < n - 1 ? bytes - from : n - 1;
    while (!last && held > 0 && memcmp(text + bytes - held, CLOSE, (size_t)held) != 0) held--;
    to = bytes - (last ? 0 : held);
  }
  while (to > from && is_blank(text[to - 1])) to--; // they may stand before the tag
  r->reasoning_to = to;
  if (last && !at) r->content = r->content_to = bytes;
}

void reasoning_update(Reasoning *r, const char *text, int bytes, bool last) {
  if (r->state == REASONING_BEGINS) look_for_open(r, text, bytes, last);
  if (r->state == REASONING_THINKS) look_for_close(r, text, bytes, last);
  if (r->state != REASONING_ANSWERS) return;
  if (r->content == r->content_to && r->content) r->content = r->content_to = skip_blanks(text, r->content, bytes);
  r->content_to = bytes;
}

bool reasoning_is_open(const char *prompt, int bytes) {
  int n = (int)strlen(OPEN);
  while (bytes && is_blank(prompt[bytes - 1])) bytes--;
  return bytes >= n && !memcmp(prompt + bytes - n, OPEN, (size_t)n);
}
