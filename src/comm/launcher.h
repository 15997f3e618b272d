// What the environment says of mpirun or srun, without asking MPI.
#pragma once

typedef struct Launcher {
  const char *variable; // that says so; NULL: started by hand
  int tasks, rank;      // tasks 0: there is a launcher that does not say how many; rank -1: not said
} Launcher;

Launcher launcher_find(void);

// The MPI that this build has, as it calls itself; NULL: none.
const char *launcher_mpi_version(char line[static 1 << 14]);
