// Optimizers (optimizers.def): what an optimizer declares besides its op, and what the files of these ops share.
//
// Inputs of every optimizer's op: the parameter w, its states in the order of OptimizerDef.state (-1 where one is not
// kept), the gradient, all of one shape, then lr (), factor () of the gradient, skip () and step (), which counts
// applied steps: 1 in the first. Outputs, in place: w and the states that are there. A step with skip changes nothing.
// Where w is split (ENCODING_SPLIT) it is bf16, its lower bits are a last input and output, of uint16, and the gradient
// may be bf16 too. Where `fuse` has let the op write the Copy of w as well (OpDef.writes_copy), that is a last output.
#pragma once
#include "op/op.h"

// An optimizer that takes several nodes for a matrix appends them by `build`; its own op is then the last of them, and
// has the inputs that it says.
typedef struct OptimizerInputs { int w, gradient, lr, factor, skip, step; } OptimizerInputs;

enum { OPTIMIZER_STATES = 3, OPTIMIZER_OPERANDS = OPTIMIZER_STATES + 7 }; // at most; inputs, of which outputs are fewer
struct OptimizerDef {
  const char *meaning;                     // a sentence for docs/recipes.md
  const char
      *state[OPTIMIZER_STATES + 1]; // Variables of each parameter, "moment1" for "moment1.PARAMETER"; NULL ends them
  int (*keeps)(const OptimizerAttr *attr, int state); // is the state needed with these attributes? NULL: always
  uint32_t squares; // states (bits) that are means of squares: never negative
  // Appends the update of a matrix of a layer (Variable.outputs); parameters that are none get the op `others`. NULL:
  // one node of the optimizer's own op updates any parameter.
  void (*build)(Graph *g, const OptimizerInputs *inputs, const OptimizerAttr *attr);
  Op others;
  const char *reads;  // those keys of `optimizer:` that not all optimizers read, as "betas epsilon"
  double betas[2];    // of its authors; the default where it is not the recipe's default optimizer
  double momentum;    // likewise, of those that read it
  int discontinuous;  // the update jumps where a gradient is near 0, so that results in narrow types cannot be compared
                      // by rounding
};

int optimizer_find(const char *name); // Op, or -1
int optimizer_reads(Op op, const char *key); // "betas"
const char *optimizer_meaning(int op);
void optimizer_names(char *text, size_t size); // for messages: "adamw, sgd or lion"

// Appends the update of the parameter that `w` reads, and makes its states where they are missing. attr->decay is 0 for
// parameters that have no weight decay.
void op_optimizer(Graph *g, Op op, int w, int gradient, int lr, int factor, int skip, int step,
                  const OptimizerAttr *attr);

// Lets a node that updates a parameter read and write its lower bits as well (OF_LOW, which is made).
void op_optimizer_split(Graph *g, int node);

// For the ops: shape and factor rule, the scalars of a call, and elements of its w, which may be split.
void optimizer_shape(Graph *g, Node *node);
void optimizer_split_shape(Graph *g, Node *node, int inputs); // declares the last output where there are more inputs
void optimizer_rule(const Graph *g, const Node *node, char *text, size_t size);
typedef struct OptimizerScalars { double lr, factor, step; int skip; } OptimizerScalars;
OptimizerScalars optimizer_scalars(const KernelCall *call);
int optimizer_is_split(const KernelCall *call);
// The output that takes w rounded to bf16 or fp16; NULL: there is none.
const Operand *optimizer_copy(const KernelCall *call);
// OpDef.writes_copy of ops with an OptimizerAttr. *copy: that of the op's attribute; returns the new output.
int optimizer_writes_copy(Node *node, Dtype dtype);
int optimizer_add_copy(Node *node, int32_t *copy, Dtype dtype);
void optimizer_copy_shape(Graph *g, Node *node, int32_t copy); // declares that output
double optimizer_load(const KernelCall *call, int64_t i);
void optimizer_store(const KernelCall *call, int64_t i, double w);
