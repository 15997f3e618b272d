// Comparing what two machines run.
#include "elastic/job_what.h"
#include <stdio.h>
#include <string.h>

enum { MOST_TOLD = 3, MOST_VALUE = 90 };

typedef struct Line { const char *name, *value; int name_length, value_length; } Line;

// Takes the next line; false: there is none.
static bool next_line(const char **at, Line *line) {
  const char *text = *at, *end = strchr(text, '\n');
  if (!*text) return false;
  if (!end) end = text + strlen(text);
  const char *tab = memchr(text, '\t', (size_t)(end - text));
  if (!tab) tab = end;
  *line = (Line){text, tab + (tab < end), (int)(tab - text), (int)(end - tab - (tab < end))};
  *at = *end ? end + 1 : end;
  return true;
}

static bool find(const char *list, const Line *wanted, Line *found) {
  while (next_line(&list, found))
    if (found->name_length == wanted->name_length && !memcmp(found->name, wanted->name, (size_t)found->name_length))
      return true;
  *found = (Line){wanted->name, "not given", wanted->name_length, 9};
  return false;
}

static int shown(const Line *line) { return line->value_length < MOST_VALUE ? line->value_length : MOST_VALUE; }

static void add(const Line *here, const Line *there, int told, char *text, size_t size) {
  size_t n = strlen(text);
  if (told >= MOST_TOLD)
    return told > MOST_TOLD ? (void)0 : (void)snprintf(text + n, size - n, "; and there is more");
  snprintf(text + n, size - n, "%s%.*s is %.*s here and %.*s there", told ? "; " : "", here->name_length, here->name,
           shown(here), here->value, shown(there), there->value);
}

bool job_what_differs(const char *here, const char *there, char *text, size_t size) {
  Line mine, theirs;
  int told = 0;
  *text = 0;
  for (const char *at = here; next_line(&at, &mine);) {
    find(there, &mine, &theirs);
    bool same =
        mine.value_length == theirs.value_length && !memcmp(mine.value, theirs.value, (size_t)mine.value_length);
    if (!same) add(&mine, &theirs, told++, text, size);
  }
  for (const char *at = there; next_line(&at, &theirs);)
    if (!find(here, &theirs, &mine)) add(&mine, &theirs, told++, text, size);
  return told > 0;
}
