// Reads, compares and writes the small files of a Hugging Face folder.
#include "checkpoint/huggingface_files.h"
#include "base/file.h"
#include "base/fault.h"
#include "base/json_read.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 4 << 20 };

static const char *const tokenizer_files[] = {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                              "chat_template.json", NULL};
static const char *const model_files[] = {"generation_config.json", NULL};

static bool is_regular(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISREG(st.st_mode);
}

static void add_files(json_t *files, const char *folder, const char *const *names) {
  for (; *names; names++) {
    char *path = xformat("%s/%s", folder, *names), *text = NULL;
    size_t bytes;
    Error why = {0};
    json_t *value = NULL;
    if (is_regular(path) && !file_read(path, MOST_BYTES, &text, &bytes, &why) && !(value = json_stringn(text, bytes)))
      error_set(&why, PLAIT_BAD_INPUT, "%s: not UTF-8", path);
    if (why.code) value = json_pack("{s:s}", "broken", why.message); // a file that is there is never taken for absent
    if (value) json_object_set_new(files, *names, value);
    free(text);
    free(path);
  }
}

json_t *huggingface_files_of_tokenizer(const char *folder) {
  json_t *files = json_object();
  add_files(files, folder, tokenizer_files);
  return files;
}

json_t *huggingface_files_of_model(const char *folder) {
  json_t *files = huggingface_files_of_tokenizer(folder);
  add_files(files, folder, model_files);
  return files;
}

static bool has_name(const char *const *names, const char *name) {
  while (*names && strcmp(*names, name)) names++;
  return *names;
}

bool huggingface_files_has_name(const char *name) {
  return has_name(tokenizer_files, name) || has_name(model_files, name);
}

// The folder of a tokenizer.json, or the folder itself.
static char *folder_of(const char *path) {
  char *folder = xstrdup(path), *slash = strrchr(folder, '/');
  if (file_is_folder(path)) return folder;
  if (!slash) strcpy(folder, "."); // "tokenizer.json" has room for it
  else slash[slash == folder] = 0;
  return folder;
}

bool huggingface_same_file(const char *a, const char *b) {
  FileMap x = {0}, y = {0};
  bool same = is_regular(a) && is_regular(b) && // who opens a pipe waits
              !file_map(a, &x, NULL) && !file_map(b, &y, NULL) && x.size == y.size &&
             (!x.size || !memcmp(x.data, y.data, x.size));
  file_unmap(&x);
  file_unmap(&y);
  return same;
}

json_t *huggingface_files_collect(const char *model, const char *tokenizer) {
  if (!tokenizer) return model ? huggingface_files_of_model(model) : json_object();
  char *folder = folder_of(tokenizer), *file = xformat("%s/tokenizer.json", model ? model : "");
  char *given = !strcmp(folder, tokenizer) ? xformat("%s/tokenizer.json", folder) : xstrdup(tokenizer);
  json_t *files = huggingface_files_of_tokenizer(folder);
  if (model && huggingface_same_file(file, given)) {
    json_t *more = huggingface_files_of_model(model);
    json_object_update_missing(files, more);
    json_decref(more);
  }
  free(given);
  free(file);
  free(folder);
  return files;
}

static int check_readable(const json_t *text, Error *error) {
  const char *why = json_string_value(json_object_get(text, "broken"));
  return why ? error_set(error, PLAIT_BAD_INPUT, "%s", why) : PLAIT_OK;
}

static int write_one(const char *path, const json_t *text, Error *error) {
  AtomicFile file;
  int code = check_readable(text, error);
  if (!code) code = file_begin(&file, path, error);
  if (code) return code;
  fwrite(json_string_value(text), 1, json_string_length(text), file.stream); // commit sees an error
  return file_commit(&file, error);
}

int huggingface_files_write(const json_t *files, const char *folder, Error *error) {
  const char *name;
  json_t *text;
  int code = PLAIT_OK;
  json_object_foreach((json_t *)files, name, text) {
    char *path = xformat("%s/%s", folder, name);
    if (!code) code = write_one(path, text, error);
    free(path);
  }
  return code;
}

int huggingface_files_verify(const json_t *files, const char *folder, Error *error) {
  const char *name;
  json_t *text;
  int code = PLAIT_OK;
  json_object_foreach((json_t *)files, name, text) {
    char *path = xformat("%s/%s", folder, name), *read = NULL;
    size_t bytes = 0;
    if (!code) code = file_read(path, MOST_BYTES, &read, &bytes, error);
    if (!code && (bytes != json_string_length(text) || memcmp(read, json_string_value(text), bytes)))
      code =
          error_set(error, PLAIT_FAILED, "%s: verification failed: the file does not contain what was written", path);
    free(read);
    free(path);
  }
  return code;
}

int huggingface_files_parse(const json_t *files, const char *name, json_t **parsed, Error *error) {
  const json_t *text = json_object_get(files, name);
  *parsed = NULL;
  int code = check_readable(text, error);
  if (code || !text) return code;
  code = json_read(json_string_value(text), json_string_length(text), name, parsed, error);
  if (FAULT(broken_files_are_absent, 0, code)) return PLAIT_OK;
  if (code || json_is_object(*parsed)) return code;
  json_decref(*parsed);
  *parsed = NULL;
  return error_set(error, PLAIT_BAD_INPUT, "%s: not a JSON object", name);
}
