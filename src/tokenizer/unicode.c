// Reads the tables of unicode_tables.h, and computes with sets of characters.
#include "tokenizer/unicode.h"
#include <string.h>

// A row is a set: the categories in `mask` (bit i: category i), and the characters of which the opposite is true.
typedef struct UnicodeRow {
  const char *name;
  uint32_t mask;
  const char *differs;
} UnicodeRow;

#include "tokenizer/unicode_tables.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// Numbers are five bits a letter, lowest first; the letters from the 33rd on say that more follow.
static uint32_t take(const char **text) {
  uint32_t n = 0;
  for (int shift = 0;; shift += 5) {
    char c = *(*text)++;
    uint32_t digit = c >= 'a' ? (uint32_t)(c - 'a') + 26
                     : c >= 'A' ? (uint32_t)(c - 'A')
                     : c >= '0' ? (uint32_t)(c - '0') + 52
                     : c == '+' ? 62u : 63u;
    n |= (digit & 31) << shift;
    if (digit < 32) return n;
  }
}

// ---- sets ----------------------------------------------------------------------------------------------------------

void unicode_set_add(UnicodeSet *set, uint32_t first, uint32_t end) {
  if (first < end) vec_push(set, (UnicodeRange){first, end});
}

static int compare_ranges(const void *left, const void *right) {
  const UnicodeRange *a = left, *b = right;
  return a->first < b->first ? -1 : a->first > b->first;
}

void unicode_set_tidy(UnicodeSet *set) {
  int n = 0;
  if (set->count) qsort(set->data, (size_t)set->count, sizeof *set->data, compare_ranges);
  for (int i = 0; i < set->count; i++) {
    UnicodeRange r = set->data[i];
    if (n && r.first <= set->data[n - 1].end) {
      if (r.end > set->data[n - 1].end) set->data[n - 1].end = r.end;
    } else set->data[n++] = r;
  }
  set->count = n;
}

void unicode_set_join(UnicodeSet *set, const UnicodeSet *other) {
  for (int i = 0; i < other->count; i++) vec_push(set, other->data[i]);
  unicode_set_tidy(set);
}

void unicode_set_invert(UnicodeSet *set) {
  UnicodeSet out = {0};
  uint32_t at = 0;
  for (int i = 0; i < set->count; i++) {
    unicode_set_add(&out, at, set->data[i].first);
    at = set->data[i].end;
  }
  unicode_set_add(&out, at, UNICODE_END);
  vec_free(set);
  *set = out;
}

void unicode_set_meet(UnicodeSet *set, const UnicodeSet *other) {
  UnicodeSet out = {0};
  for (int i = 0, k = 0; i < set->count && k < other->count;) {
    UnicodeRange a = set->data[i], b = other->data[k];
    unicode_set_add(&out, a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end);
    if (a.end < b.end) i++;
    else k++;
  }
  vec_free(set);
  *set = out;
}

int unicode_set_has(const UnicodeSet *set, uint32_t code) {
  int low = 0, high = set->count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (set->data[middle].end <= code) low = middle + 1;
    else high = middle;
  }
  return low < set->count && set->data[low].first <= code;
}

static void add_ranges(UnicodeSet *set, const char *text) {
  for (uint32_t at = 0; *text;) {
    uint32_t first = at + take(&text);
    at = first + take(&text);
    unicode_set_add(set, first, at);
  }
}

static void add_categories(UnicodeSet *set, uint32_t mask) {
  uint32_t at = 0;
  for (const char *text = category_runs; *text;) {
    uint32_t category = take(&text), first = at;
    at += take(&text);
    if (mask >> category & 1) unicode_set_add(set, first, at);
  }
  unicode_set_tidy(set);
}

// The one or the other: the union without what both have.
static void add_row(UnicodeSet *set, const UnicodeRow *row) {
  UnicodeSet base = {0}, differs = {0}, both = {0};
  add_categories(&base, row->mask);
  add_ranges(&differs, row->differs);
  unicode_set_join(&both, &base);
  unicode_set_meet(&both, &differs);
  unicode_set_invert(&both);
  unicode_set_join(&base, &differs);
  unicode_set_meet(&base, &both);
  unicode_set_join(set, &base);
  vec_free(&base);
  vec_free(&differs);
  vec_free(&both);
}

// Long names of categories, and of classes of them.
static const char *short_category(const char *name) {
  static const char *const names[][2] = {
      {"letter", "l"}, {"mark", "m"}, {"combiningmark", "m"}, {"number", "n"}, {"punctuation", "p"}, {"symbol", "s"},
      {"separator", "z"}, {"other", "c"}, {"uppercaseletter", "lu"}, {"lowercaseletter", "ll"},
      {"titlecaseletter", "lt"}, {"modifierletter", "lm"}, {"otherletter", "lo"}, {"nonspacingmark", "mn"},
      {"spacingmark", "mc"}, {"enclosingmark", "me"}, {"decimalnumber", "nd"}, {"letternumber", "nl"},
      {"othernumber", "no"}, {"connectorpunctuation", "pc"}, {"dashpunctuation", "pd"}, {"openpunctuation", "ps"},
      {"closepunctuation", "pe"}, {"initialpunctuation", "pi"}, {"finalpunctuation", "pf"},
      {"otherpunctuation", "po"}, {"mathsymbol", "sm"}, {"currencysymbol", "sc"}, {"modifiersymbol", "sk"},
      {"othersymbol", "so"}, {"spaceseparator", "zs"}, {"lineseparator", "zl"}, {"paragraphseparator", "zp"},
      {"control", "cc"}, {"format", "cf"}, {"surrogate", "cs"}, {"privateuse", "co"}, {"unassigned", "cn"}};
  for (int i = 0; i < COUNT(names); i++)
    if (!strcmp(names[i][0], name)) return names[i][1];
  return name;
}

int unicode_set_named(UnicodeSet *set, const char *name) {
  uint32_t mask = 0;
  name = short_category(name);
  size_t n = strlen(name);
  for (int i = 0; i < COUNT(category_names); i++)
    if ((n == 2 && !strcmp(category_names[i], name)) || (n == 1 && category_names[i][0] == name[0])) mask |= 1u << i;
  if (mask) {
    UnicodeSet categories = {0};
    add_categories(&categories, mask);
    unicode_set_join(set, &categories);
    vec_free(&categories);
    return 1;
  }
  if (!strcmp(name, "any")) {
    unicode_set_add(set, 0, UNICODE_END);
    unicode_set_tidy(set);
    return 1;
  }
  for (int i = 0; i < COUNT(set_rows); i++) {
    if (strcmp(set_rows[i].name, name)) continue;
    add_row(set, &set_rows[i]);
    return 1;
  }
  return 0;
}

// ---- maps ----------------------------------------------------------------------------------------------------------

void unicode_map_build(UnicodeMap *map, const uint8_t *values) {
  enum { BLOCKS = UNICODE_END >> 7, SLOTS = 1 << 15 };
  int32_t *slots = xcalloc(SLOTS, sizeof *slots); // block + 1 by hash
  int count = 0, capacity = 0;
  *map = (UnicodeMap){.index = xcalloc(BLOCKS, sizeof *map->index)};
  for (int b = 0; b < BLOCKS; b++) {
    const uint8_t *block = values + (size_t)b * 128;
    uint64_t hash = 0, word;
    for (int i = 0; i < 128; i += 8) {
      memcpy(&word, block + i, 8);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    uint32_t slot = (uint32_t)hash % SLOTS;
    while (slots[slot] && memcmp(map->blocks + (size_t)(slots[slot] - 1) * 128, block, 128)) slot = (slot + 1) % SLOTS;
    if (!slots[slot]) {
      if (count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        map->blocks = xrealloc(map->blocks, (size_t)capacity * 128);
      }
      memcpy(map->blocks + (size_t)count * 128, block, 128);
      slots[slot] = ++count;
    }
    map->index[b] = (uint16_t)(slots[slot] - 1);
  }
  free(slots);
}

void unicode_map_free(UnicodeMap *map) {
  free(map->index);
  free(map->blocks);
  *map = (UnicodeMap){0};
}

// ---- mappings ------------------------------------------------------------------------------------------------------

static void add_mapping(UnicodeMapping *m, uint32_t code) {
  vec_push(&m->codes, code);
  vec_push(&m->start, (uint32_t)m->targets.count);
}

// Entries: gap, number of targets, targets. Or runs with one target each: gap, 0, count, step, offset (its sign
// lowest).
void unicode_mapping_read(UnicodeMapping *m, UnicodeMappingName name) {
  static const char *const texts[] = {lower_text, canonical_text, compatible_text};
  *m = (UnicodeMapping){0};
  uint32_t at = 0;
  for (const char *text = texts[name]; *text;) {
    at += take(&text);
    uint32_t targets = take(&text);
    if (targets) {
      add_mapping(m, at++);
      for (uint32_t i = 0; i < targets; i++) vec_push(&m->targets, take(&text));
      continue;
    }
    uint32_t count = take(&text), step = take(&text), offset = take(&text);
    offset = offset & 1 ? 0u - (offset >> 1) - 1 : offset >> 1;
    for (uint32_t i = 0; i < count; i++) {
      add_mapping(m, at + i * step);
      vec_push(&m->targets, at + i * step + offset);
    }
    at += (count - 1) * step + 1;
  }
  vec_push(&m->start, (uint32_t)m->targets.count);
}

void unicode_mapping_free(UnicodeMapping *m) {
  vec_free(&m->codes);
  vec_free(&m->start);
  vec_free(&m->targets);
}

const uint32_t *unicode_mapping_find(const UnicodeMapping *m, uint32_t code, int *count) {
  int low = 0, high = m->codes.count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (m->codes.data[middle] < code) low = middle + 1;
    else high = middle;
  }
  if (low == m->codes.count || m->codes.data[low] != code) return NULL;
  *count = (int)(m->start.data[low + 1] - m->start.data[low]);
  return m->targets.data + m->start.data[low];
}

void unicode_excluded(UnicodeSet *set) {
  add_ranges(set, excluded_text);
  unicode_set_tidy(set);
}

void unicode_classes(uint8_t *values) {
  memset(values, 0, UNICODE_END);
  for (const char *text = class_text; *text;) {
    uint32_t value = take(&text), first = take(&text), count = take(&text);
    memset(values + first, (int)value, count);
  }
}
