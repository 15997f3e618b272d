// Removes what dead processes have left in a run's folder: files and checkpoints that were half written or half
// deleted. Nobody reads them, and nobody else removes them.
#pragma once
#include <stdbool.h>

// By whoever starts or ends a run. is_locked: the caller has the folder's lock; else it is taken for the moment, and
// nothing is removed where another run has it. Files that a live process of this machine is writing stay.
void left_remove(const char *run_folder, bool is_locked);
