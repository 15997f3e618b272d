// Normalization (Unicode Standard Annex 15): decompose, put marks in order, compose; only where a text needs it.
#include "tokenizer/unicode_normal.h"
#include <string.h>

// Hangul syllables are made of parts by arithmetic.
enum { L = 0x1100, V = 0x1161, T = 0x11A7, S = 0xAC00, LS = 19, VS = 21, TS = 28, SYLLABLES = LS * VS * TS };

// ---- tables --------------------------------------------------------------------------------------------------------

static int compare_pairs(const void *left, const void *right) {
  const UnicodePair *a = left, *b = right;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a->second < b->second ? -1 : a->second > b->second;
}

static uint32_t compose(const UnicodeNormal *n, uint32_t first, uint32_t second) {
  if (first - L < LS && second - V < VS) return S + ((first - L) * VS + (second - V)) * TS;
  if (first - S < SYLLABLES && (first - S) % TS == 0 && second - T - 1 < TS - 1) return first + (second - T);
  UnicodePair key = {first, second, 0};
  const UnicodePair *found =
      n->pairs.count ? bsearch(&key, n->pairs.data, (size_t)n->pairs.count, sizeof key, compare_pairs) : NULL;
  return found ? found->whole : 0;
}

static int same(const uint32_t *a, const uint32_t *b, int count) {
  return !memcmp(a, b, (size_t)count * sizeof *a);
}

// The table has whole decompositions: what is before the last part is another character's.
static void make_pairs(UnicodeNormal *n, const UnicodeSet *excluded) {
  const UnicodeMapping *m = &n->canonical;
  for (int i = 0; i < m->codes.count; i++) {
    const uint32_t *parts = m->targets.data + m->start.data[i];
    int count = (int)(m->start.data[i + 1] - m->start.data[i]);
    if (count < 2 || unicode_set_has(excluded, m->codes.data[i])) continue;
    uint32_t first = parts[0];
    for (int k = 0; count > 2 && k < m->codes.count; k++)
      if ((int)(m->start.data[k + 1] - m->start.data[k]) == count - 1 &&
          same(m->targets.data + m->start.data[k], parts, count - 1) && !unicode_set_has(excluded, m->codes.data[k]))
        first = m->codes.data[k];
    vec_push(&n->pairs, (UnicodePair){first, parts[count - 1], m->codes.data[i]});
  }
  if (n->pairs.count) qsort(n->pairs.data, (size_t)n->pairs.count, sizeof *n->pairs.data, compare_pairs);
}

static void touch(uint8_t *values, const UnicodeMapping *m, int bits) {
  for (int i = 0; i < m->codes.count; i++) values[m->codes.data[i]] |= (uint8_t)bits;
}

enum {
  C = 1 << UNICODE_NFC, D = 1 << UNICODE_NFD, KC = 1 << UNICODE_NFKC, KD = 1 << UNICODE_NFKD,
  LOWER = 1 << UNICODE_LOWERCASE, ACCENT = 1 << UNICODE_STRIP_ACCENTS
};

static void make_touches(const UnicodeNormal *n, const UnicodeSet *excluded, uint8_t *values) {
  const UnicodeMapping *m = &n->canonical;
  UnicodeSet accents = {0};
  int count;
  touch(values, m, D | KD);
  touch(values, &n->compatible, KC | KD);
  touch(values, &n->lower, LOWER);
  memset(values + S, D | KD, SYLLABLES);
  for (int i = 0; i < m->codes.count; i++) // what does not come back
    if (m->start.data[i + 1] - m->start.data[i] == 1 || unicode_set_has(excluded, m->codes.data[i]))
      values[m->codes.data[i]] |= C | KC;
  for (int i = 0; i < n->pairs.count; i++) values[n->pairs.data[i].second] |= C | KC;
  for (uint32_t c = V; c < V + VS; c++) values[c] |= C | KC;
  for (uint32_t c = T + 1; c < T + TS; c++) values[c] |= C | KC;
  for (int i = 0; i < m->codes.count; i++) // what begins with something that joins the character before it
    if (values[unicode_mapping_find(m, m->codes.data[i], &count)[0]] & C) values[m->codes.data[i]] |= C | KC;
  unicode_set_named(&accents, "*accent");
  for (int i = 0; i < accents.count; i++)
    for (uint32_t c = accents.data[i].first; c < accents.data[i].end; c++) values[c] |= ACCENT;
  vec_free(&accents);
}

UnicodeNormal *unicode_normal_create(void) {
  UnicodeNormal *n = xcalloc(1, sizeof *n);
  UnicodeSet excluded = {0};
  uint8_t *classes = xcalloc(UNICODE_END, 1), *values = xcalloc(UNICODE_END, 1);
  unicode_mapping_read(&n->canonical, UNICODE_CANONICAL);
  unicode_mapping_read(&n->compatible, UNICODE_COMPATIBLE);
  unicode_mapping_read(&n->lower, UNICODE_LOWER);
  unicode_excluded(&excluded);
  unicode_classes(classes);
  make_pairs(n, &excluded);
  make_touches(n, &excluded, values);
  for (uint32_t c = 0; c < UNICODE_END; c++)
    if (classes[c]) values[c] |= C | D | KC | KD;
  unicode_map_build(&n->classes, classes);
  unicode_map_build(&n->touches, values);
  vec_free(&excluded);
  free(classes);
  free(values);
  return n;
}

void unicode_normal_destroy(UnicodeNormal *n) {
  if (!n) return;
  unicode_map_free(&n->classes);
  unicode_map_free(&n->touches);
  unicode_mapping_free(&n->canonical);
  unicode_mapping_free(&n->compatible);
  unicode_mapping_free(&n->lower);
  vec_free(&n->pairs);
  free(n);
}

void unicode_scratch_free(UnicodeScratch *scratch) {
  vec_free(&scratch->points);
  vec_free(&scratch->sorted);
}

// ---- a text --------------------------------------------------------------------------------------------------------

static void decompose(const UnicodeNormal *n, UnicodeForm form, UnicodeScratch *s, uint32_t c) {
  const uint32_t *parts = NULL;
  int count;
  if (c - S < SYLLABLES) {
    c -= S;
    vec_push(&s->points, L + c / (VS * TS));
    vec_push(&s->points, V + c / TS % VS);
    if (c % TS) vec_push(&s->points, T + c % TS);
    return;
  }
  if (form == UNICODE_NFKC || form == UNICODE_NFKD) parts = unicode_mapping_find(&n->compatible, c, &count);
  if (!parts) parts = unicode_mapping_find(&n->canonical, c, &count);
  if (!parts) parts = &c, count = 1;
  for (int i = 0; i < count; i++) vec_push(&s->points, parts[i]);
}

// Sorts marks that follow one another by their class; those of one class stay in order.
static void sort_marks(const UnicodeNormal *n, UnicodeScratch *s, int start, int end) {
  int places[257] = {0};
  uint32_t *p = s->points.data + start;
  if (end - start < 2) return;
  vec_reserve(&s->sorted, end - start);
  for (int i = 0; i < end - start; i++) places[unicode_map_get(&n->classes, p[i]) + 1]++;
  for (int k = 1; k < 257; k++) places[k] += places[k - 1];
  for (int i = 0; i < end - start; i++) s->sorted.data[places[unicode_map_get(&n->classes, p[i])]++] = p[i];
  memcpy(p, s->sorted.data, (size_t)(end - start) * sizeof *p);
}

static void order_marks(const UnicodeNormal *n, UnicodeScratch *s) {
  int start = 0;
  for (int i = 0; i <= s->points.count; i++) {
    if (i < s->points.count && unicode_map_get(&n->classes, s->points.data[i])) continue;
    sort_marks(n, s, start, i);
    start = i + 1;
  }
}

static void compose_points(const UnicodeNormal *n, UnicodeScratch *s) {
  int starter = -1, count = 0, last = 0;
  uint32_t *p = s->points.data;
  for (int i = 0; i < s->points.count; i++) {
    int class = unicode_map_get(&n->classes, p[i]);
    int reaches = starter >= 0 && (last ? last < class : starter == count - 1);
    uint32_t whole = reaches ? compose(n, p[starter], p[i]) : 0;
    if (whole) {
      p[starter] = whole;
      continue;
    }
    if (!class) starter = count;
    last = class;
    p[count++] = p[i];
  }
  s->points.count = count;
}

static void put(ByteVector *out, uint32_t code) {
  vec_reserve(out, out->count + 4);
  out->count += utf8_put(code, out->data + out->count);
}

static void finish_points(const UnicodeNormal *n, UnicodeForm form, UnicodeScratch *s, ByteVector *out) {
  order_marks(n, s);
  if (form == UNICODE_NFC || form == UNICODE_NFKC) compose_points(n, s);
  for (int i = 0; i < s->points.count; i++) put(out, s->points.data[i]);
  s->points.count = 0;
}

// The first character from `at` on that may change; *last is where the character before it begins, `at` where none is.
static size_t next_touched(const UnicodeNormal *n, UnicodeForm form, const char *text, size_t bytes, size_t at,
                           size_t *last) {
  uint32_t c;
  uint64_t word;
  *last = at;
  while (at < bytes) {
    if (form != UNICODE_LOWERCASE && bytes - at >= 8 && (memcpy(&word, text + at, 8), !(word & 0x8080808080808080u))) {
      *last = at + 7;
      at += 8;
      continue;
    }
    int width = utf8_get(text + at, bytes - at, &c);
    if (width && unicode_map_get(&n->touches, c) >> form & 1) return at;
    *last = width ? at : at + 1; // nothing is joined to a byte that is not UTF-8
    at += width ? (size_t)width : 1;
  }
  return bytes;
}

static void change_character(const UnicodeNormal *n, UnicodeForm form, uint32_t c, ByteVector *out) {
  int count;
  if (form == UNICODE_STRIP_ACCENTS) return;
  const uint32_t *parts = unicode_mapping_find(&n->lower, c, &count);
  for (int i = 0; i < count; i++) put(out, parts[i]);
}

int unicode_normalize(const UnicodeNormal *n, UnicodeForm form, UnicodeScratch *s, const char *text, size_t bytes,
                      int most, ByteVector *out) {
  size_t done = 0, last, at = next_touched(n, form, text, bytes, 0, &last);
  int alone = form == UNICODE_LOWERCASE || form == UNICODE_STRIP_ACCENTS; // characters have no neighbours
  uint32_t c;
  int width;
  if (at == bytes) return 0;
  out->count = 0;
  for (; at < bytes; at = next_touched(n, form, text, bytes, done, &last)) {
    size_t keep = alone ? at : last;
    bytes_append(out, text + done, keep - done);
    if (keep < at && (width = utf8_get(text + keep, at - keep, &c))) decompose(n, form, s, c);
    while (at < bytes && (width = utf8_get(text + at, bytes - at, &c)) &&
           (unicode_map_get(&n->touches, c) >> form & 1)) {
      if (alone) change_character(n, form, c, out);
      else decompose(n, form, s, c);
      at += (size_t)width;
      if (s->points.count > most / 4 || out->count > most) return s->points.count = 0, -1;
    }
    if (!alone) finish_points(n, form, s, out);
    done = at;
    if (out->count > most) return -1;
  }
  bytes_append(out, text + done, bytes - done);
  return 1;
}
