// The cores of the CPU affinity mask, else all cores of the machine.
#include "base/cores.h"
#include <sched.h>
#include <unistd.h>

int cores_available(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? n : 1;
}
