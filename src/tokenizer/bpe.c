// Byte pair encoding: hashed vocabulary and merges, and the merging of one word.
#include "tokenizer/bpe.h"
#include <stdio.h>
#include <string.h>

enum { CACHE_SIZE = 1 << 15, SMALL_WORD = 40 };

uint32_t bpe_byte_letter(uint8_t byte) {
  if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
  // The others are numbered from 256 in order: 0-32, 127-160, 173.
  return 256u + (byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33u : 67u);
}

int bpe_letter_byte(uint32_t letter) {
  if (letter < 256) return bpe_byte_letter((uint8_t)letter) == letter ? (int)letter : -1;
  uint32_t n = letter - 256;
  return n <= 32 ? (int)n : n < 67 ? (int)(n - 33 + 127) : n == 67 ? 173 : -1;
}

int utf8_put(uint32_t code, char *out) {
  if (code < 0x80) return out[0] = (char)code, 1;
  if (code < 0x800) return out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), 2;
  if (code < 0x10000) {
    out[0] = (char)(0xE0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 63));
    out[2] = (char)(0x80 | (code & 63));
    return 3;
  }
  out[0] = (char)(0xF0 | code >> 18);
  out[1] = (char)(0x80 | (code >> 12 & 63));
  out[2] = (char)(0x80 | (code >> 6 & 63));
  out[3] = (char)(0x80 | (code & 63));
  return 4;
}

int utf8_get(const char *text, size_t bytes, uint32_t *code) {
  const uint8_t *p = (const uint8_t *)text;
  if (!bytes) return 0;
  if (p[0] < 0x80) return *code = p[0], 1;
  int n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4 || bytes < (size_t)n) return 0;
  uint32_t c = p[0] & (n == 2 ? 31u : n == 3 ? 15u : 7u);
  for (int i = 1; i < n; i++) {
    if ((p[i] & 0xC0) != 0x80) return 0;
    c = c << 6 | (p[i] & 63u);
  }
  if ((n == 3 && (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF))) || (n == 4 && (c < 0x10000 || c > 0x10FFFF))) return 0;
  *code = c;
  return n;
}

size_t utf8_prefix(const char *text, size_t bytes) {
  size_t i = 0;
  while (i < bytes) {
    uint64_t v;
    if (bytes - i >= 8 && (memcpy(&v, text + i, 8), !(v & 0x8080808080808080u))) {
      i += 8;
      continue;
    }
    uint32_t code;
    int n = utf8_get(text + i, bytes - i, &code);
    if (!n) break;
    i += (size_t)n;
  }
  return i;
}

void bytes_append(ByteVector *vector, const char *text, size_t bytes) {
  vec_reserve(vector, vector->count + (int)bytes);
  if (bytes) memcpy(vector->data + vector->count, text, bytes);
  vector->count += (int)bytes;
}

void utf8_append(ByteVector *v, const char *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    size_t whole = utf8_prefix(text + at, bytes - at);
    bytes_append(v, text + at, whole);
    at += whole;
    if (at < bytes) bytes_append(v, "\xef\xbf\xbd", 3), at++;
  }
}

static uint64_t hash_bytes(const char *s, size_t n) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ n, v;
  for (; n >= 8; s += 8, n -= 8) {
    memcpy(&v, s, 8);
    h = (h ^ v) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  v = 0;
  memcpy(&v, s, n);
  h = (h ^ v) * 0xFF51AFD7ED558CCDu;
  h ^= h >> 29;
  h *= 0xC4CEB9FE1A85EC53u;
  return h ^ h >> 32;
}

static uint32_t power_above(size_t n) {
  uint32_t size = 16;
  while (size < 2 * n) size *= 2;
  return size;
}

int32_t bpe_find(const Bpe *bpe, const char *token, size_t bytes) {
  for (uint32_t i = (uint32_t)hash_bytes(token, bytes);; i++) {
    int32_t id = bpe->slots[i & bpe->slot_mask];
    if (id < 0 || ((size_t)bpe->bytes[id] == bytes && !memcmp(bpe->text[id], token, bytes))) return id;
  }
}

int bpe_init(Bpe *bpe, const char *const *text, const int *bytes, int size, const uint8_t *in_model, int merges) {
  *bpe = (Bpe){.text = text, .bytes = bytes, .size = size, .unk = -1};
  uint32_t slots = power_above((size_t)size), merge_slots = power_above((size_t)merges);
  bpe->slots = xcalloc(slots, sizeof *bpe->slots);
  memset(bpe->slots, 0xFF, slots * sizeof *bpe->slots);
  bpe->slot_mask = slots - 1;
  bpe->merges = xcalloc(merge_slots, sizeof *bpe->merges);
  for (uint32_t i = 0; i < merge_slots; i++) bpe->merges[i].left = -1;
  bpe->merge_mask = merge_slots - 1;
  for (int id = 0; id < size; id++) {
    if (!text[id] || (in_model && !in_model[id])) continue;
    uint32_t i = (uint32_t)hash_bytes(text[id], (size_t)bytes[id]);
    for (; bpe->slots[i & bpe->slot_mask] >= 0; i++) {
      int32_t other = bpe->slots[i & bpe->slot_mask];
      if (bytes[other] == bytes[id] && !memcmp(text[other], text[id], (size_t)bytes[id])) return PLAIT_BAD_INPUT;
    }
    bpe->slots[i & bpe->slot_mask] = id;
  }
  return PLAIT_OK;
}

static uint32_t pair_hash(int32_t left, int32_t right) {
  uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
  return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 17);
}

const BpeMerge *bpe_find_merge(const Bpe *bpe, int32_t left, int32_t right) {
  for (uint32_t i = pair_hash(left, right);; i++) {
    const BpeMerge *m = &bpe->merges[i & bpe->merge_mask];
    if (m->left < 0) return NULL;
    if (m->left == left && m->right == right) return m;
  }
}

void bpe_add_merge(Bpe *bpe, int32_t left, int32_t right, int32_t id, uint32_t rank) {
  uint32_t i = pair_hash(left, right);
  BpeMerge *m;
  do m = &bpe->merges[i++ & bpe->merge_mask];
  while (m->left >= 0 && (m->left != left || m->right != right));
  *m = (BpeMerge){left, right, id, rank};
}

void bpe_finish(Bpe *bpe) {
  for (int b = 0; b < 256; b++) {
    char name[8];
    int n = bpe->byte_level ? utf8_put(bpe_byte_letter((uint8_t)b), name) : snprintf(name, sizeof name, "<0x%02X>", b);
    bpe->byte_id[b] = bpe->byte_level || bpe->byte_fallback ? bpe_find(bpe, name, (size_t)n) : -1;
    if (b < 128) name[0] = (char)b, bpe->ascii_id[b] = bpe_find(bpe, name, 1);
  }
}

void bpe_free(Bpe *bpe) {
  free(bpe->slots);
  free(bpe->merges);
  *bpe = (Bpe){0};
}

void bpe_scratch_free(BpeScratch *scratch) {
  vec_free(&scratch->ids);
  vec_free(&scratch->symbols);
  vec_free(&scratch->heap);
  vec_free(&scratch->letters);
  free(scratch->cache);
  scratch->cache = NULL;
}

// ---- the ids a word starts from ------------------------------------------------------------------------------------

static void flush_unknown(const Bpe *bpe, int *pending, IdVector *ids) {
  if (*pending) vec_push(ids, bpe->unk);
  *pending = 0;
}

// As Hugging Face does it: an unknown token waits for the next known one, so that bytes that fall back pass it.
static void add_unknown(const Bpe *bpe, int *pending, IdVector *ids) {
  if (bpe->unk < 0) return;
  if (*pending && !bpe->fuse_unk) vec_push(ids, bpe->unk);
  *pending = 1;
}

static int all_bytes_known(const Bpe *bpe, const char *text, int n) {
  for (int k = 0; k < n; k++)
    if (bpe->byte_id[(uint8_t)text[k]] < 0) return 0;
  return 1;
}

static void miss(BpeScratch *s, const char *text, int n) {
  s->missed += n;
  if (!s->first_missed) s->first_missed = text;
}

static void first_ids(const Bpe *bpe, BpeScratch *s, const char *word, size_t bytes) {
  IdVector *ids = &s->ids;
  int pending = 0;
  for (size_t i = 0; i < bytes;) {
    uint32_t code;
    int n = 1;
    int32_t id;
    if (bpe->byte_level) id = bpe->byte_id[(uint8_t)word[i]];
    else if ((uint8_t)word[i] < 128) id = bpe->ascii_id[(uint8_t)word[i]];
    else {
      n = utf8_get(word + i, bytes - i, &code);
      if (!n) n = 1;
      id = bpe_find(bpe, word + i, (size_t)n);
    }
    if (id >= 0) {
      flush_unknown(bpe, &pending, ids);
      vec_push(ids, id);
    } else if (!bpe->byte_level && bpe->byte_fallback && all_bytes_known(bpe, word + i, n)) {
      for (int k = 0; k < n; k++) vec_push(ids, bpe->byte_id[(uint8_t)word[i + (size_t)k]]);
    } else {
      add_unknown(bpe, &pending, ids);
      miss(s, word + i, n);
    }
    i += (size_t)n;
  }
  flush_unknown(bpe, &pending, ids);
}

void bpe_encode_byte(const Bpe *bpe, BpeScratch *s, const char *byte, IdVector *ids) {
  int32_t id = bpe->byte_id[(uint8_t)*byte];
  if (id < 0) miss(s, byte, 1);
  if (id < 0) id = bpe->unk;
  if (id >= 0) vec_push(ids, id);
}

// ---- merging -------------------------------------------------------------------------------------------------------

// Few symbols: look at all neighbours for the lowest rank, again and again.
static int merge_small(const Bpe *bpe, int32_t *ids, int n) {
  uint32_t rank[SMALL_WORD];
  int32_t merged[SMALL_WORD];
  for (int i = 0; i + 1 < n; i++) {
    const BpeMerge *m = bpe_find_merge(bpe, ids[i], ids[i + 1]);
    rank[i] = m ? m->rank : UINT32_MAX;
    merged[i] = m ? m->id : -1;
  }
  for (;;) {
    int best = -1;
    uint32_t lowest = UINT32_MAX;
    for (int i = 0; i + 1 < n; i++)
      if (rank[i] < lowest) lowest = rank[i], best = i;
    if (best < 0) return n;
    ids[best] = merged[best];
    n--;
    for (int i = best + 1; i < n; i++) ids[i] = ids[i + 1], rank[i] = rank[i + 1], merged[i] = merged[i + 1];
    for (int i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
      const BpeMerge *m = bpe_find_merge(bpe, ids[i], ids[i + 1]);
      rank[i] = m ? m->rank : UINT32_MAX;
      merged[i] = m ? m->id : -1;
    }
  }
}

static int candidate_before(BpeCandidate a, BpeCandidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void heap_push(BpeScratch *s, BpeCandidate c) {
  vec_push(&s->heap, c);
  int i = s->heap.count - 1;
  for (; i > 0 && candidate_before(c, s->heap.data[(i - 1) / 2]); i = (i - 1) / 2)
    s->heap.data[i] = s->heap.data[(i - 1) / 2];
  s->heap.data[i] = c;
}

static BpeCandidate heap_pop(BpeScratch *s) {
  BpeCandidate top = s->heap.data[0], last = s->heap.data[--s->heap.count];
  int n = s->heap.count, i = 0;
  while (2 * i + 1 < n) {
    int child = 2 * i + 1;
    if (child + 1 < n && candidate_before(s->heap.data[child + 1], s->heap.data[child])) child++;
    if (!candidate_before(s->heap.data[child], last)) break;
    s->heap.data[i] = s->heap.data[child];
    i = child;
  }
  if (n) s->heap.data[i] = last;
  return top;
}

static void consider(const Bpe *bpe, BpeScratch *s, int32_t i) {
  BpeSymbol *symbol = &s->symbols.data[i];
  if (symbol->next < 0) return;
  const BpeMerge *m = bpe_find_merge(bpe, symbol->id, s->symbols.data[symbol->next].id);
  if (m) heap_push(s, (BpeCandidate){m->rank, i, m->id});
}

// Many symbols: a linked list and a heap of candidates, in n log n.
static void merge_large(const Bpe *bpe, BpeScratch *s, IdVector *ids) {
  int n = s->ids.count;
  s->symbols.count = s->heap.count = 0;
  vec_reserve(&s->symbols, n);
  for (int i = 0; i < n; i++) s->symbols.data[i] = (BpeSymbol){s->ids.data[i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int i = 0; i < n; i++) consider(bpe, s, i);
  while (s->heap.count) {
    BpeCandidate c = heap_pop(s);
    BpeSymbol *symbol = &s->symbols.data[c.position];
    if (symbol->id < 0 || symbol->next < 0) continue; // merged away since
    BpeSymbol *next = &s->symbols.data[symbol->next];
    const BpeMerge *m = bpe_find_merge(bpe, symbol->id, next->id);
    if (!m || m->rank != c.rank) continue; // another pair by now
    symbol->id = c.id;
    symbol->next = next->next;
    next->id = -1;
    if (symbol->next >= 0) s->symbols.data[symbol->next].previous = c.position;
    consider(bpe, s, c.position);
    if (symbol->previous >= 0) consider(bpe, s, symbol->previous);
  }
  for (int32_t i = 0; i >= 0; i = s->symbols.data[i].next) vec_push(ids, s->symbols.data[i].id);
}

// ignore_merges: a word that is a token is that token. Byte-level tokens are spelled in letters.
static int32_t whole_word(const Bpe *bpe, BpeScratch *s, const char *word, size_t bytes) {
  if (bytes > 4096) return -1; // longer than any token worth having
  if (!bpe->byte_level) return bpe_find(bpe, word, bytes);
  s->letters.count = 0;
  for (size_t i = 0; i < bytes; i++) {
    vec_reserve(&s->letters, s->letters.count + 4);
    s->letters.count += utf8_put(bpe_byte_letter((uint8_t)word[i]), s->letters.data + s->letters.count);
  }
  return bpe_find(bpe, s->letters.data, (size_t)s->letters.count);
}

static void encode_uncached(const Bpe *bpe, BpeScratch *s, const char *word, size_t bytes, IdVector *ids) {
  int32_t whole = bpe->ignore_merges ? whole_word(bpe, s, word, bytes) : -1;
  if (whole >= 0) {
    vec_push(ids, whole);
    return;
  }
  s->ids.count = 0;
  first_ids(bpe, s, word, bytes);
  if (!s->ids.count) return;
  if (s->ids.count > SMALL_WORD) {
    merge_large(bpe, s, ids);
    return;
  }
  int n = merge_small(bpe, s->ids.data, s->ids.count);
  vec_reserve(ids, ids->count + n);
  memcpy(ids->data + ids->count, s->ids.data, (size_t)n * sizeof *ids->data);
  ids->count += n;
}

void bpe_encode_word(const Bpe *bpe, BpeScratch *s, const char *word, size_t bytes, IdVector *ids) {
  if (!bytes) return;
  if (bytes == 1 && bpe->byte_level && bpe->byte_id[(uint8_t)word[0]] >= 0) {
    vec_push(ids, bpe->byte_id[(uint8_t)word[0]]);
    return;
  }
  if (bytes > sizeof s->cache->word) {
    encode_uncached(bpe, s, word, bytes, ids);
    return;
  }
  if (!s->cache) s->cache = xcalloc(CACHE_SIZE, sizeof *s->cache);
  BpeCached *c = &s->cache[hash_bytes(word, bytes) & (CACHE_SIZE - 1)];
  if (c->bytes != bytes || memcmp(c->word, word, bytes)) {
    int start = ids->count;
    int64_t missed = s->missed;
    encode_uncached(bpe, s, word, bytes, ids);
    if (ids->count - start > 8 || s->missed > missed) return; // what is missed is to be counted every time
    c->bytes = (uint8_t)bytes;
    c->count = (uint8_t)(ids->count - start);
    memcpy(c->word, word, bytes);
    if (c->count) memcpy(c->ids, ids->data + start, c->count * sizeof *c->ids);
    return;
  }
  vec_reserve(ids, ids->count + 8);
  memcpy(ids->data + ids->count, c->ids, sizeof c->ids);
  ids->count += c->count;
}
