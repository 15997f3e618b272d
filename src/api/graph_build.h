// Half by hand: the structs that a PlaitGraph and a PlaitTraining of plait/graph.h point to. graph_*.c build the graph,
// graph_options.c and graph_compile.c compile it, graph_step.c runs it, graph_files.c reads and writes its parameters,
// graph_plan.c finds a plan for it.
#pragma once
#include "sharding/mesh.h"
#include "ir/graph.h"
#include "ir/user_name.h"
#include "plait/graph.h"
#include "runtime/session.h"

enum {
  API_GRAPH_NAME = 64,
  API_GRAPH_INPUTS = 32,
  API_GRAPH_ANNOTATIONS = MAX_AXES_PER_DIM - 2
}; // bytes of a name; annotations: of one tensor

typedef struct ApiGraphAnnotation { int tensor, dim; char axis[API_GRAPH_NAME]; } ApiGraphAnnotation; // dim -1: whole
typedef struct ApiGraphOutput { const char *name, *copy; int tensor; } ApiGraphOutput; // names of nodes, of the graph

enum { API_GRAPH_ZEROS = -1, API_GRAPH_POSITIONS = -2 };

// An input of the graph.
typedef struct ApiGraphInput {
  int user;           // its number among the user's inputs; or API_GRAPH_ZEROS …, which nobody gives
  int needed_forward; // something beside the loss reads it, so that forward cannot do without
  int64_t limit;      // of integers that are numbers of rows or classes: -1 … limit - 1; 0: any
} ApiGraphInput;

// The divisor of a step's loss.
typedef struct ApiGraphLoss {
  int tensor;      // of the graph, or -1
  double elements; // a number that is known,
  int labels;      // or, where this is not -1, how many of this input's labels are not negative
} ApiGraphLoss;

struct PlaitGraph {
  Graph *g;        // forward; its batch is the whole step's
  int64_t samples;
  Dtype dtype;     // of computing
  ApiGraphLoss loss;
  Vec(char *) name;
  int inputs, user_inputs;               // graph inputs 0, 1, …, and those of them that the user gives
  ApiGraphInput input[API_GRAPH_INPUTS]; // (inputs)
  int dropout;                           // something depends on the seed in every step
  Vec(ApiGraphOutput) output;
  Vec(ApiGraphAnnotation) annotation;
  Error error;     // the first
};

// A mesh whose names are the user's. It holds them itself, so it must not be moved.
typedef struct ApiGraphMesh {
  Mesh mesh;
  char axis[MAX_AXES][API_GRAPH_NAME];
  int dp; // axis
} ApiGraphMesh;

struct PlaitTraining {
  ApiGraphMesh at;
  Dtype storage;         // of inputs and parameters
  int64_t samples;
  int inputs;
  ApiGraphInput input[API_GRAPH_INPUTS];
  int labels;            // the input whose labels are counted, or -1
  int32_t *constant[API_GRAPH_INPUTS]; // (inputs) for those that nobody gives: (samples, s)
  void *none;            // for targets that are not given: labels -1
  int outputs;
  char **output;         // (outputs) names of their nodes
  int64_t *output_width; // (outputs) elements of a sample
  int dropout;
  uint64_t seed;
  Job *job;
  PlaitComm *comm;       // the user's: this process is one rank; NULL: ranks are threads
  Session *session;
  int failed;            // outside of the session
};

// The dtype of inputs, parameters and their state as users see them.
static inline Dtype api_graph_storage(Dtype dtype) { return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }

// Building. A mistake leaves its sentence in the graph, unless there is one already. Returns -1 (wrong) or 0.
int api_graph_wrong(PlaitGraph *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
int api_graph_take_name(PlaitGraph *h, const char *name); // once a name; 0 also where something was wrong before
int api_graph_readable(PlaitGraph *h, const char *reader, PlaitTensor x, int integers);
int api_graph_same_shape(PlaitGraph *h, const char *reader, PlaitTensor a, PlaitTensor b);
// A parameter of this shape; size 0: any. rank -1: of any shape.
int api_graph_parameter(PlaitGraph *h, const char *reader, const char *what, PlaitTensor p, int rank,
                      const int64_t *size);
const char *api_graph_shape_text(const Shape *s, char *text, size_t size); // "(24, 6)"
int api_graph_samples(const PlaitGraph *h, PlaitTensor x);                 // has it samples?
ApiGraphInput *api_graph_input(PlaitGraph *h, PlaitTensor x);              // NULL: it is not an input
int api_graph_operand(PlaitGraph *h, const char *reader, PlaitTensor x);   // x in the dtype of computing
// Integers (samples, s) that nobody gives: zeros, or 0 … s - 1 in each sample.
int api_graph_constant(PlaitGraph *h, int which, int64_t s);

// A rank and a training at work.
// The end of a call whose error is `own`: its code; the caller's error takes the sentence unless it has an earlier one.
int api_graph_report(PlaitError *error, int code, const Error *own);
int api_graph_usable(const PlaitTraining *t, Error *error); // PLAIT_BAD_INPUT after a failure
Rank *api_graph_rank(const PlaitTraining *t);               // the first rank of this process
