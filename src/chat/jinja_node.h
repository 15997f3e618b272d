// Tokens and nodes of templates. For the files of the interpreter only.
#pragma once
#include "chat/jinja_value.h"

typedef enum JinjaTokenKind {
  TOKEN_DATA,
  TOKEN_VARIABLE_BEGIN, // {{
  TOKEN_VARIABLE_END,
  TOKEN_BLOCK_BEGIN,    // {%
  TOKEN_BLOCK_END,
  TOKEN_NAME,
  TOKEN_STRING,         // text: what it stands for
  TOKEN_INTEGER,
  TOKEN_REAL,
  TOKEN_OPERATOR,
  TOKEN_END
} JinjaTokenKind;

typedef struct JinjaToken {
  JinjaTokenKind kind;
  int line;
  const char *text; // (bytes) in the template's source or arena
  size_t bytes;
} JinjaToken;
typedef Vec(JinjaToken) JinjaTokenVector;

// Cuts t->source into tokens, the last of which is TOKEN_END. The caller frees them, also after an error.
int jinja_lex(JinjaTemplate *t, JinjaTokenVector *tokens, Error *error);

typedef enum JinjaNodeKind {
  // Expressions
  NODE_CONSTANT,  // value
  NODE_NAME,      // name
  NODE_LIST,      // items
  NODE_TUPLE,     // items
  NODE_DICT,      // items: key, value, key, value …
  NODE_NOT,       // a
  NODE_MINUS,     // a
  NODE_PLUS,      // a
  NODE_BINARY,    // a op b
  NODE_AND,       // a, b
  NODE_OR,        // a, b
  NODE_COMPARE,   // items, and ops between them: items[0] ops[0] items[1] ops[1] …
  NODE_CONCAT,    // items
  NODE_CONDITION, // a if b else c (NULL: undefined)
  NODE_ATTRIBUTE, // a.name
  NODE_ITEM,      // a[b]
  NODE_SLICE,     // a[b:c:d], each perhaps NULL
  NODE_CALL,      // a(items, names=named)
  NODE_FILTER,    // a|name(items, names=named); a NULL: what the block has put out
  NODE_TEST,      // a is name(items)
  // Statements
  NODE_BODY,         // items
  NODE_TEXT,         // value
  NODE_OUTPUT,       // a
  NODE_IF,           // a: condition, b: body, c: else, perhaps NULL
  NODE_FOR,          // a: target, b: over, c: body, d: else or NULL, items[0]: condition, if count
  NODE_SET,          // a: target (NAME, TUPLE, ATTRIBUTE of a namespace), b: value
  NODE_SET_BLOCK,    // a: target, b: body, c: filters or NULL
  NODE_MACRO,        // name, names: parameters, named: defaults (NULL: none), b: body
  NODE_CALL_BLOCK,   // a: call, b: macro of the block
  NODE_FILTER_BLOCK, // c: filters, b: body
  NODE_WITH,         // items: target, value, target, value …; b: body
  NODE_BREAK,
  NODE_CONTINUE
} JinjaNodeKind;

enum {
  ARITHMETIC_ADD,
  ARITHMETIC_SUBTRACT,
  ARITHMETIC_MULTIPLY,
  ARITHMETIC_DIVIDE,
  ARITHMETIC_FLOOR,
  ARITHMETIC_MODULO,
  ARITHMETIC_POWER
};
enum {
  COMPARE_EQUAL,
  COMPARE_UNEQUAL,
  COMPARE_LESS,
  COMPARE_LESS_EQUAL,
  COMPARE_GREATER,
  COMPARE_GREATER_EQUAL,
  COMPARE_IN,
  COMPARE_NOT_IN
};

typedef struct JinjaNode {
  JinjaNodeKind kind;
  int line, op;
  const char *name; // interned
  JinjaValue value;
  struct JinjaNode *a, *b, *c, *d;
  struct JinjaNode **items;
  int count;
  const char **names;
  struct JinjaNode **named;
  int named_count;
  int *ops;
} JinjaNode;
