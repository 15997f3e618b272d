// Data parallelism by hand: every rank has the whole model and its sequences of the batch. The gradient of a piece of
// the model, a bucket, is summed over the ranks as soon as backward has passed it, on a stream of its own, while
// backward computes the next one (as PyTorch's DDP: Li et al., 2020).
//
//   by_hand_ddp [RANKS]        (4; a divisor of 8)            or: mpirun -n 4 by_hand_ddp 4
#include "by_hand.h"
#include <plait/comm.h>

static int train(PlaitComm *comm, void *argument, PlaitError *error) {
  int mine = BATCH / plait_comm_size(comm), first = plait_comm_rank(comm) * mine, code = 0;
  PlaitStream *stream;
  if ((code = plait_stream_create(comm, &stream, error))) return code;
  PlaitEvent done[PIECES];
  Piece model[PIECES];
  Saved(*saved)[BATCH] = saved_create();
  double x[BATCH][SEQ * EMBED]; // (mine)
  for (int k = 0; k < PIECES; k++) model[k] = piece_create(piece_size(k, 1)), piece_init(k, model[k].w);

  for (int step = 1; step <= STEPS && !code; step++) {
    // Forward, with our sequences. Every rank divides by the size of the whole batch, so gradients and losses add up.
    double loss = 0;
    for (int i = 0; i < mine; i++) embed(model[EMBEDDING].w, first + i, x[i]);
    for (int l = 0; l < LAYERS; l++)
      for (int i = 0; i < mine; i++) block_forward(model[FIRST_BLOCK + l].w, &saved[l][i], x[i]);
    for (int i = 0; i < mine; i++) loss += head_loss(model[LAST].w, model[LAST].g, first + i, x[i]);

    // Backward, from the last piece to the first. all_reduce returns at once; the stream's thread does the work.
    for (int k = LAST; k >= 0; k--) {
      for (int i = 0; i < mine; i++) {
        if (k == EMBEDDING) embed_backward(model[k].g, first + i, x[i]);
        else if (k != LAST) block_backward(model[k].w, model[k].g, &saved[k - FIRST_BLOCK][i], x[i]);
      }
      PlaitBuffer bucket[] = {{model[k].g, model[k].g, (size_t)model[k].size}, {&loss, &loss, 1}};
      plait_all_reduce(comm, bucket, k == LAST ? 2 : 1, PLAIT_FP64, PLAIT_SUM, stream, &done[k]); // the loss beside one
    }

    // The same sums on all ranks, so the same weights: nothing is sent for the update. A call that failed makes all
    // later ones fail, so it is enough to look here.
    for (int k = LAST; k >= 0 && !code; k--)
      if (!(code = plait_event_wait(done[k]))) adam(&model[k], step);
    if (!code && plait_comm_rank(comm) == 0) print_loss(step, loss);
  }

  plait_stream_destroy(stream);
  for (int k = 0; k < PIECES; k++) piece_free(&model[k]);
  free(saved);
  return code;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 4;
  PlaitError error = {0};
  if (ranks < 1 || BATCH % ranks) return fprintf(stderr, "usage: by_hand_ddp [RANKS], a divisor of %d\n", BATCH), 2;
  if (plait_world_run(ranks, train, NULL, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  return 0;
}
