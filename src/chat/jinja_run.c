// Running statements.
#include "chat/jinja_node.h"

static void assign(Jinja *j, JinjaScope *scope, const JinjaNode *target, JinjaValue value) {
  if (target->kind == NODE_NAME) {
    jinja_bind(j, scope, target->name, value);
    return;
  }
  if (target->kind == NODE_ATTRIBUTE) {
    JinjaValue of = jinja_eval(j, scope, target->a);
    if (j->code) return;
    if (of.kind != JINJA_NAMESPACE)
      jinja_fail(j, "%s is not a namespace; only values of those can be set", target->a->name);
    else jinja_dict_put(j, of.dict, jinja_string(j, target->name, strlen(target->name), JINJA_TEMPLATE), value);
    return;
  }
  const JinjaList *items = jinja_iterate(j, value);
  if (!j->code && items->count != target->count)
    jinja_fail(j, "%d values are given to %d names", items->count, target->count);
  for (int i = 0; i < target->count && !j->code; i++) assign(j, scope, target->items[i], items->items[i]);
}

// The text that a body puts out.
static JinjaValue capture(Jinja *j, JinjaScope *scope, const JinjaNode *body) {
  JinjaText text = {0}, *out = j->out;
  j->out = &text;
  jinja_exec(j, scope, body);
  j->out = out;
  return jinja_text_end(j, &text);
}

static JinjaValue capture_filtered(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = capture(j, jinja_scope(j, scope), node->b);
  if (!node->c || j->code || j->leaves) return v;
  const JinjaValue *outer = j->filtered;
  j->filtered = &v;
  JinjaValue result = jinja_eval(j, scope, node->c);
  j->filtered = outer;
  return result;
}

// Those of a loop's items for which its condition holds.
static const JinjaList *filter_items(Jinja *j, JinjaScope *scope, const JinjaNode *node, const JinjaList *items) {
  if (!node->count) return items;
  JinjaValue kept = jinja_list(j, items->count, JINJA_LIST);
  int n = 0;
  for (int i = 0; i < items->count && !j->code; i++) {
    JinjaScope *inner = jinja_scope(j, scope);
    assign(j, inner, node->a, items->items[i]);
    if (!j->code && jinja_truth(jinja_eval(j, inner, node->items[0]))) kept.list->items[n++] = items->items[i];
  }
  kept.list->count = n;
  return kept.list;
}

static bool exec_for(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  const JinjaList *items = jinja_iterate(j, jinja_eval(j, scope, node->b));
  items = filter_items(j, scope, node, items);
  JinjaLoop *loop = jinja_alloc(j, 1, sizeof *loop);
  *loop = (JinjaLoop){.items = items, .depth = 1};
  bool whole = false; // a body has come to its end
  for (int i = 0; i < items->count && jinja_step(j, 0) && j->leaves != NODE_BREAK; i++) {
    JinjaScope *inner = jinja_scope(j, scope);
    loop->index = i;
    j->leaves = 0;
    jinja_bind(j, inner, "loop", (JinjaValue){.kind = JINJA_LOOP, .loop = loop});
    assign(j, inner, node->a, items->items[i]);
    if (!j->code) whole |= jinja_exec(j, inner, node->c);
  }
  j->leaves = 0;
  // As in jinja2: also where break or continue has left each of them.
  if (!whole && node->d && !j->code) return jinja_exec(j, jinja_scope(j, scope), node->d);
  return !j->code;
}

JinjaValue jinja_call_macro(Jinja *j, const JinjaMacro *macro, const JinjaArguments *arguments, JinjaValue caller) {
  const JinjaNode *node = macro->node;
  JinjaScope *scope = jinja_scope(j, macro->scope);
  JinjaValue *values = jinja_alloc(j, (size_t)node->named_count, sizeof *values);
  if (!jinja_arguments(j, node->name, arguments, node->names, values, node->named_count, 0)) return jinja_undefined("");
  for (int i = 0; i < node->named_count && !j->code; i++) {
    JinjaValue v = values[i];
    if (v.kind == JINJA_ABSENT)
      v = node->named[i] ? jinja_eval(j, scope, node->named[i]) : jinja_undefined(node->names[i]);
    jinja_bind(j, scope, node->names[i], v);
  }
  if (caller.kind != JINJA_ABSENT) jinja_bind(j, scope, "caller", caller);
  JinjaValue v = jinja_enter(j) ? capture(j, scope, node->b) : jinja_undefined("");
  jinja_leave(j);
  return v;
}

static JinjaValue macro_value(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaMacro *macro = jinja_alloc(j, 1, sizeof *macro);
  *macro = (JinjaMacro){node, scope};
  return (JinjaValue){.kind = JINJA_MACRO, .macro = macro};
}

static void exec_call_block(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  const JinjaNode *call = node->a;
  JinjaValue function = jinja_eval(j, scope, call->a);
  JinjaValue *items = jinja_alloc(j, (size_t)(call->count + call->named_count), sizeof *items);
  for (int i = 0; i < call->count && !j->code; i++) items[i] = jinja_eval(j, scope, call->items[i]);
  for (int i = 0; i < call->named_count && !j->code; i++)
    items[call->count + i] = jinja_eval(j, scope, call->named[i]);
  if (j->code) return;
  JinjaArguments arguments = {items, call->count, call->names, items + call->count, call->named_count};
  if (function.kind != JINJA_MACRO) jinja_fail(j, "{%% call %%} calls something that is not a macro");
  else
    jinja_put_value(j, j->out,
                    jinja_call_macro(j, function.macro, &arguments, macro_value(j, scope, node->b)));
}

static void exec_with(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaScope *inner = jinja_scope(j, scope);
  for (int i = 0; i + 1 < node->count && !j->code; i += 2)
    assign(j, inner, node->items[i], jinja_eval(j, scope, node->items[i + 1]));
  if (!j->code) jinja_exec(j, inner, node->b);
}

static void exec_node(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v;
  switch (node->kind) {
  case NODE_BODY:
    for (int i = 0; i < node->count; i++)
      if (!jinja_exec(j, scope, node->items[i])) return;
    return;
  case NODE_TEXT: jinja_put_string(j, j->out, node->value.string); return;
  case NODE_OUTPUT:
    v = jinja_eval(j, scope, node->a);
    if (!j->code) jinja_put_value(j, j->out, v);
    return;
  case NODE_IF:
    if (jinja_truth(jinja_eval(j, scope, node->a))) jinja_exec(j, scope, node->b);
    else if (node->c && !j->code) jinja_exec(j, scope, node->c);
    return;
  case NODE_FOR: exec_for(j, scope, node); return;
  case NODE_SET:
    v = jinja_eval(j, scope, node->b);
    if (!j->code) assign(j, scope, node->a, v);
    return;
  case NODE_SET_BLOCK:
    v = capture_filtered(j, scope, node);
    if (!j->code) assign(j, scope, node->a, v);
    return;
  case NODE_MACRO: jinja_bind(j, scope, node->name, macro_value(j, scope, node)); return;
  case NODE_CALL_BLOCK: exec_call_block(j, scope, node); return;
  case NODE_FILTER_BLOCK:
    v = capture_filtered(j, scope, node);
    if (!j->code) jinja_put_value(j, j->out, v);
    return;
  case NODE_WITH: exec_with(j, scope, node); return;
  case NODE_BREAK:
  case NODE_CONTINUE: j->leaves = node->kind; return;
  default: CHECK(false, "no statement");
  }
}

bool jinja_exec(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  if (jinja_enter(j) && jinja_step(j, 0)) {
    j->line = node->line;
    exec_node(j, scope, node);
  }
  jinja_leave(j);
  return !j->code && !j->leaves;
}

// An item of a list: a message, of which some texts are words of the template (its role).
static JinjaValue item_value(Jinja *j, const JinjaVariable *v, int i) {
  const json_t *item = json_array_get(v->value, (size_t)i);
  const char *key;
  json_t *value;
  if (!json_is_object(item) || !v->own) return jinja_from_json(j, item, i);
  JinjaValue dict = jinja_dict(j);
  json_object_foreach((json_t *)(uintptr_t)item, key, value)
    jinja_dict_append(j, dict.dict, jinja_string(j, key, strlen(key), i),
                      jinja_from_json(j, value, v->own(key, value) ? JINJA_TEMPLATE : i));
  return dict;
}

static JinjaValue variable_value(Jinja *j, const JinjaVariable *v) {
  if (!v->list || !json_is_array(v->value)) return jinja_from_json(j, v->value, v->origin);
  JinjaValue list = jinja_list(j, (int)json_array_size(v->value), JINJA_LIST);
  for (int i = 0; i < list.list->count; i++) list.list->items[i] = item_value(j, v, i);
  return list;
}

int jinja_run(const JinjaTemplate *t, const JinjaVariable *variables, int count, const JinjaLimits *limits,
              JinjaOutput *output, Error *error) {
  JinjaText text = {0};
  Jinja j = {.template = t, .limits = limits ? *limits : (JinjaLimits){0}, .error = error, .out = &text, .line = 1};
  if (!j.limits.steps) j.limits.steps = 20000000;
  if (!j.limits.memory) j.limits.memory = (size_t)256 << 20;
  if (!j.limits.output) j.limits.output = (size_t)64 << 20;
  j.globals = jinja_scope(&j, NULL);
  for (int i = 0; i < count && !j.code; i++)
    jinja_bind(&j, j.globals, variables[i].name, variable_value(&j, &variables[i]));
  if (!j.code) jinja_exec(&j, jinja_scope(&j, j.globals), t->body);
  if (!j.code) {
    size_t before = (size_t)output->text.count;
    if (text.bytes.count) bytes_append(&output->text, text.bytes.data, (size_t)text.bytes.count);
    for (int i = 0; i < text.parts.count; i++)
      vec_push(&output->parts, (JinjaPart){text.parts.data[i].end + before, text.parts.data[i].origin});
  }
  vec_free(&text.bytes);
  vec_free(&text.parts);
  arena_free(&j.arena);
  if (j.locale) freelocale(j.locale);
  return j.code;
}

void jinja_output_free(JinjaOutput *output) {
  vec_free(&output->text);
  vec_free(&output->parts);
}
