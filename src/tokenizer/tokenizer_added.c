// Added tokens: leftmost match, the longest of those that start there, with the options of Hugging Face's AddedToken.
#include "tokenizer/tokenizer_added.h"
#include <string.h>

static int compare_added(const void *left, const void *right) {
  const AddedToken *a = *(const AddedToken *const *)left, *b = *(const AddedToken *const *)right;
  if (a->text[0] != b->text[0]) return (uint8_t)a->text[0] < (uint8_t)b->text[0] ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->id < b->id ? -1 : 1;
}

void added_set_build(AddedSet *set, Arena *arena, const AddedToken *tokens, int count, int normalized) {
  set->tokens = arena_array(arena, const AddedToken *, count + 1);
  for (int i = 0; i < count; i++)
    if (tokens[i].normalized == normalized && tokens[i].bytes) set->tokens[set->count++] = &tokens[i];
  if (set->count) qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, compare_added);
  for (int b = 0, i = 0; b < 256; b++) {
    set->first[b] = i;
    for (; i < set->count && (uint8_t)set->tokens[i]->text[0] == b; i++) {
      const AddedToken *token = set->tokens[i], *head = set->tokens[set->first[b]];
      int common = i == set->first[b] ? token->bytes : set->common[b], n = 0;
      while (n < common && n < token->bytes && token->text[n] == head->text[n]) n++;
      set->common[b] = n;
    }
    set->first[b + 1] = i;
  }
}

// The span that the position lies in, or the next one after it.
static int find_span(const AddedPlaces *p, size_t at) {
  int low = 0, high = p->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (p->spans[middle].end > at) high = middle;
    else low = middle + 1;
  }
  return low;
}

static bool lies_in_span(const AddedPlaces *p, size_t start, size_t end) {
  if (!p) return true;
  start += p->offset;
  end += p->offset;
  int i = find_span(p, start);
  return i < p->count && p->spans[i].start <= start && end <= p->spans[i].end;
}

// Does a span begin within these bytes? Then a token that is passed over may hide the begin of one in the span.
static bool reaches_span(const AddedPlaces *p, size_t start, size_t end) {
  int i = find_span(p, start + p->offset);
  return i < p->count && p->spans[i].start < end + p->offset;
}

// The longest token at the begin of the text that may be found there; else *passed is the longest of the others.
static const AddedToken *find_at(const AddedSet *set, const char *text, size_t at, size_t bytes,
                                 const AddedPlaces *special, const AddedToken **passed) {
  int b = (uint8_t)text[at], common = set->common[b];
  *passed = NULL;
  if ((size_t)common > bytes - at) return NULL;
  const char *prefix = set->tokens[set->first[b]]->text;
  if (memcmp(prefix, text + at, (size_t)common)) return NULL;
  for (int i = set->first[b]; i < set->first[b + 1]; i++) {
    const AddedToken *token = set->tokens[i];
    if ((size_t)token->bytes > bytes - at || memcmp(token->text, text + at, (size_t)token->bytes)) continue;
    if (!token->special || lies_in_span(special, at, at + (size_t)token->bytes)) return token;
    if (!*passed) *passed = token;
    if (!reaches_span(special, at, at + (size_t)token->bytes)) return NULL; // it hides shorter ones
  }
  return NULL;
}

void added_prepare_word(Tokenizer *t) {
  for (int i = 0; i < t->added_count; i++)
    if (t->added[i].single_word && !t->added_word.count) unicode_set_named(&t->added_word, "*word");
  t->added_raw.word = t->added_normalized.word = &t->added_word;
}

static int stands_alone(const AddedSet *set, const char *text, size_t bytes, size_t start, size_t end) {
  uint32_t code;
  int after = end < bytes ? utf8_get(text + end, bytes - end, &code) : 0;
  if (after && unicode_set_has(set->word, code)) return 0;
  for (size_t n = 1; n <= 4 && n <= start; n++)
    if ((text[start - n] & 0xC0) != 0x80)
      return utf8_get(text + start - n, n, &code) != (int)n || !unicode_set_has(set->word, code);
  return 1;
}

int added_next(const AddedSet *set, const char *text, size_t bytes, const AddedPlaces *special, size_t done,
               size_t *scan, AddedMatch *match) {
  if (!set->count) return 0;
  for (size_t i = *scan; i < bytes; i++) {
    int b = (uint8_t)text[i];
    if (set->first[b] == set->first[b + 1]) continue;
    const AddedToken *passed, *token = find_at(set, text, i, bytes, special, &passed);
    if (!token && !passed) continue;
    size_t start = i, end = i + (size_t)(token ? token : passed)->bytes;
    if (!token || (token->single_word && !stands_alone(set, text, bytes, start, end))) {
      if (token || !reaches_span(special, start, end)) i = end - 1;
      continue;
    }
    *scan = end;
    for (int n; token->lstrip && start > done && (n = utf8_space_before(text + done, start - done));)
      start -= (size_t)n;
    for (int n; token->rstrip && end < bytes && (n = utf8_space(text + end, bytes - end));) end += (size_t)n;
    *match = (AddedMatch){token, start, end};
    return 1;
  }
  return 0;
}
