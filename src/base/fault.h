// Fault marks: places where a known fault can be switched on, to show that a test notices it (scripts/mutants).
//
//   x = FAULT(address_of_shard, offset, 0);                      what is right, then what the fault makes of it
//   UNLESS_FAULT(room_of_an_identity) keep_room(&f, h);          a statement that the fault leaves out
//
// A normal build contains the right code and nothing else. A build with -DPLAIT_FAULTS contains all faults, and the
// environment variable PLAIT_FAULT chooses one of them by its name in base/faults.def, or none. Several marks may
// belong to one fault.
#pragma once

#ifdef PLAIT_FAULTS

typedef enum Fault {
  FAULT_NONE,
#define FAULT_MARK(name, test, meaning) FAULT_##name,
#include "base/faults.def"
#undef FAULT_MARK
} Fault;

// The fault that PLAIT_FAULT names. It is read before main, so no thread ever sees it change.
extern Fault fault_chosen;

#define FAULT(name, right, wrong) (fault_chosen == FAULT_##name ? (wrong) : (right))
#define UNLESS_FAULT(name) if (fault_chosen != FAULT_##name)

#else

#define FAULT(name, right, wrong) (right)
#define UNLESS_FAULT(name)

#endif
