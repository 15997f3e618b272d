// The memory that a supervisor (plait launch) holds for this process, two files without names whose descriptors
// PLAIT_LAUNCH_MEMORY has, with the ranks of this machine ("7 8 0 2 1": two ranks from 0 on, and copies are made). What
// lies in them is there when this process is dead: see checkpoint/memory_image.h.
#pragma once

enum { LAUNCH_MEMORIES = 2 };

typedef struct LaunchMemory {
  int fd[LAUNCH_MEMORIES];
  int first, count; // ranks of this machine
  int copies;       // the supervisor keeps what lies there on the next machine, too: 0 or 1
} LaunchMemory;

// Those of them that have a place in a mesh of so many ranks.
static inline int machine_ranks(const LaunchMemory *m, int ranks) {
  return m->first + m->count < ranks ? m->count : ranks - m->first;
}

// 0: nobody holds memory for this process. The descriptors are not passed on to what this process starts.
int launch_memory(LaunchMemory *memory);
