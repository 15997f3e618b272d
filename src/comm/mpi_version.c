// Which MPI this build has, for plait doctor; asked before MPI is initialised, which it allows for this one question.
#include "comm/launcher.h"
#include <stddef.h>
#ifdef PLAIT_MPI
#include <mpi.h>
#include <string.h>

_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= 1 << 14, "room for MPI's version");

const char *launcher_mpi_version(char line[static 1 << 14]) {
  int length;
  MPI_Get_library_version(line, &length);
  line[strcspn(line, ",\n")] = 0;
  for (char *c = line; *c; c++)
    if (*c == '\t') *c = ' ';
  return line;
}
#else
const char *launcher_mpi_version(char line[static 1 << 14]) { return NULL; }
#endif
