// Faults by which collectives leave a rank with what it had.
#pragma once
#include "base/fault.h"

#ifdef PLAIT_FAULTS
#include "sharding/mesh.h"
#include "op/op.h"

// Whether the chosen fault drops the collective, of which `elements` is the length.
static inline int fault_drops(const Mesh *mesh, const Node *n, int64_t elements) {
  const CommAttr *attr = node_attr(n, CommAttr);
  const CommTraits *kind = node_comm(n);
  int begin = n->region == REGION_BEGIN, end = n->region == REGION_END, micro = n->region == REGION_MICRO;
  int sum = node_calls(n, COMM_ALL_REDUCE) && !attr->maximum, scalar = elements == 1,
      over_stages = attr->axes >> mesh_pipeline(mesh) & 1;
  return FAULT(collective_gradients_dp, 0, end && sum && !scalar && !over_stages) ||
         FAULT(collective_gradients_zero, 0, kind->scatters) ||
         FAULT(collective_gather_of_copies, 0, kind->gathers && begin) ||
         FAULT(collective_tied_gradient_pp, 0, end && sum && !scalar && over_stages) ||
         FAULT(collective_norm_and_loss, 0, end && sum && scalar) ||
         FAULT(collective_norm_over_stages, 0, end && sum && scalar && over_stages) ||
         FAULT(collective_norm_zero, 0, end && sum && scalar) ||
         FAULT(collective_target_count, 0, begin && sum) ||
         FAULT(collective_forward_tp, 0, micro && sum && n->phase == PHASE_FORWARD) ||
         FAULT(collective_backward_tp, 0, micro && sum && n->phase != PHASE_FORWARD) ||
         FAULT(collective_exchange_of_rows, 0, node_calls(n, COMM_ALL_TO_ALL_V)) ||
         FAULT(collective_softmax_maximum, 0, attr->maximum);
}
#else
#define fault_drops(mesh, node, elements) 0
#endif
