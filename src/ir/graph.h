// The Graph: global shapes, named dims, three regions, Variables that stay while tensors flow. No ranks.
//
// Tensors are values (each has one producer); Variables are memory. A tensor may be *bound* to a Variable: then its
// buffer is the Variable's storage or one of its Copies, and the order of the nodes says which value is read. Nodes are
// kept in an order in which they can run.
#pragma once
#include "base/stage_set.h"
#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/intern.h"
#include "base/vec.h"
#include "ir/inputs.h"
#include <stdint.h>
#include <stdio.h>

enum { MAX_RANK = 8, MAX_COPIES = 2 };

typedef enum DimName {
#define DIM(id, name) DIM_##id,
#include "ir/dims.def"
#undef DIM
  DIM_COUNT
} DimName;

typedef enum Op {
#define OP(id, name) OP_##id,
#include "ir/ops.def"
#undef OP
  OP_COUNT
} Op;

// Variables that plait itself speaks of: handles to ir/known.def, which has their names.
typedef enum KnownVariable {
  KNOWN_NONE,
#define KNOWN_VARIABLE(id, name, kind, first, what) KNOWN_##id,
#include "ir/known.def"
  KNOWN_COUNT
} KnownVariable;

typedef enum KnownOf { // what a Variable is to its parameter
  OF_NONE,
#define KNOWN_OF(id, prefix, kind, shape, what) OF_##id,
#include "ir/known.def"
  OF_COUNT
} KnownOf;

// Losses beside the model's own: ir/losses.def.
typedef enum LossKind {
#define LOSS(id, what) LOSS_##id,
#include "ir/losses.def"
#undef LOSS
  LOSS_COUNT
} LossKind;
typedef struct KnownLoss { KnownVariable mean, sum, seed; } KnownLoss;
KnownLoss known_loss(LossKind kind); // its Variables

// BEGIN runs once a step before, END once a step after, MICRO once a microbatch. Only Variables cross regions.
typedef enum Region { REGION_BEGIN, REGION_MICRO, REGION_END, REGION_COUNT } Region;
typedef enum Phase { // within MICRO; each becomes a segment
#define PHASE(id, name, letter) PHASE_##id,
#include "ir/phases.def"
#undef PHASE
  PHASE_COUNT
} Phase;
const char *phase_name(Phase phase);   // "forward"
const char *phase_letter(Phase phase); // "F"

// Ways to compute an op over several ranks; what an op does with them is op/algorithm.h's.
typedef enum AlgorithmChoice {
#define ALGORITHM_CHOICE(id, key, what) CHOICE_##id,
#include "ir/algorithms.def"
  CHOICE_COUNT
} AlgorithmChoice;
typedef enum AlgorithmName {
  ALGORITHM_NONE, // there is nothing to choose: it is computed as on one rank
#define ALGORITHM(id, choice, name, what) ALGORITHM_##id,
#include "ir/algorithms.def"
  ALGORITHM_COUNT
} AlgorithmName;
const char *algorithm_text(AlgorithmName algorithm); // "ulysses"; "" of ALGORITHM_NONE

// The role of a tensor in its model; Layouts speak of roles and dims.
typedef enum Role {
  ROLE_INTERIOR,        // inside a block
  ROLE_RESIDUAL,        // the residual stream, and its gradient
  ROLE_DATA,            // comes from the loader
  ROLE_WEIGHT,          // bound to a parameter
  ROLE_WEIGHT_GRADIENT, // one microbatch's gradient of a parameter
  ROLE_SCALAR,
} Role;

typedef struct Shape {
  int rank;
  int64_t size[MAX_RANK]; // global
  DimName dim[MAX_RANK];
} Shape;

typedef struct Placement Placement; // src/sharding/placement.h; the graph carries it and never looks inside

typedef struct Tensor {
  int id;
  const char *name;
  Dtype dtype;
  Role role;
  Shape shape;    // global
  int producer;   // node, or -1
  int variable;   // bound to this Variable's memory, or -1
  int copy;       // when bound: -1 storage, else index of the Copy
  int input;      // index of the graph input that it is, or -1
  int parameter;  // the parameter that a gradient belongs to, or -1
  int mask; // of a compact tensor (b, s, x, …): the tensor (b, s, x) that says which of its rows are there; else -1
  int choices;    // of a compact tensor: how many rows of a (b, s) are there at most
  int stages;     // where it lives: one of Graph.stage_set; by stage
  const Placement *placement; // by place, NULL before
  int64_t local_[MAX_RANK];   // tensor_local, tensor_allocated
  int64_t allocated_;
} Tensor;

enum { NODE_ATTR_BYTES = 96 };
typedef struct Node {
  int id;
  Op op;
  Region region;
  Phase phase;
  int layer;       // -1: before the first layer (embedding); layer count: after the last (head)
  int stage;       // MICRO: its stage; by stage
  int update;      // MICRO: it applies a gradient, and so sees storage and not Copies; zero places it like nodes of END
  int stages;      // those that run it: one of Graph.stage_set; by stage
  int refreshes;   // BEGIN: it makes a Copy that stays as the Variable is from step to step, so that it runs only where
                   // something else has written Variables since the last one (runtime/state.h); by fuse
  // END: not 0 in what updates a matrix that one rank makes for all (ROLE_WHOLE_MATRIX); matrices of one round are made
  // side by side by their owners; by zero
  int round;
  AlgorithmName algorithm; // over several ranks; by place
  const char *name; // stable over layouts and runs: randomness and messages use it
  int ninput, noutput;
  int *input, *output; // tensor ids; an input of -1 is an absent optional operand
  const Placement **want_, **give_; // (ninput), (noutput); node_want, node_give
  _Alignas(8) char attr[NODE_ATTR_BYTES]; // the op's attribute struct (op/attributes.h)
} Node;
#define node_attr(node, type) ((type *)(void *)(node)->attr)

typedef enum VariableKind {
  VARIABLE_PARAMETER,
  VARIABLE_GRADIENT, // accumulator
  VARIABLE_OPTIMIZER,
  VARIABLE_COUNTER, // step, loss scale …: part of a checkpoint
  VARIABLE_METRIC,  // read by the host after a step; not in checkpoints
  VARIABLE_PART,    // the rest of how another Variable is stored: State puts both together, and no checkpoint has it
  VARIABLE_CACHE,   // keys or values of the tokens so far: MICRO writes and reads it, and it lives between calls. It
                    // lies where it is made; it begins as 0 and is in no checkpoint
  VARIABLE_OUTPUT,  // a result of MICRO, such as logits, that the host reads after a run: lies where it is made,
                    // complete
} VariableKind;

// How the numbers of a Variable lie in its storage (ir/encoding.h). Where it is not plain, everybody but kernels sees
// fp32: State converts (runtime/encoding.h).
typedef enum Encoding {
#define ENCODING(id, file, storage, bits, block, part, memory, squares, meaning, ...) ENCODING_##id,
#include "ir/encodings.def"
#undef ENCODING
  ENCODING_COUNT
} Encoding;

typedef struct Init {
  enum { INIT_ZERO, INIT_CONSTANT, INIT_NORMAL } kind;
  double value; /* constant, or standard deviation */
} Init;

typedef struct Copy {
  Dtype dtype;
  const Placement *placement;
  int64_t local_[MAX_RANK]; // variable_local, variable_allocated
  int64_t allocated_;
} Copy;

// How the rows of a matrix lie in memory, where products want it (Variable.panels). Its first `lead` dims are the
// outputs of a product. Each `rows` of them in turn, in the order of memory on one rank, are a panel, in which the
// inputs are the first dim: (inputs, rows). Rows that are left lie one after the other, as without panels. rows 0: all.
typedef struct Panels { int rows, lead; } Panels;
// Where element i of a matrix of `outputs` by `inputs` elements lies among them.
static inline int64_t panels_place(Panels p, int64_t outputs, int64_t inputs, int64_t i) {
  int64_t row = i / inputs, first = p.rows ? row / p.rows * p.rows : 0;
  return p.rows && first + p.rows <= outputs ? first * inputs + i % inputs * p.rows + row - first : i;
}

typedef struct Variable {
  int id;
  const char *name;
  VariableKind kind;
  Dtype dtype;     // of its storage
  Encoding encoding;
  Panels panels;   // of its storage; everybody but kernels sees rows: State converts. By panels
  Shape shape;
  Init init;
  KnownVariable known; // which of plait's own it is, if any
  KnownOf of;      // which of plait's own that belong to a parameter it is, if any
  int has[OF_COUNT]; // of a parameter: 1 + the Variable that is this to it; 0: none
  int parameter; // the parameter that a gradient or moment belongs to and has the shape of; its own id for a parameter;
                 // else -1
  int weight_decay;    // of a parameter: the optimizer's weight decay applies to it
  // Of a parameter that is the matrix of a layer's product: the number of its dims, after the experts' where that
  // leads, that are outputs of the product; the rest are inputs. 0 or less: it is not such a matrix.
  int outputs;
  int narrow_copy; // of a parameter: where the precision is narrow, MICRO reads a Copy of that dtype and not storage
  int trains;      // of a parameter: the optimizer changes it; 0: it stays as it was loaded, and has no gradient
  double learning_rate; // of a parameter: its updates take this times the learning rate of the step; 1 unless somebody
                        // sets it
  int delay;       // of a parameter: MICRO reads it as it was this many steps ago; by autodiff (compile/delay.h)
  int version;     // its parameter as it was this many steps ago; 0: it is not a version
  int stages;      // where it lives: one of Graph.stage_set; by stage
  int space;       // of the device, in which its storage lies: 0, or another one, whose memory kernels do not see; by
                   // offload
  const Placement *storage;
  int64_t local_[MAX_RANK]; // variable_local, variable_allocated
  int64_t allocated_;
  int copies;
  Copy copy[MAX_COPIES];
} Variable;

typedef struct GraphInput {
  const char *name;
  Region region;
  int tensor;
  int id;          // of the table, or INPUT_COUNT and its index among the user's own
  InputFrom from;
  InputFilled filled;
} GraphInput;
static inline int input_own(const GraphInput *in) { return in->id < INPUT_COUNT ? -1 : in->id - INPUT_COUNT; }

// Which facts of a Graph are known. Passes take it from one form to the next (compile/passes.def), and graph_verify
// checks the facts of each.
typedef enum GraphForm {
  GRAPH_GLOBAL, // shapes are global; placements are being found
  GRAPH_PLACED, // every Variable, and every tensor and operand of a node has a placement
  GRAPH_LOCAL,  // and a shape on one rank (`local`, `allocated`); operands are as they are wanted, so `want` and `give`
                // are gone
} GraphForm;

// A loss of one layer: a tensor (), the sum over the sequences of a microbatch, made by a node that brings its own
// gradient.
typedef struct FurtherLoss { LossKind kind; int tensor; } FurtherLoss;
// The router of a layer of experts: its parameter, and the tensor (2, x) of a microbatch's choices (ROUTER_LOAD).
typedef struct Router { int parameter, load; } Router;

typedef struct Graph {
  GraphForm form;
  Arena arena;
  Vec(Tensor) tensor;
  Vec(Node) node;       // all regions, each region's nodes in running order
  Vec(Variable) variable;
  Vec(GraphInput) input;
  int known[KNOWN_COUNT]; // Variable of each handle; -1: this graph has none
  int layers;           // of the model
  int loss;             // tensor (), the sum of losses that autodiff differentiates; -1: none, or it has done so
  Vec(FurtherLoss) further; // what it differentiates beside `loss`; until then
  Vec(Router) router;       // what is counted of them, likewise
  int stages;           // virtual stages; 1 before stage
  Intern placement;        // each once, in the arena
  Vec(StageSet) stage_set; // each once; the first two are STAGES_NONE and STAGES_ALL
  int cut[MAX_STAGES + 1]; // stage s has the layers from cut[s] to below cut[s + 1]; by stage
  Vec(int) names;                // of Variables: a hash table of 1 + id, 0 where free, at most half full
  Vec(int) newest[REGION_COUNT]; // per Variable, 1 + the tensor that graph_read would give; 0: not known
  int built_here;                // all tensors came by graph_read and graph_bind, so that 0 above means: none
  // Given to new nodes:
  Region region;
  Phase phase;
  int layer;
  int update;
  const char *scope; // prefix of node names, e.g. "layer.3.attention"
} Graph;

Graph *graph_create(void);
void graph_destroy(Graph *g); // NULL is fine
Graph *graph_copy(const Graph *g);
Graph *graph_create_like(const Graph *g); // its layers, stages and sets of stages, and nothing in it yet

Shape shape_of(int rank, const int64_t *size, const DimName *dim);
int64_t shape_elements(const Shape *shape);
const char *dim_name(DimName dim);
const char *op_name(Op op);

// Variables, and tensors bound to them. Returned ids are indexes; names must be unique.
int graph_variable(Graph *g, const char *name, VariableKind kind, Dtype dtype, Shape shape, Init init);
int graph_find_variable(const Graph *g, const char *name); // or -1
// Variable "PREFIX.NAME" that belongs to a parameter: its dtype and shape, zero at first.
int graph_variable_of(Graph *g, const char *prefix, int parameter, VariableKind kind);
// A scalar of the table; made where the graph has none yet, with the table's kind and first value.
int graph_known(Graph *g, KnownVariable known);
// The same for an OUTPUT, of which the graph has none yet.
int graph_known_output(Graph *g, KnownVariable known, Dtype dtype, Shape shape);
// A Variable of the table that belongs to a parameter; made where there is none yet.
int graph_known_of(Graph *g, KnownOf of, int parameter);
// The same of a Variable whose shape its maker says: fp64, the same on all ranks.
int graph_known_own(Graph *g, KnownOf of, int parameter, Shape shape);
int graph_find_of(const Graph *g, KnownOf of, int parameter); // or -1
// "versionN.PARAMETER": what the parameter was N steps ago (N of 1 … its delay); made where there is none yet.
int graph_version(Graph *g, int parameter, int age);
const char *known_name(KnownVariable known);
const char *known_what(KnownVariable known); // "the mean loss of the step"
// The current value of a Variable as an operand (one tensor per region, Variable and writer; role by kind).
int graph_read(Graph *g, int variable);
// The same as a separate tensor: for a node of MICRO that updates the storage of a parameter of which others read a
// Copy.
int graph_read_apart(Graph *g, int variable);
// Inputs: one of the user's own by name, and one of the table.
int graph_input(Graph *g, const char *name, Dtype dtype, Shape shape); // FROM_CALLER, FILLED_BEFORE
typedef struct InputSizes {
  int64_t samples, step_samples; // of a microbatch, and of a step
  const int64_t *length;         // (DIM_COUNT) of the sequences that the input has
} InputSizes;
int graph_known_input(Graph *g, KnownInput id, const InputSizes *sizes);

// For an op's shape rule: declares the node's next output.
int graph_output(Graph *g, Node *node, const char *suffix, Dtype dtype, Shape shape);
// For passes that build graphs: appends a Variable, tensor, input or node verbatim (ids are set, names and arrays
// copied).
int graph_add_variable(Graph *g, const Variable *like);
int graph_add_input(Graph *g, const GraphInput *like);
int graph_add_tensor(Graph *g, const Tensor *like);
int graph_add_node(Graph *g, const Node *like);
// Makes a tensor the new value of a Variable: binds its buffer to the Variable's memory (an in-place write).
void graph_bind(Graph *g, int tensor, int variable, int copy);

// Sets of stages are held by index. Most graphs have a few of them: each stage alone, all, those that share a Variable.
enum { STAGES_NONE, STAGES_ALL };
int graph_stage_set(Graph *g, const StageSet *set); // its index
static inline const StageSet *graph_stages(const Graph *g, int index) {
  return &g->stage_set.data[index];
} // until the next set is added
// The stages that hold a tensor's value: those of its Variable or of the node that makes it; inputs are everywhere.
int graph_holders(const Graph *g, int tensor);
// By the cut of the layers into g->stages stages; the embedding is in the first, the head in the last.
int graph_stage_of_layer(const Graph *g, int layer);

// What a Variable is to those who go through all of them. Code outside of ir asks these, not for VARIABLE_PARAMETER (a
// test searches for it), so that a further kind is decided here: weights that are not trained, or memory that belongs
// to a request and is none of these.
typedef int VariableTest(const Variable *v);
// It is one of the model's parameters: they are counted, cut by tp and named by users.
static inline int variable_is_counted(const Variable *v) { return v->kind == VARIABLE_PARAMETER; }
// It begins as its init rule or a model's folder says, and is exported to one.
static inline int variable_is_loaded(const Variable *v) { return v->kind == VARIABLE_PARAMETER; }
// Its storage lies as the Layout says, where its readers are; others follow what they belong to.
static inline int variable_is_stored(const Variable *v) { return v->kind == VARIABLE_PARAMETER; }
// Backward makes a gradient of it, and an update changes it by that: accumulator, moments and versions follow.
static inline int variable_is_trained(const Variable *v) {
  return v->kind == VARIABLE_PARAMETER && FAULT(frozen_is_trained, v->trains, 1);
}
// MICRO reads it as a weight: a parameter, or what one was some steps ago.
static inline int variable_is_weight(const Variable *v) { return v->kind == VARIABLE_PARAMETER || v->version; }
// ZeRO divides its storage over data ranks, and MICRO reads a Copy where it does. Gradients and moments follow it.
static inline int variable_is_sharded_by_zero(const Variable *v) { return v->kind == VARIABLE_PARAMETER; }
// It lies where the nodes that write it run, and as they make it.
static inline int variable_follows_its_maker(const Variable *v) {
  return v->kind == VARIABLE_OUTPUT || v->kind == VARIABLE_CACHE;
}
// A checkpoint has it.
static inline int variable_is_saved(const Variable *v) {
  return v->kind == VARIABLE_PARAMETER || v->kind == VARIABLE_OPTIMIZER || v->kind == VARIABLE_COUNTER;
}
// Under which heading its memory is told.
typedef enum VariableMemory {
  MEMORY_OF_VERSIONS,
  MEMORY_OF_PARAMETERS,
  MEMORY_OF_GRADIENTS,
  MEMORY_OF_OPTIMIZER,
  MEMORY_OF_OTHERS,
} VariableMemory;
VariableMemory variable_memory(const Variable *v);

// Of its storage (copy -1) or of a Copy.
static inline const Placement *variable_placement(const Variable *v, int copy) {
  return copy < 0 ? v->storage : v->copy[copy].placement;
}

// The dtype of its numbers for everybody but kernels: the host, checkpoints.
static inline Dtype variable_dtype(const Variable *v) { return v->encoding ? DTYPE_F32 : v->dtype; }
// By its encoding (ir/encoding.h): bits that a number takes in its storage (copy -1) or in a Copy, the bytes of some
// elements there, and the same of a tensor, which may be bound to one.
int variable_bits(const Variable *v, int copy);
int64_t variable_bytes(const Variable *v, int copy, int64_t elements);
int64_t tensor_bytes(const Graph *g, const Tensor *t, int64_t elements);
// It has a number for each block of another Variable: its scales.
int variable_is_of_blocks(const Variable *v);

// Fields with an underscore are known in some forms of the graph only. The passes that make them write them; everybody
// else asks here, and to ask too early or too late is a bug.
// The tensor's shape on one rank, (rank of the tensor); and the elements of its buffer there, at least their product:
// there is room for padded gathers.
static inline const int64_t *tensor_local(const Graph *g, const Tensor *t) {
  CHECK(g->form == GRAPH_LOCAL, "%s: the graph has global shapes only", t->name);
  return t->local_;
}
static inline int64_t tensor_allocated(const Graph *g, const Tensor *t) {
  CHECK(g->form == GRAPH_LOCAL, "%s: the graph has global shapes only", t->name);
  return t->allocated_;
}
// The same of a Variable's storage (copy -1) or of a Copy.
static inline const int64_t *variable_local(const Graph *g, const Variable *v, int copy) {
  CHECK(g->form == GRAPH_LOCAL, "%s: the graph has global shapes only", v->name);
  return copy < 0 ? v->local_ : v->copy[copy].local_;
}
static inline int64_t variable_allocated(const Graph *g, const Variable *v, int copy) {
  CHECK(g->form == GRAPH_LOCAL, "%s: the graph has global shapes only", v->name);
  return copy < 0 ? v->allocated_ : v->copy[copy].allocated_;
}
// How the node wants an input placed, and how it leaves an output: from place until partition, which redistributes
// where the tensor says otherwise.
static inline const Placement *node_want(const Node *n, int input) {
  CHECK(n->want_, "%s: the node is not placed, or is local already", n->name);
  return n->want_[input];
}
static inline const Placement *node_give(const Node *n, int output) {
  CHECK(n->give_, "%s: the node is not placed, or is local already", n->name);
  return n->give_[output];
}
static inline Tensor *graph_tensor(const Graph *g, int id) { return &g->tensor.data[id]; }

// Compact tensors have the dims (batch, seq, expert, …) of a dense one, but memory holds only the rows whose element of
// their mask is 1, packed, ordered by (expert, batch, seq). So all that is said of dims and placements is said of the
// dense tensor. How many rows there are is known when the mask is; memory is bounded by `choices` rows a token.
static inline int tensor_is_compact(const Tensor *t) { return t->mask >= 0; }
// The most rows that a shard with these local numbers of elements of batch, seq and expert can have.
static inline int64_t tensor_most_rows(const Tensor *t, const int64_t *local) {
  return local[0] * local[1] * (t->choices < local[2] ? t->choices : local[2]);
}
// Elements in memory of a shard of these sizes, (rank of the tensor); of a compact one the most.
static inline int64_t tensor_elements(const Tensor *t, const int64_t *local) {
  int64_t n = tensor_is_compact(t) ? tensor_most_rows(t, local) : 1;
  for (int d = tensor_is_compact(t) ? 3 : 0; d < t->shape.rank; d++) n *= local[d];
  return n;
}
// Makes a tensor compact: its rows are those of a mask.
void graph_compact(Graph *g, int tensor, int mask, int choices);
// Whether the node reads the mask, or a tensor that has it, and so runs when its rows have been counted: what makes a
// compact tensor must.
int graph_waits_for_mask(const Graph *g, const Node *node, int mask);

// Readable listing. `placement` (may be NULL) prints the placement of a tensor of this shape into text.
typedef void (*PlacementPrinter)(const void *context, const Placement *placement, const Shape *shape, char *text,
                                 size_t size);
void graph_print(const Graph *g, FILE *out, PlacementPrinter placement, const void *context);
// Only what `names` selects, one operand a line: Variables whose name matches, and nodes that graph_node_matches.
// Returns how many Variables and nodes these are.
int graph_print_only(const Graph *g, const char *names, FILE *out, PlacementPrinter placement, const void *context);

// `names`: patterns as of file names (* ? []), separated by commas. 1: one of them is this name's.
int names_match(const char *names, const char *name);
// 1: the node's name matches, or that of a Variable which it reads or writes.
int graph_node_matches(const Graph *g, const Node *n, const char *names);
// 1: a listing of what `names` selects leaves this operand (a tensor, or -1) of the node out, because the node has very
// many (a bucket) and the name of the operand's Variable does not match.
int graph_operand_hidden(const Graph *g, const Node *n, int tensor, const char *names);
