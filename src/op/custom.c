// CUSTOM: what the back end's kernel for it computes; the table knows nothing more about it.
//
// For kernels from outside, such as a test's. Its nodes are added with graph_add_node, with their outputs, to a graph
// that `partition` has made: no pass asks for shapes, a rule or a gradient there. They compute on the rank's own
// memory; attr is theirs to define.
#include "op/op.h"

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  CHECK(0, "%s: a custom node belongs in a graph that is partitioned already", node->name);
}

// No reference: a back end that has no kernel for it cannot run it, and the executor says so.
const OpDef op_def_custom = {
    .name = "custom",
    .meaning = "inputs → outputs, as the kernel says that the back end has for it; local",
    .rule = rule,
};
