// Readable listing of a Graph after any pass.
#include "ir/graph.h"
#include <string.h>

static void print_tensor(const Graph *g, FILE *out, int id, PlacementPrinter placement, const void *context) {
  if (id < 0) {
    fputs(" -", out);
    return;
  }
  const Tensor *t = graph_tensor(g, id);
  fprintf(out, " %%%d:%s(", id, dtype_name(t->dtype));
  for (int d = 0; d < t->shape.rank; d++) {
    int64_t size = g->form == GRAPH_LOCAL ? tensor_local(g, t)[d] : t->shape.size[d];
    fprintf(out, "%s%s=%lld", d ? " " : "", dim_name(t->shape.dim[d]), (long long)size);
  }
  fputc(')', out);
  if (t->variable >= 0) fprintf(out, "@%s%s", g->variable.data[t->variable].name, t->copy >= 0 ? "#copy" : "");
  if (t->input >= 0) fprintf(out, "<%s>", t->name);
  if (t->placement && placement) {
    char text[256];
    placement(context, t->placement, text, sizeof text);
    if (text[0]) fprintf(out, "{%s}", text);
  }
}

void graph_print(const Graph *g, FILE *out, PlacementPrinter placement, const void *context) {
  static const char *const region[] = {"BEGIN", "MICRO", "END"}, *const phase[] = {"forward", "backward"};
  fprintf(out, "Variables\n");
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    fprintf(out, "  %s:%s(", v->name, dtype_name(v->dtype));
    for (int d = 0; d < v->shape.rank; d++)
      fprintf(out, "%s%s=%lld", d ? " " : "", dim_name(v->shape.dim[d]), (long long)v->shape.size[d]);
    fputc(')', out);
    char text[256];
    if (v->storage && placement) placement(context, v->storage, text, sizeof text), fprintf(out, " storage{%s}", text);
    for (int c = 0; c < v->copies; c++) {
      text[0] = 0;
      if (v->copy[c].placement && placement) placement(context, v->copy[c].placement, text, sizeof text);
      fprintf(out, " copy:%s{%s}", dtype_name(v->copy[c].dtype), text);
    }
    if (g->stages > 1)
      for
        EACH_STAGE(stage, graph_stages(g, v->stages))
        fprintf(out, "%s%d", stage == stages_next(graph_stages(g, v->stages), 0) ? " stages=" : ",", stage);
    fputc('\n', out);
  }
  int last = -1;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    int section = (int)n->region * 1000 + (n->region == REGION_MICRO ? (int)n->phase + 2 * n->stage : 0);
    if (section != last) {
      fprintf(out, "%s", region[n->region]);
      if (n->region == REGION_MICRO) fprintf(out, " %s%s", phase[n->phase], g->stages > 1 ? " " : "");
      if (n->region == REGION_MICRO && g->stages > 1) fprintf(out, "stage %d", n->stage);
      fputc('\n', out);
    }
    last = section;
    fprintf(out, "  ");
    for (int k = 0; k < n->noutput; k++) print_tensor(g, out, n->output[k], placement, context);
    fprintf(out, " = %s", op_name(n->op));
    for (int k = 0; k < n->ninput; k++) print_tensor(g, out, n->input[k], placement, context);
    fprintf(out, "   # %s\n", n->name);
  }
}
