// YAML files as small trees with line and column (libyaml's document API underneath), refusing what recipes do not
// need: duplicate keys, aliases, tags, deep nesting, several documents, NUL characters.
#pragma once
#include "base/arena.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdio.h>

enum { YAML_MAX_DEPTH = 16, YAML_MAX_BYTES = 256 << 10 };

typedef enum YamlKind { YAML_SCALAR, YAML_LIST, YAML_MAP } YamlKind;

typedef struct YamlNode {
  YamlKind kind;
  int line, column;        // from 1
  const char *text;        // scalar
  bool plain;              // scalar without quotes
  int count;               // of items
  struct YamlNode **items; // list, or values of a map
  struct YamlNode **keys;  // of a map: scalars
} YamlNode;

// Parses text; nodes live in the arena. Errors are PLAIT_BAD_INPUT "NAME:LINE:COLUMN: …". An empty document gives an
// empty plain scalar.
int yaml_tree_parse(const char *name, const char *text, size_t size, Arena *arena, YamlNode **root, Error *error);

bool yaml_is_null(const YamlNode *node); // nothing, ~ or null, unquoted
const char *yaml_shown(const YamlNode *node, Arena *arena); // a value for a message: short, one line, printable

// Scalars as a file has them: what is printed reads back as the same bits, and the same text.
enum { YAML_REAL = 40 };
void yaml_real_text(double value, char text[YAML_REAL]);
void yaml_print_real(double value, FILE *out);
void yaml_print_text(const char *text, FILE *out); // in double quotes, but for plain absolute paths
