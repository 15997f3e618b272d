// tier 1 2; rooms program schedule
// Simulated steps: what a replay says where communication is free, and how they answer to faster and slower parts.
#include "machine/simulate.h"
#include "op/op.h"
#include "machine/cache.h"
#include "machine/devices.h"
#include "machine/kernel_time.h"
#include "program/cost.h"
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "simulated.h"
#include "tier.h"

static const char *const cases[] = {
    "mesh.dp=4",
    "mesh.dp=8 parallel.zero=3",
    "mesh.dp=2 mesh.tp=4 parallel.sequence=true",
    "mesh.pp=4 parallel.pipeline=1f1b",
    "mesh.pp=4 mesh.dp=2 mesh.tp=2 parallel.zero=2 parallel.pipeline=gpipe",
    "mesh.pp=4 parallel.pipeline=interleaved parallel.stages_per_rank=2",
    "mesh.pp=4 parallel.pipeline=zb-h1 mesh.dp=2",
    "mesh.pp=4 parallel.pipeline=zb-v",
    "mesh.pp=2 mesh.dp=4 parallel.pipeline=2bw optimizer.delay=1",
    "mesh.cp=4 parallel.context=ring mesh.dp=2 parallel.zero=1",
};
enum { CASES = sizeof cases / sizeof *cases };

// Compiled once for all tests. make test has one in three.
static int next_case(int i) { return i + (test_tier() < 2 ? 3 : 1); }
static const Case *case_at(int i) {
  static Case compiled[CASES];
  if (!compiled[i].job) compiled[i] = compiled_by(cases[i]);
  return &compiled[i];
}

static int release_cases(void **state) {
  for (int i = 0; i < CASES; i = next_case(i)) {
    Case c = *case_at(i);
    release(&c);
  }
  return remove_folder(state);
}

// Where messages take no time, segments start and end when the replay says, given how long they take. A schedule that
// never drains has END between its segments, for which the replay has no cost: there only products take time.
static void without_links_it_is_the_replay(void **state) {
  static const char *const names[] = {
      "naive",
      "gpipe",
      "1f1b",
      "interleaved parallel.stages_per_rank=2",
      "zb-h1",
      "zb-v",
      "2bw optimizer.delay=1",
      "pipedream optimizer.delay=[3,3,2,2,1,1,0,0] batch.micro=64 optimizer.clip=0 run.non_finite=stop"};
  int streams = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Cluster cluster = machines(1);
    char keys[192];
    snprintf(keys, sizeof keys, "mesh.pp=4 parallel.pipeline=%s", names[i]);
    Case c = compiled_by(keys);
    const Program *p = job_train(c.job)->program[0];
    // Only products take time, and all microbatches as long: the first one of a step moves fewer bytes
    // (first_writes.h).
    cluster.device.bandwidth = INFINITY;
    for (int d = 0; d < DTYPE_COUNT; d++) cluster.device.vector[d] = INFINITY;
    if (p->schedule->streams) cluster.device.launch = 0;
    Simulation *s = simulated(&c, &cluster);
    int steps = 1;
    double(*cost)[PHASE_COUNT] = calloc((size_t)p->schedule->stages, sizeof *cost);
    for (int k = 0; k < s->spans.span.count; k++) {
      const ScheduleSpan *span = &s->spans.span.data[k];
      cost[span->stage][span->kind - ACTION_FORWARD] = span->end - span->start;
      if (span->step >= steps) steps = span->step + 1;
    }
    Schedule *stream = p->schedule->streams ? schedule_repeat(p->schedule, steps) : NULL;
    streams += steps > 1;
    ScheduleSpans spans;
    Error error = {0};
    assert_int_equal(
        schedule_replay(stream ? stream : p->schedule, p->segments, (const double(*)[PHASE_COUNT])cost, &spans, &error),
        0);
    double first = INFINITY; // BEGIN comes before
    for (int k = 0; k < s->spans.span.count; k++) first = fmin(first, s->spans.span.data[k].start);
    assert_near(s->spans.busy, spans.busy, 1e-9, keys);
    assert_near(s->spans.total - first, spans.total, 1e-9, keys);
    schedule_spans_free(&spans);
    simulation_free(s);
    if (stream) schedule_free(stream);
    release(&c);
    free(cost);
  }
  assert_int_equal(streams, 2);
}

static void parts_add_up_to_the_step(void **state) {
  int shared = 0;
  for (int i = 0, slow = 0; i < CASES; i = slow ? next_case(i) : i, slow = !slow) {
    Cluster cluster = slow ? slow_links() : machines(0);
    Simulation *s = simulated(case_at(i), &cluster);
    for (int r = 0; r < s->ranks; r++) {
      double sum = 0, exposed = 0;
      for (int part = 0; part < TIME_PARTS; part++) sum += s->rank[r].part[part];
      for (int l = 0; l < s->rank[r].link.count; l++) exposed += s->rank[r].link.data[l].exposed;
      assert_near(sum, s->step, 1e-9, cases[i]);
      assert_near(exposed, s->rank[r].part[TIME_COLLECTIVE] + s->rank[r].part[TIME_TRANSFER], 1e-9, cases[i]);
    }
    shared += s->shared;
    simulation_free(s);
  }
  assert_true(shared > 0);
}

// A rank sends what the Program's traffic counts, over each set of axes.
static void it_moves_what_programs_move(void **state) {
  Cluster cluster = machines(0);
  for (int i = 0; i < CASES; i = next_case(i)) {
    const Case *c = case_at(i);
    Simulation *s = simulated(c, &cluster);
    for (int r = 0; r < s->ranks; r++) {
      TrafficList traffic = {0};
      program_traffic(job_train(c->job)->program[r], &traffic);
      for (int t = 0; t < traffic.count; t++) {
        double bytes = 0;
        for (int l = 0; l < s->rank[r].link.count; l++)
          if (s->rank[r].link.data[l].axes == traffic.data[t].axes) bytes += s->rank[r].link.data[l].bytes;
        if (traffic.data[t].bytes > 0) assert_near(bytes, traffic.data[t].bytes, 1e-9, cases[i]);
      }
      vec_free(&traffic);
    }
    simulation_free(s);
  }
}

static void scale(Cluster *c, double k) {
  for (int d = 0; d < DTYPE_COUNT; d++) c->device.matrix[d] *= k, c->device.vector[d] *= k;
  c->device.bandwidth *= k;
  c->device.launch /= k;
  c->device.host /= k;
  for (int i = 0; i < 2; i++) c->base[i] /= k;
  for (int l = 0; l < c->levels; l++) c->level[l].bandwidth *= k, c->level[l].latency /= k;
}

static void all_times_scale(void **state) {
  for (int i = 0; i < CASES; i = next_case(i))
    for (int slow = 0; slow < 2; slow++) {
      Cluster cluster = slow ? slow_links() : machines(0), faster = cluster;
      scale(&faster, 3);
      assert_near(3 * seconds(case_at(i), &faster), seconds(case_at(i), &cluster), 1e-9, cases[i]);
    }
}

static void better(Cluster *c, int part) {
  switch (part) {
  case 0:
    for (int d = 0; d < DTYPE_COUNT; d++) c->device.matrix[d] *= 2;
    break;
  case 1: c->device.bandwidth *= 2; break;
  case 2: c->device.host = 0; break;
  case 3: c->level[0].bandwidth *= 2; break;
  case 4: c->level[1].bandwidth *= 2; break;
  case 5: c->level[0].latency = 0; break;
  default: c->level[1].latency = 0; break;
  }
}

static void a_faster_part_never_slows_a_step(void **state) {
  for (int i = 0; i < CASES; i = next_case(i)) {
    Cluster cluster = machines(0);
    double before = seconds(case_at(i), &cluster);
    for (int part = 0; part < 7; part++) {
      Cluster changed = cluster;
      better(&changed, part);
      double after = seconds(case_at(i), &changed);
      if (after > before * (1 + 1e-12)) fail_msg("%s: part %d: %.9g, before %.9g", cases[i], part, after, before);
    }
  }
}

// Of a pipeline whose links are slow: messages are waited for, and a rank whose collectives are in flight waits for
// what is left of them.
static void slow_links_are_waited_for(void **state) {
  Cluster cluster = machines(0), slow = cluster;
  slow.level[0].bandwidth /= 100;
  slow.level[1].bandwidth /= 100;
  Case pipe = compiled_by("mesh.pp=4 parallel.pipeline=1f1b"), data = compiled_by("mesh.dp=8 parallel.zero=3");
  Simulation *s = simulated(&pipe, &slow);
  double exposed = 0;
  for (int r = 0; r < 4; r++) exposed += s->rank[r].part[TIME_TRANSFER];
  assert_true(exposed > 0);
  assert_true(s->step > 1.05 * seconds(&pipe, &cluster));
  simulation_free(s);
  s = simulated(&data, &slow);
  assert_true(s->rank[0].part[TIME_COLLECTIVE] > s->rank[0].part[TIME_COMPUTE]);
  double all = 0;
  for (int l = 0; l < s->rank[0].link.count; l++) all += s->rank[0].link.data[l].all;
  assert_true(s->rank[0].part[TIME_COLLECTIVE] > 0.8 * all);
  simulation_free(s);
  release(&pipe);
  release(&data);
}

static double calls_of_messages(const RankTime *t) {
  double calls = 0;
  for (int l = 0; l < t->link.count; l++) calls += t->link.data[l].messages ? t->link.data[l].calls : 0;
  return calls;
}

// Where sends block, both devices wait for every message as long as it takes; without a second stage there is none.
static void blocking_sends_are_waited_for(void **state) {
  Cluster plain = machines(0), blocking = plain;
  plain.level[0].bandwidth /= 10, plain.level[1].bandwidth /= 10;
  blocking = plain, blocking.software.blocking_sends = 1;
  static const char *const keys[] = {"mesh.pp=2 parallel.pipeline=1f1b", "mesh.pp=2 parallel.pipeline=gpipe",
                                     "mesh.pp=2 parallel.pipeline=interleaved parallel.stages_per_rank=2"};
  for (int k = 0; k < 3; k++) {
    Case c = compiled_by(keys[k]);
    Simulation *s = simulated(&c, &blocking);
    double calls = calls_of_messages(&s->rank[0]) + calls_of_messages(&s->rank[1]), bytes = 0;
    for (int l = 0; l < s->rank[0].link.count; l++)
      if (s->rank[0].link.data[l].messages) bytes = s->rank[0].link.data[l].bytes / s->rank[0].link.data[l].calls;
    double each = transfer_seconds(&blocking, 0, 1, bytes);
    for (int r = 0; r < 2; r++) // all have the same size; more where the link is still another message's
      assert_true(s->rank[r].part[TIME_TRANSFER] >= calls * each * (1 - 1e-9));
    assert_true(s->step > seconds(&c, &plain) + each);
    simulation_free(s);
    release(&c);
  }
  Case alone = compiled_by("mesh.dp=2");
  assert_true(seconds(&alone, &blocking) == seconds(&alone, &plain));
  release(&alone);
}

// What another system's passes over gradients move is there once for each parameter of a rank.
static void passes_over_gradients_take_time(void **state) {
  Cluster plain = machines(1), more = plain;
  more.software.parameter_bytes = 14;
  static const char *const keys[] = {"mesh.dp=1", "mesh.dp=4 parallel.zero=1", "mesh.dp=1 optimizer.name=sgd"};
  for (int k = 0; k < 3; k++) {
    Case c = compiled_by(keys[k]);
    double parameters = (double)model_config_parameters(&c.config) / (k == 1 ? 4 : 1),
           took = seconds(&c, &more) - seconds(&c, &plain),
           want = memory_seconds(&plain.device, 14 * parameters, 0, NULL);
    assert_near(took, want, 0.02, keys[k]);
    release(&c);
  }
}

// When collectives over the stages began on each of 4 coordinates.
typedef struct Meetings {
  const Program *program;
  int count;
  struct {
    const char *name;
    double begin[4];
  } met[16];
} Meetings;

static int is_over_stages(const Program *p, const char *name) {
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    if (!strcmp(n->name, name))
      return op_def(n->op)->communicates && node_attr(n, CommAttr)->axes >> mesh_pipeline(&p->mesh) & 1;
  }
  return 0;
}

static void note_meeting(void *context, int coordinate, const char *name, const Node *instruction, const Action *action,
                         double begin, double end, int in_flight) {
  Meetings *m = context;
  int i = 0;
  if (in_flight || !is_over_stages(m->program, name)) return;
  while (i < m->count && strcmp(m->met[i].name, name)) i++;
  if (i == m->count) {
    assert_true(m->count < 16);
    m->met[m->count++].name = name;
  }
  m->met[i].begin[coordinate] = begin;
}

// The norm over all stages begins with the last of them, and ends for all at once.
static void stages_wait_for_each_other(void **state) {
  Cluster cluster = machines(0);
  Case c = compiled_by("mesh.pp=4 parallel.pipeline=1f1b parallel.layers=[5,1,1,1]");
  Simulation *s = simulated(&c, &cluster);
  assert_true(s->rank[3].part[TIME_IDLE] > s->rank[0].part[TIME_IDLE]);
  double last = 0;
  for (int i = 0; i < s->spans.span.count; i++) last = fmax(last, s->spans.span.data[i].end);
  for (int r = 0; r < 4; r++) { // what a rank does, until the norm is known, takes as long for all
    double before = s->step - s->rank[r].part[TIME_OPTIMIZER] - s->rank[r].part[TIME_COLLECTIVE];
    assert_true(before > 0.9 * last);
  }
  assert_true(s->step >= last);
  assert_true(s->critical.count > 0 && s->critical.data[0].seconds > 0);
  Meetings meetings = {.program = job_train(c.job)->program[0]};
  SimulateOptions looking = {.cluster = &cluster, .see = note_meeting, .context = &meetings};
  Simulation *seen;
  Error unread = {0};
  assert_int_equal(simulate(job_train(c.job)->program, &looking, &seen, &unread), 0);
  simulation_free(seen);
  assert_true(meetings.count > 0);
  for (int i = 0; i < meetings.count; i++)
    for (int r = 1; r < 4; r++) assert_true(meetings.met[i].begin[r] == meetings.met[i].begin[0]);
  double path = 0;
  SimulateOptions all = {.cluster = &cluster, .critical = 10000};
  Simulation *whole;
  Error error = {0};
  assert_int_equal(simulate(job_train(c.job)->program, &all, &whole, &error), 0);
  for (int i = 0; i < whole->critical.count; i++) path += whole->critical.data[i].seconds;
  assert_near(path, whole->step, 1e-6, "the critical path");
  simulation_free(whole);
  simulation_free(s);
  release(&c);
}

// 16 nodes of 4 devices, 4 ports a node.
static void groups_lie_on_links(void **state) {
  Cluster c = machines(0);
  Mesh mesh = mesh_create(3, (const char *[]){"pp", "dp", "tp"}, (int[]){2, 8, 4});
  GroupOnLinks tp = machine_group(&c, &mesh, 1u << 2, NULL, 0), dp = machine_group(&c, &mesh, 1u << 1, NULL, 1);
  assert_int_equal(tp.ranks, 4);
  assert_int_equal(tp.span[0], 4);
  assert_int_equal(tp.span[1], 1);
  assert_int_equal(dp.span[0], 1);
  assert_int_equal(dp.span[1], 8);
  assert_int_equal(dp.sharing[1], 1); // a port for each of the four groups
  c.level[1].ports = 1;
  assert_int_equal(machine_group(&c, &mesh, 1u << 1, NULL, 0).sharing[1], 4);
  c.level[1].ports = 2;
  assert_int_equal(machine_group(&c, &mesh, 1u << 1, NULL, 0).sharing[1], 2);
  MessagesOnLinks m = machine_messages(&c, &mesh, 0, 1, -1);
  assert_int_equal(m.level, 1);
  assert_int_equal(m.sharing, 2);
  Mesh odd = mesh_create(2, (const char *[]){"dp", "tp"}, (int[]){4, 3}); // groups of three in nodes of four
  GroupOnLinks worst = machine_group(&c, &odd, 1u << 1, NULL, 0);
  assert_int_equal(worst.span[1], 2);
  assert_int_equal(machine_level(&c, 0, 3), 0);
  assert_int_equal(machine_level(&c, 3, 4), 1);
  assert_int_equal(machine_level(&c, 3, 3), -1);
}

static Simulation *all_ranks(const Case *c, const Cluster *cluster) {
  SimulateOptions options = {.cluster = cluster, .critical = 5, .all_ranks = 1};
  Simulation *s;
  Error error = {0};
  if (simulate(job_train(c->job)->program, &options, &s, &error)) fail_msg("%s", error.message);
  return s;
}

// Each rank of a coordinate does and waits for what the one does that stands for all of them.
static void ranks_that_are_alike_are_simulated_once(void **state) {
  Cluster clusters[4] = {machines(0), machines(0), machines(0), slow_links()};
  clusters[1].level[0] = (LevelFacts){"ring", LEVEL_RING, .count = 8, .bandwidth = 100e9, .latency = 1e-6,
                                      .ports = 1, .oversubscription = 1};
  clusters[1].level[1].ports = 1;
  clusters[2].level[0].count = 64, clusters[2].level[0].kind = LEVEL_BUS, clusters[2].levels = 1;
  for (int i = 0; i < CASES; i = next_case(i)) {
    const Case *c = case_at(i);
    const Mesh *mesh = &c->job->options.parallel.mesh;
    for (int k = 0; k < 4; k++) {
      Simulation *one = simulated(c, &clusters[k]), *all = all_ranks(c, &clusters[k]);
      assert_int_equal(all->ranks, mesh->ranks);
      assert_near(all->step, one->step, 1e-9, cases[i]);
      for (int r = 0; r < all->ranks; r++)
        for (int part = 0; part < TIME_PARTS; part++) {
          double a = all->rank[r].part[part], b = one->rank[mesh_pipeline_coordinate(mesh, r)].part[part];
          if (fabs(a - b) > 1e-9 * one->step)
            fail_msg("%s, cluster %d, rank %d, %s: %.12g instead of %.12g", cases[i], k, r, time_part_names[part], a,
                     b);
        }
      simulation_free(one);
      simulation_free(all);
    }
  }
}

static const LinkTime *link_over(const RankTime *t, uint32_t axes) {
  for (int i = 0; i < t->link.count; i++)
    if (t->link.data[i].axes == axes) return &t->link.data[i];
  fail_msg("nothing over axes %x", axes);
  return NULL;
}

// Groups of three in nodes of four: the first lies in a node, the second in two, and the first waits for it. One rank
// for all has the links of the second.
static void ranks_have_links_of_their_own(void **state) {
  Cluster cluster = machines(0);
  Case c = compiled_by("mesh.dp=2 mesh.cp=3 data.seq_len=126 parallel.context=ring"),
       p = compiled_by("mesh.pp=2 mesh.dp=3");
  uint32_t cp = 1u << mesh_axis(&c.job->options.parallel.mesh, AXIS_CP);
  Simulation *one = simulated(&c, &cluster), *all = all_ranks(&c, &cluster);
  assert_int_equal(link_over(&one->rank[0], cp)->level, 1);
  for (int r = 0; r < 6; r++) assert_int_equal(link_over(&all->rank[r], cp)->level, r / 3);
  assert_true(all->rank[0].part[TIME_IDLE] > all->rank[3].part[TIME_IDLE] + 1e-4 * all->step);
  assert_true(all->step <= one->step * (1 + 1e-9));
  simulation_free(one), simulation_free(all);
  one = simulated(&p, &cluster), all = all_ranks(&p, &cluster); // messages of ranks 0 … 2 to 3 … 5: one in the node
  uint32_t pp = 1u << mesh_pipeline(&p.job->options.parallel.mesh);
  assert_int_equal(link_over(&one->rank[0], pp)->level, 1);
  for (int r = 0; r < 3; r++) assert_int_equal(link_over(&all->rank[r], pp)->level, r > 0);
  simulation_free(one), simulation_free(all);
  release(&c), release(&p);
}

// Half as fast in everything, from device `first` on.
static IslandFacts slow_devices(const Cluster *c, int first, int count) {
  IslandFacts island = {c->device, first, count};
  for (int d = 0; d < DTYPE_COUNT; d++) island.device.matrix[d] /= 2, island.device.vector[d] /= 2;
  island.device.bandwidth /= 2;
  island.device.launch *= 2, island.device.host *= 2;
  island.device.memory = 5e9;
  return island;
}

// One rank for all of a coordinate is as slow as the slowest of them. With all ranks the fast ones wait.
static void islands_are_waited_for(void **state) {
  Cluster fast = machines(0), mixed = fast, slow = fast;
  IslandFacts island = slow_devices(&fast, 4, 4);
  vec_push(&mixed.island, island);
  slow.device = island.device;
  Case data = compiled_by("mesh.dp=8"), pipe = compiled_by("mesh.pp=2 mesh.dp=4 parallel.pipeline=1f1b");
  assert_near(seconds(&data, &mixed), seconds(&data, &slow), 1e-9, "dp 8, half of them slow");
  Simulation *all = all_ranks(&data, &mixed), *alone = simulated(&data, &fast);
  assert_near(all->step, seconds(&data, &slow), 1e-9, "dp 8, all ranks");
  assert_near(all->rank[0].part[TIME_COMPUTE], alone->rank[0].part[TIME_COMPUTE], 1e-9, "a fast rank computes");
  assert_true(all->rank[0].part[TIME_IDLE] > 0.2 * all->step && all->rank[7].part[TIME_IDLE] < 1e-6 * all->step);
  simulation_free(all), simulation_free(alone);
  Simulation *one = simulated(&pipe, &mixed); // a stage each
  all = all_ranks(&pipe, &mixed);
  assert_near(all->step, one->step, 1e-9, "a stage of slow devices");
  assert_true(one->step > 1.2 * seconds(&pipe, &fast) && one->step < 0.999 * seconds(&pipe, &slow));
  assert_true(one->rank[1].part[TIME_COMPUTE] > 1.5 * one->rank[0].part[TIME_COMPUTE]);
  simulation_free(all), simulation_free(one);
  const Mesh *mesh = &pipe.job->options.parallel.mesh;
  assert_true(devices_room(&mixed, 8, NULL, 0) == 5e9 && devices_room(&mixed, 4, NULL, 0) == fast.device.memory);
  assert_true(devices_room(&mixed, 8, mesh, 0) == fast.device.memory && devices_room(&mixed, 8, mesh, 1) == 5e9);
  assert_near(devices_rate(&mixed, 8, DTYPE_BF16), 6 * fast.device.matrix[DTYPE_BF16], 1e-12, "the rate of all");
  mixed.island.data[0].device.matrix[DTYPE_BF16] = mixed.island.data[0].device.vector[DTYPE_BF16] = 0;
  SimulateOptions options = {.cluster = &mixed};
  Error error = {0};
  assert_int_equal(simulate(job_train(data.job)->program, &options, &one, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "no rate of products in bf16"));
  vec_free(&mixed.island);
  release(&data), release(&pipe);
}

static int same_storage(const Graph *g, int a, int b) {
  if (a < 0 || b < 0) return 0;
  const Tensor *x = graph_tensor(g, a), *y = graph_tensor(g, b);
  return a == b || (x->variable >= 0 && x->variable == y->variable && x->copy == y->copy);
}

static int operand_of(const Node *n, int k) { return k < n->ninput ? n->input[k] : n->output[k - n->ninput]; }

// Of input k of instruction i: what was touched from the last instruction on that had it. By looking back each time.
static double touched_since(const Program *p, const Body *body, int i, int input) {
  const Graph *g = p->graph;
  double bytes[32], sum = 0;
  for (int j = i - 1; j >= 0; j--) {
    const Node *n = &g->node.data[body->instruction[j].node];
    int found = 0;
    program_operand_bytes(p, n, 0, bytes);
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      sum += bytes[k];
      found |= same_storage(g, operand_of(n, k), input);
    }
    if (found) return sum;
  }
  return INFINITY;
}

// An operand is in the cache while no more has been touched than fits into it; then nobody waits for memory to read it.
static void the_cache_keeps_what_was_touched_last(void **state) {
  Case c = compiled_by("mesh.dp=2 mesh.tp=2");
  const Program *p = job_train(c.job)->program[0];
  const Body *body = &p->micro[0][PHASE_BACKWARD];
  double *held = calloc((size_t)body->count, sizeof *held), bytes[32], all[3] = {0};
  const double caches[3] = {0, 6e5, 1e15};
  for (int size = 0; size < 3; size++) {
    cache_held(p, body, 0, caches[size], held);
    for (int i = 0; i < body->count; i++) {
      const Node *n = &p->graph->node.data[body->instruction[i].node];
      double expected = 0;
      program_operand_bytes(p, n, 0, bytes);
      for (int k = 0; k < n->ninput; k++) {
        double since = touched_since(p, body, i, n->input[k]);
        if (since <= caches[size] && bytes[k] > 0) expected += bytes[k];
      }
      assert_true(held[i] == expected);
      all[size] += held[i];
    }
  }
  assert_true(all[0] == 0 && all[1] > 0 && all[2] > 1.1 * all[1]);
  Cluster cluster = machines(0), large = cluster, none = cluster;
  large.device.cache = 1e15, none.device.cache = 0;
  Costs *costs;
  Error error = {0};
  assert_int_equal(costs_create(p, &large, -1, &costs, &error), 0);
  const Cost *cost = costs->micro[0][PHASE_BACKWARD];
  int checked = 0;
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    OpWork work = program_work(p, n, 0);
    if (cost[i].ranks || work.products || work.attention.pairs > 0 || !held[i]) continue;
    double from_memory = work.read + work.written - fmin(work.read, held[i]),
           vector = work.vector / large.device.vector[node_dtype(p->graph, n)];
    assert_near(cost[i].seconds, fmax(from_memory / (0.85 * 2e12), vector) + 2e-6, 1e-9, n->name);
    checked++;
  }
  assert_true(checked > 10);
  Cluster launching = cluster;
  launching.software.launches_per_op = 4; // of ops that are not products, by the device and by its host
  launching.device.host = 1e-3;
  Cluster once = launching;
  once.software.launches_per_op = 1;
  assert_true(seconds(&c, &launching) > 2 * seconds(&c, &once));
  double with = seconds(&c, &cluster), most = seconds(&c, &large), without = seconds(&c, &none);
  assert_true(most < without && most <= with && with <= without);
  costs_free(costs);
  free(held);
  release(&c);
}

static void count_refreshes(void *context, int coordinate, const char *name, const Node *instruction,
                            const Action *action, double begin, double end, int in_flight) {
  *(int *)context += !strncmp(name, "refresh.", 8) && node_is(instruction, ROLE_CAST);
}

// Copies that updates write are not cast in BEGIN: neither its bytes nor its time are counted.
static void fresh_copies_cost_nothing(void **state) {
  Cluster cluster = machines(0);
  for (int zero = 0; zero < 2; zero++) { // 1: Copies are gathered, and so are made in BEGIN
    Case c = compiled_by(zero ? "mesh.dp=4 precision=bf16 parallel.zero=1" : "mesh.dp=4 precision=bf16");
    const Program *p = job_train(c.job)->program[0];
    int seen = 0, passed_over = 0;
    double moved = 0, with = 0;
    SimulateOptions looking = {.cluster = &cluster, .see = count_refreshes, .context = &seen};
    Simulation *s;
    Error error = {0};
    assert_int_equal(simulate(job_train(c.job)->program, &looking, &s, &error), 0);
    double without = program_cost(p).bytes;
    for (int i = 0; i < p->begin.count; i++) {
      Node *n = &job_train(c.job)->graph->node.data[p->begin.instruction[i].node];
      if (!n->refreshes) continue;
      OpWork work = program_work(p, n, -1);
      moved += work.read + work.written;
      n->refreshes = 0;
      passed_over++;
    }
    with = program_cost(p).bytes;
    assert_true(zero ? !passed_over && seen > 0 : passed_over > 0 && !seen);
    assert_near(with - without, moved, 1e-9, "bytes of casts");
    simulation_free(s);
    release(&c);
  }
}

static void a_cluster_must_do(void **state) {
  Case c = compiled_by("mesh.dp=4");
  Cluster cluster = machines(0);
  SimulateOptions options = {.cluster = &cluster};
  Simulation *s;
  Error error = {0};
  cluster.level[0].count = 1;
  cluster.level[1].count = 2;
  assert_int_equal(simulate(job_train(c.job)->program, &options, &s, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "the mesh has 4 ranks, but the cluster test has 2 devices");
  cluster = machines(0);
  error = (Error){0};
  cluster.device.matrix[DTYPE_BF16] = cluster.device.vector[DTYPE_BF16] = 0;
  assert_int_equal(simulate(job_train(c.job)->program, &options, &s, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "has no rate of products in bf16"));
  release(&c);
}

// What a rank's collectives over an axis do from the first microbatch on, but for those that END waits for: when the
// first in flight begins, when the last one ends, and what all of them take.
typedef struct AxisTimes { uint32_t axes; double first, last, all; } AxisTimes;

static void note_axis(void *context, int rank, const char *name, const Node *n, const Action *action, double begin,
                      double end, int in_flight) {
  if (!n || !op_def(n->op)->communicates || n->region == REGION_BEGIN || (n->region == REGION_END && !in_flight))
    return;
  for (AxisTimes *t = context; t->axes; t++) {
    if (t->axes != node_attr(n, CommAttr)->axes) continue;
    if (in_flight) t->first = fmin(t->first, begin);
    t->last = fmax(t->last, end), t->all += end - begin;
  }
}

// By hand, where nothing but links takes time. A sum over tp of 256 tokens × 256 in bf16 takes 1 ms. There is one of
// the embedding, one after attention and one after the FFN of 8 layers; backward has those of 8 layers and of the last
// norm. What a rank has of the matrices is 5.5 MiB of gradients in fp32, of which 1 MiB takes 10 ms over dp. The first
// bucket is complete after two sums of backward. Sums over tp never wait for gradients, and gradients for each other
// only.
static void axes_have_streams_of_their_own(void **state) {
  Case c = compiled_by("mesh.dp=2 mesh.tp=4 batch.global=4 parallel.bucket_mb=1");
  const Mesh *mesh = &c.job->options.parallel.mesh;
  uint32_t tp = 1u << mesh_axis(mesh, AXIS_TP), dp = 1u << mesh_axis(mesh, AXIS_DP);
  Cluster cluster = machines(0);
  cluster.base[0] = cluster.base[1] = cluster.device.host = cluster.device.launch = 0;
  cluster.device.bandwidth = INFINITY;
  for (int d = 0; d < DTYPE_COUNT; d++) cluster.device.matrix[d] = cluster.device.vector[d] = INFINITY;
  cluster.level[0].latency = cluster.level[1].latency = 0;
  GroupOnLinks over_tp = machine_group(&cluster, mesh, tp, NULL, 0),
               over_dp = machine_group(&cluster, mesh, dp, NULL, 0);
  cluster.level[0].bandwidth *= collective_seconds(&cluster, COLLECTIVE_ALL_REDUCE, &over_tp, 131072).seconds / 1e-3;
  cluster.level[1].bandwidth *= collective_seconds(&cluster, COLLECTIVE_ALL_REDUCE, &over_dp, 1 << 20).seconds / 10e-3;
  AxisTimes t[3] = {{tp, INFINITY, 0, 0}, {dp, INFINITY, 0, 0}};
  SimulateOptions options = {.cluster = &cluster, .see = note_axis, .context = t};
  Simulation *s;
  Error error = {0};
  if (simulate(job_train(c.job)->program, &options, &s, &error)) fail_msg("%s", error.message);
  assert_near(t[0].last, 34e-3, 1e-3, "the last sum over tp"); // those of the loss are short
  assert_near(t[0].last, t[0].all, 1e-5, "sums over tp follow each other"); // after 8 bytes of BEGIN
  assert_near(t[1].first, 19e-3, 2e-3, "the first bucket");
  assert_near(t[1].all, 55e-3, 1e-9, "gradients over dp");
  assert_near(t[1].last, 74e-3, 5e-3, "the last bucket"); // the norms' go over both axes
  assert_near(s->step, 74e-3, 5e-3, "the step");
  simulation_free(s);
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_links_it_is_the_replay), cmocka_unit_test(parts_add_up_to_the_step),
      cmocka_unit_test(it_moves_what_programs_move),    cmocka_unit_test(all_times_scale),
      cmocka_unit_test(a_faster_part_never_slows_a_step), cmocka_unit_test(slow_links_are_waited_for),
                                     cmocka_unit_test(blocking_sends_are_waited_for),
                                     cmocka_unit_test(passes_over_gradients_take_time),
      cmocka_unit_test(stages_wait_for_each_other),     cmocka_unit_test(groups_lie_on_links),
      cmocka_unit_test(ranks_that_are_alike_are_simulated_once), cmocka_unit_test(ranks_have_links_of_their_own),
      cmocka_unit_test(islands_are_waited_for), cmocka_unit_test(the_cache_keeps_what_was_touched_last),
      cmocka_unit_test(fresh_copies_cost_nothing),
      cmocka_unit_test(axes_have_streams_of_their_own), cmocka_unit_test(a_cluster_must_do),
  };
  return cmocka_run_group_tests(tests, make_model, release_cases);
}
