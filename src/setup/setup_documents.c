// Whether the datasets of a recipe and its tokenizer agree on how documents begin and end.
#include "base/file.h"
#include "data/document_marks.h"
#include "data/indexed.h"
#include "setup/setup.h"

typedef struct Recorded {
  const char *key, *prefix; // of the first dataset that has a record; prefix NULL: none has one
  DocumentMarks marks;
} Recorded;

// The tokenizer that the text was meant for: data.tokenizer, or that of model.init. NULL: none.
static char *tokenizer_of(const Recipe *r) {
  char *path = r->data.tokenizer           ? xstrdup(r->data.tokenizer)
               : r->model.init[0] == '/' ? xformat("%s/tokenizer.json", r->model.init)
                                           : NULL;
  if (path && file_exists(path)) return path;
  free(path);
  return NULL;
}

static int read_record(const Recipe *r, const char *key, const char *prefix, Recorded *first, const Tokenizer *t,
                       FILE *out, Error *error) {
  IndexedDataset d;
  DocumentMarks marks;
  int code = indexed_open(&d, prefix, error);
  if (code) return code;
  if ((code = document_marks_read(&d, &marks, error)) > 0) {
    if (!first->prefix) *first = (Recorded){key, prefix, marks};
    else if (!document_marks_equal(&marks, &first->marks))
      fprintf(out, "note: %s%s: the documents of %s are %s, and those of %s (%s) are %s\n", recipe_where(r, key), key,
              prefix, document_marks_text(&marks, t).s, first->prefix, first->key,
              document_marks_text(&first->marks, t).s);
  }
  indexed_close(&d);
  return code < 0 ? error_prefix(error, "%s%s", recipe_where(r, key), key) : PLAIT_OK;
}

static int compare(const Recipe *r, const char *path, const Recorded *data, const Tokenizer *t, FILE *out,
                   Error *error) {
  DocumentMarks said;
  int code = document_marks_of(t, path, &said, error);
  if (code) return code;
  if (!document_marks_equal(&said, &data->marks))
    fprintf(out,
            "note: %s%s: the documents of %s are %s, by %s" DOCUMENT_MARKS_SUFFIX ", and %s says %s; the model learns "
            "those of the data\n",
            recipe_where(r, data->key), data->key, data->prefix, document_marks_text(&data->marks, t).s, data->prefix,
            path, document_marks_text(&said, t).s);
  return PLAIT_OK;
}

int setup_check_documents(const Recipe *r, char **note, Error *error) {
  static const char *const keys[] = {"data.train", "data.valid"};
  const RecipeCorpora *lists[] = {&r->data.train, &r->data.valid};
  Recorded first = {0};
  Tokenizer *t = NULL;
  size_t size;
  FILE *out = open_memstream(note, &size);
  CHECK(out, "no memory for a note");
  char *path = tokenizer_of(r);
  int code = path ? tokenizer_load(path, &t, error) : PLAIT_OK;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < lists[k]->count && !code; i++)
      code = read_record(r, keys[k], lists[k]->items[i].prefix, &first, t, out, error);
  if (!code && t && first.prefix) code = compare(r, path, &first, t, out, error);
  tokenizer_destroy(t);
  free(path);
  fclose(out); // an empty text where there is nothing to note
  return code;
}
