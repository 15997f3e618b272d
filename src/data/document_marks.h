// With which tokens the documents of a tokenizer's folder begin and end: one answer for all who write, train on or
// generate documents, and the record of it that lies beside a dataset.
#pragma once
#include "tokenizer/tokenizer.h"
#include <stdbool.h>

struct json_t;
typedef struct IndexedDataset IndexedDataset;

enum { MARKS_MOST = 8 };
typedef struct DocumentMarks {
  int32_t begin[MARKS_MOST]; // (begins)
  int begins;
  int32_t end;     // -1: none
  int32_t bos;     // bos_token, whether documents begin with it or not; -1: none
  bool contradicts; // add_bos_token says other than the post-processor, which transformers 5 asks alone
  char begin_from[64],
      end_from[64]; // where they come from, as "eos_token of tokenizer_config.json"; "": nobody said it
} DocumentMarks;

// The small files of a folder, parsed; NULL: there is no such file.
typedef struct DocumentFiles {
  const struct json_t *tokenizer_config, *special_tokens_map, *config, *generation_config;
} DocumentFiles;

// Begin: bos_token where add_bos_token of tokenizer_config.json says so, nothing where it denies it; else what the
// post-processor puts before a text. End: eos_token of tokenizer_config.json, or of special_tokens_map.json; else the
// first eos_token_id of config.json, or of generation_config.json, where that is a special token; else a token with a
// usual name (</s>, <|endoftext|>, …).
void document_marks_find(const Tokenizer *t, const DocumentFiles *files, DocumentMarks *marks);
// The same for a tokenizer.json (or its folder) with the files beside it. A file that is there and broken is
// PLAIT_BAD_INPUT.
int document_marks_of(const Tokenizer *t, const char *path, DocumentMarks *marks, Error *error);

// "<s> … </s>", and where that comes from: ", from tokenizer_config.json". `t` may be NULL: then ids stand for tokens.
typedef struct MarksText { char s[400]; } MarksText;
MarksText document_marks_text(const DocumentMarks *marks, const Tokenizer *t);
bool document_marks_equal(const DocumentMarks *a, const DocumentMarks *b); // the tokens, wherever they come from

// ---- the record, PREFIX.documents.json -----------------------------------------------------------------------------

#define DOCUMENT_MARKS_SUFFIX ".documents.json"
// The contents of that record, for indexed_writer_commit; documents and tokens tell a later reader whether the dataset
// is still the one that was recorded. The caller frees it.
char *document_marks_record(const DocumentMarks *marks, const Tokenizer *t, int64_t documents, int64_t tokens);
// 1: *marks is what the dataset's record says; 0: it has none; negative: it has one that cannot be read, or that is of
// another dataset.
int document_marks_read(const IndexedDataset *dataset, DocumentMarks *marks, Error *error);
// As members "begin" and "end" of an object, and back: 1, or 0 where it has none.
void document_marks_put(const DocumentMarks *marks, struct json_t *object);
int document_marks_get(const struct json_t *object, DocumentMarks *marks);
