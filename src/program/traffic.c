// Counts what a Program moves.
#include "program/traffic.h"
#include "op/op.h"
#include "program/rows.h"

static void add(TrafficList *list, uint32_t axes, double elements, const Tensor *t) {
  double bytes = elements * (double)dtype_size(t->dtype);
  int i = 0;
  while (i < list->count && list->data[i].axes != axes) i++;
  if (i == list->count) vec_push(list, (Traffic){.axes = axes});
  list->data[i].elements += elements;
  list->data[i].bytes += bytes;
  if (t->role == ROLE_WEIGHT || t->role == ROLE_WEIGHT_GRADIENT) list->data[i].parameter_bytes += bytes;
}

static int group_size(const Program *p, const Node *node) {
  uint32_t axes = node_attr(node, CommAttr)->axes;
  int pp = mesh_pipeline(&p->mesh), n = mesh_size(&p->mesh, axes & ~(1u << pp));
  if (!(axes >> pp & 1)) return n;
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, node->stages));
  return n * stages_count(&coordinates);
}

// The elements of a gathered tensor: where the batch was gathered its rows, else all shards, padding among them.
static double whole_shards(const Program *p, const Tensor *shard, const Tensor *whole, double ranks, int microbatch) {
  int rows = !p->shares->even && rows_of(p, whole, 0).count > rows_of(p, shard, 0).count;
  return rows ? (double)rows_elements(p, whole, 0, microbatch) : ranks * (double)rows_elements(p, shard, 0, microbatch);
}

// The elements of rows that go to experts or come from them: those of a rank's tokens.
static double exchanged_rows(const Program *p, const Node *n, const Tensor *in, const Tensor *out, int microbatch) {
  return (double)rows_elements(p, ((const ExchangeAttr *)(const void *)n->attr)->parts.home ? out : in, 0, microbatch);
}

// A collective of so many microbatches that are like this one (-1: of BEGIN and END, once).
static void add_node(const Program *p, const Node *n, int microbatch, int times, TrafficList *list) {
  if (!op_def(n->op)->communicates) return;
  const CommAttr *attr = node_attr(n, CommAttr);
  double ranks = group_size(p, n);
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *in = graph_tensor(p->graph, n->input[k]), *out = graph_tensor(p->graph, n->output[k]);
    const Tensor *whole = op_def(n->op)->gathers ? out : in;
    double moved = (double)rows_elements(p, whole, 0, microbatch);
    if (op_def(n->op)->gathers) moved = whole_shards(p, in, whole, ranks, microbatch);
    if (op_def(n->op)->scatters) moved = whole_shards(p, out, whole, ranks, microbatch);
    if (op_def(n->op)->reduces && !op_def(n->op)->scatters && !op_def(n->op)->rooted) moved *= 2;
    moved *= (ranks - 1) / ranks; // rooted: on the average of the ranks
    if (op_def(n->op)->rooted && (op_def(n->op)->gathers || op_def(n->op)->scatters)) {
      const Placement *owner = node_owner(p->graph, n); // one group of so many does it
      moved /= ranks * (owner ? mesh_size(&p->mesh, owner->owner_axes) : 1);
    }
    if (op_def(n->op)->moves_rows) moved = (ranks - 1) / ranks * exchanged_rows(p, n, in, out, microbatch);
    if (op_def(n->op)->shifts) moved = (double)rows_elements(p, in, 0, microbatch);
    add(list, attr->axes, times * moved, in);
  }
}

static void add_body(const Program *p, const Body *b, int microbatch, int times, TrafficList *list) {
  for (int i = 0; i < b->count; i++) add_node(p, &p->graph->node.data[b->instruction[i].node], microbatch, times, list);
}

double program_node_bytes(const Program *p, const Node *node, int microbatch) {
  TrafficList list = {0};
  add_node(p, node, microbatch, 1, &list);
  double bytes = list.count ? list.data[0].bytes : 0;
  vec_free(&list);
  return bytes;
}

double program_message_bytes(const Program *p, int tensor, int microbatch) {
  const Tensor *t = graph_tensor(p->graph, tensor);
  return (double)rows_elements(p, t, 0, microbatch) * (double)dtype_size(t->dtype);
}

// Sent of one microbatch.
static void add_messages(const Program *p, int microbatch, int times, TrafficList *list) {
  const ActionList *actions = &p->schedule->list[p->coordinate];
  for (int i = 0; i < actions->count; i++) {
    const Action *a = &actions->data[i];
    if (a->kind != ACTION_SEND || a->part != LIST_BODY || a->microbatch != microbatch) continue;
    const Tensor *t = graph_tensor(p->graph, a->tensor);
    add(list, 1u << mesh_pipeline(&p->mesh), times * (double)rows_elements(p, t, 0, microbatch), t);
  }
}

// Every body runs once on each microbatch; what a REDUCE starts is counted with END.
void program_traffic(const Program *p, TrafficList *list) {
  RowsKinds kinds = rows_kinds(p);
  add_body(p, &p->begin, -1, 1, list);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < kinds.count; k++)
        add_body(p, &p->micro[s][phase], kinds.kind[k].microbatch, kinds.kind[k].times, list);
  for (int k = 0; k < kinds.count; k++) add_messages(p, kinds.kind[k].microbatch, kinds.kind[k].times, list);
  add_body(p, &p->end, -1, 1, list);
}
