// A store that one of the job's machines serves: the first endpoint that answers. Where none does, this machine serves
// it if one of the endpoints is its own; another than the first one only with the lease in run.dir, and only where this
// machine has joined the job, or the store was there last: its supervisor was killed and started again.
#include "base/fault.h"
#include "elastic/job_state.h"
#include "elastic/job_store.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(const char *endpoints, bool insecure, Error *error) {
  NetAddress at;
  int found = 1;
  for (int i = 0; found > 0; i++) {
    found = store_endpoint(endpoints, i, &at, error);
    if (found > 0) found = store_check_endpoint(endpoints, i, error);
    if (found > 0 && store_check_address(&at, insecure, error)) return PLAIT_BAD_INPUT;
  }
  return found;
}

static const double own_patience = 2; // with the store that this process has just begun to serve

// A stopped machine takes connections, and says nothing. Where one has done so, the next tries are short, or the new
// store at another endpoint would be found late; they grow, since a busy machine answers slowly.
static double greeting_patience(const JobStore *j) {
  double usual = j->epoch ? fmin(2, fmax(1, j->options->silence / 4)) : 2;
  return j->silent_tries && j->epoch ? fmin(2, ldexp(0.3, j->silent_tries - 1)) : usual;
}

static int read_epoch(JobStore *j, int *epoch, Error *error) {
  StoreValue now = {0};
  int code = j->store->get(j->store, job_store_epoch_key, &now, error);
  *epoch = !code && now.version ? atoi(now.data) : 0;
  store_value_free(&now);
  return code;
}

// How long the lease in run.dir must be without a change before another machine takes it. Where the hosts of all
// endpoints of this machine's job say that nothing listens there, its holder's process is gone, or behind a firewall
// that speaks for it: then it would still renew the lease, every job_store_beat_seconds. Before this machine has joined
// a job that says nothing: the holder may be of another one.
static double quiet_of_holder(const JobStore *j, bool refused) {
  return FAULT(refusals_say_nothing, refused && j->epoch, false) ? fmin(3 * job_store_beat_seconds, j->options->silence)
                                                     : j->options->silence;
}

// Refuses a store whose epoch is older than the newest one that this machine has seen.
static bool accept_store(JobStore *j, Error *error) {
  int epoch, code;
  char text[16];
  bool done;
  j->store->patience = job_store_patience(j);
  if (j->server) {
    epoch = j->folder.path ? j->folder.epoch : j->epoch + 1;
    snprintf(text, sizeof text, "%d", epoch);
    code = job_store_set(j, job_store_epoch_key, 0, text, 0, &done, error);
  } else code = read_epoch(j, &epoch, error);
  if (code || !epoch || epoch < j->epoch) return false;
  // Others may be on the way: they have lost the same store. A machine that is new to the job knows of no store before
  // this one, and would take all for lost that come later than itself.
  bool may_be_first = FAULT(newcomers_lose_the_others, true, j->epoch && epoch > j->epoch);
  double reunion = job_store_now(j) + job_store_reunion_seconds;
  if (may_be_first) j->reunion = reunion;
  if (j->server && epoch > 1) j->hold_until = reunion; // others may remember more
  j->epoch = epoch;
  return true;
}

static void name_endpoint(const JobStore *j, int i, char *text, size_t size) {
  const char *list = j->options->endpoints;
  for (; i > 0; i--) list += strcspn(list, ",") + 1;
  snprintf(text, size, "%.*s", (int)strcspn(list, ","), list);
}

// Whoever has not joined yet does not know that all machines have one run.dir, and may serve another endpoint than the
// first one only where the lease says that it did: else it would begin a job beside the one that the others begin.
static bool may_serve(const JobStore *j, int i) {
  char endpoint[80];
  if (i == 0 || !j->folder.path) return i == 0;
  name_endpoint(j, i, endpoint, sizeof endpoint);
  return j->epoch || FAULT(newcomers_wait_for_a_store, job_folder_was_at(&j->folder, endpoint), false);
}

// 1: this process serves it now; 0: not yet. *in_use: a program of this machine listens there.
static int try_to_serve(JobStore *j, int i, const NetAddress *at, bool refused, bool *in_use, Error *error) {
  const MemberOptions *o = j->options;
  StoreNetwork *n = j->network;
  char endpoint[80], job[sizeof j->job];
  int code = n->listen(n, at);
  *in_use = code == -EADDRINUSE;
  if (code) return 0;
  name_endpoint(j, i, endpoint, sizeof endpoint);
  memcpy(job, j->job, sizeof job);
  if (!*job) job_make_name(job, sizeof job);
  int claimed = job_folder_claim(&j->folder, job, endpoint, o->endpoints, quiet_of_holder(j, refused), job_store_now(j),
                                 error);
  if (claimed <= 0) return claimed;
  Error unused = {0};
  if (!n->serve(n, at, o->id, o->insecure, &j->server, &unused)) return 1;
  job_folder_release(&j->folder, -1);
  return 0;
}

// Another program of this machine listens at the first endpoint, and has not answered. It may be a supervisor of this
// job that starts up or is busy, so it is refused only after --silence, and not before 5 s. Where more endpoints are
// named, another machine may take over from a supervisor that is stopped, which takes longer.
static int see_taken(JobStore *j, double began, double now, bool taken, Error *error) {
  const MemberOptions *o = j->options;
  double silence = fmax(5, o->silence) * (strchr(o->endpoints, ',') ? 3 : 1);
  if (!taken || j->epoch) {
    j->taken_since = 0;
    return 0;
  }
  if (j->taken_since && FAULT(taken_ports_are_waited_for, now - j->taken_since >= silence, false))
    return error_set(error, PLAIT_BAD_INPUT,
                     "--rdzv: %.*s is taken by a program that does not answer as plait launch; choose another port",
                     (int)strcspn(o->endpoints, ","), o->endpoints);
  if (!j->taken_since) j->taken_since = began;
  return 0;
}

static int find(JobStore *j, Error *error) {
  const MemberOptions *o = j->options;
  NetAddress at;
  int found = 0;
  bool all_refused = true, is_silent = false, first_is_silent = false, taken = false;
  StoreNetwork *n = j->network;
  double began = n->now(n);
  for (int i = 0; (found = store_endpoint(o->endpoints, i, &at, error)); i++) {
    Error why = {0};
    bool refused = false;
    if (found < 0 && FAULT(lost_names_end_the_job, j->epoch, 0)) { // with a machine its name may go
      all_refused = false;
      continue;
    }
    if (found < 0 || (found = store_check_address(&at, o->insecure, error))) return found;
    found = n->connect(n, &at, o->id, greeting_patience(j), &j->store, &refused, &why);
    all_refused = all_refused && refused;
    is_silent = is_silent || (!found && !refused);
    first_is_silent = first_is_silent || (i == 0 && !found && !refused);
    if (found < 0 && !j->epoch) return *error = why, found;
    if (found <= 0) continue;
    if (accept_store(j, &why)) return name_endpoint(j, i, j->at, sizeof j->at), j->silent_tries = 0, 1;
    job_store_leave(j);
  }
  j->silent_tries = is_silent ? j->silent_tries + (j->silent_tries < 10) : 0;
  bool quiet = n->now(n) < j->quiet_until;
  for (int i = 0; !quiet && (found = store_endpoint(o->endpoints, i, &at, error)); i++) {
    Error unused = {0};
    if (found < 0 || !may_serve(j, i)) continue;
    bool in_use = false;
    found = try_to_serve(j, i, &at, all_refused, &in_use, error);
    taken = taken || (i == 0 && in_use);
    if (found < 0) return found;
    if (!found) continue;
    if (n->connect(n, &at, o->id, own_patience, &j->store, NULL, &unused) > 0 && accept_store(j, &unused))
      return name_endpoint(j, i, j->at, sizeof j->at), 1;
    job_store_leave(j);
  }
  return see_taken(j, began, n->now(n), first_is_silent && taken, error);
}

static int keep(JobStore *j, double now, Error *error) {
  if (now < j->beat_at) return 1;
  j->beat_at = now + job_store_beat_seconds;
  if (j->server) {
    if (*j->job && strcmp(j->job, j->folder.job)) // the others have reminded a new store of their job
      memcpy(j->folder.job, j->job, sizeof j->job);
    return job_folder_renew(&j->folder);
  }
  if (j->store) job_folder_watch(&j->folder, now);
  return 1;
}

const JobStoreKind job_store_served = {
    .check = check, .find = find, .keep = keep, .server = "plait launch", .lost_with_it = 1};
