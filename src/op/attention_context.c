// The algorithms of ATTENTION over ranks that share the sequence, and what they move. Letters as in its rule: queries
// (b, s, g, r, d), keys and values (b, t, g, d).
#include "op/attention_context.h"
#include "base/divisor.h"
#include "op/attention_ring.h"
#include <stdio.h>

static double extent(const AlgorithmCall *c, const char *letters) {
  double n = 1;
  for (; *letters; letters++) n *= (double)c->size[*letters - 'a'];
  return n;
}

// Elements of q (as of out), and of k and v together, before the ranks cut them.
static double queries(const AlgorithmCall *c) { return extent(c, "bsgrd"); }
static double keys(const AlgorithmCall *c) { return 2 * extent(c, "btgd"); }

// Keys and values are gathered, again in backward, and their gradients scattered.
static AlgorithmCost gather_cost(const AlgorithmCall *c) {
  double n = c->ranks, gathered = (n - 1) / n * keys(c);
  return (AlgorithmCost){gathered, 2 * gathered, (4 * queries(c) / n + 2 * keys(c)) * (double)c->bytes};
}

// Positions for heads, within groups of `inner` of the ranks. q and out, or their gradients, go there and back by one
// all_to_all over the ranks that shard the key heads and one over those that share them. k and v are gathered over the
// latter, again in backward, where their gradients are scattered.
static AlgorithmCost exchange_cost(const AlgorithmCall *c, double inner) {
  double n = c->ranks, heads = (double)greatest_common_divisor(c->size['g' - 'a'], (int64_t)inner),
         sharing = inner / heads;
  double q = queries(c) / n * ((heads - 1) / heads + (sharing - 1) / sharing), kv = keys(c) / n * (inner - 1) / heads;
  return (AlgorithmCost){2 * q + kv, 2 * q + kv + keys(c) / n * (sharing - 1),
                         (4 * queries(c) / n + 2 * keys(c) * inner / n / heads) * (double)c->bytes};
}

static int exchange_accepts(const AlgorithmCall *c, int inner, char *why, size_t size) {
  int64_t kv = c->size['g' - 'a'], group = c->size['r' - 'a'];
  if (group % (inner / greatest_common_divisor(kv, inner)) == 0) return 1;
  snprintf(why, size, "%d ranks do not divide %lld heads with %lld key and value heads", inner, (long long)(kv * group),
           (long long)kv);
  return 0;
}

static AlgorithmCost ulysses_cost(const AlgorithmCall *c) { return exchange_cost(c, c->ranks); }

static int ulysses_accepts(const AlgorithmCall *c, char *why, size_t size) {
  if (c->inner && c->inner != c->ranks) {
    snprintf(why, size, "only %d of the %d ranks are to exchange positions for heads", c->inner, c->ranks);
    return 0;
  }
  return exchange_accepts(c, c->ranks, why, size);
}

static int gather_accepts(const AlgorithmCall *c, char *why, size_t size) {
  if (c->inner <= 1) return 1;
  snprintf(why, size, "%d of the %d ranks are to exchange positions for heads", c->inner, c->ranks);
  return 0;
}

// Of the ranks, groups of `inner` exchange positions for heads; then each rank of a group is on a ring with those of
// the other groups that have the same heads. Blocks of keys and values go around it, in backward with their gradients.
// A rank holds four blocks of each.
static AlgorithmCost ring_cost(const AlgorithmCall *c) {
  double n = c->ranks, inner = c->inner ? c->inner : 1, rings = n / inner;
  double heads = (double)greatest_common_divisor(c->size['g' - 'a'], (int64_t)inner);
  AlgorithmCost exchange = exchange_cost(c, inner);
  double around = (rings - 1) / rings * keys(c) / heads;
  return (AlgorithmCost){exchange.forward + around, exchange.backward + 2 * around,
                         (4 * queries(c) / n + 8 * keys(c) / rings / heads) * (double)c->bytes};
}

static int ring_accepts(const AlgorithmCall *c, char *why, size_t size) {
  if (c->inner < c->ranks) return c->inner <= 1 || exchange_accepts(c, c->inner, why, size);
  snprintf(why, size, "all %d ranks are to exchange positions for heads, which leaves no ring", c->ranks);
  return 0;
}

const Algorithm attention_algorithms[ATTENTION_ALGORITHMS] = {
    {.name = ALGORITHM_GATHER, .clauses = "; whole t", .accepts = gather_accepts, .cost = gather_cost},
    {.name = ALGORITHM_ULYSSES,
     .clauses = "; whole t ; move s g r ; home 0",
     .accepts = ulysses_accepts,
     .cost = ulysses_cost},
    {.name = ALGORITHM_RING,
     .clauses = "; lower s ; tie t s ; move s g r ; home 0",
     .lower = attention_ring_lower,
     .accepts = ring_accepts,
     .cost = ring_cost},
};

const Algorithm attention_grad_algorithms[ATTENTION_ALGORITHMS] = {
    {.name = ALGORITHM_GATHER, .clauses = "; whole t ; home 1 2"},
    {.name = ALGORITHM_ULYSSES, .clauses = "; whole t ; move s g r ; home 0 1 2"},
    {.name = ALGORITHM_RING,
     .clauses = "; lower s ; tie t s ; move s g r ; home 0 1 2",
     .lower = attention_grad_ring_lower},
};
