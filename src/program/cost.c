// Adding up what the kernels of a step cost.
#include "program/cost.h"
#include "program/rows.h"

static double elements(const Operand *x) {
  double n = 1;
  for (int i = 0; i < x->rank; i++) n *= (double)x->size[i];
  return n;
}

// On a microbatch, or -1: in BEGIN and END; so many times.
static void add_body(const Program *p, const Body *b, int microbatch, double times, ProgramCost *cost) {
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (op_def(n->op)->communicates) continue;
    Arena scratch = {0};
    int count = n->ninput + n->noutput;
    double bytes = 0, most = 0, flops;
    Operand *x = arena_array(&scratch, Operand, count + 1);
    program_operands(p, n, 0, x, x + n->ninput);
    for (int k = 0; k < count; k++) {
      int tensor = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      Rows rows = tensor < 0 || p->shares->even ? (Rows){0} : rows_of(p, graph_tensor(p->graph, tensor), 0);
      if (rows.count) rows_set(p, rows, microbatch, &x[k]);
      if (tensor < 0) continue;
      bytes += elements(&x[k]) * (double)dtype_size(x[k].dtype);
      if (elements(&x[k]) > most) most = elements(&x[k]);
    }
    flops = p->device->flops(p->device, n->op, x, x + n->ninput, n->attr);
    if (node_by_reference(p->graph, n, p->device)) cost->reference += times * (flops > most ? flops : most);
    else cost->bytes += times * bytes, cost->flops += times * flops, cost->calls += times;
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
