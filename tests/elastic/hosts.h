// Hosts of a job in this process, for tests: a store, a machine of the job, or both on each. Time is simulated: each
// machine has its own, and a wait only adds to it. Everything runs on one thread, each machine on a stack of its own;
// the machine whose time is earliest runs next. So nothing waits for a clock, and a test runs the same way each time.
// Host i is 127.0.0.1:(i + 1).
#pragma once
#include "elastic/member.h"
#include "elastic/store_table.h"
#include <ucontext.h>

enum { HOSTS = 4, HOSTS_ROUNDS = 1000 };

// A start of a supervisor.
typedef struct Life {
  StoreNetwork network;
  struct Host *host;
  struct Life *next;
  ucontext_t context;
  void *stack;
  double now;
  bool runs, killed;    // runs: it has not come to its end
  MemberOptions options;
  Member *member;
  bool working;         // workers of round `begun` run
  int begun;
  JobFailure fails;     // of a worker of this round; weight 0: none has failed
  double cut_off_at;    // since when it has worked without a store; 0: it has not
  JobState *state;      // as it saw it last; NULL: it has not
  bool here;            // it is in the state
  int code;             // it has given up: why
  Error error;
} Life;

typedef struct Host {
  struct Hosts *hosts;
  int number, half;     // hosts of the same half reach each other
  bool cut, stopped;    // nothing comes or goes; its processes stand still
  bool foreign;         // another program listens at its port, and says nothing
  StoreTable *table;    // that is served here; NULL: none is
  int served;           // how many have been
  Life *life;           // NULL: no machine has started here, or it was killed
} Host;

typedef struct Hosts {
  Host host[HOSTS];
  Life test, *lives;    // test: has a time, and the network of the last host
  Life *turn;           // whose it is
  struct Connection *connections;
  char *round[HOSTS_ROUNDS], job[20]; // the machines of each round, and the job, as they were seen first
  bool over;
} Hosts;

void hosts_begin(Hosts *hosts);
void hosts_end(Hosts *hosts);
void hosts_pass(Hosts *hosts, double seconds); // time passes
// A machine starts on the host. The options are copied, not the texts in them.
Life *hosts_start(Hosts *hosts, int host, const MemberOptions *options);
MemberOptions hosts_options(const char *endpoints, const char *folder, int least);
void hosts_kill(Hosts *hosts, int host); // the machine and its store
void hosts_stop(Hosts *hosts, int host, bool stopped);
// A worker of the machine fails; the others of the round are ended then. weight, blames: as in JobFailure.
void hosts_fail(Hosts *hosts, int host, int weight, bool blames);
void hosts_heal(Hosts *hosts); // no host is cut, all are in one half
// A store without a machine at the host's port. hosts_end_store: it has gone.
void hosts_serve(Hosts *hosts, int host, const char *epoch, const char *state);
void hosts_end_store(Hosts *hosts, int host);
// A value in the store that the host serves. Borrowed until time passes; NULL: there is none.
const char *hosts_value(Hosts *hosts, int host, const char *key);
int hosts_server(const Hosts *hosts); // the first host that has a store; -1: none has

// Looking and waiting -----------------------------------------------------------------------------------------

// run.dir of all hosts, for one test at a time. lease: what its file says of the store's endpoint; NULL: there is none.
extern char hosts_folder[200];
void hosts_make_folder(const char *lease);
void hosts_remove_folder(void);
void hosts_remove_what_is_left(void); // by a test that has failed

bool hosts_is_in(const Hosts *hosts, int host);
bool hosts_work(const Hosts *hosts, int machines); // that number of machines works, in one round
int hosts_round(const Hosts *hosts);               // the last one that began
bool hosts_only_server(const Hosts *hosts, int host);
void hosts_pass_a_little(Hosts *hosts, double until, const char *what);
// Time passes until it is so, at most that number of seconds.
#define UNTIL(hosts, seconds, what) \
  for (double until = (hosts)->test.now + (seconds); !(what);) hosts_pass_a_little(hosts, until, #what)
