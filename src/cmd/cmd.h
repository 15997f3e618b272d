// The subcommands of plait. Each gets argv[0] = its name and returns the exit status: 0, 1 (failure), 2 (wrong input).
#pragma once

#define COMMAND(name, function, summary) int function(int argc, char **argv);
#include "cmd/commands.def"
#undef COMMAND
