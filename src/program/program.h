// The Program: what one pipeline coordinate's ranks do in a step. An action list calls bodies with (slot, microbatch).
//
// Instruction set:
//   actions      BEGIN | END                 run that body once
//                F s m | B s m | W s m       run stage s's forward, backward or weight body on its slot m mod slots
//                SEND t → s' | RECV t ← s'   move a tensor of the slot of m to or from another stage's rank
//                SUMS | END                  in a stream END is run in two halves: SUMS runs it up to the sums over the
//                                            stages, and starts these
//                REDUCE n                    start collective n of END on its axis's stream, when the last
//                                            backward or weight has completed its accumulators; END waits for it. A
//                                            body is cut where one starts
//   body         a list of instructions, each one node of the partitioned graph:
//                out, … = op in, …           kernel of the device, or a collective of the comm layer
//                out, … = op in, … until k   collective that starts here on its axis's stream (collective_stream), or
//                                            MOVE between spaces, and is waited for before instruction k, its first
//                                            reader
//   operand      VARIABLE v      storage (or Copy) of a Variable, owned by State
//                INPUT i         memory of the loader, microbatch by microbatch, or a copy of it where the device
//                                cannot read that
//                SLOT s          what crosses F → B → W of stage s
//                STAGING s p     what stage s's segment F or B sends or receives and no other body reads
//                WORK            lives within one body
//                COMM            results of REDUCE, from its start to END, and in a stream what the second half of END
//                                reads of the first
//                All of these have offsets in one working memory, where what is needed at other times lies in the
//                same bytes. Of SLOT and STAGING there is an instance for each microbatch, or in long lists for each
//                slot or buffer, which microbatches take in turn (Packed).
// Nothing here depends on a rank's coordinates but the one on the pp axis; peers, IndexMaps, and which instructions a
// rank leaves to the owner of their operands (node_owner) are bound at load.
#pragma once
#include "base/shares.h"
#include "device/device.h"
#include "sharding/layout.h"
#include "schedule/walk.h"

typedef enum Area { AREA_NONE, AREA_VARIABLE, AREA_INPUT, AREA_SLOT, AREA_STAGING, AREA_WORK, AREA_COMM } Area;
// Where in a rank's memory something lies: `offset` bytes into the Variables or (any other area) into the working
// memory of a space of the device. -1: nowhere.
typedef struct Place { int space; Area area; int64_t offset; } Place;
// Where a tensor is put. All working memory is in the first space, in which kernels read and write. A tensor of a
// microbatch has an instance for every microbatch, slot or staging buffer, each with a Place (program_place, Packed).
typedef struct TensorPlace {
  Area area;
  int stage;   // of SLOT, STAGING, and WORK of MICRO
  Phase phase; // of STAGING
  int first, count; // instances: of Program.offset, from `first` on. Not of VARIABLE and INPUT
} TensorPlace;
// How instances have been packed (lives.h): by the time of the bodies, a slot as one; or by that of the whole list,
// with an instance for each slot or buffer, or for each microbatch.
typedef enum Packed { PACKED_BY_BODY, PACKED_BY_SLOT, PACKED_BY_MICROBATCH } Packed;
// The slots of a stage, or the staging buffers of a segment: `count`, each of which holds at most `bytes`. Microbatch m
// uses number m mod count.
typedef struct Ring { int count; int64_t bytes; } Ring;

// scratch: bytes of kernel workspace, and its instances, as of a TensorPlace. wait: 0, or for a collective that starts
// here on its axis's stream, or a MOVE that does in the queue of copies, the index of the instruction before which it
// must be done: its first reader, or first writer of what it reads (the body's count: at its end).
typedef struct Instruction { int node, wait; int64_t scratch; int first, count; } Instruction;
typedef struct Body { int count; Instruction *instruction; } Body;
// The last instruction during which the operands of instruction i must stay: its own, or until what it has started is
// done.
static inline int instruction_end(const Body *b, int i) {
  return b->instruction[i].wait > i ? b->instruction[i].wait : i;
}

// Memory that `plait plan` prints and the executor allocates: bytes on one rank, where ranks own whole tensors on the
// one that owns the most.
typedef struct MemoryPlan {
  int64_t parameters, gradients, optimizer, other; // Variables by kind; Copies of parameters count as parameters
  int64_t versions;                                // what parameters were, for delayed gradients
  // Of the working memory, when the most of it is in use:
  int64_t activations;                             // tensors in slots
  int64_t workspace;                               // temporaries of bodies and kernels' scratch; and copies of inputs
  int64_t communication; // staging buffers, and results of collectives that overlap with backward
  int64_t live;          // all of this but copies of inputs: no arena can be smaller
  int64_t gaps;          // by how much the arena is larger than that
  int64_t kept;          // the most that slots hold at one time, which may be another
  int64_t total;         // in the first space, as all of this
  int64_t owned_least, owned_most; // of the Variables: what single data ranks own, the least and the most of any
} MemoryPlan;

// Which of several instances of a Variable a tensor means (program_variable_place). In a stream several steps are
// under way: what one of them keeps lies in one of as many instances in turn, by its number `step`. A delayed parameter
// and its versions take turns in their places: `newest` says by how many steps these have moved on.
typedef struct Turn { int64_t step, newest; } Turn;

typedef struct Program Program;
struct Program {
  const Graph *graph; // partitioned; borrowed
  const Device *device; // whose description the memory plan and the choice of kernels follow
  Mesh mesh;
  int coordinate;     // on the pp axis
  int threads, helpers; // of a rank; of other ranks that may help it
  const Shares *shares; // borrowed
  int sketch;         // see ProgramOptions
  uint64_t chaos;     // above 0: see runtime/chaos.h
  Schedule *schedule; // all coordinates' lists
  Segments *segments;
  int borrows;        // both, from another coordinate's Program
  Body begin, end;
  Body (*micro)[PHASE_COUNT]; // [stage]; empty for stages of other coordinates
  int *stores;                // (nodes) 1 + the input that the step's first microbatch finds empty, of the node that
                              // adds to it first (first_writes.h): this call lacks it, and stores. 0: none
  TensorPlace *place;         // per tensor
  Place *variable_place;      // per Variable; offset -1: not on this coordinate
  Place (*copy_place)[MAX_COPIES];
  int *variable_instances;    // in a stream: how many a Variable has, one after the other
  int (*copy_instances)[MAX_COPIES];
  int **places;               // in a stream: of a delayed parameter and its versions, by place: the Variables whose
                              // places these are at first, the parameter itself and then its versions, the oldest first
  int end_cut;                // in a stream: instructions of END up to its sums over the stages, which start there
  int sums_under_way;         // steps whose sums over the stages are at once: what the second half of END reads of the
                              // first has as many instances; 1 where no stream is
  int64_t state_bytes[DEVICE_MOST_SPACES]; // Variables of each space
  ActionList actions;         // the schedule's list of this coordinate, with bodies cut and REDUCE put in
  Ring *slots;                // (stages); of stages of other coordinates empty
  Ring (*staging)[PHASE_COUNT]; // (stages); the same
  int64_t *offset;            // (instances) bytes into a rank's working memory; -1: never needed
  int instances;
  Packed packed;
  int64_t arena_bytes, input_bytes; // in this order in a rank's working memory; all instances together
  int64_t *input_offset; // per input of the graph, into the last of these; NULL: the device reads the host's memory
  int64_t begins_offset; // likewise, of the table of data ranks' rows (runtime/inputs.h), where the batch is uneven
  MemoryPlan memory;
  Arena arena;
};

typedef struct ProgramOptions {
  const Shares *shares;   // of the microbatches; must outlive the Program
  const ScheduleGenerator *schedule;
  int microbatches;
  int coordinate;         // on the pp axis
  const Program *like; // that of another coordinate, else with the same options: schedule and segments are
                              // borrowed from it, and not walked again; must outlive this one. NULL: none
  const Device *device;   // see Program
  int threads, helpers;   // of a rank, and of others that may help it: kernels need scratch for each
  int overlap; // gradient collectives start during the last backward instead of in END, and collectives of MICRO are in
               // flight until their first reader
  uint64_t chaos;         // above 0: seed of runtime/chaos.h, for tests; buffers are then packed in a random order
  int sketch;             // offsets are left out, and the arena is as large as a good packing makes it: for estimates
} ProgramOptions;

// Compiles one coordinate's Program from a partitioned graph. Allocates no buffers. The graph must outlive the Program.
// PLAIT_INFEASIBLE: the device has no kernel for an op, which the sentence names.
int program_create(const Graph *graph, const Mesh *mesh, const ProgramOptions *options, Program **out, Error *error);
void program_destroy(Program *p);
// `only` (NULL: everything): the instructions of nodes that graph_node_matches selects, and the actions. Returns how
// many instructions were printed.
int program_print(const Program *p, const char *only, FILE *out);
WalkPlan program_walk(const Program *p); // along p->actions

// Fills the operands of a node as this rank sees them (sizes and IndexMaps; data NULL).
void program_operands(const Program *p, const Node *n, int rank, Operand *input, Operand *output);
// Whether a node's call on a microbatch lacks an input: an accumulator that is empty until then.
static inline int program_call_lacks(const Program *p, const Node *n, int input, int microbatch) {
  return p->stores[n->id] == input + 1 && !microbatch;
}
// The dtype by which a node finds its kernel: of its first floating-point operand.
Dtype node_dtype(const Graph *g, const Node *n);
// Where a Variable (copy -1) or one of its Copies lies.
Place program_variable_place(const Program *p, int variable, int copy, Turn turn);
// Where a tensor of the working memory lies, for microbatch `number` (through all steps of a stream) of step `step`;
// offset -1: it is a Variable's or an input's.
Place program_place(const Program *p, int tensor, int number, int64_t step);
// Bytes of the table of where data ranks' rows begin, (microbatches, data ranks + 1) int64 for a step; 0: all have as
// many.
int64_t program_begins_bytes(const Program *p);
int64_t program_input_offset(const Program *p); // of the inputs' copies: after all else
// Bytes of a graph input that a step reads, and how many microbatches these are (1 in BEGIN and END).
int64_t program_input_bytes(const Program *p, int input, int *microbatches);
// Whether a device runs a node by its op's reference kernel, for lack of a faster one, on more than scalars; and all
// such ops of a graph: "dropout in fp64, …", or "".
int node_by_reference(const Graph *g, const Node *n, const Device *device);
void graph_reference_ops(const Graph *g, const Device *device, char *text, size_t size);
// The same of nodes that a device leaves to the host: "all ops" where it has no kernel for any.
int node_on_host(const Graph *g, const Node *n, const Device *device);
void graph_host_ops(const Graph *g, const Device *device, char *text, size_t size);
int64_t tensor_local_elements(const Graph *g, const Tensor *tensor); // on one rank
// FLOPs of all kernels of a step on one rank; and of a stage's body on one microbatch.
double program_flops(const Program *p);
double program_body_flops(const Program *p, int stage, Phase phase);

// Whether this coordinate's ranks run a stage.
#define EACH_PROGRAM_STAGE(stage, p)                                                                                   \
  EACH_STAGE_ON(stage, (p)->coordinate, (p)->schedule->map, (p)->graph->stages)
static inline int program_runs(const Program *p, int stage) {
  return stage_coordinate(stage, p->schedule->map) == p->coordinate;
}
int64_t round_up(int64_t bytes, int64_t to);
