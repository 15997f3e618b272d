// Tensor parallelism by hand: every rank has all sequences and a part of each block, some of its heads and some of its
// hidden features. What reads the stream (q, k, v, gate, up) is cut by rows and needs nobody; what writes it (o, down)
// is cut by columns and gives a term of a sum. Two all_reduces a block in forward and two in backward, as in
// Megatron-LM (Shoeybi et al., 2019).
//
//   by_hand_tensor_parallel [RANKS]        (4; a divisor of 4)      or: mpirun -n 4 by_hand_tensor_parallel 4
//
// Embedding, norms and head are whole on every rank and computed by all of them. (Megatron-LM cuts the vocabulary,
// too.)
#include "by_hand.h"
#include <plait/comm.h>

static int sum(PlaitComm *comm, double *x) {
  PlaitBuffer list = {x, x, SEQ * EMBED};
  return plait_all_reduce(comm, &list, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
}

// block_forward of by_hand.h, with fewer heads and two sums.
static int forward(PlaitComm *comm, double *weights, Saved *s, double *x) {
  int n = plait_comm_size(comm);
  Block w = block_at(weights, n);
  double y[SEQ * EMBED];
  memcpy(s->x, x, sizeof s->x);
  attention_forward(w, n, s, y); // our heads
  int code = sum(comm, y);
  add(x, y);
  memcpy(s->middle, x, sizeof s->middle);
  ffn_forward(w, n, s, y); // our hidden features
  if (!code) code = sum(comm, y);
  add(x, y);
  return code;
}

// block_backward of by_hand.h. d is whole on every rank; what reaches a norm through our heads or features is a term of
// a sum. After the sum the norm's own gradient is whole, too, and the same on all ranks.
static int backward(PlaitComm *comm, double *weights, double *gradient, const Saved *s, double *d) {
  int n = plait_comm_size(comm);
  Block w = block_at(weights, n), g = block_at(gradient, n);
  double dnormed[SEQ * EMBED];
  ffn_backward(w, g, n, s, d, dnormed);
  int code = sum(comm, dnormed);
  rms_norm_backward(d, g.norm2, dnormed, s->middle, w.norm2);
  attention_backward(w, g, n, s, d, dnormed);
  if (!code) code = sum(comm, dnormed);
  rms_norm_backward(d, g.norm1, dnormed, s->x, w.norm1);
  return code;
}

// Part `rank` of n of a matrix (out, in): some rows, or some columns.
static void cut_rows(double *part, const double *all, int rank, int n, int out, int in) {
  memcpy(part, all + rank * (out / n) * in, (size_t)(out / n * in) * sizeof *part);
}
static void cut_columns(double *part, const double *all, int rank, int n, int out, int in) {
  for (int o = 0; o < out; o++)
    memcpy(part + o * (in / n), all + o * in + rank * (in / n), (size_t)(in / n) * sizeof *part);
}

// This rank's part of a block's first weights.
static void cut_block(double *part, double *all, int rank, int n) {
  Block p = block_at(part, n), a = block_at(all, 1);
  memcpy(p.norm1, a.norm1, EMBED * sizeof *part);
  memcpy(p.norm2, a.norm2, EMBED * sizeof *part);
  cut_rows(p.q, a.q, rank, n, EMBED, EMBED);
  cut_rows(p.k, a.k, rank, n, EMBED, EMBED);
  cut_rows(p.v, a.v, rank, n, EMBED, EMBED);
  cut_columns(p.o, a.o, rank, n, EMBED, EMBED);
  cut_rows(p.gate, a.gate, rank, n, FFN, EMBED);
  cut_rows(p.up, a.up, rank, n, FFN, EMBED);
  cut_columns(p.down, a.down, rank, n, EMBED, FFN);
}

static int train(PlaitComm *comm, void *argument, PlaitError *error) {
  int n = plait_comm_size(comm), rank = plait_comm_rank(comm), code = 0;
  Piece model[PIECES], all = piece_create(piece_size(FIRST_BLOCK, 1));
  Saved(*saved)[BATCH] = saved_create();
  double x[BATCH][SEQ * EMBED];
  for (int k = 0; k < PIECES; k++) {
    int is_block = k != EMBEDDING && k != LAST;
    model[k] = piece_create(piece_size(k, n));
    piece_init(k, is_block ? all.w : model[k].w);
    if (is_block) cut_block(model[k].w, all.w, rank, n);
  }

  for (int step = 1; step <= STEPS && !code; step++) { // as by_hand_one.c, with forward and backward of our own
    double loss = 0;
    for (int i = 0; i < BATCH; i++) embed(model[EMBEDDING].w, i, x[i]);
    for (int l = 0; l < LAYERS; l++)
      for (int i = 0; i < BATCH && !code; i++) code = forward(comm, model[FIRST_BLOCK + l].w, &saved[l][i], x[i]);
    for (int i = 0; i < BATCH; i++) loss += head_loss(model[LAST].w, model[LAST].g, i, x[i]);
    for (int l = LAYERS - 1; l >= 0; l--)
      for (int i = 0; i < BATCH && !code; i++)
        code = backward(comm, model[FIRST_BLOCK + l].w, model[FIRST_BLOCK + l].g, &saved[l][i], x[i]);
    for (int i = 0; i < BATCH; i++) embed_backward(model[EMBEDDING].g, i, x[i]);
    for (int k = 0; k < PIECES; k++) adam(&model[k], step);
    if (!code && rank == 0) print_loss(step, loss);
  }

  for (int k = 0; k < PIECES; k++) piece_free(&model[k]);
  piece_free(&all);
  free(saved);
  return code;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 4;
  PlaitError error = {0};
  if (ranks < 1 || HEADS % ranks)
    return fprintf(stderr, "usage: by_hand_tensor_parallel [RANKS], a divisor of %d\n", HEADS), 2;
  if (plait_world_run(ranks, train, NULL, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  return 0;
}
