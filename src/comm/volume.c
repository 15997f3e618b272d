// Bytes that collectives move, rank by rank.
#include "comm/volume.h"
#include "base/fault.h"

static double element(const CommShape *s) { return (double)comm_dtype_size(s->dtype); }
static double given(const CommShape *s) { return s->elements * element(s); } // bytes of the call's count

static ReduceRanges ranges_of(const CommShape *s) {
  return reduce_ranges(s->kind, s->ranks.n, s->root, comm_dtype_size(s->dtype), (size_t)s->elements);
}

static int group_of(const CommShape *s) {
  if (s->by != COMM_BY_PROCESSES) return 0;
  if (s->kind == COMM_ALL_GATHER) return gather_group(s->ranks, (size_t)given(s) * (size_t)s->ranks.n);
  int parts = s->kind == COMM_REDUCE_SCATTER ? s->ranks.n : 1;
  return comm_traits[s->kind].reduces ? chain_group(s->ranks, s->kind, s->dtype, (size_t)given(s) * (size_t)parts) : 0;
}

static ChainRanges chain_of(const CommShape *s, int group) {
  return chain_ranges(s->kind, s->ranks.n, group, comm_dtype_size(s->dtype), comm_wide_size(s->dtype),
                      (size_t)s->elements);
}

// Inputs to whoever reduces them, then results to those who want them.
static double reduced(const CommShape *s, int from, int to) {
  ReduceRanges r = ranges_of(s);
  int shares = !r.one_hop && (s->kind == COMM_ALL_REDUCE || (s->kind == COMM_REDUCE && to == s->root));
  double inputs = (double)reduce_range_all(&r, to),
         results = shares ? FAULT(results_are_not_counted, (double)reduce_range_all(&r, from), 0) : 0;
  return (inputs + results) * element(s);
}

static double chained(const CommShape *s, int group, int from, int to) {
  ChainRanges r = chain_of(s, group);
  int g = from / group, other = to / group, lane = from % group, last = r.groups - 1;
  double own = (double)chain_range_all(&r, lane), part = (double)r.total;
  if (g == other)
    return ((double)chain_range_all(&r, to % group) + (r.scatters ? 0 : own)) * (double)r.size; // inputs and results
  if (lane != to % group) return 0;
  double wide = (double)FAULT(sums_of_chains_travel_narrow, r.wide, r.size);
  double sums = other == g + 1 ? own * wide : 0, results = 0;
  if (r.scatters) results = g == last ? part : 0;
  else results = other == g - 1 ? own : 0;
  return sums + results * (double)r.size;
}

// Each part crosses to a group once, and is given to its others there.
static double gathered(const CommShape *s, int group, int from, int to) {
  if (from / group == to / group) return given(s) * s->ranks.n / group;
  return from % group == to % group ? given(s) : 0;
}

static double broadcast(const CommShape *s, int from, int to) {
  size_t bytes = (size_t)given(s), low, high, root_low, root_high;
  int n = s->ranks.n;
  if (broadcast_is_tree(n, bytes)) return broadcast_parent(n, s->root, to) == from ? given(s) : 0;
  if (to == s->root) return 0;
  broadcast_share(n, bytes, from == s->root ? to : from, &low, &high);
  broadcast_share(n, bytes, s->root, &root_low, &root_high);
  return (double)(high - low) + (from == s->root ? (double)(root_high - root_low) : 0);
}

static double by_ring(const CommShape *s, int from, int to) {
  double n = s->ranks.n;
  if (to != comm_around(from, 1, s->ranks.n)) return 0;
  switch (s->kind) {
  case COMM_ALL_REDUCE: return 2 * FAULT(ring_moves_the_whole, (n - 1) / n, 1) * given(s);
  case COMM_REDUCE: return from == s->root ? 0 : given(s);
  case COMM_BROADCAST: return to == s->root ? 0 : given(s);
  default: return (n - 1) * given(s); // all_gather, reduce_scatter: of parts
  }
}

double comm_volume(const CommShape *s, int from, int to) {
  int group = group_of(s);
  if (from == to) return 0;
  switch (s->kind) {
  case COMM_GATHER: return to == s->root ? given(s) : 0;
  case COMM_SCATTER: return from == s->root ? given(s) : 0;
  case COMM_ALL_TO_ALL:
  case COMM_ALL_GATHER_V:
  case COMM_ALL_TO_ALL_V: return given(s);
  case COMM_SHIFT: return to == comm_around(from, s->root, s->ranks.n) ? given(s) : 0;
  case COMM_SEND:
  case COMM_RECV:
  case COMM_BARRIER:
  case COMM_KIND_COUNT: return 0;
  default: break;
  }
  if (s->by == COMM_BY_RING) return by_ring(s, from, to);
  if (s->kind == COMM_BROADCAST) return broadcast(s, from, to);
  if (s->kind == COMM_ALL_GATHER) return group ? gathered(s, group, from, to) : given(s);
  return group ? chained(s, group, from, to) : reduced(s, from, to);
}

CommVolume comm_volume_of(const CommShape *s, int rank) {
  CommVolume v = {0};
  for (int p = 0; p < s->ranks.n; p++) {
    v.sent += comm_volume(s, rank, p);
    v.received += comm_volume(s, p, rank);
  }
  return v;
}

static double chained_mean(const CommShape *s, int group) {
  ChainRanges r = chain_of(s, group);
  double whole = (double)r.total * (r.scatters ? s->ranks.n : 1), hops = r.groups - 1, // elements of the row
         inside = r.groups * (group - 1.0) * whole * (r.scatters ? 1 : 2), sums = hops * whole,
         results = r.scatters ? hops * group * (double)r.total : hops * whole;
  return ((inside + results) * (double)r.size + sums * (double)r.wide) / s->ranks.n;
}

static double reduced_mean(const CommShape *s) {
  ReduceRanges r = ranges_of(s);
  double n = s->ranks.n, all = (double)r.total;
  if (s->kind == COMM_REDUCE_SCATTER) return (n - 1) * given(s);
  if (s->kind == COMM_ALL_REDUCE) return (r.one_hop ? n - 1 : 2 * (n - 1) / n) * given(s);
  return ((n - 1) * all + all - (double)reduce_range_all(&r, s->root)) / n * element(s);
}

double comm_volume_mean(const CommShape *s) {
  double n = s->ranks.n;
  int group = group_of(s);
  switch (s->kind) {
  case COMM_BROADCAST: return (n - 1) / n * given(s);
  case COMM_GATHER:
  case COMM_SCATTER: return (n - 1) / n * given(s);
  case COMM_ALL_TO_ALL:
  case COMM_ALL_GATHER_V:
  case COMM_ALL_TO_ALL_V: return (n - 1) * given(s);
  case COMM_ALL_GATHER: // in groups each rank sends more parts to those of its own group, and fewer to others
    return (n - 1) * given(s);
  case COMM_SHIFT: return comm_around(0, s->root, s->ranks.n) ? given(s) : 0;
  case COMM_ALL_REDUCE:
  case COMM_REDUCE_SCATTER:
  case COMM_REDUCE: break;
  default: return 0;
  }
  if (s->by == COMM_BY_PROCESSES) return group ? chained_mean(s, group) : reduced_mean(s);
  return s->kind == COMM_ALL_REDUCE ? 2 * (n - 1) / n * given(s)
         : s->kind == COMM_REDUCE   ? (n - 1) / n * given(s)
                                    : (n - 1) * given(s);
}
