// Export of Hugging Face folders, and what verifies it.
#include "checkpoint/huggingface_folder.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Dtype dtype_of(const HuggingfaceSave *save, const char *tensor) {
  if (save->dtype >= 0) return (Dtype)save->dtype;
  const char *name = json_string_value(json_object_get(save->dtypes, tensor));
  if (!name) name = json_string_value(json_object_get(save->dtypes, "*"));
  int dtype = name ? dtype_from_file_name(name) : DTYPE_F32;
  return dtype >= 0 && dtype_is_float((Dtype)dtype) ? (Dtype)dtype : DTYPE_F32;
}

static SafetensorsEntry entry_of(const HuggingfaceSave *save, const HuggingfaceTensor *t) {
  SafetensorsEntry e = {.name = t->name, .dtype = (int)dtype_of(save, t->name), .rank = t->rank};
  int64_t elements = 1;
  for (int d = 0; d < t->rank; d++) elements *= e.dims[d] = t->dims[d];
  e.bytes = (size_t)elements * dtype_size((Dtype)e.dtype);
  return e;
}

// Assembles one tensor of the folder, as it is in the file, from its pieces.
static int assemble(const HuggingfaceSave *save, const HuggingfaceViews *views, const HuggingfaceTensor *t, Dtype dtype,
                    char *tensor, Error *error) {
  int code = PLAIT_OK;
  for (int i = t->piece; i < t->piece + t->pieces && !code; i++) {
    const HuggingfacePiece *p = &views->piece.data[i];
    char *target = tensor + p->first * (int64_t)dtype_size(dtype);
    float *values = xcalloc((size_t)box_elements(&p->box), sizeof *values);
    int64_t plain[BOX_MAX_RANK];
    box_strides(&p->box, plain);
    code = save->read(save->context, views->graph->variable.data[p->variable].name, &p->box, values, error);
    if (!code) box_copy(&p->box, target, &p->box, p->stride, dtype, values, &p->box, plain, DTYPE_F32);
    free(values);
  }
  return code;
}

typedef struct Written {
  SafetensorsEntry entry;
  const HuggingfaceTensor *tensor;
} Written;

// The order of transformers' files: wide dtypes first, bf16 before fp16, and then by name.
static int in_file_order(const void *a, const void *b) {
  const SafetensorsEntry *x = &((const Written *)a)->entry, *y = &((const Written *)b)->entry;
  size_t wide_x = dtype_size((Dtype)x->dtype), wide_y = dtype_size((Dtype)y->dtype);
  if (wide_x != wide_y) return wide_x > wide_y ? -1 : 1;
  if (x->dtype != y->dtype) return x->dtype == DTYPE_BF16 ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int write_data(const HuggingfaceSave *save, const HuggingfaceViews *views, const Written *all, int count,
                      SafetensorsWriter *writer, Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; i < count && !code; i++) {
    size_t bytes = all[i].entry.bytes;
    char *tensor = xcalloc(bytes, 1);
    code = assemble(save, views, all[i].tensor, (Dtype)all[i].entry.dtype, tensor, error);
    if (!code) code = safetensors_write_data(writer, tensor, bytes, error);
    free(tensor);
  }
  return code;
}

static int write_tensors(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  static const char *const metadata[] = {"format", "pt", NULL};
  HuggingfaceViews views;
  huggingface_views_of(&views, c);
  int count = views.tensor.count;
  Written *all = xcalloc((size_t)count, sizeof *all);
  SafetensorsEntry *entries = xcalloc((size_t)count, sizeof *entries);
  for (int i = 0; i < count; i++) all[i] = (Written){entry_of(save, &views.tensor.data[i]), &views.tensor.data[i]};
  qsort(all, (size_t)count, sizeof *all, in_file_order);
  for (int i = 0; i < count; i++) entries[i] = all[i].entry;

  char *path = xformat("%s/model.safetensors", folder);
  SafetensorsWriter writer = {0};
  int code = safetensors_write_begin(&writer, path, entries, count, metadata, error);
  if (!code) code = write_data(save, &views, all, count, &writer, error);
  if (!code) code = safetensors_write_finish(&writer, error);
  safetensors_write_abandon(&writer);
  free(path);
  free(entries);
  free(all);
  huggingface_views_free(&views);
  return code;
}

static int write_tokenizer(const char *from, const char *folder, Error *error) {
  FileMap map;
  AtomicFile file = {0};
  int code = file_map(from, &map, error);
  if (code) return code;
  char *path = xformat("%s/tokenizer.json", folder);
  code = file_begin(&file, path, error);
  if (!code) {
    if (map.size) fwrite(map.data, 1, map.size, file.stream); // an error sticks to the stream; commit sees it
    code = file_commit(&file, error);
  }
  free(path);
  file_unmap(&map);
  return code;
}

static int write_config(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  static const char *const torch_names[DTYPE_COUNT] = {
      [DTYPE_F64] = "float64", [DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
  char *path = xformat("%s/config.json", folder);
  int code = model_config_save(c, path, torch_names[dtype_of(save, "*")], error);
  free(path);
  return code;
}

static int verify_tensors(const HuggingfaceSave *save, const char *path, const ModelConfig *c, Error *error) {
  HuggingfaceFolder f;
  int code = huggingface_folder_open(&f, path, c, error);
  if (code) return code;
  for (int i = 0; i < f.views.tensor.count && !code; i++) {
    const HuggingfaceTensor *t = &f.views.tensor.data[i];
    const SafetensorsEntry *found = huggingface_folder_find(&f, t);
    SafetensorsEntry expected = entry_of(save, t);
    char *tensor = xcalloc(expected.bytes, 1);
    code = assemble(save, &f.views, t, (Dtype)expected.dtype, tensor, error);
    if (!code && (found->dtype != expected.dtype || memcmp(found->data, tensor, expected.bytes)))
      code = error_set(error, PLAIT_FAILED, "%s: tensor %s is not what was to be written", path, t->name);
    free(tensor);
  }
  huggingface_folder_close(&f);
  return code;
}

static int verify_tokenizer(const char *from, const char *folder, Error *error) {
  FileMap a, b = {0};
  char *path = xformat("%s/tokenizer.json", folder);
  int code = file_map(from, &a, error);
  if (!code) code = file_map(path, &b, error);
  if (!code && (a.size != b.size || (a.size && memcmp(a.data, b.data, a.size))))
    code = error_set(error, PLAIT_FAILED, "%s: is not the same as %s", path, from);
  file_unmap(&a);
  file_unmap(&b);
  free(path);
  return code;
}

int huggingface_verify(const HuggingfaceSave *save, const char *folder, const ModelConfig *config, Error *error) {
  ModelConfig written;
  int code = model_config_load(&written, folder, error);
  if (!code && !model_config_equal(config, &written))
    code = error_set(error, PLAIT_FAILED, "%s: config.json describes another model than was to be written", folder);
  model_config_free(&written);
  if (!code) code = verify_tensors(save, folder, config, error);
  if (!code && save->tokenizer) code = verify_tokenizer(save->tokenizer, folder, error);
  return code;
}

// 1 when the folder does not exist or holds nothing.
static int is_vacant(const char *folder) {
  DIR *d = opendir(folder);
  if (!d) return errno == ENOENT;
  int vacant = 1;
  for (struct dirent *e; (e = readdir(d)) && vacant;) vacant = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  closedir(d);
  return vacant;
}

static int rename_synced(const char *from, const char *to, Error *error) {
  int code = folder_sync(from, error);
  if (code) return code;
  if (rename(from, to))
    return error_set(error, PLAIT_FAILED, "%s: cannot be made from %s: %s", to, from, strerror(errno));
  char *parent = xstrdup(to), *slash = strrchr(parent, '/');
  if (slash) slash[slash == parent] = 0;
  code = folder_sync(slash ? parent : ".", error);
  free(parent);
  return code;
}

int huggingface_save(const HuggingfaceSave *save, const ModelConfig *config, Error *error) {
  if (!is_vacant(save->folder))
    return error_set(error, PLAIT_BAD_INPUT, "%s: exists already; allowed: a folder that does not exist or is empty",
                     save->folder);
  char *folder = xstrdup(save->folder);
  for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--) folder[n - 1] = 0;
  char *temporary = xformat("%s.tmp.%ld", folder, (long)getpid());
  int code = folder_remove(temporary, error);
  if (!code) code = folder_create(temporary, error);
  if (!code) code = write_config(save, temporary, config, error);
  if (!code) code = write_tensors(save, temporary, config, error);
  if (!code && save->tokenizer) code = write_tokenizer(save->tokenizer, temporary, error);
  if (!code) code = huggingface_verify(save, temporary, config, error);
  if (!code) code = rename_synced(temporary, folder, error);
  if (code) folder_remove(temporary, NULL);
  free(temporary);
  free(folder);
  return code;
}
