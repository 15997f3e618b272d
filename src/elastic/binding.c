// Divides the cores of a machine among its workers, and its memory after them.
#include "elastic/binding.h"
#include "base/fault.h"
#include "base/file.h"
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONG_BITS = 8 * sizeof(unsigned long) };
typedef struct Core { int package, core, cpu; } Core;

static int topology(int cpu, const char *file) {
  char path[128], text[32];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, file);
  file_peek(path, text, sizeof text);
  return atoi(text);
}

static int compare(const void *a, const void *b) {
  const Core *x = a, *y = b;
  if (x->package != y->package) return x->package < y->package ? -1 : 1;
  if (x->core != y->core) return x->core < y->core ? -1 : 1;
  return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

int binding_share(const cpu_set_t *all, int i, int n, cpu_set_t *share) {
  Core cores[CPU_SETSIZE];
  int count = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, all))
      cores[count++] = (Core){topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu};
  if (count < n) return 0;
  qsort(cores, (size_t)count, sizeof *cores, compare);
  CPU_ZERO(share);
  for (int c = i * count / n; c < (i + 1) * count / n; c++) CPU_SET(cores[c].cpu, share);
  return 1;
}

// Memory --------------------------------------------------------------------------------------------------------------

// "0-3,8": whether any of the numbers is in the set.
static bool meets(const char *list, const cpu_set_t *set) {
  for (int first, last, read; sscanf(list, "%d%n", &first, &read) == 1; list += *list == ',') {
    list += read;
    last = first;
    if (sscanf(list, "-%d%n", &last, &read) == 1) list += read;
    for (int cpu = first; cpu >= 0 && cpu <= last && cpu < CPU_SETSIZE; cpu++)
      if (CPU_ISSET(cpu, set)) return true;
  }
  return false;
}

int binding_nodes(const char *folder, const cpu_set_t *share, unsigned char nodes[BINDING_NODES]) {
  int there = 0, found = 0;
  memset(nodes, 0, BINDING_NODES);
  for (int node = 0; node < BINDING_NODES; node++) {
    char path[300], cores[4096];
    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    if (!file_exists(path)) continue;
    there++;
    file_peek(path, cores, sizeof cores);
    found += nodes[node] = FAULT(memory_of_any_node, meets(cores, share), true);
  }
  return there > 1 && found < there ? found : 0;
}

// By the system calls themselves: libnuma would be a library for two lines.
void binding_memory(const cpu_set_t *share) {
  int policy = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &policy, NULL, 0l, NULL, 0l) || policy != MPOL_DEFAULT) return; // numactl, srun
  unsigned char nodes[BINDING_NODES];
  unsigned long mask[BINDING_NODES / LONG_BITS] = {0};
  int found = binding_nodes("/sys/devices/system/node", share, nodes);
  if (!found) return;
  for (int node = 0; node < BINDING_NODES; node++)
    if (nodes[node]) mask[node / (int)LONG_BITS] |= 1ul << node % (int)LONG_BITS;
  long ignored = syscall(SYS_set_mempolicy, MPOL_BIND, mask, BINDING_NODES + 1l); // refused in some containers
  (void)ignored;
}
