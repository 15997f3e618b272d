// Patterns and ranges of collectives of processes.
#include "comm/ranges.h"
#include "base/fault.h"

enum {
  CHAIN_BYTES = 1 << 20, // a chain of machines from so many bytes on, measured (docs/attempts.md): shorter calls
                         // wait for the hops of a chain longer than for bytes
  ONE_HOP_BYTES = 8192, // up to this everybody who wants the result of a reduction gets all ranks' elements
  CHUNK_BYTES = 2 << 20,
  LEAST_SHARE = 65536,
  CHAIN_SHARE = 1 << 18,
  LEAST_CHAIN_SHARE = 1 << 13, // bytes of a rank's range of a chunk of a chain
  TREE_BYTES = 65536           // a broadcast up to this goes down a tree
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Patterns ----------------------------------------------------------------------------------------------------------

// Bytes that leave a machine, for each byte of a rank: directly, each of its ranks sends every rank elsewhere an n-th,
// and an n-th of the results. Along the chain the sums go one way, the results back; where there are two machines the
// first sends sums and the second results. Links carry both ways at once.
// Of reduce_scatter the sums go one way, too, and the last machine gives the results; no others are sent.
static int chain_saves(CommKind kind, int n, int group, double wide) {
  int machines = n / group;
  if (kind == COMM_REDUCE_SCATTER) return wide < (double)group * (n - group) / n;
  double direct = 2.0 * group * (n - group) / n, chain = machines == 2 ? wide : 1 + wide;
  return chain < direct;
}

int chain_group(Patterned r, CommKind kind, PlaitDtype dtype, size_t bytes) {
  if (kind == COMM_REDUCE || !bytes) return 0;
  if (r.chain > 0 && r.chain < r.n && r.n % r.chain == 0) return r.chain;
  if (r.chain || r.machine < 2 || bytes < CHAIN_BYTES) return 0;
  double wide = (double)comm_wide_size(dtype) / (double)comm_dtype_size(dtype);
  return chain_saves(kind, r.n, r.machine, wide) ? r.machine : 0;
}

int gather_group(Patterned r, size_t bytes) {
  if (r.chain > 0 && r.chain < r.n && r.n % r.chain == 0 && bytes) return r.chain;
  return r.chain || bytes < CHAIN_BYTES || r.machine < 2 ? 0 : r.machine;
}

// Direct exchange ---------------------------------------------------------------------------------------------------

// Up to ONE_HOP_BYTES everybody who wants the result gets all ranks' elements. Two ranks reduce straight to the root:
// by ranges the other one would send it all elements as well, and wait for it. With more ranks a root that receives all
// would take up to n/2 times as long.
static int takes_one_hop(CommKind kind, int n, size_t bytes) {
  if (kind == COMM_REDUCE && FAULT(two_ranks_reduce_by_ranges, n == 2, 0)) return 1;
  return kind != COMM_REDUCE_SCATTER && bytes <= ONE_HOP_BYTES;
}

ReduceRanges reduce_ranges(CommKind kind, int n, int root, size_t size, size_t total) {
  size_t ranks = (size_t)n, share = CHUNK_BYTES / ranks > LEAST_SHARE ? CHUNK_BYTES / ranks : LEAST_SHARE;
  ReduceRanges r = {.kind = kind, .n = n, .root = root, .size = size, .total = total, .share = share / size};
  r.one_hop = takes_one_hop(kind, n, total * size);
  int alike = r.one_hop || kind == COMM_REDUCE_SCATTER; // a range is the chunk
  if (alike) r.share = least(r.share, total);
  else if (total < r.share * ranks) r.share = (total + 64 * ranks - 1) / (64 * ranks) * 64; // whole cache lines
  r.chunk = alike ? r.share : r.share * ranks;
  r.chunks = total ? (total + r.chunk - 1) / r.chunk : 0;
  return r;
}

void reduce_range(const ReduceRanges *r, size_t k, int rank, size_t *from, size_t *to) {
  size_t low = k * r->chunk + (r->chunk == r->share ? 0 : (size_t)rank * r->share), high = low + r->share;
  size_t end = least((k + 1) * r->chunk, r->total);
  if (r->one_hop && r->kind == COMM_REDUCE && rank != r->root) high = low;
  *from = least(low, end);
  *to = least(high, end);
}

size_t reduce_range_all(const ReduceRanges *r, int rank) {
  size_t from, to, whole;
  if (!r->chunks) return 0;
  reduce_range(r, r->chunks - 1, rank, &from, &to);
  size_t last = to - from;
  if (r->chunks == 1) return last;
  reduce_range(r, 0, rank, &from, &to); // chunks before the last are alike
  whole = to - from;
  return whole * (r->chunks - 1) + last;
}

size_t reduce_most_staging(size_t n, size_t bytes) {
  size_t alike = least(bytes, n == 2 ? CHUNK_BYTES / 2 : ONE_HOP_BYTES) * n, rounded = bytes + 64 * n * sizeof(double);
  size_t chunk = least(CHUNK_BYTES > LEAST_SHARE * n ? CHUNK_BYTES : LEAST_SHARE * n, rounded);
  return alike > chunk ? alike : chunk;
}

// Chains ------------------------------------------------------------------------------------------------------------

static size_t chain_share(size_t bytes, int group, int groups) {
  size_t share = least(bytes / (size_t)group / (4 * (size_t)groups), CHAIN_SHARE);
  return (share < LEAST_CHAIN_SHARE ? LEAST_CHAIN_SHARE : share) / 512 * 512;
}

ChainRanges chain_ranges(CommKind kind, int n, int group, size_t size, size_t wide, size_t total) {
  int scatters = kind == COMM_REDUCE_SCATTER;
  ChainRanges r = {.group = group, .groups = n / group, .scatters = scatters, .size = size, .wide = wide,
                   .total = total};
  r.share = chain_share(total * size * (scatters ? (size_t)n : 1), group, r.groups) / size;
  if (scatters) {
    r.per_part = (total + r.share - 1) / r.share;
    r.chunks = r.per_part * (size_t)r.groups;
    return r;
  }
  size_t chunk = r.share * (size_t)group;
  r.chunks = FAULT(chain_leaves_the_rest, (total + chunk - 1) / chunk, total / chunk);
  return r;
}

void chain_range(const ChainRanges *r, size_t k, int lane, size_t *from, size_t *to) {
  size_t at = r->scatters ? k % r->per_part : k * (size_t)r->group + (size_t)lane;
  *from = least(at * r->share, r->total);
  *to = least(at * r->share + r->share, r->total);
}

size_t chain_range_all(const ChainRanges *r, int lane) {
  size_t from, to;
  if (r->scatters) return r->total * (size_t)r->groups;
  if (!r->chunks) return 0;
  chain_range(r, r->chunks - 1, lane, &from, &to);
  return r->share * (r->chunks - 1) + (to - from);
}

// Broadcast ---------------------------------------------------------------------------------------------------------

int broadcast_is_tree(int n, size_t bytes) { return n == 2 || bytes <= TREE_BYTES; }

int broadcast_parent(int n, int root, int rank) {
  int place = comm_around(rank, -root, n); // counted from the root
  return place ? comm_around(rank, -(place & -place), n) : -1;
}

void broadcast_share(int n, size_t bytes, int rank, size_t *from, size_t *to) {
  size_t page = 4096, ranks = (size_t)n, share = (bytes + ranks * page - 1) / (ranks * page) * page;
  *from = least(share * (size_t)rank, bytes);
  *to = least(*from + share, bytes);
}
