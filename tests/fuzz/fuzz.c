// Files in memory for fuzz targets. Linked with --wrap for each function of base/file.h that starts with __wrap_ here.
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { FILES = 8 };
// A fuzz target is one thread and has no context to carry this in.
static struct {
  char *path;
  uint8_t *data;
  size_t size;
} files[FILES];

int __wrap_file_read(const char *path, size_t max_bytes, char **data, size_t *size, Error *error);
int __wrap_file_map(const char *path, FileMap *map, Error *error);
void __wrap_file_unmap(FileMap *map);
int __wrap_file_exists(const char *path);
int __wrap_file_begin(AtomicFile *file, const char *path, Error *error);
int __wrap_file_commit(AtomicFile *file, Error *error);
void __wrap_file_abandon(AtomicFile *file);

static int find(const char *path) {
  for (int i = 0; i < FILES; i++)
    if (files[i].path && !strcmp(files[i].path, path)) return i;
  return -1;
}

static void *copy(const void *data, size_t size) {
  uint8_t *p = malloc(size ? size : 1); // not xcalloc: the end must be exact
  CHECK(p);
  if (size) memcpy(p, data, size);
  return p;
}

void fuzz_file(const char *path, const void *data, size_t size) {
  int i = find(path);
  for (int k = 0; i < 0 && k < FILES; k++)
    if (!files[k].path) i = k;
  CHECK(i >= 0, "too many files");
  uint8_t *fresh = copy(data, size);
  free(files[i].data);
  if (!files[i].path) files[i].path = xstrdup(path);
  files[i].data = fresh;
  files[i].size = size;
}

const void *fuzz_file_data(const char *path, size_t *size) {
  int i = find(path);
  *size = i < 0 ? 0 : files[i].size;
  return i < 0 ? NULL : files[i].data;
}

void fuzz_files_clear(void) {
  for (int i = 0; i < FILES; i++) free(files[i].path), free(files[i].data), files[i].path = NULL, files[i].data = NULL;
}

void fuzz_check(int code, const Error *error) {
  CHECK(code == PLAIT_OK || code == PLAIT_BAD_INPUT || code == PLAIT_INFEASIBLE, "code %d: %s", code, error->message);
  CHECK((code == PLAIT_OK) == !error->message[0], "code %d: %s", code, error->message);
  for (const char *c = error->message; *c; c++)
    CHECK((unsigned char)*c >= 0x20 && *c != 0x7f, "control character: %s", error->message);
}

int __wrap_file_exists(const char *path) { return find(path) >= 0; }

int __wrap_file_map(const char *path, FileMap *map, Error *error) {
  *map = (FileMap){0};
  int i = find(path);
  if (i < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be opened: not there", path);
  if (files[i].size) *map = (FileMap){copy(files[i].data, files[i].size), files[i].size};
  return PLAIT_OK;
}

void __wrap_file_unmap(FileMap *map) {
  free((void *)map->data);
  *map = (FileMap){0};
}

int __wrap_file_read(const char *path, size_t max_bytes, char **data, size_t *size, Error *error) {
  *data = NULL;
  int i = find(path);
  if (i < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: not there", path);
  if (files[i].size > max_bytes) return error_set(error, PLAIT_BAD_INPUT, "%s: larger than allowed here", path);
  *data = xcalloc(files[i].size + 1, 1);
  if (files[i].size) memcpy(*data, files[i].data, files[i].size);
  if (size) *size = files[i].size;
  return PLAIT_OK;
}

// file->temporary holds what open_memstream writes.
int __wrap_file_begin(AtomicFile *file, const char *path, Error *error) {
  static size_t size; // only the stream writes it; its position is asked for at the end
  *file = (AtomicFile){.path = xstrdup(path)};
  file->stream = open_memstream(&file->temporary, &size);
  CHECK(file->stream);
  return PLAIT_OK;
}

int __wrap_file_commit(AtomicFile *file, Error *error) {
  fflush(file->stream);
  long size = ftell(file->stream);
  fuzz_file(file->path, file->temporary, (size_t)size);
  __wrap_file_abandon(file);
  return PLAIT_OK;
}

void __wrap_file_abandon(AtomicFile *file) {
  if (file->stream) fclose(file->stream);
  free(file->temporary);
  free(file->path);
  *file = (AtomicFile){0};
}
