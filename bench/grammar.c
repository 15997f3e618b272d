// Times masks: bench_grammar [WORDS [TOKENIZER]]. For several schemas, walks along documents with a synthetic
// vocabulary of 151,000 words (or that of a tokenizer.json) and prints how long masks take: the median, the 99th
// percentile, and the longest, which is where a mask is asked for the first time. Also how long the trie takes, and
// each schema.
#include "base/clock.h"
#include "grammar/grammar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const schemas[][2] = {
    {"any", "{}"},
    {"string", "{\"type\": \"string\"}"},
    {"lengths", "{\"type\": \"string\", \"minLength\": 10, \"maxLength\": 60}"},
    {"pattern", "{\"type\": \"string\", \"pattern\": \"^[A-Z][a-z]+( [A-Z][a-z]+)*$\"}"},
    {"wide", "{\"type\": \"string\", \"pattern\": \"^.*x.*y\", \"maxLength\": 200}"},
    {"person", "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 40}, \"age\": "
               "{\"type\": \"integer\", \"minimum\": 0, "
               "\"maximum\": 130}, \"mail\": {\"type\": \"string\", \"pattern\": \"^[a-z.]+@[a-z]+\\\\.(com|org)$\"}, "
               "\"tags\": {\"type\": \"array\", \"items\": "
               "{\"enum\": [\"red\", \"green\", \"blue\"]}, \"maxItems\": 4}}, \"required\": [\"name\", \"age\", "
               "\"mail\", \"tags\"], \"additionalProperties\": false}"},
    {"open", "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"nested\": {\"$ref\": "
             "\"#\"}}, \"additionalProperties\": {\"type\": [\"number\", \"string\"]}}"},
    {"union", "{\"type\": \"array\", \"items\": {\"anyOf\": [{\"type\": \"string\", \"pattern\": \"^a\"}, {\"type\": "
              "\"string\", \"maxLength\": 9}, {\"type\": \"number\"}, "
              "{\"type\": \"object\", \"properties\": {\"k\": {\"type\": \"string\"}}}, {\"type\": \"object\", "
              "\"properties\": {\"k\": {\"type\": \"integer\"}}}]}}"},
};

static uint64_t seed = 1;
static uint64_t draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed >> 33;
}

// Words as vocabularies of 151,000 have them: bytes, syllables with and without a space before them, punctuation with
// quotes, digits, and characters outside ASCII.
static TokenTrie *synthetic(int count) {
  static const char *const marks[] = {"\"", "\",", "\":", "\" ", "{\"", "\"}",  "\"],", "\n",
                                      "  ", "(\"", "\")", ".",   ", ",  "\\\"", "\\n",  "'"};
  char (*text)[32] = xcalloc((size_t)count, sizeof *text);
  const char **list = xcalloc((size_t)count, sizeof *list);
  int *bytes = xcalloc((size_t)count, sizeof *bytes);
  for (int i = 0; i < count; i++) {
    char *to = text[i];
    if (i < 256) *to++ = (char)i;
    else {
      int letters = 2 + (int)(draw() % 10), kind = (int)(draw() % 16);
      if (kind < 8) *to++ = ' ';
      if (kind == 15) to += sprintf(to, "%s", marks[draw() % 16]);
      for (int k = 0; k < letters; k++)
        if (kind == 14)
          to += sprintf(to, "\xe4%c%c", (char)(0xB8 + draw() % 8), (char)(0x80 + draw() % 64)), letters -= 2;
        else *to++ = "etaoinshrdlucmfwypvbgkqjxz"[(draw() % 26 * (draw() % 26)) / 26];
      if (kind == 13) to += sprintf(to, "%s", marks[draw() % 16]);
    }
    list[i] = text[i];
    bytes[i] = (int)(to - text[i]);
  }
  TokenTrie *trie = token_trie_of(list, bytes, NULL, count);
  free(text);
  free(list);
  free(bytes);
  return trie;
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

enum { MOST = 1000 };

// Some tokens of a few answers: random ones of the masks.
static void measure(const char *name, const char *schema, const TokenTrie *trie) {
  json_t *tree = json_loads(schema, 0, NULL);
  Grammar *g;
  Error error = {0};
  double begin = clock_thread_seconds(), times[MOST];
  if (grammar_from_schema(&g, tree, name, &error) < 0) {
    printf("%s\n", error.message);
    exit(1);
  }
  double made = clock_thread_seconds() - begin;
  int size = token_trie_size(trie), n = 0;
  uint8_t *allowed = xcalloc((size_t)size, 1);
  while (n < MOST) {
    GrammarState *s = grammar_begin(g);
    for (int step = 0; step < 100 && n < MOST; step++) {
      bool may_end;
      begin = clock_thread_seconds();
      grammar_mask(s, trie, allowed, &may_end);
      times[n++] = clock_thread_seconds() - begin;
      int found = -1, count = 0;
      for (int i = 0; i < size; i++)
        if (allowed[i] && draw() % (uint64_t)++count == 0) found = i;
      if (found < 0) break;
      grammar_take(s, trie, found);
    }
    grammar_end(s);
  }
  qsort(times, (size_t)n, sizeof *times, by_time);
  printf("%-8s schema %6.2f ms, mask: median %6.3f ms, 99%% %6.3f ms, longest %6.3f ms\n", name, made * 1e3,
         times[n / 2] * 1e3, times[n * 99 / 100] * 1e3, times[n - 1] * 1e3);
  free(allowed);
  grammar_free(g);
  json_decref(tree);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  int words = argc > 1 ? atoi(argv[1]) : 151000;
  TokenTrie *trie;
  double begin = clock_thread_seconds();
  if (argc > 2) {
    Tokenizer *t;
    Error error = {0};
    if (tokenizer_load(argv[2], &t, &error) < 0) return fprintf(stderr, "%s\n", error.message), 2;
    begin = clock_thread_seconds();
    trie = token_trie_create(t);
    tokenizer_destroy(t);
  } else trie = synthetic(words < 300 ? 300 : words);
  printf("%d words: trie %.0f ms\n", token_trie_size(trie), (clock_thread_seconds() - begin) * 1e3);
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) measure(schemas[i][0], schemas[i][1], trie);
  token_trie_free(trie);
  return 0;
}
