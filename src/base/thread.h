// Starting a thread: signals stay with the threads of the application, and a failure is a sentence that names the
// limits.
#pragma once
#include "base/error.h"
#include <pthread.h>

// Starts `run(argument)` in a thread that takes no signals but those of its own faults, and of profilers. PLAIT_FAILED
// where the system refuses; `format` and what follows say which thread it is, as in "the loader's thread".
int thread_start(pthread_t *thread, void *(*run)(void *), void *argument, Error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// Adds `nice` to that of the calling thread. Beside a thread of normal priority on the same core it gets a quarter of
// the time with 5 (Linux weighs it a third as much), on an idle core all of it. Where priorities are those of whole
// processes, nothing happens. It cannot be raised again without a privilege: for threads that end after their work.
void thread_lower_priority(int nice);
