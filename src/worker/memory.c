// Files without names, made by the supervisor and found by the worker.
#include "worker/memory.h"
#include "base/fault.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

// Empty: it takes what the worker puts there. It cannot shrink, so that who maps it later may read all of it. A system
// that has none goes without: the run resumes from files then.
void worker_memory_create(int rank, int fd[WORKER_MEMORIES]) {
  for (int i = 0; i < WORKER_MEMORIES; i++) {
    char name[40];
    snprintf(name, sizeof name, "plait rank %d, %d", rank, i);
    fd[i] = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd[i] >= 0) fcntl(fd[i], F_ADD_SEALS, F_SEAL_SHRINK);
  }
}

void worker_memory_print(const WorkerMemory *m, char *text, size_t size) {
  snprintf(text, size, "%d %d %d %d %d", m->fd[0], m->fd[1], m->first, m->count, m->copies);
}

int worker_memory_parse(const char *text, WorkerMemory *m) {
  int end = 0;
  if (sscanf(text, "%d %d %d %d %d%n", &m->fd[0], &m->fd[1], &m->first, &m->count, &m->copies, &end) != 5 || text[end])
    return 0;
  if (m->first < 0 || m->count < 1 || m->copies < 0 || m->copies > 1) return 0;
  for (int i = 0; i < WORKER_MEMORIES; i++) { // only a memfd has seals: not one that another program has opened since
    int is_memory = m->fd[i] > 2 && fcntl(m->fd[i], F_GET_SEALS) >= 0;
    if (!FAULT(any_file_is_memory, is_memory, m->fd[i] > 2) || fcntl(m->fd[i], F_SETFD, FD_CLOEXEC)) return 0;
  }
  return 1;
}
