// panels: weights of which products read panels lie so in memory (Variable.panels), where requests are answered. A
// product of few rows, as those of a decode step, is bound by reading its weights; in panels it reads them in the order
// of memory, a vector of outputs at a time, and a product of more rows packs nothing but what it must widen.
//
// Only kernels see panels: State turns rows into them while weights are loaded. Training keeps rows, since the gradient
// of the input reads weights the other way round, and updates go by rows.
#include "base/fault.h"
#include "compile/pass.h"

// The first dims of a Variable that are a product's outputs for all that read it; 0: somebody wants rows, or nobody
// multiplies by it.
static int lead_of(const Graph *g, int variable) {
  int lead = 0, multiplies = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      const int is_input = k < n->ninput, id = is_input ? n->input[k] : n->output[k - n->ninput];
      if (id < 0 || graph_tensor(g, id)->variable != variable) continue;
      const OpDef *def = op_def(n->op);
      const int here = is_input && graph_tensor(g, id)->copy < 0 && def->panels ? def->panels(n, k) : 0;
      if (!here || (lead && lead != here)) return 0;
      lead = here;
      multiplies |= !FAULT(tables_lie_in_panels, def->looks_up, 0);
    }
  }
  return multiplies ? lead : 0;
}

int pass_panels(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  const Dtype dtype = o->step.precision;
  const int rows = dtype == DTYPE_F32 || dtype == DTYPE_F64 ? o->device->panel_bytes / (int)dtype_size(dtype) : 0;
  if (!o->panels || !rows) return PLAIT_OK;
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (!variable_is_stored(v) || !v->narrow_copy || v->encoding || v->space || v->shape.rank < 2) continue;
    const int lead = lead_of(g, i);
    int64_t outputs = 1;
    for (int d = 0; d < lead; d++) outputs *= variable_local(g, v, -1)[d];
    if (lead && outputs >= rows) v->panels = (Panels){rows, lead};
  }
  return PLAIT_OK;
}
