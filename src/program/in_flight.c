// Upper bounds from the action list and the bodies.
#include "program/in_flight.h"
#include "program/calls.h"
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

// One, and two counts a rank, which are smaller than a buffer; a list of several steps has one for each input.
static int buffers_of(const Program *p, const Node *n, int copies) {
  if (copies) return n->ninput;
  return node_calls(n, COMM_ALL_TO_ALL_V) ? 1 + 2 * mesh_size(&p->mesh, node_attr(n, CommAttr)->axes) : 0;
}

static InFlight started_in(const Program *p, const Body *b, int axis, int copies) {
  InFlight all = {0};
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (!b->instruction[i].wait || collective_stream(&p->mesh, n) != axis) continue;
    all.calls += calls_of(p, n);
    all.buffers += buffers_of(p, n, copies);
  }
  return all;
}

// A body waits for all that it has started; what a REDUCE has started stays until END, and in a stream what END has
// started until that of a later step.
InFlight in_flight_collectives(const Program *p, int axis) {
  InFlight all = started_in(p, &p->end, axis, 1);
  all.calls *= p->sums_under_way, all.buffers *= p->sums_under_way;
  all.copies = all.calls > 0;
  for (int i = 0; i < p->actions.count; i++)
    all.calls += p->actions.data[i].kind == ACTION_REDUCE &&
                 collective_stream(&p->mesh, &p->graph->node.data[p->actions.data[i].node]) == axis;
  InFlight most = {0};
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      InFlight n = started_in(p, &p->micro[s][phase], axis, 0);
      most.calls = n.calls > most.calls ? n.calls : most.calls;
      most.buffers = n.buffers > most.buffers ? n.buffers : most.buffers;
    }
  return (InFlight){all.calls + most.calls, all.buffers + most.buffers, all.copies};
}

// A microbatch that enters a buffer waits until all that its predecessor there sent has arrived: no more than one
// message of each kind is under way for each buffer. All microbatches send the same tensors.
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
