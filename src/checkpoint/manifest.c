// Parsing, checking and writing of checkpoint manifests; one validator serves the writer and the reader.
#include "checkpoint/manifest.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 33, MAX_MANIFEST = 1 << 30 }; // {"checksum": "0123456789abcdef",\n

static void write_prefix(char prefix[PREFIX + 1], uint64_t checksum) {
  snprintf(prefix, PREFIX + 1, "{\"checksum\": \"%016" PRIx64 "\",\n", checksum);
}

char *manifest_part_file(int part) { return xformat("part-%05d.safetensors", part); }

char *manifest_entry_name(const char *name, const int64_t *global, const Box *box) {
  if (dims_equal(box->rank, box->local, global)) return xstrdup(name);
  char range[BOX_MAX_RANK * 44] = "";
  size_t n = 0;
  for (int d = 0; d < box->rank; d++)
    n += (size_t)snprintf(range + n, sizeof range - n, "%s%" PRId64 ":%" PRId64, d ? "," : "", box->offset[d],
                          box->offset[d] + box->local[d]);
  return xformat("%s[%s]", name, range);
}

Box checkpoint_box(const CheckpointTensor *t) {
  Box box = {.rank = t->rank};
  memcpy(box.offset, t->offset, sizeof box.offset);
  memcpy(box.local, t->local, sizeof box.local);
  return box;
}

void checkpoint_strides(const CheckpointTensor *t, int64_t stride[BOX_MAX_RANK]) {
  Box box = checkpoint_box(t);
  box_strides(&box, stride);
  for (int d = 0; d < t->rank; d++)
    if (t->stride[d]) {
      memcpy(stride, t->stride, sizeof t->stride);
      return;
    }
}

json_t *manifest_dims(int rank, const int64_t *dims) {
  json_t *list = json_array();
  for (int d = 0; d < rank; d++) json_array_append_new(list, json_integer(dims[d]));
  return list;
}

int manifest_parse_dims(const json_t *list, int64_t dims[BOX_MAX_RANK]) {
  size_t rank = json_array_size(list);
  if (!json_is_array(list) || rank > BOX_MAX_RANK) return -1;
  for (size_t d = 0; d < rank; d++) {
    const json_t *dim = json_array_get(list, d);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0) return -1;
    dims[d] = json_integer_value(dim);
  }
  return (int)rank;
}

static int parse_checksum(const char *text, uint64_t *checksum) {
  if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return -1;
  *checksum = strtoull(text, NULL, 16);
  return 0;
}

static int parse_parts(Manifest *m, const char *path, Error *error) {
  const json_t *parts = json_object_get(m->json, "parts");
  if (!json_is_array(parts) || json_array_size(parts) > 1000000)
    return error_set(error, PLAIT_BAD_INPUT, "%s: parts is missing or not a list", path);
  m->parts = xcalloc(json_array_size(parts), sizeof *m->parts);
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *json = json_array_get(parts, i), *bytes = json_object_get(json, "bytes");
    const char *file = json_string_value(json_object_get(json, "file"));
    ManifestPart *part = &m->parts[m->part_count++];
    part->file = manifest_part_file((int)i); // derived, so that no manifest can point out of its folder
    part->bytes = json_integer_value(bytes);
    if (!file || strcmp(file, part->file) || !json_is_integer(bytes) || part->bytes < 0 ||
        parse_checksum(json_string_value(json_object_get(json, "checksum")), &part->checksum))
      return error_set(error, PLAIT_BAD_INPUT, "%s: parts[%zu] is not {file: %s, bytes, checksum}", path, i,
                       part->file);
  }
  return PLAIT_OK;
}

static int parse_boxes(const Manifest *m, ManifestTensor *t, const json_t *boxes, const char *path, Error *error) {
  const char *name = t->entry.name;
  if (!json_is_array(boxes))
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s: boxes is missing or not a list", path, name);
  t->boxes = xcalloc(json_array_size(boxes), sizeof *t->boxes);
  for (size_t i = 0; i < json_array_size(boxes); i++) {
    const json_t *json = json_array_get(boxes, i), *part = json_object_get(json, "part");
    ManifestBox *box = &t->boxes[t->box_count++];
    int a = manifest_parse_dims(json_object_get(json, "offset"), box->box.offset);
    int b = manifest_parse_dims(json_object_get(json, "shape"), box->box.local);
    box->box.rank = t->entry.rank;
    if (a != t->entry.rank || b != a || !box_inside(&box->box, t->entry.global) || !json_is_integer(part) ||
        json_integer_value(part) < 0 || json_integer_value(part) >= m->part_count)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s: tensor %.100s: boxes[%zu] is not a piece of it in one of the %d parts", path, name, i,
                       m->part_count);
    box->part = (int)json_integer_value(part);
  }
  Box *plain = xcalloc((size_t)t->box_count, sizeof *plain);
  for (int i = 0; i < t->box_count; i++) plain[i] = t->boxes[i].box;
  Error why = {0};
  int code = boxes_cover(name, plain, t->box_count, t->entry.rank, t->entry.global, &why);
  free(plain);
  return code ? error_set(error, PLAIT_BAD_INPUT, "%s: %.900s", path, why.message) : PLAIT_OK;
}

static int parse_tensor(Manifest *m, const char *name, const json_t *json, const char *path, Error *error) {
  ManifestTensor *t = &m->tensors[m->tensor_count++];
  const char *dtype = json_string_value(json_object_get(json, "dtype"));
  int known = dtype ? dtype_from_file_name(dtype) : -1;
  int rank = manifest_parse_dims(json_object_get(json, "shape"), t->entry.global);
  int64_t elements = 0;
  t->entry.name = name;
  if (known < 0 || rank < 0 || dims_elements(rank, t->entry.global, &elements) || elements > INT64_MAX / 8)
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s: dtype or shape is missing or impossible", path, name);
  t->entry.dtype = (Dtype)known;
  t->entry.rank = rank;
  return parse_boxes(m, t, json_object_get(json, "boxes"), path, error);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const ManifestTensor *)a)->entry.name, ((const ManifestTensor *)b)->entry.name);
}

int manifest_parse(Manifest *m, json_t *json, const char *path, Error *error) {
  *m = (Manifest){.json = json};
  const char *format = json_string_value(json_object_get(json, "format")), *name;
  json_t *step = json_object_get(json, "step"), *tensors = json_object_get(json, "tensors"), *value;
  json_t *version = json_object_get(json, "version");
  int code = PLAIT_OK;
  if (!format || strcmp(format, "plait checkpoint"))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: not the manifest of a plait checkpoint", path);
  else if (json_integer_value(version) != 1)
    code = error_set(error, PLAIT_BAD_INPUT, "%s: version %lld of the format, this plait reads version 1", path,
                     (long long)json_integer_value(version));
  else if (!json_is_integer(step) || json_integer_value(step) < 0)
    code = error_set(error, PLAIT_BAD_INPUT, "%s: step is missing or negative", path);
  else if (!json_is_object(tensors) || !json_is_object(json_object_get(json, "extra")))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: tensors or extra is missing or not an object", path);
  m->step = json_integer_value(step);
  if (!code) code = parse_parts(m, path, error);
  if (!code) {
    m->tensors = xcalloc(json_object_size(tensors), sizeof *m->tensors);
    json_object_foreach(tensors, name, value) if ((code = parse_tensor(m, name, value, path, error))) break;
  }
  if (!code && m->tensor_count) qsort(m->tensors, (size_t)m->tensor_count, sizeof *m->tensors, by_name);
  if (code) manifest_free(m);
  return code;
}

void manifest_free(Manifest *m) {
  for (int i = 0; i < m->tensor_count; i++) free(m->tensors[i].boxes);
  for (int i = 0; i < m->part_count; i++) free(m->parts[i].file);
  free(m->tensors);
  free(m->parts);
  json_decref(m->json);
  *m = (Manifest){0};
}

int manifest_read(Manifest *m, const char *path, Error *error) {
  char *text = NULL, prefix[PREFIX + 1] = "";
  size_t bytes = 0;
  json_error_t why;
  json_t *json = NULL;
  *m = (Manifest){0};
  int code = file_read(path, MAX_MANIFEST, &text, &bytes, error);
  if (code) return code;
  if (bytes > PREFIX) write_prefix(prefix, checksum_of(text + PREFIX, bytes - PREFIX));
  if (bytes <= PREFIX || memcmp(text, prefix, PREFIX))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: damaged: its checksum does not fit its content", path);
  else if (!(json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why)))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: not valid JSON at line %d", path, why.line);
  free(text);
  return code ? code : manifest_parse(m, json, path, error);
}

int manifest_write(const Manifest *m, const char *path, Error *error) {
  char prefix[PREFIX + 1], *text = json_dumps(m->json, 0);
  AtomicFile file;
  if (!text) return error_set(error, PLAIT_FAILED, "%s: the manifest cannot be written as JSON", path);
  size_t bytes = strlen(text);
  text[bytes] = '\n'; // in place of the NUL: what follows the opening brace, newline included, is bytes long
  write_prefix(prefix, checksum_of(text + 1, bytes));
  int code = file_begin(&file, path, error);
  if (!code) {
    fwrite(prefix, 1, PREFIX, file.stream);
    fwrite(text + 1, 1, bytes, file.stream);
    code = file_commit(&file, error); // it looks at the stream's error flag
  }
  free(text);
  return code;
}
