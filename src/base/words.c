// Splitting and quoting of words.
#include "base/words.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void words_add(Words *w, const char *word) {
  w->word = xrealloc(w->word, sizeof *w->word * ((size_t)w->count + 1));
  w->word[w->count++] = xstrdup(word);
}

void words_free(Words *w) {
  for (int i = 0; i < w->count; i++) free(w->word[i]);
  free(w->word);
  *w = (Words){0};
}

// Does a backslash before this character escape it inside of the quote (0: outside of quotes)?
static int is_escaped(char quote, char next) {
  return next && quote != '\'' && (!quote || next == '"' || next == '\\');
}

// Copies the word at `at` to `to` without its quotes, and returns the text after it; NULL: a quote stays open.
static const char *read_word(const char *at, char *to) {
  char quote = 0;
  for (; *at && (quote || !isspace((unsigned char)*at)); at++) {
    if (*at == '\\' && is_escaped(quote, at[1])) *to++ = *++at;
    else if (quote ? *at == quote : *at == '\'' || *at == '"') quote = quote ? 0 : *at;
    else *to++ = *at;
  }
  *to = 0;
  return quote ? NULL : at;
}

int words_split(const char *line, Words *words, Error *error) {
  char *word = xstrdup(line);
  int code = PLAIT_OK;
  *words = (Words){0};
  for (const char *at = line; !code;) {
    while (isspace((unsigned char)*at)) at++;
    if (!*at || *at == '#') break;
    at = read_word(at, word);
    if (at) words_add(words, word);
    else code = error_set(error, PLAIT_BAD_INPUT, "a quote is not closed: %.200s", line);
  }
  free(word);
  if (code) words_free(words);
  return code;
}

void words_quote(const char *word, FILE *out) {
  const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (*word && !word[strspn(word, plain)]) {
    fputs(word, out);
    return;
  }
  putc('\'', out);
  for (; *word; word++)
    if (*word == '\'') fputs("'\\''", out);
    else putc(*word, out);
  putc('\'', out);
}
