// VERSION_TURN, NEXT_VERSION: what parameters were some steps ago, for gradients that are taken there
// (compile/delay.h).
//
// A step that is skipped is run again to find what was not finite, and a step may be tried before it is run
// (runtime/rank.c). Neither may move the versions on: so END moves them only with an update, and BEGIN catches up after
// a step that was skipped, once, however often it is run.
#include "base/fault.h"
#include "op/build.h"
#include <string.h>

static void scalars_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

// versions (), steps (), skip () or -1 → versions, steps, turn
static void turn_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  for (int k = 0; k < 3; k++) CHECK(node->input[k] < 0 ? k == 2 : graph_tensor(g, node->input[k])->shape.rank == 0);
  Tensor counter = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "versions", counter.dtype, counter.shape);
  graph_output(g, node, "steps", counter.dtype, counter.shape);
  graph_output(g, node, "turn", counter.dtype, counter.shape);
}

static void turn_reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  double versions = operand_load(&in[0], 0), steps = operand_load(&in[1], 0), turn;
  if (in[2].data) { // END
    int skip = operand_load(&in[2], 0) != 0;
    steps++;
    turn = skip ? TURN_STAYS : TURN_NEXT;
    if (!skip) versions = steps;
  } else {
    turn = !steps                                                           ? TURN_STARTS
           : versions < FAULT(versions_miss_skipped_steps, steps, versions) ? TURN_NEXT
                                                                            : TURN_STAYS;
    versions = steps;
  }
  operand_store(&out[0], 0, versions);
  operand_store(&out[1], 0, steps);
  operand_store(&out[2], 0, turn);
}

const OpDef op_def_version_turn = {
    .name = "version_turn",
    .meaning = "versions (), steps (), skip ()? → both counted on, and whether versions move (1), start (2) or stay "
               "(0); the first two in place",
    .shape = turn_shape,
    .rule = scalars_rule,
    .reference = turn_reference,
    .in_place = 2,
};

int op_version_turn(Graph *g, const char *name, int versions, int steps, int skip) {
  int input[] = {versions, steps, skip}, n = graph_node(g, OP_VERSION_TURN, name, input, 3, NULL, 0);
  op_update(g, n, 0, 0);
  op_update(g, n, 1, 1);
  return g->node.data[n].output[2];
}

// version, newer and weights of one shape, turn () → version
static void next_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 4 && op_same_sizes(g, node->input[0], node->input[1]) &&
        op_same_sizes(g, node->input[0], node->input[2]) && graph_tensor(g, node->input[3])->shape.rank == 0);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void next_reference(const KernelCall *call) {
  const Operand *in = call->input;
  double turn = operand_load(&in[3], 0);
  const Operand *from = turn == TURN_STAYS ? &in[0] : turn == TURN_NEXT ? &in[1] : &in[2];
  size_t bytes = (size_t)operand_elements(from) * dtype_size(from->dtype);
  if (call->output[0].data != from->data) memcpy(call->output[0].data, from->data, bytes);
}

// One of the three is read.
static void next_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = work->written;
  work->vector = 0;
}

const OpDef op_def_next_version = {
    .name = "next_version",
    .meaning = "version, newer, weights, turn () → version, newer where turn is 1, weights where it is more; in place",
    .shape = next_shape,
    .rule = scalars_rule,
    .reference = next_reference,
    .work = next_work,
    .in_place = 1,
};

void op_next_version(Graph *g, const char *name, int version, int newer, int weights, int turn) {
  int input[] = {version, newer, weights, turn}, n = graph_node(g, OP_NEXT_VERSION, name, input, 4, NULL, 0);
  op_update(g, n, 0, 0);
}
