// fp32 that is stored as bf16 and, in OF_LOW, the rest: some elements at a time, in the order of the part.
#include "base/fault.h"
#include "runtime/encoding.h"

enum { AT_ONCE = 4096 };

static void read_split(const State *s, int variable, int copy, const Box *part, void *out) {
  uint16_t high[AT_ONCE], low[AT_ONCE] = {0};
  int rest = variable_part(s->program->graph, variable);
  float *host = out;
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    int64_t n = box_elements(&pieces.piece);
    state_copy_stored(s, variable, -1, &pieces.piece, DEVICE_TO_HOST, high);
    if (rest >= 0) state_copy_stored(s, rest, -1, &pieces.piece, DEVICE_TO_HOST, low);
    for (int64_t i = 0; i < n; i++) *host++ = bf16_join(high[i], FAULT(masters_lose_their_low_bits, low[i], 0));
  }
}

static void write_split(const State *s, int variable, int copy, const Box *part, const void *in) {
  uint16_t high[AT_ONCE], low[AT_ONCE];
  int rest = variable_part(s->program->graph, variable);
  const float *host = in;
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    int64_t n = box_elements(&pieces.piece);
    for (int64_t i = 0; i < n; i++) high[i] = bf16_split(*host++, &low[i]);
    state_copy_stored(s, variable, -1, &pieces.piece, DEVICE_FROM_HOST, high);
    if (rest >= 0) state_copy_stored(s, rest, -1, &pieces.piece, DEVICE_FROM_HOST, low);
  }
}

const EncodingAccess encoding_split = {read_split, write_split, NULL};
