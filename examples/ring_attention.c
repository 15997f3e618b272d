// Ring attention by hand (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers", 2023): each rank has a
// part of a sequence's queries, keys and values. Blocks of keys and values go around the ring of ranks; while a rank
// works with the block that it has, the next one is on its way. Every rank checks its result against attention over
// the whole sequence.
//
//   ring_attention [RANKS]      threads; or processes: mpirun -n 4 ring_attention
#include "plait/comm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQ = 96, DIM = 16 };

typedef struct Block { double k[SEQ][DIM], v[SEQ][DIM]; } Block; // of as many positions as a rank has

// The partial results of a rank's queries so far: out = Σ exp(score - maximum) v / sum, over the keys of all blocks.
typedef struct Seen { double maximum, sum, out[DIM]; } Seen;

static double value_of(int which, int position, int i) { return sin(1 + which * 7.0 + position * 0.37 + i * 1.3); }

// With a causal mask the last positions see the most keys. In zigzag order all ranks have as much to do: of 2n chunks
// rank r has chunks r and 2n - 1 - r.
static int position_of(int rank, int n, int i) {
  int chunk = SEQ / (2 * n);
  return i < chunk ? rank * chunk + i : (2 * n - 1 - rank) * chunk + i - chunk;
}

static void look(Seen *seen, int query, const double *k, const double *v) {
  double score = 0;
  for (int i = 0; i < DIM; i++) score += value_of(0, query, i) * k[i] / sqrt(DIM);
  double maximum = fmax(seen->maximum, score), before = exp(seen->maximum - maximum), now = exp(score - maximum);
  for (int i = 0; i < DIM; i++) seen->out[i] = seen->out[i] * before + now * v[i];
  seen->sum = seen->sum * before + now;
  seen->maximum = maximum;
}

// The rank's queries (mine positions) with the block of keys that comes from rank `from`. Returns how many pairs of a
// query and a key it saw.
static int look_at_block(Seen *seen, int mine, int rank, int from, int n, const Block *block) {
  int pairs = 0;
  for (int i = 0; i < mine; i++)
    for (int j = 0; j < mine; j++) {
      int query = position_of(rank, n, i), key = position_of(from, n, j);
      if (key > query) continue;
      look(&seen[i], query, block->k[j], block->v[j]);
      pairs++;
    }
  return pairs;
}

// The largest difference from what one rank with the whole sequence gets.
static double compare(const Seen *seen, int mine, int rank, int n) {
  double largest = 0;
  for (int i = 0; i < mine; i++) {
    Seen whole = {.maximum = -INFINITY};
    int query = position_of(rank, n, i);
    for (int key = 0; key <= query; key++) {
      double k[DIM], v[DIM];
      for (int e = 0; e < DIM; e++) k[e] = value_of(1, key, e), v[e] = value_of(2, key, e);
      look(&whole, query, k, v);
    }
    for (int e = 0; e < DIM; e++)
      largest = fmax(largest, fabs(seen[i].out[e] / seen[i].sum - whole.out[e] / whole.sum));
  }
  return largest;
}

static int ring(PlaitComm *comm, void *argument, PlaitError *error) {
  int rank = plait_comm_rank(comm), n = plait_comm_size(comm), mine = SEQ / n, code, pairs = 0;
  Block *block = calloc(2, sizeof *block); // the one in use and the one that arrives
  Seen *seen = calloc(SEQ, sizeof *seen);
  PlaitStream *stream;
  PlaitEvent arrived = {0};
  if ((code = plait_stream_create(comm, &stream, error))) return code;
  for (int i = 0; i < mine; i++) {
    seen[i].maximum = -INFINITY;
    for (int e = 0; e < DIM; e++) {
      block->k[i][e] = value_of(1, position_of(rank, n, i), e);
      block->v[i][e] = value_of(2, position_of(rank, n, i), e);
    }
  }
  for (int step = 0; step < n && !code; step++) {
    const Block *here = &block[step % 2];
    Block *next = &block[(step + 1) % 2];
    size_t count = (size_t)mine * DIM;
    PlaitBuffer buffers[] = {{here->k, next->k, count}, {here->v, next->v, count}};
    if (step < n - 1) code = plait_shift(comm, buffers, 2, PLAIT_FP64, 1, stream, &arrived);
    pairs += look_at_block(seen, mine, rank, (rank - step + n) % n, n, here); // while the next block is on its way
    int waited = plait_event_wait(arrived);
    if (!code) code = waited;
  }
  double worst = compare(seen, mine, rank, n);
  int most = pairs;
  if (!code) code = plait_all_reduce(comm, &(PlaitBuffer){&worst, &worst, 1}, 1, PLAIT_FP64, PLAIT_MAX, NULL, NULL);
  if (!code) code = plait_all_reduce(comm, &(PlaitBuffer){&most, &most, 1}, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL);
  if (!code && !rank)
    printf("%d ranks: at most %d of %d pairs a rank, largest difference from one rank %s\n", n, most,
           SEQ * (SEQ + 1) / 2, worst < 1e-13 ? "below 1e-13" : "TOO LARGE");
  plait_stream_destroy(stream);
  free(block);
  free(seen);
  return code ? code : worst < 1e-13 ? 0 : PLAIT_FAILED;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 0; // 0: as many as mpirun started
  PlaitError error;
  if (ranks < 0 || (argc > 1 && (ranks < 1 || SEQ % (2 * ranks))))
    return fprintf(stderr, "usage: ring_attention [RANKS], of which twice as many divide %d\n", SEQ), 2;
  if (!plait_world_run(ranks, ring, NULL, &error)) return 0;
  return fprintf(stderr, "%s\n", error.message), 1;
}
