// tier 1; rooms data checkpoint
// With what documents begin and end: tokenize, and generate before a prompt, do as AutoTokenizer does in folders of
// real families (tests/tokenizer/folders, made by scripts/golden_folders.py); the order of the rules; the record of a
// dataset.
#include "base/file.h"
#include "base/json_read.h"
#include "checkpoint/huggingface_files.h"
#include "data/document_marks.h"
#include "data/indexed.h"
#include "infer/text_setup.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define FOLDERS TESTS_FOLDER "/tokenizer/folders/"

static Tokenizer *load(const char *path) {
  Error error = {0};
  Tokenizer *t;
  if (tokenizer_load(path, &t, &error) < 0) fail_msg("%s", error.message);
  return t;
}

static json_t *read_json(const char *path) {
  json_t *tree;
  Error error = {0};
  if (json_read_file(path, 1 << 20, &tree, &error) != 1) fail_msg("%s: %s", path, error.message);
  return tree;
}

static int same(const int32_t *begin, int begins, const IdVector *ids, const json_t *want) {
  int equal = begins + ids->count == (int)json_array_size(want);
  for (int i = 0; equal && i < begins + ids->count; i++)
    equal = (i < begins ? begin[i] : ids->data[i - begins]) == json_integer_value(json_array_get(want, (size_t)i));
  return equal;
}

// What generate puts before a prompt to a model in this folder.
static void before_prompt(const char *folder, const Tokenizer *t, TextSetup *setup) {
  Error error = {0};
  char *path = xformat("%s/config.json", folder);
  ModelSource source = {.path = (char *)folder, .from_huggingface = 1, .documents = {.end = -1, .bos = -1}};
  source.config.json = read_json(path);
  source.config.vocab = tokenizer_vocab_size(t);
  source.files = huggingface_files_of_model(folder);
  if (text_setup(setup, &source, t, &error)) fail_msg("%s", error.message);
  json_decref(source.config.json);
  json_decref(source.files);
  free(path);
}

static int compare_folder(const char *name, const char *text, const json_t *golden) {
  char *folder = xformat(FOLDERS "%s", name);
  Tokenizer *t = load(folder);
  Error error = {0};
  IdVector ids = {0};
  DocumentMarks marks;
  TextSetup setup;
  const json_t *want = json_object_get(golden, "ids"), *end = json_object_get(golden, "end");
  assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, &error), 0);
  if (document_marks_of(t, folder, &marks, &error)) fail_msg("%s", error.message);
  before_prompt(folder, t, &setup);
  int wrong = !same(marks.begin, marks.begins, &ids, want) ||
              !same(setup.before.data, setup.before.count, &ids, want) || marks.end != json_integer_value(end) ||
              marks.contradicts;
  int stops = 0; // where generate stops, the end of a document is one of the places
  for (int i = 0; i < setup.ends.count; i++) stops |= setup.ends.data[i] == marks.end;
  if (wrong || !stops)
    print_error("%s: %s; generate has %d before\n", name, document_marks_text(&marks, t).s, setup.before.count);
  text_setup_free(&setup);
  vec_free(&ids);
  tokenizer_destroy(t);
  free(folder);
  return wrong || !stops;
}

static void test_families(void **state) {
  json_t *cases = read_json(FOLDERS "cases.json"), *golden;
  const char *name, *text = json_string_value(json_object_get(cases, "text"));
  int wrong = 0, count = 0;
  json_object_foreach(json_object_get(cases, "folders"), name, golden) {
    wrong += compare_folder(name, text, golden);
    count++;
  }
  assert_int_equal(wrong, 0);
  assert_in_range(count, 15, 100);
  json_decref(cases);
}

typedef struct Row {
  const char *folder; // whose tokenizer.json
  const char *tokenizer_config, *special_tokens_map, *config, *generation_config; // NULL: not there
  const char *text;   // as it is printed
} Row;

static const Row rows[] = {
    {"llama2", NULL, NULL, NULL, NULL,
     "<s> … </s>, from the post-processor of tokenizer.json and its usual name in tokenizer.json"},
    {"llama2", "{\"add_bos_token\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", NULL, NULL, NULL,
     "<s> … </s>, from add_bos_token of tokenizer_config.json and eos_token of tokenizer_config.json"},
    {"llama2", "{\"add_bos_token\": false, \"bos_token\": \"<s>\", \"eos_token\": \"<unk>\"}", NULL, NULL, NULL,
     "… <unk>, from eos_token of tokenizer_config.json"},
    {"llama2", "{\"add_bos_token\": false, \"model_max_length\": 1000000000000000019884624838656, \"x\": NaN}", NULL,
     NULL, NULL, "… </s>, from its usual name in tokenizer.json"},
    {"llama2", "{\"add_bos_token\": true}", NULL, NULL, NULL, // with which one, nobody says
     "<s> … </s>, from the post-processor of tokenizer.json and its usual name in tokenizer.json"},
    {"qwen2", "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<|im_start|>\"}}", NULL, NULL, NULL,
     "<|im_start|> … <|endoftext|>, from add_bos_token of tokenizer_config.json and its usual name in tokenizer.json"},
    {"qwen2", "{\"eos_token\": \"<no such token>\"}", NULL, "{\"eos_token_id\": 2}", NULL,
     "… <|im_end|>, from eos_token_id of config.json"},
    {"qwen2", "{\"eos_token\": null}", "{\"eos_token\": {\"content\": \"<|im_end|>\"}}", "{\"eos_token_id\": 0}", NULL,
     "… <|im_end|>, from eos_token of special_tokens_map.json"},
    {"qwen2", NULL, NULL, "{\"eos_token_id\": [2, 0]}", "{\"eos_token_id\": 0}",
     "… <|im_end|>, from eos_token_id of config.json"},
    {"qwen2", NULL, NULL, "{}", "{\"eos_token_id\": [2, 0]}",
     "… <|im_end|>, from eos_token_id of generation_config.json"},
    {"qwen2", NULL, NULL, "{\"eos_token_id\": 50256}", NULL, "… <|endoftext|>, from its usual name in tokenizer.json"},
    {"qwen2", NULL, NULL, "{\"eos_token_id\": 30}", NULL, // of another tokenizer: here a letter
     "… <|endoftext|>, from its usual name in tokenizer.json"},
};

static char folder[64];

static int setup(void **state) {
  strcpy(folder, "/tmp/plait-marks-XXXXXX");
  return mkdtemp(folder) == NULL;
}
static int teardown(void **state) { return folder_remove(folder, NULL); }

static void put(const char *name, const char *text) {
  char *path = xformat("%s/%s", folder, name);
  unlink(path);
  FILE *f = text ? fopen(path, "w") : NULL;
  if (text) {
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
  }
  free(path);
}

static void test_rules(void **state) {
  int wrong = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const Row *row = &rows[i];
    Error error = {0};
    DocumentMarks marks;
    char *from = xformat(FOLDERS "%s", row->folder), *to = xformat("%s/tokenizer.json", folder);
    Tokenizer *t = load(from);
    assert_int_equal(tokenizer_save(t, to, &error), 0);
    put("tokenizer_config.json", row->tokenizer_config);
    put("special_tokens_map.json", row->special_tokens_map);
    put("config.json", row->config);
    put("generation_config.json", row->generation_config);
    for (int file = 0; file < 2; file++) { // the folder, and the file in it
      if (document_marks_of(t, file ? to : folder, &marks, &error)) fail_msg("%s", error.message);
      if (strcmp(document_marks_text(&marks, t).s, row->text)) {
        print_error("row %zu: \"%s\"\n", i, document_marks_text(&marks, t).s);
        wrong++;
      }
    }
    tokenizer_destroy(t);
    free(from);
    free(to);
  }
  assert_int_equal(wrong, 0);
}

static void test_broken_files(void **state) {
  static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "config.json",
                                      "generation_config.json"};
  Tokenizer *t = load(FOLDERS "llama2");
  for (int i = 0; i < 4; i++) {
    Error error = {0};
    DocumentMarks marks;
    put(names[i], i % 2 ? "[1]" : "{\"eos_token\": ");
    assert_int_equal(document_marks_of(t, folder, &marks, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, names[i]));
    put(names[i], NULL);
  }
  tokenizer_destroy(t);
}

static void write_data(const char *prefix, char *record) {
  IndexedWriter w;
  Error error = {0};
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_UINT16, &error), 0);
  assert_int_equal(indexed_writer_add_document(&w, (uint32_t[]){1, 7, 8, 2}, 4, &error), 0);
  w.record = record;
  if (indexed_writer_commit(&w, &error)) fail_msg("%s", error.message);
}

static int read_record(const char *prefix, DocumentMarks *marks, Error *error) {
  IndexedDataset d;
  *error = (Error){0};
  assert_int_equal(indexed_open(&d, prefix, error), 0);
  int code = document_marks_read(&d, marks, error);
  indexed_close(&d);
  return code;
}

static void test_record(void **state) {
  Tokenizer *t = load(FOLDERS "llama2");
  DocumentMarks marks = {.begin = {1}, .begins = 1, .end = 2, .bos = 1}, none = {.end = -1, .bos = -1}, read;
  Error error;
  char *prefix = xformat("%s/d", folder);
  write_data(prefix, NULL);
  assert_int_equal(read_record(prefix, &read, &error), 0);
  write_data(prefix, document_marks_record(&marks, t, 1, 4));
  assert_int_equal(read_record(prefix, &read, &error), 1);
  assert_true(document_marks_equal(&read, &marks));
  assert_false(document_marks_equal(&read, &none));
  write_data(prefix, document_marks_record(&none, t, 1, 4));
  assert_int_equal(read_record(prefix, &read, &error), 1);
  assert_true(document_marks_equal(&read, &none));
  write_data(prefix, document_marks_record(&marks, t, 1, 5)); // of other data
  assert_int_equal(read_record(prefix, &read, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "d.documents.json: records 1 documents of 5 tokens, but "));
  for (int i = 0; i < 4; i++) {
    static const char *const bad[] = {"{\"begin\": [1], \"end\": \"x\"", "[]", "{\"begin\": [-1], \"end\": 2}",
                                      "{\"end\": 2}"};
    put("d.documents.json", bad[i]);
    assert_int_equal(read_record(prefix, &read, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, "d.documents.json"));
  }
  write_data(prefix, NULL); // what is written without a record has none of what was there
  assert_int_equal(read_record(prefix, &read, &error), 0);
  free(prefix);
  tokenizer_destroy(t);
}

// A model that was trained here: as its corpus has it, not as the files say.
static void test_recorded_in_a_run(void **state) {
  Tokenizer *t = load(FOLDERS "llama2");
  Error error = {0};
  TextSetup text;
  char why[900];
  ModelSource source = {
      .path = (char *)"run", .documents_known = DOCUMENTS_RECORDED, .documents = {.end = 0, .bos = -1}};
  source.config.vocab = tokenizer_vocab_size(t);
  source.files = huggingface_files_of_model(FOLDERS "llama2");
  assert_int_equal(text_setup(&text, &source, t, &error), 0);
  assert_int_equal(text.before.count, 0);
  assert_int_equal(text.eos, 0);
  assert_true(text_setup_contradicts(&text, &source, t, why, sizeof why));
  assert_non_null(strstr(why, "run was trained on are … <unk>, and its tokenizer's files say <s> … </s>"));
  text_setup_free(&text);
  source.documents = (DocumentMarks){.begin = {1}, .begins = 1, .end = 2, .bos = 1};
  assert_int_equal(text_setup(&text, &source, t, &error), 0);
  assert_int_equal(text.before.count, 1);
  assert_int_equal(text.eos, 2);
  assert_false(text_setup_contradicts(&text, &source, t, why, sizeof why));
  text_setup_free(&text);
  json_decref(source.files);
  tokenizer_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),     cmocka_unit_test(test_rules),
                                     cmocka_unit_test(test_broken_files), cmocka_unit_test(test_record),
                                     cmocka_unit_test(test_recorded_in_a_run)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
