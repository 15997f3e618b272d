// Reading PLAIT_LAUNCH_MEMORY.
#include "runtime/launch_memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int launch_memory(int fd[LAUNCH_MEMORIES]) {
  const char *text = getenv("PLAIT_LAUNCH_MEMORY");
  int end = 0;
  if (!text || sscanf(text, "%d %d%n", &fd[0], &fd[1], &end) != 2 || text[end]) return 0;
  for (int i = 0; i < LAUNCH_MEMORIES; i++) // only a memfd has seals: not one that another program has opened since
    if (fd[i] <= 2 || fcntl(fd[i], F_GET_SEALS) < 0 || fcntl(fd[i], F_SETFD, FD_CLOEXEC)) return 0;
  return 1;
}
