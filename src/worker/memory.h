// The memory that a supervisor holds for a worker: two files without names. Their contents outlive the worker
// (checkpoint/memory_image.h).
#pragma once
#include <stddef.h>

enum { WORKER_MEMORIES = 2 };

typedef struct WorkerMemory {
  int fd[WORKER_MEMORIES];
  int first, count; // ranks of this machine; count 0: nobody holds memory for this process
  int copies;       // the supervisor keeps what lies there on the next machine, too: 0 or 1
} WorkerMemory;

// Those of them that have a place in a mesh of `ranks`.
static inline int worker_memory_ranks(const WorkerMemory *m, int ranks) {
  return m->first + m->count < ranks ? m->count : ranks - m->first;
}

// Of the supervisor: the files for a worker, which cannot shrink; -1 where the system has none to give.
void worker_memory_create(int rank, int fd[WORKER_MEMORIES]);
// As text, for a variable; and back. 0: it is not such a text, or a descriptor is not one of such a file. The
// descriptors are not passed on to what this process starts.
void worker_memory_print(const WorkerMemory *memory, char *text, size_t size);
int worker_memory_parse(const char *text, WorkerMemory *memory);
