// Counts what a Program moves.
#include "program/traffic.h"
#include "base/fault.h"
#include "op/op.h"
#include "program/rows.h"

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
  const Tensor *in = graph_tensor(p->graph, n->input[k]), *out = graph_tensor(p->graph, n->output[k]);
  double ranks = collective_ranks(p, n);
  if (node_comm(n)->gathers) return whole_shards(p, in, out, ranks, microbatch);
  if (node_comm(n)->scatters) return whole_shards(p, out, in, ranks, microbatch);
  return node_calls(n, COMM_ALL_TO_ALL_V) ? exchanged_rows(p, n, in, out, microbatch)
                                          : (double)rows_elements(p, in, 0, microbatch);
}

static double bytes_each(const Tensor *t) {
  return FAULT(narrow_counts_as_fp32, (double)dtype_size(t->dtype), t->dtype == DTYPE_F64 ? 8 : 4);
}

double collective_whole_bytes(const Program *p, const Node *n, int microbatch) {
  double bytes = 0;
  for (int k = 0; k < n->noutput; k++)
    bytes += whole_elements(p, n, k, microbatch) * bytes_each(graph_tensor(p->graph, n->input[k]));
  return bytes;
}

// A rank's place in the group of a collective.
static int place_in_group(const Program *p, const Node *n, int rank) {
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, n->stages));
  int *ranks = xcalloc((size_t)p->mesh.ranks, sizeof *ranks), place = 0;
  int count = mesh_group(&p->mesh, rank, node_attr(n, CommAttr)->axes, &coordinates, ranks);
  while (place < count && ranks[place] != rank) place++;
  free(ranks);
  return place;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// A collective on one rank, or on the average of all: what its calls move (runtime/collective.c makes these calls).
typedef struct Moving {
  const Program *p;
  const Node *n;
  int microbatch, rank; // rank -1: the average, with the rows of the first
  int group_ranks, own; // of the group; the rank's place in it
  CommVolume volume;    // bytes
} Moving;

static int rows_rank(const Moving *m) { return m->rank < 0 ? 0 : m->rank; }

// elements: of the call's count, see CommShape.
static void call(Moving *m, CommKind kind, int root, double elements) {
  CommShape s = {.by = m->p->device->sends_by_rings ? COMM_BY_RING : COMM_BY_PROCESSES,
                 .kind = kind,
                 .dtype = (PlaitDtype)graph_tensor(m->p->graph, m->n->input[0])->dtype,
                 .ranks = {.n = m->group_ranks},
                 .root = root,
                 .elements = elements};
  CommVolume v = {0};
  if (m->rank >= 0) v = comm_volume_of(&s, m->own);
  else v.sent = v.received = comm_volume_mean(&s);
  m->volume.sent += v.sent;
  m->volume.received += v.received;
}

// Rows of experts are counted as if each rank sent as many to each other one.
static CommKind counted_as(const Node *n) {
  return node_calls(n, COMM_ALL_TO_ALL_V) ? COMM_ALL_TO_ALL : op_def(n->op)->comm;
}

// Of tensor k, what the call counts.
static double counted_elements(const Moving *m, int k) {
  const Tensor *in = graph_tensor(m->p->graph, m->n->input[k]), *out = graph_tensor(m->p->graph, m->n->output[k]);
  if (node_calls(m->n, COMM_ALL_TO_ALL_V))
    return exchanged_rows(m->p, m->n, in, out, m->microbatch) / m->group_ranks;
  double elements =
      (double)rows_elements(m->p, node_comm(m->n)->scatters ? out : in, rows_rank(m), m->microbatch);
  return node_calls(m->n, COMM_ALL_TO_ALL) ? elements / m->group_ranks : elements;
}

// The rows of tensors between whose ends the batch is gathered or scattered; 0: it is not.
static int moves_batch(const Moving *m, int k, Rows *in, Rows *out) {
  const CommTraits *traits = node_comm(m->n);
  if (m->p->shares->even || m->n->region != REGION_MICRO) return 0;
  if (!traits->send_parts && !traits->recv_parts) return 0;
  *in = rows_of(m->p, graph_tensor(m->p->graph, m->n->input[k]), rows_rank(m));
  *out = rows_of(m->p, graph_tensor(m->p->graph, m->n->output[k]), rows_rank(m));
  return in->count != out->count;
}

// Ranks with unequal rows: a call for those of each rank.
static void call_for_rows(Moving *m, int k, Rows in, Rows out) {
  int gathers = out.count > in.count, share = (gathers ? out : in).count / m->group_ranks;
  const Tensor *t = graph_tensor(m->p->graph, m->n->input[k]), *o = graph_tensor(m->p->graph, m->n->output[k]);
  const Tensor *whole = gathers ? o : t;
  double row = (double)(tensor_local_elements(m->p->graph, whole) / tensor_local(m->p->graph, whole)[0]);
  for (int r = 0; r < m->group_ranks; r++) {
    Rows rows = {(gathers ? out : in).first + r * share, share};
    double elements = row * (double)rows_valid(m->p, rows, m->microbatch);
    if (elements <= 0) continue;
    if (node_calls(m->n, COMM_ALL_TO_ALL)) call(m, gathers ? COMM_SCATTER : COMM_GATHER, r, elements);
    else call(m, gathers ? COMM_BROADCAST : COMM_REDUCE, r, elements);
  }
}

static CommVolume volume_of(const Program *p, const Node *n, int microbatch, int rank) {
  Moving m = {p, n, microbatch, rank, collective_ranks(p, n), 0, {0}};
  const Placement *owner = node_owner(p->graph, n);
  if (rank >= 0 && owner && !placement_here(&p->mesh, owner, rank)) return m.volume;
  if (rank >= 0) m.own = place_in_group(p, n, rank);
  double together = 0; // of a bucket
  Rows in, out;
  for (int k = 0; k < n->noutput; k++) {
    if (moves_batch(&m, k, &in, &out)) call_for_rows(&m, k, in, out);
    else together += counted_elements(&m, k);
  }
  const CommAttr *attr = node_attr(n, CommAttr);
  if (together > 0) call(&m, counted_as(n), node_calls(n, COMM_SHIFT) ? attr->distance : attr->root, together);
  if (rank < 0 && owner) { // one group of several does it
    double groups = mesh_size(&p->mesh, owner->owner_axes);
    m.volume.sent /= groups;
    m.volume.received /= groups;
  }
  return m.volume;
}

double collective_bytes(const Program *p, const Node *n, int microbatch) {
  return volume_of(p, n, microbatch, -1).sent;
}

CommVolume collective_volume(const Program *p, const Node *n, int microbatch, int rank) {
  return volume_of(p, n, microbatch, rank);
}

double transfer_bytes(const Program *p, const Action *a) {
  const Tensor *t = graph_tensor(p->graph, a->tensor);
  return (double)rows_elements(p, t, 0, a->microbatch) * bytes_each(t);
}

// ---- of a step ------------------------------------------------------------------------------------------------------

// rank -1: the average.
typedef struct Sum { const Program *p; int rank; TrafficList *list; } Sum;

static Traffic *traffic_over(TrafficList *list, uint32_t axes) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].axes == axes) return &list->data[i];
  vec_push(list, (Traffic){.axes = axes});
  return &list->data[list->count - 1];
}

static int is_of_parameters(const Tensor *t) { return t->role == ROLE_WEIGHT || t->role == ROLE_WEIGHT_GRADIENT; }

// A collective of `times` microbatches that are like this one (-1: of BEGIN and END, once). Tensors of a bucket have
// their part of it.
static void add_node(const Sum *sum, const Node *n, int microbatch, int times) {
  if (!op_def(n->op)->communicates) return;
  Traffic *t = traffic_over(sum->list, node_attr(n, CommAttr)->axes);
  CommVolume v = volume_of(sum->p, n, microbatch, sum->rank);
  double whole = 0, elements = 0, parameters = 0;
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *in = graph_tensor(sum->p->graph, n->input[k]);
    double of_tensor = whole_elements(sum->p, n, k, microbatch), bytes = of_tensor * (double)dtype_size(in->dtype);
    whole += bytes, elements += of_tensor;
    if (is_of_parameters(in)) parameters += bytes;
  }
  if (whole <= 0) return;
  t->bytes += times * v.sent;
  t->received += times * v.received;
  t->elements += times * v.sent / whole * elements;
  t->parameter_bytes += times * v.sent / whole * parameters;
}

static void add_body(const Sum *sum, const Body *b, int microbatch, int times) {
  for (int i = 0; i < b->count; i++)
    add_node(sum, &sum->p->graph->node.data[b->instruction[i].node], microbatch, times);
}

// Of one microbatch.
static void add_messages(const Sum *sum, int microbatch, int times) {
  const Program *p = sum->p;
  const ActionList *actions = &p->schedule->list[p->coordinate];
  for (int i = 0; i < actions->count; i++) {
    const Action *a = &actions->data[i];
    if ((a->kind != ACTION_SEND && a->kind != ACTION_RECV) || a->part != LIST_BODY || a->microbatch != microbatch)
      continue;
    const Tensor *tensor = graph_tensor(p->graph, a->tensor);
    Traffic *t = traffic_over(sum->list, 1u << mesh_pipeline(&p->mesh));
    double elements = times * (double)rows_elements(p, tensor, sum->rank < 0 ? 0 : sum->rank, microbatch),
           bytes = elements * (double)dtype_size(tensor->dtype);
    if (a->kind == ACTION_RECV) {
      t->received += bytes;
      continue;
    }
    t->bytes += bytes, t->elements += elements;
    if (is_of_parameters(tensor)) t->parameter_bytes += bytes;
  }
}

void program_traffic(const Program *p, TrafficList *list) { program_traffic_of(p, -1, list); }

// Every body runs once on each microbatch; what a REDUCE starts is counted with END.
void program_traffic_of(const Program *p, int rank, TrafficList *list) {
  Sum sum = {p, rank, list};
  RowsKinds kinds = rows_kinds(p);
  add_body(&sum, &p->begin, -1, 1);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < kinds.count; k++)
        add_body(&sum, &p->micro[s][phase], kinds.kind[k].microbatch, kinds.kind[k].times);
  for (int k = 0; k < kinds.count; k++) add_messages(&sum, kinds.kind[k].microbatch, kinds.kind[k].times);
  add_body(&sum, &p->end, -1, 1);
}
