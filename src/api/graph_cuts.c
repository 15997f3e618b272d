// Which parameters may be cut, and which of them are cut alike.
#include "api/graph_cuts.h"
#include "ir/graph.h"
#include <string.h>

typedef struct Text { char *at; size_t size, used; } Text;

static void add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Text *text, const char *format, ...) {
  char part[128];
  va_list arguments;
  va_start(arguments, format);
  size_t n = (size_t)vsnprintf(part, sizeof part, format, arguments);
  va_end(arguments);
  if (n >= sizeof part) n = sizeof part - 1;
  if (text->used + n + 1 > text->size) text->at = xrealloc(text->at, text->size = 2 * (text->used + n + 1));
  memcpy(text->at + text->used, part, n + 1);
  text->used += n;
}

// The ops that read a tensor, and as which operand.
static void add_readers(const Graph *g, int tensor, Text *text) {
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] == tensor) add(text, " %s.%d", op_name(g->node.data[i].op), k);
}

static void add_reader(const Graph *g, const Node *n, int operand, Text *text) {
  add(text, "; %s.%d of", op_name(n->op), operand);
  for (int k = 0; k < n->ninput; k++) {
    int producer = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->producer;
    if (k != operand) add(text, " %s", producer < 0 ? "-" : op_name(g->node.data[producer].op));
  }
  for (int k = 0; k < n->noutput; k++) add(text, " for"), add_readers(g, n->output[k], text);
}

// "(64, 16); linear.1 of rms_norm for activation.0": what parameters have in common that are alike. The caller frees
// it.
static char *description(const Graph *g, int variable) {
  Text text = {.at = NULL};
  const Shape *s = &g->variable.data[variable].shape;
  for (int d = 0; d < s->rank; d++) add(&text, "%s%lld", d ? "," : "(", (long long)s->size[d]);
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      int x = g->node.data[i].input[k];
      if (x >= 0 && graph_tensor(g, x)->variable == variable) add_reader(g, &g->node.data[i], k, &text);
    }
  return text.at;
}

static int is_placed(const PlaitGraph *h, int variable) {
  for (int i = 0; i < h->annotation.count; i++)
    if (graph_tensor(h->g, h->annotation.data[i].tensor)->variable == variable) return 1;
  return 0;
}

void cuts_create(const PlaitGraph *h, Cuts *c) {
  const Graph *g = h->g;
  Vec(char *) known = {0};
  *c = (Cuts){.kind = {0}};
  for (int v = 0; v < g->variable.count; v++) {
    const Shape *s = &g->variable.data[v].shape;
    int kind = -1;
    if (variable_is_counted(&g->variable.data[v]) && s->rank >= 2 && !is_placed(h, v)) {
      char *text = description(g, v);
      for (kind = 0; kind < known.count && strcmp(known.data[kind], text);) kind++;
      if (kind == known.count) {
        CutKind new = {.dims = s->rank};
        memcpy(new.size, s->size, sizeof s->size);
        vec_push(&known, text);
        vec_push(&c->kind, new);
      } else free(text);
      c->kind.data[kind].members++;
    }
    vec_push(&c->kind_of, kind);
  }
  for (int i = 0; i < known.count; i++) free(known.data[i]);
  vec_free(&known);
}

void cuts_free(Cuts *c) {
  vec_free(&c->kind);
  vec_free(&c->kind_of);
}

int cuts_divide(const Cuts *c, int kind, int dim, int ranks) { return c->kind.data[kind].size[dim] % ranks == 0; }

int cuts_placements(const Cuts *c, const PlaitGraph *h, const signed char *dim, PlaitPlacement *placement) {
  int n = 0;
  for (int v = 0; v < c->kind_of.count; v++) {
    int kind = c->kind_of.data[v];
    if (kind >= 0 && dim[kind] >= 0)
      placement[n++] =
          (PlaitPlacement){user_name(h->g->variable.data[v].name), dim[kind], axis_names[AXIS_TP]};
  }
  return n;
}
