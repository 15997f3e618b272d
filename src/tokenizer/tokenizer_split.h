// Pre-tokenization: text → words, by a list of steps (regular expressions with PCRE2, digits, ▁).
#pragma once
#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"
#include <stddef.h>

typedef enum SplitKind { SPLIT_REGEX, SPLIT_STRING, SPLIT_METASPACE, SPLIT_NOTHING } SplitKind;
typedef enum SplitBehavior {
  SPLIT_ISOLATED,
  SPLIT_REMOVED,
  SPLIT_CONTIGUOUS,
  SPLIT_PREVIOUS,
  SPLIT_NEXT
} SplitBehavior;
typedef enum PrependScheme { PREPEND_NEVER, PREPEND_ALWAYS, PREPEND_FIRST } PrependScheme;

typedef struct SplitStep {
  SplitKind kind;
  SplitBehavior behavior;
  int invert;
  int prefix_space;   // put a space before a piece that begins with none
  void *regex;        // pcre2_code over letters, SPLIT_REGEX
  UnicodeMap letters; // SPLIT_REGEX: the letter of each character (tokenizer_pattern.h)
  char *string;       // SPLIT_STRING; SPLIT_METASPACE: the replacement character
  int string_bytes;
  PrependScheme prepend; // SPLIT_METASPACE
  int digits;         // SPLIT_REGEX: it looks at digits only, so it never cuts or joins anything else
  int known;          // SPLIT_REGEX: it is known to match from every split_cut on
  int split;          // SPLIT_METASPACE: also cut before the character
} SplitStep;

extern const char SPLIT_GPT2[]; // GPT-2's expression

// Compiles an expression in the syntax that Hugging Face reads. PLAIT_BAD_INPUT with a reason.
int split_compile(SplitStep *step, const char *pattern, size_t bytes, Error *error);
// Steps by Rust's sets of characters, which are not the expressions'.
typedef enum SplitClass {
  SPLIT_DIGIT,     // each digit
  SPLIT_DIGITS,    // each run of digits
  SPLIT_SPACE,     // each white space
  SPLIT_WORDS,     // each run of characters of words, and each run of what is neither that nor white space
  SPLIT_PUNCTUATION // each punctuation mark
} SplitClass;
int split_compile_class(SplitStep *step, SplitClass which, Error *error);
void split_free(SplitStep *step);

typedef struct SplitScratch {
  void *match, *context, *stack; // PCRE2 match data, match context, JIT stack
  ByteVector buffer[16];         // text that a step had to change, by step
  ByteVector letters[16];        // text as letters, by step
} SplitScratch;
void split_scratch_free(SplitScratch *scratch);

// The matches of a step's expression in valid UTF-8, one after the other. An empty match counts, but not right after
// the match before it.
typedef struct SplitMatches {
  const SplitStep *step;
  SplitScratch *scratch;
  const char *text, *letters;
  size_t count, from, last;  // letters; where to look next; where the last match ended, SIZE_MAX: none yet
  size_t letter, byte;       // a place in both, to count from
  int ascii;                 // letters are bytes
  size_t start, end;         // of the match that was found, in bytes
} SplitMatches;
// `slot`: which of the scratch's buffers are free.
void matches_begin(SplitMatches *m, const SplitStep *step, SplitScratch *scratch, int slot, const char *text,
                   size_t bytes);
int matches_next(SplitMatches *m, Error *error); // 1 found, 0 none is left, negative: it gave up

enum { SPLIT_AT_START = 1, SPLIT_CONTINUES = 2 }; // the piece starts the text; nothing may be put before the piece

// Where a text may be cut (bits). At a cut before " x" between ASCII letters every known expression starts a match, and
// so it does after a line's end between characters that are not white space ("/" aside, which o200k joins to it).
enum { CUT_SPACES = 1, CUT_LINES = 2 };
size_t split_cut(const char *text, size_t bytes, size_t from, int cuts); // first such position >= from, else bytes

// Bytes of the Unicode white space that the text begins with; 0: none. The other: of the one it ends with.
int utf8_space(const char *text, size_t bytes);
int utf8_space_before(const char *text, size_t bytes);

// Calls word(argument, text, bytes) for the words of one piece of valid UTF-8, in order. Negative on failure.
typedef struct SplitSink { void (*word)(void *argument, const char *text, size_t bytes); void *argument; } SplitSink;
int split_text(const SplitStep *steps, int count, SplitScratch *scratch, const char *text, size_t bytes, int flags,
               const SplitSink *sink, Error *error);
