// Calls in XML. A parameter that may be a text is written without quotes, as the parser of answers reads it
// (chat/call_xml.h): what ends the text is its closing tag. Others are JSON between tags.
#include "grammar/grammar_xml.h"
#include "chat/call_kinds.h"
#include "grammar/schema.h"
#include <stdio.h>
#include <string.h>

enum { MOST_NAME = 256, DEEPEST = 16 };

typedef struct XmlForm {
  const char *begin, *named;         // around the name of the function
  const char *key, *value;           // around the key of a parameter
  const char *close, *line_close;    // a text ends at `close`; other values with `line_close`
  const char *end;                   // after all of them
} XmlForm;

static const XmlForm forms[] = {
    [TOOLS_QWEN_XML] = {"\n<function=", ">", "\n<parameter=", ">\n", "</parameter>", "\n</parameter>",
                        "\n</function>\n</tool_call>"},
    [TOOLS_GLM] = {"", "", "\n<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "</arg_value>",
                   "\n</tool_call>"}};

bool grammar_is_xml(ToolForm form) { return form == TOOLS_QWEN_XML || form == TOOLS_GLM; }

typedef struct Call {
  Grammar *g;
  const XmlForm *form;
  const json_t *parameters;
  const char *where;
  Error *error;
} Call;

static int not_built(const Call *c, const char *key, const char *sentence) {
  return error_set(c->error, GRAMMAR_NOT_BUILT, "%s.properties.%.60s %s", c->where, key, sentence);
}

static int words(const Call *c, const char *a, const char *b, size_t bytes, const char *d) {
  char *text = xformat("%s%.*s%s", a, (int)bytes, b, d);
  int node = grammar_word(c->g, text, strlen(text));
  free(text);
  return node;
}

static int sequence(const Call *c, const int *parts, int count) {
  Node n = {.kind = NODE_SEQUENCE, .count = count, .rest = -1};
  n.parts = arena_array(&c->g->arena, int, count);
  memcpy(n.parts, parts, (size_t)count * sizeof *parts);
  return grammar_add(c->g, n);
}

static bool is_name(const char *text, size_t bytes) {
  return bytes && bytes <= MOST_NAME && strlen(text) == bytes && !strpbrk(text, "<> \n\r\t");
}

// ---- texts ----------------------------------------------------------------------------------------------------------

// The texts that a schema allows: any, or words. Negative: those of an expression or with a length.
typedef struct Texts { bool any; Vec(int) words; } Texts;

static int add_texts(const Call *c, const json_t *schema, const char *key, int depth, Texts *t);

static int add_each(const Call *c, const json_t *list, const char *key, int depth, Texts *t) {
  size_t i;
  json_t *item;
  int code = 0;
  json_array_foreach(list, i, item) if (code >= 0) code = add_texts(c, item, key, depth + 1, t);
  return code;
}

static void add_word(const Call *c, const json_t *value, Texts *t) {
  bool null = json_is_null(value);
  if (!null && !json_is_string(value)) return;
  const char *text = null ? "null" : json_string_value(value);
  size_t bytes = null ? 4 : json_string_length(value);
  if (!memmem(text, bytes, c->form->close, strlen(c->form->close)) && strlen(text) == bytes)
    vec_push(&t->words, words(c, "", text, bytes, c->form->line_close));
}

static int add_texts(const Call *c, const json_t *schema, const char *key, int depth, Texts *t) {
  static const char *const built[] = {"type", "enum", "const", "anyOf", "$ref"};
  const json_t *list = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const"), *value;
  const char *reference = json_string_value(json_object_get(schema, "$ref")), *word;
  unsigned kinds = call_kinds(schema, c->parameters);
  size_t i;
  if (!(kinds & (CALL_TEXT | CALL_NULL))) return 0;
  if (depth > DEEPEST) return not_built(c, key, "nests too deep for a text in this model's form of calls");
  json_object_foreach((json_t *)(uintptr_t)schema, word, value) {
    bool known = !schema_is_keyword(word);
    for (size_t k = 0; k < sizeof built / sizeof *built; k++) known |= !strcmp(word, built[k]);
    if (!known)
      return not_built(c, key, "has more than types and constants, which this model's form of calls cannot hold");
  }
  json_array_foreach(list, i, value) add_word(c, value, t);
  if (constant) add_word(c, constant, t);
  if (list || constant) return 0;
  if (reference) return add_texts(c, call_follow(c->parameters, reference), key, depth + 1, t);
  if (json_object_get(schema, "anyOf")) return add_each(c, json_object_get(schema, "anyOf"), key, depth, t);
  if (kinds & CALL_TEXT) t->any = true;
  else add_word(c, json_null(), t);
  return 0;
}

// A text, and what follows it.
static int text_node(const Call *c, const json_t *schema, const char *key, int open, int rest) {
  Texts t = {0};
  int code = add_texts(c, schema, key, 0, &t), node = code;
  if (code >= 0 && t.any) {
    Node n = {.kind = NODE_UNTIL, .rest = -1, .count = 1, .free = true, .must = true, .text = c->form->close};
    n.bytes = strlen(n.text);
    n.parts = arena_array(&c->g->arena, int, 1);
    n.parts[0] = rest;
    node = sequence(c, (int[]){open, grammar_add(c->g, n)}, 2);
  } else if (code >= 0)
    node = sequence(c, (int[]){open, grammar_union(c->g, t.words.data, t.words.count), rest}, 3);
  vec_free(&t.words);
  return node;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static int parameter_node(const Call *c, const char *key, const json_t *schema, int rest) {
  if (!is_name(key, strlen(key))) return not_built(c, key, "has a name that this model's form of calls cannot have");
  int open = words(c, c->form->key, key, strlen(key), c->form->value);
  if (call_kinds(schema, c->parameters) & CALL_TEXT) return text_node(c, schema, key, open, rest);
  int value = schema_add_property(c->g, c->parameters, key, c->where, c->error);
  if (value < 0) return value;
  return sequence(c, (int[]){open, value, words(c, c->form->line_close, "", 0, ""), rest}, 4);
}

static bool is_required(const json_t *required, const char *key) {
  size_t i;
  json_t *name;
  json_array_foreach(required, i, name) if (json_is_string(name) && !strcmp(json_string_value(name), key)) return true;
  return false;
}

static int check_parameters(const Call *c) {
  static const char *const built[] = {"type", "properties", "required", "additionalProperties"};
  const json_t *properties = json_object_get(c->parameters, "properties"), *value;
  const json_t *required = json_object_get(c->parameters, "required");
  const char *key;
  size_t i;
  if (properties && !json_is_object(properties))
    return error_set(c->error, PLAIT_BAD_INPUT, "%s.properties is not an object", c->where);
  if (required && !json_is_array(required))
    return error_set(c->error, PLAIT_BAD_INPUT, "%s.required is not a list of strings", c->where);
  json_object_foreach((json_t *)(uintptr_t)c->parameters, key, value) {
    bool known = !schema_is_keyword(key);
    for (size_t k = 0; k < sizeof built / sizeof *built; k++) known |= !strcmp(key, built[k]);
    if (!known)
      return error_set(c->error, GRAMMAR_NOT_BUILT, "%s.%.60s is not built for this model's form of calls", c->where,
                       key);
  }
  json_array_foreach(required, i, value) {
    if (!json_is_string(value))
      return error_set(c->error, PLAIT_BAD_INPUT, "%s.required is not a list of strings", c->where);
    if (!json_object_get(properties, json_string_value(value)))
      return not_built(c, json_string_value(value), "is required and has no schema");
  }
  return 0;
}

// The parameters in the order of `properties`, made from the last one on: each has what follows it within itself.
int grammar_xml_call(Grammar *g, ToolForm form, const json_t *name, const json_t *parameters, const char *where,
                     Error *error) {
  Call c = {.g = g, .form = &forms[form], .parameters = parameters, .where = where, .error = error};
  const json_t *properties = json_object_get(parameters, "properties"),
               *required = json_object_get(parameters, "required");
  Vec(const char *) keys = {0};
  const char *key;
  json_t *schema;
  if (check_parameters(&c) < 0) return PLAIT_BAD_INPUT;
  if (!is_name(json_string_value(name), json_string_length(name)))
    return error_set(error, GRAMMAR_NOT_BUILT,
                     "%s: the name of the function has a blank, < or >, which this model's form of "
                     "calls cannot have",
                     where);
  json_object_foreach((json_t *)(uintptr_t)properties, key, schema) vec_push(&keys, key);
  int rest = words(&c, c.form->end, "", 0, "");
  for (int i = keys.count - 1; i >= 0 && rest >= 0; i--) {
    int with = parameter_node(&c, keys.data[i], json_object_get(properties, keys.data[i]), rest);
    bool optional = with >= 0 && !is_required(required, keys.data[i]);
    rest = optional ? grammar_union(g, (int[]){with, rest}, 2) : with;
  }
  vec_free(&keys);
  if (rest < 0) return rest;
  int begin = words(&c, c.form->begin, json_string_value(name), json_string_length(name), c.form->named);
  int call = sequence(&c, (int[]){begin, rest}, 2);
  g->nodes.data[call].is_call = true;
  return call;
}
