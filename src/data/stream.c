// Documents by hash, and positions among those that were chosen.
#include "data/stream.h"
#include "base/fault.h"
#include "base/philox.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { BLOCK = 256 };

static uint64_t hash_of(int64_t document) {
  uint32_t r[4];
  philox4x32(philox_key(0, 0, philox_name("data.split")), (uint32_t)document, (uint32_t)((uint64_t)document >> 32), 0,
             0, r);
  return (uint64_t)r[1] << 32 | r[0];
}

static int64_t length_of(const Stream *s, int64_t document) {
  return indexed_document_begin(s->dataset, document + 1) - indexed_document_begin(s->dataset, document);
}

static bool has(const Stream *s, int64_t document) {
  if (s->part == STREAM_ALL) return true;
  return (hash_of(document) < s->threshold) == (s->part == FAULT(held_out_is_trained, STREAM_HELD_OUT, s->part));
}

// One document is held out at least, and one stays.
static uint64_t choose_threshold(const Stream *s, double split) {
  uint64_t least = UINT64_MAX, most = 0, threshold = (uint64_t)ldexp(split, 64);
  for (int64_t i = 0; i < s->dataset->documents; i++) {
    if (!length_of(s, i)) continue;
    uint64_t hash = hash_of(i);
    if (hash < least) least = hash;
    if (hash > most) most = hash;
  }
  return threshold <= least ? least + 1 : threshold > most ? most : threshold;
}

static void count_part(Stream *s) {
  int64_t all = s->dataset->documents;
  s->before = xcalloc((size_t)(all / BLOCK) + 2, sizeof *s->before);
  for (int64_t i = 0; i < all; i++) {
    if (i % BLOCK == 0) s->before[i / BLOCK] = s->tokens;
    int64_t length = length_of(s, i);
    if (!length || !has(s, i)) continue;
    s->tokens += length;
    s->documents++;
  }
  s->before[(all + BLOCK - 1) / BLOCK] = s->tokens;
}

int stream_open(Stream *s, const IndexedDataset *dataset, double split, StreamPart part, Error *error) {
  *s = (Stream){.dataset = dataset, .part = part, .tokens = dataset->tokens, .documents = dataset->documents};
  if (part == STREAM_ALL) return PLAIT_OK;
  CHECK(split > 0 && split < 1);
  for (int64_t i = 0; i < dataset->documents; i++) s->all += length_of(s, i) > 0;
  if (s->all < 2)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "data.split holds out whole documents, but %s has only %lld, and each text file is one; cut the text into "
        "files (split -C 100k book.txt text/part-) and tokenize them, or leave data.split out",
        dataset->prefix, (long long)s->all);
  s->threshold = choose_threshold(s, split);
  s->tokens = s->documents = 0;
  count_part(s);
  return PLAIT_OK;
}

void stream_close(Stream *s) {
  free(s->before);
  *s = (Stream){0};
}

// The first document from `number` on that is in the part and not empty; it begins at stream position `begin`.
static StreamDocument find_from(const Stream *s, int64_t number, int64_t begin) {
  while (!length_of(s, number) || !has(s, number)) number++;
  return (StreamDocument){number, begin, begin + length_of(s, number)};
}

StreamDocument stream_document_at(const Stream *s, int64_t position) {
  CHECK(position >= 0 && position < s->tokens);
  if (s->part == STREAM_ALL) {
    int64_t number = indexed_document_at(s->dataset, position);
    return (StreamDocument){number, indexed_document_begin(s->dataset, number),
                            indexed_document_begin(s->dataset, number + 1)};
  }
  int64_t low = 0, high = (s->dataset->documents + BLOCK - 1) / BLOCK; // before[low] <= position < before[high]
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (s->before[middle] <= position) low = middle;
    else high = middle;
  }
  StreamDocument d = find_from(s, low * BLOCK, s->before[low]);
  while (d.end <= position) d = stream_document_after(s, d);
  return d;
}

StreamDocument stream_document_after(const Stream *s, StreamDocument document) {
  CHECK(document.end < s->tokens);
  return find_from(s, document.number + 1, document.end);
}

int stream_read(const Stream *s, int64_t position, int64_t count, int vocab_size, int32_t *out, Error *error) {
  if (s->part == STREAM_ALL || !count) return indexed_read(s->dataset, position, count, vocab_size, out, error);
  CHECK(position >= 0 && count >= 0 && position <= s->tokens && count <= s->tokens - position);
  StreamDocument d = stream_document_at(s, position);
  for (;;) {
    int64_t n = d.end - position < count ? d.end - position : count;
    int64_t begin = indexed_document_begin(s->dataset, d.number) + position - d.begin;
    int code = indexed_read(s->dataset, begin, n, vocab_size, out, error);
    if (code || n == count) return code;
    out += n;
    position += n;
    count -= n;
    d = stream_document_after(s, d);
  }
}
