// tier 1
// Regular expressions as Oniguruma means them, whatever PCRE2 and the system's Unicode say; what is refused, and how.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tokenizer/tokenizer_split.h"
#include "tokenizer/unicode_normal.h"
#include <stdio.h>
#include <string.h>

// All matches, each followed by a bar. What is wanted was asked of Hugging Face's tokenizers 0.23.3.
static const struct { const char *pattern, *text, *matches;
} meanings[] = {
    {"\\h+", "x0Fg \tz", "0F|"},                          // hexadecimal digits, not spaces
    {"\\H+", "0Fg \t1", "g \t|"},
    {".$", "ab\ncd\n", "b|d|"},                            // ends of lines, not of the text only
    {"^.", "ab\ncd\n", "a|c|"},
    {"a.b", "a\nb a\rb", "a\rb|"},                         // only \n ends a line
    {"(?m:a.b)", "a\nb", "a\nb|"},                         // m is what others call s
    {"b\\Z", "ab\nb\n", "b|"},
    {"b\\z", "ab\nb\n", ""},
    {"a{2}+", "aaaaa", "aaaa|"},                           // once more, not possessive
    {"a{,2}b", "aaab b", "aab|b|"},
    {"x{2}?y", "xxy y", "xxy|y|"},                         // {n}? is an optional {n}
    {"a{x}", "a{x}", "a{x}|"},
    {"[a-z&&[^aeiou]]+", "bcad", "bc|d|"},
    {"[^(\\s|[.,])]+", "ab (c|d).e", "ab|c|d|e|"},         // a class in a class
    {"[[:^alpha:][x]]+", "ab1x-c", "1x-|"},
    {"[]a]+", "a]b", "a]|"},
    {"\\p{^L}+|\\P{^Lu}", "a1B", "1|B|"},
    {"\\w+", "a\xc2\xb2", "a\xc2\xb2|"},                   // alone \w has superscript two
    {"[\\w]+", "a\xc2\xb2", "a|"},                         // in brackets it has not
    {"\\b\\w", "\xc3\xa9t\xc3\xa9 x", "\xc3\xa9|x|"},
    {"(?i:'s|'ve)", "'S 'VE '\xc5\xbf", "'S|'VE|'\xc5\xbf|"},
    {"(?i)a(?-i)b|C", "Ab aB C AC", "Ab|AC|"},            // (?-i) holds for all that is left of its group
    {"(?i:s\\st)", "S t st", "S t|"},                      // s and t with something between them are not a pair
    {"(?i)f\\di", "F1i fi", "F1i|"},
    {"(?i:s\\bt|s$t|s(?=t)i|f\\Rl)", "st F\nL", "F\nL|"},
    {"\\R", "a\r\nb\n\xe2\x80\xa8", "\r\n|\n|\xe2\x80\xa8|"},
    {"(?x) a b # c\n | d", "ab d", "ab|d|"},
    {"\\v", "\v\n", "\v|"},
    {"\\s", "\xe1\xa0\x8e\xe3\x80\x80", "\xe3\x80\x80|"},  // U+180E is not a space
    {"\\p{Han}+", "\xe6\xb2\xb3\xe3\x81\x8c\xe6\xb0\xb4", "\xe6\xb2\xb3|\xe6\xb0\xb4|"},
    {"\\p{So}", "\xf0\x9f\xa9\xb7\xf0\x9f\xab\xa9", "\xf0\x9f\xa9\xb7|\xf0\x9f\xab\xa9|"}, // of Unicode 15 and 16
    {"\\p{Lu}\\p{Ll}", "\xf0\x90\xb5\x90\xf0\x90\xb5\xb0", "\xf0\x90\xb5\x90\xf0\x90\xb5\xb0|"}, // Garay, Unicode 16
    {"(?<word>a)(?'b'b)(c)", "abc", "abc|"},
    {"(?<=\\s)x|(?<!a)y", " xy ay", "x|y|"},
};

static void compile(SplitStep *step, const char *pattern) {
  Error error = {0};
  *step = (SplitStep){0};
  if (split_compile(step, pattern, strlen(pattern), &error) < 0) fail_msg("%s: %s", pattern, error.message);
}

static void find(const char *pattern, const char *text, ByteVector *out) {
  SplitStep step;
  SplitScratch scratch = {0};
  SplitMatches m;
  Error error = {0};
  compile(&step, pattern);
  out->count = 0;
  matches_begin(&m, &step, &scratch, 0, text, strlen(text));
  while (matches_next(&m, &error) > 0) {
    if (m.start == m.end) continue;
    bytes_append(out, text + m.start, m.end - m.start);
    vec_push(out, '|');
  }
  vec_push(out, 0);
  split_scratch_free(&scratch);
  split_free(&step);
}

static void test_meanings(void **state) {
  ByteVector found = {0};
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    find(meanings[i].pattern, meanings[i].text, &found);
    if (strcmp(found.data, meanings[i].matches))
      fail_msg("%s on \"%s\": \"%s\", not \"%s\"", meanings[i].pattern, meanings[i].text, found.data,
               meanings[i].matches);
  }
  vec_free(&found);
}

static const struct { const char *pattern, *says;
} refused[] = {
    {"(a)\\1", "refers back to a group"},
    {"\\X", "\\X, which is not supported"},
    {"\\Ka", "\\K"},
    {"\\Ga", "\\G"},
    {"\\k<a>", "\\k"},
    {"\\pL", "name in braces"},
    {"\\p{Klingon}", "\\p{Klingon}"},
    {"[[:odd:]]", "[:odd:]"},
    {"\\xE9", "\\xE9"},
    {"\\x{110000}", "not a character"},
    {"\\u12", "too few digits"},
    {"(?i:\xc3\xa9)", "letters outside ASCII"},
    {"(?i:\\p{Lu})", "letters outside ASCII"},
    {"(?i:pass)", "\"ss\""},
    {"[a", "no ]"},
    {"[z-a]", "end is before its start"},
    {"[a-\\d]", "ends with another class"},
    {"(a", "no )"},
    {"a)", "no ("},
    {"*a", "nothing that a *"},
    {"a|+", "nothing that a +"},
    {"^*", "matches no character (an anchor or a lookaround)"},
    {"(?i:s\\x74)", "\"st\""},
    {"a{3,2}", "exchanged"},
    {"a{70000}", "65535"},
    {"(?~a)", "not supported"},
    {"(?(1)a|b)", "not supported"},
    {"a\\", "backslash"},
    {"\xff", "not UTF-8"},
    {"(?<=a+)b", "lookbehind"},
};

static void test_refused(void **state) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    SplitStep step = {0};
    Error error = {0};
    int code = split_compile(&step, refused[i].pattern, strlen(refused[i].pattern), &error);
    if (code >= 0) fail_msg("accepted: %s", refused[i].pattern);
    assert_int_equal(code, PLAIT_BAD_INPUT);
    if (!strstr(error.message, refused[i].says)) fail_msg("%s: %s", refused[i].pattern, error.message);
  }
  ByteVector deep = {0};
  Error error = {0};
  SplitStep step = {0};
  for (int i = 0; i < 200; i++) vec_push(&deep, '(');
  assert_int_equal(split_compile(&step, deep.data, (size_t)deep.count, &error), PLAIT_BAD_INPUT);
  deep.count = 0;
  for (int i = 0; i < 200; i++) vec_push(&deep, '[');
  assert_int_equal(split_compile(&step, deep.data, (size_t)deep.count, &error), PLAIT_BAD_INPUT);
  vec_free(&deep);
}

// ---- sets and normal forms -----------------------------------------------------------------------------------------

static void test_sets(void **state) {
  static const struct { const char *name; uint32_t code; int has;
  } rows[] = {{"l", 'a', 1},          {"l", '1', 0},          {"lu", 0x10D50, 1}, {"*space", 0x180E, 0},
              {"*space", 0x3000, 1},  {"*word", 0x24B6, 1},   {"*word", 0x1F130, 1}, {"*word", 0x1F1E6, 0},
              {"*word", '_', 1},      {"*numeric", 0xBD, 1},  {"*numeric", 0x4E09, 0}, {"\\w", 0xB2, 1},
              {"[\\w]", 0xB2, 0},     {"any", 0x10FFFF, 1},   {"cn", 0x378, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    UnicodeSet set = {0};
    assert_true(unicode_set_named(&set, rows[i].name));
    if (unicode_set_has(&set, rows[i].code) != rows[i].has) fail_msg("%s %X", rows[i].name, (unsigned)rows[i].code);
    vec_free(&set);
  }
  UnicodeSet set = {0}, all = {0};
  assert_false(unicode_set_named(&set, "nothing"));
  // White space of added tokens is what utf8_space has by hand.
  unicode_set_named(&set, "*space");
  for (uint32_t c = 0; c < 0x20000; c++) {
    char text[4];
    int n = c >= 0xD800 && c < 0xE000 ? 0 : utf8_put(c, text);
    if (n && (utf8_space(text, (size_t)n) == n) != unicode_set_has(&set, c)) fail_msg("space %X", (unsigned)c);
  }
  unicode_set_join(&all, &set);
  unicode_set_invert(&all);
  unicode_set_join(&all, &set);
  assert_int_equal(all.count, 1);
  assert_int_equal(all.data[0].first, 0);
  assert_int_equal(all.data[0].end, UNICODE_END);
  vec_free(&set);
  vec_free(&all);
}

static void test_forms(void **state) {
  static const struct { UnicodeForm form; const char *text, *becomes; // NULL: it stays
  } rows[] = {
      {UNICODE_NFC, "plain ASCII text", NULL},
      {UNICODE_NFC, "caf\xc3\xa9", NULL},
      {UNICODE_NFC, "cafe\xcc\x81!", "caf\xc3\xa9!"},
      {UNICODE_NFC, "\xff" "e\xff\xcc\x81", NULL},                // nothing is joined across a bad byte
      {UNICODE_NFC, "e\xcc\x81\xff", "\xc3\xa9\xff"},
      {UNICODE_NFC, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"}, // Hangul
      {UNICODE_NFD, "\xed\x95\x9c", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"},
      {UNICODE_NFD, "a\xcc\x82\xcc\xa3", "a\xcc\xa3\xcc\x82"},    // marks in order
      {UNICODE_NFKC, "\xef\xac\x81\xef\xbc\xa1\xe2\x91\xa0", "fiA1"},
      {UNICODE_NFKD, "\xc2\xbd", "1\xe2\x81\x84" "2"},
      {UNICODE_LOWERCASE, "A\xc3\x89\xc4\xb0", "a\xc3\xa9i\xcc\x87"},
      {UNICODE_STRIP_ACCENTS, "e\xcc\x81x", "ex"},
  };
  UnicodeNormal *normal = unicode_normal_create();
  UnicodeScratch scratch = {0};
  ByteVector out = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *text = rows[i].text;
    int changed = unicode_normalize(normal, rows[i].form, &scratch, text, strlen(text), 1 << 20, &out);
    const char *want = rows[i].becomes ? rows[i].becomes : text, *have = changed ? out.data : text;
    size_t bytes = changed ? (size_t)out.count : strlen(text);
    if (bytes != strlen(want) || memcmp(have, want, bytes)) fail_msg("row %zu: %.*s", i, (int)bytes, have);
    if (!rows[i].becomes && i < 2) assert_int_equal(changed, 0);
  }
  // Many marks after one letter take no longer than sorting them, and a limit holds.
  ByteVector marks = {0};
  for (int i = 0; i < 200000; i++) bytes_append(&marks, i % 2 ? "\xcc\x81" : "\xcc\xa3", 2);
  assert_int_equal(unicode_normalize(normal, UNICODE_NFD, &scratch, marks.data, (size_t)marks.count, 1 << 20, &out), 1);
  assert_int_equal(out.count, marks.count);
  assert_memory_equal(out.data, "\xcc\xa3\xcc\xa3", 4);
  assert_int_equal(unicode_normalize(normal, UNICODE_NFD, &scratch, marks.data, (size_t)marks.count, 1000, &out), -1);
  vec_free(&marks);
  vec_free(&out);
  unicode_scratch_free(&scratch);
  unicode_normal_destroy(normal);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_meanings),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_sets),
      cmocka_unit_test(test_forms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
