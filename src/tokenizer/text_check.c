// Counts characters that do not belong in text.
#include "tokenizer/text_check.h"
#include "tokenizer/bpe.h"
#include <stdio.h>
#include <string.h>

void text_check_scan(TextCheck *c, const char *text, size_t bytes, bool begins) {
  if (begins && bytes >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2))) c->utf16 = true;
  for (size_t i = 0; i < bytes; c->characters++) {
    uint8_t byte = (uint8_t)text[i];
    if (byte < 0x80) {
      if (byte < 0x20 && !strchr("\b\t\n\v\f\r\033", byte)) c->control++;
      else if (!byte) c->nul++; // strchr finds the end of its text, too
      i++;
      continue;
    }
    uint32_t code;
    int n = utf8_get(text + i, bytes - i, &code);
    if (!n) c->invalid++;
    else c->wide++, c->replaced += code == 0xFFFD;
    i += n ? (size_t)n : 1;
  }
}

void text_check_add(TextCheck *sum, const TextCheck *part) {
  sum->characters += part->characters;
  sum->invalid += part->invalid;
  sum->wide += part->wide;
  sum->no_text += part->no_text;
  sum->halves += part->halves;
  sum->replaced += part->replaced;
  sum->nul += part->nul;
  sum->control += part->control;
  sum->utf16 |= part->utf16;
  sum->tokens += part->tokens;
  sum->unknown += part->unknown;
  if (part->missed && !sum->missed) {
    sum->missed_at = part->missed_at;
    sum->missed_exact = part->missed_exact;
    sum->missed_line = part->missed_line;
  }
  sum->missed += part->missed;
  sum->control_tokens += part->control_tokens;
  sum->lines |= part->lines;
  sum->lines_found |= part->lines_found;
}

void text_check_place(const TextCheck *c, char *text, size_t size) {
  if (c->missed_line) snprintf(text, size, "in line %lld", (long long)c->missed_at);
  else snprintf(text, size, "%s byte %lld", c->missed_exact ? "at" : "after", (long long)c->missed_at);
}

static double percent(int64_t part, int64_t whole) { return 100.0 * (double)part / (double)(whole ? whole : 1); }

// Another encoding: many bytes that are not UTF-8, or few (as in German) where hardly another one is.
static bool is_other_encoding(const TextCheck *c) {
  bool many = c->invalid * 20 > c->characters;
  return many || (c->invalid >= 16 && c->invalid * 200 > c->characters && c->invalid > 8 * c->wide);
}

TextVerdict text_check_verdict(const TextCheck *c, char *why, size_t size) {
  TextVerdict none = c->lines ? TEXT_IS_DOUBTFUL : TEXT_IS_NONE; // texts within valid JSON
  if (c->utf16) {
    snprintf(why, size, "is UTF-16; plait reads UTF-8. Convert it: iconv -f UTF-16 -t UTF-8");
    return none;
  }
  if (c->nul || c->control * 100 > c->characters) {
    bool few = c->nul * 1000 <= c->characters && c->control * 100 <= c->characters;
    snprintf(why, size, "%s: it holds %lld NUL bytes and %lld other control characters",
             few ? "has NUL bytes, as binary files have" : "looks like a binary file and not like text",
             (long long)c->nul, (long long)c->control);
    return few ? TEXT_IS_DOUBTFUL : none;
  }
  if (is_other_encoding(c)) {
    snprintf(why, size,
             "is not UTF-8: %.1f%% of its characters are not. If it has another encoding, convert it, for instance: "
             "iconv -f LATIN1 -t UTF-8",
             percent(c->invalid, c->characters));
    return none;
  }
  if ((c->invalid + c->replaced) * 20 > c->characters) {
    snprintf(why, size,
             "has lost characters: %.0f%% of them are U+FFFD, which programs write for what they cannot read, or are "
             "not UTF-8",
             percent(c->invalid + c->replaced, c->characters));
    return TEXT_IS_DOUBTFUL;
  }
  if (c->unknown * 20 <= c->tokens) return TEXT_IS_FINE;
  snprintf(why, size, "%.0f%% of its tokens are the unknown token: the tokenizer's vocabulary lacks its characters",
           percent(c->unknown, c->tokens));
  return TEXT_IS_DOUBTFUL;
}
