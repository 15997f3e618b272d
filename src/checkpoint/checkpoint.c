// Reading of sharded checkpoints: open, verify, and fill boxes from boxes.
#include "checkpoint/checkpoint.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// A part is verified and mapped by the first thread that needs it; others wait for that, but not for other parts.
typedef struct Part { pthread_mutex_t lock; int usable; Safetensors tensors; } Part;

struct Checkpoint {
  char *path;
  Manifest manifest;
  Part *parts; // manifest.part_count
};

int checkpoint_open(Checkpoint **opened, const char *path, Error *error) {
  *opened = NULL;
  Checkpoint *c = xcalloc(1, sizeof *c);
  char *file = xformat("%s/" MANIFEST_FILE, path);
  int code = manifest_read(&c->manifest, file, error);
  free(file);
  if (code) {
    free(c);
    return code;
  }
  c->path = xstrdup(path);
  c->parts = xcalloc((size_t)c->manifest.part_count, sizeof *c->parts);
  for (int i = 0; i < c->manifest.part_count; i++) pthread_mutex_init(&c->parts[i].lock, NULL);
  *opened = c;
  return PLAIT_OK;
}

void checkpoint_close(Checkpoint *c) {
  if (!c) return;
  for (int i = 0; i < c->manifest.part_count; i++) {
    if (c->parts[i].usable) safetensors_close(&c->parts[i].tensors);
    pthread_mutex_destroy(&c->parts[i].lock);
  }
  free(c->parts);
  manifest_free(&c->manifest);
  free(c->path);
  free(c);
}

// Size and checksum before the content is even parsed: a damaged part is called damaged, whatever the damage breaks.
static int verify_file(const char *path, const ManifestPart *expected, Error *error) {
  FileMap map;
  int code = file_map(path, &map, error);
  if (code) return code;
  if (map.size != (uint64_t)expected->bytes)
    code =
        error_set(error, PLAIT_BAD_INPUT, "%s: %zu bytes, the manifest says %" PRId64, path, map.size, expected->bytes);
  else if (checksum_of(map.data, map.size) != expected->checksum)
    code = error_set(error, PLAIT_BAD_INPUT, "%s: damaged: its checksum is not the one in the manifest", path);
  file_unmap(&map);
  return code;
}

static int use_part(Checkpoint *c, int i, Error *error) {
  Part *part = &c->parts[i];
  int code = PLAIT_OK;
  pthread_mutex_lock(&part->lock);
  if (!part->usable) {
    char *path = xformat("%s/%s", c->path, c->manifest.parts[i].file);
    code = verify_file(path, &c->manifest.parts[i], error);
    if (!code) code = safetensors_open(&part->tensors, path, error);
    part->usable = !code;
    free(path);
  }
  pthread_mutex_unlock(&part->lock);
  return code;
}

// The stored data of a box, which is row-major over it.
static int find_box(Checkpoint *c, const ManifestTensor *t, const ManifestBox *box, const void **data, Error *error) {
  int code = use_part(c, box->part, error);
  if (code) return code;
  char *name = manifest_entry_name(t->entry.name, t->entry.global, &box->box);
  const SafetensorsEntry *found = safetensors_find(&c->parts[box->part].tensors, name);
  if (!found || found->dtype != (int)t->entry.dtype || found->rank != t->entry.rank ||
      !dims_equal(found->rank, found->dims, box->box.local))
    code = error_set(error, PLAIT_BAD_INPUT, "%s/%s: holds no %.200s of the dtype and shape in the manifest", c->path,
                     c->manifest.parts[box->part].file, name);
  else *data = found->data;
  free(name);
  return code;
}

int checkpoint_verify(Checkpoint *c, Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; i < c->manifest.part_count && !code; i++) code = use_part(c, i, error);
  for (int i = 0; i < c->manifest.tensor_count && !code; i++) {
    const ManifestTensor *t = &c->manifest.tensors[i];
    const void *data;
    for (int j = 0; j < t->box_count && !code; j++)
      if (box_elements(&t->boxes[j].box)) code = find_box(c, t, &t->boxes[j], &data, error);
  }
  return code;
}

int64_t checkpoint_step(const Checkpoint *c) { return c->manifest.step; }
const char *checkpoint_path(const Checkpoint *c) { return c->path; }
json_t *checkpoint_extra(const Checkpoint *c) { return json_object_get(c->manifest.json, "extra"); }
int checkpoint_count(const Checkpoint *c) { return c->manifest.tensor_count; }
const CheckpointEntry *checkpoint_entry(const Checkpoint *c, int i) { return &c->manifest.tensors[i].entry; }

static int compare_name(const void *name, const void *tensor) {
  return strcmp(name, ((const ManifestTensor *)tensor)->entry.name);
}

static const ManifestTensor *find_tensor(const Checkpoint *c, const char *name) {
  const Manifest *m = &c->manifest;
  return m->tensor_count ? bsearch(name, m->tensors, (size_t)m->tensor_count, sizeof *m->tensors, compare_name) : NULL;
}

const CheckpointEntry *checkpoint_find(const Checkpoint *c, const char *name) {
  const ManifestTensor *t = find_tensor(c, name);
  return t ? &t->entry : NULL;
}

// A list of names for a message: the first few, then how many more.
typedef struct NameList { char text[360]; size_t used; int count; } NameList;

static void list_name(NameList *list, const char *name) {
  if (list->count++ < 6 && list->used < sizeof list->text - 70)
    list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%.60s",
                                   list->used ? ", " : "", name);
}

static int lacks(const Checkpoint *c, const NameList *missing, const NameList *surplus, Error *error) {
  if (!missing->count && !surplus->count) return PLAIT_OK;
  char first[420] = "", second[420] = "";
  if (missing->count)
    snprintf(first, sizeof first, "lacks %d tensor(s): %s%s", missing->count, missing->text,
             missing->count > 6 ? ", …" : "");
  if (surplus->count)
    snprintf(second, sizeof second, "has %d unexpected tensor(s): %s%s", surplus->count, surplus->text,
             surplus->count > 6 ? ", …" : "");
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s%s%s", c->path, first, *first && *second ? " and " : "", second);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

int checkpoint_compare_names(const Checkpoint *c, const char *const *names, int count,
                             int (*filter)(const char *name, void *context), void *context, Error *error) {
  NameList missing = {0}, surplus = {0};
  const char **sorted = xcalloc((size_t)count, sizeof *sorted);
  for (int i = 0; i < count; i++) sorted[i] = names[i];
  qsort(sorted, (size_t)count, sizeof *sorted, by_text);
  for (int i = 0; i < count; i++) {
    if (i && !strcmp(sorted[i], sorted[i - 1])) continue;
    const ManifestTensor *t = find_tensor(c, sorted[i]);
    if (!t || (filter && !filter(sorted[i], context))) list_name(&missing, sorted[i]);
  }
  for (int i = 0; i < checkpoint_count(c); i++) {
    const char *name = checkpoint_entry(c, i)->name;
    if (filter && !filter(name, context)) continue;
    if (!count || !bsearch(&name, sorted, (size_t)count, sizeof *sorted, by_text)) list_name(&surplus, name);
  }
  free(sorted);
  return lacks(c, &missing, &surplus, error);
}

static int check_wanted(const Checkpoint *c, const CheckpointTensor *w, const ManifestTensor *t, int convert,
                        Error *error) {
  char here[200], there[200];
  Box box = checkpoint_box(w);
  if (w->rank != t->entry.rank || !dims_equal(w->rank, w->global, t->entry.global))
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s is %s in the checkpoint but %s here", c->path, w->name,
                     dims_text(t->entry.rank, t->entry.global, there), dims_text(w->rank, w->global, here));
  if (!box_inside(&box, w->global))
    return error_set(error, PLAIT_FAILED, "%s: tensor %.100s: a piece at %s was asked for, outside of its shape %s",
                     c->path, w->name, dims_text(w->rank, w->offset, here), dims_text(w->rank, w->global, there));
  if (w->dtype != t->entry.dtype && !(convert && dtype_is_float(w->dtype) && dtype_is_float(t->entry.dtype)))
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s is %s in the checkpoint but %s here", c->path, w->name,
                     dtype_name(t->entry.dtype), dtype_name(w->dtype));
  return PLAIT_OK;
}

static Box whole_box(const CheckpointTensor *piece, int64_t stride[BOX_MAX_RANK]) {
  Box whole = {.rank = piece->rank};
  memcpy(whole.local, piece->global, sizeof whole.local);
  box_strides(&whole, stride);
  return whole;
}

// Pieces to which there is access only go through a buffer of the host's, some elements at a time.
enum { AT_ONCE = 1 << 13 };

// An array in the host's memory: of box `box`.
typedef struct Array { void *data; const Box *box; const int64_t *stride; Dtype dtype; } Array;

static void copy_array(const Box *part, const Array *to, const Array *from) {
  box_copy(part, to->data, to->box, to->stride, to->dtype, from->data, from->box, from->stride, from->dtype);
}

static void copy_tensor(const CheckpointTensor *t, const Box *part, const Array *other, int put) {
  int64_t stride[BOX_MAX_RANK] = {0}, n = box_elements(part);
  Box box = checkpoint_box(t);
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  Array own = {t->data, &box, stride, t->dtype};
  if (!n) return;
  checkpoint_strides(t, stride);
  if (!t->access) {
    copy_array(part, put ? &own : other, put ? other : &own);
    return;
  }
  own = (Array){xcalloc((size_t)(n < AT_ONCE ? n : AT_ONCE), sizeof(double)), &pieces.piece, stride,
                t->dtype}; // of any dtype
  while (box_next_piece(&pieces)) {
    box_strides(&pieces.piece, stride);
    if (!put) t->access->read(t->owner, t->id, &pieces.piece, own.data);
    copy_array(&pieces.piece, put ? &own : other, put ? other : &own);
    if (put) t->access->write(t->owner, t->id, &pieces.piece, own.data);
  }
  free(own.data);
}

void checkpoint_tensor_get(const CheckpointTensor *t, const Box *part, void *to, const Box *other,
                           const int64_t *stride, Dtype dtype) {
  copy_tensor(t, part, &(Array){to, other, stride, dtype}, 0);
}

void checkpoint_tensor_put(const CheckpointTensor *t, const Box *part, const void *from, const Box *other,
                           const int64_t *stride, Dtype dtype) {
  if (t->read) *t->read += box_elements(part) * (int64_t)dtype_size(dtype);
  copy_tensor(t, part, &(Array){(void *)(uintptr_t)from, other, stride, dtype}, 1);
}

void checkpoint_tensor_to_whole(const CheckpointTensor *piece, void *whole, Dtype dtype) {
  int64_t stride[BOX_MAX_RANK] = {0};
  Box part = checkpoint_box(piece), all = whole_box(piece, stride);
  checkpoint_tensor_get(piece, &part, whole, &all, stride, dtype);
}

void checkpoint_tensor_from_whole(const CheckpointTensor *piece, const void *whole, Dtype dtype) {
  int64_t stride[BOX_MAX_RANK] = {0};
  Box part = checkpoint_box(piece), all = whole_box(piece, stride);
  checkpoint_tensor_put(piece, &part, whole, &all, stride, dtype);
}

static int fill(Checkpoint *c, const CheckpointTensor *w, const ManifestTensor *t, Error *error) {
  Box wanted = checkpoint_box(w), both;
  int64_t from[BOX_MAX_RANK] = {0};
  for (int i = 0; i < t->box_count; i++) {
    const ManifestBox *stored = &t->boxes[i];
    const void *data = NULL;
    if (!box_intersect(&wanted, &stored->box, &both)) continue;
    int code = find_box(c, t, stored, &data, error);
    if (code) return code;
    box_strides(&stored->box, from);
    checkpoint_tensor_put(w, &both, data, &stored->box, from, t->entry.dtype);
  }
  return PLAIT_OK;
}

int checkpoint_load(Checkpoint *c, const CheckpointTensor *wanted, int count, int convert, Error *error) {
  NameList missing = {0}, none = {0};
  int code = PLAIT_OK;
  for (int i = 0; i < count; i++)
    if (!find_tensor(c, wanted[i].name)) list_name(&missing, wanted[i].name);
  code = lacks(c, &missing, &none, error);
  // All is checked before anything is filled: a refused load leaves the caller's state as it was.
  for (int i = 0; i < count && !code; i++)
    code = check_wanted(c, &wanted[i], find_tensor(c, wanted[i].name), convert, error);
  for (int i = 0; i < count && !code; i++) code = fill(c, &wanted[i], find_tensor(c, wanted[i].name), error);
  return code;
}

int checkpoint_read_box(Checkpoint *c, const char *name, const int64_t *offset, const int64_t *local, Dtype dtype,
                        void *out, Error *error) {
  const CheckpointEntry *entry = checkpoint_find(c, name);
  CheckpointTensor wanted = {.name = name, .dtype = dtype, .data = out};
  if (entry) {
    size_t bytes = sizeof *offset * (size_t)entry->rank;
    wanted.rank = entry->rank;
    memcpy(wanted.global, entry->global, sizeof wanted.global);
    if (bytes) memcpy(wanted.offset, offset, bytes), memcpy(wanted.local, local, bytes);
  }
  return checkpoint_load(c, &wanted, 1, 1, error);
}
