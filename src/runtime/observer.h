// Observers look on while the executor runs: the trace, the chaos of tests, the comparison of ranks, the search for
// values that are not finite. The executor knows none of them: it reports what it does, and each observer of
// observers.def sees the events that it asked for. A new one is a file that defines an ObserverDef, and a line in
// observers.def.
#pragma once
#include "device/device.h"
#include "schedule/walk.h"

typedef enum ObserverEvent {
  OBSERVE_STEP,          // a step begins
  OBSERVE_ACTION,        // an action begins, and
  OBSERVE_ACTION_END,    // ends
  OBSERVE_ENTER,         // a microbatch has taken a buffer; what was in it is of no use any more
  OBSERVE_BODY,          // a body begins: nothing is alive in the workspace
  OBSERVE_INSTRUCTION,   // an instruction begins
  OBSERVE_KERNEL,        // its kernel is about to run, with its scratch memory
  OBSERVE_COLLECTIVE,    // its collective is about to be issued
  OBSERVE_ISSUED,        // it has been, or was left to its owner
  OBSERVE_INSTRUCTION_END, // it has been put into the queue, or is a collective that is done or in flight
  OBSERVE_LANDED,        // a collective that was in flight has been waited for
  OBSERVE_TRANSFER,      // a SEND or RECV is about to be issued
} ObserverEvent;
#define OBSERVES(event) (1u << OBSERVE_##event)

typedef struct Observation {
  ObserverEvent event;
  int microbatch;
  const Action *action;      // ACTION, ACTION_END, TRANSFER; ISSUED by a REDUCE
  const WalkBuffer *buffer;  // ENTER
  int peer, direction;       // TRANSFER: the coordinate of the other rank; 1 towards later stages
  const Node *node;          // from INSTRUCTION to LANDED
  int left_to_owner; // INSTRUCTION, INSTRUCTION_END, ISSUED: another rank owns what it works on, this one leaves it out
  int64_t elements;          // COLLECTIVE
  int64_t bytes;             // ISSUED: of the whole tensor (program/traffic.h); TRANSFER: of the message
  int64_t offset;            // TRANSFER: of the message's buffer, into the rank's working memory
  int stream;                // ISSUED: the axis whose stream it takes, or CALL_ALONE (program/calls.h)
  const char *on;            // LANDED: the name of that axis
  const Operand *input, *output; // INSTRUCTION_END: (ninput), (node->noutput)
  const int *tensor;             // (ninput) the inputs' tensors; -1: absent
  int ninput;
  const KernelCall *call;        // KERNEL: its operands and parameters
  char *scratch;                 // KERNEL: its scratch memory, an address of the device's, and
  int64_t scratch_bytes;         // how much
  double issued;                 // LANDED: when it was issued, by clock_seconds
  DeviceQueue *queue;            // INSTRUCTION_END: in which it was put; what is read of its results goes through it
} Observation;

typedef struct ObserverDef {
  const char *name;
  unsigned events;  // set of OBSERVES(event)
  int synchronous;  // no collective of a body may be in flight: every instruction's results are looked at
  void (*see)(void *self, const Observation *observation);
} ObserverDef;

typedef enum ObserverKind {
#define OBSERVER(id, name) OBSERVER_##id,
#include "runtime/observers.def"
#undef OBSERVER
  OBSERVER_COUNT
} ObserverKind;

#define OBSERVER(id, name) extern const ObserverDef observer_##name;
#include "runtime/observers.def"
#undef OBSERVER
