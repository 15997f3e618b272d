// Slices of text files, and their encoding on all cores in bounded memory.
#include "tokenizer/tokenizer_corpus.h"
#include "base/fault.h"
#include "base/json_read.h"
#include "base/team.h"
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLICE_LIMIT = 4096, FINISHED_LIMIT = 2048 }; // of one batch; every finished file is a map of the kernel's

enum { BLOCK_BYTES = 4 << 20 };

static void free_block(CorpusBlock *block) {
  file_unmap(&block->map);
  free(block->memory);
  *block = (CorpusBlock){0};
}

static void release(Corpus *c) {
  for (int i = 0; i < c->finished.count; i++) free_block(&c->finished.data[i]);
  c->finished.count = c->slices.count = 0;
  // Pages that have been read need not stay resident.
  size_t page = (size_t)sysconf(_SC_PAGESIZE), read = c->done / page * page;
  if (c->open && c->block.map.data && read) madvise((void *)(uintptr_t)c->data, read, MADV_DONTNEED);
}

// Reads a stream on into a new block, which begins with what no slice has of the old one.
static int read_on(Corpus *c, Error *error) {
  size_t kept = c->size - c->done, room = kept > BLOCK_BYTES ? kept : BLOCK_BYTES, got;
  char *memory = xcalloc(kept + room, 1);
  if (kept) memcpy(memory, c->data + c->done, kept);
  if (c->done) vec_push(&c->finished, c->block); // slices point into it
  else free_block(&c->block);
  c->block = (CorpusBlock){.memory = memory};
  c->data = memory;
  c->done = 0;
  int code = text_stream_read(c->stream, memory + kept, room, &got, error);
  c->size = kept + got;
  if (code || got < room) {
    text_stream_close(c->stream);
    c->stream = NULL;
  }
  return code;
}

// Looks at the first bytes, too: they decide what the file is.
static int open_file(Corpus *c, Error *error) {
  const char *path = c->files.paths[c->next];
  int streamed = text_stream_open(&c->stream, path, error);
  int code = streamed ? streamed : file_map(path, &c->block.map, error);
  if (code < 0) return code;
  c->data = (const char *)c->block.map.data;
  c->size = c->block.map.size;
  c->done = 0;
  c->open = 1;
  c->begun = 0;
  c->next++;
  if (c->stream && (code = read_on(c, error)) < 0) return code;
  TextKindOptions how = {c->files.how.key, c->files.lines, c->files.as_text};
  size_t head = c->size < TEXT_KIND_HEAD ? c->size : TEXT_KIND_HEAD;
  return text_kind_look(path, c->data, head, head == c->size && !c->stream, &how, &c->lines, error);
}

// Where the next slice ends, from its beginning; all that is there where it holds no cut.
static size_t find_cut(const Corpus *c) {
  const char *data = c->data + c->done;
  size_t left = c->size - c->done;
  if (left <= c->slice_bytes) return left;
  if (!c->lines) return split_cut(data, left, c->slice_bytes, c->cuts);
  const char *end = memchr(data + c->slice_bytes, '\n', left - c->slice_bytes);
  return end ? (size_t)(end - data) + 1 : left;
}

static int take_slice(Corpus *c, size_t *taken, Error *error) {
  const char *path = c->files.paths[c->next - 1];
  int code = PLAIT_OK;
  size_t bytes;
  while ((bytes = find_cut(c)) == c->size - c->done && c->stream && !code) code = read_on(c, error);
  if (code) return code;
  CorpusSlice slice = {text_stream_name(path),    c->data + c->done, bytes, c->lines, !c->begun,
                       bytes == c->size - c->done};
  vec_push(&c->slices, slice);
  c->begun = 1;
  c->done += bytes;
  *taken = bytes;
  if (slice.ends) {
    vec_push(&c->finished, c->block);
    c->block = (CorpusBlock){0};
    c->open = 0;
  }
  return PLAIT_OK;
}

int corpus_next(Corpus *c, Error *error) {
  size_t bytes = 0;
  release(c);
  while (bytes < c->batch_bytes && c->slices.count < SLICE_LIMIT && c->finished.count < FINISHED_LIMIT) {
    if (!c->open && c->next == c->files.count) break;
    size_t taken = 0;
    int code = c->open ? PLAIT_OK : open_file(c, error);
    if (!code) code = take_slice(c, &taken, error);
    if (code) return code;
    bytes += taken;
  }
  return c->slices.count > 0;
}

void corpus_close(Corpus *c) {
  c->done = 0;
  release(c);
  free_block(&c->block);
  text_stream_close(c->stream);
  c->stream = NULL;
  vec_free(&c->finished);
  vec_free(&c->slices);
}

size_t corpus_take_line(const char **data, size_t *bytes, const char **line) {
  const char *end = memchr(*data, '\n', *bytes);
  size_t n = end ? (size_t)(end - *data) : *bytes;
  *line = *data;
  *data += n + (end != NULL);
  *bytes -= n + (end != NULL);
  return n;
}

int corpus_blank(const char *line, size_t bytes) {
  size_t i = bytes > 2 && !memcmp(line, "\xef\xbb\xbf", 3) ? 3 : 0; // as the first line of a file may have
  while (i < bytes && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r')) i++;
  return i == bytes;
}

int corpus_line_text(const CorpusLines *how, const char *line, size_t bytes, json_t **holder, const char **text,
                     size_t *text_bytes, TextCheck *check, Error *error) {
  const char *key = how->key ? how->key : "text";
  JsonValue value;
  int replaced;
  *holder = NULL;
  *text = NULL;
  *text_bytes = 0;
  const char *why = json_scan_key(line, bytes, key, &value);
  if (why)
    return error_set(error, PLAIT_BAD_INPUT, "%s%s", strcmp(why, JSON_NO_OBJECT) ? "not valid JSON: " : "", why);
  if (value.kind == JSON_IS_NULL) return check->no_text++, PLAIT_OK;
  if (value.kind != JSON_IS_STRING)
    return error_set(error, PLAIT_BAD_INPUT,
                     value.kind == JSON_IS_ABSENT ? "the key \"%s\" is missing" : "the key \"%s\" is not a string",
                     key);
  if (!(*holder = json_scan_string(&value, &replaced)))
    return error_set(error, PLAIT_BAD_INPUT, "not valid JSON: the text is not UTF-8");
  check->halves += replaced;
  *text = json_string_value(*holder);
  *text_bytes = json_string_length(*holder);
  return PLAIT_OK;
}

int corpus_keep_bad(const CorpusLines *how, BadLines *bad, int64_t line, Error *error) {
  if (!how->bad) return error->code;
  vec_push(bad, (BadLine){line, xstrdup(error->message)});
  *error = (Error){0};
  return PLAIT_OK;
}

int corpus_tell_bad(const CorpusLines *how, void *argument, const char *path, int64_t before, BadLines *bad,
                    Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; i < bad->count; i++) {
    if (!code)
      code = how->bad(argument, path, FAULT(bad_lines_count_by_slice, before, 0) + bad->data[i].line, bad->data[i].why,
                      error);
    free(bad->data[i].why);
  }
  vec_free(bad);
  return code;
}

// ---- encoding ------------------------------------------------------------------------------------------------------

typedef struct SliceResult {
  IdVector ids, ends; // ends[k]: ids up to the end of the slice's document k
  int64_t lines, empty, bytes;
  TextCheck check;
  BadLines bad;
  Error error;
} SliceResult;

typedef struct Encoding {
  const Tokenizer *t;
  const CorpusLines *how;
  int flags; // for tokenizer_encode_with
  const CorpusSlice *slices;
  SliceResult *results;
  pthread_mutex_t lock;
  Vec(TokenizerScratch *) idle; // scratch that no task uses
} Encoding;

static TokenizerScratch *borrow_scratch(Encoding *e) {
  TokenizerScratch *scratch = NULL;
  pthread_mutex_lock(&e->lock);
  if (e->idle.count) scratch = e->idle.data[--e->idle.count];
  pthread_mutex_unlock(&e->lock);
  return scratch ? scratch : tokenizer_scratch_create(e->t);
}

static void return_scratch(Encoding *e, TokenizerScratch *scratch) {
  pthread_mutex_lock(&e->lock);
  vec_push(&e->idle, scratch);
  pthread_mutex_unlock(&e->lock);
}

// Counts what the vocabulary lacks in the text that was just encoded, and the special tokens in it; `line`: of the
// slice, from 1, or 0 where it is not made of lines.
static void note_counts(const TokenizerScratch *scratch, int64_t line, SliceResult *result) {
  TokenizerMissed missed = tokenizer_missed(scratch);
  TextCheck part = {.missed = missed.bytes, .missed_line = line > 0, .missed_exact = missed.exact,
                    .missed_at = line ? line : (int64_t)missed.first};
  part.control_tokens = tokenizer_specials(scratch);
  text_check_add(&result->check, &part);
}

static int encode_line(Encoding *e, TokenizerScratch *scratch, const char *line, size_t bytes, SliceResult *result) {
  json_t *holder;
  const char *text;
  size_t text_bytes;
  if (corpus_blank(line, bytes)) return PLAIT_OK;
  int code = corpus_line_text(e->how, line, bytes, &holder, &text, &text_bytes, &result->check, &result->error);
  if (code < 0) return corpus_keep_bad(e->how, &result->bad, result->lines, &result->error);
  if (!text) return PLAIT_OK;
  if (!text_bytes) result->empty++;
  else {
    result->bytes += (int64_t)text_bytes;
    text_check_scan(&result->check, text, text_bytes, false);
    code = tokenizer_encode_with(e->t, scratch, text, text_bytes, e->flags, &result->ids, &result->error);
    note_counts(scratch, result->lines, result);
    vec_push(&result->ends, result->ids.count);
  }
  json_decref(holder);
  return code;
}

static void encode_lines(Encoding *e, TokenizerScratch *scratch, const CorpusSlice *slice, SliceResult *result) {
  const char *data = slice->data, *line;
  size_t left = slice->bytes;
  while (left) {
    size_t bytes = corpus_take_line(&data, &left, &line);
    result->lines++;
    if (encode_line(e, scratch, line, bytes, result) < 0) return;
  }
}

static void encode_document(Encoding *e, TokenizerScratch *scratch, const CorpusSlice *slice, SliceResult *result) {
  result->bytes = (int64_t)slice->bytes;
  if (!slice->bytes) {
    result->empty = 1;
    return;
  }
  text_check_scan(&result->check, slice->data, slice->bytes, slice->begins);
  tokenizer_encode_with(e->t, scratch, slice->data, slice->bytes,
                        e->flags | (slice->begins ? 0 : ENCODE_CONTINUES), &result->ids, &result->error);
  note_counts(scratch, 0, result);
  if (slice->ends) vec_push(&result->ends, result->ids.count);
}

static void encode_slice(void *argument, int i) {
  Encoding *e = argument;
  SliceResult *result = &e->results[i];
  TokenizerScratch *scratch = borrow_scratch(e);
  result->ids.count = result->ends.count = 0;
  result->lines = result->empty = result->bytes = 0;
  result->check = (TextCheck){0};
  result->error = (Error){0};
  (e->slices[i].lines ? encode_lines : encode_document)(e, scratch, &e->slices[i], result);
  return_scratch(e, scratch);
  result->check.tokens = result->ids.count;
  for (int k = 0; k < result->ids.count && e->t->bpe.unk >= 0; k++)
    result->check.unknown += result->ids.data[k] == e->t->bpe.unk;
}

// Counts of the file of the slices, up to one of them.
typedef struct SoFar { int64_t lines, bytes; TextCheck check; } SoFar;

// Hands the ids of a slice on.
static int write_slice(const CorpusSlice *slice, SliceResult *result, const CorpusOptions *options, SoFar *file,
                       CorpusCounts *counts, Error *error) {
  if (slice->begins) *file = (SoFar){0};
  int told = corpus_tell_bad(&options->how, options->argument, slice->path, file->lines, &result->bad, error);
  if (told) return told;
  if (result->error.code < 0) {
    if (slice->lines)
      return error_set(error, result->error.code, "%s: line %lld: %s%s", slice->path,
                       (long long)(file->lines + result->lines), result->error.message,
                       slice->lines == TEXT_LINES_FOUND ? CORPUS_LINES_FOUND : "");
    return error_set(error, result->error.code, "%s: %s", slice->path, result->error.message);
  }
  int start = 0, code = PLAIT_OK;
  for (int k = 0; code >= 0 && k < result->ends.count; k++) {
    code = options->write(options->argument, result->ids.data + start, result->ends.data[k] - start, 1, error);
    start = result->ends.data[k];
  }
  if (code >= 0 && result->ids.count > start)
    code = options->write(options->argument, result->ids.data + start, result->ids.count - start, 0, error);
  TextCheck check = result->check;
  check.lines = slice->lines != TEXT_IS_ONE;
  check.lines_found = slice->lines == TEXT_LINES_FOUND;
  check.missed_at += slice->lines ? file->lines : file->bytes;
  text_check_add(&file->check, &check);
  file->lines += result->lines;
  file->bytes += (int64_t)slice->bytes;
  if (code >= 0 && slice->ends && options->checked)
    code = options->checked(options->argument, slice->path, &file->check, error);
  counts->documents += result->ends.count;
  counts->empty += result->empty;
  counts->tokens += result->ids.count;
  counts->bytes += result->bytes;
  return code;
}

int corpus_encode(const Tokenizer *t, const char *const *paths, int count, const CorpusOptions *options,
                  CorpusCounts *counts, Error *error) {
  int threads = options->threads > 1 ? options->threads : 1, results = 0;
  Corpus corpus = {.files = {.paths = paths,
                             .count = count,
                             .lines = options->lines,
                             .as_text = options->as_text,
                             .how = options->how},
                   .cuts = t->cuttable};
  corpus.slice_bytes = options->slice_bytes ? options->slice_bytes : 256 << 10;
  corpus.batch_bytes = (size_t)(threads > 8 ? threads : 8) * (2 << 20);
  Encoding e = {.t = t,
                .how = &options->how,
                .flags = options->plain ? ENCODE_PLAIN : 0,
                .lock = PTHREAD_MUTEX_INITIALIZER};
  Team *team;
  SoFar file = {0};
  *counts = (CorpusCounts){0};
  int code = team_create(threads, &team, error);
  while (code >= 0 && (code = corpus_next(&corpus, error)) > 0) {
    int n = corpus.slices.count;
    if (n > results) {
      e.results = xrealloc(e.results, (size_t)n * sizeof *e.results);
      memset(e.results + results, 0, (size_t)(n - results) * sizeof *e.results);
      results = n;
    }
    e.slices = corpus.slices.data;
    team_run(team, n, encode_slice, &e);
    for (int i = 0; i < n; i++) {
      if (code >= 0) code = write_slice(&corpus.slices.data[i], &e.results[i], options, &file, counts, error);
      if (e.results[i].ids.capacity > 64 << 10) vec_free(&e.results[i].ids); // many results, few of them large
    }
    if (code >= 0 && options->progress) code = options->progress(options->argument, counts, error);
  }
  for (int i = 0; i < results; i++) {
    vec_free(&e.results[i].ids);
    vec_free(&e.results[i].ends);
    for (int k = 0; k < e.results[i].bad.count; k++) free(e.results[i].bad.data[k].why); // after an error before it
    vec_free(&e.results[i].bad);
  }
  for (int i = 0; i < e.idle.count; i++) tokenizer_scratch_destroy(e.idle.data[i]);
  free(e.results);
  vec_free(&e.idle);
  team_destroy(team);
  corpus_close(&corpus);
  return code < 0 ? code : PLAIT_OK;
}
