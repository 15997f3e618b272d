// Starting a thread: signals stay with the threads of the application, and a failure is a sentence that names the
// limits.
#pragma once
#include "base/error.h"
#include <pthread.h>

// Starts `run(argument)` in a thread that takes no signals but those of its own faults, and of profilers. PLAIT_FAILED
// where the system refuses; `format` and what follows say which thread it is, as in "the loader's thread".
int thread_start(pthread_t *thread, void *(*run)(void *), void *argument, Error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
