// Upper bounds from the action list and the bodies.
#include "program/in_flight.h"
#include "program/rows.h"

// Where ranks have different numbers of rows, a gather or scatter of the batch is a call for each rank and tensor.
static int calls_of(const Program *p, const Node *n) {
  int per_rank = 0;
  for (int k = 0; k < n->noutput && !p->shares->even; k++) {
    const Tensor *in = graph_tensor(p->graph, n->input[k]), *out = graph_tensor(p->graph, n->output[k]);
    per_rank += rows_of(p, in, 0).count != rows_of(p, out, 0).count;
  }
  return per_rank ? per_rank * mesh_size(&p->mesh, node_attr(n, CommAttr)->axes) : 1;
}

// A collective in flight: not a MOVE, which is in no stream.
static int is_started(const Program *p, const Instruction *i) {
  return i->wait > 0 && op_def(p->graph->node.data[i->node].op)->communicates;
}

static int started_in(const Program *p, const Body *b) {
  int n = 0;
  for (int i = 0; i < b->count; i++)
    if (is_started(p, &b->instruction[i])) n += calls_of(p, &p->graph->node.data[b->instruction[i].node]);
  return n;
}

// One, and two counts a rank, which are smaller than a buffer.
static int buffers_in(const Program *p, const Body *b) {
  int n = 0;
  for (int i = 0; i < b->count; i++) {
    const Node *node = &p->graph->node.data[b->instruction[i].node];
    if (b->instruction[i].wait > 0 && node_calls(node, COMM_ALL_TO_ALL_V))
      n += 1 + 2 * mesh_size(&p->mesh, node_attr(node, CommAttr)->axes);
  }
  return n;
}

int in_flight_buffers(const Program *p) {
  int most = 0;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      int n = buffers_in(p, &p->micro[s][phase]);
      most = n > most ? n : most;
    }
  return most;
}

// A body waits for all that it has started; what a REDUCE has started stays until END.
int in_flight_collectives(const Program *p) {
  int reduces = 0, most = 0;
  for (int i = 0; i < p->actions.count; i++) reduces += p->actions.data[i].kind == ACTION_REDUCE;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      int n = started_in(p, &p->micro[s][phase]);
      most = n > most ? n : most;
    }
  return reduces + most;
}

// A microbatch that enters a buffer waits until all that its predecessor there sent has arrived: no more than one
// message of each kind is under way for each buffer. All microbatches send the same tensors.
int in_flight_sums(const Program *p) { return p->sums_under_way * started_in(p, &p->end); }

int in_flight_sum_buffers(const Program *p) {
  int n = 0;
  for (int i = 0; i < p->end.count; i++)
    if (is_started(p, &p->end.instruction[i])) n += p->graph->node.data[p->end.instruction[i].node].ninput;
  return p->sums_under_way * n;
}

int in_flight_messages(const Program *p, int forward, int coordinate) {
  int n = 0;
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (a->kind != ACTION_SEND || a->part != LIST_BODY || a->microbatch || (a->peer > a->stage) != forward ||
        stage_coordinate(a->peer, p->schedule->map) != coordinate)
      continue;
    n += a->kept ? p->slots[a->stage].count : p->staging[a->stage][a->phase].count;
  }
  return n;
}
