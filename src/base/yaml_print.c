// Scalars as YAML that reads back as the same.
#include "base/fault.h"
#include "base/yaml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Shortest of 15, 16, 17 digits that reads back to the same double.
void yaml_real_text(double value, char text[YAML_REAL]) {
  for (int digits = 15; digits <= FAULT(yaml_numbers_have_15_digits, 17, 15); digits++) {
    snprintf(text, YAML_REAL, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
}

void yaml_print_real(double value, FILE *out) {
  char text[YAML_REAL];
  yaml_real_text(value, text);
  fputs(text, out);
}

// Double quotes only where YAML, or a reader, could take the text for something else. The blocks of Unicode that hold
// YAML's further line breaks, the byte-order mark and control characters are escaped.
void yaml_print_text(const char *text, FILE *out) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  if (*text == '/' && strspn(text, plain) == strlen(text)) {
    fputs(text, out);
    return;
  }
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == 0x7f) fprintf(out, "\\x%02x", *c);
    else if (*c == 0xc2 && c[1]) fprintf(out, "\\u%04x", (*c & 0x1fu) << 6 | (c[1] & 0x3fu)), c++;
    else if ((*c == 0xe2 || *c == 0xef) && c[1] && c[2])
      fprintf(out, "\\u%04x", (*c & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu)), c += 2;
    else fputc(*c, out);
  }
  fputc('"', out);
}
