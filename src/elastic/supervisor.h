// The supervisor of a machine: starts the workers, watches them, ends them all when one fails, and starts them again.
// Alone, or as one of several.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct LaunchOptions {
  char *const *argv;       // the program of each worker, ended by NULL
  bool trains;             // it is plait train: exit status 2 is wrong input, which a restart does not mend
  bool says_done;          // it is plait: its status is 0 only where it is done, also after a signal (plait serve)
  int workers;             // of this machine
  int most_restarts;       // after failures
  double grace;            // seconds from SIGTERM to SIGKILL
  const char *id;          // of the job
  const char *address;     // of this machine, for the others
  const char *log_folder;  // may be NULL
  int tee;                 // 1: standard output goes to the console, too; 2: errors; 3: both
  const char *run_folder;  // where launch.jsonl goes; NULL: nowhere
  // Of a job of several machines:
  const char *endpoints;   // where their store may be, "hostA:29400,hostB:29400"; NULL: one machine
  int least, most;         // machines
  int node_rank;           // -1: any
  int ranks, unit;         // ranks that the mesh has, 0: any multiple of unit
  bool copies;             // what workers keep in memory is kept on the next machine, too (elastic/copies.h)
  bool insecure;           // addresses that are not of the loopback interface
  bool net;                // ranks talk by net, whatever run.comm says
  double silence, patience; // seconds: see MemberOptions (elastic/member.h)
  const char *recipe;      // a number of what is run, as text: all machines must run the same
  const char *what;        // the same in lines of elastic/job_what.h
} LaunchOptions;

// Runs the job to its end. *status: 0, that of the first worker that failed (128 + its signal), or what
// base/signals.def says of the signal that has stopped the supervisor. An error where workers cannot be started.
// SIGTERM, SIGINT and the other signals of base/signals.def are passed to the workers, which save and end. Of several
// machines, one that gets SIGTERM, SIGINT or SIGHUP leaves the job, and the other signals stop all of it. Prints on
// stderr what happens.
int launch_supervise(const LaunchOptions *options, int *status, Error *error);
