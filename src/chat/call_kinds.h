// Which kinds of values the schema of a tool's parameter allows: where a form of calls writes texts without quotes,
// this tells texts from other JSON.
#pragma once
#include <jansson.h>

enum { CALL_TEXT = 1, CALL_NULL = 2, CALL_OTHER = 4, CALL_ALL = 7 };
// Of a schema within `root`, the parameters of the function, where references lead. CALL_ALL: it does not say.
unsigned call_kinds(const json_t *schema, const json_t *root);
// The schema that a reference within it leads to, as "#/$defs/name"; NULL: nothing.
const json_t *call_follow(const json_t *root, const char *reference);
