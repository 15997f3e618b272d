// The memory that a supervisor (plait launch) holds for this process, two files without names whose descriptors
// PLAIT_LAUNCH_MEMORY has ("7 8"). What lies in them is there when this process is dead: see
// checkpoint/memory_image.h.
#pragma once

enum { LAUNCH_MEMORIES = 2 };

// The descriptors, and 1; 0: nobody holds memory for this process. They are not passed on to what this process starts.
int launch_memory(int fd[LAUNCH_MEMORIES]);
