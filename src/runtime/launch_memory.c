// Reading PLAIT_LAUNCH_MEMORY.
#include "runtime/launch_memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int launch_memory(LaunchMemory *m) {
  const char *text = getenv("PLAIT_LAUNCH_MEMORY");
  int end = 0;
  if (!text || sscanf(text, "%d %d %d %d %d%n", &m->fd[0], &m->fd[1], &m->first, &m->count, &m->copies, &end) != 5 ||
      text[end])
    return 0;
  for (int i = 0; i < LAUNCH_MEMORIES; i++) // only a memfd has seals: not one that another program has opened since
    if (m->fd[i] <= 2 || fcntl(m->fd[i], F_GET_SEALS) < 0 || fcntl(m->fd[i], F_SETFD, FD_CLOEXEC)) return 0;
  return 1;
}
