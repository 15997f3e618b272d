// A store that etcd keeps: no machine serves it, and it does not move. The lease in run.dir shows here, too, that it is
// one folder for all machines and this job's: one machine holds the lease, and tells its epoch in the store as long as
// it is there.
#include "elastic/job_store.h"
#include "elastic/etcd_http.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(const char *endpoints, bool insecure, Error *error) {
  EtcdUrl url;
  NetAddress at;
  int code = etcd_url_parse(endpoints, &url, error);
  if (!code) code = etcd_http_check(error);
  for (int i = 0; !code && i < url.count && !url.tls && !insecure; i++) {
    code = net_resolve(url.endpoint[i].host, url.endpoint[i].port, &at, error);
    if (code) error_prefix(error, "--rdzv");
    else if (!net_is_loopback(&at))
      code = error_set(error, PLAIT_BAD_INPUT,
                       "--rdzv: what goes to etcd at %.100s would be neither encrypted nor authenticated; say etcds:// "
                       "if it talks TLS, or in a network that you trust --insecure",
                       url.endpoint[i].host);
  }
  explicit_bzero(&url, sizeof url);
  return code;
}

static int find(JobStore *j, Error *error) {
  int code = store_etcd_open(j->options->endpoints, j->options->id, job_store_patience(j), &j->store, error);
  if (code) return code == PLAIT_FAILED ? 0 : code;
  j->store->patience = job_store_patience(j);
  snprintf(j->at, sizeof j->at, "%.79s", j->where);
  if (j->reached) j->reunion = job_store_now(j) + job_store_reunion_seconds; // others may have been cut off, too
  return 1;
}

// Of the job, in the file of the lease, for those who want the folder for another one.
static void name_endpoint(const JobStore *j, char text[80]) {
  snprintf(text, 80, "%.50s/%.28s", j->where, j->options->id);
  for (char *c = text; *c; c++)
    if (!isgraph((unsigned char)*c)) *c = '_';
}

// 1: this machine holds the lease; 0: not yet.
static int claim(JobStore *j, double now, Error *error) {
  char endpoint[80];
  name_endpoint(j, endpoint);
  return job_folder_claim(&j->folder, j->job, endpoint, NULL, j->options->silence, now, error);
}

// Tells the epoch of the lease that this machine holds. 1; 0: the store is to be left.
static int tell(JobStore *j, uint64_t version, Error *error) {
  char text[16];
  bool done;
  snprintf(text, sizeof text, "%d", j->folder.epoch);
  if (job_store_set(j, job_store_epoch_key, version, text, j->lease, &done, error)) return 0;
  if (done) j->epoch = j->folder.epoch, j->told = j->lease;
  else if (!version) job_folder_release(&j->folder, -1); // another machine was here first
  return 1;
}

static int keep(JobStore *j, double time, Error *error) {
  JobFolder *f = &j->folder;
  StoreValue now;
  if (!f->path || !j->store || !j->lease || !*j->job || time < j->beat_at) return 1;
  j->beat_at = time + job_store_beat_seconds;
  if (f->fd >= 0 && !job_folder_renew(f)) job_folder_release(f, -1); // another machine holds it now
  if (j->store->get(j->store, job_store_epoch_key, &now, error)) return 0;
  uint64_t version = now.version;
  int epoch = version ? atoi(now.data) : 0;
  store_value_free(&now);
  if (epoch) j->epoch = epoch;
  if (f->fd < 0 && epoch) return job_folder_watch(f, job_store_now(j)), 1;
  if (f->fd < 0) {
    int claimed = claim(j, job_store_now(j), error);
    if (claimed <= 0) return claimed < 0 ? claimed : 1;
  }
  bool told = epoch == f->epoch && j->told == j->lease; // else the key would go with a lease of an earlier connection
  return told ? 1 : tell(j, version, error);
}

const JobStoreKind job_store_etcd = {.check = check, .find = find, .keep = keep, .server = "etcd",
                                     .anybody_begins = true};
