// Divides the cores of a machine among its workers.
#include "elastic/binding.h"
#include "base/file.h"
#include <stdlib.h>

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
