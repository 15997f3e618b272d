// Exports Hugging Face folders, and verifies them.
#include "checkpoint/huggingface_files.h"
#include "checkpoint/huggingface_folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

// A finite number that the dtype would turn into infinity.
static int check_range(const char *tensor, const float *values, int64_t count, Dtype dtype, Error *error) {
  float limit = dtype == DTYPE_F16 ? 65520 : dtype == DTYPE_BF16 ? 0x1.ffp127f : INFINITY;
  for (int64_t i = 0; i < count && dtype_size(dtype) < 4; i++)
    if (fabsf(values[i]) >= limit && isfinite(values[i]))
      return error_set(error, PLAIT_BAD_INPUT,
                       "tensor %s holds %g, which is too large for %s (at most %s); take --dtype %sfp32", tensor,
                       (double)values[i], dtype_name(dtype), dtype == DTYPE_F16 ? "65504" : "3.39e38",
                       dtype == DTYPE_F16 ? "bf16 or " : "");
  return PLAIT_OK;
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
    if (!code) code = check_range(t->name, values, box_elements(&p->box), dtype, error);
    if (!code) box_copy(&p->box, target, &p->box, p->stride, dtype, values, &p->box, plain, DTYPE_F32);
    free(values);
  }
  return code;
}

typedef struct Written {
  SafetensorsEntry entry;
  const HuggingfaceTensor *tensor;
  int shard; // the file that it is in
} Written;

// The order of transformers' files: shard by shard wide dtypes first, bf16 before fp16, and then by name.
static int in_file_order(const void *a, const void *b) {
  const SafetensorsEntry *x = &((const Written *)a)->entry, *y = &((const Written *)b)->entry;
  int difference = ((const Written *)a)->shard - ((const Written *)b)->shard;
  if (difference) return difference;
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

// Fills files up in the order of the model, each to the limit at most, but for a tensor that is larger alone. How many.
static int choose_shards(const HuggingfaceSave *save, Written *all, int count) {
  int shard = 0;
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    int64_t more = (int64_t)all[i].entry.bytes;
    if (save->shard_bytes && bytes && bytes + more > save->shard_bytes) shard++, bytes = 0;
    bytes += more;
    all[i].shard = shard;
  }
  return shard + 1;
}

static char *shard_name(int shard, int shards) {
  return shards > 1 ? xformat("model-%05d-of-%05d.safetensors", shard + 1, shards) : xstrdup("model.safetensors");
}

// all: the tensors of the file.
static int write_file(const HuggingfaceSave *save, const HuggingfaceViews *views, const char *path, const Written *all,
                      int count, Error *error) {
  static const char *const metadata[] = {"format", "pt", NULL};
  SafetensorsEntry *entries = xcalloc((size_t)count, sizeof *entries);
  for (int i = 0; i < count; i++) entries[i] = all[i].entry;
  SafetensorsWriter writer = {0};
  int code = safetensors_write_begin(&writer, path, entries, count, metadata, error);
  if (!code) code = write_data(save, views, all, count, &writer, error);
  if (!code) code = safetensors_write_finish(&writer, error);
  safetensors_write_abandon(&writer);
  free(entries);
  return code;
}

// Which file has which tensor, as transformers writes it.
static int write_index(const char *folder, const Written *all, int count, int shards, Error *error) {
  json_int_t bytes = 0, elements = 0;
  json_t *map = json_object();
  for (int i = 0; i < count; i++) {
    char *name = shard_name(all[i].shard, shards);
    json_object_set_new(map, all[i].entry.name, json_string(name));
    bytes += (json_int_t)all[i].entry.bytes;
    elements += safetensors_elements(&all[i].entry);
    free(name);
  }
  json_t *index = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", elements, "total_size", bytes,
                            "weight_map", map);
  char *path = xformat("%s/model.safetensors.index.json", folder);
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (!code) {
    json_dumpf(index, file.stream, JSON_INDENT(2) | JSON_SORT_KEYS); // commit sees an error
    fputc('\n', file.stream);
    code = file_commit(&file, error);
  }
  free(path);
  json_decref(index);
  return code;
}

static int write_tensors(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  HuggingfaceViews views;
  huggingface_views_of(&views, c, 0);
  int count = views.tensor.count, code = PLAIT_OK;
  Written *all = xcalloc((size_t)count, sizeof *all);
  for (int i = 0; i < count; i++) all[i] = (Written){entry_of(save, &views.tensor.data[i]), &views.tensor.data[i], 0};
  int shards = choose_shards(save, all, count);
  qsort(all, (size_t)count, sizeof *all, in_file_order);
  for (int from = 0, to; from < count && !code; from = to) {
    for (to = from + 1; to < count && all[to].shard == all[from].shard;) to++;
    char *name = shard_name(all[from].shard, shards), *path = xformat("%s/%s", folder, name);
    code = write_file(save, &views, path, all + from, to - from, error);
    free(path);
    free(name);
  }
  if (!code && shards > 1) code = write_index(folder, all, count, shards, error);
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
      code = error_set(error, PLAIT_FAILED, "%s: verification failed: tensor %s does not contain what was written",
                       path, t->name);
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
    code = error_set(error, PLAIT_FAILED, "%s: verification failed: config.json describes another model", folder);
  model_config_free(&written);
  if (!code) code = verify_tensors(save, folder, config, error);
  if (!code && save->tokenizer) code = verify_tokenizer(save->tokenizer, folder, error);
  return code ? code : huggingface_files_verify(save->files, folder, error);
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

static int rename_synced(const char *from, const char *to, bool replace, Error *error) {
  int code = folder_sync(from, error);
  if (!code && replace) code = folder_replace(from, to, error);
  if (code) return code;
  if (!replace && rename(from, to))
    return error_set(error, PLAIT_FAILED, "%s: cannot be made from %s: %s", to, from, strerror(errno));
  char *parent = xstrdup(to), *slash = strrchr(parent, '/');
  if (slash) slash[slash == parent] = 0;
  code = folder_sync(slash ? parent : ".", error);
  free(parent);
  return code;
}

// Could an export have written this entry of the folder?
static bool is_of_an_export(int folder, const char *name) {
  static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors",
                                      "model.safetensors.index.json", NULL};
  struct stat st;
  int end = 0;
  if (fstatat(folder, name, &st, 0) || S_ISDIR(st.st_mode)) return false;
  for (int i = 0; names[i]; i++)
    if (!strcmp(name, names[i])) return true;
  sscanf(name, "model-%*5[0-9]-of-%*5[0-9].safetensors%n", &end);
  return (end && !name[end]) || huggingface_files_has_name(name);
}

enum { NAMED = 3 }; // entries that a message names

// Of all that the folder holds, what is not of an export: "a, b, c and 4 more"; "" where there is nothing.
static void list_others(const char *folder, char *text, size_t size) {
  struct dirent **entries;
  int others = 0, count = scandir(folder, &entries, NULL, alphasort), fd = open(folder, O_RDONLY | O_CLOEXEC);
  *text = 0;
  for (int i = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    if (strcmp(name, ".") && strcmp(name, "..") && !is_of_an_export(fd, name) && others++ < NAMED)
      snprintf(text + strlen(text), size - strlen(text), "%s%.60s", *text ? ", " : "", name);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  if (fd >= 0) close(fd);
  if (others > NAMED) snprintf(text + strlen(text), size - strlen(text), " and %d more", others - NAMED);
}

// Only an export, and nothing beside it: replacing must not cost anything else.
static int check_replaceable(const char *folder, Error *error) {
  char *config = xformat("%s/config.json", folder), others[256];
  int exists = file_exists(config);
  free(config);
  if (!exists)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: exists and has no config.json, so it is not an exported model; remove it yourself", folder);
  list_others(folder, others, sizeof others);
  if (!*others) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s: also holds %s, which no export writes and which would be lost; move them elsewhere, or "
                   "export to another folder",
                   folder, others);
}

static bool is_current_folder(const char *folder) {
  struct stat here, there;
  return !stat(".", &here) && !stat(folder, &there) && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

// The folder itself, which a symbolic link may stand for: a link would be exchanged instead of what it points to. The
// caller frees it; NULL and a message where the link leads nowhere, or the process would lose its current folder.
static char *real_folder(const char *folder, Error *error) {
  char *real = realpath(folder, NULL), *plain = xstrdup(folder);
  struct stat st;
  for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--) plain[n - 1] = 0;
  if (!real && lstat(plain, &st)) return plain; // nothing has this name
  if (!real)
    error_set(error, PLAIT_BAD_INPUT, "%s: is a symbolic link that leads nowhere; remove it, or name a folder", plain);
  else if (is_current_folder(real)) {
    error_set(error, PLAIT_BAD_INPUT, "%s: is the current folder, which cannot be replaced; start from another folder",
              folder);
    free(real);
    real = NULL;
  }
  free(plain);
  return real;
}

int huggingface_save(const HuggingfaceSave *save, const ModelConfig *config, Error *error) {
  bool vacant = is_vacant(save->folder);
  if (!vacant && !save->replace)
    return error_set(error, PLAIT_BAD_INPUT, "%s: exists already; allowed: a folder that does not exist or is empty",
                     save->folder);
  char *folder = real_folder(save->folder, error);
  if (!folder) return PLAIT_BAD_INPUT;
  char *temporary = xformat("%s.tmp.%ld", folder, (long)getpid());
  int code = vacant ? PLAIT_OK : check_replaceable(save->folder, error);
  if (!code) code = folder_remove(temporary, error);
  if (!code) code = folder_create(temporary, error);
  if (!code) code = write_config(save, temporary, config, error);
  if (!code) code = write_tensors(save, temporary, config, error);
  if (!code && save->tokenizer) code = write_tokenizer(save->tokenizer, temporary, error);
  if (!code) code = huggingface_files_write(save->files, temporary, error);
  if (!code) code = huggingface_verify(save, temporary, config, error);
  if (!code && !vacant) code = check_replaceable(save->folder, error); // once more: writing may have taken a while
  if (!code) code = rename_synced(temporary, folder, !vacant, error);
  if (code) folder_remove(temporary, NULL);
  free(temporary);
  free(folder);
  return code;
}
