// JSON schemas: the first line of an input is a schema, the rest a document. A schema is refused with a sentence, or
// compiled; the document is then taken byte by byte, each byte if and only if the mask has it, and what is accepted as
// a whole is JSON.
#include "base/json_read.h"
#include "fuzz.h"
#include "grammar/grammar.h"
#include <stdlib.h>
#include <string.h>

enum { WORDS = 256 + 8 };

static TokenTrie *vocabulary(void) {
  static const char *const pieces[] = {"\":", "\"}", "{\"a", "\\u00e", "ab\"", "1.", "\xf0\x9f", "], "};
  const char *text[WORDS];
  char single[256];
  int bytes[WORDS];
  for (int i = 0; i < 256; i++) single[i] = (char)i, text[i] = &single[i], bytes[i] = 1;
  for (int i = 256; i < WORDS; i++) text[i] = pieces[i - 256], bytes[i] = (int)strlen(text[i]);
  return token_trie_of(text, bytes, NULL, WORDS);
}

static void take(const Grammar *g, const TokenTrie *trie, const char *text, size_t size) {
  GrammarState *s = grammar_begin(g);
  uint8_t allowed[WORDS];
  bool may_end, taken = true;
  size_t n = 0;
  for (; n < size && n < 64 && taken; n++) {
    grammar_mask(s, trie, allowed, &may_end);
    CHECK(may_end == grammar_may_end(s));
    GrammarState *copy = grammar_copy(s);
    int piece = 256 + (int)(n % 8);
    CHECK(grammar_take(copy, trie, piece) == (allowed[piece] == 1));
    grammar_end(copy);
    taken = grammar_take(s, trie, (uint8_t)text[n]);
    CHECK(taken == (allowed[(uint8_t)text[n]] == 1));
  }
  if (taken && n < size) taken = grammar_take_bytes(s, text + n, size - n);
  if (taken && grammar_may_end(s)) {
    json_t *tree;
    Error error = {0};
    CHECK(json_read(text, size, "document", &tree, &error) == PLAIT_OK, "%s", error.message);
    json_decref(tree);
  }
  grammar_end(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
  size_t bytes = line ? (size_t)(line - data) : size;
  json_t *tree;
  Error error = {0};
  if (json_read((const char *)data, bytes, "schema", &tree, &error) < 0) return 0;
  Grammar *g;
  int code = grammar_from_schema(&g, tree, "schema", &error);
  json_decref(tree);
  fuzz_check(code == GRAMMAR_NOT_BUILT ? PLAIT_BAD_INPUT : code, &error);
  CHECK((code == PLAIT_OK) == (g != NULL));
  if (!g) return 0;
  static TokenTrie *trie;
  if (!trie) trie = vocabulary();
  take(g, trie, line ? (const char *)line + 1 : "", line ? size - bytes - 1 : 0);
  grammar_free(g);
  return 0;
}
