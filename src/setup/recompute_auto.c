// Decides what auto recomputes: chains from compiled Programs, and a search that the real memory plan decides.
#include "setup/recompute_auto.h"
#include "base/fault.h"
#include "op/op.h"
#include "base/units.h"
#include "machine/chain.h"
#include "program/cost.h"
#include "program/memory.h"
#include "recipe/recipe_keys.h"
#include "setup/setup_memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 10, UNITS = 400, MODES = 3, LISTS = 64 };
static const double LITTLE = 5e-4; // a difference of times that nobody takes memory for
static const char *const mode_names[MODES] = {"keep", "selective", "full"};

// One pipeline rank.
typedef struct Rank {
  Chain chain;       // its blocks; that of stages one after the other
  int *layer;        // (blocks) of the model
  ChainSolver *solver;
  int64_t low, high; // memory of the chain with which a list fits, and with which it does not; -1: not known
  int64_t next;      // to try
  int64_t solved;    // bytes of the list that is being tried, by the chain
  bool done;
} Rank;

typedef struct Tried {
  RecomputeList list;
  int64_t *bytes;    // (ranks)
  double *seconds;   // (ranks) of a microbatch
} Tried;

typedef struct Search {
  const Recipe *recipe;
  const ModelConfig *config;
  const CompileOptions *options;
  const JobOptions *run;
  const MachineTimes *times;
  Rank *rank;
  int ranks;
  int microbatches;
  Tried tried[LISTS];
  int count;
} Search;

// Times --------------------------------------------------------------------------------------------------------------

static double node_seconds(const Search *s, const Program *p, const Node *n) {
  if (op_def(n->op)->communicates) return 0;
  OpWork work = program_work(p, n, 0);
  return machine_seconds(s->times, node_dtype(p->graph, n), &work);
}

// Measures -----------------------------------------------------------------------------------------------------------

typedef struct BlockMeasure {
  double forward, backward;             // seconds
  int64_t kept;                         // in the slot, of a microbatch
  int64_t forward_peak, backward_peak;  // in the workspace
} BlockMeasure;

// Adds up a body's times by layer, and the most that lies in the workspace while a layer runs.
static void measure_body(const Search *s, const Program *p, const Body *body, bool forward, BlockMeasure *layer) {
  LifeList lives = {0};
  const Graph *g = p->graph;
  int64_t *change = xcalloc((size_t)body->count + 2, sizeof *change), bytes = 0;
  memory_body_lives(p, body, &lives);
  for (int i = 0; i < lives.count; i++) {
    int last = lives.data[i].last < body->count ? lives.data[i].last : body->count - 1;
    change[lives.data[i].first] += lives.data[i].bytes;
    change[last + 1] -= lives.data[i].bytes;
  }
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    bytes += change[i];
    if (n->layer < 0 || n->layer >= g->layers) continue;
    BlockMeasure *m = &layer[n->layer];
    int64_t *peak = forward ? &m->forward_peak : &m->backward_peak;
    if (bytes > *peak) *peak = bytes;
    *(forward ? &m->forward : &m->backward) += node_seconds(s, p, n);
  }
  free(change);
  vec_free(&lives);
}

// (layers) of a Program; the caller frees it.
static BlockMeasure *measure_program(const Search *s, const Program *p) {
  const Graph *g = p->graph;
  BlockMeasure *layer = xcalloc((size_t)g->layers + 1, sizeof *layer);
  for EACH_PROGRAM_STAGE(stage, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      measure_body(s, p, &p->micro[stage][phase], phase == PHASE_FORWARD, layer);
  for (int t = 0; t < g->tensor.count; t++) {
    int producer = g->tensor.data[t].producer;
    const Node *n = p->place[t].area == AREA_SLOT && producer >= 0 ? &g->node.data[producer] : NULL;
    if (n && n->layer >= 0 && n->layer < g->layers && n->phase == PHASE_FORWARD && n->region == REGION_MICRO)
      layer[n->layer].kept += memory_tensor_bytes(p, &g->tensor.data[t]);
  }
  return layer;
}

// The chain of a pipeline rank, from its Programs with nothing, the cheap ops and all recomputed.
static void make_chain(const Search *s, Job *const job[MODES], int coordinate, Rank *r) {
  const Program *p = job_train(job[0])->program[coordinate];
  const Graph *g = p->graph;
  BlockMeasure *measured[MODES];
  for (int m = 0; m < MODES; m++) measured[m] = measure_program(s, job_train(job[m])->program[coordinate]);
  r->layer = xcalloc((size_t)g->layers + 1, sizeof *r->layer);
  r->chain = (Chain){.block = xcalloc((size_t)g->layers + 1, sizeof *r->chain.block), .held = true};
  for EACH_PROGRAM_STAGE(stage, p)
    for (int l = g->cut[stage]; l < g->cut[stage + 1]; l++) {
      ChainBlock *b = &r->chain.block[r->chain.blocks];
      const BlockMeasure *full = &measured[2][l];
      r->layer[r->chain.blocks++] = l;
      // Of a full block only its output is kept, which is the input of the next one.
      *b = (ChainBlock){.input = l > g->cut[stage] ? measured[2][l - 1].kept : full->kept,
                        .forward = full->forward,
                        .forward_peak = full->forward_peak,
                        .options = MODES,
                        .begins = l == g->cut[stage],
                        .slots = p->slots[stage].count > 1 ? p->slots[stage].count : 1};
      for (int m = 0; m < MODES; m++) {
        const BlockMeasure *x = &measured[m][l];
        b->option[m] = (ChainOption){.forward = x->forward,
                                     .backward = x->backward,
                                     .kept = x->kept,
                                     .forward_peak = x->forward_peak,
                                     .backward_peak = x->backward_peak};
        strcpy(b->option[m].name, mode_names[m]);
      }
      r->chain.output = full->kept;
    }
  for (int m = 0; m < MODES; m++) free(measured[m]);
}

// Lists --------------------------------------------------------------------------------------------------------------

static void add_to_list(const Rank *r, const ChainList *from, RecomputeList *to) {
  for (int i = 0; i < from->segment.count && to->segments < RECOMPUTE_SEGMENTS; i++) {
    ChainSegment x = from->segment.data[i];
    to->segment[to->segments++] = (RecomputeSegment){r->layer[x.first], r->layer[x.end - 1] + 1};
  }
  for (int i = 0; i < r->chain.blocks; i++) {
    int layer = r->layer[i];
    to->selective[layer] = from->option[i] == 1;
    if (from->option[i] == 2 && to->segments < RECOMPUTE_SEGMENTS)
      to->segment[to->segments++] = (RecomputeSegment){layer, layer + 1};
  }
}

static int outer_first(const void *a, const void *b) {
  const RecomputeSegment *x = a, *y = b;
  return x->first != y->first ? x->first - y->first : y->end - x->end;
}

static void sort_segments(RecomputeList *l) {
  if (l->segments) qsort(l->segment, (size_t)l->segments, sizeof *l->segment, outer_first);
}

static void list_of_option(const Search *s, int option, RecomputeList *list) {
  *list = (RecomputeList){.blocks = (int)s->config->layers};
  for (int i = 0; i < list->blocks; i++) {
    list->selective[i] = option == 1;
    if (option == 2) list->segment[list->segments++] = (RecomputeSegment){i, i + 1};
  }
}

// Compiling ----------------------------------------------------------------------------------------------------------

// Compiles with a list and notes what it takes. *job: NULL, or the caller wants it and destroys it.
static int try_list(Search *s, const RecomputeList *list, const double *seconds, Job **job, Error *error) {
  CompileOptions o = *s->options;
  Job *own = NULL;
  o.step.recompute = (StepRecompute){.list = *list};
  int code = job_create(s->config, &o, s->run, &own, error);
  if (code) return code;
  CHECK(s->count < LISTS);
  Tried *t = &s->tried[s->count++];
  t->list = *list;
  s->ranks = job_pipeline_ranks(own);
  t->bytes = xcalloc((size_t)s->ranks, sizeof *t->bytes);
  t->seconds = xcalloc((size_t)s->ranks, sizeof *t->seconds);
  for (int c = 0; c < s->ranks; c++) {
    t->bytes[c] = setup_rank_bytes(s->recipe, s->config, own, c);
    if (seconds) t->seconds[c] = seconds[c];
  }
  if (job) *job = own;
  else job_destroy(own);
  return PLAIT_OK;
}

static int64_t most_bytes(const Search *s, const Tried *t) {
  int64_t most = 0;
  for (int c = 0; c < s->ranks; c++) most = t->bytes[c] > most ? t->bytes[c] : most;
  return most;
}

static RecomputePoint point_of(const Search *s, const Tried *t) {
  double seconds = 0;
  for (int c = 0; c < s->ranks; c++) seconds = fmax(seconds, t->seconds[c]);
  return (RecomputePoint){.list = t->list, .bytes = most_bytes(s, t), .seconds = seconds * s->microbatches};
}

// The three modes, of which all else follows.
static int try_modes(Search *s, Error *error) {
  Job *job[MODES] = {0};
  int code = PLAIT_OK;
  for (int m = 0; m < MODES && !code; m++) {
    RecomputeList list;
    list_of_option(s, m, &list);
    code = try_list(s, &list, NULL, &job[m], error);
  }
  if (!code) {
    s->microbatches = job_train(job[0])->shares.microbatches;
    s->rank = xcalloc((size_t)s->ranks, sizeof *s->rank);
    for (int c = 0; c < s->ranks; c++) {
      Rank *r = &s->rank[c];
      make_chain(s, job, c, r);
      *r = (Rank){.chain = r->chain, .layer = r->layer, .low = -1, .high = -1};
      for (int m = 0; m < MODES; m++)
        for (int i = 0; i < r->chain.blocks; i++)
          s->tried[m].seconds[c] += r->chain.block[i].option[m].forward + r->chain.block[i].option[m].backward;
    }
  }
  for (int m = 0; m < MODES; m++) job_destroy(job[m]);
  return code;
}

// The fastest lists of all ranks by their chains, with `next` bytes each, or the least that one has.
static void solve(Search *s, RecomputeList *list, double *seconds) {
  *list = (RecomputeList){.blocks = (int)s->config->layers};
  for (int c = 0; c < s->ranks; c++) {
    Rank *r = &s->rank[c];
    ChainList found;
    seconds[c] = 0;
    if (!r->solver) continue;
    if (!chain_solve(r->solver, r->next, &found)) {
      r->next = chain_least_bytes(r->solver);
      CHECK(chain_solve(r->solver, r->next, &found), "a chain without a list");
    }
    r->solved = found.bytes;
    seconds[c] = found.seconds;
    add_to_list(r, &found, list);
    chain_list_free(&found);
  }
  sort_segments(list);
}

static int known(const Search *s, const RecomputeList *list) {
  for (int i = 0; i < s->count; i++)
    if (!memcmp(&s->tried[i].list, list, sizeof *list)) return i;
  return -1;
}

static int try_next(Search *s, int *tried, Error *error) {
  RecomputeList *list = xcalloc(1, sizeof *list);
  double *seconds = xcalloc((size_t)s->ranks, sizeof *seconds);
  solve(s, list, seconds);
  int code = PLAIT_OK;
  if ((*tried = known(s, list)) < 0) {
    code = try_list(s, list, seconds, NULL, error);
    *tried = s->count - 1;
  }
  free(list), free(seconds);
  return code;
}

// The chain's bytes of a list that was tried differ from the plan's by what no list changes, about.
static void narrow(Search *s, const Tried *t) {
  int64_t memory = s->recipe->parallel.memory;
  for (int c = 0; c < s->ranks; c++) {
    Rank *r = &s->rank[c];
    if (r->done || !r->solver) continue;
    int64_t left = memory - t->bytes[c], next = r->solved + left, most = chain_most_bytes(&r->chain);
    if (left >= 0 && r->next > r->low) r->low = r->next;
    if (left < 0 && (r->high < 0 || r->next < r->high)) r->high = r->next;
    if (next > most) next = most;
    if (r->high >= 0 && next >= r->high) next = r->low >= 0 ? r->low + (r->high - r->low) / 2 : r->high - most / UNITS;
    if (next <= r->low) next = r->high >= 0 ? r->low + (r->high - r->low) / 2 : r->low + most / UNITS;
    r->done = next < 0 || next >= most + most / UNITS || llabs(next - r->next) <= most / UNITS / 2;
    if (!r->done) r->next = next;
  }
}

// Chains whose memory is held, or given back while backward runs, as far as the plan can: where one microbatch is there
// at a time. Returns whether any chain is another one now.
static bool hold_chains(Search *s, bool held) {
  bool any = false;
  for (int c = 0; c < s->ranks; c++) {
    Rank *r = &s->rank[c];
    bool alone = true;
    for (int i = 0; i < r->chain.blocks; i++) alone &= r->chain.block[i].slots == 1;
    any |= r->chain.blocks && (held || alone);
    if (!r->chain.blocks || (!held && !alone)) continue;
    r->chain.held = held;
    chain_solver_free(r->solver);
    r->solver = chain_solver_create(&r->chain, chain_most_bytes(&r->chain), UNITS);
    r->low = r->high = -1;
    r->done = false;
  }
  return any;
}

static int search_chains(Search *s, Error *error) {
  int code = PLAIT_OK;
  for (int c = 0; c < s->ranks; c++) { // as if the plan were the chain's but for a constant
    Rank *r = &s->rank[c];
    ChainList kept = {.option = xcalloc((size_t)r->chain.blocks + 1, sizeof *kept.option)};
    if (r->solver) chain_measure(&r->chain, &kept);
    r->next = kept.bytes + s->recipe->parallel.memory - s->tried[0].bytes[c];
    chain_list_free(&kept);
  }
  for (int round = 0, open = 1; round < ROUNDS && open && !code; round++) {
    int tried;
    code = try_next(s, &tried, error);
    if (code) break;
    narrow(s, &s->tried[tried]);
    open = 0;
    for (int c = 0; c < s->ranks; c++) open |= s->rank[c].solver && !s->rank[c].done;
  }
  if (code) return code;
  for (int c = 0; c < s->ranks; c++) s->rank[c].next = 0; // the least that the chains have
  int tried;
  return try_next(s, &tried, error);
}

// Whichever chains describe the plan better: its bytes decide.
static int search(Search *s, Error *error) {
  int code = try_modes(s, error);
  for (int held = 1; held >= 0 && !code; held--)
    if (hold_chains(s, held)) code = search_chains(s, error);
  return code;
}

// Of each rank the fastest part of any list that fits. Where all fit in one list, that is it.
static int choose(const Search *s) {
  int best = -1;
  for (int i = 0; i < s->count; i++) {
    if (FAULT(budget_is_ignored, most_bytes(s, &s->tried[i]), 0) > s->recipe->parallel.memory) continue;
    RecomputePoint a = point_of(s, &s->tried[i]), b = best < 0 ? a : point_of(s, &s->tried[best]);
    if (best < 0 || a.seconds < b.seconds || (a.seconds <= b.seconds && a.bytes < b.bytes)) best = i;
  }
  return best;
}

static int least_of(const Search *s) {
  int least = 0;
  for (int i = 1; i < s->count; i++)
    if (most_bytes(s, &s->tried[i]) < most_bytes(s, &s->tried[least])) least = i;
  return least;
}

// Lists that leave ranks between the least and the most that they can use.
static int try_frontier(Search *s, Error *error) {
  int code = PLAIT_OK;
  hold_chains(s, true);
  for (int i = 1; i < RECOMPUTE_POINTS - 1 && !code && s->count < LISTS; i++) {
    int tried;
    for (int c = 0; c < s->ranks; c++) {
      Rank *r = &s->rank[c];
      int64_t least = r->solver ? chain_least_bytes(r->solver) : 0, most = r->solver ? chain_most_bytes(&r->chain) : 0;
      r->next = least > 0 ? (int64_t)((double)least * pow((double)most / (double)least, i / (RECOMPUTE_POINTS - 1.0)))
                          : most * i / (RECOMPUTE_POINTS - 1);
    }
    code = try_next(s, &tried, error);
  }
  return code;
}

// Of all that was tried what nothing else beats in both, thinned out to as many as there is room for.
static void fill_points(const Search *s, RecomputeChoice *choice) {
  RecomputePoint *point = xcalloc((size_t)s->count, sizeof *point);
  int n = 0;
  for (int i = 0; i < s->count; i++) {
    RecomputePoint p = point_of(s, &s->tried[i]);
    bool beaten = false;
    for (int k = 0; k < s->count && !beaten; k++) {
      RecomputePoint other = point_of(s, &s->tried[k]);
      beaten = (other.bytes <= p.bytes && other.seconds < p.seconds) ||
               (other.bytes < p.bytes && other.seconds <= p.seconds * (1 + LITTLE)) ||
               (k < i && other.bytes == p.bytes && other.seconds <= p.seconds);
    }
    if (beaten) continue;
    int at = n++;
    while (at > 0 && point[at - 1].bytes > p.bytes) point[at] = point[at - 1], at--;
    point[at] = p;
  }
  choice->points = n < RECOMPUTE_POINTS ? n : RECOMPUTE_POINTS;
  for (int i = 0; i < choice->points; i++)
    choice->point[i] = point[choice->points > 1 ? i * (n - 1) / (choice->points - 1) : 0];
  free(point);
}

// The largest part of a rank's memory beside activations.
static void largest_need(const Search *s, const Tried *t, char *text, size_t size) {
  CompileOptions o = *s->options;
  Job *job = NULL;
  Error ignored = {0};
  text[0] = 0;
  o.step.recompute.list = t->list;
  if (job_create(s->config, &o, s->run, &job, &ignored)) return;
  int most = 0;
  for (int c = 1; c < s->ranks; c++)
    if (t->bytes[c] > t->bytes[most]) most = c;
  const MemoryPlan *m = &job_train(job)->program[most]->memory;
  const struct { const char *name; int64_t bytes; } part[] = {
      {"parameters", m->parameters}, {"gradients", m->gradients},     {"the optimizer", m->optimizer},
      {"activations", m->activations}, {"the workspace", m->workspace}, {"older weights", m->versions},
      {"communication", m->communication}};
  int largest = 0;
  for (int i = 1; i < 7; i++)
    if (part[i].bytes > part[largest].bytes) largest = i;
  snprintf(text, size, ", of which %s take%s %s", part[largest].name, strchr("pga", part[largest].name[0]) ? "" : "s",
           units_bytes((double)part[largest].bytes).s);
  job_destroy(job);
}

static int refuse(const Search *s, Error *error) {
  const Tried *least = &s->tried[least_of(s)];
  char need[96];
  largest_need(s, least, need, sizeof need);
  char *list = recompute_list_text(&least->list), *asked = recipe_value_text(s->recipe, "parallel.memory");
  int64_t bytes = most_bytes(s, least);
  error_set(error, PLAIT_INFEASIBLE,
            "%sparallel.memory is %s, but a rank needs at least %lld bytes (%s)%s, with parallel.recompute "
            "[%.200s]; with nothing recomputed it needs %s",
            recipe_where(s->recipe, "parallel.memory"), asked, (long long)bytes, units_bytes((double)bytes).s, need,
            list, units_bytes((double)most_bytes(s, &s->tried[0])).s);
  free(list), free(asked);
  return PLAIT_INFEASIBLE;
}

static void free_search(Search *s) {
  for (int c = 0; s->rank && c < s->ranks; c++) {
    chain_solver_free(s->rank[c].solver);
    free(s->rank[c].chain.block), free(s->rank[c].layer);
  }
  for (int i = 0; i < s->count; i++) free(s->tried[i].bytes), free(s->tried[i].seconds);
  free(s->rank);
  free(s);
}

int recompute_auto(const Recipe *recipe, const ModelConfig *config, const MachineTimes *times,
                   CompileOptions *options, const JobOptions *run, RecomputeChoice *choice, Error *error) {
  Search *s = xcalloc(1, sizeof *s);
  *s = (Search){.recipe = recipe, .config = config, .options = options, .run = run, .times = times};
  int code = PLAIT_OK;
  if (config->layers > RECOMPUTE_BLOCKS)
    code = error_set(error, PLAIT_BAD_INPUT, "%sparallel.recompute is auto, which takes at most %d blocks, not %lld",
                     recipe_where(recipe, "parallel.recompute"), RECOMPUTE_BLOCKS, (long long)config->layers);
  if (!code) code = search(s, error);
  int best = code ? -1 : choose(s);
  if (!code && choice) code = try_frontier(s, error);
  if (!code && best < 0) best = choose(s); // the frontier may have one
  if (!code && best < 0) code = refuse(s, error);
  if (!code && choice) {
    *choice = (RecomputeChoice){.chosen = point_of(s, &s->tried[best]),
                                .kept = point_of(s, &s->tried[0]),
                                .least = point_of(s, &s->tried[least_of(s)]),
                                .by_seconds = s->times->cluster != NULL};
    fill_points(s, choice);
  }
  if (!code) options->step.recompute.list = s->tried[best].list;
  free_search(s);
  return code;
}
