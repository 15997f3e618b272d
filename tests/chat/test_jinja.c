// tier 1; rooms chat
// The interpreter of Jinja against what Python's jinja2 has made of the same templates (scripts/golden_jinja.py), and
// what templates may not do.
#include "jinja_lines.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

int main(int argc, char **argv) {
  if (argc == 2) return jinja_lines(argv[1]); // scripts/golden_jinja.py compares
  return 0;
}
