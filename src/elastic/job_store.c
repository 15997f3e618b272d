// The calls that each kind of store answers.
#include "elastic/job_store.h"
#include "elastic/store_etcd_parse.h"
#include <math.h>
#include <string.h>

const double job_store_reunion_seconds = 3, job_store_beat_seconds = 0.5;
const char job_store_epoch_key[] = "epoch";

static const JobStoreKind *kind_of(const char *endpoints) {
  if (!endpoints) return &job_store_alone;
  return etcd_is_url(endpoints) ? &job_store_etcd : &job_store_served;
}

int job_store_check(const char *endpoints, bool insecure, Error *error) {
  return kind_of(endpoints)->check(endpoints, insecure, error);
}

void job_store_open(JobStore *j, const MemberOptions *options, StoreNetwork *network) {
  *j = (JobStore){.kind = kind_of(options->endpoints), .options = options, .network = network};
  if (options->endpoints) etcd_url_describe(options->endpoints, j->where, sizeof j->where);
  job_folder_open(&j->folder, options->folder);
}

int job_store_find(JobStore *j, Error *error) {
  int found = j->kind->find(j, error);
  j->reached |= found > 0;
  return found;
}

int job_store_keep(JobStore *j, double now, Error *error) { return j->kind->keep(j, now, error); }
double job_store_now(const JobStore *j) { return j->network->now(j->network); }
bool job_store_begins(const JobStore *j) { return j->kind->anybody_begins || j->server; }
bool job_store_keeps(const JobStore *j) { return j->server || j->folder.fd >= 0 || j->kind->at_once; }

static void disconnect(JobStore *j) {
  if (j->store) j->store->close(j->store);
  j->store = NULL;
  j->lease = 0;
}

static void stop_serving(JobStore *j, int status) {
  j->network->stop(j->network, j->server);
  j->server = NULL;
  job_folder_release(&j->folder, status);
}

void job_store_leave(JobStore *j) {
  disconnect(j);
  if (j->server) stop_serving(j, -1);
}

void job_store_close(JobStore *j, int status) {
  Error ignored = {0};
  if (j->store && j->lease) j->store->lease(j->store, &j->lease, 0, &ignored);
  disconnect(j);
  stop_serving(j, status);
}

double job_store_patience(const JobStore *j) { return fmax(1, j->options->silence / 2); }

int job_store_set(JobStore *j, const char *key, uint64_t version, const char *text, uint64_t lease, bool *done,
                  Error *error) {
  StoreValue now = {0};
  int code = j->store->compare_and_set(j->store, key, version, text, strlen(text), lease, done, &now, error);
  store_value_free(&now);
  return code;
}
