// What the workers of a machine keep in memory, kept on the next machine of the round as well (checkpoint.copies; Wang
// et al., "Gemini", SOSP 2023): when a machine is lost, the one after it has the memory of its workers.
//
// A thread sends each step that all workers here have in memory, another one takes what the machine before sends. The
// workers know nothing of it, and wait for nothing.
#pragma once
#include "elastic/workers.h"

typedef struct Copies Copies;

typedef struct CopiesPlace {
  const char *address; // of this machine, where it takes copies
  int port;
  const char *next;    // of the machine that gets copies of what is here
  int next_port;
  const char *next_host; // its name
  int ranks;           // of the round, on all machines
  int64_t most;        // bytes that all copies here may take; 0: most of what the machine has left
  bool insecure;       // other addresses than the loopback interface's are fine
  const char *secret;  // that the job has drawn (secret_draw), where the user has given none
} CopiesPlace;

// For one round. The workers are borrowed until copies_stop. PLAIT_FAILED: nothing can listen there, or no thread;
// PLAIT_BAD_INPUT: neither loopback nor a user's secret, and not `insecure`.
int copies_start(const Workers *workers, const CopiesPlace *place, Copies **copies, Error *error);
// Nothing more is sent or taken; a copy that has come in part is none. What is whole stays. NULL is fine.
void copies_stop(Copies *copies);
// The files of what was taken, of which checkpoint/memory_image.h finds the whole ones: their number; *fd is borrowed,
// after copies_stop.
int copies_files(const Copies *copies, const int **fd);
void copies_end(Copies *copies); // frees; NULL is fine
