// The encoding of the locale, as the environment names it.
#include "base/locale_utf8.h"
#include <stdlib.h>
#include <string.h>

bool locale_is_utf8(void) {
  const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (int i = 0; i < 3; i++) {
    const char *value = getenv(names[i]);
    if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
  }
  return false;
}

const char *locale_arrow(void) { return locale_is_utf8() ? "→" : "->"; }
