// The kind of a file that is given as text, told by its first bytes and lines: one text, lines of JSON, or something
// that a tokenizer should not read. Names of files decide only where they say .jsonl.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct TextKindOptions {
  const char *key;   // of lines of JSON, under which the text is; NULL: "text"
  bool lines;        // each file holds lines of JSON, whatever it looks like
  bool as_text;      // contents decide nothing: a file whose name does not say .jsonl is one text
} TextKindOptions;

typedef enum TextLines { TEXT_IS_ONE, TEXT_LINES_NAMED, TEXT_LINES_FOUND } TextLines; // found: the contents say it

// head: the first bytes of the file (unpacked where it is packed); whole: they are all. PLAIT_BAD_INPUT: it is binary,
// packed, not UTF-8, a pointer to another file, or JSON that is not one object a line. The more bytes, the surer:
enum { TEXT_KIND_HEAD = 64 << 10 };
int text_kind_look(const char *path, const char *head, size_t bytes, bool whole, const TextKindOptions *how,
                   TextLines *lines, Error *error);
// The same for a regular file. Returns 1 where it is packed (and can be unpacked), 0 where it is not.
int text_kind_check(const char *path, const TextKindOptions *how, Error *error);
