// Regular expressions of schemas: the part that ECMA-262 and Python's re read alike. Where the two differ in what a
// class holds (\s, \w, \d and .), the class has what both have, and its complement what both complements have.
#include "grammar/pattern_parse.h"
#include "tokenizer/bpe.h"
#include <string.h>

enum { DEEPEST = 100, MOST_NODES = 20000, MOST_SETS = 1000, MOST_REPEATS = 100000 };

typedef struct Parser {
  const char *at, *end;
  PatternTree *tree;
  Error *error;
  int depth;
} Parser;

static int refuse(const Parser *p, const char *sentence) {
  return error_set(p->error, PLAIT_BAD_INPUT, "%s", sentence);
}

// An expression that others take.
static int not_built(const Parser *p, const char *sentence) {
  return error_set(p->error, GRAMMAR_NOT_BUILT, "%s", sentence);
}

static int add(Parser *p, PatternNode node) {
  if (p->tree->nodes.count >= MOST_NODES) return not_built(p, "is too long");
  vec_push(&p->tree->nodes, node);
  return p->tree->nodes.count - 1;
}

// Takes over the set.
static int add_set(Parser *p, UnicodeSet set) {
  if (p->tree->sets.count >= MOST_SETS) {
    vec_free(&set);
    return not_built(p, "is too long");
  }
  unicode_set_tidy(&set);
  vec_push(&p->tree->sets, set);
  return add(p, (PatternNode){.kind = PATTERN_SET, .set = p->tree->sets.count - 1});
}

static bool starts(const Parser *p, const char *text) {
  size_t n = strlen(text);
  return (size_t)(p->end - p->at) >= n && !memcmp(p->at, text, n);
}

static bool take(Parser *p, const char *text) {
  if (!starts(p, text)) return false;
  p->at += strlen(text);
  return true;
}

static int take_code(Parser *p, uint32_t *code) {
  int n = utf8_get(p->at, (size_t)(p->end - p->at), code);
  if (!n) return refuse(p, "is not UTF-8");
  p->at += n;
  return PLAIT_OK;
}

static int take_hex(Parser *p, int digits, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < digits; i++, p->at++) {
    static const char hex[] = "0123456789abcdef";
    const char *digit = p->at < p->end && *p->at ? strchr(hex, *p->at | 32) : NULL;
    if (!digit || (*p->at < '0')) return refuse(p, "has an escape with too few hexadecimal digits");
    *code = *code * 16 + (uint32_t)(digit - hex);
  }
  return PLAIT_OK;
}

// White space: what ECMA-262 and Python both have, or either.
static void add_space(UnicodeSet *set, bool either) {
  static const UnicodeRange both[] = {{9, 14},          {0x20, 0x21},     {0xA0, 0xA1},     {0x1680, 0x1681},
                                      {0x2000, 0x200B}, {0x2028, 0x202A}, {0x202F, 0x2030}, {0x205F, 0x2060},
                                      {0x3000, 0x3001}};
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) unicode_set_add(set, both[i].first, both[i].end);
  if (!either) return;
  unicode_set_add(set, 0x1C, 0x20);
  unicode_set_add(set, 0x85, 0x86);
  unicode_set_add(set, 0xFEFF, 0xFF00);
}

// \d \w \s and their complements. Python's \d and \w have digits and letters outside ASCII, ECMA-262's have not: such
// characters are in neither \d nor \D here, nor are those without a category yet.
static bool add_class(UnicodeSet *set, char name) {
  UnicodeSet own = {0};
  switch (name | 32) {
  case 'd': unicode_set_add(&own, '0', '9' + 1); break;
  case 'w':
    unicode_set_add(&own, '0', '9' + 1);
    unicode_set_add(&own, 'A', 'Z' + 1);
    unicode_set_add(&own, 'a', 'z' + 1);
    unicode_set_add(&own, '_', '_' + 1);
    break;
  case 's': add_space(&own, name == 'S'); break;
  default: return false;
  }
  unicode_set_tidy(&own);
  if (name == 'D' || name == 'W') {
    static const char *const wide[] = {"cn", "nd", "n", "l"};
    for (int i = 0; i < (name == 'D' ? 2 : 4); i++) CHECK(unicode_set_named(&own, wide[i]), "%s", wide[i]);
  }
  if (name < 'a') unicode_set_invert(&own);
  unicode_set_join(set, &own);
  vec_free(&own);
  return true;
}

// After a backslash. 1: *code is the character; 0: a class was joined to *set.
static int take_escape(Parser *p, bool in_class, uint32_t *code, UnicodeSet *set) {
  static const char names[] = "tnrfv0", codes[] = "\t\n\r\f\v\0";
  if (p->at >= p->end) return refuse(p, "ends in a backslash");
  char c = *p->at++;
  if (add_class(set, c)) return 0;
  const char *known = c ? strchr(names, c) : NULL;
  if (known && c == '0' && p->at < p->end && *p->at >= '0' && *p->at <= '9')
    return not_built(p, "has an octal escape, which is not built");
  if (known) return *code = (uint8_t)codes[known - names], 1;
  if (c == 'b' && in_class) return *code = 8, 1;
  if (c == 'x') return take_hex(p, 2, code) < 0 ? PLAIT_BAD_INPUT : 1;
  if (c == 'u') {
    if (take_hex(p, 4, code) < 0) return PLAIT_BAD_INPUT;
    return *code >= 0xD800 && *code < 0xE000 ? not_built(p, "has half of a surrogate pair, which is not built") : 1;
  }
  if (c == 'c' && p->at < p->end && ((*p->at | 32) >= 'a' && (*p->at | 32) <= 'z'))
    return not_built(p, "has \\c, which Python has not");
  if (c == 'b' || c == 'B') return not_built(p, "has \\b or \\B, which is not built");
  if (c >= '1' && c <= '9') return not_built(p, "has a reference to a group, which is not built");
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
    char sentence[64] = "has \\?, which is not built";
    sentence[5] = c;
    return not_built(p, sentence);
  }
  p->at--;
  return take_code(p, code) < 0 ? PLAIT_BAD_INPUT : 1;
}

// One end of a range or an element of a class; as take_escape.
static int take_element(Parser *p, uint32_t *code, UnicodeSet *set) {
  if (take(p, "\\")) return take_escape(p, true, code, set);
  return take_code(p, code) < 0 ? PLAIT_BAD_INPUT : 1;
}

// After "[".
static int take_class(Parser *p, UnicodeSet *set) {
  bool inverted = take(p, "^");
  if (starts(p, "]")) return not_built(p, "has an empty class, which is not built");
  while (!take(p, "]")) {
    uint32_t first, last;
    if (p->at >= p->end) return refuse(p, "has a class without its ]");
    if (starts(p, "[")) return not_built(p, "has [ within a class, which must be written \\[");
    int single = take_element(p, &first, set);
    if (single < 0) return single;
    bool range = starts(p, "-") && p->end - p->at > 1 && p->at[1] != ']';
    if (!single && range) return not_built(p, "has a range of a class that begins with a class");
    if (!single) continue;
    last = first;
    if (range) {
      p->at++;
      int other = take_element(p, &last, set);
      if (other < 0) return other;
      if (!other || last < first) return refuse(p, "has a range in a class that ends before it begins");
    }
    unicode_set_add(set, first, last + 1);
    unicode_set_tidy(set);
  }
  unicode_set_tidy(set);
  if (inverted) unicode_set_invert(set);
  return PLAIT_OK;
}

static int parse_or(Parser *p);

// After "(".
static int take_group(Parser *p) {
  if (take(p, "?")) {
    bool plain = take(p, ":"), named = !plain && (take(p, "P<") || take(p, "<"));
    if (named && p->at < p->end && (*p->at == '=' || *p->at == '!')) named = false;
    if (!plain && !named) return not_built(p, "has a group that begins with (? and is not built");
    while (named && p->at < p->end && *p->at != '>') p->at++;
    if (named && !take(p, ">")) return refuse(p, "has a group whose name does not end");
  }
  if (++p->depth > DEEPEST) return not_built(p, "nests too deep");
  int inner = parse_or(p);
  p->depth--;
  if (inner < 0) return inner;
  return take(p, ")") ? inner : refuse(p, "has a ( without its )");
}

static int take_atom(Parser *p) {
  UnicodeSet set = {0};
  uint32_t code;
  int single = 1;
  if (take(p, "(")) return take_group(p);
  if (take(p, "^")) return add(p, (PatternNode){.kind = PATTERN_BEGIN});
  if (take(p, "$")) return add(p, (PatternNode){.kind = PATTERN_END});
  if (p->at < p->end && strchr("*+?{}])", *p->at) && *p->at)
    return refuse(p, "has one of * + ? { } ] ) where it cannot stand");
  if (take(p, ".")) { // both leave these out, or one of them
    unicode_set_add(&set, '\n', '\n' + 1);
    unicode_set_add(&set, '\r', '\r' + 1);
    unicode_set_add(&set, 0x2028, 0x202A);
    unicode_set_tidy(&set);
    unicode_set_invert(&set);
    single = 0;
  } else if (take(p, "[")) single = take_class(p, &set);
  else if (take(p, "\\")) single = take_escape(p, false, &code, &set);
  else if (take_code(p, &code) < 0) single = PLAIT_BAD_INPUT;
  if (single < 0) return vec_free(&set), single;
  if (single > 0) unicode_set_add(&set, code, code + 1);
  return add_set(p, set);
}

static bool take_number(Parser *p, int *n) {
  const char *begin = p->at;
  for (*n = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
    if (*n <= MOST_REPEATS) *n = *n * 10 + (*p->at - '0');
  return p->at > begin;
}

// A repetition, which may follow an atom: 1 where there is one.
static int take_repeat(Parser *p, int *min, int *max) {
  if (take(p, "*")) *min = 0, *max = -1;
  else if (take(p, "+")) *min = 1, *max = -1;
  else if (take(p, "?")) *min = 0, *max = 1;
  else if (take(p, "{")) {
    if (!take_number(p, min)) return not_built(p, "has a { without a number, which must be written \\{");
    *max = *min;
    if (take(p, ",") && !take_number(p, max)) *max = -1;
    if (!take(p, "}")) return refuse(p, "has a { without its }");
    if (*max >= 0 && *max < *min) return refuse(p, "has a repetition whose numbers are out of order");
    if (*min > MOST_REPEATS || *max > MOST_REPEATS) return not_built(p, "repeats something too often");
  } else return 0;
  take(p, "?"); // lazy: the same strings
  if (p->at < p->end && (*p->at == '+' || *p->at == '*' || *p->at == '?' || *p->at == '{'))
    return not_built(p, "repeats a repetition, which is not built");
  return 1;
}

static int parse_then(Parser *p) {
  int all = add(p, (PatternNode){.kind = PATTERN_EMPTY});
  while (all >= 0 && p->at < p->end && *p->at != '|' && *p->at != ')') {
    int atom = take_atom(p), min = 0, max = 0;
    if (atom < 0) return atom;
    int repeats = take_repeat(p, &min, &max);
    if (repeats < 0) return repeats;
    PatternKind kind = p->tree->nodes.data[atom].kind;
    if (repeats && (kind == PATTERN_BEGIN || kind == PATTERN_END)) return not_built(p, "repeats ^ or $");
    if (repeats) atom = add(p, (PatternNode){.kind = PATTERN_REPEAT, .a = atom, .min = min, .max = max});
    if (atom < 0) return atom;
    bool empty = p->tree->nodes.data[all].kind == PATTERN_EMPTY;
    all = empty ? atom : add(p, (PatternNode){.kind = PATTERN_THEN, .a = all, .b = atom});
  }
  return all;
}

static int parse_or(Parser *p) {
  int all = parse_then(p);
  while (all >= 0 && take(p, "|")) {
    int other = parse_then(p);
    if (other < 0) return other;
    all = add(p, (PatternNode){.kind = PATTERN_OR, .a = all, .b = other});
  }
  return all;
}

int pattern_parse(const char *text, size_t bytes, PatternTree *tree, Error *error) {
  Parser p = {.at = text, .end = text + bytes, .tree = tree, .error = error};
  *tree = (PatternTree){0};
  tree->root = parse_or(&p);
  if (tree->root < 0) return tree->root;
  return p.at < p.end ? refuse(&p, "has a ) without its (") : PLAIT_OK;
}

void pattern_tree_free(PatternTree *tree) {
  for (int i = 0; i < tree->sets.count; i++) vec_free(&tree->sets.data[i]);
  vec_free(&tree->sets);
  vec_free(&tree->nodes);
}
