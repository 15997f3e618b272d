// A Program bound to a rank: operands, IndexMaps, kernels, communicators. Made once, before the first step.
#pragma once
#include "plait/comm.h"
#include "program/rows.h"
#include "runtime/inputs.h"
#include "runtime/state.h"

// Of a collective: byte offsets into operands, elements, and elements between the parts of neighbouring ranks on the
// side where there are such (see PlaitBuffer). Of a tensor it is number `block` of `blocks`.
typedef struct Piece {
  int64_t send, recv, count, send_stride, recv_stride;
  int input, output;
  int64_t block, blocks;
} Piece;

// A collective that is in flight since `issued`, started by a REDUCE or in its body; `done` is waited for. Or a MOVE;
// kernels come after `moved`.
typedef struct Flight {
  int started;
  union {
    PlaitEvent done;
    DeviceEvent moved;
  };
  double issued;
} Flight;

typedef struct BoundMove { int from_space, to_space; int64_t bytes; } BoundMove;

// Of a collective of a device that is not the host: see host_call.h.
typedef struct HostCall HostCall;
typedef struct MaskCopy MaskCopy; // see mask_rows.h
typedef struct ExchangedRows ExchangedRows; // see exchanged_rows.h

// An instruction. Its operands have addresses only while it runs: see binding_address.
typedef struct Bound {
  const Node *node;
  const Instruction *instruction; // of the Program
  int left_to_owner;      // other ranks have all that it works on
  int communicates;       // a collective; else the device computes it, or moves it (bound_moves)
  union {
    DeviceBound kernel;
    HostCall *host_call;   // of a collective (as many as `flight`); NULL: the device's memory is the host's
  };
  KernelCall call;        // of the kernel; its scratch is that of the microbatch, its operands are these:
  int ninput;             // terms that live here, see stage
  int late;               // it reads an input that is filled while the forward pass runs
  const int *tensor;      // (ninput) their tensors
  Rows *rows; // (ninput, then outputs) of operands; NULL: they have all rows of their memory in every microbatch
  int *compact; // (ninput, then outputs) 1 + the number of the mask of a compact operand, else 0; NULL: none is
  size_t *counts; // (3 · ranks of the group) of an exchange of rows: elements sent, received, and where these lie
  ExchangedRows *exchanged; // how many rows it exchanges; NULL: it does not
  int newest;   // 1: in a stream, runs after the versions have moved on: its newest is the one that the update writes
  int masks;    // it makes masks, whose rows are counted when it is done
  Operand *input, *output;
  union {
    PlaitComm *comm;        // collectives
    const BoundMove *move;  // MOVEs
  };
  int gathers_rows;       // its dim is the batch
  int pieces;
  Piece *piece;
  PlaitBuffer *buffer; // (pieces, or with gathers_rows pieces · ranks) scratch for the call, which a stream reads until
                       // it is done
  int64_t called;         // bytes of the whole tensor (program/traffic.h) that the last call was of
  int until;              // of a collective in flight: see Instruction.wait
  int due, next_due; // 1 + the first collective to wait for before this instruction, and the next of that list; 0: none
  Flight *flight; // of a collective or MOVE: one, or of END in a stream Program.sums_under_way, taken in turn by step
} Bound;

// Whether it is a MOVE: of what does not communicate, these alone are in flight.
static inline int bound_moves(const Bound *b) { return !b->communicates && b->flight; }

typedef struct BoundBody { int count; Bound *bound; } BoundBody; // one more than count: what is due at the end

// A set of ranks that collectives run over: those that differ in `axes`, along the pipeline axis only at `coordinates`.
typedef struct Group {
  uint32_t axes;
  StageSet coordinates;
  PlaitComm *comm;
} Group; // comm NULL: this rank is not in it, or has no world
typedef Vec(Group) GroupList;

struct Binding {
  const Program *program;
  State *state;
  DeviceQueue *queue;         // in which its kernels run
  DeviceQueue *out, *in;      // of copies from and to the State's mirror; NULL: it has none
  int *variable;              // Variable of this graph → of the State's graph
  BoundInputs *input;         // (steps under way) by binding_inputs
  Rows *input_rows;           // (graph inputs)
  CallParameters parameters;  // of the call under way; kernels read them here
  // Of the action under way: which step of a stream it is of; and what is added to a microbatch for its number in the
  // stream.
  Turn turn;
  int base;
  BoundBody begin, end, (*micro)[PHASE_COUNT]; // [stage]
  int *mask;           // (tensors) 1 + its number among the masks of compact tensors, else 0
  int64_t *mask_rows;  // (masks, steps under way, microbatches) how many rows each lets through, on this rank
  MaskCopy *mask_copy; // (masks) NULL: the host reads the device's memory
  int64_t *mask_most;  // (masks) where rows are not counted, how many a token has at most; else 0
  int *mask_tensor;    // (masks) the masks themselves
  uint8_t *mask_exchanged; // (masks) whether an exchange counts their rows: see mask_rows.c
  ExchangedRows *exchanged;  // all of them
  GroupList group;
  PlaitComm *pipe[2];         // backward and forward direction over the pp axis
  Arena arena;
};

// Collective over `world` when the mesh has more than one rank: all create their communicators in the same order. world
// NULL: there is nobody to communicate with, and the Program is bound but for that, to see what it takes. The queue is
// of the State's device. Everything is borrowed. binding_free releases what was made, also after an error.
int binding_make(Binding *binding, const Program *program, State *state, DeviceQueue *queue, PlaitComm *world,
                 Error *error);
void binding_free(Binding *binding);

// The groups of a graph's collectives, in the order in which they first occur, which is the same on all ranks; comm
// NULL. The caller frees the list with vec_free.
void graph_groups(const Graph *graph, const Mesh *mesh, GroupList *groups);
int group_find(const GroupList *groups, const Graph *g, const Mesh *mesh,
               const Node *node); // index of a collective's group

// Where a tensor lies for a microbatch of the step of `turn`, as an address of the device's; NULL where it has no
// memory here.
char *binding_address(const Binding *binding, int tensor, int microbatch, Turn turn);
BoundBody *binding_body(Binding *binding, const Action *action); // that the action runs; NULL: none
