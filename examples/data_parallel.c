// Data parallelism by hand: every rank has the whole model and a part of the batch; gradients are summed by one
// all_reduce a step. Trains the same network on 1 rank and on N, prints both losses, and fails when they differ.
//
//   data_parallel [RANKS]        (4; a divisor of 48)
//
// Uses collectives only (plait/comm.h). Ranks are threads here; nothing below knows that except `train`.
#include <math.h>
#include <plait/comm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 8, HIDDEN = 32, BATCH = 48, STEPS = 60, PRINT_EVERY = 10 };

// A network of two layers with one output. Only floats, so that a struct of them is one buffer of a collective.
typedef struct Model {
  float w1[HIDDEN][INPUTS], b1[HIDDEN], w2[HIDDEN], b2;
} Model;

typedef struct Rank {
  PlaitWorld *world;
  int rank;
  double losses[STEPS]; // of the whole batch; the same on all ranks
  char failure[256];    // "" when all is well
} Rank;

// A number in [-1, 1) that depends on its arguments only: data and first weights are the same on every rank and for
// every number of ranks, because they are addressed by their place in the whole, never drawn in turn.
static float noise(unsigned what, unsigned i, unsigned j) {
  unsigned x = what * 0x9e3779b9u ^ i * 0x85ebca6bu ^ j * 0xc2b2ae35u;
  for (int k = 0; k < 3; k++) x = (x ^ x >> 15) * 0x2c1b3c6du;
  return (float)(x >> 8) / 8388608 - 1;
}

static void sample(int step, int number, float x[INPUTS], float *y) {
  for (int i = 0; i < INPUTS; i++) x[i] = noise(1, (unsigned)(step * BATCH + number), (unsigned)i);
  *y = sinf(3 * x[0]) + x[1] * x[2];
}

static void init(Model *m) {
  memset(m, 0, sizeof *m);
  for (int h = 0; h < HIDDEN; h++) {
    m->w2[h] = noise(2, 0, (unsigned)h) * sqrtf(3.0f / HIDDEN);
    for (int i = 0; i < INPUTS; i++) m->w1[h][i] = noise(3, (unsigned)h, (unsigned)i) * sqrtf(3.0f / INPUTS);
  }
}

// Adds the gradient of one sample's squared error ÷ BATCH to g and returns that error. It divides by the size of the
// whole batch, not of this rank's part: then gradients of parts add up to that of the whole.
static float learn(const Model *m, Model *g, const float x[INPUTS], float y) {
  float hidden[HIDDEN], out = m->b2;
  for (int h = 0; h < HIDDEN; h++) {
    float sum = m->b1[h];
    for (int i = 0; i < INPUTS; i++) sum += m->w1[h][i] * x[i];
    hidden[h] = tanhf(sum);
    out += m->w2[h] * hidden[h];
  }
  float difference = out - y, d_out = 2 * difference / BATCH;
  g->b2 += d_out;
  for (int h = 0; h < HIDDEN; h++) {
    float d_sum = d_out * m->w2[h] * (1 - hidden[h] * hidden[h]);
    g->w2[h] += d_out * hidden[h];
    g->b1[h] += d_sum;
    for (int i = 0; i < INPUTS; i++) g->w1[h][i] += d_sum * x[i];
  }
  return difference * difference / BATCH;
}

static void run(Rank *r, PlaitComm *comm) {
  Model m, g;
  init(&m);
  int part = BATCH / plait_comm_size(comm), first = plait_comm_rank(comm) * part;
  for (int step = 0; step < STEPS; step++) {
    float loss = 0, x[INPUTS], y;
    memset(&g, 0, sizeof g);
    for (int n = first; n < first + part; n++) {
      sample(step, n, x, &y);
      loss += learn(&m, &g, x, y);
    }
    // The whole of data parallelism: one call, in place, for the gradients and the loss together.
    PlaitBuffer buffers[] = {{&g, &g, sizeof g / sizeof(float)}, {&loss, &loss, 1}};
    if (plait_all_reduce(comm, buffers, 2, PLAIT_FP32, PLAIT_SUM, NULL, NULL)) {
      snprintf(r->failure, sizeof r->failure, "%s", plait_comm_error(comm));
      return;
    }
    // The same sums on all ranks, so the same weights: nothing is sent for the update.
    float *weight = (float *)&m, *gradient = (float *)&g;
    for (size_t i = 0; i < sizeof m / sizeof(float); i++) weight[i] -= 0.1f * gradient[i];
    r->losses[step] = loss;
  }
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
  if (n < 1 || BATCH % n) return fprintf(stderr, "usage: data_parallel [RANKS], a divisor of %d\n", BATCH), 2;
  if (train(1, one) || train(n, many)) return 1;
  printf("step   loss on 1 rank   on %d ranks\n", n);
  for (int step = 0; step < STEPS; step++) {
    if (fabs(one[step] - many[step]) > 1e-5 * fabs(one[step])) differ = 1;
    if ((step + 1) % PRINT_EVERY == 0) printf("%4d   %14.6f   %10.6f\n", step + 1, one[step], many[step]);
  }
  puts(differ ? "they DIFFER" : "they agree");
  return differ || !(one[STEPS - 1] < one[0]);
}
