// Constants of schemas: enum and const. Documents have them as json.dumps writes them.
#include "grammar/schema.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int value_node(Schema *s, const json_t *value);

// As Python's repr writes a double.
static void write_real(double x, char *text, size_t size) {
  char digits[40];
  int precision = 1;
  for (; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*e", precision - 1, x);
    if (strtod(digits, NULL) == x) break;
  }
  int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    int after = precision - 1 - exponent;
    snprintf(text, size, "%.*f", after > 1 ? after : 1, x);
  } else snprintf(text, size, "%s", digits);
}

static int number_node(Schema *s, const json_t *value) {
  char text[400];
  if (json_is_integer(value)) {
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return grammar_word(s->g, text, strlen(text));
  }
  double x = json_real_value(value);
  write_real(x, text, sizeof text);
  int real = grammar_word(s->g, text, strlen(text));
  if (floor(x) != x) return real;
  snprintf(text, sizeof text, "%.0f", x == 0 ? 0 : x);
  return grammar_union(s->g, (int[]){real, grammar_word(s->g, text, strlen(text))}, 2);
}

static int object_node(Schema *s, const json_t *value) {
  Grammar *g = s->g;
  int n = (int)json_object_size(value), i = 0;
  Node node = {.kind = NODE_OBJECT, .count = n, .rest = -1, .max = -1};
  node.parts = arena_array(&g->arena, int, n + 1);
  node.required = arena_array(&g->arena, bool, n + 1);
  node.names = arena_array(&g->arena, StringWord, n + 1);
  const char *key;
  json_t *member;
  json_object_foreach((json_t *)value, key, member) {
    node.names[i] = (StringWord){arena_strdup(&g->arena, key), strlen(key)};
    node.required[i] = true;
    if ((node.parts[i++] = value_node(s, member)) < 0) return PLAIT_BAD_INPUT;
  }
  return grammar_add(g, node);
}

static int array_node(Schema *s, const json_t *value) {
  int n = (int)json_array_size(value);
  Node node = {.kind = NODE_ARRAY, .count = n, .rest = -1, .min = n, .max = n};
  node.parts = arena_array(&s->g->arena, int, n + 1);
  for (int i = 0; i < n; i++)
    if ((node.parts[i] = value_node(s, json_array_get(value, (size_t)i))) < 0) return PLAIT_BAD_INPUT;
  return grammar_add(s->g, node);
}

static int strings_node(Schema *s, const StringWord *words, int count) {
  StringAutomaton a;
  Error why = {0};
  if (string_automaton_words(&a, words, count, false, &why) < 0) return schema_not_built(s, "%s", why.message);
  return grammar_string(s->g, a);
}

static int value_node(Schema *s, const json_t *value) {
  Grammar *g = s->g;
  if (g->nodes.count > SCHEMA_NODES || g->cells > SCHEMA_CELLS)
    return schema_not_built(s, "makes the schema too large");
  if (json_is_string(value))
    return strings_node(s, &(StringWord){json_string_value(value), json_string_length(value)}, 1);
  if (json_is_number(value)) return number_node(s, value);
  if (json_is_object(value)) return object_node(s, value);
  if (json_is_array(value)) return array_node(s, value);
  const char *word = json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null";
  return grammar_word(g, word, strlen(word));
}

// All strings of a list are one automaton.
int schema_values(Schema *s, const json_t *const *values, size_t count) {
  Vec(int) parts = {0};
  Vec(StringWord) words = {0};
  int code = 0;
  for (size_t i = 0; i < count && code >= 0; i++) {
    if (!json_is_string(values[i])) {
      code = value_node(s, values[i]);
      vec_push(&parts, code);
      continue;
    }
    StringWord word = {json_string_value(values[i]), json_string_length(values[i])};
    bool again = false;
    for (size_t k = 0; k < i && !again; k++) again = json_equal((json_t *)values[i], (json_t *)values[k]);
    if (!again) vec_push(&words, word);
  }
  if (code >= 0 && words.count) {
    code = strings_node(s, words.data, words.count);
    vec_push(&parts, code);
  }
  if (code >= 0) code = grammar_union(s->g, parts.data, parts.count);
  vec_free(&parts);
  vec_free(&words);
  return code;
}
