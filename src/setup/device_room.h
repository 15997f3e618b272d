// Whether devices that have memory of their own have room for the ranks that share them.
#pragma once
#include "runtime/job.h"

// Bytes on devices that the ranks of this machine take, of which `first` is the first of `count`; 0: it is the host's.
int64_t device_bytes_here(const Job *job, int first, int count);
// Asks the devices. PLAIT_NO_MEMORY: what they need and what is free.
int device_check_room(const Job *job, int first, int count, Error *error);
