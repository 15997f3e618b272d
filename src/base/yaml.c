// libyaml's document, checked and copied into a tree of our own.
#include "base/yaml.h"
#include <ctype.h>
#include <string.h>
#include <yaml.h>

typedef struct Copying {
  const char *name;
  yaml_document_t *document;
  unsigned char *seen; // by node number: a second visit is an alias
  Arena *arena;
  Error *error;
} Copying;

static int refuse(Copying *c, const yaml_node_t *node, const char *why) {
  return error_set(c->error, PLAIT_BAD_INPUT, "%s:%zu:%zu: %s", c->name, node->start_mark.line + 1,
                   node->start_mark.column + 1, why);
}

static int check_tag(Copying *c, const yaml_node_t *node) {
  const char *plain = node->type == YAML_SCALAR_NODE     ? YAML_DEFAULT_SCALAR_TAG
                      : node->type == YAML_SEQUENCE_NODE ? YAML_DEFAULT_SEQUENCE_TAG
                                                         : YAML_DEFAULT_MAPPING_TAG;
  if (!node->tag || !strcmp((const char *)node->tag, plain)) return PLAIT_OK;
  return refuse(c, node, "tags (words that start with !) are not allowed here");
}

static int copy_scalar(Copying *c, const yaml_node_t *node, YamlNode *to) {
  const char *text = (const char *)node->data.scalar.value;
  if (strlen(text) != node->data.scalar.length) return refuse(c, node, "text with a NUL character is not allowed");
  to->kind = YAML_SCALAR;
  to->text = arena_strdup(c->arena, text);
  to->plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  return PLAIT_OK;
}

static int copy_node(Copying *c, int id, int depth, YamlNode **out);

static int copy_list(Copying *c, const yaml_node_t *node, int depth, YamlNode *to) {
  const yaml_node_item_t *start = node->data.sequence.items.start, *top = node->data.sequence.items.top;
  to->kind = YAML_LIST;
  to->count = (int)(top - start);
  to->items = arena_array(c->arena, YamlNode *, to->count);
  for (int i = 0; i < to->count; i++) {
    int code = copy_node(c, start[i], depth + 1, &to->items[i]);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

static int by_text(const void *a, const void *b) {
  const YamlNode *x = *(YamlNode *const *)a, *y = *(YamlNode *const *)b;
  int order = strcmp(x->text, y->text);
  if (order) return order;
  return x->line != y->line ? (x->line < y->line ? -1 : 1) : (x->column > y->column) - (x->column < y->column);
}

// Sorted, so that a hostile map with very many keys costs no more than its size.
static int refuse_duplicates(Copying *c, const YamlNode *map) {
  if (map->count < 2) return PLAIT_OK;
  YamlNode **sorted = arena_array(c->arena, YamlNode *, map->count);
  memcpy(sorted, map->keys, sizeof *sorted * (size_t)map->count);
  qsort(sorted, (size_t)map->count, sizeof *sorted, by_text);
  for (int i = 1; i < map->count; i++)
    if (!strcmp(sorted[i - 1]->text, sorted[i]->text))
      return error_set(c->error, PLAIT_BAD_INPUT, "%s:%d:%d: %s is given twice (first on line %d)", c->name,
                       sorted[i]->line, sorted[i]->column, sorted[i]->text, sorted[i - 1]->line);
  return PLAIT_OK;
}

static int copy_map(Copying *c, const yaml_node_t *node, int depth, YamlNode *to) {
  const yaml_node_pair_t *start = node->data.mapping.pairs.start, *top = node->data.mapping.pairs.top;
  to->kind = YAML_MAP;
  to->count = (int)(top - start);
  to->items = arena_array(c->arena, YamlNode *, to->count);
  to->keys = arena_array(c->arena, YamlNode *, to->count);
  for (int i = 0; i < to->count; i++) {
    int code = copy_node(c, start[i].key, depth + 1, &to->keys[i]);
    if (code < 0) return code;
    if (to->keys[i]->kind != YAML_SCALAR)
      return refuse(c, yaml_document_get_node(c->document, start[i].key), "a key must be a word");
    if ((code = copy_node(c, start[i].value, depth + 1, &to->items[i])) < 0) return code;
  }
  return refuse_duplicates(c, to);
}

static int copy_node(Copying *c, int id, int depth, YamlNode **out) {
  const yaml_node_t *node = yaml_document_get_node(c->document, id);
  if (c->seen[id]) return refuse(c, node, "anchors and aliases (&name, *name) are not allowed here");
  c->seen[id] = 1;
  if (depth > YAML_MAX_DEPTH) return refuse(c, node, "nested too deeply");
  int code = check_tag(c, node);
  if (code < 0) return code;
  *out = arena_new(c->arena, YamlNode);
  (*out)->line = (int)node->start_mark.line + 1;
  (*out)->column = (int)node->start_mark.column + 1;
  if (node->type == YAML_SCALAR_NODE) return copy_scalar(c, node, *out);
  return node->type == YAML_SEQUENCE_NODE ? copy_list(c, node, depth, *out) : copy_map(c, node, depth, *out);
}

static int syntax_error(const char *name, const yaml_parser_t *parser, Error *error) {
  const char *problem = parser->problem ? parser->problem : "cannot be parsed";
  if (parser->error == YAML_READER_ERROR)
    return error_set(error, PLAIT_BAD_INPUT, "%s: not valid UTF-8 text at byte %zu: %s", name, parser->problem_offset,
                     problem);
  int token = strstr(problem, "cannot start any token") != NULL; // a tab, nearly always
  return error_set(error, PLAIT_BAD_INPUT, "%s:%zu:%zu: not valid YAML: %s%s%s%s", name, parser->problem_mark.line + 1,
                   parser->problem_mark.column + 1, problem, parser->context ? ", " : "",
                   parser->context ? parser->context : "",
                   token ? " (if it is a tab: YAML indents with spaces only)" : "");
}

// A second document would be ignored silently; refuse it.
static int refuse_second(const char *name, yaml_parser_t *parser, Error *error) {
  yaml_document_t next;
  if (!yaml_parser_load(parser, &next)) return syntax_error(name, parser, error);
  const yaml_node_t *root = yaml_document_get_root_node(&next);
  int code = PLAIT_OK;
  if (root)
    code = error_set(error, PLAIT_BAD_INPUT, "%s:%zu:1: a second document; only one is allowed", name,
                     root->start_mark.line + 1);
  yaml_document_delete(&next);
  return code;
}

// libyaml's time grows with the square of the depth of brackets, so very many are refused before it sees them. Brackets
// in quotes and comments are counted too; nothing real has hundreds that are never closed.
static int refuse_brackets(const char *name, const char *text, size_t size, Error *error) {
  enum { MOST = 200 };
  int depth = 0, line = 1;
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '\n') line++;
    if (text[i] == '[' || text[i] == '{') depth++;
    if ((text[i] == ']' || text[i] == '}') && depth) depth--;
    if (depth > MOST) return error_set(error, PLAIT_BAD_INPUT, "%s:%d:1: nested too deeply", name, line);
  }
  return PLAIT_OK;
}

int yaml_tree_parse(const char *name, const char *text, size_t size, Arena *arena, YamlNode **root, Error *error) {
  if (size > YAML_MAX_BYTES)
    return error_set(error, PLAIT_BAD_INPUT, "%s: larger than the %d bytes allowed here", name, YAML_MAX_BYTES);
  int code = refuse_brackets(name, text, size, error);
  if (code < 0) return code;
  yaml_parser_t parser;
  yaml_document_t document;
  if (!yaml_parser_initialize(&parser)) return error_set(error, PLAIT_NO_MEMORY, "%s: out of memory", name);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  if (!yaml_parser_load(&parser, &document)) {
    code = syntax_error(name, &parser, error);
    yaml_parser_delete(&parser);
    return code;
  }
  if (!yaml_document_get_root_node(&document)) {
    *root = arena_new(arena, YamlNode);
    **root = (YamlNode){.kind = YAML_SCALAR, .line = 1, .column = 1, .text = "", .plain = true};
    code = PLAIT_OK;
  } else {
    size_t count = (size_t)(document.nodes.top - document.nodes.start);
    Copying copying = {name, &document, arena_array(arena, unsigned char, count + 1), arena, error};
    code = copy_node(&copying, 1, 0, root);
    if (code == PLAIT_OK) code = refuse_second(name, &parser, error);
  }
  yaml_document_delete(&document);
  yaml_parser_delete(&parser);
  return code;
}

const char *yaml_shown(const YamlNode *node, Arena *arena) {
  if (node->kind == YAML_LIST) return node->count ? "a list" : "an empty list";
  if (node->kind == YAML_MAP) return "a map of keys";
  char text[64];
  size_t n = 0;
  for (const char *c = node->text; *c && n < sizeof text - 4; c++) text[n++] = iscntrl((unsigned char)*c) ? ' ' : *c;
  text[n] = 0;
  if (strlen(node->text) > n) strcat(text, "...");
  return arena_format(arena, "\"%s\"", text);
}

bool yaml_is_null(const YamlNode *node) {
  if (node->kind != YAML_SCALAR || !node->plain) return false;
  return !*node->text || !strcmp(node->text, "~") || !strcmp(node->text, "null");
}
