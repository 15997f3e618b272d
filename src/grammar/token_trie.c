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
  Vec(int32_t) skip, rank;
  int open[TOKEN_BYTES]; // the node at each depth of the path
} Builder;

static void close_from(Builder *b, int depth, int deepest) {
  for (int d = depth; d < deepest; d++) b->skip.data[b->open[d]] = b->byte.count;
}

// Of words in order.
static void build(ByteTrie *t, const Word *words, int count) {
  Builder b = {0};
  const Word *last = NULL;
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
      vec_push(&b.rank, i);
    }
    last = w;
  }
  if (last) close_from(&b, 0, last->bytes);
  vec_push(&b.rank, count);
  t->nodes = b.byte.count;
  t->byte = b.byte.data;
  t->depth = b.depth.data;
  t->skip = b.skip.data;
  t->rank = b.rank.data;
}

typedef Vec(Closer) Closers;

// The rest after the quote begins at byte `rest` of all tokens' bytes for now.
static void add_closers(const TokenTrie *t, Closers *closers, int quote, int characters) {
  bool same = false;
  for (int i = quote; i < t->all.skip[quote]; i++)
    for (int r = t->all.rank[i]; r < t->all.rank[i + 1]; r++) {
      int rest = (int)t->start[t->id[r]] + t->all.depth[quote] + 1;
      Closer c = {r, i, rest, t->all.depth[quote], characters, same, t->text + t->start[t->id[r]]};
      vec_push(closers, c);
      same = true;
    }
}

static void pack_texts(TokenTrie *t, int place) {
  size_t all = 0;
  for (int i = 0; i < t->closer_count[place]; i++)
    if (!t->closers[place][i].again) all += (size_t)t->closers[place][i].bytes;
  char *to = t->closer_text[place] = xcalloc(all + 1, 1);
  for (int i = 0; i < t->closer_count[place]; i++) {
    Closer *c = &t->closers[place][i];
    if (!c->again) memcpy(to, c->text, (size_t)c->bytes), to += c->bytes;
    c->text = to - c->bytes;
  }
}

// Looks at all tokens from one place within a string.
static void look_from(TokenTrie *t, int place, int *places, int *counts) {
  uint8_t *needs = t->needs + (size_t)place * (size_t)t->count;
  Closers closers = {0};
  memset(needs, NEEDS_REFUSED, (size_t)t->count);
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
    for (int r = t->all.rank[i]; r < t->all.rank[i + 1]; r++) needs[r] = (uint8_t)need;
    i++;
  }
  t->closers[place] = closers.data;
  t->closer_count[place] = closers.count;
  pack_texts(t, place);
}

// The texts that follow quotes, each once, in a trie of their own.
static void collect_rests(TokenTrie *t) {
  Vec(Word) rests = {0};
  Vec(Closer *) owners = {0};
  for (int p = 0; p < t->chars.states; p++)
    for (int i = 0; i < t->closer_count[p]; i++) {
      Closer *c = &t->closers[p][i];
      Word w = {t->text + c->rest, (int)(t->start[t->id[c->token] + 1] - (size_t)c->rest), owners.count};
      if (!w.bytes) c->rest = -1;
      else {
        vec_push(&rests, w);
        vec_push(&owners, c);
      }
    }
  if (rests.count) qsort(rests.data, (size_t)rests.count, sizeof *rests.data, by_bytes);
  int n = 0;
  for (int i = 0; i < rests.count; i++) {
    Word w = rests.data[i];
    bool again = n && rests.data[n - 1].bytes == w.bytes && !memcmp(rests.data[n - 1].text, w.text, (size_t)w.bytes);
    if (!again) rests.data[n++] = w;
    owners.data[w.id]->rest = n - 1;
    rests.data[n - 1].id = n - 1;
  }
  build(&t->rests, rests.data, n);
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

static void look_from_all(TokenTrie *t) {
  CharKinds one;
  CHECK(char_kinds_make(NULL, 0, &one) && json_chars_make(&one, &t->chars));
  char_kinds_free(&one);
  t->needs = xcalloc((size_t)t->chars.states * (size_t)t->count + 1, 1);
  int *places = xcalloc(2 * (TOKEN_BYTES + 1), sizeof *places);
  for (int p = 0; p < t->chars.states; p++) look_from(t, p, places, places + TOKEN_BYTES + 1);
  free(places);
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
  build(&t->all, words.data, words.count);
  t->count = words.count;
  t->id = xcalloc((size_t)words.count + 1, sizeof *t->id);
  t->rank = xcalloc((size_t)count + 1, sizeof *t->rank);
  for (int i = 0; i < count; i++) t->rank[i] = t->count;
  for (int i = 0; i < words.count; i++) t->rank[t->id[i] = words.data[i].id] = i;
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
  free(t->rank);
}

void token_trie_free(TokenTrie *t) {
  if (!t) return;
  byte_trie_free(&t->all);
  byte_trie_free(&t->rests);
  for (int p = 0; p < CHAR_SHAPES; p++) free(t->closers[p]), free(t->closer_text[p]);
  free(t->rank);
  free(t->text);
  free(t->start);
  free(t->id);
  free(t->special);
  free(t->specials);
  free(t->rest_has_key);
  free(t->needs);
  json_chars_free(&t->chars);
  free(t);
}

int token_trie_size(const TokenTrie *trie) { return trie->size; }
