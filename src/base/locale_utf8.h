// Whether the user's locale shows UTF-8.
#pragma once
#include <stdbool.h>

// By LC_ALL, LC_CTYPE and LANG; unset or anything else: no.
bool locale_is_utf8(void);
// "→" where the locale is UTF-8, else "->".
const char *locale_arrow(void);
