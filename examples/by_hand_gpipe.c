// A pipeline by hand: every rank is a stage, with some of the layers; the batch flows through the stages in
// microbatches, here of one sequence each. GPipe's schedule (Huang et al., 2019): all forwards, then all backwards.
// While a stage computes one microbatch its neighbours compute others.
//
//   by_hand_gpipe [RANKS]        (4; a divisor of 4)          or: mpirun -n 4 by_hand_gpipe 4
#include "by_hand.h"
#include <plait/comm.h>

static int train(PlaitComm *comm, void *argument, PlaitError *error) {
  int n = plait_comm_size(comm), stage = plait_comm_rank(comm), code = 0;
  int layers = LAYERS / n, first = FIRST_BLOCK + stage * layers; // our blocks: pieces first … first + layers - 1
  int from = stage == 0 ? EMBEDDING : first, to = stage == n - 1 ? LAST : first + layers - 1; // all pieces that we have
  Piece model[PIECES];
  Saved(*saved)[BATCH] = saved_create();
  double x[BATCH][SEQ * EMBED];
  for (int k = from; k <= to; k++) model[k] = piece_create(piece_size(k, 1)), piece_init(k, model[k].w);

  for (int step = 1; step <= STEPS && !code; step++) {
    double loss = 0;
    PlaitEvent sent[BATCH];
    for (int i = 0; i < BATCH && !code; i++) { // forward: from the stage before, through our blocks, to the next stage
      PlaitBuffer message = {x[i], x[i], SEQ * EMBED};
      if (stage == 0) embed(model[EMBEDDING].w, i, x[i]);
      else code = plait_recv(comm, &message, 1, PLAIT_FP64, stage - 1, NULL, NULL);
      for (int l = 0; l < layers; l++) block_forward(model[first + l].w, &saved[l][i], x[i]);
      if (stage == n - 1) loss += head_loss(model[LAST].w, model[LAST].g, i, x[i]);
      else if (!code) code = plait_send(comm, &message, 1, PLAIT_FP64, stage + 1, NULL, &sent[i]); // waits for nobody
    }
    for (int i = 0; i < BATCH && !code; i++) { // backward: the other way round, in the same order of microbatches
      PlaitBuffer message = {x[i], x[i], SEQ * EMBED};
      if (stage < n - 1) code = plait_event_wait(sent[i]); // x[i] has arrived there, so we may receive into it
      if (stage < n - 1 && !code) code = plait_recv(comm, &message, 1, PLAIT_FP64, stage + 1, NULL, NULL);
      for (int l = layers - 1; l >= 0; l--)
        block_backward(model[first + l].w, model[first + l].g, &saved[l][i], x[i]);
      if (stage == 0) embed_backward(model[EMBEDDING].g, i, x[i]);
      else if (!code) code = plait_send(comm, &message, 1, PLAIT_FP64, stage - 1, NULL, &sent[i]);
    }
    for (int i = 0; i < BATCH && stage > 0 && !code; i++) code = plait_event_wait(sent[i]); // x is ours again
    for (int k = from; k <= to; k++) adam(&model[k], step); // every stage its own pieces; nothing is shared
    PlaitBuffer last = {&loss, &loss, 1};
    if (!code) code = plait_broadcast(comm, &last, 1, PLAIT_FP64, n - 1, NULL, NULL);
    if (!code && stage == 0) print_loss(step, loss);
  }

  for (int k = from; k <= to; k++) piece_free(&model[k]);
  free(saved);
  return code;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 4;
  PlaitError error = {0};
  if (ranks < 1 || LAYERS % ranks) return fprintf(stderr, "usage: by_hand_gpipe [RANKS], a divisor of %d\n", LAYERS), 2;
  if (plait_world_run(ranks, train, NULL, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  return 0;
}
