// Nodes of grammars: making them, and what follows from all of them together.
#include "grammar/grammar_nodes.h"
#include "grammar/mask_cache.h"
#include <string.h>

Grammar *grammar_create(void) {
  Grammar *g = xcalloc(1, sizeof *g);
  g->any = g->root = g->plain_string = g->plain_number[0] = g->plain_number[1] = -1;
  g->cache = mask_cache_create();
  return g;
}

void grammar_free(Grammar *g) {
  if (!g) return;
  for (int i = 0; i < g->strings.count; i++) string_automaton_free(&g->strings.data[i]);
  for (int i = 0; i < g->numbers.count; i++) number_automaton_free(&g->numbers.data[i]);
  vec_free(&g->strings);
  vec_free(&g->numbers);
  vec_free(&g->nodes);
  vec_free(&g->one_of);
  arena_free(&g->arena);
  mask_cache_free(g->cache);
  free(g);
}

int64_t grammar_cells(const Grammar *g) { return g->cells; }

int grammar_add(Grammar *g, Node node) {
  vec_push(&g->nodes, node);
  return g->nodes.count - 1;
}

int grammar_word(Grammar *g, const char *text, size_t bytes) {
  char *copy = arena_alloc(&g->arena, bytes + 1);
  memcpy(copy, text, bytes);
  return grammar_add(g, (Node){.kind = NODE_WORD, .text = copy, .bytes = bytes, .rest = -1});
}

int grammar_string(Grammar *g, StringAutomaton a) {
  vec_push(&g->strings, a);
  g->cells += (int64_t)a.states * a.kinds + (int64_t)a.chars.states * 256;
  return grammar_add(g, (Node){.kind = NODE_STRING, .automaton = g->strings.count - 1, .rest = -1});
}

int grammar_number(Grammar *g, bool integer, const NumberBounds *bounds) {
  bool plain = !bounds->minimum && !bounds->maximum && !bounds->above && !bounds->below;
  if (plain && g->plain_number[integer] >= 0) return g->plain_number[integer];
  NumberAutomaton a;
  number_automaton_make(&a, integer, bounds);
  vec_push(&g->numbers, a);
  g->cells += (int64_t)a.states * NUMBER_CLASSES;
  int node = grammar_add(g, (Node){.kind = NODE_NUMBER, .automaton = g->numbers.count - 1, .rest = -1});
  if (plain) g->plain_number[integer] = node;
  return node;
}

int grammar_any_string(Grammar *g) {
  StringAutomaton a;
  if (g->plain_string >= 0) return g->plain_string;
  string_automaton_any(&a, 0, -1);
  return g->plain_string = grammar_string(g, a);
}

int grammar_union(Grammar *g, const int *parts, int count) {
  Node node = {.kind = NODE_UNION, .count = count, .rest = -1, .parts = arena_array(&g->arena, int, count + 1)};
  if (count) memcpy(node.parts, parts, (size_t)count * sizeof *parts);
  return grammar_add(g, node);
}

int grammar_any(Grammar *g) {
  if (g->any >= 0) return g->any;
  g->any = grammar_union(g, (int[7]){0}, 7);
  int parts[7] = {grammar_any_string(g), grammar_number(g, false, &(NumberBounds){0}), grammar_word(g, "true", 4),
                  grammar_word(g, "false", 5), grammar_word(g, "null", 4)};
  parts[5] = grammar_add(g, (Node){.kind = NODE_OBJECT, .rest = g->any, .max = -1});
  parts[6] = grammar_add(g, (Node){.kind = NODE_ARRAY, .rest = g->any, .max = -1});
  memcpy(g->nodes.data[g->any].parts, parts, sizeof parts);
  return g->any;
}

// ---- what is possible -----------------------------------------------------------------------------------------------

static bool all_possible(const Grammar *g, const Node *n, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int part = i < n->count ? n->parts[i] : n->rest;
    if (part < 0 || !g->nodes.data[part].possible) return false;
    if (i >= n->count) return true; // the others are as this one
  }
  return true;
}

static bool is_possible(const Grammar *g, const Node *n) {
  switch (n->kind) {
  case NODE_UNION:
    for (int i = 0; i < n->count; i++)
      if (g->nodes.data[n->parts[i]].possible) return true;
    return false;
  case NODE_STRING: {
    const StringAutomaton *a = &g->strings.data[n->automaton];
    return a->states && (!a->any || a->max < 0 || a->min <= a->max);
  }
  case NODE_NUMBER: return g->numbers.data[n->automaton].states > 0;
  case NODE_WORD: return true;
  case NODE_OBJECT:
    for (int i = 0; i < n->count; i++)
      if (n->required[i] && (n->parts[i] < 0 || !g->nodes.data[n->parts[i]].possible)) return false;
    return true;
  case NODE_ARRAY: return (n->max < 0 || n->min <= n->max) && all_possible(g, n, n->min);
  case NODE_SEQUENCE:
  case NODE_UNTIL: return all_possible(g, n, n->count);
  }
  return false;
}

// The nodes that a union leads to, without unions; each once.
static void flatten(const Grammar *g, int node, bool *seen, int *parts, int *count) {
  const Node *n = &g->nodes.data[node];
  if (seen[node] || !n->possible) return;
  seen[node] = true;
  if (n->kind != NODE_UNION) {
    parts[(*count)++] = node;
    return;
  }
  for (int i = 0; i < n->count; i++) flatten(g, n->parts[i], seen, parts, count);
}

static void flatten_all(Grammar *g) {
  int n = g->nodes.count;
  bool *seen = xcalloc((size_t)n, sizeof *seen);
  int *parts = xcalloc((size_t)n, sizeof *parts), **flat = xcalloc((size_t)n, sizeof *flat);
  int *counts = xcalloc((size_t)n, sizeof *counts);
  for (int i = 0; i < n; i++) {
    if (g->nodes.data[i].kind != NODE_UNION) continue;
    memset(seen, 0, (size_t)n * sizeof *seen);
    flatten(g, i, seen, parts, &counts[i]);
    flat[i] = arena_array(&g->arena, int, counts[i] + 1);
    memcpy(flat[i], parts, (size_t)counts[i] * sizeof *parts);
  }
  for (int i = 0; i < n; i++)
    if (flat[i]) g->nodes.data[i].parts = flat[i], g->nodes.data[i].count = counts[i];
  free(seen);
  free(parts);
  free(flat);
  free(counts);
}

static void finish_array(const Grammar *g, Node *n) {
  int64_t most = n->max;
  for (int i = 0; i < n->count; i++)
    if (!g->nodes.data[n->parts[i]].possible) {
      n->count = i;
      n->rest = -1;
    }
  if (n->rest >= 0 && !g->nodes.data[n->rest].possible) n->rest = -1;
  if (n->rest < 0 && (most < 0 || most > n->count)) n->max = n->count;
}

static int finish_object(Grammar *g, Node *n, Error *error) {
  StringAutomaton keys;
  int count = 0;
  if (n->rest >= 0 && !g->nodes.data[n->rest].possible) n->rest = -1;
  for (int i = 0; i < n->count; i++) {
    int part = n->parts[i] >= 0 && g->nodes.data[n->parts[i]].possible ? n->parts[i] : -1;
    if (part < 0 && n->rest < 0) continue; // as good as any other key that is not there
    n->parts[count] = part;
    n->names[count] = n->names[i];
    n->required[count++] = n->required[i];
  }
  n->count = count;
  n->next_required = arena_array(&g->arena, int, count + 1);
  n->next_required[count] = count;
  for (int i = count - 1; i >= 0; i--) n->next_required[i] = n->required[i] ? i : n->next_required[i + 1];
  int code = string_automaton_words(&keys, n->names, count, n->rest >= 0, error);
  if (code < 0) return error_prefix(error, "the list of an object's keys"), code;
  vec_push(&g->strings, keys);
  n->automaton = g->strings.count - 1;
  return PLAIT_OK;
}

static void finish_until(Grammar *g, Node *n) {
  n->fallback = arena_array(&g->arena, int, n->bytes + 1);
  for (size_t i = 1; i < n->bytes; i++) {
    int k = n->fallback[i];
    while (k && n->text[i] != n->text[k]) k = n->fallback[k];
    n->fallback[i + 1] = n->text[i] == n->text[k] ? k + 1 : 0;
  }
}

int grammar_finish(Grammar *g, Error *error) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = g->nodes.count - 1; i >= 0; i--) {
      Node *n = &g->nodes.data[i];
      if (n->possible || !is_possible(g, n)) continue;
      n->possible = changed = true;
    }
  }
  flatten_all(g);
  for (int i = 0; i < g->nodes.count; i++) {
    Node *n = &g->nodes.data[i];
    if (!n->possible) continue;
    if (n->kind == NODE_ARRAY) finish_array(g, n);
    if (n->kind == NODE_UNTIL) finish_until(g, n);
    if (n->kind == NODE_OBJECT && finish_object(g, n, error) < 0) return PLAIT_BAD_INPUT;
  }
  return PLAIT_OK;
}

// ---- whether two nodes have documents in common ---------------------------------------------------------------------

static bool leaves_meet(const Grammar *g, int a, int b, int depth);

static bool meet_deep(const Grammar *g, int a, int b, int depth) {
  const Node *x = &g->nodes.data[a], *y = &g->nodes.data[b];
  if (depth > 20) return true; // not looked at any deeper
  int xs = x->kind == NODE_UNION ? x->count : 1, ys = y->kind == NODE_UNION ? y->count : 1;
  if (!x->possible || !y->possible) return false;
  for (int i = 0; i < xs; i++)
    for (int k = 0; k < ys; k++)
      if (leaves_meet(g, x->kind == NODE_UNION ? x->parts[i] : a, y->kind == NODE_UNION ? y->parts[k] : b, depth))
        return true;
  return false;
}

// Whether a key that x requires tells its objects from those of y.
static bool key_tells(const Grammar *g, const Node *x, const Node *y, int depth) {
  for (int i = 0; i < x->count; i++) {
    int other = -1;
    if (!x->required[i]) continue;
    for (int k = 0; k < y->count; k++)
      if (y->names[k].bytes == x->names[i].bytes && !memcmp(y->names[k].text, x->names[i].text, x->names[i].bytes))
        other = k;
    int node = other >= 0 ? y->parts[other] : y->rest;
    if (node < 0) return true;
    if (!meet_deep(g, x->parts[i], node, depth + 1)) return true;
  }
  return false;
}

// Words of numbers: all of which may be equal to others that are written otherwise.
static bool is_number(const Node *n) {
  return n->kind == NODE_NUMBER || (n->kind == NODE_WORD && number_class((uint8_t)n->text[0]) >= 0);
}

static bool leaves_meet(const Grammar *g, int a, int b, int depth) {
  const Node *x = &g->nodes.data[a], *y = &g->nodes.data[b];
  if (is_number(x) && is_number(y))
    return x->kind != NODE_WORD || y->kind != NODE_WORD || strtod(x->text, NULL) == strtod(y->text, NULL);
  if (is_number(x) || is_number(y) || x->kind != y->kind) return false;
  switch (x->kind) {
  case NODE_WORD: return !strcmp(x->text, y->text);
  case NODE_STRING: return string_automata_meet(&g->strings.data[x->automaton], &g->strings.data[y->automaton]);
  case NODE_OBJECT: return !key_tells(g, x, y, depth) && !key_tells(g, y, x, depth);
  case NODE_ARRAY: return !((x->max >= 0 && x->max < y->min) || (y->max >= 0 && y->max < x->min));
  default: return true;
  }
}

static int check_alternatives(const Grammar *g, const OneOf *one, Error *error) {
  for (int a = 0; a < one->count; a++)
    for (int b = 0; b < a; b++)
      if (meet_deep(g, one->nodes[a], one->nodes[b], 0))
        return error_set(error, GRAMMAR_NOT_BUILT,
                         "%s has the alternatives %d and %d, and it is not plain that no document matches both; "
                         "anyOf does not ask for that",
                         one->path, b, a);
  return PLAIT_OK;
}

int grammar_check_one_of(const Grammar *g, Error *error) {
  for (int i = 0; i < g->one_of.count; i++)
    if (check_alternatives(g, &g->one_of.data[i], error) < 0) return PLAIT_BAD_INPUT;
  return PLAIT_OK;
}
