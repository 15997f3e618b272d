// Counts what a Program moves.
#include "program/traffic.h"
#include "base/fault.h"
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

int collective_ranks(const Program *p, const Node *node) {
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

// Of tensor k of a collective: the elements of the whole, see collective_whole_bytes.
static double whole_elements(const Program *p, const Node *n, int k, int microbatch) {
  const OpDef *op = op_def(n->op);
  const Tensor *in = graph_tensor(p->graph, n->input[k]), *out = graph_tensor(p->graph, n->output[k]);
  double ranks = collective_ranks(p, n);
  if (op->gathers) return whole_shards(p, in, out, ranks, microbatch);
  if (op->scatters) return whole_shards(p, out, in, ranks, microbatch);
  return op->moves_rows ? exchanged_rows(p, n, in, out, microbatch) : (double)rows_elements(p, in, 0, microbatch);
}

// Of these, what a rank sends.
static double moved_elements(const Program *p, const Node *n, int k, int microbatch) {
  const OpDef *op = op_def(n->op);
  double ranks = collective_ranks(p, n), moved = whole_elements(p, n, k, microbatch);
  if (op->shifts) return moved;
  if (op->reduces && !op->scatters && !op->rooted) moved *= 2;
  moved *= FAULT(ring_moves_the_whole, (ranks - 1) / ranks, 1); // rooted: on the average of the ranks
  if (!op->rooted || (!op->gathers && !op->scatters)) return moved;
  const Placement *owner = node_owner(p->graph, n); // one group of so many does it
  return moved / (ranks * (owner ? mesh_size(&p->mesh, owner->owner_axes) : 1));
}

static double bytes_each(const Tensor *t) {
  return FAULT(narrow_counts_as_fp32, (double)dtype_size(t->dtype), t->dtype == DTYPE_F64 ? 8 : 4);
}

static double bytes_of(const Program *p, const Node *n, int microbatch,
                       double (*elements)(const Program *p, const Node *n, int k, int microbatch)) {
  double bytes = 0;
  for (int k = 0; k < n->noutput; k++)
    bytes += elements(p, n, k, microbatch) * bytes_each(graph_tensor(p->graph, n->input[k]));
  return bytes;
}

double collective_bytes(const Program *p, const Node *n, int microbatch) {
  return bytes_of(p, n, microbatch, moved_elements);
}

double collective_whole_bytes(const Program *p, const Node *n, int microbatch) {
  return bytes_of(p, n, microbatch, whole_elements);
}

static double sent_elements(const Program *p, const Action *a) {
  return (double)rows_elements(p, graph_tensor(p->graph, a->tensor), 0, a->microbatch);
}

double transfer_bytes(const Program *p, const Action *a) {
  return sent_elements(p, a) * bytes_each(graph_tensor(p->graph, a->tensor));
}

// A collective of so many microbatches that are like this one (-1: of BEGIN and END, once).
static void add_node(const Program *p, const Node *n, int microbatch, int times, TrafficList *list) {
  if (!op_def(n->op)->communicates) return;
  for (int k = 0; k < n->noutput; k++)
    add(list, node_attr(n, CommAttr)->axes, times * moved_elements(p, n, k, microbatch),
        graph_tensor(p->graph, n->input[k]));
}

static void add_body(const Program *p, const Body *b, int microbatch, int times, TrafficList *list) {
  for (int i = 0; i < b->count; i++) add_node(p, &p->graph->node.data[b->instruction[i].node], microbatch, times, list);
}

// Sent of one microbatch.
static void add_messages(const Program *p, int microbatch, int times, TrafficList *list) {
  const ActionList *actions = &p->schedule->list[p->coordinate];
  for (int i = 0; i < actions->count; i++) {
    const Action *a = &actions->data[i];
    if (a->kind != ACTION_SEND || a->part != LIST_BODY || a->microbatch != microbatch) continue;
    add(list, 1u << mesh_pipeline(&p->mesh), times * sent_elements(p, a), graph_tensor(p->graph, a->tensor));
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
