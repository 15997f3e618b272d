// CAPACITY: an expert takes at most a given number of positions of a sequence, the first ones that chose it (Lepikhin
// et al., "GShard", 2021); later choices are dropped. Over a cut sequence it becomes COUNTS, all_reduce, APPLY.
//
// The positions of a rank are one or two runs (zigzag), and those of other ranks may lie between them. COUNTS
// therefore writes the number of choices in each of its runs into a place by where the run begins, of as many places
// as all ranks have runs; all_reduce fills in the others; and APPLY adds up what lies before each run.
#include "base/fault.h"
#include "op/build.h"

static void check_mask(const Graph *g, const Node *node) {
  const Tensor *mask = graph_tensor(g, node->input[0]);
  CHECK(mask->shape.rank == 3 && mask->dtype == DTYPE_U8, "%s: a mask (b, s, x)", node->name);
}

// mask (b, s, x) → mask (b, s, x)
static void capacity_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1 && node_attr(node, CapacityAttr)->most > 0);
  check_mask(g, node);
  graph_output(g, node, "", DTYPE_U8, graph_tensor(g, node->input[0])->shape);
}

static void capacity_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx"}, 1, (const char *[]){"bsx"}, 1, "; lower s");
}

// Runs of local positions [from, to) and the place of each.
typedef struct Run { int64_t from, to, place; } Run;
static int runs_of(const IndexMap *map, int64_t places, Run run[2]) {
  int n = 0;
  for (int r = 0; r < map->runs; r++) {
    int64_t from = map->run[r].local, to = r + 1 < map->runs ? map->run[r + 1].local : map->valid;
    if (to > from) run[n++] = (Run){from, to, map->run[r].global * places / map->global};
  }
  return n;
}

// Keeps the choices of one sequence's expert in a run while fewer than `most` came before; returns how many came.
static int64_t keep(const KernelCall *call, int64_t b, int64_t i, Run run, int64_t before, int64_t most) {
  const Operand *mask = &call->input[0];
  const uint8_t *chosen = mask->data;
  uint8_t *kept = call->output[0].data;
  int64_t positions = mask->size[1], experts = mask->size[2], backwards = FAULT(capacity_from_the_end, 0, 1);
  for (int64_t k = run.from; k < run.to; k++) {
    int64_t s = backwards ? run.to - 1 - (k - run.from) : k, at = (b * positions + s) * experts + i;
    kept[at] = chosen[at] && before < most;
    before += chosen[at];
  }
  return before;
}

static void capacity_reference(const KernelCall *call) {
  const Operand *mask = &call->input[0];
  Run all = {0, mask->size[1], 0};
  for (int64_t b = 0; b < mask->size[0]; b++)
    for (int64_t i = 0; i < mask->size[2]; i++) keep(call, b, i, all, 0, ((const CapacityAttr *)call->attr)->most);
}

static void capacity_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  Node node = *like;
  int64_t positions = graph_tensor(g, input[0])->shape.size[1];
  CapacityAttr attr = *node_attr(&node, CapacityAttr);
  attr.places = (int32_t)(2 * ranks < positions ? 2 * ranks : positions);
  CommAttr sum = {.axes = axes};
  int n = graph_node(g, OP_CAPACITY_COUNTS, op_derived_name(g, &node, "counts"), input, 1, &attr, sizeof attr);
  n = graph_node(g, OP_ALL_REDUCE, op_derived_name(g, &node, "all_reduce_counts"), g->node.data[n].output, 1, &sum,
                 sizeof sum);
  int all[] = {input[0], g->node.data[n].output[0]};
  n = graph_node(g, OP_CAPACITY_APPLY, op_derived_name(g, &node, "apply"), all, 2, &attr, sizeof attr);
  output[0] = g->node.data[n].output[0];
}

const OpDef op_def_capacity = {
    .name = "capacity",
    .meaning = "mask (b, s, x) → mask without the choices of an expert that come after its first `most` of a sequence",
    .shape = capacity_shape,
    .rule = capacity_rule,
    .lower = capacity_lower,
    .reference = capacity_reference,
};

// ---- what it is lowered to -----------------------------------------------------------------------------------------

// mask (b, s, x) → (b, places, x)
static void counts_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  check_mask(g, node);
  Shape s = graph_tensor(g, node->input[0])->shape;
  s.size[1] = node_attr(node, CapacityAttr)->places;
  s.dim[1] = DIM_NONE;
  graph_output(g, node, "", DTYPE_F32, s); // whole numbers, which fp32 holds up to 2²⁴
}

static void counts_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx"}, 1, (const char *[]){"bax"}, 1, "; whole a");
}

static void counts_reference(const KernelCall *call) {
  const Operand *mask = &call->input[0], *counts = &call->output[0];
  const uint8_t *chosen = mask->data;
  int64_t places = counts->size[1], positions = mask->size[1], experts = mask->size[2];
  Run run[2];
  int runs = runs_of(&mask->map[1], places, run);
  for (int64_t e = operand_elements(counts) - 1; e >= 0; e--) operand_store(counts, e, 0);
  for (int64_t b = 0; b < mask->size[0]; b++)
    for (int r = 0; r < runs; r++)
      for (int64_t i = 0; i < experts; i++) {
        int64_t count = 0;
        for (int64_t s = run[r].from; s < run[r].to; s++) count += chosen[(b * positions + s) * experts + i];
        operand_store(counts, (b * places + run[r].place) * experts + i, (double)count);
      }
}

const OpDef op_def_capacity_counts = {
    .name = "capacity_counts",
    .meaning = "mask (b, s, x) → (b, places, x): the choices of this rank's runs of positions, each at its place, and "
               "0 where other ranks' belong",
    .shape = counts_shape,
    .rule = counts_rule,
    .reference = counts_reference,
};

// mask (b, s, x), counts (b, places, x) of all ranks → mask
static void apply_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  check_mask(g, node);
  graph_output(g, node, "", DTYPE_U8, graph_tensor(g, node->input[0])->shape);
}

static void apply_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", "bax"}, 2, (const char *[]){"bsx"}, 1, "; whole a");
}

static void apply_reference(const KernelCall *call) {
  const Operand *mask = &call->input[0], *counts = &call->input[1];
  const CapacityAttr *attr = call->attr;
  int64_t experts = mask->size[2], places = counts->size[1];
  Run run[2];
  int runs = runs_of(&mask->map[1], places, run);
  for (int64_t b = 0; b < mask->size[0]; b++)
    for (int64_t i = 0; i < experts; i++)
      for (int r = 0; r < runs; r++) {
        int64_t before = 0;
        for (int64_t place = 0; place < FAULT(capacity_of_a_part, run[r].place, 0); place++)
          before += (int64_t)operand_load(counts, (b * places + place) * experts + i);
        keep(call, b, i, run[r], before, attr->most);
      }
}

const OpDef op_def_capacity_apply = {
    .name = "capacity_apply",
    .meaning = "mask (b, s, x), counts (b, places, x) of whole sequences → mask without the choices of an expert that "
               "come after its first `most` of a sequence",
    .shape = apply_shape,
    .rule = apply_rule,
    .reference = apply_reference,
};
