// The lease of a job's store in the folder that all machines share (run.dir): of several machines that could serve the
// store only the holder does. A file run.dir/rendezvous-EPOCH, created with link(), so that only one process succeeds;
// its holder rewrites it twice a second to show that it lives. Clocks of machines are not compared. After the job it
// stays, and says the job's status. No clock here: the caller brings the time.
#pragma once
#include "base/error.h"
#include <stdbool.h>

typedef struct JobFolder {
  const char *path;    // run.dir, borrowed; NULL: there is none, and nobody takes over
  int epoch, fd;       // held; fd -1: not
  long beats;
  char job[20], endpoint[80];
  char seen[320];      // what the newest file said, when it had last changed
  int seen_epoch;
  double seen_at;
} JobFolder;

void job_folder_open(JobFolder *folder, const char *path);
// 1: this process holds the lease now, of an epoch above all before. 0: somebody else does, or may: ask again. It is
// free at once where one of this job's machines gave it back, or was a process of this machine that has died; else
// after `silence` seconds without a change. PLAIT_BAD_INPUT: a job at an endpoint that is not among `endpoints` holds
// it, or another one than `job` where `endpoints` is NULL; PLAIT_FAILED: the folder cannot be written.
int job_folder_claim(JobFolder *folder, const char *job, const char *endpoint, const char *endpoints, double silence,
                     double now, Error *error);
// For a machine that another one serves: looks at the lease, so that a holder that falls silent is known to be silent
// since then, and not only since the connection to it was given up.
void job_folder_watch(JobFolder *folder, double now);
// Says that the holder lives. false: another process has taken over.
bool job_folder_renew(JobFolder *folder);
// status: that the job has ended with; -1: it goes on, and another of its machines may take over at once.
void job_folder_release(JobFolder *folder, int status);
// The status that this job has ended with, for a machine that was cut off from it meanwhile; -1: the lease does not say
// that it has ended.
int job_folder_status(const JobFolder *folder, const char *job);
// Whether the store of a job that has not ended, as far as the lease says, was at this endpoint last.
bool job_folder_was_at(const JobFolder *folder, const char *endpoint);
// Whether this machine has the same run.dir as the one that wrote the lease of this epoch and job. 1: it has, or the
// job has no run.dir; 0: the lease is not there; -errno: the lease cannot be read.
int job_folder_sees(const JobFolder *folder, int epoch, const char *job);
