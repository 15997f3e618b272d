// Readable listing of a Graph after any pass: all of it, or what a pattern of names selects.
#include "ir/graph.h"
#include <fnmatch.h>
#include <string.h>

typedef struct Printer {
  const Graph *g;
  FILE *out;
  PlacementPrinter placement;
  const void *context;
} Printer;

// The placement in words; empty where there is none, or where the tensor is whole on every rank.
static const char *placed(const Printer *p, const Placement *placement, const Shape *shape, char text[256]) {
  text[0] = 0;
  if (placement && p->placement) p->placement(p->context, placement, shape, text, 256);
  return text;
}

static void print_shape(const Printer *p, const Shape *shape, const int64_t *size) {
  fputc('(', p->out);
  for (int d = 0; d < shape->rank; d++)
    fprintf(p->out, "%s%s=%lld", d ? " " : "", dim_name(shape->dim[d]), (long long)size[d]);
  fputc(')', p->out);
}

static const int64_t *sizes_of(const Printer *p, const Tensor *t) {
  return p->g->form == GRAPH_LOCAL ? tensor_local(p->g, t) : t->shape.size;
}

static void print_binding(const Printer *p, const Tensor *t) {
  if (tensor_is_compact(t)) fprintf(p->out, "[≤%d of %%%d]", t->choices, t->mask);
  if (t->variable >= 0) fprintf(p->out, "@%s%s", p->g->variable.data[t->variable].name, t->copy >= 0 ? "#copy" : "");
  if (t->input >= 0) fprintf(p->out, "<%s>", t->name);
}

static void print_variable(const Printer *p, const Variable *v) {
  char text[256];
  fprintf(p->out, "  %s:%s", v->name, dtype_name(v->dtype));
  print_shape(p, &v->shape, v->shape.size);
  if (v->storage && p->placement) fprintf(p->out, " storage{%s}", placed(p, v->storage, &v->shape, text));
  for (int c = 0; c < v->copies; c++)
    fprintf(p->out, " copy:%s{%s}", dtype_name(v->copy[c].dtype), placed(p, v->copy[c].placement, &v->shape, text));
  if (p->g->stages > 1)
    for
      EACH_STAGE(stage, graph_stages(p->g, v->stages))
      fprintf(p->out, "%s%d", stage == stages_next(graph_stages(p->g, v->stages), 0) ? " stages=" : ",", stage);
  fputc('\n', p->out);
}

// The line above the nodes of a region, and in MICRO of a phase and stage, when it is another than `last`.
static int print_section(const Printer *p, const Node *n, int last) {
  static const char *const region[] = {"BEGIN", "MICRO", "END"};
  int section = (int)n->region * 10000 + (n->region == REGION_MICRO ? (int)n->phase + PHASE_COUNT * n->stage : 0);
  if (section == last) return section;
  fprintf(p->out, "%s", region[n->region]);
  if (n->region == REGION_MICRO) fprintf(p->out, " %s%s", phase_name(n->phase), p->g->stages > 1 ? " " : "");
  if (n->region == REGION_MICRO && p->g->stages > 1) fprintf(p->out, "stage %d", n->stage);
  fputc('\n', p->out);
  return section;
}

static void print_algorithm(const Printer *p, const Node *n) {
  if (n->algorithm) fprintf(p->out, " by %s", algorithm_text(n->algorithm));
}

// ---- all of it, one node a line ------------------------------------------------------------------------------------

static void print_tensor(const Printer *p, int id) {
  if (id < 0) {
    fputs(" -", p->out);
    return;
  }
  const Tensor *t = graph_tensor(p->g, id);
  char text[256];
  fprintf(p->out, " %%%d:%s", id, dtype_name(t->dtype));
  print_shape(p, &t->shape, sizes_of(p, t));
  print_binding(p, t);
  if (placed(p, t->placement, &t->shape, text)[0]) fprintf(p->out, "{%s}", text);
}

void graph_print(const Graph *g, FILE *out, PlacementPrinter placement, const void *context) {
  Printer p = {g, out, placement, context};
  fprintf(out, "Variables\n");
  for (int i = 0; i < g->variable.count; i++) print_variable(&p, &g->variable.data[i]);
  for (int i = 0, last = -1; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    last = print_section(&p, n, last);
    fprintf(out, "  ");
    for (int k = 0; k < n->noutput; k++) print_tensor(&p, n->output[k]);
    fprintf(out, " = %s", op_name(n->op));
    print_algorithm(&p, n);
    for (int k = 0; k < n->ninput; k++) print_tensor(&p, n->input[k]);
    fprintf(out, "%s   # %s\n", n->refreshes ? " where it is stale" : "", n->name);
  }
}

// ---- what a pattern selects, one operand a line --------------------------------------------------------------------

int names_match(const char *names, const char *name) {
  char one[256];
  for (const char *at = names; *at;) {
    size_t n = strcspn(at, ",");
    if (n && n < sizeof one) {
      memcpy(one, at, n);
      one[n] = 0;
      if (!fnmatch(one, name, 0)) return 1;
    }
    at += n + (at[n] == ',');
  }
  return 0;
}

static int operand_matches(const Graph *g, int tensor, const char *names) {
  if (tensor < 0) return 0;
  int variable = graph_tensor(g, tensor)->variable;
  return variable >= 0 && names_match(names, g->variable.data[variable].name);
}

int graph_node_matches(const Graph *g, const Node *n, const char *names) {
  int match = names_match(names, n->name);
  for (int k = 0; k < n->ninput && !match; k++) match = operand_matches(g, n->input[k], names);
  for (int k = 0; k < n->noutput && !match; k++) match = operand_matches(g, n->output[k], names);
  return match;
}

enum { MANY = 16 }; // operands that a listing shows all of; an update has 11

int graph_operand_hidden(const Graph *g, const Node *n, int tensor, const char *names) {
  if (n->ninput + n->noutput <= MANY || operand_matches(g, tensor, names)) return 0;
  if (n->ninput != n->noutput) return 1;
  for (int k = 0; k < n->ninput; k++) // a bucket: output k is what becomes of input k
    if ((n->input[k] == tensor && operand_matches(g, n->output[k], names)) ||
        (n->output[k] == tensor && operand_matches(g, n->input[k], names)))
      return 0;
  return 1;
}

// `node`: as the node wants its input placed or leaves its output, where place has said so; else NULL.
static void print_operand(const Printer *p, const char *what, int id, const Placement *node, const char *as) {
  if (id < 0) return;
  const Tensor *t = graph_tensor(p->g, id);
  char text[256], other[256];
  fprintf(p->out, "    %s %%%d %s", what, id, dtype_name(t->dtype));
  print_shape(p, &t->shape, sizes_of(p, t));
  if (t->variable >= 0 || t->input >= 0 || tensor_is_compact(t)) fputc(' ', p->out);
  print_binding(p, t);
  if (placed(p, t->placement, &t->shape, text)[0]) fprintf(p->out, " {%s}", text);
  if (node && strcmp(text, placed(p, node, &t->shape, other))) fprintf(p->out, "   %s {%s}", as, other);
  fputc('\n', p->out);
}

static void print_spread(const Printer *p, const Node *n, const char *names) {
  int hidden = 0;
  fprintf(p->out, "  %s = %s", n->name, op_name(n->op));
  print_algorithm(p, n);
  fputc('\n', p->out);
  for (int k = 0; k < n->ninput; k++)
    if (graph_operand_hidden(p->g, n, n->input[k], names)) hidden++;
    else print_operand(p, "reads", n->input[k], n->want_ ? n->want_[k] : NULL, "wanted as");
  for (int k = 0; k < n->noutput; k++)
    if (graph_operand_hidden(p->g, n, n->output[k], names)) hidden++;
    else print_operand(p, "gives", n->output[k], n->give_ ? n->give_[k] : NULL, "computed as");
  if (hidden) fprintf(p->out, "    … and %d more operands\n", hidden);
}

int graph_print_only(const Graph *g, const char *names, FILE *out, PlacementPrinter placement, const void *context) {
  Printer p = {g, out, placement, context};
  int count = 0, last = -1;
  for (int i = 0; i < g->variable.count; i++)
    if (names_match(names, g->variable.data[i].name)) {
      if (!count++) fprintf(out, "Variables\n");
      print_variable(&p, &g->variable.data[i]);
    }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!graph_node_matches(g, n, names)) continue;
    last = print_section(&p, n, last);
    print_spread(&p, n, names);
    count++;
  }
  return count;
}
