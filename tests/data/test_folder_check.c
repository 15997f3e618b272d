// tier 1; rooms tokenizer
// What folders and files hold in the place of what plait reads, and the sentence that says so.
#include "base/file_kind.h"
#include "tokenizer/folder_check.h"
#include "scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { FILES = 5 };
#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 59700\n"
#define BYTES(text) text, sizeof(text) - 1
#define WEIGHTS BYTES("\x10\0\0\0\0\0\0\0{\"a\": {}}       ")

typedef struct Row {
  const char *name;
  struct { const char *name, *content; size_t bytes; } files[FILES]; // a name that ends with / is a folder
  char check;      // t: tokenizer, m: model, c: model with a config.json
  const char *path; // what is given, in the folder; NULL: the folder
  const char *says[3];
} Row;

static const Row rows[] = {
    {"whole", {{"model.safetensors", WEIGHTS}, {"config.json", BYTES("{}")}}, 'c', NULL, {NULL}},
    {"whole_bom", {{"model.safetensors", WEIGHTS}, {"config.json", BYTES("\xef\xbb\xbf\n {}")}}, 'c', NULL, {NULL}},
    {"config_elsewhere", {{"model.safetensors", WEIGHTS}}, 'm', NULL, {NULL}},
    {"no_config", {{"model.safetensors", WEIGHTS}}, 'c', NULL, {"holds weights and no config.json"}},
    {"shards",
     {{"model-00001-of-00001.safetensors", WEIGHTS}, {"model.safetensors.index.json", BYTES("{}")}},
     'm',
     NULL,
     {NULL}},
    {"pointer",
     {{"model.safetensors", BYTES(LFS)}},
     'm',
     NULL,
     {"/model.safetensors is a Git LFS pointer and not the file itself", "git lfs pull"}},
    {"pointer_shard",
     {{"model-00001-of-00002.safetensors", WEIGHTS},
      {"model-00002-of-00002.safetensors", BYTES(LFS)},
      {"model.safetensors.index.json", BYTES("{}")}},
     'm',
     NULL,
     {"/model-00002-of-00002.safetensors is a Git LFS pointer"}},
    {"pointer_index", {{"model.safetensors.index.json", BYTES(LFS)}}, 'm', NULL, {"index.json is a Git LFS pointer"}},
    {"pointer_config",
     {{"model.safetensors", WEIGHTS}, {"config.json", BYTES(LFS)}},
     'm',
     NULL,
     {"/config.json is a Git LFS pointer"}},
    {"annex",
     {{"model.safetensors", BYTES("/annex/objects/SHA256E-s1--0.safetensors\n")}},
     'm',
     NULL,
     {"is a git-annex pointer", "git annex get"}},
    {"lost",
     {{"model.safetensors", "->nowhere", 0}},
     'm',
     NULL,
     {"/model.safetensors is a symbolic link that leads nowhere"}},
    {"web_page",
     {{"model.safetensors", BYTES("<!DOCTYPE html>\n<html>")}},
     'm',
     NULL,
     {"is a web page and not the file"}},
    {"pickled", {{"model.safetensors", BYTES("\x80\2}q\0X")}}, 'm', NULL, {"model.safetensors is a pickle of Python"}},
    {"json_weights", {{"model.safetensors", BYTES("{\"a\": 1}")}}, 'm', NULL, {"model.safetensors is JSON"}},
    {"bare_shards",
     {{"model-00001-of-00002.safetensors", WEIGHTS}, {"model-00002-of-00002.safetensors", WEIGHTS}},
     'm',
     NULL,
     {"holds shards (2 files, as model-00001-of-00002.safetensors) without model.safetensors.index.json"}},
    {"adapter",
     {{"adapter_model.safetensors", WEIGHTS},
      {"adapter_config.json", BYTES("{\"base_model_name_or_path\": \"org/base\"}")}},
     'm',
     NULL,
     {"holds an adapter of org/base and not a whole model", "merge_and_unload"}},
    {"broken_adapter",
     {{"adapter_model.bin", BYTES("PK\3\4")}, {"adapter_config.json", BYTES("{")}},
     'm',
     NULL,
     {"holds an adapter and not a whole model"}},
    {"pytorch",
     {{"pytorch_model.bin", BYTES("")}},
     'm',
     NULL,
     {"holds its weights as pytorch_model.bin, and plait reads safetensors only", "save_pretrained"}},
    {"pytorch_shards",
     {{"pytorch_model-00001-of-00002.bin", BYTES("PK\3\4")}, {"pytorch_model.bin.index.json", BYTES("{}")}},
     'm',
     NULL,
     {"holds its weights as pytorch_model-00001-of-00002.bin"}},
    {"other_name", {{"consolidated.safetensors", WEIGHTS}}, 'm', NULL, {"holds consolidated.safetensors, but neither"}},
    {"gguf", {{"x.Q4_K_M.gguf", BYTES("GGUF\3")}}, 'm', NULL, {"holds its weights as x.Q4_K_M.gguf"}},
    {"original",
     {{"consolidated.00.pth", BYTES("PK\3\4")}, {"params.json", BYTES("{}")}},
     'm',
     NULL,
     {"holds its weights as consolidated.00.pth"}},
    {"unfinished",
     {{"model.safetensors.incomplete", BYTES("x")}},
     'm',
     NULL,
     {"has model.safetensors.incomplete, of a download that has not ended"}},
    {"cache",
     {{"blobs/", NULL, 0},
      {"snapshots/", NULL, 0},
      {"snapshots/abc/", NULL, 0},
      {"snapshots/abc/model.safetensors", WEIGHTS}},
     'm',
     NULL,
     {"has no model.safetensors, but its folder snapshots/abc has one: give that folder"}},
    {"around", {{"inner/", NULL, 0}, {"inner/model.safetensors", WEIGHTS}}, 'm', NULL, {"its folder inner has one"}},
    {"nothing", {{0}}, 'm', NULL, {"holds neither model.safetensors nor model.safetensors.index.json: it is empty"}},
    {"not_a_folder",
     {{"model.safetensors", WEIGHTS}},
     'm',
     "model.safetensors",
     {"is a file of safetensors; give a Hugging Face folder"}},
    {"packed_folder",
     {{"m.tar.gz", BYTES("\x1f\x8b\x08")}},
     'm',
     "m.tar.gz",
     {"is packed (gzip): unpack it first; give a Hugging Face"}},
    {"absent",
     {{0}},
     'm',
     "nosuch",
     {"nosuch does not exist; give a Hugging Face folder", "plait downloads nothing; hf download NAME"}},

    {"tokenizer", {{"tokenizer.json", BYTES("{}")}, {"tokenizer.model", BYTES("x")}}, 't', NULL, {NULL}},
    {"tokenizer_file", {{"any.name", BYTES("{}")}}, 't', "any.name", {NULL}},
    {"tokenizer_pointer", {{"tokenizer.json", BYTES(LFS)}}, 't', NULL, {"/tokenizer.json is a Git LFS pointer"}},
    {"tokenizer_file_pointer", {{"t.json", BYTES(LFS)}}, 't', "t.json", {"/t.json is a Git LFS pointer"}},
    {"model_only",
     {{"tokenizer.model", BYTES("\n\x0e\n\5<unk>\x15\0\0")}},
     't',
     NULL,
     {"has tokenizer.model and no tokenizer.json; this line makes one", "AutoTokenizer", "save_pretrained"}},
    {"model_named",
     {{"tokenizer.model", BYTES("\n\x0e\n\5<unk>\x15\0\0")}},
     't',
     "tokenizer.json",
     {"has tokenizer.model and no tokenizer.json"}},
    {"model_file",
     {{"tokenizer.model", BYTES("\n\x0e\n\5<unk>\x15\0\0")}},
     't',
     "tokenizer.model",
     {"/tokenizer.model is a model of SentencePiece"}},
    {"vocab",
     {{"vocab.json", BYTES("{}")}, {"merges.txt", BYTES("a b")}},
     't',
     NULL,
     {"has vocab.json and no tokenizer.json"}},
    {"tiktoken", {{"qwen.tiktoken", BYTES("IQ== 0")}}, 't', NULL, {"has qwen.tiktoken and no tokenizer.json"}},
    {"gguf_tokenizer", {{"x.gguf", BYTES("GGUF\3")}}, 't', NULL, {"has x.gguf, a GGUF file"}},
    {"gguf_file", {{"x.gguf", BYTES("GGUF\3")}}, 't', "x.gguf", {"/x.gguf is a GGUF file (llama.cpp)"}},
    {"adapter_tokenizer",
     {{"adapter_config.json", BYTES("{}")}},
     't',
     NULL,
     {"holds an adapter and no tokenizer.json"}},
    {"zip", {{"t.json", BYTES("PK\3\4")}}, 't', "t.json", {"/t.json is packed (zip"}},
    {"utf16", {{"t.json", BYTES("\xff\xfe{\0}\0")}}, 't', "t.json", {"/t.json is UTF-16 text"}},
    {"weights",
     {{"m.safetensors", WEIGHTS}},
     't',
     "m.safetensors",
     {"is a file of safetensors; give a tokenizer.json"}},
    {"empty_folder", {{0}}, 't', NULL, {"has no tokenizer.json: it is empty"}},
    {"text_is_for_the_parser", {{"t.json", BYTES("Entry not found")}}, 't', "t.json", {NULL}},
};

static void put(const char *folder, const char *name, const char *content, size_t bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (name[strlen(name) - 1] == '/') {
    assert_int_equal(mkdir(path, 0777), 0);
    return;
  }
  if (!strncmp(content, "->", 2)) {
    assert_int_equal(symlink(content + 2, path), 0);
    return;
  }
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  if (bytes) assert_int_equal(fwrite(content, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
}

static int try_row(const Row *row) {
  char folder[64], path[256];
  Error error = {0};
  int wrong = 0;
  scratch_create(folder);
  for (int i = 0; i < FILES && row->files[i].name; i++)
    put(folder, row->files[i].name, row->files[i].content, row->files[i].bytes);
  snprintf(path, sizeof path, "%s%s%s", folder, row->path ? "/" : "", row->path ? row->path : "");
  int code = row->check == 't' ? folder_check_tokenizer(path, &error)
                               : folder_check_model(path, row->check == 'c', &error);
  if (!row->says[0]) wrong = code != PLAIT_OK;
  else {
    wrong = code != PLAIT_BAD_INPUT || strncmp(error.message, folder, strlen(folder)) != 0;
    for (int i = 0; i < 3 && row->says[i]; i++) wrong |= !strstr(error.message, row->says[i]);
  }
  if (wrong) print_error("%s: %d \"%s\"\n", row->name, code, error.message);
  scratch_remove(folder);
  return wrong;
}

static void test_rows(void **state) {
  int wrong = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) wrong += try_row(&rows[i]);
  assert_int_equal(wrong, 0);
}

// The first bytes of safetensors are the length of its header, which may be those of another format.
static void test_lengths_like_magic(void **state) {
  static const char *const lengths[] = {"\x1f\x8b\0\0\0\0\0\0{", "PK\3\4\0\0\0\0{", "BZh\0\0\0\0\0{"};
  const char *words;
  for (int i = 0; i < 3; i++) assert_int_equal(file_kind_of(lengths[i], 9, &words), FILE_KIND_SAFETENSORS);
  assert_int_equal(file_kind_of("\x1f\x8b\x08\0\0\0\0\0\0\3", 10, &words), FILE_KIND_PACKED);
}

// A name on the Hub is one thing, a path of a file that is not there another.
static void test_names_of_the_hub(void **state) {
  static const char *const names[] = {"gpt2",   "meta-llama/Llama-3.1-8B", "no/such/folder", "./gpt2", "no.json",
                                      "models/"};
  for (int i = 0; i < 6; i++) {
    Error error = {0};
    char expected[100];
    assert_int_equal(folder_check_tokenizer(names[i], &error), PLAIT_BAD_INPUT);
    snprintf(expected, sizeof expected, "hf download %s --local-dir", i < 2 ? names[i] : "NAME");
    if (!strstr(error.message, expected)) fail_msg("%s: %s", names[i], error.message);
  }
}

// A pipe, which cannot be read twice, is left for its reader.
static void test_pipe(void **state) {
  char folder[64], path[128];
  Error error = {0};
  scratch_create(folder);
  snprintf(path, sizeof path, "%s/pipe", folder);
  assert_int_equal(mkfifo(path, 0666), 0);
  assert_int_equal(folder_check_tokenizer(path, &error), PLAIT_OK);
  scratch_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_lengths_like_magic),
                                     cmocka_unit_test(test_names_of_the_hub), cmocka_unit_test(test_pipe)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
