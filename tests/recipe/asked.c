// A recipe as keys and values.
#include "asked.h"
#include "recipe/recipe_keys.h"
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

const char *asked(const Asked *a, const char *key) {
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (!strncmp(a->setting[i], key, n) && a->setting[i][n] == '=') return a->setting[i] + n + 1;
  const RecipeKey *row = recipe_key_find(key);
  assert_non_null(row);
  return row->fallback;
}

int is_asked(const Asked *a, const char *key, const char *value) { return !strcmp(asked(a, key), value); }
int asked_int(const Asked *a, const char *key) { return atoi(asked(a, key)); }

int ask(Asked *a, const char *key, const char *value) {
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (!strncmp(a->setting[i], key, n) && a->setting[i][n] == '=') return !strcmp(a->setting[i] + n + 1, value);
  assert_true(a->count < MOST_KEYS);
  snprintf(a->setting[a->count++], SETTING, "%s=%s", key, value);
  return 1;
}

int ask_all(Asked *a, const char *settings) {
  char text[SETTING], *next = text;
  snprintf(text, sizeof text, "%s", settings);
  for (char *word; (word = strtok_r(next, " ", &next));) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value = 0;
    if (!ask(a, word, value + 1)) return 0;
  }
  return 1;
}

Asked without(const Asked *a, const char *key) {
  Asked left = {0};
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (strncmp(a->setting[i], key, n) || a->setting[i][n] != '=')
      memcpy(left.setting[left.count++], a->setting[i], SETTING);
  return left;
}

const char *asked_text(const Asked *a) {
  static char text[4000];
  size_t n = 0;
  for (int i = 0; i < a->count && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s'%s'", i ? " " : "", a->setting[i]);
  return text;
}
