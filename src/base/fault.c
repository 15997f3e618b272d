// Reads PLAIT_FAULT, in builds that contain faults.
#include "base/fault.h"

#ifdef PLAIT_FAULTS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_UNKNOWN = 125 }; // not an exit status of plait or of a test that fails

Fault fault_chosen = FAULT_NONE;

// A name that is not in the table ends the process: the test must not pass as if nothing noticed the fault.
__attribute__((constructor)) static void choose_fault(void) {
  static const char *const names[] = {
      [FAULT_NONE] = "",
#define FAULT_MARK(name, test, meaning) [FAULT_##name] = #name,
#include "base/faults.def"
#undef FAULT_MARK
  };
  const char *wanted = getenv("PLAIT_FAULT");
  if (!wanted) return;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], wanted)) {
      fault_chosen = (Fault)i;
      return;
    }
  fprintf(stderr, "plait: PLAIT_FAULT is \"%s\", which is not a fault of src/base/faults.def\n", wanted);
  _Exit(EXIT_UNKNOWN);
}
#endif
