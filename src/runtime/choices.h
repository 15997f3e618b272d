// Choices among the algorithms of a device's libraries: one rank of each kind of card makes them, by time, for all.
#pragma once
#include "device/device.h"
#include "plait/comm.h"

// Collective over the world, after all ranks have bound their Programs. The file at `path`, which rank 0 reads and
// writes whole, has what was chosen before, so that a run that resumes has the same bits; of a kind that it does not
// have everything is chosen anew. A note says so where the run has other choices, or `resumes`. `memory` as for the
// device's check. Does nothing where the device has nothing to choose.
int choices_settle(DeviceQueue *queue, PlaitComm *world, const char *path, int resumes, char *memory, int64_t bytes,
                   Error *error);
