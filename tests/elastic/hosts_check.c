// How tests look at the hosts and wait for them; the folder that they share.
#include "base/error.h"
#include "base/file.h"
#include "hosts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

char hosts_folder[200];

void hosts_make_folder(const char *lease) {
  // Leases are synced to the disk twice a second of the test's time, so where there is memory for files it is that.
  const char *tmp = !access("/dev/shm", W_OK) ? "/dev/shm" : getenv("TMPDIR");
  snprintf(hosts_folder, sizeof hosts_folder, "%s/test_hosts_XXXXXX", tmp ? tmp : "/tmp");
  assert_non_null(mkdtemp(hosts_folder));
  if (!lease) return;
  char *path = xformat("%s/rendezvous-1", hosts_folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "first 7 1 elsewhere/pid:[1]/boot %s\n", lease);
  fclose(file);
  free(path);
}

void hosts_remove_folder(void) {
  Error error = {0};
  assert_int_equal(folder_remove(hosts_folder, &error), PLAIT_OK);
  *hosts_folder = 0;
}

void hosts_remove_what_is_left(void) { // by a test that has failed
  Error error = {0};
  if (*hosts_folder) folder_remove(hosts_folder, &error);
}

static void show(const Hosts *h) {
  for (int i = 0; i < HOSTS; i++) {
    const Host *t = &h->host[i];
    const Life *l = t->life;
    printf("host %d:%s%s half %d, %s, ", i, t->cut ? " cut" : "", t->stopped ? " stopped" : "", t->half,
           t->table ? "store" : "no store");
    if (l)
      printf("%s round %d, code %d %s", l->working ? "works in" : "last in", l->begun, l->code, l->error.message);
    if (l && l->state)
      printf("; sees round %d phase %d with %d machines, %d restarts, %s", l->state->round, (int)l->state->phase,
             l->state->count, l->state->restarts, l->state->cause);
    printf("\n");
  }
}

void hosts_pass_a_little(Hosts *h, double until, const char *what) {
  if (h->test.now > until) {
    show(h);
    fail_msg("in time it is not so that %s", what);
  }
  hosts_pass(h, 0.05);
}

bool hosts_is_in(const Hosts *h, int host) { return h->host[host].life && h->host[host].life->here; }

bool hosts_work(const Hosts *h, int machines) {
  int round = -1, n = 0;
  for (int i = 0; i < HOSTS; i++) {
    const Life *l = h->host[i].life;
    if (!l || !l->working || !l->state || l->state->phase != JOB_RUNS || l->state->round != l->begun) continue;
    if (n && l->begun != round) return false;
    round = l->begun;
    n++;
  }
  return n == machines;
}

int hosts_round(const Hosts *h) {
  int round = -1;
  for (int i = 0; i < HOSTS; i++)
    if (h->host[i].life && h->host[i].life->begun > round) round = h->host[i].life->begun;
  return round;
}

bool hosts_only_server(const Hosts *h, int host) {
  for (int i = 0; i < HOSTS; i++)
    if ((h->host[i].table != NULL) != (i == host)) return false;
  return true;
}

