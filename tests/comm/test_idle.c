// tier 1; threads
// What a rank's thread does while it waits: it helps the others' teams, in every kind of wait, and goes back when that
// is over or the world has failed.
#include "base/team.h"
#include "comm/comm.h"
#include "ranks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, UNITS = 200, MOST_SLOTS = 8 };

typedef struct Unit {
  atomic_int runs, slot_busy[MOST_SLOTS], doubled;
  int written[UNITS];
  pthread_t owner;
  time_t end;
  atomic_int helped;
} Unit;

static void unit_init(Unit *u) {
  memset(u, 0, sizeof *u);
  u->owner = pthread_self();
  u->end = time(NULL) + 60;
}

static void unit(void *argument, int slot, int64_t i) {
  Unit *u = argument;
  int mine = pthread_equal(pthread_self(), u->owner);
  if (!mine) atomic_fetch_add(&u->helped, 1);
  while (mine && !atomic_load(&u->helped) && time(NULL) < u->end)
    sched_yield(); // the owner's units wait until somebody helps
  if (atomic_fetch_add(&u->slot_busy[slot], 1)) atomic_store(&u->doubled, 1);
  u->written[i]++; // plain: the owner reads it after the job, and TSan would tell
  for (volatile int spin = 50000; spin > 0;) spin = spin - 1; // so that others come while it works
  atomic_fetch_sub(&u->slot_busy[slot], 1);
  atomic_fetch_add(&u->runs, 1);
}

static int lend(void *team) { return team_help(team); }

typedef enum Wait { RECEIVE, SENT, RENDEZVOUS, COLLECTIVE, STREAM, WAITS } Wait;

// The last rank computes and is then what the others wait for, each in its own way.
static int wait_for_last(PlaitComm *comm, PlaitStream *stream, Wait wait, int rank, int last) {
  int x = rank, y = 0, code = 0;
  PlaitBuffer buffer = {&x, &y, 1};
  PlaitEvent event = {0}, sent[RANKS] = {{0}};
  switch (wait) {
  case RECEIVE:
    for (int r = 0; r < last && rank == last && !code; r++)
      code = plait_send(comm, &buffer, 1, PLAIT_INT32, r, NULL, &sent[r]);
    for (int r = 0; r < last && rank == last && !code; r++) code = plait_event_wait(sent[r]);
    if (rank < last) code = plait_recv(comm, &buffer, 1, PLAIT_INT32, last, NULL, NULL);
    break;
  case SENT:
  case RENDEZVOUS:
    for (int r = 0; r < last && rank == last && !code; r++)
      code = plait_recv(comm, &buffer, 1, PLAIT_INT32, r, NULL, NULL);
    if (rank < last) code = plait_send(comm, &buffer, 1, PLAIT_INT32, last, NULL, wait == SENT ? &event : NULL);
    break;
  case COLLECTIVE: code = plait_all_reduce(comm, &buffer, 1, PLAIT_INT32, PLAIT_SUM, NULL, NULL); break;
  default: code = plait_all_reduce(comm, &buffer, 1, PLAIT_INT32, PLAIT_SUM, stream, &event); break;
  }
  return code < 0 ? code : plait_event_wait(event) < 0 ? -1 : 0;
}

static int every_wait(Ranks *ranks, PlaitComm *world, int rank) {
  static Unit units[WAITS];
  int last = ranks->n - 1, all[RANKS] = {0, 1, 2};
  Team *team;
  CHECK(!team_create_in(ranks->context, 1, &team, NULL));
  comm_set_idle(world, (Idle){lend, team});
  PlaitComm *comm;
  PlaitStream *stream;
  int code = plait_comm_create(world, all, ranks->n, &comm, NULL); // made from it: has its idle
  if (!code) code = plait_stream_create(comm, &stream, NULL);
  for (int w = 0; w < WAITS && !code; w++) {
    Unit *u = &units[w];
    if (rank == last) {
      unit_init(u);
      team_each(team, UNITS, unit, u);
      for (int i = 0; i < UNITS; i++) EXPECT(u->written[i] == 1);
      EXPECT(u->runs == UNITS && !u->doubled);
      if (!u->helped) return ranks_fail(ranks, rank, "nobody helped in wait %d", w);
    }
    code = wait_for_last(comm, stream, (Wait)w, rank, last);
  }
  plait_stream_destroy(stream);
  plait_comm_destroy(comm);
  team_destroy(team);
  comm_set_idle(world, (Idle){0});
  return code;
}

static void test_waits(void **state) {
  Ranks ranks;
  for (int helpers = 1; helpers <= 2; helpers++) {
    TeamGroup *group = team_group_create(RANKS, helpers);
    assert_int_equal(ranks_run(&ranks, RANKS, every_wait, group, 0), 0);
    team_group_destroy(group);
  }
}

// Rank 0 fails while rank 1 works and rank 2, which waits, helps it; all return with the sentence, and every unit is
// done.
static int failure(Ranks *ranks, PlaitComm *world, int rank) {
  static Unit u;
  Team *team;
  CHECK(!team_create_in(ranks->context, 1, &team, NULL));
  comm_set_idle(world, (Idle){lend, team});
  if (rank == 1) unit_init(&u);
  int x = 0, code = plait_barrier(world, NULL, NULL);
  if (rank == 0) {
    AWAIT(atomic_load(&u.helped));
    plait_world_abort(ranks->world, "the disk is full");
  } else if (rank == 1) {
    team_each(team, UNITS, unit, &u);
    EXPECT(u.runs == UNITS && u.helped);
  }
  if (!code) code = plait_recv(world, &(PlaitBuffer){NULL, &x, 1}, 1, PLAIT_INT32, (rank + 1) % ranks->n, NULL, NULL);
  comm_set_idle(world, (Idle){0});
  team_destroy(team);
  return code;
}

static void test_failure(void **state) {
  Ranks ranks;
  TeamGroup *group = team_group_create(RANKS, 1);
  assert_int_equal(ranks_run(&ranks, RANKS, failure, group, 1), RANKS);
  for (int r = 0; r < RANKS; r++) assert_string_equal(ranks.messages[r], "the disk is full");
  team_group_destroy(group);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits), cmocka_unit_test(test_failure)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
