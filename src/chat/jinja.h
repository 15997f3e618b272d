// An interpreter of Jinja, as far as chat templates need it: a template and variables become a text, of which each byte
// knows where it comes from. It is our own; it means what Python's jinja2 means with transformers' settings
// (trim_blocks, lstrip_blocks, loopcontrols, no autoescape, values that templates cannot change).
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "tokenizer/bpe.h"
#include <jansson.h>
#include <stdbool.h>

// Where bytes come from. Bytes that a template computes (a number in digits, quotes of JSON) are the template's.
enum { JINJA_TEMPLATE = -1, JINJA_GIVEN = -2 }; // else the number of a message; GIVEN: other variables

typedef struct JinjaPart { size_t end; int origin; } JinjaPart; // bytes from the end of the part before it to `end`
typedef Vec(JinjaPart) JinjaPartVector;
typedef struct JinjaOutput {
  ByteVector text;
  JinjaPartVector parts;
} JinjaOutput;
void jinja_output_free(JinjaOutput *output);

typedef struct JinjaTemplate {
  Arena arena;
  const char *name;
  char *source; // with \n for \r\n and \r
  struct JinjaNode *body;
  const char **names; // (name_count) distinct identifiers
  int name_count, name_capacity;
} JinjaTemplate;

// Reads a template; `name` stands for it in messages ("NAME: line N: "). PLAIT_BAD_INPUT where it is none, or has what
// is not built, by name. *t is the caller's (jinja_free).
int jinja_parse(const char *source, size_t bytes, const char *name, JinjaTemplate **t, Error *error);
void jinja_free(JinjaTemplate *t); // NULL is fine
bool jinja_names(const JinjaTemplate *t, const char *name); // does it have this identifier?

typedef struct JinjaVariable {
  const char *name;
  const json_t *value; // borrowed
  int origin;          // of its texts. Where `list` is set, item i of the array has origin i
  bool list;
  bool (*own)(const char *key, const json_t *value); // of items of a list: whether a text of theirs is the template's
} JinjaVariable;

typedef struct JinjaLimits { int64_t steps; size_t memory, output; } JinjaLimits; // 0: 2e7 steps, 256 MiB, 64 MiB

// Runs a template with variables (later ones win over earlier ones). Appends to *output. PLAIT_BAD_INPUT: what the
// template raises (raise_exception), what it cannot do, or where it exceeds a limit.
int jinja_run(const JinjaTemplate *t, const JinjaVariable *variables, int count, const JinjaLimits *limits,
              JinjaOutput *output, Error *error);
