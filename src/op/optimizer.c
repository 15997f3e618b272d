// Finds optimizers, and has what their ops share.
#include "op/optimizer.h"

static const Op optimizers[] = {
#define OPTIMIZER(id, name) OP_##id,
#include "ir/optimizers.def"
};
enum { COUNT = sizeof optimizers / sizeof *optimizers };

int optimizer_find(const char *name) {
  for (int i = 0; i < COUNT; i++)
    if (!strcmp(op_def(optimizers[i])->name, name)) return (int)optimizers[i];
  return -1;
}

int optimizer_reads(Op op, const char *key) {
  size_t n = strlen(key);
  for (const char *word = op_def(op)->optimizer->reads; *word; word += strcspn(word, " "), word += strspn(word, " "))
    if (strcspn(word, " ") == n && !strncmp(word, key, n)) return 1;
  return 0;
}

const char *optimizer_meaning(int op) { return op_def((Op)op)->optimizer->meaning; }

void optimizer_names(char *text, size_t size) {
  text[0] = 0;
  for (int i = 0; i < COUNT; i++) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", !i ? "" : i == COUNT - 1 ? " or " : ", ", op_def(optimizers[i])->name);
  }
}

static int state_count(const OptimizerDef *d) {
  int n = 0;
  while (d->state[n]) n++;
  return n;
}

void optimizer_shape(Graph *g, Node *node) {
  const OptimizerDef *d = op_def(node->op)->optimizer;
  int states = state_count(d);
  CHECK(node->ninput == states + 6 || node->ninput == states + 7, "%s", node->name);
  for (int k = 1; k < states + 2; k++)
    CHECK(node->input[k] < 0 ? k <= states : op_same_sizes(g, node->input[0], node->input[k]), "%s", node->name);
  for (int k = states + 2; k < states + 6; k++) CHECK(graph_tensor(g, node->input[k])->shape.rank == 0);
  for (int k = 0; k <= states; k++) {
    if (node->input[k] < 0) continue;
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, k ? d->state[k - 1] : "w", x.dtype, x.shape);
  }
  optimizer_split_shape(g, node, states + 6);
  optimizer_copy_shape(g, node, node_attr(node, OptimizerAttr)->copy);
}

void optimizer_split_shape(Graph *g, Node *node, int inputs) {
  if (node->ninput == inputs) return;
  Tensor low = *graph_tensor(g, node->input[inputs]);
  CHECK(node->ninput == inputs + 1 && low.dtype == DTYPE_U16 && graph_tensor(g, node->input[0])->dtype == DTYPE_BF16 &&
            op_same_sizes(g, node->input[0], node->input[inputs]),
        "%s", node->name);
  graph_output(g, node, "low", low.dtype, low.shape);
}

void optimizer_copy_shape(Graph *g, Node *node, int32_t copy) {
  if (!copy) return;
  const Tensor w = *graph_tensor(g, node->input[0]);
  CHECK(dtype_is_float((Dtype)(copy - 1)) && dtype_size((Dtype)(copy - 1)) < dtype_size(w.dtype), "%s", node->name);
  graph_output(g, node, "copy", (Dtype)(copy - 1), w.shape);
}

int optimizer_add_copy(Node *node, int32_t *copy, Dtype dtype) {
  if (*copy || dtype_size(dtype) != sizeof(uint16_t)) return -1;
  *copy = 1 + (int32_t)dtype;
  return node->noutput;
}

int optimizer_writes_copy(Node *node, Dtype dtype) {
  return optimizer_add_copy(node, &node_attr(node, OptimizerAttr)->copy, dtype);
}

void optimizer_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

int optimizer_is_split(const KernelCall *call) { return call->input[call->ninput - 1].dtype == DTYPE_U16; }

const Operand *optimizer_copy(const KernelCall *call) {
  const Operand *w = &call->output[0], *last = &call->output[call->noutput - 1];
  int is = dtype_is_float(last->dtype) &&
           dtype_size(last->dtype) == sizeof(uint16_t) && // moments of such a w are as wide as it
           dtype_size(w->dtype) > sizeof(uint16_t);
  return is ? last : NULL;
}

double optimizer_load(const KernelCall *call, int64_t i) {
  if (!optimizer_is_split(call)) return operand_load(&call->input[0], i);
  return bf16_join(((const uint16_t *)call->input[0].data)[i],
                   ((const uint16_t *)call->input[call->ninput - 1].data)[i]);
}

void optimizer_store(const KernelCall *call, int64_t i, double w) {
  if (!optimizer_is_split(call)) {
    const Operand *copy = optimizer_copy(call);
    operand_store(&call->output[0], i, w);
    if (copy) operand_store(copy, i, operand_load(&call->output[0], i)); // of w as it is stored, as CAST makes it
    return;
  }
  uint16_t low;
  ((uint16_t *)call->output[0].data)[i] = bf16_split((float)w, &low);
  ((uint16_t *)call->output[call->noutput - 1].data)[i] = low;
}

OptimizerScalars optimizer_scalars(const KernelCall *call) {
  const Operand *in = call->input + call->ninput - 4 - optimizer_is_split(call);
  return (OptimizerScalars){.lr = operand_load(&in[0], 0),
                            .factor = operand_load(&in[1], 0),
                            .skip = operand_load(&in[2], 0) != 0,
                            .step = operand_load(&in[3], 0)};
}

void op_optimizer(Graph *g, Op op, int w, int gradient, int lr, int factor, int skip, int step,
                  const OptimizerAttr *attr) {
  const OptimizerDef *d = op_def(op)->optimizer;
  CHECK(d, "%s is not an optimizer", op_def(op)->name);
  int parameter = graph_tensor(g, w)->variable;
  if (d->build && FAULT(muon_takes_vectors_for_matrices, g->variable.data[parameter].outputs > 0, 1)) {
    d->build(g, &(OptimizerInputs){w, gradient, lr, factor, skip, step}, attr);
    return;
  }
  if (d->build) d = op_def(op = d->others)->optimizer;
  int states = state_count(d), input[OPTIMIZER_STATES + 6], n = 0,
      kept[OPTIMIZER_STATES];
  for (int k = 0; k < states; k++) {
    int needed = !d->keeps || d->keeps(attr, k);
    kept[k] = needed ? graph_variable_of(g, d->state[k], parameter, VARIABLE_OPTIMIZER) : -1;
  }
  input[n++] = w;
  for (int k = 0; k < states; k++) input[n++] = kept[k] < 0 ? -1 : graph_read(g, kept[k]);
  const int rest[] = {gradient, lr, factor, skip, step};
  for (int k = 0; k < 5; k++) input[n++] = rest[k];
  int node = graph_node(g, op, op_def(op)->name, input, n, attr, sizeof *attr);
  for (int i = 0, k = 0; i <= states; i++)
    if (input[i] >= 0) op_update(g, node, k++, i);
}

void op_optimizer_split(Graph *g, int node) {
  Node n = op_node(g, node);
  int parameter = graph_tensor(g, n.input[0])->variable, low = graph_find_of(g, OF_LOW, parameter);
  if (low < 0) {
    low = graph_known_of(g, OF_LOW, parameter);
    g->variable.data[low].dtype = DTYPE_U16;
    g->variable.data[low].stages = g->variable.data[parameter].stages;
  }
  g->region = n.region;
  int *input = arena_array(&g->arena, int, n.ninput + 1), stages = graph_tensor(g, n.input[0])->stages;
  memcpy(input, n.input, sizeof *input * (size_t)n.ninput);
  input[n.ninput] = graph_read_apart(g, low);
  graph_tensor(g, input[n.ninput])->stages = stages;
  n.input = input;
  n.ninput++;
  optimizer_split_shape(g, &n, n.ninput - 1);
  graph_tensor(g, n.output[n.noutput - 1])->stages = n.stages;
  g->node.data[node] = n;
  op_update(g, node, n.noutput - 1, n.ninput - 1);
  g->region = REGION_MICRO;
}
