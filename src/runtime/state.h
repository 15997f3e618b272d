// State owns all Variables of one rank. In each space of its device it has one piece of memory: with the Variables that
// lie there, and in the first space, in which kernels read and write, with that in which Programs work.
// Train, evaluation and generation Programs borrow it: their Variables are those of the same names.
//
// Addresses in it are the executor's, its kernels' and its observers'. Everyone else reads and writes parts of
// Variables, as boxes: state_read and state_write.
#pragma once
#include "sharding/shard.h"
#include "program/program.h"
#include "runtime/mirror.h"

// Addresses of a space: of the Variables, and after them of the slots, workspace and scratch of whichever Program runs.
typedef struct StateMemory { char *memory, *work; int64_t bytes; } StateMemory;

typedef struct State {
  const Program *program; // whose Variables these are; borrowed
  const Device *device;   // the instance on which they lie
  DeviceQueue *queue;     // for copies from and to the host
  int rank;
  StateMemory in[DEVICE_MOST_SPACES]; // of a space without Variables, but the first, NULL
  Mirror *mirror;         // of the first space; NULL: communicators reach it without, or there are none
  uint64_t changes;       // writes and steps so far, from 1 on. An executor whose last step left this number knows that
                          // nothing has changed since
  Turn turn;              // which instances of the Variables are those of the step that was finished last
} State;

// The device's address of a place; NULL where it is nowhere.
static inline char *state_address(const State *s, Place place) {
  const StateMemory *in = &s->in[place.space];
  return place.offset < 0 ? NULL : (place.area == AREA_VARIABLE ? in->memory : in->work) + place.offset;
}

// The pointer by which communicators, which are the host's, read and write an address of the first space: there, or in
// the mirror, to and from which runtime/host_call.c copies.
static inline void *state_host_pointer(const State *s, void *address) {
  return s->mirror ? s->mirror->memory + ((char *)address - s->in[0].memory) : device_host_pointer(s->device, address);
}

// Bytes that a Program needs beside the Variables.
int64_t program_work_bytes(const Program *p);
// Bytes that state_create will allocate in a space: Variables and, in the first one, work, rounded up to whole pages.
int64_t state_plan_bytes(const Program *program, int space, int64_t work_bytes);
// Bytes of host memory that these Programs, of which the first has the Variables, take for a mirror of it; 0: ranks do
// without.
int64_t state_mirror_bytes(Program *const *program, int count, int64_t work_bytes);
// Allocates Variables and `work_bytes` (the most that any Program to be run on it needs), all zero, on the Program's
// device, an instance of it (device_instance), or one that imitates it (device_null).
int state_create(const Program *program, const Device *device, int64_t work_bytes, int rank, State **out, Error *error);
void state_destroy(State *s);

// This rank's part of a Variable (by its id; copy -1) or of one of its Copies: for (ShardBoxes b = state_boxes(…);
// shard_next(&b);).
ShardBoxes state_boxes(const State *s, int variable, int copy);
// Copies the elements of `part`, which lies inside one of these boxes, to or from the host's memory: row-major, in the
// dtype of the Variable (variable_dtype: fp32 where it is encoded) or Copy. For what is large take one piece after the
// other (box_next_piece). Not while a Program runs.
void state_read(const State *s, int variable, int copy, const Box *part, void *out);
void state_write(State *s, int variable, int copy, const Box *part, const void *in);
// Before all Variables are written from a checkpoint: what their encodings keep of earlier writes is forgotten.
void state_before_loading(State *s);
Dtype state_dtype(const State *s, int variable, int copy);

// A scalar of ir/known.def as a number. One that the Program does not have is a bug: where it may lack one, state_has
// asks.
double state_scalar(const State *s, KnownVariable known);
int state_has(const State *s, KnownVariable known);

// Init rules of the Variables that are asked for, addressed by (seed, name, global index): the same bits under every
// parallel configuration and with any number of threads. team: NULL for none. Variables that no rule fills stay as they
// are: zero at first.
void state_init(State *s, uint64_t seed, VariableTest *wanted, Team *team);
