// Shared by the two files that parse templates. For the files of the interpreter only.
#pragma once
#include "chat/jinja_node.h"

enum { PARSE_DEPTH = 150 }; // of nested blocks and expressions

typedef Vec(JinjaNode *) JinjaNodeVector;
typedef struct JinjaParser {
  JinjaTemplate *t;
  const JinjaToken *token;
  int depth, loops;
  int opened; // line of the tag that was read last
  int code; // not PLAIT_OK: it has failed
  Error *error;
} JinjaParser;

int jinja_no(JinjaParser *p, const char *format, ...) __attribute__((format(printf, 2, 3))); // fails: "NAME: line N: "
JinjaNode *jinja_node(JinjaParser *p, JinjaNodeKind kind);
const char *jinja_intern(JinjaTemplate *t, const char *text, size_t bytes);
JinjaValue jinja_constant(JinjaParser *p, const char *text, size_t bytes); // a string of the template
void jinja_set_items(JinjaParser *p, JinjaNode *n, JinjaNodeVector *v);    // frees v

void jinja_next(JinjaParser *p);
bool jinja_at(const JinjaParser *p, const char *operator);
bool jinja_at_name(const JinjaParser *p, const char *name);
bool jinja_take(JinjaParser *p, const char *operator);
bool jinja_take_name(JinjaParser *p, const char *name);
void jinja_expect(JinjaParser *p, const char *operator);
const char *jinja_expect_name(JinjaParser *p);
void jinja_expect_kind(JinjaParser *p, JinjaTokenKind kind, const char *what);

JinjaNode *jinja_parse_expression(JinjaParser *p);
// Several with commas between them are a tuple. no_condition: `if` ends it, as in a loop.
JinjaNode *jinja_parse_tuple(JinjaParser *p, bool no_condition);
// |a|b(…) after what they take; NULL: what a block puts out, where the first | may be missing.
JinjaNode *jinja_parse_filters(JinjaParser *p, JinjaNode *of);
