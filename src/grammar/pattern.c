// Regular expressions of schemas as automata over kinds of characters: a nondeterministic one from the tree (Thompson,
// "Regular expression search algorithm", 1968), then the sets of its states.
#include "grammar/pattern_parse.h"
#include "grammar/string_automaton.h"
#include <string.h>

enum { MOST_PLACES = 50000, MOST_STATES = 5000, MOST_CELLS = 4000000 };

typedef enum PlaceKind { PLACE_SPLIT, PLACE_SET, PLACE_BEGIN, PLACE_END, PLACE_MATCH, PLACE_REST } PlaceKind;
typedef struct Place { PlaceKind kind; int next, other, set; } Place; // REST: any characters, and a match

typedef struct Expansion {
  const PatternTree *tree;
  Vec(Place) places;
  bool full;
} Expansion;

static int place(Expansion *x, Place p) {
  if (x->places.count >= MOST_PLACES) return x->full = true, 0;
  vec_push(&x->places, p);
  return x->places.count - 1;
}

static int expand(Expansion *x, int node, int next);

static int expand_repeat(Expansion *x, const PatternNode *n, int next) {
  if (n->max < 0) {
    int loop = place(x, (Place){.kind = PLACE_SPLIT, .other = next});
    int body = expand(x, n->a, loop);
    x->places.data[loop].next = body;
    next = loop;
  }
  for (int i = n->min; i < n->max && !x->full; i++) // each of these may be empty
    next = place(x, (Place){.kind = PLACE_SPLIT, .next = expand(x, n->a, next), .other = next});
  for (int i = 0; i < n->min && !x->full; i++) next = expand(x, n->a, next);
  return next;
}

// The place from which a node leads to `next`.
static int expand(Expansion *x, int node, int next) {
  const PatternNode *n = &x->tree->nodes.data[node];
  if (x->full) return 0;
  switch (n->kind) {
  case PATTERN_EMPTY: return next;
  case PATTERN_SET: return place(x, (Place){.kind = PLACE_SET, .next = next, .set = n->set});
  case PATTERN_BEGIN: return place(x, (Place){.kind = PLACE_BEGIN, .next = next});
  case PATTERN_END: return place(x, (Place){.kind = PLACE_END, .next = next});
  case PATTERN_OR: {
    int a = expand(x, n->a, next), b = expand(x, n->b, next);
    return place(x, (Place){.kind = PLACE_SPLIT, .next = a, .other = b});
  }
  case PATTERN_REPEAT: return expand_repeat(x, n, next);
  case PATTERN_THEN: break;
  }
  for (; n->kind == PATTERN_THEN; n = &x->tree->nodes.data[node]) { // long chains lie to the left
    next = expand(x, n->b, next);
    node = n->a;
  }
  return expand(x, node, next);
}

// ---- sets of places -------------------------------------------------------------------------------------------------

typedef struct Subsets {
  const Expansion *x;
  CharTable *table;
  Vec(int) members; // places of all sets, in order within one
  Vec(int) start;   // (sets + 1)
  Vec(int) next, out, open, reached;
  int *heads;       // sets by hash; -1: none
  Vec(int) links;
  uint8_t *seen;    // (places)
} Subsets;

enum { HEADS = 8192 };

// Adds what a place leads to without a character; begin, end: where ^ and $ hold.
static void close_over(Subsets *s, int from, bool begin, bool end) {
  s->open.count = 0;
  vec_push(&s->open, from);
  while (s->open.count) {
    int at = s->open.data[--s->open.count];
    const Place *p = &s->x->places.data[at];
    if (s->seen[at]) continue;
    s->seen[at] = 1;
    vec_push(&s->reached, at);
    if (p->kind == PLACE_SPLIT) {
      vec_push(&s->open, p->next);
      vec_push(&s->open, p->other);
    } else if ((p->kind == PLACE_BEGIN && begin) || (p->kind == PLACE_END && end)) vec_push(&s->open, p->next);
  }
}

static void forget(Subsets *s) {
  for (int i = 0; i < s->reached.count; i++) s->seen[s->reached.data[i]] = 0;
  s->reached.count = 0;
}

static bool may_end(Subsets *s, const int *set, int count, bool begin) {
  bool match = false;
  for (int i = 0; i < count; i++) close_over(s, set[i], begin, true);
  for (int i = 0; i < s->reached.count; i++) {
    PlaceKind kind = s->x->places.data[s->reached.data[i]].kind;
    match |= kind == PLACE_MATCH || kind == PLACE_REST;
  }
  forget(s);
  return match;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// The set of what was reached: places that characters, ^ or $ follow, or the rest alone, which takes all. -1: empty.
static int intern(Subsets *s, bool begin) {
  int from = s->members.count, n;
  for (int i = 0; i < s->reached.count; i++) {
    PlaceKind kind = s->x->places.data[s->reached.data[i]].kind;
    if (kind == PLACE_REST) {
      s->members.count = from;
      vec_push(&s->members, s->reached.data[i]);
      break;
    }
    if (kind != PLACE_SPLIT && (kind != PLACE_BEGIN || begin)) vec_push(&s->members, s->reached.data[i]);
  }
  forget(s);
  n = s->members.count - from;
  int *set = s->members.data + from;
  if (!n) return -1;
  qsort(set, (size_t)n, sizeof *set, by_value);
  uint64_t h = begin;
  for (int i = 0; i < n; i++) h = (h ^ (uint64_t)set[i]) * 1099511628211u;
  int *head = &s->heads[(h ^ h >> 29) % HEADS];
  for (int i = *head; i >= 0 && !begin; i = s->links.data[i])
    if (s->start.data[i + 1] - s->start.data[i] == n &&
        !memcmp(s->members.data + s->start.data[i], set, (size_t)n * sizeof *set)) {
      s->members.count = from;
      return i;
    }
  vec_push(&s->start, s->members.count);
  vec_push(&s->links, begin ? -1 : *head); // the first set is like no other
  if (!begin) *head = s->links.count - 1;
  vec_push(&s->out, may_end(s, s->members.data + from, n, begin) ? 0 : STRING_REFUSED);
  return s->links.count - 1;
}

static void follow(Subsets *s, int state, int kind) {
  int kinds = s->table->kinds.kinds;
  for (int i = s->start.data[state]; i < s->start.data[state + 1]; i++) {
    const Place *p = &s->x->places.data[s->members.data[i]];
    if (p->kind == PLACE_REST) close_over(s, s->members.data[i], false, false);
    else if (p->kind == PLACE_SET && s->table->kinds.member[p->set * kinds + kind])
      close_over(s, p->next, false, false);
  }
}

static int make_subsets(Subsets *s, int start) {
  int kinds = s->table->kinds.kinds;
  s->heads = xcalloc(HEADS, sizeof *s->heads);
  memset(s->heads, 0xff, HEADS * sizeof *s->heads);
  s->seen = xcalloc((size_t)s->x->places.count, 1);
  vec_push(&s->start, 0);
  close_over(s, start, true, false);
  int made = intern(s, true), code = 0;
  for (int state = 0; made >= 0 && state < s->links.count && !code; state++)
    for (int k = 0; k < kinds; k++) {
      follow(s, state, k);
      int next = intern(s, false);
      vec_push(&s->next, next);
      if (s->links.count > MOST_STATES || (int64_t)s->links.count * kinds > MOST_CELLS) code = -1;
    }
  s->table->states = s->links.count;
  s->table->next = s->next.data;
  s->table->out = s->out.data;
  free(s->heads);
  free(s->seen);
  vec_free(&s->members);
  vec_free(&s->start);
  vec_free(&s->open);
  vec_free(&s->reached);
  vec_free(&s->links);
  return code;
}

static int make_table(const PatternTree *tree, CharTable *table, Error *error) {
  Expansion x = {.tree = tree};
  if (!char_kinds_make(tree->sets.data, tree->sets.count, &table->kinds))
    return error_set(error, GRAMMAR_NOT_BUILT, "tells too many kinds of characters apart");
  int rest = place(&x, (Place){.kind = PLACE_REST});
  int inner = expand(&x, tree->root, rest);
  // Before it, any characters: the last set of the tree.
  int loop = place(&x, (Place){.kind = PLACE_SPLIT, .other = inner});
  int skip = place(&x, (Place){.kind = PLACE_SET, .next = loop, .set = tree->sets.count - 1});
  if (!x.full) x.places.data[loop].next = skip;
  int code = x.full ? -1 : make_subsets(&(Subsets){.x = &x, .table = table}, loop);
  vec_free(&x.places);
  return code < 0 ? error_set(error, GRAMMAR_NOT_BUILT, "takes too many states") : PLAIT_OK;
}

int pattern_table(const char *text, size_t bytes, CharTable *table, Error *error) {
  PatternTree tree;
  *table = (CharTable){0};
  int code = pattern_parse(text, bytes, &tree, error);
  if (code >= 0) {
    UnicodeSet any = {0};
    unicode_set_add(&any, 0, UNICODE_END);
    vec_push(&tree.sets, any);
    code = make_table(&tree, table, error);
  }
  pattern_tree_free(&tree);
  return code;
}

void char_table_free(CharTable *table) {
  char_kinds_free(&table->kinds);
  free(table->next);
  free(table->out);
  *table = (CharTable){0};
}
