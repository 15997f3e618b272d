// Text files as slices of work: documents (one file each, or a line of a .jsonl each) read, encoded on all cores, in
// order.
#pragma once
#include "base/file.h"
#include "tokenizer/text_check.h"
#include "tokenizer/text_kind.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

// How lines of JSON are read.
typedef struct CorpusLines {
  const char *key; // the text is under this one; NULL: "text"
  // Called for each line that cannot be read, in order, with its number in the file, from 1: an error ends the work,
  // PLAIT_OK skips the line. NULL: such a line is an error.
  int (*bad)(void *argument, const char *path, int64_t line, const char *why, Error *error);
} CorpusLines;
typedef struct BadLine { int64_t line; char *why; } BadLine; // of a slice, from 1; owned
typedef Vec(BadLine) BadLines;

// The files of a corpus: plain text, .jsonl, either of them packed with gzip or zstd, pipes, and "-", the standard
// input.
typedef struct CorpusFiles {
  const char *const *paths; // (count)
  int count;
  bool lines;   // each of them is .jsonl, whatever its name
  bool as_text; // as in TextKindOptions
  CorpusLines how;
  // Called at the end of each file, in order, with what text_check.h counts; an error stops. May be NULL.
  int (*checked)(void *argument, const char *path, const TextCheck *check, Error *error);
  void *argument;
} CorpusFiles;

// A piece of a file: whole lines of a .jsonl, or a document or a part of one.
typedef struct CorpusSlice {
  const char *path, *data;
  size_t bytes;
  TextLines lines;  // of JSON
  int begins, ends; // the file does
} CorpusSlice;

// The memory of slices: a mapped file, or memory that a part of a stream was read into.
typedef struct CorpusBlock { FileMap map; char *memory; } CorpusBlock;

typedef struct Corpus {
  CorpusFiles files;
  int next;
  size_t slice_bytes, batch_bytes;
  int cuts; // where documents may be cut, as split_cut takes it
  // The file that is open, if `open`: the block, or the last one that was read of a stream
  CorpusBlock block;
  const char *data;
  size_t size, done;
  TextStream *stream; // NULL: the block is all, or its last one
  int open, begun;
  TextLines lines; // what text_kind_look says of the file
  Vec(CorpusBlock) finished; // blocks that the slices of the last batch point into
  Vec(CorpusSlice) slices;   // of the last batch
} Corpus;

// The next slices in order, valid until the next call: 1 there are some, 0 none are left, negative: a file is
// unreadable. The slices of a batch depend on batch_bytes and slice_bytes only, not on whether a file is mapped or
// read.
int corpus_next(Corpus *corpus, Error *error);
void corpus_close(Corpus *corpus);

// The text of a line of JSON, to be released with json_decref(*holder); *text is NULL where it is null. Counts that,
// and replaced halves of surrogate pairs, in *check. PLAIT_BAD_INPUT where it has no string under the key.
struct json_t;
int corpus_line_text(const CorpusLines *how, const char *line, size_t bytes, struct json_t **holder, const char **text,
                     size_t *text_bytes, TextCheck *check, Error *error);
// Handles a bad line of a slice: with how->bad it is kept, to be told in order, and *error is cleared.
int corpus_keep_bad(const CorpusLines *how, BadLines *bad, int64_t line, Error *error);
// Tells them, which are of a slice that begins after `before` lines of the file, and releases them.
int corpus_tell_bad(const CorpusLines *how, void *argument, const char *path, int64_t before, BadLines *bad,
                    Error *error);
// Takes the next line off [*data, *data + *bytes): its length without the line end.
size_t corpus_take_line(const char **data, size_t *bytes, const char **line);
int corpus_blank(const char *line, size_t bytes); // such lines are skipped

// Added to an error in a line where nobody has said that the file holds lines.
#define CORPUS_LINES_FOUND " (its first line is a JSON object; --as-text takes the file as one text)"

typedef struct CorpusCounts { int64_t documents, empty, tokens, bytes; } CorpusCounts; // tokens without end-of-text

typedef struct CorpusOptions {
  int threads;        // 0: one
  size_t slice_bytes; // about what one task encodes; 0: 256 KiB. Results do not depend on it
  // Called in order for the ids of documents, maybe in parts; `ends` with the last part. May be called with count 0.
  int (*write)(void *argument, const int32_t *ids, int64_t count, int ends, Error *error);
  // Called after each batch; a negative code stops. May be NULL.
  int (*progress)(void *argument, const CorpusCounts *counts, Error *error);
  void *argument;
  bool lines, as_text; // as in CorpusFiles
  bool plain;          // ENCODE_PLAIN
  CorpusLines how;
  int (*checked)(void *argument, const char *path, const TextCheck *check, Error *error);
} CorpusOptions;

// Encodes files without special tokens around the texts. A file that text_kind_look refuses is PLAIT_BAD_INPUT. Empty
// documents are left out and counted. Memory: a batch of slices (16 MiB or 2 MiB a thread) and its ids; a document that
// the tokenizer cannot cut is one slice. Errors name the file, and the line in a .jsonl.
int corpus_encode(const Tokenizer *t, const char *const *paths, int count, const CorpusOptions *options,
                  CorpusCounts *counts, Error *error);

// tokenizer_train on such files.
int tokenizer_train_files(const CorpusFiles *files, int vocab_size, int threads, Tokenizer **t, Error *error);
