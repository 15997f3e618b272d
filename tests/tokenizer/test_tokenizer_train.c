// tier 1
// Training of tokenizers and encoding of corpora: determinism, ties, thread counts, documents, errors with their line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/philox.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer_corpus.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Folder { char path[64]; char *files[8]; int count; } Folder;

static void add_file(Folder *folder, const char *name, const char *data, size_t bytes) {
  char *path = xformat("%s/%s", folder->path, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
  folder->files[folder->count++] = path;
}

// Text like a language: words of a small random lexicon, digits, lines, some that are not UTF-8.
static void make_text(uint32_t seed, size_t bytes, ByteVector *out) {
  static const char *const syllables[] = {"ka",  "to", "ri", "sen",      "mi",           "lo",
                                          "wer", "th", "an", "\xc3\xa9", "\xe6\xb2\xb3", "x"};
  static const char *const between[] = {" ", " ", " ", " ", "\n", ", ", ". ", "\n    ", " 1984 ", "'s ", "(", "\xff"};
  uint32_t r[4];
  for (uint32_t i = 0; (size_t)out->count < bytes; i++) {
    philox4x32(philox_key(seed, 0, 1), i, 0, 0, 0, r);
    uint32_t word = r[0] % 40 * (r[1] % 25); // some words are frequent
    for (uint32_t k = 0; k <= word % 4; k++) {
      const char *s = syllables[(word * 7 + k * k * 5) % 12];
      bytes_append(out, s, strlen(s));
    }
    const char *s = between[r[2] % (i % 50 ? 11 : 12)];
    bytes_append(out, s, strlen(s));
  }
}

static void make_folder(Folder *folder) {
  ByteVector text = {0};
  *folder = (Folder){.path = "/tmp/plait-train-XXXXXX"};
  assert_non_null(mkdtemp(folder->path));
  make_text(1, 700000, &text);
  add_file(folder, "a.txt", text.data, (size_t)text.count);
  text.count = 0;
  make_text(2, 3000, &text);
  add_file(folder, "b.txt", text.data, (size_t)text.count);
  add_file(folder, "empty.txt", "", 0);
  text.count = 0;
  for (int i = 0; i < 4000; i++) {
    char line[200];
    int n = snprintf(line, sizeof line, "{\"id\": %d, \"text\": \"kato %d sen\\u00e9 miri\\n\\t%s\"}%s\n", i, i * 37,
                     i % 3 ? "wer" : "", i % 5 ? "" : "\r");
    bytes_append(&text, line, (size_t)n);
    if (i % 100 == 0) bytes_append(&text, "{\"text\": \"\"}\n \n", 15);
  }
  bytes_append(&text, "{\"text\": \"no line end\"}", 23);
  add_file(folder, "c.jsonl", text.data, (size_t)text.count);
  vec_free(&text);
}

static void remove_folder(Folder *folder) {
  for (int i = 0; i < folder->count; i++) free(folder->files[i]);
  folder_remove(folder->path, NULL);
}

#define FILES(folder) ((const char *const *)(folder).files)

static Tokenizer *train(const char *const *files, int count, int size, int threads) {
  Tokenizer *t;
  Error error = {0};
  if (tokenizer_train(files, count, size, threads, &t, &error) < 0) fail_msg("%s", error.message);
  return t;
}

static void test_training_is_the_same_for_any_threads(void **state) {
  Folder folder;
  make_folder(&folder);
  Tokenizer *one = train(FILES(folder), folder.count, 600, 1), *five = train(FILES(folder), folder.count, 600, 5);
  assert_int_equal(one->json_bytes, five->json_bytes);
  assert_memory_equal(one->json, five->json, one->json_bytes);
  assert_true(tokenizer_vocab_size(one) > 400 && tokenizer_vocab_size(one) <= 600);
  assert_int_equal(tokenizer_id(one, "<|endoftext|>"), 0);
  assert_string_equal(tokenizer_token(one, 0), "<|endoftext|>");
  assert_string_equal(tokenizer_token(one, 1), "!"); // the first letter of the byte alphabet
  tokenizer_destroy(one);
  tokenizer_destroy(five);
  remove_folder(&folder);
}

static void test_train_save_load_gives_the_same_ids(void **state) {
  Folder folder;
  make_folder(&folder);
  Tokenizer *t = train(FILES(folder), folder.count, 500, 2), *again;
  Error error = {0};
  char *path = xformat("%s/tokenizer.json", folder.path), *text;
  size_t bytes;
  IdVector a = {0}, b = {0};
  ByteVector back = {0};
  assert_int_equal(tokenizer_save(t, path, &error), 0);
  assert_int_equal(tokenizer_load(folder.path, &again, &error), 0); // a folder that holds one
  assert_int_equal(file_read(folder.files[0], 1 << 20, &text, &bytes, &error), 0);
  assert_int_equal(tokenizer_encode(t, text, bytes, 0, &a, &error), 0);
  assert_int_equal(tokenizer_encode(again, text, bytes, 0, &b, &error), 0);
  assert_int_equal(a.count, b.count);
  assert_memory_equal(a.data, b.data, sizeof *a.data * (size_t)a.count);
  assert_true((size_t)a.count < bytes * 2 / 3); // it has learned something
  assert_int_equal(tokenizer_decode(again, b.data, b.count, 0, &back, &error), 0);
  assert_int_equal(back.count, bytes);
  assert_memory_equal(back.data, text, bytes);
  vec_free(&a);
  vec_free(&b);
  vec_free(&back);
  free(text);
  free(path);
  tokenizer_destroy(t);
  tokenizer_destroy(again);
  remove_folder(&folder);
}

// "ab" and "cd" are equally frequent: the smaller pair of ids is merged first; "xyxyxy" counts xy before yx.
static void test_ties(void **state) {
  WordTable table = {0};
  BpeLearned learned;
  word_table_add(&table, "cd", 2, 5);
  word_table_add(&table, "ab", 2, 3);
  word_table_add(&table, "ab", 2, 2);
  word_table_add(&table, "xyxyxy", 6, 2);
  word_table_add(&table, "rare", 4, 1);
  bpe_learn(&table, 1, 1000, &learned);
  static const char *const expected[] = {"xy", "ab", "cd", "xyxy", "xyxyxy"}; // 6, 5, 5, 4 (both xy.xy), 2
  assert_int_equal(learned.tokens.count, 256 + 5);
  for (int i = 0; i < 5; i++) {
    LearnedToken token = learned.tokens.data[256 + i];
    assert_int_equal(token.bytes, strlen(expected[i]));
    assert_memory_equal(token.text, expected[i], strlen(expected[i]));
  }
  bpe_learned_free(&learned);
  word_table_free(&table);
}

// The queue against the definition: count all pairs anew before every merge.
static void test_learning_equals_its_definition(void **state) {
  WordTable table = {0};
  BpeLearned learned;
  uint32_t r[4];
  for (uint32_t i = 0; i < 300; i++) {
    char word[12];
    philox4x32(philox_key(11, 0, 2), i, 0, 0, 0, r);
    int32_t n = 1 + (int32_t)(r[0] % 11);
    for (int32_t k = 0; k < n; k++) word[k] = "aabbc"[(r[1] >> k) % 5];
    word_table_add(&table, word, n, 1 + r[2] % 4);
  }
  bpe_learn(&table, 0, 256 + 60, &learned);
  int32_t symbols[300][12], length[300], a = 0;
  while (memcmp(learned.tokens.data[a].text, "a", 1)) a++;
  for (int i = 0; i < table.count; i++) {
    length[i] = table.words[i].bytes;
    for (int k = 0; k < length[i]; k++) symbols[i][k] = a + table.text[table.words[i].start + k] - 'a';
  }
  assert_true(learned.merges.count >= 60);
  for (int m = 0; m < learned.merges.count; m++) {
    enum { MOST = 320 };
    static int64_t count[MOST][MOST];
    LearnedMerge merge = learned.merges.data[m];
    memset(count, 0, sizeof count);
    int left = 0, right = 0;
    for (int i = 0; i < table.count; i++)
      for (int k = 0; k + 1 < length[i]; k++) count[symbols[i][k]][symbols[i][k + 1]] += table.words[i].count;
    for (int x = 0; x < MOST; x++)
      for (int y = 0; y < MOST; y++)
        if (count[x][y] > count[left][right]) left = x, right = y;
    assert_int_equal(merge.left, left);
    assert_int_equal(merge.right, right);
    for (int i = 0; i < table.count; i++) {
      int out = 0;
      for (int k = 0; k < length[i]; out++) {
        int here = k + 1 < length[i] && symbols[i][k] == left && symbols[i][k + 1] == right;
        symbols[i][out] = here ? merge.id : symbols[i][k];
        k += here ? 2 : 1;
      }
      length[i] = out;
    }
  }
  bpe_learned_free(&learned);
  word_table_free(&table);
}

static void test_pruning_keeps_the_frequent(void **state) {
  WordTable table = {0};
  for (int i = 0; i < 10000; i++) {
    char word[16];
    int n = snprintf(word, sizeof word, "w%d", i);
    word_table_add(&table, word, n, i < 100 ? 1000 : 1 + i % 3);
  }
  word_table_prune(&table, 500);
  assert_int_equal(table.count, 100);
  word_table_add(&table, "w7", 2, 1);
  assert_int_equal(table.count, 100);
  word_table_free(&table);
}

// ---- corpora -------------------------------------------------------------------------------------------------------

typedef struct Written { IdVector ids, ends; } Written;

static int collect(void *argument, const int32_t *ids, int64_t count, int ends, Error *error) {
  Written *w = argument;
  for (int64_t i = 0; i < count; i++) vec_push(&w->ids, ids[i]);
  if (ends) vec_push(&w->ends, w->ids.count);
  return PLAIT_OK;
}

static void test_corpus_is_the_same_for_any_threads_and_slices(void **state) {
  static const struct {
    int threads;
    size_t slice;
  } ways[] = {{1, 0}, {4, 0}, {3, 1}, {2, 100}, {1, 4096}, {2, 1 << 20}};
  Folder folder;
  make_folder(&folder);
  Tokenizer *t = train(FILES(folder), folder.count, 450, 2);
  Written first = {0};
  for (int i = 0; i < 6; i++) {
    Written w = {0};
    CorpusCounts counts;
    Error error = {0};
    CorpusOptions options = {
        .threads = ways[i].threads, .slice_bytes = ways[i].slice, .write = collect, .argument = &w};
    assert_int_equal(corpus_encode(t, FILES(folder), folder.count, &options, &counts, &error), 0);
    assert_int_equal(counts.documents, 4003);
    assert_int_equal(counts.empty, 41); // one file, forty lines
    assert_int_equal(w.ends.count, 4003);
    assert_int_equal(w.ends.data[4002], w.ids.count);
    if (i == 0) first = w;
    assert_int_equal(w.ids.count, first.ids.count);
    assert_memory_equal(w.ids.data, first.ids.data, sizeof *w.ids.data * (size_t)w.ids.count);
    assert_memory_equal(w.ends.data, first.ends.data, sizeof *w.ends.data * (size_t)w.ends.count);
    if (i) vec_free(&w.ids), vec_free(&w.ends);
  }
  vec_free(&first.ids);
  vec_free(&first.ends);
  tokenizer_destroy(t);
  remove_folder(&folder);
}

static void test_bad_lines_are_named(void **state) {
  static const struct { const char *line, *says;
  } bad[] = {{"{\"text\": 3}", "\"text\" is not a string"},
             {"{\"txt\": \"a\"}", "\"text\" is missing"},
             {"[1]", "not a JSON object"},
             {"{\"text\": \"a\"", "not valid JSON"},
             {"{\"text\": \"\xff\"}", "not valid JSON"},
             {"{\"text\": [\"a\"]}", "\"text\" is not a string"}};
  for (int i = 0; i < 6; i++) {
    Folder folder = {.path = "/tmp/plait-train-XXXXXX"};
    ByteVector text = {0};
    Written w = {0};
    CorpusCounts counts;
    Error error = {0}, other = {0};
    Tokenizer *t;
    assert_non_null(mkdtemp(folder.path));
    for (int k = 0; k < 2000; k++) bytes_append(&text, "{\"text\": \"kato\"}\n", 17);
    bytes_append(&text, bad[i].line, strlen(bad[i].line));
    bytes_append(&text, "\n{\"text\": \"kato\"}\nworse\n", 24);
    add_file(&folder, "good.jsonl", text.data, 17 * 5);
    add_file(&folder, "bad.jsonl", text.data, (size_t)text.count);
    t = train(FILES(folder), 1, 300, 1);
    CorpusOptions options = {.threads = 3, .slice_bytes = 1000, .write = collect, .argument = &w};
    assert_int_equal(corpus_encode(t, FILES(folder), 2, &options, &counts, &error), PLAIT_BAD_INPUT);
    if (!strstr(error.message, "/bad.jsonl: line 2001: ") || !strstr(error.message, bad[i].says))
      fail_msg("%s", error.message);
    tokenizer_destroy(t);
    assert_int_equal(tokenizer_train(FILES(folder), 2, 300, 3, &t, &other), PLAIT_BAD_INPUT);
    if (!strstr(other.message, "/bad.jsonl: line 2001: ") || !strstr(other.message, bad[i].says))
      fail_msg("%s", other.message);
    vec_free(&text);
    vec_free(&w.ids);
    vec_free(&w.ends);
    remove_folder(&folder);
  }
}

// Lines as json.dumps and others write them (DEFECTS 07, 08, 09, 12): what is not read need not be strict JSON.
static void test_lines_of_others(void **state) {
  static const char *const lines[] = {"{\"text\": \"one\", \"id\": 123456789012345678901234567890}",
                                      "{\"text\": \"one\", \"score\": 1e999}",
                                      "{\"score\": [NaN, -Infinity], \"text\": \"one\"}",
                                      "{\"other\": \"\\ud83d\", \"text\": \"one\"}",
                                      "\xef\xbb\xbf{\"text\": \"one\"}",
                                      "{\"other\": \"\xff\", \"text\": \"one\"}",
                                      "{\"id\": 1, \"id\": 2, \"text\": \"two\", \"text\": \"one\"}",
                                      "{\"text\": \"one \\ud83d\"}"};
  for (int i = 0; i < 8; i++) {
    json_t *holder;
    const char *text;
    size_t bytes;
    Error error = {0};
    TextCheck check = {0};
    if (corpus_line_text(&(CorpusLines){0}, lines[i], strlen(lines[i]), &holder, &text, &bytes, &check, &error))
      fail_msg("%s", error.message);
    assert_int_equal(check.halves, i == 7);
    assert_string_equal(text, i < 7 ? "one" : "one \xef\xbf\xbd");
    assert_int_equal(bytes, strlen(text));
    json_decref(holder);
  }
}

static void test_wrong_requests(void **state) {
  static const char *const missing[] = {"/nonexistent/x.txt"};
  Tokenizer *t;
  Error error = {0}, other = {0};
  assert_int_equal(tokenizer_train(missing, 1, 300, 1, &t, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "/nonexistent/x.txt"));
  assert_int_equal(tokenizer_train(missing, 1, 100, 1, &t, &other), PLAIT_BAD_INPUT);
  assert_non_null(strstr(other.message, "257"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_training_is_the_same_for_any_threads),
      cmocka_unit_test(test_train_save_load_gives_the_same_ids),
      cmocka_unit_test(test_ties),
      cmocka_unit_test(test_learning_equals_its_definition),
      cmocka_unit_test(test_pruning_keeps_the_frequent),
      cmocka_unit_test(test_corpus_is_the_same_for_any_threads_and_slices),
      cmocka_unit_test(test_bad_lines_are_named),
      cmocka_unit_test(test_lines_of_others),
      cmocka_unit_test(test_wrong_requests),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
