// Trains a byte-level BPE tokenizer: counts the words of files on all cores, learns merges, writes the tokenizer.json.
#include "base/team.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer_corpus.h"
#include <jansson.h>
#include <string.h>

enum { WORD_LIMIT = 1024, WORDS_KEPT = 4 << 20, TEXT_KEPT = 128 << 20 };

// The words of slices: a table for each slice of a batch, so that adding them up has one order.
typedef struct Counting {
  SplitStep split;
  const CorpusSlice *slices;
  WordTable *tables;
  Error *errors;
  int64_t *lines; // of the slice until its end or error
  TextCheck *checks;
  const CorpusLines *how;
  BadLines *bad;
} Counting;

static void count_word(void *argument, const char *text, size_t bytes) {
  if (bytes > 1 && bytes <= WORD_LIMIT) word_table_add(argument, text, (int32_t)bytes, 1);
}

static int count_text(const Counting *c, SplitScratch *scratch, WordTable *table, const char *text, size_t bytes,
                      Error *error) {
  SplitSink sink = {count_word, table};
  while (bytes) {
    size_t valid = utf8_prefix(text, bytes);
    if (valid) {
      int code = split_text(&c->split, 1, scratch, text, valid, 0, &sink, error);
      if (code < 0) return code;
    } else valid = 1;
    text += valid;
    bytes -= valid;
  }
  return PLAIT_OK;
}

static int count_lines(const Counting *c, SplitScratch *scratch, int i) {
  const char *data = c->slices[i].data, *line, *text;
  size_t left = c->slices[i].bytes, text_bytes;
  int code = PLAIT_OK;
  while (left && code >= 0) {
    json_t *holder;
    size_t bytes = corpus_take_line(&data, &left, &line);
    c->lines[i]++;
    if (corpus_blank(line, bytes)) continue;
    code = corpus_line_text(c->how, line, bytes, &holder, &text, &text_bytes, &c->checks[i], &c->errors[i]);
    if (code < 0 && !(code = corpus_keep_bad(c->how, &c->bad[i], c->lines[i], &c->errors[i]))) continue;
    if (code < 0) break;
    if (!text) continue;
    text_check_scan(&c->checks[i], text, text_bytes, false);
    code = count_text(c, scratch, &c->tables[i], text, text_bytes, &c->errors[i]);
    json_decref(holder);
  }
  return code;
}

static void count_slice(void *argument, int i) {
  const Counting *c = argument;
  SplitScratch scratch = {0};
  c->errors[i] = (Error){0};
  c->lines[i] = 0;
  const CorpusSlice *slice = &c->slices[i];
  if (slice->lines) count_lines(c, &scratch, i);
  else {
    text_check_scan(&c->checks[i], slice->data, slice->bytes, slice->begins);
    count_text(c, &scratch, &c->tables[i], slice->data, slice->bytes, &c->errors[i]);
  }
  split_scratch_free(&scratch);
}

// Counts of the file of the slices, up to one of them.
typedef struct SoFar {
  int64_t lines;
  TextCheck check;
  const CorpusFiles *files;
} SoFar;

// Adds a slice's words up.
static int add_up(const Counting *c, int i, SoFar *file, WordTable *all, Error *error) {
  const CorpusSlice *slice = &c->slices[i];
  WordTable *table = &c->tables[i];
  if (slice->begins) *file = (SoFar){.files = file->files};
  int told = corpus_tell_bad(c->how, file->files->argument, slice->path, file->lines, &c->bad[i], error);
  if (told) return told;
  file->lines += c->lines[i];
  text_check_add(&file->check, &c->checks[i]);
  file->check.lines = slice->lines != TEXT_IS_ONE;
  file->check.lines_found = slice->lines == TEXT_LINES_FOUND;
  if (c->errors[i].code < 0 && slice->lines)
    return error_set(error, c->errors[i].code, "%s: line %lld: %s%s", slice->path, (long long)file->lines,
                     c->errors[i].message, slice->lines == TEXT_LINES_FOUND ? CORPUS_LINES_FOUND : "");
  if (c->errors[i].code < 0) return error_set(error, c->errors[i].code, "%s: %s", slice->path, c->errors[i].message);
  for (int k = 0; k < table->count; k++)
    word_table_add(all, table->text + table->words[k].start, table->words[k].bytes, table->words[k].count);
  int code = PLAIT_OK;
  if (slice->ends && file->files->checked)
    code = file->files->checked(file->files->argument, slice->path, &file->check, error);
  if (all->count > WORDS_KEPT || all->text_bytes > TEXT_KEPT) word_table_prune(all, WORDS_KEPT / 2);
  return code;
}

static int count_batch(Counting *c, Team *team, int n, SoFar *file, WordTable *all, Error *error) {
  int code = PLAIT_OK;
  c->tables = xcalloc((size_t)n, sizeof *c->tables);
  c->errors = xcalloc((size_t)n, sizeof *c->errors);
  c->lines = xcalloc((size_t)n, sizeof *c->lines);
  c->checks = xcalloc((size_t)n, sizeof *c->checks);
  c->bad = xcalloc((size_t)n, sizeof *c->bad);
  team_run(team, n, count_slice, c);
  for (int i = 0; i < n; i++) {
    if (code >= 0) code = add_up(c, i, file, all, error);
    for (int k = 0; k < c->bad[i].count; k++) free(c->bad[i].data[k].why); // after an error before it
    vec_free(&c->bad[i]);
    word_table_free(&c->tables[i]);
  }
  free(c->tables);
  free(c->errors);
  free(c->lines);
  free(c->checks);
  free(c->bad);
  return code;
}

// Slices and batches have fixed sizes, so the order in which words are met (and dropped) is that of one thread.
static int count_files(const CorpusFiles *files, int threads, WordTable *all, Error *error) {
  Corpus corpus = {.files = *files, .slice_bytes = 256 << 10, .batch_bytes = 16 << 20,
                   .cuts = CUT_SPACES | CUT_LINES};
  Counting counting = {.how = &files->how};
  SoFar file = {.files = files};
  int code = split_compile(&counting.split, SPLIT_GPT2, strlen(SPLIT_GPT2), error);
  if (code < 0) return code;
  Team *team;
  code = team_create(threads, &team, error);
  while (code >= 0 && (code = corpus_next(&corpus, error)) > 0) {
    counting.slices = corpus.slices.data;
    code = count_batch(&counting, team, corpus.slices.count, &file, all, error);
  }
  team_destroy(team);
  corpus_close(&corpus);
  split_free(&counting.split);
  return code;
}

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

static json_t *letters(LearnedToken token) {
  ByteVector text = {0};
  for (int i = 0; i < token.bytes; i++) {
    vec_reserve(&text, text.count + 4);
    text.count += utf8_put(bpe_byte_letter((uint8_t)token.text[i]), text.data + text.count);
  }
  json_t *string = json_stringn(text.data, (size_t)text.count);
  vec_free(&text);
  return string;
}

static json_t *model_json(const BpeLearned *learned, const char *eot) {
  json_t *vocab = json_object(), *merges = json_array();
  json_object_set_new(vocab, eot, json_integer(0));
  for (int i = 0; i < learned->tokens.count; i++) {
    json_t *token = letters(learned->tokens.data[i]);
    json_object_set_new(vocab, json_string_value(token), json_integer(i + 1));
    json_decref(token);
  }
  for (int i = 0; i < learned->merges.count; i++) {
    LearnedMerge m = learned->merges.data[i];
    json_t *pair = json_array();
    json_array_append_new(pair, letters(learned->tokens.data[m.left - 1]));
    json_array_append_new(pair, letters(learned->tokens.data[m.right - 1]));
    json_array_append_new(merges, pair);
  }
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                   "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                   "ignore_merges", 0, "vocab", vocab, "merges", merges);
}

static json_t *byte_level_json(void) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                   1);
}

static char *tokenizer_text(const BpeLearned *learned) {
  static const char eot[] = "<|endoftext|>";
  json_t *root =
      json_pack("{s:s, s:n, s:n, s:[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}], s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                "truncation", "padding", "added_tokens", "id", 0, "content", eot, "single_word", 0, "lstrip", 0,
                "rstrip", 0, "normalized", 0, "special", 1, "normalizer", "pre_tokenizer", byte_level_json(),
                "post_processor", byte_level_json(), "decoder", byte_level_json(), "model", model_json(learned, eot));
  char *text = json_dumps(root, JSON_INDENT(1));
  CHECK(root && text, "out of memory");
  json_decref(root);
  return text;
}

int tokenizer_train(const char *const *files, int count, int vocab_size, int threads, Tokenizer **t, Error *error) {
  return tokenizer_train_files(&(CorpusFiles){.paths = files, .count = count}, vocab_size, threads, t, error);
}

int tokenizer_train_files(const CorpusFiles *files, int vocab_size, int threads, Tokenizer **t, Error *error) {
  WordTable words = {0};
  BpeLearned learned;
  *t = NULL;
  if (vocab_size < 257 || vocab_size > 1 << 20)
    return error_set(error, PLAIT_BAD_INPUT, "vocabulary size %d: allowed are 257 (the bytes and <|endoftext|>) to %d",
                     vocab_size, 1 << 20);
  int code = count_files(files, threads, &words, error);
  if (code >= 0) {
    bpe_learn(&words, 1, vocab_size - 1, &learned);
    char *text = tokenizer_text(&learned);
    code = tokenizer_parse(text, strlen(text), "the trained tokenizer", t, error);
    free(text);
    bpe_learned_free(&learned);
  }
  word_table_free(&words);
  return code;
}
