// The characters of a JSON string as an automaton over bytes. Its states are rows of next states; equal rows are one
// state, and a range of characters of one kind needs no look at each.
#include "grammar/json_chars.h"
#include "base/error.h"
#include "base/vec.h"
#include <string.h>

// ---- kinds ----------------------------------------------------------------------------------------------------------

static int by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

// The first code points of ranges that no set divides.
static int find_ranges(const UnicodeSet *sets, int count, uint32_t **first) {
  Vec(uint32_t) edges = {0};
  vec_push(&edges, 0);
  for (int s = 0; s < count; s++)
    for (int i = 0; i < sets[s].count; i++) {
      vec_push(&edges, sets[s].data[i].first);
      if (sets[s].data[i].end < UNICODE_END) vec_push(&edges, sets[s].data[i].end);
    }
  qsort(edges.data, (size_t)edges.count, sizeof *edges.data, by_number);
  int n = 0;
  for (int i = 0; i < edges.count; i++)
    if (!n || edges.data[i] != edges.data[n - 1]) edges.data[n++] = edges.data[i];
  *first = edges.data;
  return n;
}

bool char_kinds_make(const UnicodeSet *sets, int count, CharKinds *kinds) {
  *kinds = (CharKinds){0};
  kinds->ranges = find_ranges(sets, count, &kinds->first);
  kinds->kind = xcalloc((size_t)kinds->ranges, sizeof *kinds->kind);
  bool *rows = xcalloc((size_t)kinds->ranges * (size_t)(count + 1), sizeof *rows); // (kinds, sets)
  for (int r = 0; r < kinds->ranges; r++) {
    bool *row = rows + (size_t)kinds->kinds * (size_t)count;
    for (int s = 0; s < count; s++) row[s] = unicode_set_has(&sets[s], kinds->first[r]) != 0;
    int k = 0;
    while (memcmp(rows + (size_t)k * (size_t)count, row, (size_t)count) != 0) k++;
    kinds->kind[r] = k;
    if (k == kinds->kinds) kinds->kinds++;
  }
  kinds->member = xcalloc((size_t)kinds->kinds * (size_t)(count + 1), sizeof *kinds->member);
  for (int s = 0; s < count; s++)
    for (int k = 0; k < kinds->kinds; k++)
      kinds->member[s * kinds->kinds + k] = rows[(size_t)k * (size_t)count + (size_t)s];
  free(rows);
  if (kinds->kinds <= CHAR_KINDS) return true;
  char_kinds_free(kinds);
  return false;
}

void char_kinds_free(CharKinds *kinds) {
  free(kinds->first);
  free(kinds->kind);
  free(kinds->member);
  *kinds = (CharKinds){0};
}

static int range_of(const CharKinds *kinds, uint32_t code) {
  int low = 0, high = kinds->ranges - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (kinds->first[middle] <= code) low = middle;
    else high = middle - 1;
  }
  return low;
}

int char_kinds_of(const CharKinds *kinds, uint32_t code) { return kinds->kind[range_of(kinds, code)]; }

// ---- the automaton --------------------------------------------------------------------------------------------------

typedef int16_t Row[256];
enum { UNIFORM_SORTS = 10, STATES = CHAR_DONE };

typedef struct Builder {
  const CharKinds *kinds;
  Vec(Row) rows;
  int *uniform; // (UNIFORM_SORTS, kinds) states for ranges of one kind; 0: not made yet
  int *heads, *links; // rows by hash; -1: none
  bool full;
} Builder;

static void row_clear(Row row) { memset(row, 0xff, sizeof(Row)); }

static int add_row(Builder *b, const Row row) {
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < 256; i++) h = (h ^ (uint16_t)row[i]) * 1099511628211u;
  int *head = &b->heads[h >> 20 & 4095];
  for (int i = *head; i >= 0; i = b->links[i])
    if (!memcmp(b->rows.data[i], row, sizeof(Row))) return i;
  if (b->rows.count >= STATES - 1) return b->full = true, 1;
  vec_reserve(&b->rows, b->rows.count + 1);
  memcpy(b->rows.data[b->rows.count], row, sizeof(Row));
  b->links[b->rows.count] = *head;
  return *head = b->rows.count++;
}

// Whether all characters of a range are of one kind.
static bool is_uniform(const Builder *b, uint32_t first, uint32_t end) {
  int r = range_of(b->kinds, first);
  return r + 1 == b->kinds->ranges || b->kinds->first[r + 1] >= end;
}

static int16_t done(const Builder *b, uint32_t code) { return (int16_t)(CHAR_DONE + char_kinds_of(b->kinds, code)); }

// The state before `more` bytes 80 … BF, which say the lower bits of a character from `first` on; `least`: smaller
// ones have a shorter form. CHAR_REFUSED where no character is there.
static int16_t raw(Builder *b, uint32_t first, int more, uint32_t least) {
  uint32_t end = first + (1u << 6 * more);
  if (!more) return done(b, first);
  if (end <= least || first >= UNICODE_END || (first >= 0xD800 && end <= 0xE000)) return CHAR_REFUSED;
  bool whole = first >= least && end <= UNICODE_END && (end <= 0xD800 || first >= 0xE000) && is_uniform(b, first, end);
  int *known = whole ? &b->uniform[(more - 1) * b->kinds->kinds + char_kinds_of(b->kinds, first)] : NULL;
  if (known && *known) return (int16_t)*known;
  Row row;
  row_clear(row);
  for (uint32_t c = 0; c < 64; c++) row[0x80 + c] = raw(b, first + (c << 6 * (more - 1)), more - 1, least);
  int state = add_row(b, row);
  if (known) *known = state;
  return (int16_t)state;
}

static void put_hex(Row row, unsigned digit, int16_t next) {
  row[digit < 10 ? '0' + digit : 'a' + digit - 10] = next;
  if (digit >= 10) row['A' + digit - 10] = next;
}

static int one_byte(Builder *b, char byte, int16_t next) {
  Row row;
  row_clear(row);
  row[(uint8_t)byte] = next;
  return add_row(b, row);
}

// The state before the last `more` hexadecimal digits of the second half of a pair. sort: row of `uniform`.
static int16_t pair_digits(Builder *b, uint32_t first, int more) {
  if (!more) return done(b, first);
  int *known = is_uniform(b, first, first + (1u << 4 * more))
                   ? &b->uniform[(2 + more) * b->kinds->kinds + char_kinds_of(b->kinds, first)]
                   : NULL;
  if (known && *known) return (int16_t)*known;
  Row row;
  row_clear(row);
  for (unsigned d = 0; d < 16; d++) put_hex(row, d, pair_digits(b, first + (d << 4 * (more - 1)), more - 1));
  int state = add_row(b, row);
  if (known) *known = state;
  return (int16_t)state;
}

// The state after the first half of a pair of surrogates: \ u D C…F and two digits.
static int16_t pair(Builder *b, uint32_t high) {
  uint32_t first = 0x10000 + ((high - 0xD800) << 10);
  int *known = is_uniform(b, first, first + 1024) ? &b->uniform[5 * b->kinds->kinds + char_kinds_of(b->kinds, first)]
                                                  : NULL;
  if (known && *known) return (int16_t)*known;
  Row third;
  row_clear(third);
  for (unsigned d = 0; d < 4; d++) put_hex(third, 12 + d, pair_digits(b, first + (d << 8), 2));
  Row second;
  row_clear(second);
  put_hex(second, 13, (int16_t)add_row(b, third));
  int state = one_byte(b, '\\', (int16_t)one_byte(b, 'u', (int16_t)add_row(b, second)));
  if (known) *known = state;
  return (int16_t)state;
}

// Whether json.dumps writes a character of 16 bits as \uXXXX.
static bool is_escaped(uint32_t code) {
  if (code < 0x20) return !(code >= 8 && code <= 13 && code != 11);
  return code >= 0x7F && (code < 0xDC00 || code >= 0xE000);
}

// The state before the last `more` hexadecimal digits of \uXXXX.
static int16_t digits(Builder *b, uint32_t first, int more) {
  if (!more) {
    if (!is_escaped(first)) return CHAR_REFUSED;
    return first >= 0xD800 && first < 0xDC00 ? pair(b, first) : done(b, first);
  }
  uint32_t end = first + (1u << 4 * more);
  if (first >= 0xDC00 && end <= 0xE000) return CHAR_REFUSED;
  bool plain = first >= 0x80 && (end <= 0xD800 || first >= 0xE000);
  int *known = plain && is_uniform(b, first, end)
                   ? &b->uniform[(5 + more) * b->kinds->kinds + char_kinds_of(b->kinds, first)]
                   : NULL;
  if (known && *known) return (int16_t)*known;
  Row row;
  row_clear(row);
  bool any = false;
  for (unsigned d = 0; d < 16; d++) {
    int16_t next = digits(b, first + (d << 4 * (more - 1)), more - 1);
    put_hex(row, d, next);
    any |= next != CHAR_REFUSED;
  }
  int state = any ? add_row(b, row) : CHAR_REFUSED;
  if (known) *known = state;
  return (int16_t)state;
}

static void make_first_row(Builder *b) {
  static const char names[] = "\"\\bfnrt", codes[] = "\"\\\b\f\n\r\t";
  Row escape, row;
  row_clear(escape);
  row_clear(row);
  for (int i = 0; names[i]; i++) escape[(uint8_t)names[i]] = done(b, (uint8_t)codes[i]);
  escape['u'] = digits(b, 0, 4);
  for (uint32_t c = 0x20; c < 0x80; c++) row[c] = done(b, c);
  row['"'] = CHAR_REFUSED;
  row['\\'] = (int16_t)add_row(b, escape);
  for (uint32_t c = 0xC2; c < 0xE0; c++) row[c] = raw(b, (c & 31) << 6, 1, 0x80);
  for (uint32_t c = 0xE0; c < 0xF0; c++) row[c] = raw(b, (c & 15) << 12, 2, 0x800);
  for (uint32_t c = 0xF0; c < 0xF5; c++) row[c] = raw(b, (c & 7) << 18, 3, 0x10000);
  memcpy(b->rows.data[0], row, sizeof row);
}

static void build_rows(Builder *b, const CharKinds *kinds) {
  *b = (Builder){.kinds = kinds};
  b->uniform = xcalloc((size_t)UNIFORM_SORTS * (size_t)kinds->kinds, sizeof *b->uniform);
  b->heads = xcalloc(4096, sizeof *b->heads);
  b->links = xcalloc(STATES, sizeof *b->links);
  memset(b->heads, 0xff, 4096 * sizeof *b->heads);
  Row none;
  row_clear(none);
  vec_reserve(&b->rows, 1);
  b->rows.count = 1;
  memcpy(b->rows.data[0], none, sizeof none); // state 0, filled in last
  make_first_row(b);
  free(b->uniform);
  free(b->heads);
  free(b->links);
}

// Rows are made before those that lead to them, but for row 0: reach follows in order.
static void find_reach(JsonChars *chars) {
  chars->words = (chars->kinds + 63) / 64;
  chars->reach = xcalloc((size_t)chars->states * (size_t)chars->words, sizeof *chars->reach);
  for (int i = 1; i <= chars->states; i++) {
    int state = i % chars->states;
    uint64_t *to = chars->reach + (size_t)state * (size_t)chars->words;
    for (int c = 0; c < 256; c++) {
      int next = chars->next[state * 256 + c];
      if (next >= CHAR_DONE) to[(next - CHAR_DONE) / 64] |= 1ull << (next - CHAR_DONE) % 64;
      else if (next > 0)
        for (int w = 0; w < chars->words; w++) to[w] |= chars->reach[next * chars->words + w];
    }
  }
}

// Walks both automata at once.
static void find_shapes(JsonChars *chars, const Row *one) {
  chars->shape = xcalloc((size_t)chars->states, 1);
  Vec(int) open = {0};
  bool *seen = xcalloc((size_t)chars->states, sizeof *seen);
  vec_push(&open, 0);
  seen[0] = true;
  while (open.count) {
    int state = open.data[--open.count];
    for (int c = 0; c < 256; c++) {
      int next = chars->next[state * 256 + c];
      if (next < 0 || next >= CHAR_DONE || seen[next]) continue;
      seen[next] = true;
      chars->shape[next] = (uint8_t)one[chars->shape[state]][c];
      vec_push(&open, next);
    }
  }
  vec_free(&open);
  free(seen);
}

bool json_chars_make(const CharKinds *kinds, JsonChars *chars) {
  uint32_t zero = 0;
  int first_kind = 0;
  Builder b, one;
  build_rows(&b, kinds);
  *chars = (JsonChars){.states = b.rows.count, .kinds = kinds->kinds};
  chars->next = &b.rows.data[0][0];
  if (b.full) return json_chars_free(chars), false;
  find_reach(chars);
  build_rows(&one, &(CharKinds){.ranges = 1, .kinds = 1, .first = &zero, .kind = &first_kind});
  CHECK(one.rows.count <= CHAR_SHAPES);
  find_shapes(chars, one.rows.data);
  vec_free(&one.rows);
  return true;
}

void json_chars_free(JsonChars *chars) {
  free(chars->next);
  free(chars->shape);
  free(chars->reach);
  *chars = (JsonChars){0};
}
