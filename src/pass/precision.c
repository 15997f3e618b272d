// precision: the dtypes in which the model computes. The model is written in fp32; scalars (counts, norms, rates) are fp64.
//
//   fp32, fp64   all values and Variables in that type
//   bf16         storage, gradients and moments fp32; MICRO reads matrices as bf16 Copies, and activations are bf16. Vectors
//                (biases, norms), statistics and gradients of parameters stay fp32, as the ops' shape rules say.
#include "op/op.h"
#include "pass/pass.h"

// Gives matrices a Copy in the compute dtype and lets MICRO read that. Where it lies is for zero to say.
static void narrow_parameters(Graph *g, Dtype compute) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->kind == VARIABLE_PARAMETER && v->decay) v->copy[v->copies++] = (Copy){.dtype = compute};
  }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && k < n->ninput; k++) {
      Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
      if (!t || t->variable < 0 || !g->variable.data[t->variable].copies) continue;
      t->copy = 0;
      t->dtype = compute;
    }
  }
}

static void widen(Graph *g, Dtype dtype) {
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].shape.rank > 0 && dtype_is_float(g->variable.data[i].dtype)) g->variable.data[i].dtype = dtype;
  for (int i = 0; i < g->tensor.count; i++)
    if (g->tensor.data[i].variable >= 0) g->tensor.data[i].dtype = g->variable.data[g->tensor.data[i].variable].dtype;
}

// Dtypes follow from the inputs by the ops' shape rules: each is asked again, and what it would make now is looked at.
static void infer(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    Node trial = g->node.data[i];
    int before = g->tensor.count;
    trial.noutput = 0;
    trial.output = NULL;
    op_def(trial.op)->shape(g, &trial);
    for (int k = 0; k < trial.noutput; k++) {
      Tensor *t = graph_tensor(g, g->node.data[i].output[k]);
      if (t->variable < 0) t->dtype = graph_tensor(g, trial.output[k])->dtype;
    }
    g->tensor.count = before;
  }
}

int pass_precision(Graph *g, Dtype compute, Error *error) {
  if (compute == DTYPE_F32) return PLAIT_OK;
  if (compute == DTYPE_F64) widen(g, compute);
  else if (compute == DTYPE_BF16) narrow_parameters(g, compute);
  else return error_set(error, PLAIT_BAD_INPUT, "precision: %s is not built yet; fp64, fp32 and bf16 are", dtype_name(compute));
  infer(g);
  return PLAIT_OK;
}
