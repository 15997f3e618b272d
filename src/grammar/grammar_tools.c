// Calls of tools: each form as nodes around the tools' schemas.
#include "grammar/grammar_xml.h"
#include "grammar/schema.h"
#include <stdio.h>
#include <string.h>

enum { MOST_TOOLS = 128 };

static int refuse(Error *error, size_t tool, const char *sentence) {
  return error_set(error, PLAIT_BAD_INPUT, "tools.%zu%s", tool, sentence);
}

static int word(Grammar *g, const char *text) { return grammar_word(g, text, strlen(text)); }

// An object with a name and arguments. Negative: the name is too long.
static int call_node(Grammar *g, const json_t *name, int arguments, const char *key) {
  StringAutomaton a;
  StringWord own = {json_string_value(name), json_string_length(name)};
  Node n = {.kind = NODE_OBJECT, .is_call = true, .count = 2, .rest = -1, .max = -1};
  if (string_automaton_words(&a, &own, 1, false, NULL) < 0) return PLAIT_BAD_INPUT;
  n.parts = arena_array(&g->arena, int, 2);
  n.names = arena_array(&g->arena, StringWord, 2);
  n.required = arena_array(&g->arena, bool, 2);
  n.names[0] = (StringWord){"name", 4};
  n.names[1] = (StringWord){key, strlen(key)};
  n.parts[0] = grammar_string(g, a);
  n.parts[1] = arguments;
  n.required[0] = n.required[1] = true;
  return grammar_add(g, n);
}

// Parameters without a type are those of an object; absent or empty ones allow no arguments.
static int check_parameters(const json_t *parameters, size_t tool, Error *error) {
  if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
    return refuse(error, tool, ".function.parameters is not an object");
  const json_t *type = json_object_get(parameters, "type");
  if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object")))
    return refuse(error, tool, ".function.parameters.type is not object");
  return PLAIT_OK;
}

static int arguments_node(Grammar *g, const json_t *parameters, size_t tool, Error *error) {
  char where[64];
  snprintf(where, sizeof where, "tools.%zu.function.parameters", tool);
  if (check_parameters(parameters, tool, error)) return PLAIT_BAD_INPUT;
  bool none = !json_object_size(parameters);
  json_t *schema = none ? json_pack("{s:b}", "additionalProperties", 0) : json_copy((json_t *)parameters);
  json_object_set_new(schema, "type", json_string("object"));
  int node = schema_add(g, schema, where, error);
  json_decref(schema);
  return node;
}

static int xml_node(Grammar *g, const json_t *function, size_t tool, const ToolOptions *o, Error *error) {
  char where[64];
  const json_t *parameters = json_object_get(function, "parameters");
  snprintf(where, sizeof where, "tools.%zu.function.parameters", tool);
  if (check_parameters(parameters, tool, error)) return PLAIT_BAD_INPUT;
  return grammar_xml_call(g, o->form, json_object_get(function, "name"), parameters, where, error);
}

// The call of a tool; PLAIT_OK, *node -1: it may not be called.
static int tool_node(Grammar *g, const json_t *tool, size_t i, const ToolOptions *o, int *node, Error *error) {
  const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
  const json_t *name = json_object_get(function, "name");
  *node = -1;
  if (!json_is_string(type) || strcmp(json_string_value(type), "function"))
    return error_set(error, GRAMMAR_NOT_BUILT, "tools.%zu.type is not function, the only type that is built", i);
  if (!json_is_string(name) || !json_string_length(name)) return refuse(error, i, ".function.name is not a name");
  if (o->only && strcmp(o->only, json_string_value(name))) return PLAIT_OK;
  if (grammar_is_xml(o->form)) return *node = xml_node(g, function, i, o, error);
  int arguments = arguments_node(g, json_object_get(function, "parameters"), i, error);
  if (arguments < 0) return arguments;
  *node = call_node(g, name, arguments, o->form == TOOLS_LLAMA ? "parameters" : "arguments");
  return *node < 0 ? error_set(error, GRAMMAR_NOT_BUILT, "tools.%zu.function.name is too long", i) : PLAIT_OK;
}

// One of the tools' calls.
static int calls_node(Grammar *g, const json_t *tools, const ToolOptions *o, Error *error) {
  int parts[MOST_TOOLS], count = 0;
  size_t i;
  json_t *tool;
  if (!json_array_size(tools)) return error_set(error, PLAIT_BAD_INPUT, "tools is not a list of tools");
  if (json_array_size(tools) > MOST_TOOLS)
    return error_set(error, PLAIT_BAD_INPUT, "tools has more than %d tools", MOST_TOOLS);
  json_array_foreach((json_t *)tools, i, tool) {
    if (tool_node(g, tool, i, o, &parts[count], error) < 0) return PLAIT_BAD_INPUT;
    count += parts[count] >= 0;
  }
  if (!count) return error_set(error, PLAIT_BAD_INPUT, "tool_choice is %.60s, which no tool is named", o->only);
  return grammar_union(g, parts, count);
}

static int sequence(Grammar *g, const int *parts, int count, bool blank) {
  Node n = {.kind = NODE_SEQUENCE, .count = count, .rest = -1, .blank = blank};
  n.parts = arena_array(&g->arena, int, count);
  memcpy(n.parts, parts, (size_t)count * sizeof *parts);
  return grammar_add(g, n);
}

// part: -1, none. The flags of n stay.
static int until(Grammar *g, const char *trigger, int part, Node n) {
  n.kind = NODE_UNTIL;
  n.text = trigger;
  n.bytes = strlen(trigger);
  n.rest = -1;
  n.count = part >= 0;
  n.parts = arena_array(&g->arena, int, 1);
  n.parts[0] = part;
  return grammar_add(g, n);
}

static int tagged_calls(Grammar *g, int calls, const ToolOptions *o) {
  int begin = word(g, "\n"), end = word(g, "\n</tool_call>");
  int call = grammar_is_xml(o->form) ? calls : sequence(g, (int[]){begin, calls, end}, 3, false);
  if (o->choice == TOOLS_AUTO) return until(g, "<tool_call>", call, (Node){.free = true, .again = o->parallel});
  int first = word(g, "<tool_call>");
  int more = o->parallel ? until(g, "\n<tool_call>", call, (Node){.again = true}) : -1;
  return sequence(g, (int[]){first, call, more}, o->parallel ? 3 : 2, false);
}

static int bare_call(Grammar *g, int calls, const ToolOptions *o) {
  if (o->choice == TOOLS_REQUIRED) return calls;
  int text = until(g, "{\"name\"", -1, (Node){.free = true, .start = true});
  return grammar_union(g, (int[]){calls, text}, 2);
}

static int listed_calls(Grammar *g, int calls, const ToolOptions *o) {
  int list = grammar_add(g, (Node){.kind = NODE_ARRAY, .rest = calls, .min = 1, .max = o->parallel ? -1 : 1});
  if (o->choice == TOOLS_AUTO) return until(g, "[TOOL_CALLS]", list, (Node){.free = true, .blank = true});
  int begin = word(g, "[TOOL_CALLS]");
  return sequence(g, (int[]){begin, list}, 2, true);
}

static int (*const forms[])(Grammar *, int, const ToolOptions *) = {
    [TOOLS_HERMES] = tagged_calls, [TOOLS_QWEN_XML] = tagged_calls, [TOOLS_GLM] = tagged_calls,
    [TOOLS_LLAMA] = bare_call,     [TOOLS_MISTRAL] = listed_calls};

// Calls and nothing else, or a document of the schema.
static int calls_or_document(Grammar *g, int calls, const ToolOptions *o, int *document, Error *error) {
  ToolOptions required = *o;
  required.choice = TOOLS_REQUIRED;
  *document = -1;
  if (!o->schema || o->choice == TOOLS_REQUIRED) return forms[o->form](g, calls, o);
  if ((*document = schema_add(g, o->schema, o->where, error)) < 0) return *document;
  return grammar_union(g, (int[]){*document, forms[o->form](g, calls, &required)}, 2);
}

static int add_all(Grammar *g, const json_t *tools, const ToolOptions *o, Error *error) {
  int document, calls = calls_node(g, tools, o, error);
  if (calls < 0) return calls;
  g->root = calls_or_document(g, calls, o, &document, error);
  if (g->root < 0 || grammar_finish(g, error) < 0) return PLAIT_BAD_INPUT;
  if (document >= 0 && !g->nodes.data[document].possible)
    return error_set(error, PLAIT_BAD_INPUT, "%s allows no document at all", o->where);
  for (int i = 0; i < g->nodes.count; i++) // a tool that can never be called is a mistake that nobody would notice
    if (g->nodes.data[i].is_call && !g->nodes.data[i].possible)
      return error_set(error, PLAIT_BAD_INPUT, "tools has a tool whose parameters allow no arguments at all");
  return grammar_check_one_of(g, error);
}

int grammar_from_tools(Grammar **g, const json_t *tools, const ToolOptions *options, Error *error) {
  *g = grammar_create();
  int code = add_all(*g, tools, options, error);
  if (code >= 0) return PLAIT_OK;
  grammar_free(*g);
  *g = NULL;
  return error->code;
}
