// Adding up what the kernels of a step cost.
#include "program/cost.h"
#include "program/rows.h"
#include <math.h>

// The operands of a node, inputs and then outputs, as the first rank has them in a call; what this lacks is absent.
static Operand *operands(const Program *p, const Node *n, int microbatch, Arena *scratch) {
  int count = n->ninput + n->noutput;
  Operand *x = arena_array(scratch, Operand, count + 1);
  program_operands(p, n, 0, x, x + n->ninput);
  for (int k = 0; k < count && !p->shares->even; k++) {
    int tensor = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    Rows rows = tensor < 0 ? (Rows){0} : rows_of(p, graph_tensor(p->graph, tensor), 0);
    if (rows.count) rows_set(p, rows, microbatch, &x[k]);
  }
  for (int k = 0; k < n->ninput; k++)
    if (program_call_lacks(p, n, k, microbatch)) x[k] = (Operand){0};
  return x;
}

OpWork program_work(const Program *p, const Node *n, int microbatch) {
  Arena scratch = {0};
  Operand *x = operands(p, n, microbatch, &scratch);
  rows_balance(p, n, microbatch, x);
  OpWork work = op_work(op_def(n->op), x, n->ninput, x + n->ninput, n->noutput, n->attr);
  arena_free(&scratch);
  return work;
}

static double stored_bytes(const Program *p, int tensor, const Operand *x) {
  return (double)tensor_bytes(p->graph, graph_tensor(p->graph, tensor), operand_elements(x));
}

void program_operand_bytes(const Program *p, const Node *n, int microbatch, double *bytes) {
  Arena scratch = {0};
  Operand *x = operands(p, n, microbatch, &scratch);
  rows_balance(p, n, microbatch, x);
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int tensor = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    int present = tensor >= 0 && !(k < n->ninput && program_call_lacks(p, n, k, microbatch));
    bytes[k] = present ? stored_bytes(p, tensor, &x[k]) : 0;
  }
  arena_free(&scratch);
}

// On a microbatch (-1: in BEGIN and END), `times` times.
static void add_body(const Program *p, const Body *b, int microbatch, double times, ProgramCost *cost) {
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (op_def(n->op)->communicates) continue;
    if (FAULT(fresh_copies_move_bytes, n->refreshes, 0)) continue; // a step that follows another passes it over
    Arena scratch = {0};
    const Placement *owner = node_is(n, ROLE_WHOLE_MATRIX) ? node_owner(p->graph, n) : NULL;
    double share = owner ? times / mesh_size(&p->mesh, owner->owner_axes) : times; // a rank's of all owners' work
    const OpWork work = program_work(p, n, microbatch);
    double bytes = 0, most = 0, flops = work.matrix;
    const Operand *x = operands(p, n, microbatch, &scratch);
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int tensor = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      double elements = (double)operand_elements(&x[k]);
      if (tensor < 0) continue;
      if (k < n->ninput && program_call_lacks(p, n, k, microbatch)) continue;
      bytes += stored_bytes(p, tensor, &x[k]);
      if (elements > most) most = elements;
    }
    bytes = fmin(bytes, work.read + work.written); // of a table or a cache only some rows are read
    if (node_by_reference(p->graph, n, p->device)) cost->reference += share * (flops > most ? flops : most);
    else cost->bytes += share * bytes, cost->flops += share * flops, cost->calls += share;
    arena_free(&scratch);
  }
}

ProgramCost program_cost(const Program *p) {
  ProgramCost cost = {0};
  RowsKinds kinds = rows_kinds(p);
  add_body(p, &p->begin, -1, 1, &cost);
  add_body(p, &p->end, -1, 1, &cost);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int k = 0; k < kinds.count; k++)
        add_body(p, &p->micro[s][phase], kinds.kind[k].microbatch, kinds.kind[k].times, &cost);
  return cost;
}

// Axes that cut a node's inputs, in dims after the batch: over others all ranks have as many pairs.
static uint32_t axes_after_batch(const Graph *g, const Node *n) {
  uint32_t axes = 0;
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
    for (int d = 1; t && t->placement && d < t->shape.rank; d++)
      for (int i = 0; i < t->placement->dim[d].n; i++) axes |= 1u << t->placement->dim[d].axis[i];
  }
  return axes;
}

static double node_pairs(const Program *p, const Node *n, int rank) {
  Arena scratch = {0};
  Operand *x = arena_array(&scratch, Operand, n->ninput + n->noutput + 1);
  program_operands(p, n, rank, x, x + n->ninput);
  double pairs = op_def(n->op)->pairs(x, x + n->ninput, n->attr);
  arena_free(&scratch);
  return pairs;
}

ProgramPairs program_pairs(const Program *p) {
  uint32_t axes = 0;
  int *ranks = xcalloc((size_t)p->mesh.ranks, sizeof *ranks);
  double *sum = xcalloc((size_t)p->mesh.ranks, sizeof *sum);
  for (int pass = 0, count = 0; pass < 2; pass++) {
    for EACH_PROGRAM_STAGE(s, p)
      for (int i = 0; i < p->micro[s][PHASE_FORWARD].count; i++) {
        const Node *n = &p->graph->node.data[p->micro[s][PHASE_FORWARD].instruction[i].node];
        if (!op_def(n->op)->pairs) continue;
        if (!pass) axes |= axes_after_batch(p->graph, n);
        for (int r = 0; pass && r < count; r++) sum[r] += node_pairs(p, n, ranks[r]);
      }
    count = mesh_group(&p->mesh, 0, axes, NULL, ranks);
  }
  ProgramPairs pairs = {0};
  int count = mesh_group(&p->mesh, 0, axes, NULL, ranks);
  for (int r = 0; r < count; r++) {
    pairs.mean += sum[r] / count;
    if (sum[r] > pairs.most) pairs.most = sum[r];
  }
  free(ranks);
  free(sum);
  return pairs;
}

ProgramOwned program_owned(const Program *p) {
  ProgramOwned owned = {0};
  const Mesh *mesh = &p->mesh;
  double *flops = xcalloc((size_t)mesh->ranks, sizeof *flops);
  int pp = mesh_pipeline(mesh), first = 1;
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    if (!node_is(n, ROLE_WHOLE_MATRIX)) continue;
    const Placement *owner = node_owner(p->graph, n);
    Operand x[2];
    program_operands(p, n, 0, x, x + 1);
    for (int r = 0; r < mesh->ranks; r++)
      if (!owner || placement_here(mesh, owner, r)) flops[r] += op_work(op_def(n->op), x, 1, x + 1, 1, n->attr).matrix;
    owned.count++;
  }
  for (int r = 0; r < mesh->ranks; r++) {
    if (mesh_coordinate(mesh, r, pp) != p->coordinate) continue;
    if (first || flops[r] < owned.least) owned.least = flops[r];
    if (first || flops[r] > owned.most) owned.most = flops[r];
    first = 0;
  }
  free(flops);
  return owned;
}
