// The definition of an op: shape rule, gradient, factor rule, cost and reference kernel, all in its own file
// src/op/<op>.c.
#pragma once
#include "base/comm_kind.h"
#include "base/fault.h"
#include "base/philox.h"
#include "ir/graph.h"
#include "op/algorithm.h"
#include "op/attributes.h"
#include "op/work.h"

// Local → global index of one dim of a rank's shard: at most two contiguous runs (two for zigzag). A dim's memory may
// be longer than what is valid (padded vocabularies and storage shards): elements past `valid` are zero and stay zero.
typedef struct IndexMap {
  int64_t local;  // elements of the dim in this rank's memory
  int64_t valid;  // of those, how many exist globally (a prefix)
  int64_t global; // size of the whole dim
  int runs;
  // Only the functions below, sharding/placement.c, which makes maps, and sharding/shard.c, which goes through them,
  // read the runs.
  struct { int64_t local, global; } run[2]; // run r starts at local index `local` ↔ global index `global`
} IndexMap;
static inline int64_t index_map(const IndexMap *m, int64_t i) {
  int r = m->runs > 1 && i >= m->run[1].local;
  return m->run[r].global + (i - m->run[r].local);
}
// Where the run of local index i ends; padding is in none.
static inline int64_t index_run_end(const IndexMap *m, int64_t i) {
  return m->runs > 1 && i < m->run[1].local ? m->run[1].local : m->valid;
}
// Whether it is the whole dim, without padding.
static inline int index_is_whole(const IndexMap *m) {
  return m->runs == 1 && m->valid == m->global && m->local == m->global;
}
// Global → local: the local index of global index i, or -1 when this rank does not hold it.
static inline int64_t index_local(const IndexMap *m, int64_t i) {
  for (int r = 0; r < m->runs; r++) {
    int64_t end = r + 1 < m->runs ? m->run[r + 1].local : m->valid;
    int64_t local = m->run[r].local + (i - m->run[r].global);
    if (i >= m->run[r].global && local < end && local < m->valid) return local;
  }
  return -1;
}
// How many (x, y) there are with x of `from` … from + n - 1, y of `first` … first + m - 1 and y <= x.
static inline double index_pairs_of_runs(int64_t from, int64_t n, int64_t first, int64_t m) {
  double sum[2];
  for (int side = 0; side < 2; side++) { // of all x before from + n, less those before `from`
    double below = (double)(from + (side ? 0 : n) - first), most = (double)m;
    sum[side] = below <= 0 ? 0 : below < most ? below * (below + 1) / 2 : most * (most + 1) / 2 + (below - most) * most;
  }
  return sum[0] - sum[1];
}
// Pairs of an index of `a` and one of `b` that does not come after it, such as queries and the keys that they see.
static inline double index_pairs(const IndexMap *a, const IndexMap *b) {
  double pairs = 0;
  for (int r = 0; r < FAULT(pairs_of_one_run, a->runs, 1); r++)
    for (int k = 0; k < b->runs; k++)
      pairs += index_pairs_of_runs(
          a->run[r].global, (r + 1 < a->runs ? a->run[r + 1].local : a->valid) - a->run[r].local, b->run[k].global,
          (k + 1 < b->runs ? b->run[k + 1].local : b->valid) - b->run[k].local);
  return pairs;
}
// One run: local index i is global index index_map(m, 0) + i.
static inline int index_is_range(const IndexMap *m) { return m->runs == 1; }
// The map of n indices from `first` on, all of them valid; and of a dim that is not sharded.
static inline IndexMap index_range(int64_t first, int64_t n, int64_t global) {
  return (IndexMap){.local = n, .valid = n, .global = global, .runs = 1, .run = {{0, first}}};
}
static inline IndexMap index_whole(int64_t n) { return index_range(0, n, n); }

// Parameters that change between calls. Kernels read them; none is fixed in a Program.
typedef struct CallParameters {
  uint64_t seed;
  uint64_t step;
  int64_t microbatch;
  int64_t sample_base; // add to index_map of a batch dim: position of the microbatch in the global batch
  const int64_t *rank_begins; // (data ranks + 1) where each data rank's rows begin in the microbatch, counted from its
                              // first; an address of the device's memory. NULL: all have as many
  int64_t data_ranks;         // of rank_begins
} CallParameters;

// One operand on one rank: contiguous, row-major but for panels, local shape. data is NULL for an absent optional
// input.
typedef struct Operand {
  void *data;
  Dtype dtype;
  int rank;
  int64_t size[MAX_RANK];  // local
  IndexMap map[MAX_RANK];
  Panels panels;           // of a weight that does not lie row by row (OpDef.panels)
} Operand;

typedef struct DeviceQueue DeviceQueue;

typedef struct KernelCall {
  int ninput, noutput;
  const Operand *input;
  const Operand *output; // an output may be the same memory as an input where the op's comment says "in place"
  const void *attr;      // the op's attribute struct
  uint64_t name;         // philox_name of the node's stable name
  const CallParameters *parameters;
  void *workspace;       // 64-byte aligned, `workspace_size` bytes as the kernel's workspace function asked
  size_t workspace_size;
  DeviceQueue *queue; // in which it runs (device/device.h); NULL: at once, in the calling thread. Results must not
                      // depend on the number of threads that a device has
} KernelCall;
typedef void (*Kernel)(const KernelCall *call);
// Whether a call adds to an accumulator, its last input, where its attribute says that it can (OpDef.accumulate). The
// first call of a step may lack it: there is nothing to add to yet, and the sum is what would be added.
static inline int call_adds(const KernelCall *call, int accumulate) {
  return accumulate && call->input[call->ninput - 1].data;
}

// The elements of an operand, and the product of its dims [from, to).
int64_t operand_elements(const Operand *x);
int64_t operand_extent(const Operand *x, int from, int to);
double operand_bytes(const Operand *x); // 0 of a scalar, and of an absent one
int64_t operand_place(const Operand *x, int64_t i); // where element i lies in panels
static inline double operand_load(const Operand *x, int64_t i) {
  return dtype_load(x->data, x->dtype, x->panels.rows ? operand_place(x, i) : i);
}
static inline void operand_store(const Operand *x, int64_t i, double v) { dtype_store(x->data, x->dtype, i, v); }

// Whether element i is inside the valid extent of every dim (padding is not).
int operand_valid(const Operand *x, int64_t i);
// The operand as doubles: its own memory when it is fp64, else a copy; NULL when absent. For reference code.
double *operand_doubles(const Operand *x);
void operand_doubles_free(const Operand *x, double *doubles);

typedef struct OptimizerDef OptimizerDef; // op/optimizer.h

// What a single op is to passes and the executor: they ask for the role and do not name the op. At most one op has
// each.
typedef enum OpRole {
  ROLE_NONE,
  ROLE_COPY,       // its output is its input (IDENTITY)
  ROLE_MOVE,       // its output is its input, in another space of the device: done by a queue of copies, while kernels
                   // run, and not by a kernel (MOVE)
  ROLE_CAST,       // its output is its input in another dtype (CAST)
  ROLE_SLICE,      // its output is a part of its input (SLICE)
  ROLE_ADD,        // its output is the sum of its inputs, each rounded as it is (ADD); see `accumulated`
  ROLE_ACCUMULATE, // adds its second input to its first, a Variable, in place, and a call may lack that (ACCUMULATE);
                   // see `accumulate`
  ROLE_FILL,       // its output, in place, is FillAttr.value everywhere; it does not read its input (FILL)
  ROLE_BIAS,       // adds its second input to each row of its first (BIAS); see `bias`
  ROLE_ROW_SUM,    // its output is the sum over the first dims of its input (REDUCE); see `row_sum`
  ROLE_PRODUCT,    // its output is the product of its two inputs, of blocks of which it may be made (MATMUL;
                   // compile/summa.h)
  ROLE_DISPATCH,   // its output is made of its inputs, and larger: these are moved rather than that (DISPATCH)
  ROLE_OUTPUT,     // the host reads its output while the graph runs (OUTPUT; runtime/outputs.h)
  ROLE_NORM_TERM,  // its output is a term of the gradients' norm, and its input the gradient (SUM_SQUARES)
  ROLE_WHOLE_MATRIX, // it needs a dim whole that is cut, or is repeated, and takes long: one rank does it for all
                     // (ORTHOGONALIZE)
  ROLE_COUNT
} OpRole;

typedef struct OpDef {
  const char *name;
  const char *meaning; // one line of notation
  // Checks the inputs (CHECK: a model or pass that breaks it is a bug) and declares outputs with graph_output. NULL:
  // nodes of it are made with their outputs.
  void (*shape)(Graph *g, Node *node);
  // Appends nodes that compute the gradients of the inputs. doutput[k] is the gradient of output k or -1; writes
  // dinput[i] = tensor or -1. NULL: not differentiable. g's phase is PHASE_BACKWARD, layer and scope are the node's.
  void (*gradient)(Graph *g, int node, const int *doutput, int *dinput);
  // Writes the factor rule, e.g. "b s f, e f -> b s e ; linear 0 1". One letter a dim; operands by commas. Clauses:
  //   linear 0 1     inputs that may be partial, each on its own; "linear 0+1": only all together
  //   whole s d      factors that must not be sharded
  //   lower v        factors that may be sharded only through `lower`
  //   parts s        an operand has fewer of s than others, and of each of their shards as many
  //   complete 0 v   output 0 lacks factor v and is complete all the same (every shard computes all of it)
  //   move s g r     axes that operands propose for s shard g instead, as far as its size allows, and else r; where s
  //   is
  //                  a `lower` factor, its first axis stays
  //   tie t s        t is sharded as s is, over the same axes
  //   home 0         output 0 goes back to where operands had these factors before they were moved or made whole
  // A sharded factor that an output lacks makes that output a partial sum.
  void (*rule)(const Graph *g, const Node *node, char *text, size_t size);
  // Expands the node into simpler ops for a `lower` factor that is sharded over `axes` (bits of mesh axes, which
  // together have `ranks` ranks): appends nodes to g, OP_ALL_REDUCE among them, and writes the tensor that replaces
  // each output. NULL: none.
  void (*lower)(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output);
  // Alternative algorithms across ranks (op/algorithm.h). The key `choice` selects one; the default is the first. They
  // add clauses to the rule, and may have their own `lower`. An op and its gradient have the same ones.
  const Algorithm *algorithm;
  int algorithms;
  AlgorithmChoice choice;
  // Reference kernel: plain loops, any dtype through operand_load/store, arithmetic in double. It says what the op
  // means.
  Kernel reference;
  // The cost of one call on local shapes. *work comes with the default (op_work); the function replaces what is
  // different: FLOPs of products and attention, which the default does not have, and bytes where not each operand is
  // read or written once. Outputs may be missing for ops whose cost follows from their inputs. NULL: the default.
  void (*work)(const Operand *input, const Operand *output, const void *attr, OpWork *work);
  // How many pairs of elements one call compares, as attention does queries and keys, as far as positions say; for
  // plans of how evenly ranks share them. NULL: none.
  double (*pairs)(const Operand *input, const Operand *output, const void *attr);
  // Turns a node into one that adds one of its outputs to a further, last input, in place. Returns that output, or -1
  // when it cannot. For `fuse`: gradients then go straight into their accumulators, and into what is added to them. A
  // call may lack that input, and then stores all of the output (call_adds). NULL: never.
  int (*accumulate)(Node *node);
  // The output of a node that `accumulate` or `add_first` has made to which it adds its last input, and which may be
  // made in that memory; -1: there is none. NULL: `accumulate` adds to Variables only.
  int (*accumulated)(const Node *node);
  int accumulates_narrow; // ... and that may have the dtype of input 0 where the output would be wider: it rounds once
                          // (the head once for each chunk of its rows)
  // Turns a node into one that adds a further, last input of `dims` dims to one of its outputs as BIAS does. Returns
  // that output, or -1 when it cannot. For `fuse`. NULL: never.
  int (*bias)(Node *node, int dims);
  // Turns a node into one that applies `function`, a node that reads its output, to each element of that: what it gives
  // comes first then, and what else it reads is a further, last input. keeps: others read the node's own output, which
  // becomes a further output. Returns 0 when it cannot. For `fuse`. NULL: never.
  int (*apply)(Node *node, const Node *function, int keeps);
  // Turns a node into one that also gives the sum over all rows of its output 0, as REDUCE does, as a further, last
  // output. Returns 0 when it cannot. For `fuse`. NULL: never.
  int (*row_sum)(Node *node);
  // Turns a node into one that first adds a further, last input to input 0, and gives their sum as a further, last
  // output. For `fuse`. NULL: never.
  void (*add_first)(Node *node);
  // Makes a node that updates a parameter, output 0 in the memory of input 0, one that also gives it rounded to
  // `dtype`. Returns the index at which the caller must insert that output; -1 when it cannot. For `fuse`: it is the
  // parameter's Copy, which BEGIN then need not make again. NULL: never.
  int (*writes_copy)(Node *node, Dtype dtype);
  // Turns a node that makes gradients of weights beside its result into one that leaves them to separate nodes, which
  // `gradient` appends: for schedules that split backward. again: these nodes compute once more what would take much
  // memory until then. NULL: it is not such a node.
  void (*split)(Graph *g, int node, int again);
  // Turns a node of training into what it is outside of training, such as dropout into a copy. NULL: it is the same.
  void (*evaluate)(Node *node);
  // Turns a node for which a device may have a kernel whose bits differ from run to run into one that has the same.
  // NULL: there is no such kernel.
  void (*keep_bits)(Node *node);
  int in_place;      // number of leading (output k ← input k) pairs that may share memory, for elementwise updates
  uint32_t minus_infinity; // outputs (bits) of which −∞ is a proper value: a maximum over nothing
  OpRole role;
  // Traits: what passes and the executor ask of ops that several of them answer alike.
  int expensive;     // selective recomputation keeps its output rather than compute it again
  int one_pass;      // a pass over its inputs makes its output: where backward keeps these, it makes that again
  // How many first dims of input k are outputs of the product that it is a weight of, where its kernels take it in
  // panels of these; 0: they do not. NULL: of no input.
  int (*panels)(const Node *node, int k);
  int widens_weight; // its input 1, of rank 2 or more, may be a weight in bf16 where the others are fp32
  int looks_up;      // its output is rows of its first input, which its second names; it multiplies by none of them
  int communicates;  // done by the comm layer, not by a device
  CommKind comm;     // of these: by calls of this kind (op_comm has its properties). Rooted ones are between one rank
                     // of the group, CommAttr.root, and all; where one gathers, CommAttr.dim is whole in its output and
                     // sharded in its input; where one scatters, the other way round. ALL_TO_ALL: CommAttr.dim2 is
                     // whole in its output and sharded in its input, CommAttr.dim the other way round. ALL_TO_ALL_V:
                     // rows of experts (ExchangeAttr); inputs 1 and 2 are masks. SHIFT: its output is the input of the
                     // rank CommAttr.distance before (Placement.shift)
  Op counts;         // of ALL_TO_ALL_V: the op that counts the rows of each rank
  int defers_sum;    // where its output is a partial sum over ranks, others are added before it is completed
  uint32_t moments;  // inputs (bits) that are moments of an optimizer, updated in place; those of one with an
                     // OptimizerDef are its states (op_moments)
  const OptimizerDef *optimizer; // it updates parameters; NULL: it does not
} OpDef;

const OpDef *op_def(Op op);
static inline int node_is(const Node *node, OpRole role) { return op_def(node->op)->role == role; }
// Whether a kernel of the device computes it.
static inline int node_has_kernel(const Node *node) {
  return !op_def(node->op)->communicates && !node_is(node, ROLE_MOVE);
}
// The properties of the calls that do it; all 0 where it does not communicate.
const CommTraits *op_comm(const OpDef *op);
static inline const CommTraits *node_comm(const Node *node) { return op_comm(op_def(node->op)); }
// Whether calls of this kind do it.
static inline int node_calls(const Node *node, CommKind kind) {
  return op_def(node->op)->communicates && op_def(node->op)->comm == kind;
}
// Whether the calls that do it move its operand k (inputs, then outputs). The masks of an exchange of rows only say how
// many there are, which a kernel counts (runtime/exchanged_rows.h).
static inline int node_moves_operand(const Node *node, int k) {
  return !node_calls(node, COMM_ALL_TO_ALL_V) || k == 0 || k >= node->ninput;
}
// The cost of one call of an op on these operands; their data is not read. By default each input is read once and each
// output written once (an update in place counts in both), `vector` is the elements of the largest operand, and
// `matrix` is 0. Scalars, and absent operands, which look like them, count 0 bytes.
OpWork op_work(const OpDef *op, const Operand *input, int ninput, const Operand *output, int noutput, const void *attr);
#define OP(id, name) extern const OpDef op_def_##name;
#include "ir/ops.def"
#undef OP

// Appends a node with the current region, phase, layer and scope and computes its outputs by the op's shape rule.
// attr may be NULL (zeroes). Returns the node's id; outputs are g->node.data[id].output[k].
int graph_node(Graph *g, Op op, const char *name, const int *input, int ninput, const void *attr, size_t attr_size);

// Helpers for op files.
int op_same_sizes(const Graph *g, int a, int b); // tensors of equal rank and sizes
// The dtype of statistics beside a tensor: fp64 for fp64, else fp32.
Dtype op_statistics_dtype(Dtype dtype);
// Name within the current scope of a node that belongs to another one: its name, ".", suffix. Lives in the graph.
const char *op_derived_name(Graph *g, const Node *node, const char *suffix);
// After an in-place node: output k becomes the new value of the Variable that input i is bound to.
void op_update(Graph *g, int node, int k, int i);
// The input of a node that is a Variable's storage to which the node adds one of its outputs in place; -1: none. Calls
// may lack it (`accumulate`, ROLE_ACCUMULATE).
int op_accumulator(const Graph *g, const Node *node);
// The graph's node as it is now; a copy, because appending nodes moves them.
static inline Node op_node(const Graph *g, int node) { return g->node.data[node]; }
// Rule texts: a letter that is not in `used` (bits) for a dim; a string of letters for all dims of a tensor ("" if -1).
enum { RULE_LETTERS = MAX_RANK + 1 };
char op_letter(uint32_t *used, DimName dim);
void op_letters(const Graph *g, int tensor, uint32_t *used, char letters[RULE_LETTERS]);
// Letters of x into all, those of its rows (all dims but the last) into rows; returns that of the last dim.
const char *op_row_letters(const Graph *g, int x, char all[RULE_LETTERS], char rows[RULE_LETTERS]);
// Writes the rule from strings of letters, and its clauses, e.g. "; linear 0".
void op_rule(char *text, size_t size, const char *const *inputs, int ninput, const char *const *outputs, int noutput,
             const char *clauses);
// Operands that have the rank of input 0 share its letters; all others are scalars or absent.
void op_rule_elementwise(const Graph *g, const Node *node, char *text, size_t size, const char *clauses);
