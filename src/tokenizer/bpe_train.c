// Learning merges with a queue of pairs by count that is brought up to date only where a merge changed something.
#include "tokenizer/bpe_train.h"
#include <string.h>

// ---- words ---------------------------------------------------------------------------------------------------------

static uint32_t hash_word(const char *s, int32_t n) {
  uint64_t h = 0xCBF29CE484222325u;
  for (int32_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
  return (uint32_t)(h ^ h >> 32);
}

static void word_table_grow(WordTable *table, uint32_t slots) {
  table->slots = xrealloc(table->slots, slots * sizeof *table->slots);
  memset(table->slots, 0xFF, slots * sizeof *table->slots);
  table->mask = slots - 1;
  for (int i = 0; i < table->count; i++) {
    uint32_t k = table->words[i].hash;
    while (table->slots[k & table->mask] >= 0) k++;
    table->slots[k & table->mask] = i;
  }
}

static void append_word(WordTable *table, const char *word, int32_t bytes, uint32_t hash, int64_t count) {
  if (table->count == table->capacity) {
    table->capacity = table->capacity ? 2 * table->capacity : 1024;
    table->words = xrealloc(table->words, (size_t)table->capacity * sizeof *table->words);
  }
  if (table->text_bytes + bytes > table->text_capacity) {
    table->text_capacity = 2 * table->text_capacity + bytes + (16 << 10);
    table->text = xrealloc(table->text, (size_t)table->text_capacity);
  }
  memcpy(table->text + table->text_bytes, word, (size_t)bytes);
  table->words[table->count++] = (CountedWord){table->text_bytes, count, bytes, hash};
  table->text_bytes += bytes;
}

void word_table_add(WordTable *table, const char *word, int32_t bytes, int64_t count) {
  if (!table->slots || (uint32_t)table->count * 2 >= table->mask)
    word_table_grow(table, table->slots ? 2 * (table->mask + 1) : 2048);
  uint32_t hash = hash_word(word, bytes), k = hash;
  for (; table->slots[k & table->mask] >= 0; k++) {
    CountedWord *w = &table->words[table->slots[k & table->mask]];
    if (w->hash != hash || w->bytes != bytes || memcmp(table->text + w->start, word, (size_t)bytes)) continue;
    w->count += count;
    return;
  }
  table->slots[k & table->mask] = table->count;
  append_word(table, word, bytes, hash, count);
}

void word_table_clear(WordTable *table) {
  table->count = 0;
  table->text_bytes = 0;
  if (table->slots) memset(table->slots, 0xFF, ((size_t)table->mask + 1) * sizeof *table->slots);
}

void word_table_free(WordTable *table) {
  free(table->words);
  free(table->slots);
  free(table->text);
  *table = (WordTable){0};
}

void word_table_prune(WordTable *table, int words) {
  int64_t limit = table->text_bytes / 2;
  for (int64_t least = 2; table->count > words || table->text_bytes > limit; least *= 2) {
    WordTable kept = {0};
    for (int i = 0; i < table->count; i++) {
      const CountedWord *w = &table->words[i];
      if (w->count >= least) word_table_add(&kept, table->text + w->start, w->bytes, w->count);
    }
    word_table_free(table);
    *table = kept;
  }
}

// ---- pairs ---------------------------------------------------------------------------------------------------------

typedef struct Pair {
  int32_t left, right;
  int64_t count;
  IdVector words; // that held it once; some may not any more
  int changed;    // it is in the list of pairs that the current merge made more frequent
} Pair;

typedef struct Queued { int64_t count; int32_t left, right, pair; } Queued;
typedef struct LearnedWord { int64_t start, count; int32_t length; } LearnedWord;

typedef struct Learner {
  int32_t first_id;
  int32_t *symbols;   // of all words, each from its start
  LearnedWord *words; // (word_count)
  int word_count;
  Vec(Pair) pairs;
  int32_t *pair_slots; // (left, right) → pair, open addressing
  uint32_t pair_mask;
  Vec(Queued) queue;   // heap: most frequent first, then smallest
  IdVector changed;
  WordTable names;     // tokens by text, to find merges that make a token which exists
  BpeLearned *learned;
} Learner;

static uint32_t hash_pair(int32_t left, int32_t right) {
  uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
  return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 15);
}

static void grow_pairs(Learner *l) {
  uint32_t slots = l->pair_slots ? 2 * (l->pair_mask + 1) : 4096;
  l->pair_slots = xrealloc(l->pair_slots, slots * sizeof *l->pair_slots);
  memset(l->pair_slots, 0xFF, slots * sizeof *l->pair_slots);
  l->pair_mask = slots - 1;
  for (int i = 0; i < l->pairs.count; i++) {
    uint32_t k = hash_pair(l->pairs.data[i].left, l->pairs.data[i].right);
    while (l->pair_slots[k & l->pair_mask] >= 0) k++;
    l->pair_slots[k & l->pair_mask] = i;
  }
}

static int find_pair(Learner *l, int32_t left, int32_t right) {
  if (!l->pair_slots || (uint32_t)l->pairs.count * 2 >= l->pair_mask) grow_pairs(l);
  uint32_t k = hash_pair(left, right);
  for (; l->pair_slots[k & l->pair_mask] >= 0; k++) {
    int i = l->pair_slots[k & l->pair_mask];
    if (l->pairs.data[i].left == left && l->pairs.data[i].right == right) return i;
  }
  l->pair_slots[k & l->pair_mask] = l->pairs.count;
  vec_push(&l->pairs, (Pair){.left = left, .right = right});
  return l->pairs.count - 1;
}

static void pair_more(Learner *l, int32_t left, int32_t right, int word) {
  int i = find_pair(l, left, right);
  Pair *pair = &l->pairs.data[i];
  pair->count += l->words[word].count;
  if (!pair->words.count || pair->words.data[pair->words.count - 1] != word) vec_push(&pair->words, word);
  if (!pair->changed) vec_push(&l->changed, i);
  pair->changed = 1;
}

static void pair_less(Learner *l, int32_t left, int32_t right, int word) {
  l->pairs.data[find_pair(l, left, right)].count -= l->words[word].count;
}

static int queued_before(Queued a, Queued b) {
  if (a.count != b.count) return a.count > b.count;
  return a.left != b.left ? a.left < b.left : a.right < b.right;
}

static void enqueue(Learner *l, int i) {
  const Pair *pair = &l->pairs.data[i];
  Queued item = {pair->count, pair->left, pair->right, i};
  vec_push(&l->queue, item);
  int k = l->queue.count - 1;
  for (; k > 0 && queued_before(item, l->queue.data[(k - 1) / 2]); k = (k - 1) / 2)
    l->queue.data[k] = l->queue.data[(k - 1) / 2];
  l->queue.data[k] = item;
}

static Queued dequeue(Learner *l) {
  Queued top = l->queue.data[0], last = l->queue.data[--l->queue.count];
  int n = l->queue.count, i = 0;
  while (2 * i + 1 < n) {
    int child = 2 * i + 1;
    if (child + 1 < n && queued_before(l->queue.data[child + 1], l->queue.data[child])) child++;
    if (!queued_before(l->queue.data[child], last)) break;
    l->queue.data[i] = l->queue.data[child];
    i = child;
  }
  if (n) l->queue.data[i] = last;
  return top;
}

static void enqueue_changed(Learner *l) {
  for (int i = 0; i < l->changed.count; i++) {
    Pair *pair = &l->pairs.data[l->changed.data[i]];
    pair->changed = 0;
    if (pair->count > 0) enqueue(l, l->changed.data[i]);
  }
  l->changed.count = 0;
}

// ---- merging -------------------------------------------------------------------------------------------------------

static void merge_in_word(Learner *l, int word, int32_t left, int32_t right, int32_t id) {
  LearnedWord *w = &l->words[word];
  int32_t *s = l->symbols + w->start, n = w->length, out = 0;
  for (int32_t i = 0; i < n;) {
    if (i + 1 >= n || s[i] != left || s[i + 1] != right) {
      s[out++] = s[i++];
      continue;
    }
    if (out) {
      pair_less(l, s[out - 1], left, word);
      pair_more(l, s[out - 1], id, word);
    }
    if (i + 2 < n) {
      pair_less(l, right, s[i + 2], word);
      pair_more(l, id, s[i + 2], word);
    }
    s[out++] = id;
    i += 2;
  }
  w->length = out;
}

// The id of the token that a merge makes: a new one, unless another merge made the same text before.
static int32_t token_of(Learner *l, int32_t left, int32_t right) {
  BpeLearned *learned = l->learned;
  LearnedToken a = learned->tokens.data[left - l->first_id], b = learned->tokens.data[right - l->first_id];
  int bytes = a.bytes + b.bytes, known = l->names.count;
  char *text = arena_alloc(&learned->arena, (size_t)bytes + 1);
  memcpy(text, a.text, (size_t)a.bytes);
  memcpy(text + a.bytes, b.text, (size_t)b.bytes);
  word_table_add(&l->names, text, bytes, 1);
  if (l->names.count > known) {
    vec_push(&learned->tokens, (LearnedToken){text, bytes});
    return l->first_id + known;
  }
  uint32_t k = hash_word(text, bytes);
  for (;; k++) {
    int32_t i = l->names.slots[k & l->names.mask];
    if (learned->tokens.data[i].bytes == bytes && !memcmp(learned->tokens.data[i].text, text, (size_t)bytes))
      return l->first_id + i;
  }
}

static void merge_pair(Learner *l, int i) {
  int32_t left = l->pairs.data[i].left, right = l->pairs.data[i].right, id = token_of(l, left, right);
  IdVector words = l->pairs.data[i].words;
  l->pairs.data[i].words = (IdVector){0};
  vec_push(&l->learned->merges, (LearnedMerge){left, right, id});
  for (int k = 0; k < words.count; k++) merge_in_word(l, words.data[k], left, right, id);
  l->pairs.data[i].count = 0;
  vec_free(&words);
  enqueue_changed(l);
}

static void add_bytes(Learner *l, int32_t byte_id[256]) {
  int id = 0;
  for (uint32_t letter = 0; letter < 512; letter++) {
    int byte = bpe_letter_byte(letter);
    if (byte < 0) continue;
    char *text = arena_alloc(&l->learned->arena, 2);
    text[0] = (char)byte;
    word_table_add(&l->names, text, 1, 1);
    vec_push(&l->learned->tokens, (LearnedToken){text, 1});
    byte_id[byte] = l->first_id + id++;
  }
}

static void add_words(Learner *l, const WordTable *table, const int32_t byte_id[256]) {
  l->symbols = xcalloc((size_t)table->text_bytes + 1, sizeof *l->symbols);
  l->words = xcalloc((size_t)table->count + 1, sizeof *l->words);
  l->word_count = table->count;
  for (int64_t i = 0; i < table->text_bytes; i++) l->symbols[i] = byte_id[(uint8_t)table->text[i]];
  for (int i = 0; i < table->count; i++) {
    const CountedWord *w = &table->words[i];
    l->words[i] = (LearnedWord){w->start, w->count, w->bytes};
    for (int32_t k = 0; k + 1 < w->bytes; k++)
      pair_more(l, l->symbols[w->start + k], l->symbols[w->start + k + 1], i);
  }
  enqueue_changed(l);
}

void bpe_learn(const WordTable *table, int32_t first_id, int tokens, BpeLearned *learned) {
  Learner l = {.first_id = first_id, .learned = learned};
  int32_t byte_id[256];
  *learned = (BpeLearned){0};
  add_bytes(&l, byte_id);
  add_words(&l, table, byte_id);
  while (learned->tokens.count < tokens && l.queue.count) {
    Queued top = dequeue(&l);
    int64_t count = l.pairs.data[top.pair].count;
    if (count == top.count && count >= 2) merge_pair(&l, top.pair);
    else if (count != top.count && count >= 2) enqueue(&l, top.pair); // it has become rarer since
    else if (count == top.count) break;
  }
  for (int i = 0; i < l.pairs.count; i++) vec_free(&l.pairs.data[i].words);
  vec_free(&l.pairs);
  vec_free(&l.queue);
  vec_free(&l.changed);
  free(l.pair_slots);
  free(l.symbols);
  free(l.words);
  word_table_free(&l.names);
}

void bpe_learned_free(BpeLearned *learned) {
  vec_free(&learned->tokens);
  vec_free(&learned->merges);
  arena_free(&learned->arena);
}
