// What a file is: any bytes are of some kind, told in printable words, and --as-text takes whatever there is.
#include "base/file_kind.h"
#include "tokenizer/text_check.h"
#include "tokenizer/text_kind.h"
#include "fuzz.h"
#include <string.h>

static void check_counts(const uint8_t *data, size_t size) {
  TextCheck check = {0};
  char why[300] = "";
  text_check_scan(&check, (const char *)data, size, true);
  CHECK(check.characters <= (int64_t)size &&
        check.invalid + check.wide + check.nul + check.control <= check.characters);
  CHECK(check.replaced <= check.wide);
  CHECK((text_check_verdict(&check, why, sizeof why) == TEXT_IS_FINE) == !why[0]);
  check.lines = true;
  CHECK(text_check_verdict(&check, why, sizeof why) != TEXT_IS_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const paths[] = {"a.txt", "a.jsonl", "a", "a.json.gz", "-"};
  unsigned byte = fuzz_byte(&data, &size);
  const char *path = paths[byte % 5], *words;
  FileKind kind = file_kind_of(data, size, &words);
  CHECK((kind == FILE_KIND_EMPTY) == !size && kind > FILE_KIND_UNKNOWN && kind <= FILE_KIND_OTHER);
  CHECK(!strncmp(words, "is ", 3));
  check_counts(data, size);
  for (int i = 0; i < 6; i++) { // the whole of a file, and the beginning of one
    TextKindOptions how = {i / 2 == 1 ? "k" : NULL, i / 2 == 2, false};
    TextLines lines;
    Error error = {0};
    int code = text_kind_look(path, (const char *)data, size, i % 2, &how, &lines, &error);
    fuzz_check(code, &error);
    CHECK(code == PLAIT_OK || code == PLAIT_BAD_INPUT);
    bool named = how.lines || byte % 5 == 1;
    CHECK((lines == TEXT_LINES_NAMED) == named);
    CHECK(lines != TEXT_LINES_FOUND || (!code && memchr(data, '{', size)));
    how.as_text = true;
    CHECK(!text_kind_look(path, (const char *)data, size, i % 2, &how, &lines, &error) && lines != TEXT_LINES_FOUND);
  }
  return 0;
}
