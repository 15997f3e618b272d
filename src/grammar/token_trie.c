// The vocabulary as a trie in one list, and what tokens do within strings.
#include "grammar/token_trie.h"
#include "base/vec.h"
#include <string.h>

typedef struct Word { const char *text; int bytes, id; } Word;

static int by_bytes(const void *a, const void *b) {
  const Word *x = a, *y = b;
  int n = x->bytes < y->bytes ? x->bytes : y->bytes, order = memcmp(x->text, y->text, (size_t)n);
  if (order) return order;
  return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

typedef struct Builder {
  Vec(uint8_t) byte;
  Vec(uint16_t) depth;
  Vec(int32_t) skip, text;
  int open[TOKEN_BYTES]; // the node at each depth of the path
} Builder;

static void close_from(Builder *b, int depth, int deepest) {
  for (int d = depth; d < deepest; d++) b->skip.data[b->open[d]] = b->byte.count;
}

// Of words in order. texts: one more than the greatest id.
static void build(ByteTrie *t, const Word *words, int count, int texts) {
  Builder b = {0};
  const Word *last = NULL;
  t->same = xcalloc((size_t)texts + 1, sizeof *t->same);
  for (int i = 0; i < texts; i++) t->same[i] = -1;
  for (int i = 0; i < count; i++) {
    const Word *w = &words[i];
    int common = 0;
    while (last && common < last->bytes && common < w->bytes && last->text[common] == w->text[common]) common++;
    if (last) close_from(&b, common, last->bytes);
    for (int d = common; d < w->bytes; d++) {
      b.open[d] = b.byte.count;
      vec_push(&b.byte, (uint8_t)w->text[d]);
      vec_push(&b.depth, (uint16_t)d);
      vec_push(&b.skip, 0);
      vec_push(&b.text, -1);
    }
    int32_t *text = &b.text.data[b.open[w->bytes - 1]];
    t->same[w->id] = *text;
    *text = w->id;
    last = w;
  }
  if (last) close_from(&b, 0, last->bytes);
  t->nodes = b.byte.count;
  t->byte = b.byte.data;
  t->depth = b.depth.data;
  t->skip = b.skip.data;
  t->text = b.text.data;
}

typedef Vec(Closer) Closers;

// The rest after the quote begins at byte `rest` of all tokens' bytes for now.
static void add_closers(const TokenTrie *t, Closers *closers, int quote, int characters) {
  for (int i = quote; i < t->all.skip[quote]; i++)
    for (int id = t->all.text[i]; id >= 0; id = t->all.same[id]) {
      Closer c = {id, i, (int32_t)(t->start[id] + (size_t)t->all.depth[quote] + 1), t->all.depth[quote], characters};
      vec_push(closers, c);
    }
}

// Looks at all tokens from one place within a string.
static void look_from(TokenTrie *t, int place, int *places, int *counts) {
  uint8_t *needs = t->needs + (size_t)place * (size_t)t->size;
  Closers closers = {0};
  memset(needs, NEEDS_REFUSED, (size_t)t->size);
  places[0] = place;
  counts[0] = 0;
  for (int i = 0; i < t->all.nodes;) {
    int d = t->all.depth[i], next = t->chars.next[places[d] * 256 + t->all.byte[i]];
    if (next < 0) {
      if (t->all.byte[i] == '"' && !places[d]) add_closers(t, &closers, i, counts[d]);
      i = t->all.skip[i];
      continue;
    }
    places[d + 1] = next >= CHAR_DONE ? 0 : next;
    counts[d + 1] = counts[d] + (next >= CHAR_DONE);
    int need = counts[d + 1] + (places[d + 1] != 0);
    for (int id = t->all.text[i]; id >= 0; id = t->all.same[id])
      needs[id] = (uint8_t)(need < NEEDS_REFUSED ? need : NEEDS_REFUSED);
    if (t->all.text[i] >= 0 && need > t->most_needs && need < NEEDS_REFUSED) t->most_needs = need;
    i++;
  }
  t->closers[place] = closers.data;
  t->closer_count[place] = closers.count;
}

// The texts that follow quotes, each once, in a trie of their own.
static void collect_rests(TokenTrie *t) {
  Vec(Word) rests = {0};
  Vec(Closer *) owners = {0};
  for (int p = 0; p < t->chars.states; p++)
    for (int i = 0; i < t->closer_count[p]; i++) {
      Closer *c = &t->closers[p][i];
      Word w = {t->text + c->rest, (int)(t->start[c->token + 1] - (size_t)c->rest), owners.count};
      if (!w.bytes) c->rest = -1;
      else {
        vec_push(&rests, w);
        vec_push(&owners, c);
      }
    }
  qsort(rests.data, (size_t)rests.count, sizeof *rests.data, by_bytes);
  int n = 0;
  for (int i = 0; i < rests.count; i++) {
    Word w = rests.data[i];
    bool again = n && rests.data[n - 1].bytes == w.bytes && !memcmp(rests.data[n - 1].text, w.text, (size_t)w.bytes);
    if (!again) rests.data[n++] = w;
    owners.data[w.id]->rest = n - 1;
    rests.data[n - 1].id = n - 1;
  }
  build(&t->rests, rests.data, n, n);
  t->rest_count = n;
  t->rest_has_key = xcalloc((size_t)n + 1, sizeof *t->rest_has_key);
  for (int i = 0; i < n; i++) {
    const Word *w = &rests.data[i];
    const char *quote = memchr(w->text, '"', (size_t)w->bytes);
    t->rest_has_key[i] = quote && memchr(quote + 1, '"', (size_t)(w->text + w->bytes - quote - 1));
  }
  vec_free(&rests);
  vec_free(&owners);
}

// Tokens that end the string have none: they are in a list of their own.
static void find_longest(TokenTrie *t) {
  t->longest = xcalloc((size_t)t->all.nodes + 1, 1);
  for (int i = t->all.nodes - 1; i >= 0; i--) {
    int most = 0;
    for (int id = t->all.text[i]; id >= 0; id = t->all.same[id])
      if (t->needs[id] < NEEDS_REFUSED && t->needs[id] > most) most = t->needs[id];
    for (int k = i + 1; k < t->all.skip[i]; k = t->all.skip[k])
      if (t->longest[k] > most) most = t->longest[k];
    t->longest[i] = (uint8_t)most;
  }
}

static void look_from_all(TokenTrie *t) {
  CharKinds one;
  CHECK(char_kinds_make(NULL, 0, &one) && json_chars_make(&one, &t->chars));
  char_kinds_free(&one);
  t->needs = xcalloc((size_t)t->chars.states * (size_t)t->size, 1);
  int *places = xcalloc(2 * (TOKEN_BYTES + 1), sizeof *places);
  for (int p = 0; p < t->chars.states; p++) look_from(t, p, places, places + TOKEN_BYTES + 1);
  free(places);
  find_longest(t);
  collect_rests(t);
}

// Tokens of which `special` says so have their bytes, and are not in the trie.
static TokenTrie *make(const char *const *text, const int *bytes, const bool *special, int count) {
  TokenTrie *t = xcalloc(1, sizeof *t);
  Vec(Word) words = {0};
  size_t all = 0;
  t->size = count;
  t->special = xcalloc((size_t)count + 1, sizeof *t->special);
  t->specials = xcalloc((size_t)count + 1, sizeof *t->specials);
  t->start = xcalloc((size_t)count + 1, sizeof *t->start);
  for (int i = 0; i < count; i++) {
    t->start[i] = all;
    if (text[i]) all += (size_t)bytes[i];
  }
  t->start[count] = all;
  t->text = xcalloc(all + 1, 1);
  for (int i = 0; i < count; i++) {
    t->special[i] = special && special[i];
    if (t->special[i]) t->specials[t->special_count++] = i;
    if (!text[i] || !bytes[i]) continue;
    memcpy(t->text + t->start[i], text[i], (size_t)bytes[i]);
    Word w = {t->text + t->start[i], bytes[i], i};
    if (!t->special[i] && bytes[i] <= TOKEN_BYTES) vec_push(&words, w);
  }
  qsort(words.data, (size_t)words.count, sizeof *words.data, by_bytes);
  build(&t->all, words.data, words.count, count);
  vec_free(&words);
  look_from_all(t);
  return t;
}

TokenTrie *token_trie_of(const char *const *text, const int *bytes, const bool *special, int count) {
  return make(text, bytes, special, count);
}

TokenTrie *token_trie_create(const Tokenizer *t) {
  int n = tokenizer_vocab_size(t);
  const char **text = xcalloc((size_t)n + 1, sizeof *text);
  int *bytes = xcalloc((size_t)n + 1, sizeof *bytes);
  bool *special = xcalloc((size_t)n + 1, sizeof *special);
  Arena arena = {0};
  for (int i = 0; i < n; i++) {
    if (!t->token_text[i]) continue;
    text[i] = t->decoded[i].text;
    bytes[i] = t->decoded[i].bytes;
    special[i] = t->token_special[i] != 0;
    if (!t->decoder.joins) continue;
    char *parted = arena_alloc(&arena, (size_t)bytes[i] + 2);
    parted[0] = ' ';
    memcpy(parted + 1, t->decoded[i].text, (size_t)bytes[i]++);
    text[i] = parted;
  }
  TokenTrie *trie = make(text, bytes, special, n);
  arena_free(&arena);
  free(text);
  free(bytes);
  free(special);
  return trie;
}

static void byte_trie_free(ByteTrie *t) {
  free(t->byte);
  free(t->depth);
  free(t->skip);
  free(t->text);
  free(t->same);
}

void token_trie_free(TokenTrie *t) {
  if (!t) return;
  byte_trie_free(&t->all);
  byte_trie_free(&t->rests);
  for (int p = 0; p < CHAR_SHAPES; p++) free(t->closers[p]);
  free(t->text);
  free(t->start);
  free(t->special);
  free(t->specials);
  free(t->rest_has_key);
  free(t->needs);
  free(t->longest);
  json_chars_free(&t->chars);
  free(t);
}

int token_trie_size(const TokenTrie *trie) { return trie->size; }
