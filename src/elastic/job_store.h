// How one machine comes to the store of its job, and what it holds of it. There are three kinds: a store that one of
// the machines serves, which moves when that machine is lost; one that etcd keeps; and that of a job of one machine,
// which lives in its process.
#pragma once
#include "elastic/job_folder.h"
#include "elastic/member.h"
#include "elastic/store.h"

typedef struct JobStore JobStore;

typedef struct JobStoreKind {
  int (*check)(const char *endpoints, bool insecure, Error *error); // what --rdzv says, before anything is started
  // 1: store->store is connected; 0: not yet, and *error may say why; below 0: it never will be. May take time.
  int (*find)(JobStore *store, Error *error);
  // Renews what this machine holds; to be called often, connected or not. 1: all is well. 0: the store is to be left:
  // another machine has taken over, or it does not answer. Below 0: the job cannot continue here.
  int (*keep)(JobStore *store, double now, Error *error);
  const char *server;   // what is to run at the endpoints
  int lost_with_it;     // machines that are lost when the store is: the one that has served it
  bool anybody_begins;  // a new job; else the machine that serves does
  bool at_once;         // it is in this process, and no call waits: the member needs no thread
} JobStoreKind;

extern const JobStoreKind job_store_served, job_store_etcd, job_store_alone;

struct JobStore {
  const JobStoreKind *kind;
  const MemberOptions *options;
  StoreNetwork *network;
  char where[200];     // the endpoints, without a password
  char at[80];         // the endpoint at which it was found last
  Store *store;        // NULL: not connected
  StoreServer *server; // NULL: it is not here
  JobFolder folder;
  int epoch;           // of the lease in run.dir, as the store says it; 0: not known yet
  bool reached;        // there was a store once
  char job[20];        // the name of the job's start; "": not known yet
  uint64_t lease;      // this machine's, in the store; 0: none
  uint64_t told;       // the lease with which this machine has told the epoch
  double hold_until;   // until when no round begins
  double reunion;      // until when machines may come back to the store
  double quiet_until;  // until when this machine does not serve it again
  int silent_tries;    // how many searches for the store in a row have met an endpoint that did not answer
  double taken_since;  // since when another program of this machine has had the port, and said nothing; 0: it has not
  double beat_at;      // when `keep` has something to do again
};

int job_store_check(const char *endpoints, bool insecure, Error *error);
void job_store_open(JobStore *store, const MemberOptions *options, StoreNetwork *network); // borrowed
int job_store_find(JobStore *store, Error *error);
int job_store_keep(JobStore *store, double now, Error *error);
double job_store_now(const JobStore *store); // what time it is in its network
bool job_store_begins(const JobStore *store); // this machine may make the state of a new job
bool job_store_keeps(const JobStore *store);  // of all machines this one has the store, or the lease in run.dir
void job_store_leave(JobStore *store);        // no connection, nothing served; what run.dir has may be taken over
void job_store_close(JobStore *store, int status); // that the job has ended with; -1: it continues

// For the kinds.
double job_store_patience(const JobStore *store); // of a call
extern const double job_store_reunion_seconds, job_store_beat_seconds;
extern const char job_store_epoch_key[];
int job_store_set(JobStore *store, const char *key, uint64_t version, const char *text, uint64_t lease, bool *done,
                  Error *error);
