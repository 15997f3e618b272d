// Counts what executor_create allocates (program/bind.c), instruction by instruction.
#include "train/host_memory.h"

static int64_t extent(const Tensor *t, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= t->local[d];
  return n;
}

// Buffers of a collective: one a tensor, or one for each block outside of the gathered or scattered dim.
static int64_t pieces(const Graph *g, const Node *n) {
  int64_t count = 0;
  const OpDef *def = op_def(n->op);
  if (!def->gathers && !def->scatters) return n->ninput;
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
    int d = 0;
    while (d < in->shape.rank && axis_list_equal(&in->placement->dim[d], &out->placement->dim[d])) d++;
    count += extent(def->scatters ? out : in, 0, d);
  }
  return count;
}

static int64_t body_bytes(const Graph *g, const Body *body) {
  int64_t bytes = 0;
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    bytes += (int64_t)sizeof(Bound) + (n->ninput + n->noutput + 2) * (int64_t)sizeof(Operand) + (n->ninput + 1) * (int64_t)sizeof(int);
    if (op_def(n->op)->communicates) bytes += pieces(g, n) * (int64_t)(sizeof(Piece) + sizeof(PlaitBuffer));
  }
  return bytes;
}

static int64_t program_bytes(const Program *p) {
  int64_t bytes = body_bytes(p->graph, &p->begin) + body_bytes(p->graph, &p->end);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) bytes += body_bytes(p->graph, &p->micro[s][phase]);
  return bytes;
}

int64_t host_memory_executors(const Job *job, int coordinate) {
  return program_bytes(job->train.program[coordinate]) + (job->evaluate.graph ? program_bytes(job->evaluate.program[coordinate]) : 0);
}
