// Logs the calls that a rank's executor issues, for tests that compare the simulator with it.
#pragma once
#include "program/calls.h"

// Observes an executor (OBSERVER_ISSUED) of the log's Program.
typedef struct Issued {
  CallLog log;
  char *left; // (nodes) a REDUCE has left it to its owner: END's instruction is not one more call
} Issued;
Issued *issued_create(const Program *program);
void issued_destroy(Issued *issued); // NULL is fine
