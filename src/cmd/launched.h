// Shared by the commands that mpirun or srun may start once per rank: train, eval, generate.
#pragma once
#include "runtime/launch.h"

// The end of a command: prints the error, unless the launcher's world has failed and says so itself, leaves the world,
// and returns the exit status. Not 0 after a signal: what a script does next wants a finished result.
int command_end(const char *name, int code, Launch *launch, const Error *error);
