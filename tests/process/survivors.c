// Ranks of net that fail, and what the others do then: survivors HOW VICTIM [SILENCE]. The victim kills or stops itself
// while all are in communication of the kind HOW. Every other rank must get an error that names it, within 4 s (its
// silence would be found after 5 s; where it is stopped: SILENCE + 3 s), leave that world, make a world of the ranks
// that are left, and add up numbers there. The victim that is woken must find out that it is no longer wanted. See
// net_failures.sh.
#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "comm/launcher.h"
#include "comm/net.h"
#include "../tier.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 1 << 20 };
static float x[LARGE], y[LARGE];

typedef struct Case {
  PlaitComm *comm;
  const char *how;
  int rank, n, victim, signal;
} Case;

// Whoever is to die says when, in the clock that all processes of the machine share.
static void die(const Case *c) {
  FILE *file = fopen("when", "w");
  CHECK(file && fprintf(file, "%.6f", clock_seconds()) > 0 && !fclose(file));
  raise(c->signal);
}

static double when(void) {
  double time = 0;
  FILE *file = fopen("when", "r");
  CHECK(file && fscanf(file, "%lf", &time) == 1);
  fclose(file);
  return time;
}

// Sums until one fails; the victim dies before its fourth, with the others' data on its way.
static int collectives(const Case *c, PlaitStream *stream) {
  for (int i = 0;; i++) {
    PlaitEvent done;
    if (c->rank == c->victim && i == 3) usleep(100000), die(c);
    int code = plait_all_reduce(c->comm, &(PlaitBuffer){x, y, LARGE}, 1, PLAIT_FP32, PLAIT_SUM, stream, &done);
    if (!code) code = plait_event_wait(done);
    if (code) return code;
  }
}

// Each waits for the one before it, so that only one waits for the victim.
static int chain(const Case *c) {
  int before = (c->rank + c->n - 1) % c->n;
  if (c->rank == c->victim) usleep(100000), die(c);
  return plait_recv(c->comm, &(PlaitBuffer){NULL, y, 5}, 1, PLAIT_FP32, before, NULL, NULL);
}

// A large message that the victim never receives.
static int send(const Case *c) {
  PlaitEvent sent;
  if (c->rank == c->victim) usleep(100000), die(c);
  int code = plait_send(c->comm, &(PlaitBuffer){x, NULL, LARGE}, 1, PLAIT_FP32, c->victim, NULL, &sent);
  return code ? code : plait_event_wait(sent);
}

static int create(const Case *c) {
  PlaitComm *made;
  int list[64];
  Error error = {0};
  for (int r = 0; r < c->n; r++) list[r] = r;
  if (c->rank == c->victim) usleep(100000), die(c);
  int code = plait_comm_create(c->comm, list, c->n, &made, &error);
  CHECK(code && *error.message);
  return code;
}

// All compute when it happens; the next call fails.
static int computing(const Case *c) {
  if (c->rank == c->victim) usleep(100000), die(c);
  sleep(3);
  return plait_barrier(c->comm, NULL, NULL);
}

static int run(const Case *c) {
  PlaitStream *stream;
  int code = plait_barrier(c->comm, NULL, NULL);
  if (code) return code; // the victim was quicker
  if (!strcmp(c->how, "sum")) return collectives(c, NULL);
  if (!strcmp(c->how, "chain")) return chain(c);
  if (!strcmp(c->how, "send")) return send(c);
  if (!strcmp(c->how, "create")) return create(c);
  if (!strcmp(c->how, "computing")) return computing(c);
  CHECK(!strcmp(c->how, "stream") && !plait_stream_create(c->comm, &stream, NULL));
  code = collectives(c, stream);
  plait_stream_destroy(stream);
  return code;
}

// The world of those that are left. Memory of calls that failed is used again: nobody may still write to it.
static void go_on(const Case *c) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  int rank = c->rank - (c->rank > c->victim), n = c->n - 1;
  for (int i = 0; i < LARGE; i++) y[i] = -1;
  CHECK(!plait_world_net_create(rank, n, NULL, atoi(getenv("MASTER_PORT")) + 1, "the survivors", &world, &error), "%s",
        error.message);
  CHECK(plait_world_rank(world) == rank && plait_world_size(world) == n);
  CHECK(!plait_comm_world(world, rank, &comm, &error));
  x[0] = (float)(1 + rank);
  CHECK(!plait_all_reduce(comm, &(PlaitBuffer){x, x, 1}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL));
  CHECK(x[0] == (float)(n * (n + 1) / 2) && plait_comm_failed_rank(comm) == -1 && !*plait_comm_error(comm));
  for (int i = 0; i < LARGE; i++) CHECK(y[i] == -1, "element %d was written after the failure", i);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
}

int main(int argc, char **argv) {
  Error error = {0};
  PlaitWorld *world;
  CHECK(argc > 2);
  double silence = argc > 3 ? atof(argv[3]) : 0;
  Case c = {.how = argv[1], .victim = atoi(argv[2]), .signal = silence > 0 ? SIGSTOP : SIGKILL};
  CHECK(!world_launched_create(WORLD_NET, silence, NET_WIRE_AUTO, &world, &error), "%s", error.message);
  c.rank = plait_world_rank(world);
  c.n = plait_world_size(world);
  CHECK(!plait_comm_world(world, c.rank, &c.comm, &error));
  int code = run(&c);
  double seconds = clock_seconds() - when();
  int failed = plait_comm_failed_rank(c.comm);
  printf("rank %d after %.3f s: %d, rank %d: %s\n", c.rank, seconds, code, failed, plait_comm_error(c.comm));
  fflush(stdout);
  CHECK(code < 0 && failed == c.victim);
  char words[64];
  snprintf(words, sizeof words, "rank %d on ", c.victim);
  CHECK(!strncmp(plait_comm_error(c.comm), words, strlen(words)) && strstr(plait_comm_error(c.comm), "; "));
  double limit = silence + test_seconds(10);
  if (c.rank != c.victim && strcmp(c.how, "computing")) CHECK(seconds < limit, "it took %.3f s", seconds);
  CHECK(plait_barrier(c.comm, NULL, NULL) == code, "later calls return the same error");
  plait_comm_destroy(c.comm);
  plait_world_destroy(world);
  if (c.rank != c.victim) go_on(&c);
  printf("rank %d: done\n", c.rank);
  return 0;
}
