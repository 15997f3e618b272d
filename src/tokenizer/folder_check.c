// Tells the contents of a folder from its names and the first bytes of its files.
#include "tokenizer/folder_check.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/json_read.h"
#include "base/vec.h"
#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 10000, ADAPTER_BYTES = 1 << 20 };
#define FOLDER "a Hugging Face folder (config.json and model.safetensors)"
#define TOKENIZER "a tokenizer.json (plait tokenize --train makes one), or a folder with one,"

typedef Vec(char *) Names; // of a folder, sorted, without . and ..

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static Names list(const char *folder) {
  Names names = {0};
  DIR *d = opendir(folder);
  for (struct dirent *e; d && names.count < MOST_NAMES && (e = readdir(d));)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) vec_push(&names, xstrdup(e->d_name));
  if (d) closedir(d);
  if (names.count) qsort(names.data, (size_t)names.count, sizeof *names.data, by_text);
  return names;
}

static void forget(Names *names) {
  for (int i = 0; i < names->count; i++) free(names->data[i]);
  vec_free(names);
}

static bool ends(const char *name, const char *suffix) {
  size_t n = strlen(name), m = strlen(suffix);
  return n >= m && !strcmp(name + n - m, suffix);
}

// The first name with such a beginning and end; NULL: there is none.
static const char *find(const Names *names, const char *prefix, const char *suffix) {
  for (int i = 0; i < names->count; i++) {
    const char *name = names->data[i];
    if (!strncmp(name, prefix, strlen(prefix)) && ends(name + strlen(prefix), suffix)) return name;
  }
  return NULL;
}

static bool has(const Names *names, const char *name) {
  const char *found = find(names, name, "");
  return found && !strcmp(found, name);
}

static int count(const Names *names, const char *prefix, const char *suffix) {
  int n = 0;
  for (int i = 0; i < names->count; i++)
    n += !strncmp(names->data[i], prefix, strlen(prefix)) && ends(names->data[i] + strlen(prefix), suffix);
  return n;
}

// ---- is it there? --------------------------------------------------------------------------------------------------

// "gpt2", "Qwen/Qwen2-7B": a name on the Hub, and no name of a file.
static bool like_hub_name(const char *path) {
  int slashes = 0;
  for (const char *p = path; *p; p++) {
    if (*p == '/') slashes++;
    else if (!isalnum((unsigned char)*p) && !strchr("._-", *p)) return false;
  }
  return isalnum((unsigned char)path[0]) && slashes < 2 && !ends(path, "/") && !ends(path, ".json") &&
         !ends(path, ".model");
}

int folder_check_exists(const char *path, const char *what, Error *error) {
  const char *words;
  if (file_kind(path, &words) != FILE_KIND_ABSENT) return PLAIT_OK;
  const char *name = like_hub_name(path) ? path : "NAME";
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%.300s %s; give %s on this machine (plait downloads nothing; hf download %.100s --local-dir FOLDER, "
      "formerly huggingface-cli download, fetches a model of the Hugging Face Hub)",
      path, words, what, name);
}

// ---- one file ------------------------------------------------------------------------------------------------------

// A file that must be of one kind; text and empty files are left to who reads them.
static int check_file(const char *folder, const char *name, FileKind kind, Error *error) {
  char *path = xformat("%s/%s", folder, name);
  const char *words = "";
  FileKind found = FAULT(pointers_are_opened, file_kind(path, &words), kind);
  int code = PLAIT_OK;
  if (found == FILE_KIND_ABSENT || found == FILE_KIND_POINTER || found == FILE_KIND_PACKED ||
      found == FILE_KIND_OTHER || found == FILE_KIND_FOLDER ||
      (found != kind && (found == FILE_KIND_SAFETENSORS || (found == FILE_KIND_JSON && kind == FILE_KIND_SAFETENSORS))))
    code = error_set(error, PLAIT_BAD_INPUT, "%s %s", path, words);
  free(path);
  return code;
}

// Looks where a repository may be instead: in the cache of the Hub, or in a folder around the one that is meant.
static int look_elsewhere(const char *path, const Names *names, const char *wanted, Error *error) {
  bool cache = has(names, "snapshots") && has(names, "blobs");
  char *around = xformat("%s%s", path, cache ? "/snapshots" : "");
  Names inner = list(around);
  int code = PLAIT_OK;
  for (int i = 0; i < inner.count && !code; i++) {
    char *file = xformat("%s/%s/%s", around, inner.data[i], wanted);
    if (file_exists(file))
      code = error_set(error, PLAIT_BAD_INPUT, "%s has no %s, but its folder %s%s has one: give that folder", path,
                       wanted, cache ? "snapshots/" : "", inner.data[i]);
    free(file);
  }
  forget(&inner);
  free(around);
  return code;
}

static int check_unfinished(const char *path, const Names *names, Error *error) {
  static const char *const parts[] = {".incomplete", ".part", ".crdownload", ".aria2", ".download"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (find(names, "", parts[i]))
      return error_set(error, PLAIT_BAD_INPUT, "%s has %s, of a download that has not ended: finish it first", path,
                       find(names, "", parts[i]));
  return PLAIT_OK;
}

// ---- tokenizers ----------------------------------------------------------------------------------------------------

// Of a folder without a tokenizer.json.
static int explain_tokenizer(const char *path, const Names *names, Error *error) {
  static const struct { const char *prefix, *suffix; } others[] = {
      {"tokenizer.model", ""}, {"spiece.model", ""}, {"sentencepiece", ".model"}, {"vocab.json", ""}, {"vocab.txt", ""},
      {"", ".tiktoken"},       {"tekken.json", ""},  {"", ".spm"},                {"", ".model"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *name = find(names, others[i].prefix, others[i].suffix);
    if (name)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s has %s and no tokenizer.json; this line makes one (Python with transformers and "
                       "sentencepiece): python3 -c \"from transformers import AutoTokenizer as T; "
                       "T.from_pretrained('%s').save_pretrained('%s')\"",
                       path, name, path, path);
  }
  if (find(names, "", ".gguf"))
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%s has %s, a GGUF file, which plait does not read, and no tokenizer.json: it is in the repository "
        "that the file was made from",
        path, find(names, "", ".gguf"));
  if (has(names, "adapter_config.json"))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s holds an adapter and no tokenizer.json: give the folder of the model that it adapts", path);
  int code = check_unfinished(path, names, error);
  return code ? code
              : error_set(error, PLAIT_BAD_INPUT, "%s has no tokenizer.json%s", path,
                          names->count ? "" : ": it is empty");
}

static int check_tokenizer_folder(const char *path, Error *error) {
  Names names = list(path);
  int code = PLAIT_OK;
  if (has(&names, "tokenizer.json")) code = check_file(path, "tokenizer.json", FILE_KIND_JSON, error);
  else if (!(code = look_elsewhere(path, &names, "tokenizer.json", error)))
    code = explain_tokenizer(path, &names, error);
  forget(&names);
  return code;
}

int folder_check_tokenizer(const char *path, Error *error) {
  const char *words, *slash = strrchr(path, '/');
  FileKind kind = file_kind(path, &words);
  if (kind == FILE_KIND_FOLDER) return check_tokenizer_folder(path, error);
  if (kind == FILE_KIND_ABSENT) {
    char *folder = slash ? xformat("%.*s", (int)(slash - path), path) : xstrdup(".");
    int code = !strcmp(slash ? slash + 1 : path, "tokenizer.json") && file_is_folder(folder)
                   ? check_tokenizer_folder(folder, error)
                   : PLAIT_OK;
    free(folder);
    return code ? code : folder_check_exists(path, TOKENIZER, error);
  }
  if (kind != FILE_KIND_POINTER && kind != FILE_KIND_PACKED && kind != FILE_KIND_OTHER && kind != FILE_KIND_SAFETENSORS)
    return PLAIT_OK; // the parser says what is wrong with text
  return error_set(error, PLAIT_BAD_INPUT, "%s %s; give a tokenizer.json, or a folder with one", path, words);
}

// ---- models --------------------------------------------------------------------------------------------------------

static int explain_adapter(const char *path, Error *error) {
  char *file = xformat("%s/adapter_config.json", path);
  json_t *config = NULL;
  json_read_file(file, ADAPTER_BYTES, &config, NULL);
  const char *base = json_string_value(json_object_get(config, "base_model_name_or_path"));
  int code =
      error_set(error, PLAIT_BAD_INPUT,
                "%s holds an adapter%s%.100s and not a whole model; this line merges the two (Python with peft): "
                "python3 -c \"from peft import AutoPeftModelForCausalLM as M; "
                "M.from_pretrained('%s').merge_and_unload().save_pretrained('merged')\"",
                path, base ? " of " : "", base ? base : "", path);
  json_decref(config);
  free(file);
  return code;
}

static int explain_pytorch(const char *path, const char *name, Error *error) {
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%s holds its weights as %s, and plait reads safetensors only. This line adds a model.safetensors to "
      "the folder (it needs Python with torch and transformers): python3 -c \"from transformers import "
      "AutoModelForCausalLM as M; M.from_pretrained('%s').save_pretrained('%s')\"",
      path, name, path, path);
}

// Of a folder without model.safetensors and its index.
static int explain_weights(const char *path, const Names *names, bool *nothing, Error *error) {
  static const char *const others[] = {".gguf", ".ggml", ".h5",   ".msgpack", ".onnx",
                                       ".pth",  ".pt",   ".ckpt", ".npz",     ".nemo"};
  const char *shard = find(names, "model-", ".safetensors"), *name = find(names, "pytorch_model", ".bin");
  if (has(names, "adapter_config.json")) return explain_adapter(path, error);
  int shards = count(names, "model-", ".safetensors");
  if (shard)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s holds shards (%d file%s, as %s) without model.safetensors.index.json, which says what is in "
                     "which: it belongs to the same download",
                     path, shards, shards > 1 ? "s" : "", shard);
  if (!name && has(names, "pytorch_model.bin.index.json")) name = "pytorch_model.bin.index.json";
  if (name)
    return has(names, "pytorch_model.bin") ? explain_pytorch(path, "pytorch_model.bin", error)
                                           : explain_pytorch(path, name, error);
  if ((name = find(names, "", ".safetensors")))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s holds %s, but neither model.safetensors nor model.safetensors.index.json, which are the names "
                     "that transformers writes: rename it if it holds the whole model by their names of tensors",
                     path, name);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if ((name = find(names, "", others[i])))
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s holds its weights as %s, and plait reads safetensors as transformers writes them only: the "
                       "Hugging Face Hub has them for most models",
                       path, name);
  int code = check_unfinished(path, names, error);
  if (!code) code = look_elsewhere(path, names, "model.safetensors", error);
  if (!code) code = look_elsewhere(path, names, "model.safetensors.index.json", error);
  if (code) return code;
  *nothing = true;
  return error_set(error, PLAIT_BAD_INPUT, "%s: holds neither model.safetensors nor model.safetensors.index.json%s",
                   path, names->count ? "" : ": it is empty");
}

static int check_weights(const char *path, const Names *names, bool *nothing, Error *error) {
  const char *index = "model.safetensors.index.json";
  bool whole = has(names, "model.safetensors");
  int code = PLAIT_OK;
  if (!whole && !has(names, index)) return explain_weights(path, names, nothing, error);
  if (whole) return check_file(path, "model.safetensors", FILE_KIND_SAFETENSORS, error);
  code = check_file(path, index, FILE_KIND_JSON, error);
  for (int i = 0; i < names->count && !code; i++) // those that are missing are told by who reads the index
    if (!strncmp(names->data[i], "model-", 6) && ends(names->data[i], ".safetensors"))
      code = check_file(path, names->data[i], FILE_KIND_SAFETENSORS, error);
  return code;
}

int folder_check_model(const char *path, bool needs_config, Error *error) {
  bool nothing;
  return folder_check_any(path, needs_config, &nothing, error);
}

int folder_check_any(const char *path, bool needs_config, bool *nothing, Error *error) {
  const char *words;
  *nothing = false;
  FileKind kind = file_kind(path, &words);
  if (kind == FILE_KIND_ABSENT) return folder_check_exists(path, FOLDER, error);
  if (kind != FILE_KIND_FOLDER) return error_set(error, PLAIT_BAD_INPUT, "%s %s; give " FOLDER, path, words);
  Names names = list(path);
  int code = check_weights(path, &names, nothing, error);
  if (!code && has(&names, "config.json")) code = check_file(path, "config.json", FILE_KIND_JSON, error);
  else if (!code && needs_config)
    code =
        error_set(error, PLAIT_BAD_INPUT, "%s holds weights and no config.json: it belongs to the same download", path);
  forget(&names);
  return code;
}
