// Grammars of answers, as rules of the engine's requests.
#include "serve/call_rules.h"
#include "base/fault.h"
#include "grammar/grammar_tools.h"
#include <string.h>

#define CLOSE "</think>"

typedef struct ChoiceRules {
  RequestRules rules; // its context is this
  const ServedModel *model;
  GrammarState *state;
  uint8_t *allowed; // (vocab)
  bool thinks;      // the answer begins within the model's reasoning, which nothing holds
  ByteVector tail;  // of the reasoning
} ChoiceRules;

typedef struct CallRules {
  GrammarStore *store;
  Grammar *grammar; // of the store
  ChoiceRules *choice; // (count)
  int count;
} CallRules;

static void free_rules(void *rules) {
  CallRules *r = rules;
  for (int i = 0; i < r->count; i++) {
    grammar_end(r->choice[i].state);
    free(r->choice[i].allowed);
    vec_free(&r->choice[i].tail);
  }
  grammar_store_release(r->store, r->grammar);
  free(r->choice);
  free(r);
}

static bool is_end(const ServedModel *m, int32_t id) {
  for (int i = 0; i < m->text->ends.count; i++)
    if (m->text->ends.data[i] == id) return true;
  return false;
}

static const uint8_t *allowed(void *choice) {
  ChoiceRules *c = choice;
  const ServedModel *m = c->model;
  bool may_end = false;
  if (c->thinks) return m->allowed;
  memset(c->allowed, 0, (size_t)m->source->config.vocab);
  grammar_mask(c->state, m->trie, c->allowed, &may_end);
  for (int i = 0; i < m->text->ends.count; i++) c->allowed[m->text->ends.data[i]] = may_end;
  return FAULT(schemas_are_ignored, c->allowed, m->allowed);
}

static void think(ChoiceRules *c, int32_t id) {
  if (!tokenizer_token(c->model->tokenizer, id)) return;
  bytes_append(&c->tail, c->model->tokenizer->decoded[id].text, (size_t)c->model->tokenizer->decoded[id].bytes);
  if (memmem(c->tail.data, (size_t)c->tail.count, CLOSE, strlen(CLOSE))) c->thinks = false;
  int keep = (int)strlen(CLOSE) - 1;
  if (c->tail.count <= keep) return;
  memmove(c->tail.data, c->tail.data + c->tail.count - keep, (size_t)keep);
  c->tail.count = keep;
}

static void took(void *choice, int32_t id) {
  ChoiceRules *c = choice;
  if (is_end(c->model, id)) return;
  if (c->thinks) think(c, id);
  else grammar_take(c->state, c->model->trie, id);
}

static void hold(Call *call, const ServedModel *m, Grammar *grammar) {
  Ticket *t = call->ticket;
  CallRules *r = xcalloc(1, sizeof *r);
  *r = (CallRules){.store = m->grammars,
                   .grammar = grammar,
                   .count = t->count,
                   .choice = xcalloc((size_t)t->count, sizeof *r->choice)};
  t->rules = r;
  t->free_rules = free_rules;
  for (int i = 0; i < t->count; i++) {
    ChoiceRules *c = &r->choice[i];
    *c = (ChoiceRules){.rules = {.context = c, .allowed = allowed, .took = took},
                       .model = m,
                       .state = grammar_begin(grammar),
                       .allowed = xcalloc((size_t)m->source->config.vocab, 1),
                       .thinks = call->thinks};
    t->choice[i].rules = &c->rules;
    t->choice[i].ends = m->text->ends.data; // also with ignore_eos: after the end of a document nothing may follow
    t->choice[i].end_count = m->text->ends.count;
  }
}

static bool needs_ends(const ServedModel *m, const char *field, Refusal *f) {
  if (m->text->ends.count) return true;
  refusal_set(f, 400, "not_built", field, "%s needs a model that ends its texts, and this one has no token for it",
              field);
  return false;
}

static int refuse_schema(const Error *error, const char *field, Refusal *f) {
  const char *code = error->code == GRAMMAR_NOT_BUILT ? "not_built" : "invalid_value";
  return refusal_set(f, 400, code, field, "%s", error->message);
}

// ---- response_format

#define WHERE "response_format.json_schema.schema"

// *schema: what the answer is held to, which the caller releases; NULL: nothing.
static int read_format(const json_t *format, json_t **schema, Refusal *f) {
  const char *type = json_string_value(json_object_get(format, "type"));
  *schema = NULL;
  if (!format || (type && !strcmp(type, "text"))) return 0;
  if (type && !strcmp(type, "json_object")) return *schema = json_pack("{s:s}", "type", "object"), 0;
  if (!type || strcmp(type, "json_schema") != 0)
    return refusal_set(f, 400, "invalid_value", "response_format",
                       "response_format.type must be text, json_object or json_schema");
  *schema = json_incref(json_object_get(json_object_get(format, "json_schema"), "schema"));
  if (json_is_object(*schema) || json_is_boolean(*schema)) return 0;
  return refusal_set(f, 400, "invalid_value", "response_format", WHERE " must be a schema");
}

static int compile_format(const json_t *schema, Grammar **grammar, Refusal *f) {
  Error error = {0};
  if (grammar_from_schema(grammar, schema, WHERE, &error)) return refuse_schema(&error, "response_format", f);
  return 0;
}

// ---- tools

static bool has_tool(const json_t *tools, const char *name) {
  size_t i;
  json_t *tool;
  json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
    const char *own = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    if (own && !strcmp(own, name)) return true;
  }
  return false;
}

static int read_choice(const Call *c, ToolOptions *o, Refusal *f) {
  const json_t *choice = json_object_get(c->json, "tool_choice");
  const char *word = json_string_value(choice);
  o->parallel = true;
  if (field_flag(c->json, "parallel_tool_calls", &o->parallel, f)) return -1;
  if (!choice || (word && !strcmp(word, "auto"))) return 0;
  o->choice = TOOLS_REQUIRED;
  if (word && !strcmp(word, "required")) return 0;
  o->only = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
  if (!o->only || !has_tool(c->tools, o->only))
    return refusal_set(f, 400, "invalid_value", "tool_choice",
                       "tool_choice must be auto, none, required, or a function that tools has");
  return 0;
}

static int compile_tools(const Call *c, const ToolOptions *o, Grammar **grammar, Refusal *f) {
  Error error = {0};
  return grammar_from_tools(grammar, c->tools, o, &error) ? refuse_schema(&error, "tools", f) : 0;
}

// All that the grammar follows from, but for the form of calls, which is the model's.
static char *describe(const Call *c, const json_t *schema, const ToolOptions *o) {
  json_t *all = json_pack("{s:O*, s:O*, s:i, s:b, s:s*}", "schema", schema, "tools", c->tools, "choice", (int)o->choice,
                          "parallel", (int)o->parallel, "only", o->only);
  char *text = json_dumps(all, JSON_COMPACT);
  CHECK(text);
  json_decref(all);
  return text;
}

static int compile(const Call *c, const json_t *schema, const ToolOptions *o, Grammar **grammar, Refusal *f) {
  int code = schema ? compile_format(schema, grammar, f) : 0;
  if (code || !c->tools) return code;
  grammar_free(*grammar); // what was wrong with the schema alone is said
  *grammar = NULL;
  return compile_tools(c, o, grammar, f);
}

static int read_rules(Call *c, const ServedModel *m, const json_t *schema, Refusal *f) {
  static const ToolForm forms[] = {[CHAT_HERMES] = TOOLS_HERMES,
                                   [CHAT_LLAMA3] = TOOLS_LLAMA,
                                   [CHAT_MISTRAL] = TOOLS_MISTRAL,
                                   [CHAT_QWEN_XML] = TOOLS_QWEN_XML,
                                   [CHAT_GLM] = TOOLS_GLM};
  ToolOptions o = {.schema = schema, .where = WHERE};
  if (c->tools) o.form = forms[chat_form(m->chat)];
  if (c->tools && read_choice(c, &o, f)) return -1;
  if (!needs_ends(m, c->tools ? "tools" : "response_format", f)) return -1;
  char *text = describe(c, schema, &o);
  Grammar *grammar = grammar_store_find(m->grammars, text);
  int code = 0;
  if (!grammar && !(code = compile(c, schema, &o, &grammar, f)))
    grammar = grammar_store_add(m->grammars, text, grammar);
  if (!code) hold(c, m, grammar);
  free(text);
  return code;
}

int call_rules_read(Call *c, const ServedModel *m, Refusal *f) {
  json_t *schema;
  if (!c->chat) return 0;
  int code = read_format(json_object_get(c->json, "response_format"), &schema, f);
  if (!code && (schema || c->tools)) code = read_rules(c, m, schema, f);
  json_decref(schema);
  return code;
}
