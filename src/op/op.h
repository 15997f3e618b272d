// What an op is: shape rule, gradient, factor rule, cost and reference kernel, all in its own file src/op/<op>.c.
#pragma once
#include "base/philox.h"
#include "base/team.h"
#include "graph/graph.h"
#include "op/attributes.h"

// Local → global index of one dim of a rank's shard: at most two contiguous runs (two for zigzag). A dim's memory may be
// longer than what is valid (padded vocabularies and storage shards): elements past `valid` are zero and stay zero.
typedef struct IndexMap {
  int64_t local;  // elements of the dim in this rank's memory
  int64_t valid;  // of those, how many exist globally (a prefix)
  int64_t global; // size of the whole dim
  int runs;
  struct { int64_t local, global; } run[2]; // run r starts at local index `local` ↔ global index `global`
} IndexMap;
static inline int64_t index_map(const IndexMap *m, int64_t i) {
  int r = m->runs > 1 && i >= m->run[1].local;
  return m->run[r].global + (i - m->run[r].local);
}

// What changes between calls; kernels read it, nothing of it is baked into a Program.
typedef struct CallParameters {
  uint64_t seed;
  uint64_t step;
  int64_t microbatch;
  int64_t sample_base; // add to index_map of a batch dim: position of the microbatch in the global batch
} CallParameters;

// One operand on one rank: contiguous, row-major, local shape. data is NULL for an absent optional input.
typedef struct Operand {
  void *data;
  Dtype dtype;
  int rank;
  int64_t size[MAX_RANK];  // local
  IndexMap map[MAX_RANK];
} Operand;

typedef struct KernelCall {
  int ninput, noutput;
  const Operand *input;
  const Operand *output; // an output may be the same memory as an input where the op's comment says "in place"
  const void *attr;      // the op's attribute struct
  uint64_t name;         // philox_name of the node's stable name
  const CallParameters *parameters;
  void *workspace;       // 64-byte aligned, `workspace_size` bytes as the kernel's workspace function asked
  size_t workspace_size;
  Team *team;            // the rank's threads; results must not depend on their number
} KernelCall;
typedef void (*Kernel)(const KernelCall *call);

// The elements of an operand, and the product of its dims [from, to).
int64_t operand_elements(const Operand *x);
int64_t operand_extent(const Operand *x, int from, int to);
static inline double operand_load(const Operand *x, int64_t i) { return dtype_load(x->data, x->dtype, i); }
static inline void operand_store(const Operand *x, int64_t i, double v) { dtype_store(x->data, x->dtype, i, v); }

typedef struct OpDef {
  const char *name;
  const char *meaning; // one line of notation
  // Checks the inputs (CHECK: a model that breaks it is a bug) and declares outputs with graph_output.
  void (*shape)(Graph *g, Node *node);
  // Appends nodes that compute the gradients of the inputs. doutput[k] is the gradient of output k or -1; writes
  // dinput[i] = tensor or -1. NULL: not differentiable. g's phase is PHASE_BACKWARD, layer and scope are the node's.
  void (*gradient)(Graph *g, int node, const int *doutput, int *dinput);
  // Writes the factor rule, e.g. "b s k, n k -> b s n ; linear 0 1". One letter a dim; operands by commas. Clauses:
  //   linear 0 1     inputs that may be partial, each on its own; "linear 0+1": only all together
  //   whole s d      factors that must not be sharded
  //   lower v        factors that may be sharded only through `lower`
  // A sharded factor that an output lacks makes that output a partial sum.
  void (*rule)(const Graph *g, const Node *node, char *text, size_t size);
  // Expands the node into simpler ops for sharded `lower` factors: appends nodes to g and writes the tensor that
  // replaces each output. NULL: none.
  void (*lower)(Graph *g, const Node *node, const int *input, int *output);
  // Reference kernel: plain loops, any dtype through operand_load/store, arithmetic in double. It says what the op means.
  Kernel reference;
  // FLOPs of one call on local shapes (a multiply-add is 2); NULL: not counted.
  double (*flops)(const Operand *input, const Operand *output, const void *attr);
  int in_place;      // number of leading (output k ← input k) pairs that may share memory, for elementwise updates
  int communicates;  // done by the comm layer, not by a backend
} OpDef;

const OpDef *op_def(Op op);
#define OP(id, name) extern const OpDef op_def_##name;
#include "op/ops.def"
#undef OP
