// Text broken into lines of a terminal's width.
#include "cli/wrap.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_COLUMNS = 40, USUAL_COLUMNS = 80, MOST_COLUMNS = 1 << 16 };

int wrap_columns(FILE *out) {
  const char *text = getenv("COLUMNS");
  struct winsize size;
  long columns = text ? strtol(text, NULL, 10) : 0;
  if (columns <= 0 && isatty(fileno(out)) && !ioctl(fileno(out), TIOCGWINSZ, &size)) columns = size.ws_col;
  if (columns <= 0 || columns > MOST_COLUMNS) columns = USUAL_COLUMNS;
  return columns < LEAST_COLUMNS ? LEAST_COLUMNS : (int)columns;
}

int wrap_length(const char *text, int bytes) {
  int n = 0;
  for (int i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
  return n;
}

void wrap_text(FILE *out, const char *text, int at, int indent, int columns) {
  int start = 1; // of a line: no space before the word
  while (*text) {
    int bytes = (int)strcspn(text, " \n"), length = wrap_length(text, bytes);
    if (bytes && !start && at + 1 + length > columns) {
      fprintf(out, "\n%*s", indent, "");
      at = indent;
      start = 1;
    }
    if (bytes) {
      fprintf(out, "%s%.*s", start ? "" : " ", bytes, text);
      at += length + !start;
      start = 0;
    }
    text += bytes;
    if (*text == '\n') {
      fprintf(out, "\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
      at = indent;
      start = 1;
    }
    if (*text) text++;
  }
  putc('\n', out);
}
