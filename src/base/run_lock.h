// Who has the folder of a run: what its file `lock` says. Under plait launch that is the job and the number of the
// round as well ("PID JOB ROUND").
#pragma once
#include <stdbool.h>

// job "": not under plait launch. why: -errno where the lock cannot be read, and the others say nothing.
typedef struct RunHolder { long pid; char job[40]; long round; int why; } RunHolder;

RunHolder run_lock_parse(const char *text);
// Of the folder, whoever holds the lock: pid 0 where nobody ever had it.
RunHolder run_lock_read(const char *folder);
// Tries for half a second, since others look at locks for a moment, and that of a process which was killed is held
// until it is gone. 0, or -1 and errno.
int run_lock_take(int fd);
