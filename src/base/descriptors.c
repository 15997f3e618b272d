// The limit on open files.
#include "base/descriptors.h"
#include <sys/resource.h>

enum { USUAL = 1024, MOST = 1 << 20 };

int descriptors_raise(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return USUAL;
  struct rlimit raised = {limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur != limit.rlim_max && !setrlimit(RLIMIT_NOFILE, &raised)) limit = raised;
  return limit.rlim_cur > MOST ? MOST : (int)limit.rlim_cur; // RLIM_INFINITY is the largest number
}
