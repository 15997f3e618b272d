// safetensors: 8 bytes little-endian header length N, N bytes of JSON, then the data of all tensors without gaps.
#include "checkpoint/safetensors.h"
#include "base/file_kind.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100 * 1000 * 1000 }; // as the format's own readers

// Types that plait does not compute with, but whose tensors it can list and whose sizes it can check.
static const struct { const char *name; int bytes;
} foreign[] = {
    {"BOOL", 1}, {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U32", 4}, {"U64", 8},     {"C64", 8},
};

static int has_control_characters(const char *s) {
  for (; *s; s++)
    if ((unsigned char)*s < 0x20 || *s == 0x7f) return 1;
  return 0;
}

// One sentence about a tensor of the file. Names are cut, a hostile one must not fill the message.
#define BAD(file, entry, ...) bad_entry(file, entry, error, __VA_ARGS__)
static int bad_entry(const char *path, const char *name, Error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int bad_entry(const char *path, const char *name, Error *error, const char *format, ...) {
  char what[300];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s: %s", path, name, what);
}

static int parse_json(const char *path, const char *what, const char *text, size_t bytes, json_t **json, Error *error) {
  json_error_t why;
  *json = bytes && text[0] == '{' ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
  if (*json) return PLAIT_OK;
  if (!bytes || text[0] != '{') return error_set(error, PLAIT_BAD_INPUT, "%s: %s does not start with {", path, what);
  for (char *c = why.text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s is not valid JSON: %.150s", path, what, why.text);
}

static int parse_shape(const char *path, SafetensorsEntry *entry, const json_t *shape, Error *error) {
  if (!json_is_array(shape)) return BAD(path, entry->name, "shape is missing or not a list");
  if (json_array_size(shape) > SAFETENSORS_MAX_RANK)
    return BAD(path, entry->name, "%zu dims, at most %d are supported", json_array_size(shape), SAFETENSORS_MAX_RANK);
  entry->rank = (int)json_array_size(shape);
  for (int d = 0; d < entry->rank; d++) {
    const json_t *dim = json_array_get(shape, (size_t)d);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return BAD(path, entry->name, "shape[%d] is not an integer of at least 0", d);
    entry->dims[d] = json_integer_value(dim);
  }
  return PLAIT_OK;
}

static int element_bytes(const char *name, int *dtype) {
  *dtype = dtype_from_file_name(name);
  if (*dtype >= 0) return (int)dtype_size((Dtype)*dtype);
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (!strcmp(foreign[i].name, name)) return foreign[i].bytes;
  return 0; // unknown, or packed below a byte
}

// The product of the dims times the element's bytes, or -1 on overflow. A zero dim makes the rest irrelevant.
static int64_t shape_bytes(int rank, const int64_t *dims, int64_t bytes) {
  for (int d = 0; d < rank; d++)
    if (dims[d] == 0) return 0;
  for (int d = 0; d < rank; d++)
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, dims[d], &bytes)) return -1;
  return bytes;
}

int64_t safetensors_elements(const SafetensorsEntry *entry) { return shape_bytes(entry->rank, entry->dims, 1); }

static int parse_entry(const char *path, const uint8_t *data, int64_t data_bytes, const char *name, const json_t *json,
                       SafetensorsEntry *entry, Error *error) {
  *entry = (SafetensorsEntry){.name = name, .path = path};
  if (has_control_characters(name))
    return error_set(error, PLAIT_BAD_INPUT, "%s: a tensor's name holds control characters", path);
  if (!json_is_object(json)) return BAD(path, name, "its header entry is not an object");
  entry->dtype_name = json_string_value(json_object_get(json, "dtype"));
  if (!entry->dtype_name) return BAD(path, name, "dtype is missing or not a string");
  if (has_control_characters(entry->dtype_name)) return BAD(path, name, "dtype holds control characters");
  int code = parse_shape(path, entry, json_object_get(json, "shape"), error);
  if (code) return code;
  const json_t *offsets = json_object_get(json, "data_offsets");
  const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
    return BAD(path, name, "data_offsets is not a list of two integers");
  int64_t begin = json_integer_value(first), end = json_integer_value(second);
  if (begin < 0 || end < begin || end > data_bytes)
    return BAD(path, name, "data_offsets [%" PRId64 ", %" PRId64 "] do not lie in the %" PRId64 " bytes of data", begin,
               end, data_bytes);
  int size = element_bytes(entry->dtype_name, &entry->dtype);
  int64_t bytes = shape_bytes(entry->rank, entry->dims, size ? size : 1);
  if (bytes < 0) return BAD(path, name, "its shape has more elements than any file can hold");
  if (size && bytes != end - begin)
    return BAD(path, name, "its shape and dtype %.20s need %" PRId64 " bytes, data_offsets give %" PRId64,
               entry->dtype_name, bytes, end - begin);
  entry->data = data + begin;
  entry->bytes = (size_t)(end - begin);
  return PLAIT_OK;
}

static int by_position(const void *a, const void *b) {
  const SafetensorsEntry *x = a, *y = b;
  if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const SafetensorsEntry *const *)a)->name, (*(const SafetensorsEntry *const *)b)->name);
}

static void sort_names(Safetensors *t) {
  t->by_name = xcalloc((size_t)t->count, sizeof *t->by_name);
  for (int i = 0; i < t->count; i++) t->by_name[i] = &t->entries[i];
  if (t->count) qsort(t->by_name, (size_t)t->count, sizeof *t->by_name, by_name);
}

static int parse_metadata(const char *path, json_t *metadata, Error *error) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return error_set(error, PLAIT_BAD_INPUT, "%s: __metadata__ is not an object", path);
  json_object_foreach(metadata, key, value)
    if (!json_is_string(value))
      return error_set(error, PLAIT_BAD_INPUT, "%s: __metadata__ holds a value that is not a string", path);
  return PLAIT_OK;
}

// Every byte of the data belongs to exactly one tensor.
static int check_positions(const char *path, const SafetensorsEntry *entries, int count, const uint8_t *data,
                           int64_t data_bytes, Error *error) {
  int64_t end = 0;
  for (int i = 0; i < count; i++) {
    int64_t begin = (const uint8_t *)entries[i].data - data;
    if (begin < end) return BAD(path, entries[i].name, "its data overlaps that of tensor %.100s", entries[i - 1].name);
    if (begin > end)
      return BAD(path, entries[i].name, "%" PRId64 " bytes before its data belong to no tensor", begin - end);
    end = begin + (int64_t)entries[i].bytes;
  }
  if (end != data_bytes)
    return error_set(error, PLAIT_BAD_INPUT, "%s: %" PRId64 " bytes at the end belong to no tensor", path,
                     data_bytes - end);
  return PLAIT_OK;
}

static int parse_file(Safetensors *t, SafetensorsFile *file, Error *error) {
  const uint8_t *p = file->map.data;
  uint64_t length = 0, size = file->map.size;
  const char *words;
  FileKind kind = file_kind_of(p, (size_t)size, &words);
  if (kind == FILE_KIND_POINTER || kind == FILE_KIND_PACKED)
    return error_set(error, PLAIT_BAD_INPUT, "%s %s", file->path, words);
  if (size < 8)
    return error_set(error, PLAIT_BAD_INPUT, "%s: %" PRIu64 " bytes are too short for safetensors", file->path, size);
  for (int i = 7; i >= 0; i--) length = length << 8 | p[i];
  if (length > size - 8)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: truncated or not safetensors: a header of %" PRIu64 " bytes in a file of %" PRIu64,
                     file->path, length, size);
  if (length > MAX_HEADER)
    return error_set(error, PLAIT_BAD_INPUT, "%s: a header of %" PRIu64 " bytes, at most %d are allowed", file->path,
                     length, MAX_HEADER);
  int code = parse_json(file->path, "the header", (const char *)p + 8, (size_t)length, &file->header, error);
  if (code) return code;
  const uint8_t *data = p + 8 + length;
  int64_t data_bytes = (int64_t)(size - 8 - length);
  const char *name;
  json_t *value;
  t->entries = xcalloc(json_object_size(file->header), sizeof *t->entries);
  json_object_foreach(file->header, name, value) {
    if (!strcmp(name, "__metadata__")) code = parse_metadata(file->path, value, error);
    else code = parse_entry(file->path, data, data_bytes, name, value, &t->entries[t->count++], error);
    if (code) return code;
  }
  if (t->count) qsort(t->entries, (size_t)t->count, sizeof *t->entries, by_position);
  code = check_positions(file->path, t->entries, t->count, data, data_bytes, error);
  if (!code) sort_names(t);
  return code;
}

int safetensors_open(Safetensors *t, const char *path, Error *error) {
  *t = (Safetensors){.files = xcalloc(1, sizeof *t->files), .file_count = 1};
  t->files[0].path = xstrdup(path);
  int code = file_map(path, &t->files[0].map, error);
  if (!code) code = parse_file(t, &t->files[0], error);
  if (code) safetensors_close(t);
  return code;
}

void safetensors_close(Safetensors *t) {
  for (int i = 0; i < t->file_count; i++) {
    json_decref(t->files[i].header);
    file_unmap(&t->files[i].map);
    free(t->files[i].path);
  }
  free(t->files);
  free(t->entries);
  free(t->by_name);
  *t = (Safetensors){0};
}

// Opens a shard (once) and takes its file and those of its entries that the index gives to it.
static int add_shard(Safetensors *t, const char *folder, const char *index_path, const char *shard, const json_t *map,
                     Error *error) {
  if (!*shard || *shard == '.' || strchr(shard, '/') || has_control_characters(shard))
    return error_set(error, PLAIT_BAD_INPUT, "%s: weight_map names a shard that is not a plain file name", index_path);
  Safetensors one;
  char *path = xformat("%s/%s", folder, shard);
  int code = file_exists(path) ? safetensors_open(&one, path, error)
                               : error_set(error, PLAIT_BAD_INPUT,
                                           "%s does not exist, but model.safetensors.index.json names it: the download "
                                           "is not complete",
                                           path);
  free(path);
  if (code) return code;
  t->files = xrealloc(t->files, sizeof *t->files * (size_t)(t->file_count + 1));
  t->files[t->file_count++] = one.files[0];
  t->entries = xrealloc(t->entries, sizeof *t->entries * (size_t)(t->count + one.count));
  for (int i = 0; i < one.count; i++) {
    const char *owner = json_string_value(json_object_get(map, one.entries[i].name));
    if (owner && !strcmp(owner, shard)) t->entries[t->count++] = one.entries[i];
  }
  one.file_count = 0; // the file moved
  safetensors_close(&one);
  return PLAIT_OK;
}

static int add_shards(Safetensors *t, const char *folder, const char *index_path, const json_t *map, Error *error) {
  int code = PLAIT_OK;
  const char *name;
  json_t *value, *seen = json_object(), *mutable_map = (json_t *)map;
  json_object_foreach(mutable_map, name, value) {
    const char *shard = json_string_value(value);
    if (!shard) code = error_set(error, PLAIT_BAD_INPUT, "%s: weight_map: %.100s has no file name", index_path, name);
    else if (json_object_get(seen, shard)) continue;
    else code = add_shard(t, folder, index_path, shard, map, error);
    if (code) break;
    json_object_set_new(seen, shard, json_true());
  }
  json_decref(seen);
  if (code) return code;
  sort_names(t);
  if ((size_t)t->count == json_object_size(map)) return PLAIT_OK;
  json_object_foreach(mutable_map, name, value) if (!safetensors_find(t, name)) return error_set(
      error, PLAIT_BAD_INPUT, "%s: tensor %.100s is not in %.100s, where weight_map says it is", index_path, name,
      json_string_value(value));
  CHECK(0, "an index that lists %d tensors has all of them, and more", t->count);
}

int safetensors_open_folder(Safetensors *t, const char *folder, Error *error) {
  char *single = xformat("%s/model.safetensors", folder), *index = xformat("%s/model.safetensors.index.json", folder);
  char *text = NULL;
  size_t bytes = 0;
  json_t *json = NULL;
  int code;
  *t = (Safetensors){0};
  if (file_exists(single)) {
    code = safetensors_open(t, single, error);
  } else if (!file_exists(index)) {
    code = error_set(error, PLAIT_BAD_INPUT, "%s: holds neither model.safetensors nor model.safetensors.index.json",
                     folder);
  } else {
    code = file_read(index, MAX_HEADER, &text, &bytes, error);
    if (!code) code = parse_json(index, "it", text, bytes, &json, error);
    json_t *map = json_object_get(json, "weight_map");
    if (!code && !json_is_object(map))
      code = error_set(error, PLAIT_BAD_INPUT, "%s: weight_map is missing or not an object", index);
    if (!code) code = add_shards(t, folder, index, map, error);
    if (code) safetensors_close(t);
  }
  json_decref(json);
  free(text);
  free(index);
  free(single);
  return code;
}

const SafetensorsEntry *safetensors_find(const Safetensors *t, const char *name) {
  SafetensorsEntry key = {.name = name};
  const SafetensorsEntry *p = &key;
  const SafetensorsEntry **found =
      t->count ? bsearch(&p, t->by_name, (size_t)t->count, sizeof *t->by_name, by_name) : NULL;
  return found ? *found : NULL;
}

const char *safetensors_metadata(const Safetensors *t, const char *key) {
  for (int i = 0; i < t->file_count; i++) {
    const char *value = json_string_value(json_object_get(json_object_get(t->files[i].header, "__metadata__"), key));
    if (value) return value;
  }
  return NULL;
}

// ---- writing ----

static int declare(json_t *header, const char *path, const SafetensorsEntry *e, uint64_t *end, Error *error) {
  int64_t bytes = (int64_t)e->bytes;
  if (e->dtype >= 0 && e->rank <= SAFETENSORS_MAX_RANK)
    bytes = shape_bytes(e->rank, e->dims, (int64_t)dtype_size((Dtype)e->dtype));
  if (e->rank < 0 || e->rank > SAFETENSORS_MAX_RANK || bytes < 0 || bytes > INT64_MAX / 2 - (int64_t)*end)
    return error_set(error, PLAIT_FAILED, "%s: tensor %.100s has a shape that cannot be written", path, e->name);
  json_t *shape = json_array();
  for (int d = 0; d < e->rank; d++) json_array_append_new(shape, json_integer(e->dims[d]));
  json_t *entry =
      json_pack("{s:s, s:o, s:[I, I]}", "dtype", e->dtype >= 0 ? dtype_file_name((Dtype)e->dtype) : e->dtype_name,
                "shape", shape, "data_offsets", (json_int_t)*end, (json_int_t)*end + bytes);
  int clash = !strcmp(e->name, "__metadata__") || json_object_get(header, e->name);
  if (!entry || clash || json_object_set(header, e->name, entry)) {
    json_decref(entry);
    return error_set(error, PLAIT_FAILED, "%s: tensor name %.100s is %s", path, e->name,
                     clash ? "there twice" : "not UTF-8");
  }
  json_decref(entry);
  *end += (uint64_t)bytes;
  return PLAIT_OK;
}

static int build_header(const char *path, const SafetensorsEntry *entries, int count, const char *const *metadata,
                        char **text, uint64_t *data_bytes, Error *error) {
  json_t *header = json_object();
  int code = PLAIT_OK;
  *data_bytes = 0;
  *text = NULL;
  if (metadata && metadata[0]) {
    json_t *pairs = json_object();
    for (int i = 0; metadata[i] && !code; i += 2)
      if (json_object_set_new(pairs, metadata[i], json_string(metadata[i + 1])))
        code = error_set(error, PLAIT_FAILED, "%s: metadata %.100s is not UTF-8", path, metadata[i]);
    json_object_set_new(header, "__metadata__", pairs);
  }
  for (int i = 0; i < count && !code; i++) code = declare(header, path, &entries[i], data_bytes, error);
  if (!code) *text = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  if (!code && !*text) code = error_set(error, PLAIT_NO_MEMORY, "%s: no memory for the header", path);
  if (!code && strlen(*text) > MAX_HEADER - 8)
    code = error_set(error, PLAIT_FAILED, "%s: the header is too large", path);
  return code;
}

int safetensors_write_begin(SafetensorsWriter *w, const char *path, const SafetensorsEntry *entries, int count,
                            const char *const *metadata, Error *error) {
  char *text;
  uint64_t data_bytes;
  *w = (SafetensorsWriter){0};
  checksum_begin(&w->checksum);
  int code = build_header(path, entries, count, metadata, &text, &data_bytes, error);
  if (!code) code = file_begin_large(&w->file, path, error);
  if (!code) {
    size_t length = strlen(text), padded = (length + 7) / 8 * 8; // spaces, so that the data starts aligned
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    w->total = 8 + padded + data_bytes;
    code = safetensors_write_data(w, prefix, 8, error);
    if (!code) code = safetensors_write_data(w, text, length, error);
    if (!code) code = safetensors_write_data(w, "        ", padded - length, error);
  }
  free(text);
  return code;
}

int safetensors_write_data(SafetensorsWriter *w, const void *data, size_t bytes, Error *error) {
  if (!bytes) return PLAIT_OK;
  CHECK(bytes <= w->total - w->written, "more data than was declared for %s", w->file.path);
  checksum_feed(&w->checksum, data, bytes);
  w->written += bytes;
  int why = file_write(&w->file, data, bytes);
  if (!why) return PLAIT_OK;
  int code = file_write_failed(w->file.path, why, (double)w->total, error);
  safetensors_write_abandon(w);
  return code;
}

int safetensors_write_finish(SafetensorsWriter *w, Error *error) {
  if (w->written == w->total) return file_commit(&w->file, error);
  error_set(error, PLAIT_FAILED, "%s: %" PRIu64 " bytes of data were never written", w->file.path,
            w->total - w->written);
  safetensors_write_abandon(w);
  return PLAIT_FAILED;
}

void safetensors_write_abandon(SafetensorsWriter *w) { file_abandon(&w->file); }

int safetensors_write(const char *path, const SafetensorsEntry *entries, int count, const char *const *metadata,
                      Error *error) {
  SafetensorsWriter w;
  int code = safetensors_write_begin(&w, path, entries, count, metadata, error);
  for (int i = 0; i < count && !code; i++) {
    int64_t bytes = entries[i].dtype < 0
                        ? (int64_t)entries[i].bytes
                        : shape_bytes(entries[i].rank, entries[i].dims, (int64_t)dtype_size((Dtype)entries[i].dtype));
    code = safetensors_write_data(&w, entries[i].data, (size_t)bytes, error);
  }
  return code ? code : safetensors_write_finish(&w, error);
}
