// Half by hand: plait_graph_einsum, whose text becomes the letters of an EINSUM, and what falls out of it.
#include "api/graph_build.h"
#include "op/build.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define wrong api_graph_wrong
enum { OUTPUT = 2 };

// The state of the parser.
typedef struct Parse { PlaitGraph *h; const char *name, *text, *at; EinsumAttr attr; } Parse;

static void skip(Parse *p) {
  while (*p->at == ' ') p->at++;
}

static int has(const EinsumAttr *a, int operand, int letter) {
  return a->rank[operand] > 0 && memchr(a->letter[operand], letter, (size_t)a->rank[operand]) != NULL;
}

// Reads the size that may follow a letter of the result, as in "=16". 0: none is given.
static int read_size(Parse *p, int operand, int64_t *size) {
  *size = 0;
  if (*p->at != '=') return 0;
  char *end = (char *)(uintptr_t)p->at + 1;
  if (isdigit((unsigned char)*end)) *size = strtoll(p->at + 1, &end, 10);
  if (operand != OUTPUT || *size < 1 || *size > INT32_MAX)
    return wrong(p->h, "%s: \"%.100s\" has a size that is not a number above 0 of a dim that the result repeats",
                 p->name, p->text);
  p->at = end;
  return 0;
}

static int read_operand(Parse *p, int operand) {
  EinsumAttr *a = &p->attr;
  for (skip(p); islower((unsigned char)*p->at); skip(p)) {
    int letter = *p->at++ - 'a';
    int64_t size;
    if (has(a, operand, letter))
      return wrong(p->h, "%s: \"%.100s\" has %c twice in one operand; diagonals are not taken", p->name, p->text,
                   'a' + letter);
    if (a->rank[operand] == MAX_RANK)
      return wrong(p->h, "%s: \"%.100s\" has an operand of more than %d dims", p->name, p->text, MAX_RANK);
    if (read_size(p, operand, &size)) return -1;
    int known = has(a, 0, letter) || has(a, 1, letter);
    if (operand == OUTPUT && !known != !!size)
      return wrong(
          p->h,
          size ? "%s: \"%.100s\" gives %c a size, but an operand has it"
               : "%s: \"%.100s\" has %c in its result and in no operand; to repeat along it give it a size, as in "
                 "\"%c=16\"",
          p->name, p->text, 'a' + letter, 'a' + letter);
    a->size[a->rank[operand]] = (int32_t)size;
    a->letter[operand][a->rank[operand]++] = (int8_t)letter;
  }
  return 0;
}

static int read_text(Parse *p, int operands) {
  int code = read_operand(p, 0);
  if (!code && operands == 2) {
    if (*p->at == ',') p->at++, code = read_operand(p, 1);
    else code = wrong(p->h, "%s: \"%.100s\" has one operand, but two tensors were given", p->name, p->text);
  }
  if (code) return code;
  if (operands == 1 && *p->at == ',')
    return wrong(p->h, "%s: \"%.100s\" has two operands, but one tensor was given", p->name, p->text);
  if (p->at[0] == '-' && p->at[1] == '>') {
    p->at += 2;
    code = read_operand(p, OUTPUT);
    if (code || !*p->at) return code;
  }
  return wrong(p->h,
               "%s: \"%.100s\" is not understood at \"%.20s\"; allowed: small letters, as in \"b s d, d f -> b s f\"",
               p->name, p->text, p->at);
}

// Ranks and sizes of the tensors, letter by letter.
static int check_sizes(Parse *p, const PlaitTensor *x, int operands) {
  int64_t size[26] = {0};
  for (int k = 0; k < operands; k++) {
    const Shape *s = &graph_tensor(p->h->g, x[k])->shape;
    char text[128];
    if (s->rank != p->attr.rank[k])
      return wrong(p->h, "%s: \"%.100s\" names %d dims of %s, which is %s", p->name, p->text, p->attr.rank[k],
                   k ? "b" : "a", api_graph_shape_text(s, text, sizeof text));
    for (int d = 0; d < s->rank; d++) {
      int letter = p->attr.letter[k][d];
      if (size[letter] && size[letter] != s->size[d])
        return wrong(p->h, "%s: \"%.100s\" has %c of size %lld in a and %lld in b", p->name, p->text, 'a' + letter,
                     (long long)size[letter], (long long)s->size[d]);
      size[letter] = s->size[d];
    }
  }
  return 0;
}

// The samples are the first dim of what has them, and go through to the result.
static int check_samples(Parse *p, const PlaitTensor *x, int operands) {
  const EinsumAttr *a = &p->attr;
  int samples = -1;
  for (int k = 0; k < operands; k++)
    if (api_graph_samples(p->h, x[k]) && samples < 0) samples = a->letter[k][0];
  for (int k = 0; k < operands && samples >= 0; k++)
    if (api_graph_samples(p->h, x[k]) ? a->letter[k][0] != samples : has(a, k, samples))
      return wrong(p->h, "%s: \"%.100s\" must name the samples %c, first in each operand that has them and in no other",
                   p->name, p->text, 'a' + samples);
  if (samples >= 0 && (!a->rank[OUTPUT] || a->letter[OUTPUT][0] != samples))
    return wrong(
        p->h,
        "%s: \"%.100s\" must have the samples %c first in its result; a sum over samples depends on microbatches, "
        "and is for the loss",
        p->name, p->text, 'a' + samples);
  return 0;
}

PlaitTensor plait_graph_einsum(PlaitGraph *h, const char *name, const char *text, PlaitTensor a, PlaitTensor b) {
  PlaitTensor x[] = {a, b};
  int operands = b == -1 ? 1 : 2;
  if (!api_graph_take_name(h, name)) return -1;
  for (int k = 0; k < operands; k++)
    if (!api_graph_readable(h, name, x[k], 0)) return -1;
  Parse p = {.h = h, .name = name, .text = text ? text : "", .at = text ? text : ""};
  if (read_text(&p, operands) || check_sizes(&p, x, operands) || check_samples(&p, x, operands)) return -1;
  for (int k = 0; k < operands; k++) x[k] = api_graph_operand(h, name, x[k]);
  return op_einsum(h->g, name, &p.attr, x[0], x[1]);
}

PlaitTensor plait_graph_reduce(PlaitGraph *h, const char *name, PlaitTensor x, int dim, int mean) {
  if (!api_graph_take_name(h, name) || !api_graph_readable(h, name, x, 0)) return -1;
  const Shape s = graph_tensor(h->g, x)->shape;
  int first = api_graph_samples(h, x);
  if (dim < first || dim >= s.rank)
    return wrong(h, "dim %d of %s; allowed: %d to %d", dim, name, first, s.rank - 1);
  EinsumAttr attr = {.rank = {(int8_t)s.rank}};
  for (int d = 0; d < s.rank; d++) {
    attr.letter[0][d] = (int8_t)d;
    if (d != dim) attr.letter[OUTPUT][attr.rank[OUTPUT]++] = (int8_t)d;
  }
  const char *sum = mean ? arena_format(&h->g->arena, "%s.sum", name) : name;
  int y = op_einsum(h->g, sum, &attr, api_graph_operand(h, name, x), -1);
  return mean ? op_scale(h->g, name, y, 1 / (double)s.size[dim]) : y;
}

PlaitTensor plait_graph_broadcast(PlaitGraph *h, const char *name, PlaitTensor x, int dim, int64_t size) {
  if (!api_graph_take_name(h, name) || !api_graph_readable(h, name, x, 0)) return -1;
  const Shape s = graph_tensor(h->g, x)->shape;
  int first = api_graph_samples(h, x);
  if (dim < first || dim > s.rank) return wrong(h, "dim %d of %s; allowed: %d to %d", dim, name, first, s.rank);
  if (s.rank == MAX_RANK) return wrong(h, "%s has more than %d dims", name, MAX_RANK);
  if (size < 1 || size > INT32_MAX)
    return wrong(h, "the size of %s is %lld; allowed: 1 to %d", name, (long long)size, INT32_MAX);
  EinsumAttr attr = {.rank = {(int8_t)s.rank, 0, (int8_t)(s.rank + 1)}};
  for (int d = 0; d <= s.rank; d++) attr.letter[OUTPUT][d] = (int8_t)(d == dim ? s.rank : d - (d > dim));
  for (int d = 0; d < s.rank; d++) attr.letter[0][d] = (int8_t)d;
  attr.size[dim] = (int32_t)size;
  return op_einsum(h->g, name, &attr, api_graph_operand(h, name, x), -1);
}
