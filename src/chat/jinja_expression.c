// Templates to trees: expressions, with the precedence of jinja2.
#include "chat/jinja_parser.h"
#include <errno.h>
#include <stdlib.h>

static JinjaNode *parse_or(JinjaParser *p);
static JinjaNode *parse_unary(JinjaParser *p, bool filters);

static JinjaNode *node_of(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a, JinjaNode *b) {
  JinjaNode *n = jinja_node(p, kind);
  n->a = a;
  n->b = b;
  return n;
}

JinjaValue jinja_constant(JinjaParser *p, const char *text, size_t bytes) {
  JinjaString *s = arena_new(&p->t->arena, JinjaString);
  *s = (JinjaString){.text = text, .bytes = bytes, .origin = JINJA_TEMPLATE};
  return (JinjaValue){.kind = JINJA_STRING, .string = s};
}

static JinjaNode *constant(JinjaParser *p, JinjaValue value) {
  JinjaNode *n = jinja_node(p, NODE_CONSTANT);
  n->value = value;
  jinja_next(p);
  return n;
}

static JinjaNode *parse_number(JinjaParser *p) {
  const JinjaToken *t = p->token;
  char text[64];
  size_t n = 0;
  for (size_t i = 0; i < t->bytes && n + 1 < sizeof text; i++)
    if (t->text[i] != '_') text[n++] = t->text[i];
  text[n] = 0;
  if (t->kind == TOKEN_REAL) return constant(p, jinja_real(strtod(text, NULL)));
  int base = n > 2 && text[0] == '0' && strchr("xX", text[1]) ? 16
             : n > 2 && text[0] == '0' && strchr("oO", text[1]) ? 8
             : n > 2 && text[0] == '0' && strchr("bB", text[1]) ? 2 : 10;
  char *end;
  errno = 0;
  long long value = strtoll(text + (base == 10 ? 0 : 2), &end, base);
  if (errno || *end) jinja_no(p, "%s is not a whole number of 64 bits", text);
  return constant(p, jinja_integer(value));
}

static JinjaNode *parse_strings(JinjaParser *p) { // that stand next to each other are one
  ByteVector v = {0};
  JinjaNode *n = jinja_node(p, NODE_CONSTANT);
  for (; p->token->kind == TOKEN_STRING; jinja_next(p)) bytes_append(&v, p->token->text, p->token->bytes);
  char *copy = arena_alloc(&p->t->arena, (size_t)v.count + 1);
  if (v.count) memcpy(copy, v.data, (size_t)v.count);
  n->value = jinja_constant(p, copy, (size_t)v.count);
  vec_free(&v);
  return n;
}

static JinjaNode *parse_list(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_LIST);
  JinjaNodeVector v = {0};
  while (!p->code && !jinja_at(p, "]")) {
    if (v.count) jinja_expect(p, ",");
    if (jinja_at(p, "]")) break;
    vec_push(&v, jinja_parse_expression(p));
  }
  jinja_expect(p, "]");
  jinja_set_items(p, n, &v);
  return n;
}

static JinjaNode *parse_dict(JinjaParser *p) {
  JinjaNode *n = jinja_node(p, NODE_DICT);
  JinjaNodeVector v = {0};
  while (!p->code && !jinja_at(p, "}")) {
    if (v.count) jinja_expect(p, ",");
    if (jinja_at(p, "}")) break;
    vec_push(&v, jinja_parse_expression(p));
    jinja_expect(p, ":");
    vec_push(&v, jinja_parse_expression(p));
  }
  jinja_expect(p, "}");
  jinja_set_items(p, n, &v);
  return n;
}

static JinjaNode *parse_primary(JinjaParser *p) {
  switch (p->token->kind) {
  case TOKEN_NAME: {
    bool yes = jinja_at_name(p, "true") || jinja_at_name(p, "True");
    if (yes || jinja_at_name(p, "false") || jinja_at_name(p, "False")) return constant(p, jinja_bool(yes));
    if (jinja_at_name(p, "none") || jinja_at_name(p, "None")) return constant(p, jinja_none());
    JinjaNode *n = jinja_node(p, NODE_NAME);
    n->name = jinja_expect_name(p);
    return n;
  }
  case TOKEN_STRING: return parse_strings(p);
  case TOKEN_INTEGER:
  case TOKEN_REAL: return parse_number(p);
  default: break;
  }
  if (jinja_take(p, "[")) return parse_list(p);
  if (jinja_take(p, "{")) return parse_dict(p);
  if (jinja_take(p, "(")) {
    JinjaNode *n = jinja_at(p, ")") ? jinja_node(p, NODE_TUPLE) : jinja_parse_tuple(p, false);
    jinja_expect(p, ")");
    return n;
  }
  if (p->token->kind == TOKEN_OPERATOR) jinja_no(p, "\"%.*s\" stands where a value should", (int)p->token->bytes,
                                                 p->token->text);
  else jinja_no(p, "a value is missing");
  return jinja_node(p, NODE_CONSTANT);
}

// The arguments of a call, after its bracket.
static void parse_arguments(JinjaParser *p, JinjaNode *n) {
  enum { MOST = 100 };
  JinjaNodeVector v = {0};
  n->names = arena_array(&p->t->arena, const char *, MOST);
  n->named = arena_array(&p->t->arena, JinjaNode *, MOST);
  for (bool first = true; !p->code && !jinja_at(p, ")"); first = false) {
    if (!first) jinja_expect(p, ",");
    if (jinja_at(p, ")")) break;
    if (jinja_at(p, "*") || jinja_at(p, "**")) jinja_no(p, "arguments with * are not built");
    if (p->token->kind == TOKEN_NAME && p->token[1].bytes == 1 && p->token[1].text[0] == '=') {
      if (n->named_count == MOST) jinja_no(p, "a call has over %d arguments", MOST);
      if (p->code) break;
      n->names[n->named_count] = jinja_expect_name(p);
      jinja_next(p);
      n->named[n->named_count++] = jinja_parse_expression(p);
    } else if (n->named_count) jinja_no(p, "an argument without a name comes after one with a name");
    else vec_push(&v, jinja_parse_expression(p));
  }
  jinja_expect(p, ")");
  jinja_set_items(p, n, &v);
}

static JinjaNode *parse_subscript(JinjaParser *p, JinjaNode *of) {
  JinjaNode *part[3] = {0};
  int colons = 0;
  while (!p->code && !jinja_at(p, "]")) {
    if (jinja_take(p, ":")) {
      if (++colons > 2) jinja_no(p, "a slice has too many colons");
    } else if (jinja_at(p, ",")) jinja_no(p, "several subscripts are not built");
    else if (part[colons]) jinja_no(p, "] is missing");
    else part[colons] = jinja_parse_expression(p);
  }
  jinja_expect(p, "]");
  if (!colons && !part[0]) jinja_no(p, "a subscript is empty");
  JinjaNode *n = node_of(p, colons ? NODE_SLICE : NODE_ITEM, of, part[0]);
  n->c = part[1];
  n->d = part[2];
  return n;
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *n) {
  for (int chain = 0; !p->code; chain++) {
    if (chain == PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
    if (jinja_take(p, ".")) {
      if (p->token->kind == TOKEN_INTEGER) {
        n = node_of(p, NODE_ITEM, n, NULL);
        n->b = parse_number(p);
      } else {
        n = node_of(p, NODE_ATTRIBUTE, n, NULL);
        n->name = jinja_expect_name(p);
      }
    } else if (jinja_take(p, "[")) n = parse_subscript(p, n);
    else if (jinja_take(p, "(")) {
      n = node_of(p, NODE_CALL, n, NULL);
      parse_arguments(p, n);
    } else break;
  }
  return n;
}

JinjaNode *jinja_parse_filters(JinjaParser *p, JinjaNode *of) {
  JinjaNode *n = of;
  for (int chain = 0; !p->code && (jinja_take(p, "|") || (!of && !chain)); chain++) {
    if (chain == PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
    n = node_of(p, NODE_FILTER, n, NULL);
    n->name = jinja_expect_name(p);
    if (!p->code && !jinja_has_filter(n->name)) jinja_no(p, "the filter \"%s\" is not built", n->name);
    if (jinja_take(p, "(")) parse_arguments(p, n);
  }
  return n;
}

static JinjaNode *parse_test(JinjaParser *p, JinjaNode *of) {
  bool negated = jinja_take_name(p, "not");
  JinjaNode *n = node_of(p, NODE_TEST, of, NULL);
  n->name = jinja_expect_name(p);
  if (!p->code && !jinja_has_test(n->name)) jinja_no(p, "the test \"%s\" is not built", n->name);
  JinjaTokenKind k = p->token->kind;
  if (jinja_take(p, "(")) parse_arguments(p, n);
  else if ((k == TOKEN_NAME && !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
            !jinja_at_name(p, "is") && !jinja_at_name(p, "if") && !jinja_at_name(p, "in") &&
            !jinja_at_name(p, "not")) ||
           k == TOKEN_STRING || k == TOKEN_INTEGER || k == TOKEN_REAL || jinja_at(p, "[") || jinja_at(p, "{")) {
    JinjaNodeVector v = {0};
    vec_push(&v, parse_postfix(p, parse_primary(p)));
    jinja_set_items(p, n, &v);
  }
  return negated ? node_of(p, NODE_NOT, n, NULL) : n;
}

static JinjaNode *parse_filter_expression(JinjaParser *p, JinjaNode *n) {
  for (int chain = 0; !p->code; chain++) {
    if (chain == PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
    if (jinja_at(p, "|")) n = jinja_parse_filters(p, n);
    else if (jinja_take_name(p, "is")) n = parse_test(p, n);
    else if (jinja_take(p, "(")) {
      n = node_of(p, NODE_CALL, n, NULL);
      parse_arguments(p, n);
    } else break;
  }
  return n;
}

static JinjaNode *parse_unary(JinjaParser *p, bool filters) {
  JinjaNode *n;
  if (++p->depth > PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
  if (p->code) n = jinja_node(p, NODE_CONSTANT);
  else if (jinja_take(p, "-")) n = node_of(p, NODE_MINUS, parse_unary(p, false), NULL);
  else if (jinja_take(p, "+")) n = node_of(p, NODE_PLUS, parse_unary(p, false), NULL);
  else n = parse_primary(p);
  n = parse_postfix(p, n);
  if (filters) n = parse_filter_expression(p, n);
  p->depth--;
  return n;
}

static JinjaNode *binary(JinjaParser *p, int op, JinjaNode *a, JinjaNode *b, int chain) {
  if (chain == 1000) jinja_no(p, "an expression has too many terms");
  JinjaNode *n = node_of(p, NODE_BINARY, a, b);
  n->op = op;
  return n;
}

static JinjaNode *parse_power(JinjaParser *p) {
  JinjaNode *n = parse_unary(p, true);
  for (int chain = 0; !p->code && jinja_take(p, "**"); chain++)
    n = binary(p, ARITHMETIC_POWER, n, parse_unary(p, true), chain);
  return n;
}

static JinjaNode *parse_product(JinjaParser *p) {
  static const char *const words[] = {"*", "/", "//", "%"};
  static const int ops[] = {ARITHMETIC_MULTIPLY, ARITHMETIC_DIVIDE, ARITHMETIC_FLOOR, ARITHMETIC_MODULO};
  JinjaNode *n = parse_power(p);
  for (int chain = 0; !p->code; chain++) {
    int k = 0;
    while (k < 4 && !jinja_at(p, words[k])) k++;
    if (k == 4) break;
    jinja_next(p);
    n = binary(p, ops[k], n, parse_power(p), chain);
  }
  return n;
}

static JinjaNode *parse_concat(JinjaParser *p) {
  JinjaNode *n = parse_product(p);
  if (!jinja_at(p, "~")) return n;
  JinjaNodeVector v = {0};
  vec_push(&v, n);
  while (!p->code && jinja_take(p, "~")) vec_push(&v, parse_product(p));
  n = jinja_node(p, NODE_CONCAT);
  jinja_set_items(p, n, &v);
  return n;
}

static JinjaNode *parse_sum(JinjaParser *p) {
  JinjaNode *n = parse_concat(p);
  for (int chain = 0; !p->code && (jinja_at(p, "+") || jinja_at(p, "-")); chain++) {
    int op = jinja_at(p, "+") ? ARITHMETIC_ADD : ARITHMETIC_SUBTRACT;
    jinja_next(p);
    n = binary(p, op, n, parse_concat(p), chain);
  }
  return n;
}

static int comparison(JinjaParser *p) {
  static const char *const words[] = {"==", "!=", "<", "<=", ">", ">="};
  for (int k = 0; k < 6; k++)
    if (jinja_take(p, words[k])) return k;
  if (jinja_take_name(p, "in")) return COMPARE_IN;
  if (jinja_at_name(p, "not") && p->token[1].kind == TOKEN_NAME && p->token[1].bytes == 2 &&
      !memcmp(p->token[1].text, "in", 2)) {
    jinja_next(p);
    jinja_next(p);
    return COMPARE_NOT_IN;
  }
  return -1;
}

static JinjaNode *parse_compare(JinjaParser *p) {
  JinjaNode *n = parse_sum(p);
  JinjaNodeVector v = {0};
  Vec(int) ops = {0};
  for (int op; !p->code && (op = comparison(p)) >= 0;) {
    if (!v.count) vec_push(&v, n);
    vec_push(&ops, op);
    vec_push(&v, parse_sum(p));
  }
  if (!v.count) return n;
  n = jinja_node(p, NODE_COMPARE);
  jinja_set_items(p, n, &v);
  n->ops = arena_array(&p->t->arena, int, ops.count);
  memcpy(n->ops, ops.data, sizeof(int) * (size_t)ops.count);
  vec_free(&ops);
  return n;
}

static JinjaNode *parse_not(JinjaParser *p) {
  int depth = p->depth, nots = 0;
  while (jinja_take_name(p, "not")) nots++;
  JinjaNode *n = parse_compare(p);
  if (nots > PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
  for (; nots > 0 && !p->code; nots--) n = node_of(p, NODE_NOT, n, NULL);
  p->depth = depth;
  return n;
}

static JinjaNode *parse_and(JinjaParser *p) {
  JinjaNode *n = parse_not(p);
  for (int chain = 0; !p->code && jinja_take_name(p, "and"); chain++) {
    if (chain == 400) jinja_no(p, "an expression has too many terms");
    n = node_of(p, NODE_AND, n, parse_not(p));
  }
  return n;
}

static JinjaNode *parse_or(JinjaParser *p) {
  JinjaNode *n = parse_and(p);
  for (int chain = 0; !p->code && jinja_take_name(p, "or"); chain++) {
    if (chain == 400) jinja_no(p, "an expression has too many terms");
    n = node_of(p, NODE_OR, n, parse_and(p));
  }
  return n;
}

JinjaNode *jinja_parse_expression(JinjaParser *p) {
  if (++p->depth > PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
  JinjaNode *n = p->code ? jinja_node(p, NODE_CONSTANT) : parse_or(p);
  for (int chain = 0; !p->code && jinja_take_name(p, "if"); chain++) {
    if (chain == PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
    JinjaNode *condition = jinja_node(p, NODE_CONDITION);
    condition->a = n;
    condition->b = parse_or(p);
    if (jinja_take_name(p, "else")) condition->c = jinja_parse_expression(p);
    n = condition;
  }
  p->depth--;
  return n;
}

JinjaNode *jinja_parse_tuple(JinjaParser *p, bool no_condition) {
  JinjaNodeVector v = {0};
  bool tuple = false;
  do {
    if (v.count && (p->token->kind == TOKEN_VARIABLE_END || p->token->kind == TOKEN_BLOCK_END || jinja_at(p, ")")))
      break;
    if (no_condition && ++p->depth > PARSE_DEPTH) jinja_no(p, "an expression is nested too deep");
    vec_push(&v, no_condition ? parse_or(p) : jinja_parse_expression(p));
    p->depth -= no_condition;
  } while (!p->code && jinja_take(p, ",") && (tuple = true));
  JinjaNode *n = v.data[0];
  if (tuple) jinja_set_items(p, n = jinja_node(p, NODE_TUPLE), &v);
  vec_free(&v);
  return n;
}
