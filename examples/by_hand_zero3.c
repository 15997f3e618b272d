// ZeRO stage 3 (FSDP) by hand: every rank keeps an equal part of each piece of the model, of its gradient and of Adam's
// moments, and nothing else. A piece is gathered before it is used and freed after; its gradient is summed and divided
// among the ranks in one call (Rajbhandari et al., 2020).
//
//   by_hand_zero3 [RANKS]        (4; a divisor of 8)          or: mpirun -n 4 by_hand_zero3 4
//
// To read it beside by_hand_ddp.c: all_reduce = reduce_scatter + all_gather, and the update goes between the two.
#include "by_hand.h"
#include <plait/comm.h>

typedef struct Rank {
  PlaitComm *comm;
  Piece part[PIECES]; // this rank's: elements rank · size … of the piece, the last part filled up with zeros
  int code;           // of the first call that failed
} Rank;

static double *whole(const Rank *r, int k) { // room for a piece, zeroed
  double *p = calloc((size_t)(r->part[k].size * plait_comm_size(r->comm)), sizeof *p);
  return p ? p : (exit((perror("by_hand"), 1)), p);
}

// The weights of a piece, from the parts of all ranks; the caller frees them when the piece has been used.
static double *gather(Rank *r, int k) {
  double *w = whole(r, k);
  PlaitBuffer list = {r->part[k].w, w, (size_t)r->part[k].size};
  int code = plait_all_gather(r->comm, &list, 1, PLAIT_FP64, NULL, NULL);
  if (code) r->code = code;
  return w;
}

// Our part of the gradient, summed over the ranks; the whole one of our sequences is freed.
static void scatter(Rank *r, int k, double *g) {
  PlaitBuffer list = {g, r->part[k].g, (size_t)r->part[k].size};
  int code = plait_reduce_scatter(r->comm, &list, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
  if (code) r->code = code;
  free(g);
}

static void create(Rank *r) {
  int n = plait_comm_size(r->comm);
  for (int k = 0; k < PIECES; k++) {
    int part = (piece_size(k, 1) + n - 1) / n;
    r->part[k] = piece_create(part);
    double *all = whole(r, k); // one piece at a time: a rank never has the model
    piece_init(k, all);
    memcpy(r->part[k].w, all + plait_comm_rank(r->comm) * part, (size_t)part * sizeof *all);
    free(all);
  }
}

static int train(PlaitComm *comm, void *argument, PlaitError *error) {
  Rank r = {.comm = comm};
  int mine = BATCH / plait_comm_size(comm), first = plait_comm_rank(comm) * mine;
  Saved(*saved)[BATCH] = saved_create();
  double x[BATCH][SEQ * EMBED], *w, *g; // x (mine)
  create(&r);

  for (int step = 1; step <= STEPS && !r.code; step++) {
    double loss = 0;
    w = gather(&r, EMBEDDING);
    for (int i = 0; i < mine; i++) embed(w, first + i, x[i]);
    free(w);
    for (int l = 0; l < LAYERS; l++) {
      w = gather(&r, FIRST_BLOCK + l);
      for (int i = 0; i < mine; i++) block_forward(w, &saved[l][i], x[i]);
      free(w);
    }
    w = gather(&r, LAST), g = whole(&r, LAST);
    for (int i = 0; i < mine; i++) loss += head_loss(w, g, first + i, x[i]);
    free(w), scatter(&r, LAST, g);
    for (int l = LAYERS - 1; l >= 0; l--) { // gathered a second time: backward needs the weights again
      w = gather(&r, FIRST_BLOCK + l), g = whole(&r, FIRST_BLOCK + l);
      for (int i = 0; i < mine; i++) block_backward(w, g, &saved[l][i], x[i]);
      free(w), scatter(&r, FIRST_BLOCK + l, g);
    }
    g = whole(&r, EMBEDDING);
    for (int i = 0; i < mine; i++) embed_backward(g, first + i, x[i]);
    scatter(&r, EMBEDDING, g);

    for (int k = 0; k < PIECES; k++) adam(&r.part[k], step); // our part of everything
    int code = plait_all_reduce(comm, &(PlaitBuffer){&loss, &loss, 1}, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
    if (code) r.code = code; // after a failed call all later ones fail: it is enough to stop here
    else if (plait_comm_rank(comm) == 0) print_loss(step, loss);
  }

  for (int k = 0; k < PIECES; k++) piece_free(&r.part[k]);
  free(saved);
  return r.code;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 4;
  PlaitError error = {0};
  if (ranks < 1 || BATCH % ranks) return fprintf(stderr, "usage: by_hand_zero3 [RANKS], a divisor of %d\n", BATCH), 2;
  if (plait_world_run(ranks, train, NULL, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  return 0;
}
