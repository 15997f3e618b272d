// Writing of sharded checkpoints, the folder of them (newest valid, pruning), and whole tensors gathered from pieces.
#include "base/fault.h"
#include "base/file.h"
#include "base/vec.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STAGING = 64 << 10 }; // bytes; what is not one run of the host's memory passes through it on its way to the file

static char *step_folder(const char *dir, int64_t step, const char *suffix) {
  return xformat("%s/step-%" PRId64 "%s", dir, step, suffix);
}

// ---- one part ----

static int is_contiguous(const CheckpointTensor *t) {
  Box box = checkpoint_box(t);
  int64_t row_major[BOX_MAX_RANK], stride[BOX_MAX_RANK];
  if (t->access) return 0;
  box_strides(&box, row_major);
  checkpoint_strides(t, stride);
  for (int d = 0; d < t->rank; d++)
    if (t->local[d] > 1 && stride[d] != row_major[d]) return 0;
  return 1;
}

static int stream_piece(SafetensorsWriter *w, const CheckpointTensor *t, Error *error) {
  int64_t size = (int64_t)dtype_size(t->dtype), stride[BOX_MAX_RANK], elements;
  BoxPieces pieces = {.whole = checkpoint_box(t), .most = STAGING / size};
  int code = PLAIT_OK;
  if (!(elements = box_elements(&pieces.whole))) return PLAIT_OK;
  if (is_contiguous(t)) return safetensors_write_data(w, t->data, (size_t)(elements * size), error);
  char *staging = xcalloc(STAGING, 1);
  while (!code && box_next_piece(&pieces)) {
    box_strides(&pieces.piece, stride);
    checkpoint_tensor_get(t, &pieces.piece, staging, &pieces.piece, stride, t->dtype);
    code = safetensors_write_data(w, staging, (size_t)(box_elements(&pieces.piece) * size), error);
  }
  free(staging);
  return code;
}

static int check_piece(const char *path, const CheckpointTensor *t, Error *error) {
  Box box = checkpoint_box(t);
  char text[200];
  if (t->rank >= 0 && t->rank <= BOX_MAX_RANK && box_inside(&box, t->global)) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "%s: tensor %.100s: a piece that does not lie inside its shape %s", path,
                   t->name,
                   t->rank >= 0 && t->rank <= BOX_MAX_RANK ? dims_text(t->rank, t->global, text) : "(impossible rank)");
}

// Appends a piece that this part stores. Empty ones are left out, except of a tensor that has no elements at all: that
// one is kept whole, once, so that its name is not lost.
static int add_piece(CheckpointTensor *pieces, int count, const CheckpointTensor *t) {
  Box box = checkpoint_box(t);
  int64_t elements = 0;
  if (!t->primary) return count;
  dims_elements(t->rank, t->global, &elements);
  if (elements) {
    if (box_elements(&box)) pieces[count++] = *t;
    return count;
  }
  for (int i = 0; i < count; i++)
    if (!strcmp(pieces[i].name, t->name)) return count;
  pieces[count] = *t;
  memset(pieces[count].offset, 0, sizeof t->offset);
  memcpy(pieces[count].local, t->global, sizeof t->local);
  return count + 1;
}

static SafetensorsEntry piece_entry(const CheckpointTensor *t, const char *name, const int64_t *dims) {
  SafetensorsEntry entry = {.name = name, .dtype = (int)t->dtype, .rank = t->rank};
  memcpy(entry.dims, dims, sizeof entry.dims);
  return entry;
}

// The checksum is that of the bytes that were meant to be written, taken on their way, and waits beside the part for
// checkpoint_finish: a disk that stores something else is found out on loading.
static int write_checksum(const char *path, const SafetensorsWriter *w, Error *error) {
  AtomicFile file;
  char *beside = xformat("%s.checksum", path);
  int code = file_begin(&file, beside, error);
  if (!code) {
    fprintf(file.stream, "%" PRIu64 " %016" PRIx64 "\n", w->written, checksum_value(&w->checksum));
    code = file_commit(&file, error);
  }
  free(beside);
  return code;
}

static int write_pieces(const char *path, const CheckpointTensor *pieces, int count, Error *error) {
  SafetensorsEntry *entries = xcalloc((size_t)count, sizeof *entries);
  char **names = xcalloc((size_t)count, sizeof *names);
  json_t *boxes = json_object();
  SafetensorsWriter w = {0};
  for (int i = 0; i < count; i++) {
    const CheckpointTensor *t = &pieces[i];
    Box box = checkpoint_box(t);
    names[i] = manifest_entry_name(t->name, t->global, &box);
    entries[i] = piece_entry(t, names[i], t->local);
    json_object_set_new(boxes, names[i],
                        json_pack("{s:s, s:o, s:o, s:o}", "name", t->name, "global", manifest_dims(t->rank, t->global),
                                  "offset", manifest_dims(t->rank, t->offset), "local",
                                  manifest_dims(t->rank, t->local)));
  }
  char *text = json_dumps(boxes, JSON_COMPACT);
  const char *metadata[] = {"format", "plait checkpoint part", MANIFEST_BOXES, text, NULL};
  int code = safetensors_write_begin(&w, path, entries, count, metadata, error);
  for (int i = 0; i < count && !code; i++) code = stream_piece(&w, &pieces[i], error);
  if (!code) code = safetensors_write_finish(&w, error);
  if (!code) code = write_checksum(path, &w, error);
  for (int i = 0; i < count; i++) free(names[i]);
  free(text);
  json_decref(boxes);
  free(names);
  free(entries);
  return code;
}

int checkpoint_write_part(const char *dir, int64_t step, int part, const CheckpointTensor *tensors, int count,
                          Error *error) {
  char *folder = step_folder(dir, step, ".tmp"), *file = manifest_part_file(part),
       *path = xformat("%s/%s", folder, file);
  CheckpointTensor *pieces = xcalloc((size_t)count, sizeof *pieces);
  int n = 0, code = PLAIT_OK;
  for (int i = 0; i < count && !code; i++) {
    code = check_piece(path, &tensors[i], error);
    if (!code) n = add_piece(pieces, n, &tensors[i]);
  }
  if (!code) code = write_pieces(path, pieces, n, error);
  free(pieces);
  free(path);
  free(file);
  free(folder);
  return code;
}

bool checkpoint_part_is_written(const char *dir, int64_t step, int part) {
  char *folder = step_folder(dir, step, ".tmp"), *file = manifest_part_file(part),
       *beside = xformat("%s/%s.checksum", folder, file);
  bool is_written = file_exists(beside); // renamed to this name, after the part was
  free(beside);
  free(file);
  free(folder);
  return is_written;
}

// ---- the manifest ----

static int add_box(json_t *tensors, const SafetensorsEntry *entry, const json_t *box, int part, Error *error) {
  const char *name = json_string_value(json_object_get(box, "name"));
  json_t *global = json_object_get(box, "global"), *offset = json_object_get(box, "offset");
  if (!name || !global || !offset || entry->dtype < 0)
    return error_set(error, PLAIT_FAILED, "%s: %.100s has no record of its box", entry->path, entry->name);
  json_t *tensor = json_object_get(tensors, name);
  if (!tensor) {
    tensor = json_pack("{s:s, s:O, s:[]}", "dtype", entry->dtype_name, "shape", global, "boxes");
    json_object_set_new(tensors, name, tensor);
  }
  if (strcmp(json_string_value(json_object_get(tensor, "dtype")), entry->dtype_name) ||
      !json_equal(json_object_get(tensor, "shape"), global))
    return error_set(error, PLAIT_FAILED, "%s: tensor %.100s has another dtype or global shape than in an earlier part",
                     entry->path, name);
  json_array_append_new(json_object_get(tensor, "boxes"), json_pack("{s:i, s:O, s:o}", "part", part, "offset", offset,
                                                                    "shape", manifest_dims(entry->rank, entry->dims)));
  return PLAIT_OK;
}

// Reads the header of one written part and adds it to the manifest.
static int add_part(const char *folder, int part, json_t *parts, json_t *tensors, Error *error) {
  char *file = manifest_part_file(part), *path = xformat("%s/%s", folder, file), *beside = xformat("%s.checksum", path);
  char *text = NULL, checksum[17];
  uint64_t bytes = 0;
  Safetensors t = {0};
  json_t *boxes = NULL;
  int code = file_read(beside, 100, &text, NULL, error);
  if (!code && sscanf(text, "%" SCNu64 " %16[0-9a-f]", &bytes, checksum) != 2)
    code = error_set(error, PLAIT_FAILED, "%s: not a size and a checksum", beside);
  if (!code) code = safetensors_open(&t, path, error);
  if (!code && t.files[0].map.size != bytes)
    code = error_set(error, PLAIT_FAILED, "%s: not of the size that was written", path);
  if (!code) {
    const char *record = safetensors_metadata(&t, MANIFEST_BOXES);
    boxes = record ? json_loads(record, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_array_append_new(parts,
                          json_pack("{s:s, s:I, s:s}", "file", file, "bytes", (json_int_t)bytes, "checksum", checksum));
  }
  for (int i = 0; i < t.count && !code; i++)
    code = add_box(tensors, &t.entries[i], json_object_get(boxes, t.entries[i].name), part, error);
  json_decref(boxes);
  safetensors_close(&t);
  free(text);
  free(beside);
  free(path);
  free(file);
  return code;
}

static int build_manifest(Manifest *m, const char *folder, int64_t step, int parts, json_t *extra, Error *error) {
  json_t *list = json_array(), *tensors = json_object();
  int code = PLAIT_OK;
  for (int i = 0; i < parts && !code; i++) code = add_part(folder, i, list, tensors, error);
  json_t *json = json_pack("{s:s, s:i, s:I, s:o, s:o}", "format", "plait checkpoint", "version", 1, "step",
                           (json_int_t)step, "parts", list, "tensors", tensors);
  json_object_set_new(json, "extra", extra ? json_incref(extra) : json_object());
  if (!code) return manifest_parse(m, json, folder, error); // also finds gaps and overlaps
  json_decref(json);
  return code;
}

// Puts the finished folder in its place; an older checkpoint of the same step stays until the new one is there.
static int move_into_place(const char *dir, int64_t step, const char *temporary, Error *error) {
  char *final = step_folder(dir, step, "");
  int code = PLAIT_OK;
  if (rename(temporary, final)) {
    if (errno == ENOTEMPTY || errno == EEXIST) code = folder_replace(temporary, final, error);
    else
      code = error_set(error, PLAIT_FAILED, "%s: cannot be renamed to %s: %s", temporary, final, strerror(errno));
  }
  if (!code) code = folder_sync(dir, error);
  free(final);
  return code;
}

int checkpoint_finish(const char *dir, int64_t step, int parts, json_t *extra, Error *error) {
  char *folder = step_folder(dir, step, ".tmp"), *path = xformat("%s/" MANIFEST_FILE, folder);
  Manifest m = {0};
  int code = build_manifest(&m, folder, step, parts, extra, error);
  if (!code) code = manifest_write(&m, path, error);
  for (int i = 0; i < parts && !code; i++) {
    char *file = manifest_part_file(i), *beside = xformat("%s/%s.checksum", folder, file);
    unlink(beside);
    free(beside);
    free(file);
  }
  if (!code) code = folder_sync(folder, error);
  if (!code) code = move_into_place(dir, step, folder, error);
  manifest_free(&m);
  free(path);
  free(folder);
  return code;
}

void checkpoint_abandon(const char *dir, int64_t step) {
  char *folder = step_folder(dir, step, ".tmp");
  folder_remove(folder, NULL);
  free(folder);
}

// ---- the folder of checkpoints ----

typedef Vec(int64_t) Steps;

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

// Is it "step-N", written as this file writes it?
static int parse_step(const char *name, int64_t *step) {
  char again[40], *end;
  if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return 0;
  *step = strtoll(name + 5, &end, 10);
  snprintf(again, sizeof again, "step-%" PRId64, *step);
  return !*end && !strcmp(again, name);
}

// The steps that there are, newest first (none when there is no folder); removes unfinished ones where asked to.
static int list_steps(const char *dir, Steps *steps, int remove_stale, Error *error) {
  DIR *d = opendir(dir);
  if (!d)
    return errno == ENOENT ? PLAIT_OK
                           : error_set(error, PLAIT_FAILED, "%s: cannot be listed: %s", dir, strerror(errno));
  int code = PLAIT_OK;
  for (struct dirent *e; (e = readdir(d)) && !code;) {
    size_t n = strlen(e->d_name);
    int64_t step;
    if (parse_step(e->d_name, &step)) vec_push(steps, step);
    else if (remove_stale && n > 4 && !strncmp(e->d_name, "step-", 5) && !strcmp(e->d_name + n - 4, ".tmp")) {
      char *path = xformat("%s/%s", dir, e->d_name);
      code = folder_remove(path, error);
      free(path);
    }
  }
  closedir(d);
  if (steps->count) qsort(steps->data, (size_t)steps->count, sizeof *steps->data, newest_first);
  return code;
}

int checkpoint_begin(const char *dir, int64_t step, Error *error) {
  char *folder = step_folder(dir, step, ".tmp");
  Steps steps = {0};
  int code = folder_create(dir, error);
  if (!code) code = list_steps(dir, &steps, 1, error);
  if (!code) code = folder_create(folder, error);
  vec_free(&steps);
  free(folder);
  return code;
}

// Opens DIR/step-N, and verifies all of it where asked to.
static int open_step(const char *dir, int64_t step, int verify, Checkpoint **opened, Error *error) {
  char *path = step_folder(dir, step, "");
  int code = checkpoint_open(opened, path, error);
  if (!code && verify) code = checkpoint_verify(*opened, error);
  if (!code && checkpoint_step(*opened) != step)
    code = error_set(error, PLAIT_BAD_INPUT, "%s: holds step %" PRId64, path, checkpoint_step(*opened));
  if (code) {
    checkpoint_close(*opened);
    *opened = NULL;
  }
  free(path);
  return code;
}

static void add_warning(char **warnings, const char *message) {
  char *all = xformat("%s%sskipped checkpoint %s", *warnings ? *warnings : "", *warnings ? "\n" : "", message);
  free(*warnings);
  *warnings = all;
}

static int find_latest(const char *dir, int verify, Checkpoint **found, char **warnings, Error *error) {
  Steps steps = {0};
  *found = NULL;
  int code = list_steps(dir, &steps, 0, error);
  for (int i = 0; i < steps.count && !code && !*found; i++) {
    Error why = {0};
    if (open_step(dir, steps.data[i], verify, found, &why) && warnings) add_warning(warnings, why.message);
  }
  vec_free(&steps);
  return code ? code : *found != NULL;
}

int checkpoint_latest_valid(const char *dir, int64_t *step, Checkpoint **opened, char **warnings, Error *error) {
  Checkpoint *found;
  if (warnings) *warnings = NULL;
  int result = find_latest(dir, 1, &found, warnings, error);
  if (found) *step = checkpoint_step(found);
  if (opened) *opened = found;
  else checkpoint_close(found);
  return result;
}

int checkpoint_peek_latest(const char *dir, Checkpoint **opened, Error *error) {
  return find_latest(dir, 0, opened, NULL, error);
}

// Renamed before it is deleted: an interrupted deletion must not look like a checkpoint.
static int delete_step(const char *dir, int64_t step, Error *error) {
  char *path = step_folder(dir, step, ""), *temporary = step_folder(dir, step, ".tmp");
  int code = folder_remove(temporary, error);
  if (!code && rename(path, temporary))
    code = error_set(error, PLAIT_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
  if (!code) code = folder_remove(temporary, error);
  free(temporary);
  free(path);
  return code;
}

int checkpoint_mark_best(const char *dir, int64_t step, Error *error) {
  char *link = xformat("%s/best", dir), *temporary = xformat("%s/best.tmp", dir),
       *name = xformat("step-%lld", (long long)step);
  int failed = unlink(temporary) && errno != ENOENT;
  if (step > 0) failed = failed || symlink(name, temporary) || rename(temporary, link);
  else failed = failed || (unlink(link) && errno != ENOENT);
  int code = failed ? error_set(error, PLAIT_FAILED, "%s: cannot be written: %s", link, strerror(errno))
                    : folder_sync(dir, error);
  free(link);
  free(temporary);
  free(name);
  return code;
}

int64_t checkpoint_best(const char *dir) {
  char *link = xformat("%s/best", dir), *file = xformat("%s/best/checkpoint.json", dir), name[64] = "";
  ssize_t n = readlink(link, name, sizeof name - 1);
  int64_t step = n > 5 && !strncmp(name, "step-", 5) && file_exists(file) ? strtoll(name + 5, NULL, 10) : 0;
  free(link);
  free(file);
  return step;
}

// Newest first: after an interruption, every checkpoint that is left in `dir` and was to move is still later than
// `step`.
int checkpoint_move_later(const char *dir, int64_t step, const char *to, Error *error) {
  Steps steps = {0};
  char *link = xformat("%s/best", dir), *moved_link = xformat("%s/best", to);
  int64_t best = checkpoint_best(dir);
  int code = list_steps(dir, &steps, 0, error);
  if (!code && best > 0 && best > step && rename(link, moved_link))
    code = error_set(error, PLAIT_FAILED, "%s: cannot be moved to %s: %s", link, to, strerror(errno));
  for (int i = 0; i < steps.count && !code && steps.data[i] > step; i++) {
    char *from = step_folder(dir, steps.data[i], ""), *moved = step_folder(to, steps.data[i], "");
    if (rename(from, moved))
      code = error_set(error, PLAIT_FAILED, "%s: cannot be moved to %s: %s", from, to, strerror(errno));
    free(from);
    free(moved);
  }
  if (!code) code = folder_sync(to, error);
  if (!code) code = folder_sync(dir, error);
  vec_free(&steps);
  free(link);
  free(moved_link);
  return code;
}

int checkpoint_steps_there(const char *dir) {
  Steps steps = {0};
  Error ignored = {0};
  int count = list_steps(dir, &steps, 0, &ignored) ? 0 : (int)steps.count;
  vec_free(&steps);
  return count;
}

int checkpoint_prune(const char *dir, int64_t written, int keep, Error *error) {
  Steps steps = {0};
  int64_t valid = -1;
  if (keep <= 0) return PLAIT_OK;
  int code = list_steps(dir, &steps, 0, error);
  if (!code && steps.count > keep) {
    code = checkpoint_latest_valid(dir, &valid, NULL, NULL, error);
    int any = code > 0; // none is valid: then none is deleted, a person may still save something
    if (code > 0) code = PLAIT_OK;
    int64_t best = checkpoint_best(dir);
    for (int i = keep; any && i < steps.count && !code; i++)
      if (steps.data[i] != valid && steps.data[i] != written && steps.data[i] != FAULT(best_is_pruned, best, -1))
        code = delete_step(dir, steps.data[i], error);
  }
  vec_free(&steps);
  return code;
}

// ---- whole tensors ----

static int widest_then_name(const void *a, const void *b) {
  const CheckpointTensor *x = *(const CheckpointTensor *const *)a, *y = *(const CheckpointTensor *const *)b;
  size_t p = dtype_size(x->dtype), q = dtype_size(y->dtype);
  if (p != q) return p < q ? 1 : -1;
  int order = strcmp(x->name, y->name);
  return order ? order : (y->primary != 0) - (x->primary != 0); // a tensor's primary pieces first
}

// One tensor: its primary pieces, which lie side by side in the sorted list; `end` is the index after its other pieces,
// too.
typedef struct TensorPieces { const CheckpointTensor *const *pieces; int count, end; } TensorPieces;

static TensorPieces group_at(const CheckpointTensor *const *pieces, int count, int begin) {
  TensorPieces group = {.pieces = pieces + begin, .end = begin};
  for (; group.end < count && !strcmp(pieces[group.end]->name, pieces[begin]->name); group.end++)
    group.count += pieces[group.end]->primary != 0;
  return group;
}

static int check_group(const char *path, const TensorPieces *group, Error *error) {
  const CheckpointTensor *first = group->pieces[0];
  Box *boxes = xcalloc((size_t)group->count, sizeof *boxes);
  int code = PLAIT_OK;
  for (int i = 0; i < group->count && !code; i++) {
    const CheckpointTensor *t = group->pieces[i];
    boxes[i] = checkpoint_box(t);
    if (t->dtype != first->dtype || t->rank != first->rank || !dims_equal(t->rank, t->global, first->global))
      code = error_set(error, PLAIT_FAILED, "tensor %.100s: ranks disagree on its dtype or global shape", t->name);
  }
  if (!code) code = boxes_cover(first->name, boxes, group->count, first->rank, first->global, error);
  if (code) error_prefix(error, "%s", path);
  free(boxes);
  return code;
}

static int write_group(SafetensorsWriter *w, const TensorPieces *group, Error *error) {
  const CheckpointTensor *first = group->pieces[0];
  Box whole = {.rank = first->rank};
  memcpy(whole.local, first->global, sizeof whole.local);
  if (group->count == 1) return stream_piece(w, first, error); // it covers the tensor
  size_t bytes = (size_t)box_elements(&whole) * dtype_size(first->dtype);
  char *data = xcalloc(bytes, 1);
  for (int i = 0; i < group->count; i++) checkpoint_tensor_to_whole(group->pieces[i], data, first->dtype);
  int code = safetensors_write_data(w, data, bytes, error);
  free(data);
  return code;
}

static int write_groups(const char *path, const CheckpointTensor *const *pieces, int count, Error *error) {
  static const char *const metadata[] = {"format", "pt", NULL};
  SafetensorsEntry *entries = xcalloc((size_t)count, sizeof *entries);
  SafetensorsWriter w = {0};
  int n = 0, code = PLAIT_OK;
  for (int i = 0; i < count && !code;) {
    TensorPieces group = group_at(pieces, count, i);
    code = check_group(path, &group, error);
    entries[n++] = piece_entry(pieces[i], pieces[i]->name, pieces[i]->global);
    i = group.end;
  }
  if (!code) code = safetensors_write_begin(&w, path, entries, n, metadata, error);
  for (int i = 0; i < count && !code;) {
    TensorPieces group = group_at(pieces, count, i);
    code = write_group(&w, &group, error);
    i = group.end;
  }
  if (!code) code = safetensors_write_finish(&w, error);
  free(entries);
  return code;
}

int safetensors_write_gathered(const char *path, const CheckpointTensor *all, int count, Error *error) {
  const CheckpointTensor **pieces = xcalloc((size_t)count, sizeof *pieces);
  int code = PLAIT_OK;
  for (int i = 0; i < count && !code; i++) {
    code = check_piece(path, &all[i], error);
    pieces[i] = &all[i];
  }
  if (!code && count) qsort(pieces, (size_t)count, sizeof *pieces, widest_then_name);
  if (!code) code = write_groups(path, pieces, count, error);
  free(pieces);
  return code;
}
