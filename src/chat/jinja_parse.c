// Templates to trees: statements. (Expressions: jinja_expression.c.)
#include "chat/jinja_parser.h"
#include <stdlib.h>

int jinja_no(JinjaParser *p, const char *format, ...) {
  if (p->code) return p->code;
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return p->code = error_set(p->error, PLAIT_BAD_INPUT, "%s: line %d: %s", p->t->name, p->token->line, text);
}

JinjaNode *jinja_node(JinjaParser *p, JinjaNodeKind kind) {
  JinjaNode *n = arena_new(&p->t->arena, JinjaNode);
  n->kind = kind;
  n->line = p->token->line;
  return n;
}

const char *jinja_intern(JinjaTemplate *t, const char *text, size_t bytes) {
  for (int i = 0; i < t->name_count; i++)
    if (strlen(t->names[i]) == bytes && !memcmp(t->names[i], text, bytes)) return t->names[i];
  if (t->name_count == t->name_capacity) {
    t->name_capacity = t->name_capacity ? 2 * t->name_capacity : 64;
    t->names = xrealloc(t->names, sizeof *t->names * (size_t)t->name_capacity);
  }
  char *name = arena_alloc(&t->arena, bytes + 1);
  memcpy(name, text, bytes);
  return t->names[t->name_count++] = name;
}

bool jinja_names(const JinjaTemplate *t, const char *name) {
  for (int i = 0; i < t->name_count; i++)
    if (!strcmp(t->names[i], name)) return true;
  return false;
}

void jinja_next(JinjaParser *p) {
  if (p->token->kind != TOKEN_END) p->token++;
}

static bool token_is(const JinjaToken *t, JinjaTokenKind kind, const char *text) {
  return t->kind == kind && t->bytes == strlen(text) && !memcmp(t->text, text, t->bytes);
}

bool jinja_at(const JinjaParser *p, const char *operator) { return token_is(p->token, TOKEN_OPERATOR, operator); }

bool jinja_at_name(const JinjaParser *p, const char *name) { return token_is(p->token, TOKEN_NAME, name); }

bool jinja_take(JinjaParser *p, const char *operator) {
  if (!jinja_at(p, operator)) return false;
  return jinja_next(p), true;
}

bool jinja_take_name(JinjaParser *p, const char *name) {
  if (!jinja_at_name(p, name)) return false;
  return jinja_next(p), true;
}

// For messages: the token that stands where something else should.
static int expected(JinjaParser *p, const char *what) {
  static const char *const kinds[] = {
      "text", "{{", "}}", "{%", "%}", 0, "a string", 0, 0, 0, "the end of the template"};
  const JinjaToken *t = p->token;
  if (kinds[t->kind]) return jinja_no(p, "%s is expected, not %s", what, kinds[t->kind]);
  return jinja_no(p, "%s is expected, not \"%.*s\"", what, (int)(t->bytes < 40 ? t->bytes : 40), t->text);
}

void jinja_expect(JinjaParser *p, const char *operator) {
  if (!jinja_take(p, operator)) expected(p, operator);
}

const char *jinja_expect_name(JinjaParser *p) {
  if (p->token->kind != TOKEN_NAME) return expected(p, "a name"), "";
  const char *name = jinja_intern(p->t, p->token->text, p->token->bytes);
  jinja_next(p);
  return name;
}

void jinja_expect_kind(JinjaParser *p, JinjaTokenKind kind, const char *what) {
  if (p->token->kind != kind) expected(p, what);
  else jinja_next(p);
}

static void end_tag(JinjaParser *p) { jinja_expect_kind(p, TOKEN_BLOCK_END, "%}"); }

static void add_item(JinjaParser *p, JinjaNodeVector *v, JinjaNode *n) {
  if (n && !p->code) vec_push(v, n);
}

void jinja_set_items(JinjaParser *p, JinjaNode *n, JinjaNodeVector *v) {
  n->items = arena_array(&p->t->arena, JinjaNode *, v->count + 1);
  for (int i = 0; i < v->count; i++) n->items[i] = v->data[i];
  n->count = v->count;
  vec_free(v);
}

static JinjaNode *parse_statement(JinjaParser *p);

// Statements up to a tag whose name is one of `ends` ("endif|else|elif"), which stays; the {% before it is taken.
static JinjaNode *parse_body(JinjaParser *p, const char *ends) {
  JinjaNode *body = jinja_node(p, NODE_BODY), *n;
  JinjaNodeVector v = {0};
  int opened = p->opened;
  if (++p->depth > PARSE_DEPTH) jinja_no(p, "blocks are nested too deep");
  for (bool open = true; open && !p->code;) {
    const JinjaToken *t = p->token;
    switch (t->kind) {
    case TOKEN_DATA:
      n = jinja_node(p, NODE_TEXT);
      n->value = jinja_constant(p, t->text, t->bytes);
      add_item(p, &v, n);
      jinja_next(p);
      break;
    case TOKEN_VARIABLE_BEGIN:
      jinja_next(p);
      n = jinja_node(p, NODE_OUTPUT);
      n->a = jinja_parse_tuple(p, false);
      jinja_expect_kind(p, TOKEN_VARIABLE_END, "}}");
      add_item(p, &v, n);
      break;
    case TOKEN_BLOCK_BEGIN:
      jinja_next(p);
      if (*ends && p->token->kind == TOKEN_NAME) {
        for (const char *e = ends; open && *e; e += strcspn(e, "|"), e += *e == '|')
          if (strcspn(e, "|") == p->token->bytes && !memcmp(e, p->token->text, p->token->bytes)) open = false;
      }
      if (open) add_item(p, &v, parse_statement(p));
      break;
    default:
      if (t->kind == TOKEN_END && !*ends) open = false;
      else if (t->kind == TOKEN_END) jinja_no(p, "the template ends before %s of line %d", ends, opened);
      else expected(p, "text or a tag");
    }
  }
  p->depth--;
  jinja_set_items(p, body, &v);
  return body;
}

static JinjaNode *parse_if(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_IF);
  n->a = jinja_parse_tuple(p, false);
  end_tag(p);
  n->b = parse_body(p, "elif|else|endif");
  if (++p->depth > PARSE_DEPTH) jinja_no(p, "blocks are nested too deep"); // of many elif
  if (jinja_take_name(p, "elif")) n->c = parse_if(p);
  else if (jinja_take_name(p, "else")) {
    end_tag(p);
    n->c = parse_body(p, "endif");
    jinja_next(p);
    end_tag(p);
  } else {
    jinja_next(p);
    end_tag(p);
  }
  p->depth--;
  return n;
}

// A name, a tuple of names, or an attribute of a namespace.
static JinjaNode *parse_target(JinjaParser *p, bool attribute) {
  JinjaNodeVector v = {0};
  bool tuple = false, bracket = jinja_take(p, "(");
  do {
    if (v.count && jinja_at(p, ")")) break;
    if (v.count && jinja_at_name(p, "in")) break;
    JinjaNode *n = jinja_node(p, NODE_NAME);
    n->name = jinja_expect_name(p);
    if (attribute && jinja_take(p, ".")) {
      JinjaNode *of = n;
      n = jinja_node(p, NODE_ATTRIBUTE);
      n->a = of;
      n->name = jinja_expect_name(p);
    }
    vec_push(&v, n);
  } while (!p->code && jinja_take(p, ",") && (tuple = true));
  if (bracket) jinja_expect(p, ")");
  JinjaNode *n = v.data[0];
  if (tuple) jinja_set_items(p, n = jinja_node(p, NODE_TUPLE), &v);
  vec_free(&v);
  return n;
}

static JinjaNode *parse_for(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_FOR);
  n->a = parse_target(p, false);
  if (!jinja_take_name(p, "in")) expected(p, "in");
  n->b = jinja_parse_tuple(p, true);
  if (jinja_take_name(p, "if")) {
    n->items = arena_array(&p->t->arena, JinjaNode *, 1);
    n->items[0] = jinja_parse_expression(p);
    n->count = 1;
  }
  if (jinja_at_name(p, "recursive")) jinja_no(p, "a recursive loop is not built");
  end_tag(p);
  p->loops++;
  n->c = parse_body(p, "endfor|else");
  p->loops--;
  if (jinja_take_name(p, "else")) {
    end_tag(p);
    n->d = parse_body(p, "endfor");
  }
  jinja_next(p);
  end_tag(p);
  return n;
}

static JinjaNode *parse_set(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_SET);
  n->a = parse_target(p, true);
  if (jinja_take(p, "=")) {
    n->b = jinja_parse_tuple(p, false);
    end_tag(p);
    return n;
  }
  n->kind = NODE_SET_BLOCK;
  if (jinja_at(p, "|")) n->c = jinja_parse_filters(p, NULL);
  end_tag(p);
  n->b = parse_body(p, "endset");
  jinja_next(p);
  end_tag(p);
  return n;
}

// (a, b=1): parameters with defaults, of which those without come first.
static void parse_parameters(JinjaParser *p, JinjaNode *n) {
  enum { MOST = 100 };
  n->names = arena_array(&p->t->arena, const char *, MOST);
  n->named = arena_array(&p->t->arena, JinjaNode *, MOST);
  jinja_expect(p, "(");
  while (!p->code && !jinja_at(p, ")")) {
    if (n->named_count && !jinja_take(p, ",")) expected(p, ",");
    if (n->named_count == MOST) jinja_no(p, "a macro has over %d parameters", MOST);
    if (p->code) return;
    n->names[n->named_count] = jinja_expect_name(p);
    if (jinja_take(p, "=")) n->named[n->named_count] = jinja_parse_expression(p);
    else if (n->named_count && n->named[n->named_count - 1])
      jinja_no(p, "a parameter without a default comes after one with a default");
    n->named_count++;
  }
  jinja_expect(p, ")");
}

static JinjaNode *parse_macro(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_MACRO);
  int loops = p->loops;
  n->name = jinja_expect_name(p);
  parse_parameters(p, n);
  end_tag(p);
  p->loops = 0;
  n->b = parse_body(p, "endmacro");
  p->loops = loops;
  jinja_next(p);
  end_tag(p);
  return n;
}

static JinjaNode *parse_call_block(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_CALL_BLOCK), *macro = jinja_node(p, NODE_MACRO);
  int loops = p->loops;
  macro->name = "caller";
  if (jinja_at(p, "(")) parse_parameters(p, macro);
  n->a = jinja_parse_expression(p);
  if (!p->code && n->a->kind != NODE_CALL) jinja_no(p, "{%% call %%} is not followed by a call");
  end_tag(p);
  p->loops = 0;
  macro->b = parse_body(p, "endcall");
  p->loops = loops;
  jinja_next(p);
  end_tag(p);
  n->b = macro;
  return n;
}

static JinjaNode *parse_filter_block(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_FILTER_BLOCK);
  n->c = jinja_parse_filters(p, NULL);
  end_tag(p);
  n->b = parse_body(p, "endfilter");
  jinja_next(p);
  end_tag(p);
  return n;
}

static JinjaNode *parse_with(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_WITH);
  JinjaNodeVector v = {0};
  while (!p->code && p->token->kind != TOKEN_BLOCK_END) {
    if (v.count) jinja_expect(p, ",");
    JinjaNode *target = parse_target(p, false);
    jinja_expect(p, "=");
    vec_push(&v, target);
    vec_push(&v, jinja_parse_expression(p));
  }
  end_tag(p);
  jinja_set_items(p, n, &v);
  n->b = parse_body(p, "endwith");
  jinja_next(p);
  end_tag(p);
  return n;
}

static JinjaNode *parse_generation(JinjaParser *p) { // what it holds will be a target of fine-tuning
  end_tag(p);
  JinjaNode *body = parse_body(p, "endgeneration");
  jinja_next(p);
  end_tag(p);
  return body;
}

static JinjaNode *parse_leave(JinjaParser *p, JinjaNodeKind kind) {
  if (!p->loops) jinja_no(p, "break and continue stand in no loop");
  JinjaNode *n = jinja_node(p, kind);
  end_tag(p);
  return n;
}

static JinjaNode *parse_statement(JinjaParser *p) {
  p->opened = p->token->line;
  if (jinja_take_name(p, "if")) return parse_if(p);
  if (jinja_take_name(p, "for")) return parse_for(p);
  if (jinja_take_name(p, "set")) return parse_set(p);
  if (jinja_take_name(p, "macro")) return parse_macro(p);
  if (jinja_take_name(p, "call")) return parse_call_block(p);
  if (jinja_take_name(p, "filter")) return parse_filter_block(p);
  if (jinja_take_name(p, "with")) return parse_with(p);
  if (jinja_take_name(p, "generation")) return parse_generation(p);
  if (jinja_take_name(p, "break")) return parse_leave(p, NODE_BREAK);
  if (jinja_take_name(p, "continue")) return parse_leave(p, NODE_CONTINUE);
  static const char *const known[] = {"block", "extends", "include", "import", "from", "autoescape", "do", "trans",
                                      "debug"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (jinja_at_name(p, known[i])) return jinja_no(p, "the tag {%% %s %%} is not built", known[i]), NULL;
  if (p->token->kind != TOKEN_NAME) return expected(p, "the name of a tag"), NULL;
  return jinja_no(p, "there is no tag {%% %.*s %%} here", (int)(p->token->bytes < 40 ? p->token->bytes : 40),
                  p->token->text),
         NULL;
}

static char *plain_lines(const char *source, size_t bytes) {
  char *copy = xcalloc(bytes + 1, 1);
  size_t n = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
    copy[n++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (n && copy[n - 1] == '\n') n--;
  copy[n] = 0;
  return copy;
}

int jinja_parse(const char *source, size_t bytes, const char *name, JinjaTemplate **out, Error *error) {
  *out = NULL;
  if (memchr(source, 0, bytes) || utf8_prefix(source, bytes) != bytes)
    return error_set(error, PLAIT_BAD_INPUT, "%s: it is not a text in UTF-8", name);
  JinjaTemplate *t = xcalloc(1, sizeof *t);
  JinjaTokenVector tokens = {0};
  t->name = arena_strdup(&t->arena, name);
  t->source = plain_lines(source, bytes);
  int code = jinja_lex(t, &tokens, error);
  if (!code) {
    JinjaParser p = {.t = t, .token = tokens.data, .error = error};
    t->body = parse_body(&p, "");
    code = p.code;
  }
  vec_free(&tokens);
  if (code) return jinja_free(t), code;
  *out = t;
  return PLAIT_OK;
}

void jinja_free(JinjaTemplate *t) {
  if (!t) return;
  arena_free(&t->arena);
  free(t->names);
  free(t->source);
  free(t);
}
