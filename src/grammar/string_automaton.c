// Which strings a schema allows: tables from expressions and lists of words, with bounds of lengths, without dead ends.
#include "grammar/string_automaton.h"
#include "base/vec.h"
#include "grammar/grammar.h"
#include "tokenizer/bpe.h"
#include <string.h>

enum { MOST_STATES = 65536, MOST_CELLS = 4000000, MOST_CLASSES = 300 };

static bool same_kinds(const StringAutomaton *a, int s, int t) {
  for (int k = 0; k < a->kinds; k++)
    if ((a->next[s * a->kinds + k] < 0) != (a->next[t * a->kinds + k] < 0)) return false;
  return true;
}

// Returns how many classes there are.
static int find_classes(StringAutomaton *a) {
  int size = 64, count = 0;
  while (size < 2 * a->states) size *= 2;
  int *table = xcalloc((size_t)size, sizeof *table); // a state of the class, and 1
  a->class = xcalloc((size_t)a->states + 1, sizeof *a->class);
  for (int s = 0; s < a->states; s++) {
    uint64_t h = 14695981039346656037u;
    for (int k = 0; k < a->kinds; k++) h = (h ^ (a->next[s * a->kinds + k] < 0)) * 1099511628211u;
    int at = (int)((h ^ h >> 32) % (uint64_t)size);
    while (table[at] && !same_kinds(a, table[at] - 1, s)) at = (at + 1) % size;
    if (!table[at]) a->class[s] = count++, table[at] = s + 1;
    else a->class[s] = a->class[table[at] - 1];
  }
  free(table);
  return count;
}

// Whether all kinds that may follow one state may follow another one, by their classes; (classes, classes), NULL where
// they are too many to look.
static bool *compare_classes(const StringAutomaton *a, int classes) {
  if (classes > MOST_CLASSES) return NULL;
  int *state = xcalloc((size_t)classes + 1, sizeof *state);
  bool *within = xcalloc((size_t)classes * (size_t)classes + 1, sizeof *within);
  for (int s = 0; s < a->states; s++) state[a->class[s]] = s;
  for (int c = 0; c < classes; c++)
    for (int d = 0; d < classes; d++) {
      bool all = true;
      for (int k = 0; k < a->kinds && all; k++)
        all = a->next[state[c] * a->kinds + k] < 0 || a->next[state[d] * a->kinds + k] >= 0;
      within[c * classes + d] = all;
    }
  free(state);
  return within;
}

// The greatest numbers that are 1 more than the least of all next states; one that allows less counts as 0.
static void find_runs(StringAutomaton *a) {
  int classes = find_classes(a);
  bool *within = compare_classes(a, classes);
  a->run = xcalloc((size_t)a->states + 1, 1);
  memset(a->run, RUN_ENDLESS, (size_t)a->states);
  for (bool changed = true; changed;) {
    changed = false;
    for (int s = a->states - 1; s >= 0; s--) {
      int least = RUN_ENDLESS;
      for (int k = 0; k < a->kinds && least; k++) {
        int next = a->next[s * a->kinds + k];
        if (next < 0) continue;
        int own = a->class[s], other = a->class[next];
        int run = own == other || (within && within[own * classes + other]) ? a->run[next] : 0;
        if (run < least) least = run;
      }
      int run = least < RUN_ENDLESS - 1 ? least + 1 : least;
      changed |= run != a->run[s];
      a->run[s] = (uint8_t)run;
    }
  }
  free(within);
}

// endless: there is no bound of lengths, and a look at all states would say no more.
static void find_most(StringAutomaton *a, bool endless) {
  a->most = xcalloc((size_t)a->states + 1, 1);
  memset(a->most, endless ? RUN_ENDLESS : 0, (size_t)a->states);
  for (bool changed = !endless; changed;) {
    changed = false;
    for (int s = a->states - 1; s >= 0; s--)
      for (int k = 0; k < a->kinds; k++) {
        int next = a->next[s * a->kinds + k], most = next < 0 ? 0 : a->most[next] + (a->most[next] < RUN_ENDLESS);
        if (most > a->most[s]) a->most[s] = (uint8_t)most, changed = true;
      }
  }
}

// Makes an automaton of a table and takes it over.
static int finish(StringAutomaton *a, CharTable *table, Error *error) {
  a->states = table->states;
  a->kinds = table->kinds.kinds;
  a->next = table->next;
  a->out = table->out;
  table->next = table->out = NULL;
  a->ranges = table->kinds;
  table->kinds = (CharKinds){0};
  bool fits = json_chars_make(&a->ranges, &a->chars);
  char_table_free(table);
  if (fits) return find_runs(a), PLAIT_OK;
  string_automaton_free(a);
  return error_set(error, GRAMMAR_NOT_BUILT, "tells too many kinds of characters apart");
}

void string_automaton_any(StringAutomaton *a, int64_t min, int64_t max) {
  CharTable table = {.states = 1, .next = xcalloc(1, sizeof *table.next), .out = xcalloc(1, sizeof *table.out)};
  CHECK(char_kinds_make(NULL, 0, &table.kinds));
  *a = (StringAutomaton){.any = true, .min = min, .max = max};
  CHECK(finish(a, &table, NULL) == PLAIT_OK);
}

// ---- expressions ----------------------------------------------------------------------------------------------------

// Leaves out the states from which nothing is accepted; none are left where the first one is such.
static void drop_dead_ends(CharTable *t) {
  int kinds = t->kinds.kinds, live = 0;
  bool *lives = xcalloc((size_t)t->states, sizeof *lives);
  int *place = xcalloc((size_t)t->states, sizeof *place);
  for (bool changed = true; changed;) {
    changed = false;
    for (int s = t->states - 1; s >= 0; s--) {
      bool now = lives[s] || t->out[s] != STRING_REFUSED;
      for (int k = 0; k < kinds && !now; k++) now = t->next[s * kinds + k] >= 0 && lives[t->next[s * kinds + k]];
      changed |= now != lives[s];
      lives[s] = now;
    }
  }
  for (int s = 0; s < t->states; s++) place[s] = lives[s] ? live++ : STRING_REFUSED;
  for (int s = 0; s < t->states; s++) {
    if (!lives[s]) continue;
    t->out[place[s]] = t->out[s];
    for (int k = 0; k < kinds; k++) {
      int next = t->next[s * kinds + k];
      t->next[place[s] * kinds + k] = next < 0 ? STRING_REFUSED : place[next];
    }
  }
  t->states = lives[0] ? live : 0;
  free(lives);
  free(place);
}

// A state for each state and number of characters; `most` counts no further where there is no bound above.
static int count_characters(CharTable *t, int64_t min, int64_t max, Error *error) {
  int kinds = t->kinds.kinds;
  int64_t most = max >= 0 ? max : min, width = most + 1;
  if (width > MOST_STATES || width * t->states > MOST_STATES * 8ll)
    return error_set(error, GRAMMAR_NOT_BUILT, "takes too many states with these lengths");
  int *place = xcalloc((size_t)(width * t->states), sizeof *place); // number + 1
  Vec(int) states = {0}, next = {0}, out = {0};
  vec_push(&states, 0);
  place[0] = 1;
  bool fits = true;
  for (int i = 0; i < states.count && fits; i++) {
    int state = (int)(states.data[i] / width), n = (int)(states.data[i] % width);
    vec_push(&out, n >= min ? t->out[state] : STRING_REFUSED);
    for (int k = 0; k < kinds; k++) {
      int to = t->next[state * kinds + k], more = n < most ? n + 1 : max < 0 ? n : -1;
      int key = to < 0 || more < 0 ? -1 : (int)(to * width + more);
      if (key >= 0 && !place[key]) {
        vec_push(&states, key);
        place[key] = states.count;
      }
      vec_push(&next, key < 0 ? STRING_REFUSED : place[key] - 1);
    }
    fits = states.count <= MOST_STATES && (int64_t)states.count * kinds <= MOST_CELLS;
  }
  free(t->next);
  free(t->out);
  t->next = next.data;
  t->out = out.data;
  t->states = states.count;
  vec_free(&states);
  free(place);
  return fits ? PLAIT_OK : error_set(error, GRAMMAR_NOT_BUILT, "takes too many states with these lengths");
}

int string_automaton_pattern(StringAutomaton *a, const char *text, size_t bytes, int64_t min, int64_t max,
                             Error *error) {
  CharTable table;
  *a = (StringAutomaton){.max = -1};
  int code = pattern_table(text, bytes, &table, error);
  if (code >= 0 && table.states) drop_dead_ends(&table);
  if (code >= 0 && table.states && (min > 0 || max >= 0)) {
    code = count_characters(&table, min, max, error);
    if (code >= 0) drop_dead_ends(&table);
  }
  if (code >= 0) code = finish(a, &table, error);
  if (code >= 0) find_most(a, max < 0);
  if (code >= 0) return code;
  char_table_free(&table);
  return code;
}

// ---- lists of words -------------------------------------------------------------------------------------------------

// Calls for each character of a word; false: not UTF-8.
static bool next_code(const StringWord *word, size_t *at, uint32_t *code) {
  int n = utf8_get(word->text + *at, word->bytes - *at, code);
  *at += (size_t)n;
  return n > 0;
}

static int word_kinds(const StringWord *words, int count, CharKinds *kinds, Error *error) {
  UnicodeSet all = {0}, *sets = NULL;
  uint32_t code;
  bool fits = true;
  for (int i = 0; i < count; i++)
    for (size_t at = 0; at < words[i].bytes;) {
      if (!next_code(&words[i], &at, &code)) return vec_free(&all), error_set(error, PLAIT_BAD_INPUT, "is not UTF-8");
      unicode_set_add(&all, code, code + 1);
    }
  unicode_set_tidy(&all);
  int n = 0; // a set for each character
  for (int i = 0; i < all.count; i++) n += (int)(all.data[i].end - all.data[i].first);
  if (n < CHAR_KINDS) {
    sets = xcalloc((size_t)n + 1, sizeof *sets);
    n = 0;
    for (int i = 0; i < all.count; i++)
      for (uint32_t c = all.data[i].first; c < all.data[i].end; c++, n++) unicode_set_add(&sets[n], c, c + 1);
    fits = char_kinds_make(sets, n, kinds);
    for (int i = 0; i < n; i++) vec_free(&sets[i]);
    free(sets);
  } else fits = false;
  vec_free(&all);
  return fits ? PLAIT_OK : error_set(error, GRAMMAR_NOT_BUILT, "has too many different characters");
}

typedef Vec(int32_t) Numbers;

static int new_state(Numbers *next, Numbers *out, int kinds, int other) {
  for (int k = 0; k < kinds; k++) vec_push(next, other);
  vec_push(out, other == STRING_REFUSED ? STRING_REFUSED : STRING_OTHER);
  return out->count - 1;
}

// The words that begin as each state has it: a word is listed at all states on its way.
static void list_words(StringAutomaton *a, const CharKinds *kinds, const StringWord *words, int count) {
  uint32_t code;
  a->word_start = xcalloc((size_t)a->states + 1, sizeof *a->word_start);
  int *filled = xcalloc((size_t)a->states, sizeof *filled);
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < count; i++) {
      int state = 0;
      for (size_t at = 0;;) {
        if (pass) a->words[a->word_start[state] + filled[state]++] = i;
        else a->word_start[state + 1]++;
        if (at >= words[i].bytes) break;
        next_code(&words[i], &at, &code);
        state = a->next[state * kinds->kinds + char_kinds_of(kinds, code)];
      }
    }
    for (int s = 0; s < a->states && !pass; s++) a->word_start[s + 1] += a->word_start[s];
    if (!pass) a->words = xcalloc((size_t)a->word_start[a->states] + 1, sizeof *a->words);
  }
  free(filled);
}

int string_automaton_words(StringAutomaton *a, const StringWord *words, int count, bool others, Error *error) {
  CharTable table = {0};
  Numbers next = {0}, out = {0};
  uint32_t code;
  *a = (StringAutomaton){.max = -1, .others = others};
  if (word_kinds(words, count, &table.kinds, error) < 0) return PLAIT_BAD_INPUT;
  int kinds = table.kinds.kinds, other = others ? 1 : STRING_REFUSED;
  new_state(&next, &out, kinds, other);
  if (others) new_state(&next, &out, kinds, other);
  bool fits = true;
  for (int i = 0; i < count && fits; i++) {
    int state = 0;
    for (size_t at = 0; at < words[i].bytes;) {
      next_code(&words[i], &at, &code);
      int cell = state * kinds + char_kinds_of(&table.kinds, code);
      if (next.data[cell] == other) {
        int made = new_state(&next, &out, kinds, other);
        next.data[cell] = made;
      }
      state = next.data[cell];
    }
    out.data[state] = i;
    fits = out.count <= MOST_STATES && (int64_t)out.count * kinds <= MOST_CELLS;
  }
  table.next = next.data;
  table.out = out.data;
  table.states = out.count;
  if (!fits) {
    char_table_free(&table);
    return error_set(error, GRAMMAR_NOT_BUILT, "has too many characters in all");
  }
  a->states = table.states;
  a->next = table.next;
  list_words(a, &table.kinds, words, count);
  if (finish(a, &table, error) < 0) return PLAIT_BAD_INPUT;
  find_most(a, true);
  return PLAIT_OK;
}

bool string_is_live(const StringAutomaton *a, int state, int place) {
  const uint64_t *reach = a->chars.reach + (size_t)place * (size_t)a->chars.words;
  for (int k = 0; k < a->kinds; k++)
    if (reach[k / 64] >> k % 64 & 1 && a->next[state * a->kinds + k] >= 0) return true;
  return false;
}

bool string_automata_meet(const StringAutomaton *a, const StringAutomaton *b) {
  int64_t pairs = (int64_t)a->states * b->states;
  if (!pairs || pairs > MOST_STATES * 16) return pairs != 0; // too many to look
  bool *seen = xcalloc((size_t)pairs, sizeof *seen), meet = false;
  Vec(int) open = {0};
  vec_push(&open, 0);
  seen[0] = true;
  while (open.count && !meet) {
    int pair = open.data[--open.count], x = pair / b->states, y = pair % b->states;
    meet = a->out[x] != STRING_REFUSED && b->out[y] != STRING_REFUSED;
    for (int i = 0, j = 0; i < a->ranges.ranges && j < b->ranges.ranges;) {
      int to = a->next[x * a->kinds + a->ranges.kind[i]], other = b->next[y * b->kinds + b->ranges.kind[j]];
      if (to >= 0 && other >= 0 && !seen[to * b->states + other]) {
        seen[to * b->states + other] = true;
        vec_push(&open, to * b->states + other);
      }
      uint32_t end = i + 1 < a->ranges.ranges ? a->ranges.first[i + 1] : UNICODE_END;
      uint32_t other_end = j + 1 < b->ranges.ranges ? b->ranges.first[j + 1] : UNICODE_END;
      i += end <= other_end;
      j += other_end <= end;
    }
  }
  free(seen);
  vec_free(&open);
  return meet;
}

void string_automaton_free(StringAutomaton *a) {
  json_chars_free(&a->chars);
  char_kinds_free(&a->ranges);
  free(a->next);
  free(a->out);
  free(a->run);
  free(a->most);
  free(a->class);
  free(a->word_start);
  free(a->words);
  *a = (StringAutomaton){0};
}
