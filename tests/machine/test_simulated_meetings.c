// Transfers of a simulated step that use one link at once: for how long they do, and that they share it.
#include "op/op.h"
#include "machine/flows.h"
#include "machine/simulate.h"
#include "program/cost.h"
#include "program/traffic.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "simulated.h"

// Every transfer of one rank, whose collectives and messages all cross one level.
typedef struct Sent { const Program *program; int rank, count; double begin[4096], end[4096]; } Sent;

static void note_sent(void *context, int rank, const char *name, const Node *instruction, const Action *action,
                      double begin, double end, int in_flight) {
  Sent *s = context;
  const Graph *g = s->program->graph;
  int sent = in_flight || (action && action->kind == ACTION_SEND);
  for (int i = 0; i < g->node.count && !sent; i++)
    sent = !strcmp(g->node.data[i].name, name) && op_def(g->node.data[i].op)->communicates;
  if (rank != s->rank || !sent) return;
  assert_true(s->count < 4096);
  s->begin[s->count] = begin, s->end[s->count++] = end;
}

// Seconds in which more than one is under way: by all moments at which something begins or ends.
static double met_by_moments(const Sent *s) {
  double met = 0;
  for (int i = 0; i < 2 * s->count; i++) {
    double from = i < s->count ? s->begin[i] : s->end[i - s->count], to = INFINITY;
    int active = 0, again = 0;
    for (int k = 0; k < 2 * s->count; k++) {
      double at = k < s->count ? s->begin[k] : s->end[k - s->count];
      if (at > from && at < to) to = at;
      again |= at == from && k < i;
    }
    for (int k = 0; k < s->count; k++) active += s->begin[k] <= from && s->end[k] > from;
    if (!again && active > 1) met += (active - 1) * (to - from);
  }
  return met;
}

// For how long transfers have a link at once.
static void transfers_that_meet_are_counted(void **state) {
  Cluster cluster = slow_links();
  Case c = compiled_by("mesh.pp=4 mesh.dp=2 parallel.zero=3 parallel.pipeline=interleaved parallel.stages_per_rank=2"),
       d = compiled_by("mesh.dp=4 parallel.overlap=false");
  Sent sent = {.program = job_train(c.job)->program[0], .rank = 0};
  SimulateOptions options = {.cluster = &cluster, .see = note_sent, .context = &sent};
  Simulation *s;
  Error error = {0};
  assert_int_equal(simulate(job_train(c.job)->program, &options, &s, &error), 0);
  assert_true(s->rank[0].met > 1e-4 * s->step);
  assert_near(s->rank[0].met, met_by_moments(&sent), 1e-6, "transfers of rank 0 that meet");
  simulation_free(s);
  s = simulated(&d, &cluster); // one after the other
  assert_true(s->rank[0].met == 0);
  simulation_free(s);
  release(&c), release(&d);
}

// Every transfer of a step with its links and what it takes by itself, as flows (machine/flows.h).
typedef struct Moved {
  Program *const *programs;
  const Cluster *cluster;
  Costs *costs[8];
  int node[4096], link[4096][16], count;
  Flow flow[4096];
  double end[4096]; // by the simulation
} Moved;

static const Cost *cost_of(const Moved *m, int rank, int node) {
  const Program *p = m->programs[rank];
  for (int a = 0; a < p->actions.count; a++) {
    const Body *body;
    const Cost *cost = costs_body(m->costs[rank], &p->actions.data[a], &body);
    for (int i = 0; cost && i < body->count; i++)
      if (body->instruction[i].node == node) return &cost[i];
  }
  fail_msg("node %d has no cost", node);
  return NULL;
}

static void note_moved(void *context, int rank, const char *name, const Node *instruction, const Action *action,
                       double begin, double end, int in_flight) {
  Moved *m = context;
  const Program *p = m->programs[rank];
  int node = -1, message = in_flight && action && action->kind == ACTION_SEND, at = m->count;
  for (int i = 0; i < p->graph->node.count && !message && node < 0; i++)
    if (!strcmp(p->graph->node.data[i].name, name) && op_def(p->graph->node.data[i].op)->communicates) node = i;
  if (!message && node < 0) return;
  assert_true(at < 4096);
  const Cost *cost = message ? NULL : cost_of(m, rank, node);
  for (int i = 0; i < m->count && cost && cost->crossing; i++) // another rank has told of it
    if (m->node[i] == node && m->flow[i].start == begin) at = i;
  Flow *f = &m->flow[at];
  if (at == m->count) {
    MessagesOnLinks on = {0};
    int to = message ? stage_coordinate(action->peer, p->schedule->map) : 0;
    if (message) on = machine_messages(m->cluster, &p->mesh, rank, to, -1);
    *f = (Flow){.start = begin, .link = m->link[at]};
    f->bytes = message ? transfer_seconds(m->cluster, on.level, on.sharing, transfer_bytes(p, action))
                       : cost->seconds;
    m->node[at] = node, m->end[at] = end;
    m->link[at][f->links++] = 2 * rank;
    m->link[at][f->links++] = 2 * (message ? to : rank) + 1;
    m->count++;
    return;
  }
  m->link[at][f->links++] = 2 * rank;
  m->link[at][f->links++] = 2 * rank + 1;
  assert_true(f->links <= 16 && end == m->end[at]);
}

// From when they begin follows when they end: what machine/flows.c says of them all at once. Kernels and waits lie
// between, and so one that ended otherwise would move others.
static void transfers_that_meet_share_their_links(void **state) {
  static Moved moved;
  static const char *const keys[] = {
      "mesh.pp=4 mesh.dp=2 parallel.zero=3 parallel.pipeline=interleaved parallel.stages_per_rank=2",
      "mesh.pp=2 mesh.dp=4 parallel.zero=2 parallel.pipeline=1f1b",
      "mesh.pp=2 mesh.dp=2 mesh.tp=2 parallel.zero=1 parallel.pipeline=zb-h1"};
  Cluster cluster = slow_links();
  cluster.base[0] = cluster.base[1] = cluster.level[0].latency = 0; // what a flow moves is all that it takes
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    Case c = compiled_by(keys[k]);
    int ranks = job_pipeline_ranks(c.job), later = 0;
    double capacity[16];
    Simulation *s;
    Error error = {0};
    moved.programs = job_train(c.job)->program;
    moved.cluster = &cluster;
    moved.count = 0;
    for (int r = 0; r < ranks; r++)
      assert_int_equal(costs_create(moved.programs[r], &cluster, -1, &moved.costs[r], &error), 0);
    for (int l = 0; l < 16; l++) capacity[l] = 1;
    SimulateOptions options = {.cluster = &cluster, .see = note_moved, .context = &moved};
    assert_int_equal(simulate(moved.programs, &options, &s, &error), 0);
    assert_true(s->shared);
    flows_run(moved.flow, moved.count, capacity, 2 * ranks);
    for (int i = 0; i < moved.count; i++) {
      later += moved.end[i] > moved.flow[i].start + moved.flow[i].bytes * (1 + 1e-9);
      assert_near(moved.end[i], moved.flow[i].end, 1e-9, keys[k]);
    }
    assert_true(moved.count > 40 && later > 4);
    for (int r = 0; r < ranks; r++) costs_free(moved.costs[r]);
    simulation_free(s);
    release(&c);
  }
}

// Two stages in a node with one port for all: what both send out of it at once shares it, as it shares a port of two
// devices; with a port for each device nobody is met. All ranks by themselves take as long.
static void messages_of_a_node_share_its_port(void **state) {
  static const char *const keys[] = {"mesh.pp=8 parallel.pipeline=1f1b",
                                     "mesh.pp=4 mesh.dp=2 parallel.pipeline=interleaved parallel.stages_per_rank=2",
                                     "mesh.pp=8 parallel.pipeline=zb-h1"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    int data = strstr(keys[k], "dp=2") ? 2 : 1; // ranks of a stage, whose messages go out at once
    Cluster one = machines(0), each;
    one.level[0].count = 2 * data;
    one.level[1].ports = 1, one.level[1].bandwidth /= 20;
    each = one;
    each.level[1].ports = 2 * data, each.level[1].bandwidth /= data; // a message alone has as much
    Case c = compiled_by(keys[k]);
    Simulation *s = simulated(&c, &one), *all;
    SimulateOptions options = {.cluster = &one, .all_ranks = 1};
    Error error = {0};
    double shared = s->step, alone = seconds(&c, &each);
    assert_int_equal(simulate(job_train(c.job)->program, &options, &all, &error), 0);
    printf("%s: %.4g ms, with ports of their own %.4g ms\n", keys[k], 1e3 * shared, 1e3 * alone);
    assert_true(shared > 1.02 * alone);
    assert_near(all->step, shared, 1e-9, "all ranks");
    simulation_free(s), simulation_free(all);
    release(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(transfers_that_meet_are_counted),
                                     cmocka_unit_test(transfers_that_meet_share_their_links),
                                     cmocka_unit_test(messages_of_a_node_share_its_port)};
  cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, make_model, remove_folder);
}
