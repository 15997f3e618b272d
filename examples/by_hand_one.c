// Training on one device: the loop that the other by_hand_*.c spread over ranks. Uses nothing of plait.
#include "by_hand.h"

int main(void) {
  Piece model[PIECES];
  Saved(*saved)[BATCH] = saved_create();
  double x[BATCH][SEQ * EMBED];
  for (int k = 0; k < PIECES; k++) model[k] = piece_create(piece_size(k, 1)), piece_init(k, model[k].w);
  for (int step = 1; step <= STEPS; step++) {
    double loss = 0;
    for (int i = 0; i < BATCH; i++) embed(model[EMBEDDING].w, i, x[i]);
    for (int l = 0; l < LAYERS; l++)
      for (int i = 0; i < BATCH; i++) block_forward(model[FIRST_BLOCK + l].w, &saved[l][i], x[i]);
    for (int i = 0; i < BATCH; i++) loss += head_loss(model[LAST].w, model[LAST].g, i, x[i]);
    for (int l = LAYERS - 1; l >= 0; l--)
      for (int i = 0; i < BATCH; i++)
        block_backward(model[FIRST_BLOCK + l].w, model[FIRST_BLOCK + l].g, &saved[l][i], x[i]);
    for (int i = 0; i < BATCH; i++) embed_backward(model[EMBEDDING].g, i, x[i]);
    for (int k = 0; k < PIECES; k++) adam(&model[k], step);
    print_loss(step, loss);
  }
  for (int k = 0; k < PIECES; k++) piece_free(&model[k]);
  free(saved);
  return 0;
}
