// Tensor parallelism by hand: a transformer's MLP block whose two matrices are cut over the ranks, the first by columns
// (each rank computes some of the hidden features), the second by rows (each rank uses its own), as in Megatron-LM
// (Shoeybi et al., 2019). One all_reduce in forward, one in backward. Trains on 1 rank and on N; fails when they
// differ.
//
//   tensor_parallel [RANKS]      (4; a divisor of 48)
//
// Uses collectives only (plait/comm.h). Ranks are threads here; nothing below knows that except `train`.
#include <math.h>
#include <plait/comm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMBED = 12, HIDDEN = 48, BATCH = 16, STEPS = 60, PRINT_EVERY = 10 };

typedef struct Rank {
  PlaitWorld *world;
  int rank;
  double losses[STEPS]; // the same on all ranks
  char failure[256];    // "" when all is well
} Rank;

// A number in [-1, 1) that depends on its arguments only. Weights are addressed by their place in the whole matrix, so
// that any cut of it begins with the same numbers.
static float noise(unsigned what, unsigned i, unsigned j) {
  unsigned x = what * 0x9e3779b9u ^ i * 0x85ebca6bu ^ j * 0xc2b2ae35u;
  for (int k = 0; k < 3; k++) x = (x ^ x >> 15) * 0x2c1b3c6du;
  return (float)(x >> 8) / 8388608 - 1;
}

static void run(Rank *r, PlaitComm *comm) {
  // A layer that every rank has whole, and this rank's part of the block: `mine` hidden features from `first` on.
  float in[EMBED][EMBED], up[HIDDEN][EMBED], down[EMBED][HIDDEN];
  int mine = HIDDEN / plait_comm_size(comm), first = plait_comm_rank(comm) * mine;
  for (int e = 0; e < EMBED; e++) {
    for (int k = 0; k < EMBED; k++) in[e][k] = noise(1, (unsigned)e, (unsigned)k) * sqrtf(3.0f / EMBED);
    for (int h = 0; h < mine; h++) {
      up[h][e] = noise(2, (unsigned)(first + h), (unsigned)e) * sqrtf(3.0f / EMBED);
      down[e][h] = noise(3, (unsigned)e, (unsigned)(first + h)) * sqrtf(3.0f / HIDDEN);
    }
  }
  for (int step = 0; step < STEPS; step++) {
    // Every rank has the same batch. x → a = in·x → y = a + down·tanh(up·a), and the loss is the mean of (y - target)².
    float x[BATCH][EMBED], a[BATCH][EMBED] = {{0}}, hidden[BATCH][HIDDEN] = {{0}}, y[BATCH][EMBED] = {{0}};
    float d_y[BATCH][EMBED], d_hidden[BATCH][HIDDEN] = {{0}}, d_a[BATCH][EMBED] = {{0}};
    for (int b = 0; b < BATCH; b++) {
      for (int e = 0; e < EMBED; e++) x[b][e] = noise(4, (unsigned)(step * BATCH + b), (unsigned)e);
      for (int e = 0; e < EMBED; e++)
        for (int k = 0; k < EMBED; k++) a[b][e] += in[e][k] * x[b][k];
      for (int h = 0; h < mine; h++) { // column-parallel: whole input, a part of the output, nothing to send
        for (int e = 0; e < EMBED; e++) hidden[b][h] += up[h][e] * a[b][e];
        hidden[b][h] = tanhf(hidden[b][h]);
      }
      for (int e = 0; e < EMBED; e++) // row-parallel: a part of the input, so a partial sum of every output
        for (int h = 0; h < mine; h++) y[b][e] += down[e][h] * hidden[b][h];
    }
    // Forward: partial sums become the output, the same on all ranks. (The residual, which is whole, is added after.)
    PlaitBuffer sum_y = {y, y, BATCH * EMBED}, sum_d_a = {d_a, d_a, BATCH * EMBED};
    if (plait_all_reduce(comm, &sum_y, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL)) break;
    double loss = 0;
    for (int b = 0; b < BATCH; b++)
      for (int e = 0; e < EMBED; e++) {
        float target = sinf(2 * x[b][e]) + 0.5f * x[b][(e + 1) % EMBED], difference = y[b][e] + a[b][e] - target;
        loss += difference * difference / (BATCH * EMBED);
        d_y[b][e] = 2 * difference / BATCH;
      }
    for (int b = 0; b < BATCH; b++)
      for (int h = 0; h < mine; h++) { // d_y is whole on every rank: the gradients of our parts need no one else
        for (int e = 0; e < EMBED; e++) d_hidden[b][h] += down[e][h] * d_y[b][e];
        d_hidden[b][h] *= 1 - hidden[b][h] * hidden[b][h];
        for (int e = 0; e < EMBED; e++) d_a[b][e] += up[h][e] * d_hidden[b][h]; // partial: our features only
      }
    // Backward: the gradient of what the block was given. Without it `in` would drift apart on the ranks.
    if (plait_all_reduce(comm, &sum_d_a, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL)) break;
    for (int b = 0; b < BATCH; b++)
      for (int e = 0; e < EMBED; e++) {
        for (int k = 0; k < EMBED; k++) in[e][k] -= 0.05f * (d_a[b][e] + d_y[b][e]) * x[b][k];
        for (int h = 0; h < mine; h++) {
          up[h][e] -= 0.05f * d_hidden[b][h] * a[b][e];
          down[e][h] -= 0.05f * d_y[b][e] * hidden[b][h];
        }
      }
    r->losses[step] = loss;
  }
  snprintf(r->failure, sizeof r->failure, "%s", plait_comm_error(comm)); // "" unless a call failed
}

static void *start(void *argument) {
  Rank *r = argument;
  PlaitComm *comm = NULL;
  PlaitError error = {0};
  if (plait_comm_world(r->world, r->rank, &comm, &error)) {
    snprintf(r->failure, sizeof r->failure, "%.200s", error.message);
    plait_world_abort(r->world, error.message); // the others must not wait for this rank
    return NULL;
  }
  run(r, comm);
  plait_comm_destroy(comm);
  return NULL;
}

// Trains on n ranks; losses (STEPS) are those of rank 0. Returns 0, or -1 after saying why.
static int train(int n, double *losses) {
  PlaitError error = {0};
  PlaitWorld *world;
  if (plait_world_local_create(n, &world, &error)) return fprintf(stderr, "%s\n", error.message), -1;
  Rank *ranks = calloc((size_t)n, sizeof *ranks);
  pthread_t *threads = calloc((size_t)n, sizeof *threads);
  int failed = !ranks || !threads;
  for (int r = 0; r < n && !failed; r++) {
    ranks[r] = (Rank){.world = world, .rank = r};
    if (pthread_create(&threads[r], NULL, start, &ranks[r])) exit((perror("pthread_create"), 1));
  }
  for (int r = 0; r < n && threads && ranks; r++) {
    pthread_join(threads[r], NULL);
    if (ranks[r].failure[0]) failed = 1, fprintf(stderr, "rank %d: %s\n", r, ranks[r].failure);
  }
  if (!failed) memcpy(losses, ranks[0].losses, sizeof ranks[0].losses);
  free(threads);
  free(ranks);
  plait_world_destroy(world);
  return failed ? -1 : 0;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 4, differ = 0;
  double one[STEPS], many[STEPS];
  if (n < 1 || HIDDEN % n) return fprintf(stderr, "usage: tensor_parallel [RANKS], a divisor of %d\n", HIDDEN), 2;
  if (train(1, one) || train(n, many)) return 1;
  printf("step   loss on 1 rank   on %d ranks\n", n);
  for (int step = 0; step < STEPS; step++) {
    if (fabs(one[step] - many[step]) > 1e-4 * fabs(one[step])) differ = 1;
    if ((step + 1) % PRINT_EVERY == 0) printf("%4d   %14.6f   %10.6f\n", step + 1, one[step], many[step]);
  }
  puts(differ ? "they DIFFER" : "they agree");
  return differ || !(one[STEPS - 1] < one[0]);
}
