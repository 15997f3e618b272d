// Copies the tokenizer, collects files, and looks how documents end.
#include "train/run_text.h"
#include "base/file.h"
#include "checkpoint/huggingface_files.h"
#include "data/document_marks.h"
#include "data/indexed.h"
#include <stdlib.h>

enum { MOST_SEEN = 1000 };

int run_text_keep(const RunFolder *folder, const Recipe *recipe, Error *error) {
  const char *from = recipe->data.tokenizer;
  if (!from) return PLAIT_OK;
  char *to = run_folder_file(folder, "tokenizer.json");
  FileMap map = {0};
  AtomicFile file = {0};
  int code = PLAIT_OK;
  if (!huggingface_same_file(from, to)) {
    code = file_map(from, &map, error);
    if (!code) code = file_begin(&file, to, error);
    if (!code && map.size) fwrite(map.data, 1, map.size, file.stream); // commit sees an error
    if (!code) code = file_commit(&file, error);
    file_unmap(&map);
  }
  // And the files beside it, by which the run's folder says the same of documents as the tokenizer's.
  json_t *files = huggingface_files_collect(NULL, from);
  if (!code) code = huggingface_files_write(files, folder->path, error);
  json_decref(files);
  free(to);
  return code;
}

// The token with which all documents end, as far as they are looked at; -1: there is none.
static int32_t see_end(const IndexedDataset *d) {
  int32_t end = -1, last;
  for (int64_t i = 0; i < d->documents && i < MOST_SEEN; i++) {
    int64_t next = indexed_document_begin(d, i + 1);
    if (next == indexed_document_begin(d, i)) continue; // empty
    if (indexed_read(d, next - 1, 1, 0, &last, NULL) || (end >= 0 && last != end)) return -1;
    end = last;
  }
  return end;
}

// How documents begin and end: as plait tokenize has recorded it, or of a corpus of others with which token they end.
static void describe_documents(const char *prefix, json_t *out) {
  IndexedDataset d;
  DocumentMarks marks;
  if (indexed_open(&d, prefix, NULL)) return;
  if (document_marks_read(&d, &marks, NULL) > 0) {
    json_t *documents = json_object();
    document_marks_put(&marks, documents);
    json_object_set_new(out, "documents", documents);
  } else {
    int32_t end = see_end(&d);
    if (end >= 0) json_object_set_new(out, "document_end", json_integer(end));
  }
  indexed_close(&d);
}

json_t *run_text_describe(const Recipe *recipe, const json_t *before) {
  const char *init = recipe->model.init[0] == '/' ? recipe->model.init : NULL;
  json_t *files = huggingface_files_collect(init, recipe->data.tokenizer), *out = json_object();
  const json_t *kept = json_object_get(before, "huggingface_files");
  if (json_is_object(kept)) json_object_update_missing(files, (json_t *)kept);
  if (json_object_size(files)) json_object_set(out, "huggingface_files", files);
  json_decref(files);
  if (recipe->data.train.count) describe_documents(recipe->data.train.items[0].prefix, out);
  return out;
}
