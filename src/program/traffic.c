// Counts what a Program moves.
#include "program/traffic.h"
#include "op/op.h"

static void add(TrafficList *list, uint32_t axes, double elements, Dtype dtype) {
  int i = 0;
  while (i < list->count && list->data[i].axes != axes) i++;
  if (i == list->count) vec_push(list, (Traffic){.axes = axes});
  list->data[i].elements += elements;
  list->data[i].bytes += elements * (double)dtype_size(dtype);
}

static double local_elements(const Graph *g, const Tensor *t) {
  double n = 1;
  for (int d = 0; d < t->shape.rank; d++) n *= (double)tensor_local(g, t)[d];
  return n;
}

static int group_size(const Program *p, const Node *node) {
  uint32_t axes = node_attr(node, CommAttr)->axes;
  int pp = mesh_pipeline(&p->mesh), n = mesh_size(&p->mesh, axes & ~(1u << pp));
  if (!(axes >> pp & 1)) return n;
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, node->stages));
  return n * stages_count(&coordinates);
}

static void add_node(const Program *p, const Node *n, TrafficList *list) {
  if (!op_def(n->op)->communicates) return;
  const CommAttr *attr = node_attr(n, CommAttr);
  double ranks = group_size(p, n);
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *in = graph_tensor(p->graph, n->input[k]), *out = graph_tensor(p->graph, n->output[k]);
    double elements = op_def(n->op)->gathers    ? ranks * local_elements(p->graph, in)
                      : op_def(n->op)->scatters ? ranks * local_elements(p->graph, out)
                      : op_def(n->op)->rooted   ? local_elements(p->graph, in) // on the average of the ranks
                                                : 2 * local_elements(p->graph, in);
    add(list, attr->axes, elements * (ranks - 1) / ranks, in->dtype);
  }
}

static void add_body(const Program *p, const Body *b, TrafficList *list) {
  for (int i = 0; i < b->count; i++) add_node(p, &p->graph->node.data[b->instruction[i].node], list);
}

void program_traffic(const Program *p, TrafficList *list) {
  const ActionList *actions =
      &p->schedule->list[p->coordinate]; // not p->actions: what a REDUCE starts is counted with END
  for (int i = 0; i < actions->count; i++) {
    const Action *a = &actions->data[i];
    if (a->kind == ACTION_BEGIN) add_body(p, &p->begin, list);
    if (a->kind == ACTION_END) add_body(p, &p->end, list);
    if (action_runs_body(a)) add_body(p, &p->micro[a->stage][action_phase(a)], list);
    const Tensor *t = a->kind == ACTION_SEND ? graph_tensor(p->graph, a->tensor) : NULL;
    if (t) add(list, 1u << mesh_pipeline(&p->mesh), local_elements(p->graph, t), t->dtype);
  }
}
