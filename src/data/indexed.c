// Reading and writing Megatron's indexed datasets.
#include "data/indexed.h"
#include "base/file_kind.h"
#include "data/document_marks.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the files are little endian and are read as they lie");

enum { MAGIC_BYTES = 9, HEADER_BYTES = 34, BUFFER_BYTES = 64 << 10 };
static const char MAGIC[MAGIC_BYTES] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

int indexed_type_bytes(int type) {
  switch (type) {
  case INDEXED_UINT8:
  case INDEXED_INT8: return 1;
  case INDEXED_INT16:
  case INDEXED_UINT16: return 2;
  case INDEXED_INT32: return 4;
  case INDEXED_INT64: return 8;
  default: return 0;
  }
}

static uint64_t type_largest(IndexedType type) {
  switch (type) {
  case INDEXED_UINT8: return UINT8_MAX;
  case INDEXED_INT8: return INT8_MAX;
  case INDEXED_INT16: return INT16_MAX;
  case INDEXED_UINT16: return UINT16_MAX;
  case INDEXED_INT32: return INT32_MAX;
  default: return UINT32_MAX; // int64; ids come as 32 bits
  }
}

IndexedType indexed_type_for(int64_t vocab_size) { return vocab_size <= 65536 ? INDEXED_UINT16 : INDEXED_INT32; }

// The arrays of the index start at odd bytes.
static int32_t load_i32(const uint8_t *p, int64_t i) {
  int32_t v;
  memcpy(&v, p + 4 * i, 4);
  return v;
}
static int64_t load_i64(const uint8_t *p, int64_t i) {
  int64_t v;
  memcpy(&v, p + 8 * i, 8);
  return v;
}

// ---- reading ----

static int check_header(IndexedDataset *d, const char *path, Error *error) {
  const uint8_t *p = d->idx.data;
  size_t size = d->idx.size;
  if (size < MAGIC_BYTES || memcmp(p, MAGIC, MAGIC_BYTES))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: not the index of a Megatron indexed dataset (it must begin with MMIDIDX)", path);
  if (size < HEADER_BYTES)
    return error_set(error, PLAIT_BAD_INPUT, "%s: truncated: has %zu bytes, the header alone needs %d", path, size,
                     HEADER_BYTES);
  uint64_t version, sequences, indices;
  memcpy(&version, p + 9, 8);
  memcpy(&sequences, p + 18, 8);
  memcpy(&indices, p + 26, 8);
  if (version != 1)
    return error_set(error, PLAIT_BAD_INPUT, "%s: version is %llu, only 1 is known", path, (unsigned long long)version);
  if (!indexed_type_bytes(p[17]))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: element type is code %d, which holds no token ids "
                     "(allowed: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16)",
                     path, p[17]);
  uint64_t rest = size - HEADER_BYTES; // the two comparisons before the product keep it from overflowing
  if (sequences > rest / 12 || indices > rest / 8 || 12 * sequences + 8 * indices > rest)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: truncated: has %zu bytes, too few for the %llu sequences and %llu document "
                     "indices that its header announces",
                     path, size, (unsigned long long)sequences, (unsigned long long)indices);
  if (12 * sequences + 8 * indices != rest)
    return error_set(error, PLAIT_BAD_INPUT, "%s: has %zu bytes, %llu more than its header announces%s", path, size,
                     (unsigned long long)(rest - 12 * sequences - 8 * indices),
                     rest - 12 * sequences - 8 * indices == sequences
                         ? " (sequence modes of multimodal data are not supported)"
                         : "");
  if (indices < 1)
    return error_set(error, PLAIT_BAD_INPUT, "%s: has no document indices, at least one is needed", path);
  d->type = (IndexedType)p[17];
  d->sequences = (int64_t)sequences;
  d->documents = (int64_t)indices - 1;
  d->lengths = p + HEADER_BYTES;
  d->pointers = d->lengths + 4 * sequences;
  d->document_indices = d->pointers + 8 * sequences;
  return PLAIT_OK;
}

static int check_sequences(IndexedDataset *d, const char *idx, const char *bin, Error *error) {
  int bytes = indexed_type_bytes(d->type);
  int64_t tokens = 0;
  for (int64_t s = 0; s < d->sequences; s++) {
    int32_t length = load_i32(d->lengths, s);
    int64_t pointer = load_i64(d->pointers, s);
    if (length < 0)
      return error_set(error, PLAIT_BAD_INPUT, "%s: sequence %lld has length %d, it must not be negative", idx,
                       (long long)s, length);
    if (pointer != tokens * bytes)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s: sequence %lld starts at byte %lld, where %lld is expected "
                       "(sequences must lie back to back)",
                       idx, (long long)s, (long long)pointer, (long long)(tokens * bytes));
    tokens += length;
    if ((uint64_t)tokens > d->bin.size / (unsigned)bytes) // checked here too, so that tokens * bytes cannot overflow
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s: truncated: has %zu bytes, but sequence %lld of the index ends after %lld tokens "
                       "of %d bytes",
                       bin, d->bin.size, (long long)s, (long long)tokens, bytes);
  }
  if ((uint64_t)tokens * (unsigned)bytes != d->bin.size)
    return error_set(error, PLAIT_BAD_INPUT, "%s: has %zu bytes, the index describes %lld tokens of %d bytes", bin,
                     d->bin.size, (long long)tokens, bytes);
  d->tokens = tokens;
  return PLAIT_OK;
}

static int check_documents(const IndexedDataset *d, const char *idx, Error *error) {
  int64_t last = 0;
  for (int64_t i = 0; i <= d->documents; i++) {
    int64_t first = load_i64(d->document_indices, i);
    if (first < last || first > d->sequences || (i == 0 && first != 0))
      return error_set(error, PLAIT_BAD_INPUT, "%s: document index %lld is %lld, allowed are %lld to %lld", idx,
                       (long long)i, (long long)first, (long long)last, (long long)(i ? d->sequences : 0));
    last = first;
  }
  if (last != d->sequences)
    return error_set(error, PLAIT_BAD_INPUT, "%s: the last document ends with sequence %lld of %lld", idx,
                     (long long)last, (long long)d->sequences);
  return PLAIT_OK;
}

// A text, a folder or PREFIX.bin is easily named instead of the prefix of token files.
static int explain_missing(const char *prefix, const char *idx, const char *bin, Error *error) {
  size_t n = strlen(prefix);
  const char *end = n > 4 ? prefix + n - 4 : "";
  if ((!strcmp(end, ".bin") || !strcmp(end, ".idx")) && file_exists(prefix))
    return error_set(error, PLAIT_BAD_INPUT, "%s is one of two token files; give their prefix, without %s", prefix,
                     end);
  if (file_exists(bin))
    return error_set(error, PLAIT_BAD_INPUT, "%s does not exist, although %s does; tokenize the text again", idx, bin);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "no token files at %s: %s.idx does not exist; make them with plait tokenize --tokenizer FILE --out %s "
      "TEXTS",
      prefix, prefix, prefix);
}

// Refuses the pointer that a clone without Git LFS has in the place of a file. Tokens may begin as packed data does; an
// index may not.
static int check_kind(const char *path, const FileMap *map, bool index, Error *error) {
  const char *words;
  if (index && map->size >= MAGIC_BYTES && !memcmp(map->data, MAGIC, MAGIC_BYTES)) return PLAIT_OK;
  size_t head = map->size < FILE_KIND_HEAD ? map->size : FILE_KIND_HEAD;
  FileKind kind = file_kind_of(map->data, head, &words);
  bool wrong = kind == FILE_KIND_POINTER || (index && kind == FILE_KIND_PACKED);
  return wrong ? error_set(error, PLAIT_BAD_INPUT, "%s %s", path, words) : PLAIT_OK;
}

int indexed_open(IndexedDataset *dataset, const char *prefix, Error *error) {
  *dataset = (IndexedDataset){.prefix = xstrdup(prefix)};
  char *idx = xformat("%s.idx", prefix), *bin = xformat("%s.bin", prefix);
  int code = file_exists(idx) ? file_map(idx, &dataset->idx, error) : explain_missing(prefix, idx, bin, error);
  if (code == PLAIT_OK) code = check_kind(idx, &dataset->idx, true, error);
  if (code == PLAIT_OK) code = check_header(dataset, idx, error);
  if (code == PLAIT_OK) code = file_map(bin, &dataset->bin, error);
  if (code == PLAIT_OK) code = check_kind(bin, &dataset->bin, false, error);
  if (code == PLAIT_OK) code = check_sequences(dataset, idx, bin, error);
  if (code == PLAIT_OK) code = check_documents(dataset, idx, error);
  free(idx);
  free(bin);
  if (code != PLAIT_OK) indexed_close(dataset);
  return code;
}

void indexed_close(IndexedDataset *dataset) {
  file_unmap(&dataset->idx);
  file_unmap(&dataset->bin);
  free(dataset->prefix);
  *dataset = (IndexedDataset){0};
}

int64_t indexed_document_begin(const IndexedDataset *d, int64_t document) {
  CHECK(document >= 0 && document <= d->documents);
  int64_t sequence = load_i64(d->document_indices, document);
  if (sequence == d->sequences) return d->tokens; // also trailing empty documents
  return load_i64(d->pointers, sequence) / indexed_type_bytes(d->type);
}

int64_t indexed_document_at(const IndexedDataset *d, int64_t position) {
  CHECK(position >= 0 && position < d->tokens);
  int64_t low = 0, high = d->documents; // begin(low) <= position < begin(high)
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (indexed_document_begin(d, middle) <= position) low = middle;
    else high = middle;
  }
  return low;
}

int indexed_read(const IndexedDataset *d, int64_t position, int64_t count, int vocab_size, int32_t *out, Error *error) {
  CHECK(position >= 0 && count >= 0 && position <= d->tokens && count <= d->tokens - position);
  if (count == 0) return PLAIT_OK; // an empty PREFIX.bin is not mapped
  const uint8_t *p = d->bin.data + position * indexed_type_bytes(d->type);
  int64_t limit = vocab_size > 0 ? vocab_size : (int64_t)INT32_MAX + 1;
  int64_t bad = -1, bad_id = 0;
#define READ(type)                                                                                                     \
  for (int64_t i = 0; i < count; i++) {                                                                                \
    type id;                                                                                                           \
    memcpy(&id, p + i * (int64_t)sizeof id, sizeof id);                                                                \
    int64_t value = id;                                                                                                \
    if (value < 0 || value >= limit) {                                                                                 \
      bad = i, bad_id = value;                                                                                         \
      break;                                                                                                           \
    }                                                                                                                  \
    out[i] = (int32_t)value;                                                                                           \
  }                                                                                                                    \
  break
  switch (d->type) {
  case INDEXED_UINT8: READ(uint8_t);
  case INDEXED_INT8: READ(int8_t);
  case INDEXED_INT16: READ(int16_t);
  case INDEXED_INT32: READ(int32_t);
  case INDEXED_INT64: READ(int64_t);
  case INDEXED_UINT16: READ(uint16_t);
  }
#undef READ
  if (bad < 0) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s.bin: the token at position %lld has id %lld, allowed are 0 to %lld "
                   "(does the corpus belong to this tokenizer and model?)",
                   d->prefix, (long long)(position + bad), (long long)bad_id, (long long)limit - 1);
}

// ---- writing ----

int indexed_writer_begin(IndexedWriter *w, const char *prefix, IndexedType type, Error *error) {
  CHECK(indexed_type_bytes(type) > 0);
  *w = (IndexedWriter){.type = type};
  char *idx = xformat("%s.idx", prefix), *bin = xformat("%s.bin", prefix);
  int code = file_begin(&w->bin, bin, error);
  if (code == PLAIT_OK) code = file_begin(&w->idx, idx, error);
  free(idx);
  free(bin);
  if (code == PLAIT_OK) w->buffer = xcalloc(BUFFER_BYTES, 1);
  else indexed_writer_abandon(w);
  return code;
}

static int write_failed(const AtomicFile *file, Error *error) {
  return file_write_failed(file->path, errno, (double)ftello(file->stream), error);
}

int indexed_writer_add_tokens(IndexedWriter *w, const uint32_t *ids, int64_t n, Error *error) {
  int bytes = indexed_type_bytes(w->type);
  uint64_t largest = type_largest(w->type);
  if (n > INT32_MAX - w->open_tokens)
    return error_set(error, PLAIT_BAD_INPUT, "%s: document %lld has more than the %d tokens that the format allows",
                     w->bin.path, (long long)w->documents, INT32_MAX);
  for (int64_t done = 0; done < n;) {
    int64_t chunk = n - done < BUFFER_BYTES / bytes ? n - done : BUFFER_BYTES / bytes;
    for (int64_t i = 0; i < chunk; i++) {
      uint64_t id = ids[done + i];
      if (id > largest)
        return error_set(error, PLAIT_BAD_INPUT,
                         "%s: token id %llu does not fit the element type, which holds up to %llu", w->bin.path,
                         (unsigned long long)id, (unsigned long long)largest);
      memcpy(w->buffer + i * bytes, &id, (size_t)bytes); // little endian: the low bytes come first
    }
    if (fwrite(w->buffer, (size_t)bytes, (size_t)chunk, w->bin.stream) != (size_t)chunk)
      return write_failed(&w->bin, error);
    done += chunk;
  }
  w->open_tokens += n;
  return PLAIT_OK;
}

int indexed_writer_end_document(IndexedWriter *w, Error *error) {
  (void)error;
  if (w->documents == w->capacity) {
    w->capacity = w->capacity ? 2 * w->capacity : 1024;
    w->lengths = xrealloc(w->lengths, sizeof *w->lengths * (size_t)w->capacity);
  }
  w->lengths[w->documents++] = (int32_t)w->open_tokens;
  w->tokens += w->open_tokens;
  w->open_tokens = 0;
  return PLAIT_OK;
}

int indexed_writer_add_document(IndexedWriter *w, const uint32_t *ids, int64_t n, Error *error) {
  int code = indexed_writer_add_tokens(w, ids, n, error);
  return code == PLAIT_OK ? indexed_writer_end_document(w, error) : code;
}

static int write_index(IndexedWriter *w, Error *error) {
  FILE *f = w->idx.stream;
  uint64_t version = 1, sequences = (uint64_t)w->documents, indices = sequences + 1;
  uint8_t header[HEADER_BYTES];
  memcpy(header, MAGIC, MAGIC_BYTES);
  memcpy(header + 9, &version, 8);
  header[17] = (uint8_t)w->type;
  memcpy(header + 18, &sequences, 8);
  memcpy(header + 26, &indices, 8);
  size_t ok = fwrite(header, HEADER_BYTES, 1, f);
  if (w->documents) ok &= fwrite(w->lengths, 4 * (size_t)w->documents, 1, f);
  int64_t pointer = 0;
  for (int64_t i = 0; ok && i < w->documents; i++) {
    ok = fwrite(&pointer, 8, 1, f);
    pointer += (int64_t)w->lengths[i] * indexed_type_bytes(w->type);
  }
  for (int64_t i = 0; ok && i <= w->documents; i++) ok = fwrite(&i, 8, 1, f); // one sequence a document
  // On disk before the first rename: a full disk must not leave a new .bin without its .idx.
  if (!ok || fflush(f) || fsync(fileno(f))) return write_failed(&w->idx, error);
  return PLAIT_OK;
}

// The record, on disk under a temporary name; without one, nothing.
static int write_record(const IndexedWriter *w, const char *path, AtomicFile *file, Error *error) {
  int code = w->record ? file_begin(file, path, error) : PLAIT_OK;
  if (code != PLAIT_OK || !w->record) return code;
  if (fputs(w->record, file->stream) < 0 || fflush(file->stream) || fsync(fileno(file->stream)))
    return write_failed(file, error);
  return PLAIT_OK;
}

// All is on disk under temporary names.
static int rename_all(IndexedWriter *w, const char *record_path, AtomicFile *record, Error *error) {
  if (unlink(w->idx.path) && errno != ENOENT) return write_failed(&w->idx, error);
  if (unlink(record_path) && errno != ENOENT) return file_write_failed(record_path, errno, 0, error);
  int code = w->record ? file_commit(record, error) : PLAIT_OK;
  if (code == PLAIT_OK) code = file_commit(&w->bin, error);
  if (code == PLAIT_OK) code = file_commit(&w->idx, error);
  return code;
}

int indexed_writer_commit(IndexedWriter *w, Error *error) {
  AtomicFile record = {0};
  CHECK(w->open_tokens == 0, "a document was not ended");
  char *record_path = xformat("%.*s" DOCUMENT_MARKS_SUFFIX, (int)strlen(w->idx.path) - 4, w->idx.path);
  int code = write_index(w, error);
  if (code == PLAIT_OK && (fflush(w->bin.stream) || fsync(fileno(w->bin.stream)))) code = write_failed(&w->bin, error);
  if (code == PLAIT_OK) code = write_record(w, record_path, &record, error);
  if (code == PLAIT_OK) code = rename_all(w, record_path, &record, error);
  file_abandon(&record);
  free(record_path);
  if (code == PLAIT_OK) indexed_writer_abandon(w);
  return code;
}

void indexed_writer_abandon(IndexedWriter *w) {
  file_abandon(&w->bin);
  file_abandon(&w->idx);
  free(w->record);
  free(w->lengths);
  free(w->buffer);
  *w = (IndexedWriter){0};
}
