// Lists of what runs again: from text and to text.
#include "parallel/recompute_list.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parser {
  const char *at;
  RecomputeList *list;
  Error *error;
} Parser;

static void skip_space(Parser *p) { p->at += strspn(p->at, " \t\n"); }

static int word_length(const char *at) {
  int n = 0;
  while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '-') n++;
  return n;
}

static int wrong_word(Parser *p, int n) {
  if (!n && !*p->at)
    return error_set(p->error, PLAIT_BAD_INPUT,
                     "ends where keep, selective, full or a segment in parentheses must follow");
  return error_set(p->error, PLAIT_BAD_INPUT,
                   "has %.*s, where keep, selective, full or a segment in parentheses must stand", n ? n : 1, p->at);
}

static int too_many(Parser *p) {
  return error_set(p->error, PLAIT_BAD_INPUT, "has more than %d blocks or %d segments, the most that are allowed",
                   RECOMPUTE_BLOCKS, RECOMPUTE_SEGMENTS);
}

static int add_segment(Parser *p, int first, int end) {
  RecomputeList *l = p->list;
  if (l->segments == RECOMPUTE_SEGMENTS) return too_many(p);
  l->segment[l->segments++] = (RecomputeSegment){first, end};
  return PLAIT_OK;
}

static int parse_list(Parser *p, int depth);

static int parse_block(Parser *p) {
  static const char *const words[] = {"keep", "selective", "full"};
  RecomputeList *l = p->list;
  int n = word_length(p->at), word = 0;
  while (word < 3 && ((int)strlen(words[word]) != n || strncmp(words[word], p->at, (size_t)n))) word++;
  if (word == 3) return wrong_word(p, n);
  if (l->blocks == RECOMPUTE_BLOCKS) return too_many(p);
  p->at += n;
  l->selective[l->blocks++] = word == 1;
  return word == 2 ? add_segment(p, l->blocks - 1, l->blocks) : PLAIT_OK;
}

static int parse_segment(Parser *p, int depth) {
  int first = p->list->blocks, number = p->list->segments;
  if (depth == RECOMPUTE_DEPTH)
    return error_set(p->error, PLAIT_BAD_INPUT, "has segments inside each other more than %d deep", RECOMPUTE_DEPTH);
  p->at++;
  int code = add_segment(p, first, first);
  if (!code) code = parse_list(p, depth + 1);
  if (code) return code;
  if (*p->at != ')') return error_set(p->error, PLAIT_BAD_INPUT, "has a ( without its )");
  p->at++;
  p->list->segment[number].end = p->list->blocks;
  return PLAIT_OK;
}

// "x 4", or nothing, after an element that begins at block `first` and segment `number`.
static int repeat(Parser *p, int first, int number) {
  RecomputeList *l = p->list;
  skip_space(p);
  if (*p->at != 'x' && *p->at != '*') return PLAIT_OK;
  p->at++;
  skip_space(p);
  char *end;
  long times = isdigit((unsigned char)*p->at) ? strtol(p->at, &end, 10) : 0;
  if (times < 1 || times > RECOMPUTE_BLOCKS)
    return error_set(p->error, PLAIT_BAD_INPUT, "has x %.*s, but a count from 1 to %d must follow x",
                     (int)strcspn(p->at, " ,)"), p->at, RECOMPUTE_BLOCKS);
  p->at = end;
  int blocks = l->blocks - first, segments = l->segments - number;
  if (l->blocks + blocks * (times - 1) > RECOMPUTE_BLOCKS || l->segments + segments * (times - 1) > RECOMPUTE_SEGMENTS)
    return too_many(p);
  for (long i = 1; i < times; i++) {
    for (int k = 0; k < segments; k++) {
      RecomputeSegment s = l->segment[number + k];
      int by = (int)i * blocks;
      l->segment[l->segments++] = (RecomputeSegment){s.first + by, s.end + by};
    }
    for (int k = 0; k < blocks; k++) l->selective[l->blocks++] = l->selective[first + k];
  }
  return PLAIT_OK;
}

static int parse_list(Parser *p, int depth) {
  for (;;) {
    int first = p->list->blocks, number = p->list->segments;
    skip_space(p);
    int code = *p->at == '(' ? parse_segment(p, depth) : parse_block(p);
    if (!code) code = repeat(p, first, number);
    if (code) return code;
    skip_space(p);
    if (*p->at != ',') return PLAIT_OK;
    p->at++;
  }
}

// Begins again until there are `blocks`; what a segment has beyond the last one is cut off.
static int fill(Parser *p, int blocks) {
  RecomputeList *l = p->list;
  int written = l->blocks, segments = l->segments;
  if (written > blocks)
    return error_set(p->error, PLAIT_BAD_INPUT,
                     "has %d blocks, but the model has %d; give %d, or fewer: then the list begins again", written,
                     blocks, blocks);
  for (int from = written; from < blocks; from += written)
    for (int k = 0; k < segments; k++) {
      int first = l->segment[k].first + from, end = l->segment[k].end + from;
      if (first < blocks && add_segment(p, first, end < blocks ? end : blocks)) return PLAIT_BAD_INPUT;
    }
  for (int i = written; i < blocks; i++) l->selective[i] = l->selective[i - written];
  l->blocks = blocks;
  return PLAIT_OK;
}

int recompute_list_parse(const char *text, int blocks, RecomputeList *out, Error *error) {
  Parser p = {.at = text, .list = out, .error = error};
  *out = (RecomputeList){0};
  int code = parse_list(&p, 0);
  if (!code && *p.at)
    code = error_set(error, PLAIT_BAD_INPUT, *p.at == ')' ? "has a ) without its ("
                                                          : "has %.*s, where a comma or x and a count must stand",
                     word_length(p.at) ? word_length(p.at) : 1, p.at);
  if (!code && blocks > RECOMPUTE_BLOCKS) code = too_many(&p);
  if (!code && blocks > 0) code = fill(&p, blocks);
  return code;
}

// Text ---------------------------------------------------------------------------------------------------------------

char *recompute_list_normal(const char *text) {
  char *out = xcalloc(3 * strlen(text) + 1, 1), *to = out;
  for (const char *at = text; *at;) {
    at += strspn(at, " \t\n");
    if (*at == ',') to += sprintf(to, ", "), at++;
    else if (*at == 'x' || *at == '*') to += sprintf(to, " x "), at++;
    else if (*at == '(' || *at == ')') *to++ = *at++;
    else if (*at) *to++ = *at++; // no word has an x
  }
  *to = 0;
  return out;
}

static char *elements(const RecomputeList *l, int first, int end, int next);

// The element at a block, of which the segments from number *next on are known: as text; moves past it.
static char *element(const RecomputeList *l, int *block, int *next) {
  while (*next < l->segments && l->segment[*next].first < *block) ++*next;
  if (*next == l->segments || l->segment[*next].first > *block) {
    const char *word = l->selective[*block] ? "selective" : "keep";
    ++*block;
    char *text = xcalloc(strlen(word) + 1, 1);
    return strcpy(text, word);
  }
  RecomputeSegment s = l->segment[(*next)++];
  char *inside = elements(l, s.first, s.end, *next), *text = xcalloc(strlen(inside) + 8, 1);
  if (!strcmp(inside, "keep")) strcpy(text, "full");
  else sprintf(text, "(%s)", inside);
  free(inside);
  while (*next < l->segments && l->segment[*next].first < s.end) ++*next;
  *block = s.end;
  return text;
}

static char *elements(const RecomputeList *l, int first, int end, int next) {
  char *text, *last = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  int count = 0;
  for (int block = first; block < end;) {
    char *e = element(l, &block, &next);
    if (last && strcmp(last, e)) fprintf(out, count > 1 ? "%s x %d, " : "%s, ", last, count), count = 0;
    free(last);
    last = e;
    count++;
  }
  if (last) fprintf(out, count > 1 ? "%s x %d" : "%s", last, count);
  free(last);
  fclose(out);
  return text;
}

char *recompute_list_text(const RecomputeList *list) { return elements(list, 0, list->blocks, 0); }
