// ROUTER_LOAD and ROUTER_BIAS: how often each expert was chosen, and the bias that evens this out without a loss (Wang
// et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts", 2024).
#include "base/fault.h"
#include "op/build.h"

// mask (b, s, x), kept (b, s, x) or -1 → (2, x) fp64
static void load_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor mask = *graph_tensor(g, node->input[0]);
  CHECK(mask.shape.rank == 3 && mask.dtype == DTYPE_U8, "%s", node->name);
  CHECK(node->input[1] < 0 || op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  graph_output(g, node, "", DTYPE_F64,
               shape_of(2, (int64_t[]){2, mask.shape.size[2]}, (DimName[]){DIM_NONE, mask.shape.dim[2]}));
}

static void load_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", node->input[1] < 0 ? "" : "bsx"}, 2, (const char *[]){"ax"}, 1,
          "; whole a x");
}

static void load_reference(const KernelCall *call) {
  const Operand *mask = &call->input[0], *load = &call->output[0];
  int64_t n = mask->size[2], rows = mask->size[0] * mask->size[1];
  for (int k = 0; k < 2; k++) {
    const uint8_t *chosen = k && call->input[1].data ? call->input[1].data : mask->data;
    for (int64_t i = 0; i < n; i++) {
      int64_t count = 0;
      for (int64_t r = 0; r < rows; r++) count += chosen[r * n + i];
      operand_store(load, k * n + i, (double)count);
    }
  }
}

const OpDef op_def_router_load = {
    .name = "router_load",
    .meaning = "mask (b, s, x), kept (b, s, x)? → (2, x) fp64: how many positions chose each expert, and of how many "
               "of these the choice was kept (without `kept` of all)",
    .shape = load_shape,
    .rule = load_rule,
    .reference = load_reference,
};

// bias (x), load (2, x), skip () → bias
static void bias_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor bias = *graph_tensor(g, node->input[0]);
  const Shape *load = &graph_tensor(g, node->input[1])->shape;
  CHECK(bias.shape.rank == 1 && load->rank == 2 && load->size[1] == bias.shape.size[0], "%s", node->name);
  graph_output(g, node, "", bias.dtype, bias.shape);
}

static void bias_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"x", "ax", ""}, 3, (const char *[]){"x"}, 1, "; whole a x");
}

// The bias of an expert that was chosen less than the mean grows by `rate`, that of one chosen more shrinks by it.
static void bias_reference(const KernelCall *call) {
  const Operand *bias = &call->output[0], *load = &call->input[1];
  double rate = ((const RouterBiasAttr *)call->attr)->rate, sum = 0;
  int64_t n = bias->size[0];
  int skip = operand_load(&call->input[2], 0) != 0;
  for (int64_t i = 0; i < n; i++) sum += operand_load(load, i);
  for (int64_t i = 0; i < n; i++) {
    double less = sum - operand_load(load, i) * (double)n; // whole numbers: the mean itself would be rounded
    double step = skip ? 0 : FAULT(router_bias_to_the_busy, rate, -rate) * ((less > 0) - (less < 0));
    operand_store(bias, i, operand_load(&call->input[0], i) + step);
  }
}

const OpDef op_def_router_bias = {
    .name = "router_bias",
    .meaning = "bias (x), load (2, x), skip () → bias + rate · sign(mean of load[0] - load[0]), or bias when skip; in "
               "place",
    .shape = bias_shape,
    .rule = bias_rule,
    .reference = bias_reference,
    .in_place = 1,
};
