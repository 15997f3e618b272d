// Reading Slurm's lists of machines. A name's brackets count like the digits of a clock.
#include "base/node_list.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BRACKETS = 8, MOST_DIGITS = 9, SHOWN = 200 };

// One name of the list, before its brackets are written out: text between separators, and where its brackets begin.
typedef struct Item { const char *begin, *end; } Item;

typedef struct Range { long first, last; int width; const char *next; } Range;

typedef struct Reader {
  const char *what, *text;
  NodeList *list;
  Error *error;
} Reader;

static int refuse(const Reader *r, const char *at, const char *why) {
  return error_set(r->error, PLAIT_BAD_INPUT,
                   "%s \"%.*s\": %s at character %d; a list of machines is written as in n[01-03,7],m5", r->what, SHOWN,
                   r->text, why, (int)(at - r->text) + 1);
}

static int is_of_name(char c) { return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-'; }

static int read_number(const Reader *r, const char *at, long *value, const char **next) {
  const char *end = at;
  for (*value = 0; isdigit((unsigned char)*end); end++)
    if (end - at < MOST_DIGITS) *value = 10 * *value + (*end - '0');
  if (end == at) return refuse(r, at, "a number is missing");
  if (end - at > MOST_DIGITS) return refuse(r, at, "there is a number of more than 9 digits");
  *next = end;
  return PLAIT_OK;
}

// "01-03" or "7" at `at`; `next` is the character after it.
static int read_range(const Reader *r, const char *at, Range *range) {
  range->next = at;
  int code = read_number(r, at, &range->first, &range->next);
  range->width = code ? 0 : (int)(range->next - at);
  range->last = range->first;
  if (!code && *range->next == '-') code = read_number(r, range->next + 1, &range->last, &range->next);
  if (!code && range->last < range->first) return refuse(r, at, "a range ends before it begins");
  if (!code && range->last - range->first >= NODE_LIST_MOST) return refuse(r, at, "a range is too long");
  return code;
}

// Checks what is between brackets, after '['; *close is at ']'.
static int check_bracket(const Reader *r, const char *at, const char **close) {
  for (Range range = {.next = at};; at = range.next + 1) {
    int code = read_range(r, at, &range);
    if (code) return code;
    if (*range.next == ']') return *close = range.next, PLAIT_OK;
    if (*range.next != ',') return refuse(r, range.next, "neither a comma nor ] is");
  }
}

// The end of an item, at a comma or at the end of the text.
static int check_item(const Reader *r, Item *item) {
  const char *at = item->begin;
  int brackets = 0, code = PLAIT_OK;
  for (; !code && *at && *at != ','; at++) {
    if (*at == '[') {
      if (++brackets > MOST_BRACKETS) return refuse(r, at, "a name has too many brackets");
      code = check_bracket(r, at + 1, &at);
    } else if (!is_of_name(*at)) return refuse(r, at, "there is a character that is in no name");
  }
  item->end = at;
  return code || at > item->begin ? code : refuse(r, at, "a name is missing");
}

static int add(const Reader *r, const char *name, const char *at) {
  NodeList *l = r->list;
  if (l->count == NODE_LIST_MOST) return refuse(r, at, "there are more than 65536 machines");
  if (!(l->count & (l->count - 1))) // at powers of two
    l->name = xrealloc(l->name, sizeof *l->name * (size_t)(l->count ? 2 * l->count : 1));
  l->name[l->count++] = xstrdup(name);
  return PLAIT_OK;
}

// `name` holds what the item is up to `at`; writes all names that begin so. The brackets have been checked.
static int expand(const Reader *r, const Item *item, const char *at, char *name, int length) {
  int code = PLAIT_OK;
  while (at < item->end && *at != '[' && length < NODE_NAME_MOST) name[length++] = *at++;
  if (at < item->end && *at != '[') return refuse(r, at, "a name of more than 255 characters ends");
  if (at == item->end) return name[length] = 0, add(r, name, item->begin);
  const char *close = strchr(at, ']');
  Range range = {.next = at};
  while (!code && range.next < close) {
    code = read_range(r, range.next + 1, &range);
    for (long i = range.first; !code && i <= range.last; i++) {
      int n = snprintf(name + length, (size_t)(NODE_NAME_MOST + 1 - length), "%0*ld", range.width, i);
      if (length + n > NODE_NAME_MOST) return refuse(r, at, "a name of more than 255 characters ends");
      code = expand(r, item, close + 1, name, length + n);
    }
  }
  return code;
}

int node_list_parse(const char *what, const char *text, NodeList *list, Error *error) {
  Reader r = {what, text, list, error};
  Item item = {text, text};
  char name[NODE_NAME_MOST + 1];
  int code;
  *list = (NodeList){0};
  for (;; item.begin = item.end + 1) {
    code = check_item(&r, &item);
    if (!code) code = expand(&r, &item, item.begin, name, 0);
    if (code || !*item.end) break;
  }
  if (code) node_list_free(list);
  return code;
}

void node_list_free(NodeList *list) {
  for (int i = 0; i < list->count; i++) free(list->name[i]);
  free(list->name);
  *list = (NodeList){0};
}
