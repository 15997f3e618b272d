// Chains and lists as text.
#include "machine/chain.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Lists --------------------------------------------------------------------------------------------------------------

typedef struct Element { int first, end, next; bool segment; } Element; // next: the first segment inside, or after it

static Element element(const ChainList *l, int block, int next) {
  while (next < l->segment.count && l->segment.data[next].first < block) next++;
  if (next < l->segment.count && l->segment.data[next].first == block)
    return (Element){block, l->segment.data[next].end, next + 1, true};
  return (Element){block, block + 1, next, false};
}

static void print_elements(const Chain *c, const ChainList *l, int first, int end, int next, FILE *out);

static char *element_text(const Chain *c, const ChainList *l, Element e) {
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  if (!e.segment) fputs(c->block[e.first].option[l->option[e.first]].name, out);
  else {
    fputc('(', out);
    print_elements(c, l, e.first, e.end, e.next, out);
    fputc(')', out);
  }
  fclose(out);
  return text;
}

static void print_elements(const Chain *c, const ChainList *l, int first, int end, int next, FILE *out) {
  char *last = NULL;
  int count = 0;
  for (int block = first; block < end;) {
    Element e = element(l, block, next);
    char *text = element_text(c, l, e);
    if (last && strcmp(last, text)) {
      fprintf(out, count > 1 ? "%s x %d, " : "%s, ", last, count);
      count = 0;
    }
    free(last);
    last = text;
    count++;
    block = e.end;
    next = e.next;
  }
  if (last) fprintf(out, count > 1 ? "%s x %d" : "%s", last, count);
  free(last);
}

char *chain_list_text(const Chain *c, const ChainList *l) {
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  fputc('[', out);
  print_elements(c, l, 0, c->blocks, 0, out);
  fputc(']', out);
  fclose(out);
  return text;
}

// Chains -------------------------------------------------------------------------------------------------------------

enum { MOST_WORDS = 8 };

typedef struct Reader {
  const char *name;
  int line;
  Chain *chain;
  int64_t *memory;
  int slots;   // of the blocks to come
  bool begins; // the next block
  Error *error;
} Reader;

static int wrong(Reader *r, const char *what, const char *word) {
  return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: %s, not %s", r->name, r->line, what, word);
}

// Decimal, of at least 0, as a cluster file has them.
static int read_number(Reader *r, const char *word, const char *what, double *value) {
  char *end;
  if (strspn(word, "0123456789.eE+-") == 0) return wrong(r, what, word);
  *value = strtod(word, &end);
  if (*end || !isfinite(*value) || *value < 0) return wrong(r, what, word);
  return PLAIT_OK;
}

static int read_bytes(Reader *r, const char *word, int64_t *bytes) {
  static const struct { const char *name; double scale; } unit[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
  static const char what[] = "bytes must be a number from 0 to 1e18 such as 4096, 12kB or 1.5GB";
  char number[32];
  double value, scale = 1;
  size_t n = strlen(word);
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (n > 2 && !strcmp(word + n - 2, unit[i].name)) scale = unit[i].scale, n -= 2;
  if (!n || n >= sizeof number) return wrong(r, what, word);
  memcpy(number, word, n);
  number[n] = 0;
  int code = read_number(r, number, what, &value);
  if (code) return code;
  if (value * scale > 1e18) return wrong(r, what, word);
  *bytes = (int64_t)ceil(value * scale);
  return PLAIT_OK;
}

static int read_seconds(Reader *r, const char *word, double *seconds) {
  return read_number(r, word, "seconds must be a number of at least 0", seconds);
}

static int read_block(Reader *r, char **word, int words) {
  Chain *c = r->chain;
  if (c->blocks == CHAIN_BLOCKS)
    return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: at most %d blocks are allowed", r->name, r->line, CHAIN_BLOCKS);
  c->block = xrealloc(c->block, sizeof *c->block * (size_t)(c->blocks + 1));
  ChainBlock *b = &c->block[c->blocks];
  *b = (ChainBlock){.slots = r->slots, .begins = r->begins};
  r->begins = false;
  int code = read_bytes(r, word[1], &b->input);
  if (!code) code = read_seconds(r, word[2], &b->forward);
  if (!code && words > 3) code = read_bytes(r, word[3], &b->forward_peak);
  c->blocks++;
  return code;
}

static int read_option(Reader *r, char **word, int words) {
  Chain *c = r->chain;
  if (!c->blocks) return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: option before the first block", r->name, r->line);
  ChainBlock *b = &c->block[c->blocks - 1];
  if (b->options == CHAIN_OPTIONS)
    return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: a block has at most %d options", r->name, r->line,
                     CHAIN_OPTIONS);
  ChainOption *o = &b->option[b->options];
  if (strlen(word[1]) >= sizeof o->name)
    return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: the name of an option has at most %zu letters", r->name,
                     r->line, sizeof o->name - 1);
  *o = (ChainOption){0};
  memcpy(o->name, word[1], strlen(word[1]) + 1);
  int code = read_seconds(r, word[2], &o->forward);
  if (!code) code = read_seconds(r, word[3], &o->backward);
  if (!code) code = read_bytes(r, word[4], &o->kept);
  if (!code && words > 5) code = read_bytes(r, word[5], &o->forward_peak);
  if (!code && words > 6) code = read_bytes(r, word[6], &o->backward_peak);
  b->options++;
  return code;
}

static int read_slots(Reader *r, const char *word) {
  char *end;
  long slots = strtol(word, &end, 10);
  if (*end || end == word || slots < 0 || slots > 1 << 20)
    return wrong(r, "slots must be an integer from 0 to 1048576", word);
  r->slots = (int)slots;
  r->chain->held |= slots > 0;
  return PLAIT_OK;
}

static int read_line(Reader *r, char *line) {
  char *word[MOST_WORDS], *rest = line;
  int words = 0;
  line[strcspn(line, "#")] = 0;
  for (char *w; words < MOST_WORDS && (w = strtok_r(rest, " \t\r", &rest));) word[words++] = w;
  if (!words) return PLAIT_OK;
  static const struct { const char *name, *form; int least, most; } kind[] = {
      {"memory", "memory BYTES", 2, 2},
      {"slots", "slots N", 2, 2},
      {"output", "output BYTES", 2, 2},
      {"stage", "stage", 1, 1},
      {"block", "block INPUT FORWARD [PEAK]", 3, 4},
      {"option", "option NAME FORWARD BACKWARD KEPT [PEAK [PEAK]]", 5, 7}};
  for (int k = 0; k < 6; k++) {
    if (strcmp(word[0], kind[k].name)) continue;
    if (words < kind[k].least || words > kind[k].most)
      return error_set(r->error, PLAIT_BAD_INPUT, "%s:%d: expected %s", r->name, r->line, kind[k].form);
    return k == 0   ? read_bytes(r, word[1], r->memory)
           : k == 1 ? read_slots(r, word[1])
           : k == 2 ? read_bytes(r, word[1], &r->chain->output)
           : k == 3 ? (r->begins = true, PLAIT_OK)
           : k == 4 ? read_block(r, word, words)
                    : read_option(r, word, words);
  }
  return wrong(r, "a line begins with memory, slots, output, stage, block or option", word[0]);
}

static int check_chain(Reader *r) {
  const Chain *c = r->chain;
  if (!c->blocks) return error_set(r->error, PLAIT_BAD_INPUT, "%s: there is no block", r->name);
  for (int i = 0; i < c->blocks; i++)
    if (!c->block[i].options)
      return error_set(r->error, PLAIT_BAD_INPUT, "%s: block %d has no option; give it one", r->name, i);
  return PLAIT_OK;
}

int chain_read(const char *name, const char *text, Chain *chain, int64_t *memory, Error *error) {
  Reader r = {.name = name, .chain = chain, .memory = memory, .error = error};
  int code = PLAIT_OK;
  *chain = (Chain){0};
  *memory = -1;
  for (const char *at = text; *at && !code;) {
    size_t n = strcspn(at, "\n");
    char line[512];
    r.line++;
    if (n >= sizeof line)
      code = error_set(error, PLAIT_BAD_INPUT, "%s:%d: the line is longer than %zu letters", name, r.line,
                       sizeof line - 1);
    else {
      memcpy(line, at, n);
      line[n] = 0;
      code = read_line(&r, line);
    }
    at += n + (at[n] == '\n');
  }
  if (!code) code = check_chain(&r);
  if (code) free(chain->block), *chain = (Chain){0};
  return code;
}
