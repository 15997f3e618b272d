// Simulated steps: what a replay says where communication is free, and how they answer to faster and slower parts.
#include "plan/simulate.h"
#include "op/op.h"
#include "program/traffic.h"
#include "recipe/setup.h"
#include "runtime/job.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static char folder[] = "/tmp/plait-simulate-XXXXXX";

static char *path_of(const char *name) {
  static char path[2][128];
  static int next;
  snprintf(path[next = !next], sizeof path[0], "%s/%s", folder, name);
  return path[next];
}

static void write_file(const char *name, const char *text) {
  FILE *f = fopen(path_of(name), "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static int setup(void **state) {
  if (!mkdtemp(folder)) return -1;
  write_file(
      "llama.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 8,"
      " \"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"max_position_embeddings\": 128,"
      " \"vocab_size\": 1024, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml", "model: {config: llama.json}\ndata: {train: none, seq_len: 128}\n"
                            "batch: {global: 64, micro: 2}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: bf16\n");
  return 0;
}

static int teardown(void **state) {
  unlink(path_of("llama.json"));
  unlink(path_of("recipe.yaml"));
  return rmdir(folder);
}

typedef struct Case { Recipe recipe; ModelConfig config; Job *job; } Case;

static Case compiled(const char *keys) { // "key=value …"
  Case c = {0};
  Error error = {0};
  char text[256], *overrides[16], *next = text;
  int n = 0;
  snprintf(text, sizeof text, "%s", keys);
  for (char *word; (word = strtok_r(next, " ", &next));) overrides[n++] = word;
  if (recipe_load(path_of("recipe.yaml"), n, overrides, &c.recipe, &error) ||
      model_config_load(&c.config, c.recipe.model.config, &error) ||
      setup_job(&c.recipe, &c.config, &c.job, &error))
    fail_msg("%s: %s", keys, error.message);
  return c;
}

static void forget(Case *c) {
  job_destroy(c->job);
  model_config_free(&c->config);
  recipe_free(&c->recipe);
}

// 16 nodes of 4 devices. fast: links that take no time.
static Cluster machines(int fast) {
  Cluster c = {.name = "test", .levels = 2, .base = {5e-6, 8e-6}};
  c.device = (DeviceFacts){.name = "device", .sustained = 0.8, .units = 108, .cache = 40e6, .memory = 80e9,
                           .bandwidth = 2e12, .launch = 2e-6, .host = 1e-6};
  for (int d = 0; d < DTYPE_COUNT; d++) c.device.matrix[d] = 300e12, c.device.vector[d] = 20e12;
  c.level[0] = (LevelFacts){"inside", LEVEL_SWITCH, .count = 4, .ports = 1, .bandwidth = 300e9, .latency = 3e-6,
                            .oversubscription = 1};
  c.level[1] = (LevelFacts){"outside", LEVEL_SWITCH, .count = 16, .ports = 4, .bandwidth = 25e9, .latency = 9e-6,
                            .oversubscription = 1};
  if (!fast) return c;
  c.base[0] = c.base[1] = c.device.host = 0;
  for (int l = 0; l < 2; l++) c.level[l].bandwidth = INFINITY, c.level[l].latency = 0;
  return c;
}

static Simulation *simulated(const Case *c, const Cluster *cluster) {
  SimulateOptions options = {.cluster = cluster, .critical = 5};
  Simulation *s;
  Error error = {0};
  if (simulate(c->job->train.program, &options, &s, &error)) fail_msg("%s", error.message);
  return s;
}

static double seconds(const Case *c, const Cluster *cluster) {
  Simulation *s = simulated(c, cluster);
  double step = s->step;
  simulation_free(s);
  return step;
}

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

static void assert_near(double a, double b, double within, const char *what) {
  if (!(fabs(a - b) <= within * fabs(b))) fail_msg("%s: %.12g instead of %.12g", what, a, b);
}

// Where messages take no time, segments start and end when the replay says, given how long they take.
static void without_links_it_is_the_replay(void **state) {
  static const char *const names[] = {"naive", "gpipe", "1f1b", "interleaved parallel.stages_per_rank=2", "zb-h1"};
  Cluster cluster = machines(1);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char keys[128];
    snprintf(keys, sizeof keys, "mesh.pp=4 parallel.pipeline=%s", names[i]);
    Case c = compiled(keys);
    Simulation *s = simulated(&c, &cluster);
    const Program *p = c.job->train.program[0];
    double(*cost)[PHASE_COUNT] = calloc((size_t)p->schedule->stages, sizeof *cost);
    for (int k = 0; k < s->spans.span.count; k++) {
      const ScheduleSpan *span = &s->spans.span.data[k];
      cost[span->stage][span->kind - ACTION_FORWARD] = span->end - span->start;
    }
    ScheduleSpans spans;
    Error error = {0};
    assert_int_equal(schedule_replay(p->schedule, p->segments, (const double (*)[PHASE_COUNT])cost, &spans, &error), 0);
    double first = INFINITY; // BEGIN comes before
    for (int k = 0; k < s->spans.span.count; k++) first = fmin(first, s->spans.span.data[k].start);
    assert_near(s->spans.busy, spans.busy, 1e-9, keys);
    assert_near(s->spans.total - first, spans.total, 1e-9, keys);
    schedule_spans_free(&spans);
    simulation_free(s);
    forget(&c);
    free(cost);
  }
}

static void parts_add_up_to_the_step(void **state) {
  Cluster cluster = machines(0);
  for (int i = 0; i < CASES; i++) {
    Case c = compiled(cases[i]);
    Simulation *s = simulated(&c, &cluster);
    for (int r = 0; r < s->coordinates; r++) {
      double sum = 0, exposed = 0;
      for (int part = 0; part < TIME_PARTS; part++) sum += s->rank[r].part[part];
      for (int l = 0; l < s->rank[r].link.count; l++) exposed += s->rank[r].link.data[l].exposed;
      assert_near(sum, s->step, 1e-9, cases[i]);
      assert_near(exposed, s->rank[r].part[TIME_COLLECTIVE] + s->rank[r].part[TIME_TRANSFER], 1e-9, cases[i]);
    }
    simulation_free(s);
    forget(&c);
  }
}

// A rank sends what the Program's traffic counts, over each set of axes.
static void it_moves_what_programs_move(void **state) {
  Cluster cluster = machines(0);
  for (int i = 0; i < CASES; i++) {
    Case c = compiled(cases[i]);
    Simulation *s = simulated(&c, &cluster);
    for (int r = 0; r < s->coordinates; r++) {
      TrafficList traffic = {0};
      program_traffic(c.job->train.program[r], &traffic);
      for (int t = 0; t < traffic.count; t++) {
        double bytes = 0;
        for (int l = 0; l < s->rank[r].link.count; l++)
          if (s->rank[r].link.data[l].axes == traffic.data[t].axes) bytes += s->rank[r].link.data[l].bytes;
        if (traffic.data[t].bytes > 0) assert_near(bytes, traffic.data[t].bytes, 1e-9, cases[i]);
      }
      vec_free(&traffic);
    }
    simulation_free(s);
    forget(&c);
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
  for (int i = 0; i < CASES; i++) {
    Case c = compiled(cases[i]);
    Cluster cluster = machines(0), faster = cluster;
    scale(&faster, 3);
    assert_near(3 * seconds(&c, &faster), seconds(&c, &cluster), 1e-9, cases[i]);
    forget(&c);
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
  for (int i = 0; i < CASES; i++) {
    Case c = compiled(cases[i]);
    Cluster cluster = machines(0);
    double before = seconds(&c, &cluster);
    for (int part = 0; part < 7; part++) {
      Cluster changed = cluster;
      better(&changed, part);
      double after = seconds(&c, &changed);
      if (after > before * (1 + 1e-12)) fail_msg("%s: part %d: %.9g, before %.9g", cases[i], part, after, before);
    }
    forget(&c);
  }
}

// Of a pipeline whose links are slow: messages are waited for, and a rank whose collectives are in flight waits for
// what is left of them.
static void slow_links_are_waited_for(void **state) {
  Cluster cluster = machines(0), slow = cluster;
  slow.level[0].bandwidth /= 100;
  slow.level[1].bandwidth /= 100;
  Case pipe = compiled("mesh.pp=4 parallel.pipeline=1f1b"), data = compiled("mesh.dp=8 parallel.zero=3");
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
  forget(&pipe);
  forget(&data);
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

static void note_meeting(void *context, int coordinate, const char *name, const Action *action, double begin,
                         double end, int in_flight) {
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
  Case c = compiled("mesh.pp=4 parallel.pipeline=1f1b parallel.layers=[5,1,1,1]");
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
  Meetings meetings = {.program = c.job->train.program[0]};
  SimulateOptions looking = {.cluster = &cluster, .see = note_meeting, .context = &meetings};
  Simulation *seen;
  Error unread = {0};
  assert_int_equal(simulate(c.job->train.program, &looking, &seen, &unread), 0);
  simulation_free(seen);
  assert_true(meetings.count > 0);
  for (int i = 0; i < meetings.count; i++)
    for (int r = 1; r < 4; r++) assert_true(meetings.met[i].begin[r] == meetings.met[i].begin[0]);
  double path = 0;
  SimulateOptions all = {.cluster = &cluster, .critical = 10000};
  Simulation *whole;
  Error error = {0};
  assert_int_equal(simulate(c.job->train.program, &all, &whole, &error), 0);
  for (int i = 0; i < whole->critical.count; i++) path += whole->critical.data[i].seconds;
  assert_near(path, whole->step, 1e-6, "the critical path");
  simulation_free(whole);
  simulation_free(s);
  forget(&c);
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
  MessagesOnLinks m = machine_messages(&c, &mesh, 0, 1);
  assert_int_equal(m.level, 1);
  assert_int_equal(m.sharing, 2);
  Mesh odd = mesh_create(2, (const char *[]){"dp", "tp"}, (int[]){4, 3}); // groups of three in nodes of four
  GroupOnLinks worst = machine_group(&c, &odd, 1u << 1, NULL, 0);
  assert_int_equal(worst.span[1], 2);
  assert_int_equal(machine_level(&c, 0, 3), 0);
  assert_int_equal(machine_level(&c, 3, 4), 1);
  assert_int_equal(machine_level(&c, 3, 3), -1);
}

static void a_cluster_must_do(void **state) {
  Case c = compiled("mesh.dp=4");
  Cluster cluster = machines(0);
  SimulateOptions options = {.cluster = &cluster};
  Simulation *s;
  Error error = {0};
  cluster.level[0].count = 1;
  cluster.level[1].count = 2;
  assert_int_equal(simulate(c.job->train.program, &options, &s, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "the mesh has 4 ranks, but the cluster test has 2 devices");
  cluster = machines(0);
  error = (Error){0};
  cluster.device.matrix[DTYPE_BF16] = cluster.device.vector[DTYPE_BF16] = 0;
  assert_int_equal(simulate(c.job->train.program, &options, &s, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "device.matrix has no rate for bf16"));
  forget(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_links_it_is_the_replay), cmocka_unit_test(parts_add_up_to_the_step),
      cmocka_unit_test(it_moves_what_programs_move),    cmocka_unit_test(all_times_scale),
      cmocka_unit_test(a_faster_part_never_slows_a_step), cmocka_unit_test(slow_links_are_waited_for),
      cmocka_unit_test(stages_wait_for_each_other),     cmocka_unit_test(groups_lie_on_links),
      cmocka_unit_test(a_cluster_must_do),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
