// tokenizer.json: what loads must encode and decode any text, and load again from what it saves.
#include "tokenizer/tokenizer.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static const char *const texts[] = {"",
                                    " ",
                                    "Hello, world! It's 2024  \n\n\tok <|endoftext|></s><s>",
                                    "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80 caf\xc3\xa9 e\xcc\x81",
                                    "\xff\xfe\x80 bad \xc3 bytes \xed\xa0\x80",
                                    "aaaaaaaaaaaaaaaaaaaaaaaa 1234567890\xe2\x96\x81"};

static void use(const Tokenizer *t) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    IdVector ids = {0};
    ByteVector text = {0};
    Error error = {0};
    int code = tokenizer_encode(t, texts[i], strlen(texts[i]), i & 1, &ids, &error);
    fuzz_check(code, &error);
    if (!code) {
      for (int k = 0; k < ids.count; k++)
        CHECK(ids.data[k] >= 0 && ids.data[k] < t->vocab_size, "id %d of %d", ids.data[k], t->vocab_size);
      code = tokenizer_decode(t, ids.data, ids.count, !(i & 2), &text, &error);
      fuzz_check(code, &error);
      CHECK(!code, "ids that encoding gave do not decode: %s", error.message);
    }
    TokenizerStream stream;
    tokenizer_stream_begin(&stream, t, i & 1);
    for (int k = 0; k < ids.count; k++) tokenizer_stream_push(&stream, ids.data[k], &text);
    tokenizer_stream_push(&stream, -1, &text);
    tokenizer_stream_push(&stream, t->vocab_size, &text);
    tokenizer_stream_end(&stream, &text);
    size_t n = strlen(texts[i]), cut = tokenizer_cut(t, texts[i], n, n / 2);
    CHECK(cut <= n && (cut == n || cut >= n / 2));
    vec_free(&ids);
    vec_free(&text);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Tokenizer *t = NULL;
  Error error = {0};
  int code = tokenizer_parse((const char *)data, size, "t.json", &t, &error);
  fuzz_check(code, &error);
  if (!code) {
    use(t);
    CHECK(tokenizer_save(t, "saved.json", &error) == PLAIT_OK, "%s", error.message);
    size_t saved_size;
    const void *saved = fuzz_file_data("saved.json", &saved_size);
    CHECK(saved_size == size && !memcmp(saved, data, size), "saved differently than read");
    tokenizer_destroy(t);
  }
  fuzz_files_clear();
  return 0;
}
