// The dynamic programme for chains of blocks, and the walk that measures a list.
//
// Opt(s, t, M) is the least time of the blocks s … t forward and backward within M bytes beside the input of s:
//   min over k of  Σ F_i (s ≤ i < k) + Opt(k, t, M − a_k) + Opt(s, k − 1, M)   a segment runs again from its input
//   min over o of  F_s^o + Opt(s + 1, t, M − ā_s^o) + B_s^o                    block s keeps what option o keeps
// With slots, tensors that the list keeps outside of segments have a separate place for each microbatch, which nothing
// takes while backward runs: the rest of the memory, W, is what any one element may need for itself.
#include "machine/chain.h"
#include "base/fault.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_STEPS = 128 };         // budgets of slots that are tried
enum { MOST_ENTRIES = 1 << 25 };   // of the table

// Sizes in units, rounded up. A choice above 0 is the length of a segment, one of 0 or below an option, negated.
struct ChainSolver {
  const Chain *chain;
  int units;       // of the solver's memory
  int64_t memory;
  int *size;       // (blocks + 1) of inputs, the last one of the chain's output
  int *forward_peak; // (blocks)
  int (*kept)[CHAIN_OPTIONS], (*peak)[CHAIN_OPTIONS]; // peak: of forward and backward, the larger
  int (*held)[CHAIN_OPTIONS]; // of all slots together
  int *held_output;           // (blocks) the same of a block's output alone
  int *reach;                 // (blocks) the end of the longest segment from here
  double *until;   // (blocks + 1) seconds of forward before a block
  double *best;    // (pairs s ≤ t, units + 1)
  int16_t *choice; // likewise
};

static int64_t output_of(const Chain *c, int block) {
  return block + 1 < c->blocks ? c->block[block + 1].input : c->output;
}

static int slots_of(const ChainBlock *b) { return b->slots > 1 ? b->slots : 1; }

static int in_units(const ChainSolver *v, int64_t bytes) {
  if (bytes <= 0) return 0;
  double units = ceil((double)bytes * v->units / (double)v->memory - 1e-9);
  return units > v->units ? v->units + 1 : (int)units;
}

static size_t pair(const ChainSolver *v, int s, int t) {
  return ((size_t)s * (size_t)(2 * v->chain->blocks - s - 1) / 2 + (size_t)t) * (size_t)(v->units + 1);
}

// Memory, beside the input of s, for running the blocks s … k − 1 without keeping anything. own: with its output.
static int run_peak(const ChainSolver *v, int s, int k, bool own) {
  int most = 0;
  for (int i = s; i < k; i++) {
    int bytes = (i > s ? v->size[i] : 0) + (i + 1 < k || own ? v->size[i + 1] : 0) + v->forward_peak[i];
    if (FAULT(segments_run_in_no_memory, bytes, 0) > most) most = bytes;
  }
  return most;
}

static void solve_pair(ChainSolver *v, int s, int t, int *run) {
  const ChainBlock *b = &v->chain->block[s];
  double *best = v->best + pair(v, s, t);
  int16_t *choice = v->choice + pair(v, s, t);
  int reach = v->reach[s] < t ? v->reach[s] : t;
  for (int k = s + 1; k <= reach; k++) run[k] = run_peak(v, s, k, true);
  for (int m = 0; m <= v->units; m++) {
    best[m] = INFINITY;
    for (int o = 0; o < b->options; o++) {
      int left = m - v->kept[s][o];
      if (left < v->peak[s][o]) continue;
      double seconds =
          b->option[o].forward + b->option[o].backward + (s < t ? v->best[pair(v, s + 1, t) + (size_t)left] : 0);
      if (seconds < best[m]) best[m] = seconds, choice[m] = (int16_t)-o;
    }
    for (int k = s + 1; k <= reach; k++) {
      int left = m - v->size[k];
      if (left < 0 || m < run[k]) continue;
      double seconds = v->until[k] - v->until[s] + v->best[pair(v, k, t) + (size_t)left] +
                       v->best[pair(v, s, k - 1) + (size_t)m];
      if (seconds < best[m]) best[m] = seconds, choice[m] = (int16_t)(k - s);
    }
  }
}

ChainSolver *chain_solver_create(const Chain *chain, int64_t memory, int units) {
  int n = chain->blocks, *run;
  size_t pairs = (size_t)n * (size_t)(n + 1) / 2;
  CHECK(n > 0 && n <= CHAIN_BLOCKS && memory >= 0 && units > 0);
  ChainSolver *v = xcalloc(1, sizeof *v);
  while (units > 16 && pairs * (size_t)units > MOST_ENTRIES) units /= 2;
  v->chain = chain;
  v->memory = memory > 0 ? memory : 1;
  v->units = v->memory < units ? (int)v->memory : units;
  v->size = xcalloc((size_t)n + 1, sizeof *v->size);
  v->forward_peak = xcalloc((size_t)n, sizeof *v->forward_peak);
  v->kept = xcalloc((size_t)n, sizeof *v->kept);
  v->peak = xcalloc((size_t)n, sizeof *v->peak);
  v->until = xcalloc((size_t)n + 1, sizeof *v->until);
  v->held = xcalloc((size_t)n, sizeof *v->held);
  v->held_output = xcalloc((size_t)n, sizeof *v->held_output);
  v->reach = xcalloc((size_t)n, sizeof *v->reach);
  for (int i = n - 1; i >= 0; i--) {
    v->reach[i] = i + 1 == n || chain->block[i + 1].begins ? i + 1 : v->reach[i + 1];
    v->held_output[i] = in_units(v, output_of(chain, i) * slots_of(&chain->block[i]));
  }
  for (int i = 0; i < n; i++) {
    const ChainBlock *b = &chain->block[i];
    CHECK(b->options > 0 && b->options <= CHAIN_OPTIONS);
    v->size[i] = in_units(v, b->input);
    v->forward_peak[i] = in_units(v, b->forward_peak);
    v->until[i + 1] = v->until[i] + b->forward;
    for (int o = 0; o < b->options; o++) {
      const ChainOption *p = &b->option[o];
      v->kept[i][o] = in_units(v, p->kept);
      v->held[i][o] = in_units(v, p->kept * slots_of(b));
      v->peak[i][o] = in_units(v, p->forward_peak > p->backward_peak ? p->forward_peak : p->backward_peak);
    }
  }
  v->size[n] = in_units(v, chain->output);
  v->best = xcalloc(pairs * (size_t)(v->units + 1), sizeof *v->best);
  v->choice = xcalloc(pairs * (size_t)(v->units + 1), sizeof *v->choice);
  run = xcalloc((size_t)n + 1, sizeof *run);
  for (int length = 0; length < n; length++)
    for (int s = 0; s + length < n; s++) solve_pair(v, s, s + length, run);
  free(run);
  return v;
}

void chain_solver_free(ChainSolver *v) {
  if (!v) return;
  free(v->held), free(v->held_output), free(v->reach);
  free(v->size), free(v->forward_peak), free(v->kept), free(v->peak), free(v->until), free(v->best), free(v->choice);
  free(v);
}

static void trace(const ChainSolver *v, int s, int t, int m, ChainList *out) {
  while (s <= t) {
    int choice = v->choice[pair(v, s, t) + (size_t)m];
    if (choice > 0) {
      chain_list_add_segment(out, s, s + choice);
      trace(v, s, s + choice - 1, m, out);
      s += choice;
      m -= v->size[s];
    } else {
      out->option[s] = -choice;
      m -= v->kept[s][-choice];
      s++;
    }
  }
}

// With `slot` units for what is held and `room` for any one element: per block and what is left of the slot. Returns
// the least seconds.
static double solve_slots(const ChainSolver *v, int slot, int room, double *best, int16_t *choice) {
  const Chain *c = v->chain;
  int n = c->blocks, width = slot + 1;
  for (int q = 0; q <= slot; q++) best[n * width + q] = 0;
  for (int s = n - 1; s >= 0; s--) {
    const ChainBlock *b = &c->block[s];
    double *to = best + s * width;
    for (int q = 0; q <= slot; q++) to[q] = INFINITY;
    for (int o = 0; o < b->options; o++)
      for (int q = v->held[s][o]; q <= slot && v->peak[s][o] <= room; q++) {
        double seconds = b->option[o].forward + b->option[o].backward + best[(s + 1) * width + q - v->held[s][o]];
        if (seconds < to[q]) to[q] = seconds, choice[s * width + q] = (int16_t)-o;
      }
    for (int k = s + 1; k <= v->reach[s]; k++) {
      double inner = v->until[k] - v->until[s] + v->best[pair(v, s, k - 1) + (size_t)room];
      if (inner == INFINITY || run_peak(v, s, k, false) > room) continue;
      for (int q = v->held_output[k - 1]; q <= slot; q++) {
        double seconds = inner + best[k * width + q - v->held_output[k - 1]];
        if (seconds < to[q]) to[q] = seconds, choice[s * width + q] = (int16_t)(k - s);
      }
    }
  }
  return best[slot];
}

static bool solve_with_slots(const ChainSolver *v, int m, ChainList *out) {
  int n = v->chain->blocks, most = m, step = most / SLOT_STEPS + 1, found = -1;
  double least = INFINITY, *best = xcalloc((size_t)(n + 1) * (size_t)(most + 1), sizeof *best);
  int16_t *choice = xcalloc((size_t)(n + 1) * (size_t)(most + 1), sizeof *choice);
  for (int slot = most; slot >= 0; slot -= step) {
    double seconds = solve_slots(v, slot, m - slot, best, choice);
    if (seconds < least) least = seconds, found = slot;
  }
  if (found >= 0) {
    int room = m - found, width = found + 1;
    solve_slots(v, found, room, best, choice);
    for (int s = 0, q = found; s < n;) {
      int chosen = choice[s * width + q];
      if (chosen > 0) {
        chain_list_add_segment(out, s, s + chosen);
        trace(v, s, s + chosen - 1, room, out);
        s += chosen;
        q -= v->held_output[s - 1];
      } else {
        out->option[s] = -chosen;
        q -= v->held[s][-chosen];
        s++;
      }
    }
  }
  free(best), free(choice);
  return found >= 0;
}

bool chain_solve(const ChainSolver *v, int64_t memory, ChainList *out) {
  int n = v->chain->blocks, m = memory >= v->memory ? v->units : (int)((double)memory * v->units / (double)v->memory);
  *out = (ChainList){.option = xcalloc((size_t)n, sizeof *out->option)};
  bool found = memory >= 0;
  if (found && v->chain->held) found = solve_with_slots(v, m, out);
  else if (found && (found = v->best[pair(v, 0, n - 1) + (size_t)m] < INFINITY)) trace(v, 0, n - 1, m, out);
  if (found) chain_measure(v->chain, out);
  else chain_list_free(out);
  return found;
}

// Lists --------------------------------------------------------------------------------------------------------------

void chain_list_free(ChainList *list) {
  free(list->option);
  list->option = NULL;
  vec_free(&list->segment);
}

void chain_list_add_segment(ChainList *list, int first, int end) {
  vec_push(&list->segment, (ChainSegment){first, end});
  for (int i = list->segment.count - 1; i > 0; i--) {
    ChainSegment *a = &list->segment.data[i - 1], *b = &list->segment.data[i], swap = *a;
    if (a->first < b->first || (a->first == b->first && a->end >= b->end)) break;
    *a = *b;
    *b = swap;
  }
}

typedef struct Walk {
  const Chain *chain;
  const ChainList *list;
  double seconds;
  int64_t most;
} Walk;

static int64_t input_of(const Chain *c, int block) { return block < c->blocks ? c->block[block].input : c->output; }

static void need(Walk *w, int64_t bytes) {
  if (bytes > w->most) w->most = bytes;
}

// Runs a segment without keeping anything, beside `held` bytes. own: its output counts here.
static void run_segment(Walk *w, int first, int end, int64_t held, bool own) {
  const Chain *c = w->chain;
  for (int i = first; i < end; i++) {
    int64_t output = i + 1 < end || own ? input_of(c, i + 1) : 0;
    need(w, held + (i > first ? c->block[i].input : 0) + output + c->block[i].forward_peak);
    w->seconds += c->block[i].forward;
  }
}

// The element of a list at a block, of the segments from number *next on: its end. segment: whether it is one; *next
// moves past it and the segments in it.
static int element(const ChainList *l, int block, int end, int *next, bool *segment) {
  while (*next < l->segment.count && l->segment.data[*next].first < block) ++*next;
  *segment = *next < l->segment.count && l->segment.data[*next].first == block && l->segment.data[*next].end <= end;
  if (!*segment) return block + 1;
  return l->segment.data[(*next)++].end;
}

// Forward and backward of blocks first … end − 1 beside `held` bytes; next: the first of the segments inside.
static void walk(Walk *w, int first, int end, int next, int64_t held) {
  if (first >= end) return;
  const Chain *c = w->chain;
  bool segment;
  int inside = next, after = element(w->list, first, end, &inside, &segment);
  if (segment) {
    run_segment(w, first, after, held, true);
    walk(w, after, end, inside, held + input_of(c, after));
    walk(w, first, after, inside, held);
    return;
  }
  const ChainOption *o = &c->block[first].option[w->list->option[first]];
  need(w, held + o->kept + o->forward_peak);
  walk(w, after, end, inside, held + o->kept);
  need(w, held + o->kept + o->backward_peak);
  w->seconds += o->forward + o->backward;
}

void chain_measure(const Chain *c, ChainList *list) {
  Walk w = {.chain = c, .list = list};
  int64_t slot = 0;
  if (!c->held) walk(&w, 0, c->blocks, 0, 0);
  for (int i = 0, next = 0, after; c->held && i < c->blocks; i = after) {
    bool segment;
    after = element(list, i, c->blocks, &next, &segment);
    if (segment) {
      run_segment(&w, i, after, 0, false);
      walk(&w, i, after, next, 0);
      slot += input_of(c, after) * slots_of(&c->block[after - 1]);
    } else {
      const ChainOption *o = &c->block[i].option[list->option[i]];
      need(&w, o->forward_peak > o->backward_peak ? o->forward_peak : o->backward_peak);
      w.seconds += o->forward + o->backward;
      slot += o->kept * slots_of(&c->block[i]);
    }
  }
  list->seconds = w.seconds;
  list->bytes = w.most + slot;
}

double chain_least_seconds(const Chain *c) {
  double seconds = 0;
  for (int i = 0; i < c->blocks; i++) {
    double least = INFINITY;
    for (int o = 0; o < c->block[i].options; o++)
      least = fmin(least, c->block[i].option[o].forward + c->block[i].option[o].backward);
    seconds += least;
  }
  return seconds;
}

int64_t chain_most_bytes(const Chain *c) {
  int64_t kept = 0, peak = 0;
  for (int i = 0; i < c->blocks; i++) {
    int64_t most = 0;
    for (int o = 0; o < c->block[i].options; o++) {
      const ChainOption *p = &c->block[i].option[o];
      int64_t own = p->forward_peak > p->backward_peak ? p->forward_peak : p->backward_peak;
      if (p->kept > most) most = p->kept;
      if (own > peak) peak = own;
    }
    if (c->block[i].forward_peak > peak) peak = c->block[i].forward_peak;
    kept += most * slots_of(&c->block[i]);
  }
  return kept + peak + c->output;
}

int64_t chain_least_bytes(const ChainSolver *v) {
  int64_t low = -1, high = v->memory; // by halves: more memory never makes it impossible
  ChainList list;
  if (!chain_solve(v, high, &list)) return -1;
  chain_list_free(&list);
  while (low + 1 < high) {
    int64_t middle = low + (high - low) / 2;
    if (chain_solve(v, middle, &list)) high = middle, chain_list_free(&list);
    else low = middle;
  }
  return high;
}
