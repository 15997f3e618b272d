// Random answers: a small vocabulary, and walks along its masks.
#include "walks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"{\"",
                                     "\": ",
                                     "\":",
                                     "\", \"",
                                     "\",\"",
                                     "\"}",
                                     "\"]",
                                     "\": \"",
                                     "\":\"",
                                     "{}",
                                     "[]",
                                     "[[",
                                     "]]",
                                     "}}",
                                     "}, {",
                                     ", ",
                                     ",\n  ",
                                     "{\n",
                                     "\n}",
                                     "\n    ",
                                     "   ",
                                     "true",
                                     "false",
                                     "null",
                                     "tr",
                                     "lse",
                                     "ull",
                                     "12",
                                     "345",
                                     "0.",
                                     ".5",
                                     ".25",
                                     "e-0",
                                     "e+1",
                                     "e1",
                                     "-1",
                                     "-0",
                                     "00",
                                     "99",
                                     "1e",
                                     "name",
                                     "a",
                                     "ab",
                                     "abc",
                                     "bc",
                                     "b\"",
                                     "a\":",
                                     "a\", \"b",
                                     "\\n",
                                     "\\\"",
                                     "\\\\",
                                     "\\u00",
                                     "\\u00e9",
                                     "\\u",
                                     "e9",
                                     "E9",
                                     "\\ud83d",
                                     "\\ude00",
                                     "\\ud83d\\ude00",
                                     "\xc3\xa9",
                                     "\xc3",
                                     "\xa9x",
                                     "\xf0\x9f\x98\x80",
                                     "\xf0\x9f",
                                     "\x98\x80",
                                     "\xe2\x82\xac",
                                     "\xe2\x82",
                                     "\xed\x9f",
                                     "x\xc3",
                                     " x",
                                     "  \"",
                                     " \"",
                                     "Z\"",
                                     "2024-0",
                                     "-02-",
                                     "T12:",
                                     ":00Z",
                                     "\"a\": 1",
                                     "\"b\": ",
                                     "1, 2",
                                     "1,",
                                     "5]",
                                     "5}",
                                     "9}",
                                     "true}",
                                     "null]",
                                     "\"\"",
                                     "\", ",
                                     "the quick brown fox",
                                     "ddd",
                                     "0123456789",
                                     "/",
                                     "\\/",
                                     "<tool_call>\n",
                                     "<tool",
                                     "_call>",
                                     "\n</tool_call>",
                                     "</"};

enum { PIECES = sizeof pieces / sizeof *pieces };
int walk_vocabulary_size(void) { return 256 + PIECES; }

const char *walk_token(int id, int *bytes) {
  static char single[256];
  if (id >= 256) return *bytes = (int)strlen(pieces[id - 256]), pieces[id - 256];
  single[id] = (char)id;
  return *bytes = 1, &single[id];
}

TokenTrie *walk_vocabulary(void) {
  const char *text[256 + PIECES];
  int bytes[256 + PIECES];
  for (int i = 0; i < 256 + PIECES; i++) text[i] = walk_token(i, &bytes[i]);
  return token_trie_of(text, bytes, NULL, 256 + PIECES);
}

const char walk_is_endless[] = "the document does not end";

static uint64_t draw(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

static int any_of(const uint8_t *allowed, int size, uint64_t *seed) {
  int count = 0, found = -1;
  for (int i = 0; i < size; i++)
    if (allowed[i] && draw(seed) % (uint64_t)++count == 0) found = i;
  return found;
}

// The token that ends the document soonest: what closes it, and else half of the time any single byte.
static int soonest(const uint8_t *allowed, uint64_t *seed) {
  static const char order[] = "\"]}:";
  bool in_string = allowed['"'] && allowed['a'];
  if (allowed['}'] && !in_string && draw(seed) % 8) return '}';
  if (allowed['"'] && draw(seed) % 8) return '"';
  for (const char *c = order; *c && !in_string && draw(seed) % 2; c++)
    if (allowed[(uint8_t)*c]) return (uint8_t)*c;
  return any_of(allowed, 256, seed);
}

// Each token: a copy takes it if and only if the mask has it.
static const char *compare_all(const GrammarState *s, const TokenTrie *trie, const uint8_t *allowed) {
  GrammarState *copy = grammar_copy(s);
  const char *wrong = NULL;
  for (int i = 0; i < walk_vocabulary_size() && !wrong; i++) {
    bool taken = grammar_take(copy, trie, i);
    if (taken != (allowed[i] == 1))
      wrong = taken ? "a token is taken that its mask has not" : "a mask has a token that is not taken";
    if (!taken) continue;
    grammar_end(copy);
    copy = grammar_copy(s);
  }
  grammar_end(copy);
  return wrong;
}

const char *walk(const Grammar *g, const TokenTrie *trie, uint64_t seed, int steps, int compare, ByteVector *text,
                 int64_t *taken) {
  GrammarState *s = grammar_begin(g);
  int size = token_trie_size(trie), bytes;
  uint8_t *allowed = xcalloc((size_t)size, 1);
  const char *wrong = NULL;
  bool may_end;
  for (int step = 0; !wrong; step++) {
    grammar_mask(s, trie, allowed, &may_end);
    if (compare) wrong = compare_all(s, trie, allowed);
    if (may_end && (step >= steps || draw(&seed) % 2 == 0)) break;
    int id = step < steps ? any_of(allowed, size, &seed) : soonest(allowed, &seed);
    if (id < 0 && may_end) break;
    if (id < 0) wrong = "no token is allowed, and the document may not end";
    else if (step > steps + 1000) wrong = walk_is_endless;
    else if (!grammar_take(s, trie, id)) wrong = "a token of the mask is not taken";
    else {
      const char *token = walk_token(id, &bytes);
      bytes_append(text, token, (size_t)bytes);
      ++*taken;
    }
  }
  free(allowed);
  grammar_end(s);
  return wrong;
}

int grammar_accepts(const Grammar *g, const char *text, size_t bytes) {
  GrammarState *s = grammar_begin(g);
  int accepted = grammar_take_bytes(s, text, bytes) && grammar_may_end(s);
  grammar_end(s);
  return accepted;
}

// ---- questions of a script ------------------------------------------------------------------------------------------

static void answer_walks(const Grammar *g, const TokenTrie *trie, const json_t *question, json_t *answer) {
  json_int_t seed = json_integer_value(json_object_get(question, "seed")), taken = 0;
  json_int_t walks = json_integer_value(json_object_get(question, "walks"));
  json_int_t steps = json_integer_value(json_object_get(question, "steps"));
  json_t *texts = json_array();
  for (json_int_t i = 0; i < walks; i++) {
    ByteVector text = {0};
    int64_t n = 0;
    const char *wrong = walk(g, trie, (uint64_t)(seed + i), (int)steps, i == 0, &text, &n);
    taken += n;
    if (wrong == walk_is_endless) { // by chance, where few characters lead on
      vec_free(&text);
      continue;
    }
    json_t *string = json_stringn(text.data ? text.data : "", (size_t)text.count);
    if (!wrong && !string) wrong = "a document is not UTF-8";
    if (wrong) json_object_set_new(answer, "wrong", json_string(wrong));
    json_array_append_new(texts, string ? string : json_null());
    vec_free(&text);
  }
  json_object_set_new(answer, "texts", texts);
  json_object_set_new(answer, "taken", json_integer(taken));
}

static void answer_documents(const Grammar *g, const json_t *question, json_t *answer) {
  json_t *refused = json_array(), *text;
  size_t i;
  json_array_foreach(json_object_get(question, "documents"), i, text) {
    if (!grammar_accepts(g, json_string_value(text), json_string_length(text))) json_array_append(refused, text);
  }
  json_object_set_new(answer, "refused", refused);
}

int drive(void) {
  TokenTrie *trie = walk_vocabulary();
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    json_t *question = json_loads(line, JSON_ALLOW_NUL, NULL), *answer = json_object();
    Grammar *g;
    Error error = {0};
    if (grammar_from_schema(&g, json_object_get(question, "schema"), "schema", &error) < 0)
      json_object_set_new(answer, "error", json_string(error.message));
    else {
      answer_walks(g, trie, question, answer);
      answer_documents(g, question, answer);
      grammar_free(g);
    }
    char *text = json_dumps(answer, JSON_COMPACT);
    puts(text);
    fflush(stdout);
    free(text);
    json_decref(question);
    json_decref(answer);
  }
  free(line);
  token_trie_free(trie);
  return 0;
}
