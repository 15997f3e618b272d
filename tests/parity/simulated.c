// Runs a case with an observer on each rank, and simulates it.
#include "simulated.h"
#include "corpora.h"
#include "nodes_of_four.h"
#include "machine/simulate.h"
#include "runtime/issued.h"
#include <string.h>

enum { MOST_RANKS = 64 };
typedef struct Held {
  Job *job;
  int steps;
  Issued *issued[MOST_RANKS];
  CallLog *simulated; // (pipeline coordinates)
  CallLog each[MOST_RANKS]; // simulated too
  int coordinates, code;
  Error *error;
} Held;

static void keep_job(Job *job, void *context) {
  Held *h = context;
  h->job = job;
  h->coordinates = job_pipeline_ranks(job);
  h->simulated = xcalloc((size_t)h->coordinates, sizeof *h->simulated);
  for (int c = 0; c < h->coordinates; c++) h->simulated[c].program = job_train(job)->program[c];
}

static void observe(Rank *r, void *context) {
  Held *h = context;
  CHECK(r->rank < MOST_RANKS);
  h->issued[r->rank] = issued_create(r->state->program);
  executor_observe(r->train, OBSERVER_ISSUED, h->issued[r->rank]);
}

static void note(void *context, int coordinate, const Call *call) {
  calls_note(&((Held *)context)->simulated[coordinate], *call);
}

static void note_each(void *context, int rank, const Call *call) { calls_note(&((Held *)context)->each[rank], *call); }

static int say(Held *h, const char *one, const CallLog *a, const char *other, const CallLog *b, int at) {
  char text[2][256] = {"nothing", "nothing"};
  if (at < a->call.count) call_text(a->program, &a->call.data[at], text[0], sizeof text[0]);
  if (at < b->call.count) call_text(b->program, &b->call.data[at], text[1], sizeof text[1]);
  error_set(h->error, PLAIT_FAILED, "call %d of %s is %s; of %s it is %s", at + 1, one, text[0], other, text[1]);
  return 1;
}

// In fewer rows are fewer bytes: where batches are uneven, ranks of a coordinate have the same order.
static void forget_bytes(CallLog *log) {
  log->chain = 0;
  CallLog calls = *log;
  *log = (CallLog){.program = calls.program};
  for (int i = 0; i < calls.call.count; i++) {
    calls.call.data[i].bytes = 0;
    calls_note(log, calls.call.data[i]);
  }
  calls_free(&calls);
}

static int compare(Held *h) {
  const Mesh *mesh = &h->job->options.parallel.mesh;
  int first[MOST_RANKS];
  memset(first, -1, sizeof first);
  for (int r = 0; r < mesh->ranks; r++) {
    int c = mesh_pipeline_coordinate(mesh, r), at;
    char one[64], other[64];
    snprintf(one, sizeof one, "rank %d", r);
    if (first[c] < 0) {
      first[c] = r;
      snprintf(other, sizeof other, "the simulated coordinate %d", c);
      if (!h->issued[r]->log.call.count && mesh->ranks > 1 && h->simulated[c].call.count)
        return error_set(h->error, PLAIT_FAILED, "%s has issued nothing", one), 1;
      at = calls_differ(&h->issued[r]->log, &h->simulated[c]);
      if (at >= 0) return say(h, one, &h->issued[r]->log, other, &h->simulated[c], at);
      continue;
    }
    snprintf(other, sizeof other, "rank %d", first[c]);
    CallLog *a = &h->issued[r]->log, *b = &h->issued[first[c]]->log;
    if (!job_train(h->job)->program[c]->shares->even) forget_bytes(a), forget_bytes(b);
    if ((at = calls_differ(a, b)) >= 0) return say(h, one, a, other, b, at);
  }
  return 0;
}

// Each rank and its own simulation. Not where ranks have other rows than the first, or leave something to an owner: the
// simulator tells only what a rank issues itself.
static int compare_each(Held *h, const SimulateOptions *options, int steps) {
  const Mesh *mesh = &h->job->options.parallel.mesh;
  SimulateOptions all = *options;
  all.all_ranks = 1, all.issue = note_each;
  for (int c = 0; c < h->coordinates; c++) {
    const Program *p = job_train(h->job)->program[c];
    if (!p->shares->even) return 0;
    for (int i = 0; i < p->graph->node.count; i++)
      if (node_owner(p->graph, &p->graph->node.data[i])) return 0;
  }
  for (int r = 0; r < mesh->ranks; r++)
    h->each[r].program = job_train(h->job)->program[mesh_pipeline_coordinate(mesh, r)];
  int code = simulate_steps(job_train(h->job)->program, &all, steps, h->error);
  for (int r = 0, at; r < mesh->ranks && !code; r++)
    if ((at = calls_differ(&h->issued[r]->log, &h->each[r])) >= 0) {
      char one[64];
      snprintf(one, sizeof one, "rank %d", r);
      code = say(h, one, &h->issued[r]->log, "its simulation", &h->each[r], at);
    }
  return code;
}

static int after_step(const ParityResult *so_far, int step, void *judge) {
  Held *h = judge;
  int streams = job_train(h->job)->program[0]->schedule->streams, steps = streams ? h->steps : 1;
  if (step + 1 < steps) return 0;
  Cluster cluster = nodes_of_four(64); // every group of ranks has a place; times do not matter
  SimulateOptions options = {.cluster = &cluster, .issue = note, .context = h};
  h->code = simulate_steps(job_train(h->job)->program, &options, steps, h->error);
  if (!h->code) h->code = compare(h);
  if (!h->code) h->code = compare_each(h, &options, steps);
  return 1;
}

int simulated_differs(const ParityCase *c, Error *error) {
  Held held = {.steps = c->steps < PARITY_GRADIENTS ? c->steps : PARITY_GRADIENTS, .code = PLAIT_FAILED,
               .error = error};
  ParityCase watched = *c;
  watched.steps = held.steps;
  watched.edit = keep_job, watched.loaded = observe, watched.context = &held;
  watched.enough = after_step, watched.judge = &held;
  ParityResult result;
  int code = parity_run(&watched, corpus_for(c->model, CORPUS_RAGGED), &result, error);
  if (!code) parity_free(&result);
  for (int r = 0; r < MOST_RANKS; r++) issued_destroy(held.issued[r]), calls_free(&held.each[r]);
  for (int i = 0; i < held.coordinates; i++) calls_free(&held.simulated[i]);
  free(held.simulated);
  return code ? code : held.code;
}
