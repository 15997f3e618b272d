// Compiling JSON schemas: what the files that do it share.
#pragma once
#include "grammar/grammar_nodes.h"

enum { SCHEMA_PATH = 512, SCHEMA_DEPTH = 200, SCHEMA_NODES = 200000, SCHEMA_CELLS = 16 << 20 };

typedef struct SchemaMemo { const json_t *schema; int node; } SchemaMemo;

typedef struct Schema {
  Grammar *g;
  const json_t *root;
  const char *where;
  char path[SCHEMA_PATH]; // of what is being compiled
  int depth;
  Vec(SchemaMemo) memo;
  Vec(json_t *) owned;    // schemas that were made by merging; alive until the end, as memo has their addresses
  int *slots;             // memo by address, open addressing; -1: empty
  int slot_count;
  Error *error;
} Schema;

// "PATH sentence": for what is not a schema, and for a schema that plait has not built. Both return the code.
int schema_refuse(Schema *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
int schema_not_built(Schema *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends ".name" to the path; the end that schema_leave takes away again.
size_t schema_enter(Schema *s, const char *name);
void schema_leave(Schema *s, size_t end);

// Adds a schema to a grammar: its node; negative: refused.
int schema_add(Grammar *g, const json_t *schema, const char *where, Error *error);
// The same of properties.KEY of one, `root`, where its references lead; `where` is the path of root.
int schema_add_property(Grammar *g, const json_t *root, const char *key, const char *where, Error *error);
// The node of a schema within one; negative: refused.
int schema_compile(Schema *s, const json_t *schema);

// schema_merge.c: a schema that allows what both allow, owned by s; NULL: refused. Both are objects.
const json_t *schema_merge(Schema *s, const json_t *a, const json_t *b);
const json_t *schema_follow(Schema *s, const json_t *reference); // what a $ref leads to; the path follows it
bool schema_is_annotation(const char *key);                      // says nothing of documents
bool schema_is_keyword(const char *key);                         // built, or refused: not unknown

// schema_value.c: the node of a constant, or of a list of them, of which `types` has the allowed kinds.
int schema_values(Schema *s, const json_t *const *values, size_t count);

// schema_string.c
int schema_string(Schema *s, const json_t *schema);
// A number of elements or characters at a key; `absent` where there is none. Negative: refused.
int schema_count(Schema *s, const json_t *schema, const char *key, int64_t absent, int64_t *count);
