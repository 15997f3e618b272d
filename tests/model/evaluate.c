// A loop over nodes.
#include "evaluate.h"
#include <stdlib.h>

static void *memory_of(Evaluation *e, int id) {
  const Tensor *t = graph_tensor(e->graph, id);
  return t->variable >= 0 ? e->variable[t->variable] : e->tensor[id];
}

static Operand operand_of(Evaluation *e, int id) {
  if (id < 0) return (Operand){0};
  const Tensor *t = graph_tensor(e->graph, id);
  Operand o = {.data = memory_of(e, id), .dtype = t->dtype, .rank = t->shape.rank};
  for (int d = 0; d < o.rank; d++) {
    o.size[d] = t->shape.size[d];
    o.map[d] = index_whole(o.size[d]);
  }
  if (tensor_is_compact(t)) { // the rows that are there, which its mask says
    const uint8_t *mask = memory_of(e, t->mask);
    int64_t rows = 0;
    for (int64_t i = o.size[0] * o.size[1] * o.size[2] - 1; i >= 0; i--) rows += mask[i];
    o.size[0] = rows;
    o.size[1] = o.size[2] = 1;
    for (int d = 0; d < 3; d++) o.map[d] = index_whole(o.size[d]);
  }
  return o;
}

void evaluation_begin(Evaluation *e, Graph *g) {
  *e = (Evaluation){.graph = g};
  e->variable = xcalloc((size_t)g->variable.count, sizeof *e->variable);
  e->tensor = xcalloc((size_t)g->tensor.count, sizeof *e->tensor);
  for (int i = 0; i < g->variable.count; i++)
    e->variable[i] = xcalloc((size_t)shape_elements(&g->variable.data[i].shape), dtype_size(g->variable.data[i].dtype));
  for (int i = 0; i < g->tensor.count; i++)
    if (graph_tensor(g, i)->variable < 0)
      e->tensor[i] = xcalloc((size_t)shape_elements(&graph_tensor(g, i)->shape), dtype_size(graph_tensor(g, i)->dtype));
}

static void run_node(Evaluation *e, const Node *n) {
  CallParameters parameters = {.seed = 1, .step = 1};
  Operand input[128], output[8];
  CHECK(n->ninput <= 128 && n->noutput <= 8);
  for (int k = 0; k < n->ninput; k++) input[k] = operand_of(e, n->input[k]);
  for (int k = 0; k < n->noutput; k++) output[k] = operand_of(e, n->output[k]);
  KernelCall call = {.ninput = n->ninput, .noutput = n->noutput, .input = input, .output = output, .attr = n->attr,
                     .name = philox_name(n->name), .parameters = &parameters};
  op_def(n->op)->reference(&call);
}

void evaluation_run(Evaluation *e) {
  for (int region = 0; region < REGION_COUNT; region++)
    for (int i = 0; i < e->graph->node.count; i++)
      if ((int)e->graph->node.data[i].region == region) run_node(e, &e->graph->node.data[i]);
}

void evaluation_end(Evaluation *e) {
  for (int i = 0; i < e->graph->variable.count; i++) free(e->variable[i]);
  for (int i = 0; i < e->graph->tensor.count; i++) free(e->tensor[i]);
  free(e->variable);
  free(e->tensor);
}

void *evaluation_input(Evaluation *e, KnownInput known) {
  for (int i = 0; i < e->graph->input.count; i++)
    if (e->graph->input.data[i].id == (int)known) return e->tensor[e->graph->input.data[i].tensor];
  return NULL;
}

void *evaluation_variable(Evaluation *e, KnownVariable known) {
  CHECK(e->graph->known[known] >= 0, "the graph has no %s", known_name(known));
  return e->variable[e->graph->known[known]];
}
