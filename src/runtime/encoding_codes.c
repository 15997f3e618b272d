// fp32 that is stored as codes of a few bits, with a scale for each block in OF_SCALES (op/state_code.h).
//
// Writes make scales grow where they must and never shrink: before all is read anew they become 0 (before_loading).
// Where ranks share a block each has its own part's scale until the next update: the values that both decode are the
// same.
#include "base/fault.h"
#include "op/state_code.h"
#include "runtime/encoding.h"
#include <math.h>
#include <string.h>

enum { AT_ONCE = 4096 };

// A Variable of codes.
typedef struct Codes {
  const State *state;
  int variable, scales; // their ids
  const Variable *v;
  StateCode code;
  EncodingBlocks blocks;
} Codes;

static Codes codes_of(const State *s, int variable) {
  const Variable *v = &s->program->graph->variable.data[variable];
  Codes c = {.state = s, .variable = variable, .scales = variable_part(s->program->graph, variable), .v = v,
             .blocks = encoding_blocks(FAULT(blocks_have_one_length, v->encoding, ENCODING_8BIT), v->shape.rank,
                                    v->shape.size)};
  state_code(v->encoding, &c.code);
  return c;
}

static void copy_codes(const Codes *c, const Box *part, DeviceCopy kind, uint8_t *codes) {
  state_copy_stored(c->state, c->variable, -1, part, kind, codes);
}
static void copy_scales(const Codes *c, const Box *scales, DeviceCopy kind, float *host) {
  state_copy_stored(c->state, c->scales, -1, scales, kind, host);
}

// The scales of the blocks in which a box of the Variable has elements, as a box of the Variable of scales.
static Box scales_box(const Codes *c, const Box *part) {
  int lead = c->blocks.lead;
  Box box = {.rank = lead + 1};
  int64_t first = 0, last = 0; // of the part's elements, by their number in the dims from `lead` on
  for (int d = lead; d < part->rank; d++) {
    first = first * c->v->shape.size[d] + part->offset[d];
    last = last * c->v->shape.size[d] + part->offset[d] + part->local[d] - 1;
  }
  memcpy(box.offset, part->offset, sizeof *box.offset * (size_t)lead);
  memcpy(box.local, part->local, sizeof *box.local * (size_t)lead);
  box.offset[lead] = first / c->blocks.block;
  box.local[lead] = last / c->blocks.block + 1 - first / c->blocks.block;
  return box;
}

// Of the elements of a box in order: which of the scales in their box is theirs.
static void note_scales(const Codes *c, const Box *part, const Box *scales, int64_t *at) {
  int lead = c->blocks.lead;
  int64_t index[BOX_MAX_RANK] = {0}, n = box_elements(part);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = 0, tail = 0;
    for (int d = 0; d < lead; d++) row = row * part->local[d] + index[d];
    for (int d = lead; d < part->rank; d++) tail = tail * c->v->shape.size[d] + part->offset[d] + index[d];
    at[i] = row * scales->local[lead] + tail / c->blocks.block - scales->offset[lead];
    for (int d = part->rank - 1; d >= 0 && ++index[d] == part->local[d]; d--) index[d] = 0;
  }
}

// The codes that a rank has of one block are read, and written for a larger scale.
static void rescale_block(const Codes *c, const Box *scale, float from, float to) {
  const EncodingBlocks *b = &c->blocks;
  Box one = {.rank = c->v->shape.rank};
  int64_t first = scale->offset[b->lead] * b->block, end = first + b->block;
  if (end > b->tail) end = b->tail;
  for (int d = 0; d < one.rank; d++) one.local[d] = 1;
  memcpy(one.offset, scale->offset, sizeof *one.offset * (size_t)b->lead);
  for (int64_t i = first; i < end; i++) {
    int64_t rest = i;
    for (int d = one.rank - 1; d >= b->lead; d--) {
      one.offset[d] = rest % c->v->shape.size[d];
      rest /= c->v->shape.size[d];
    }
    ShardBoxes held = state_boxes(c->state, c->variable, -1);
    uint8_t byte;
    if (!shard_find(&held, &one)) continue;
    copy_codes(c, &one, DEVICE_TO_HOST, &byte);
    byte = state_encode(&c->code, state_decode(&c->code, byte, from), state_inverse(to), STATE_NEAREST);
    copy_codes(c, &one, DEVICE_FROM_HOST, &byte);
  }
}

// One scale that grows, so that all of its box's do: those of `scales`, of which `now` are there and `next` are wanted.
static void grow_scales(const Codes *c, const Box *scales, const float *now, const float *next) {
  int64_t index[BOX_MAX_RANK] = {0}, n = box_elements(scales);
  for (int64_t i = 0; i < n; i++) {
    Box one = {.rank = scales->rank};
    for (int d = 0; d < one.rank; d++) one.offset[d] = scales->offset[d] + index[d], one.local[d] = 1;
    if (now[i] > 0 && now[i] < next[i]) rescale_block(c, &one, now[i], next[i]);
    for (int d = one.rank - 1; d >= 0 && ++index[d] == scales->local[d]; d--) index[d] = 0;
  }
}

static void read_codes(const State *s, int variable, int copy, const Box *part, void *out) {
  Codes c = codes_of(s, variable);
  float *host = out;
  uint8_t codes[AT_ONCE];
  int64_t at[AT_ONCE];
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    Box box = scales_box(&c, &pieces.piece);
    int64_t n = box_elements(&pieces.piece);
    float *scale = xcalloc((size_t)box_elements(&box) + 1, sizeof *scale);
    note_scales(&c, &pieces.piece, &box, at);
    copy_scales(&c, &box, DEVICE_TO_HOST, scale);
    copy_codes(&c, &pieces.piece, DEVICE_TO_HOST, codes);
    for (int64_t i = 0; i < n; i++)
      *host++ = state_decode(&c.code, codes[i], FAULT(scales_are_not_read, scale[at[i]], 1));
    free(scale);
  }
}

static void write_codes(const State *s, int variable, int copy, const Box *part, const void *in) {
  Codes c = codes_of(s, variable);
  const float *host = in;
  uint8_t codes[AT_ONCE];
  int64_t at[AT_ONCE];
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    Box box = scales_box(&c, &pieces.piece);
    int64_t n = box_elements(&pieces.piece), blocks = box_elements(&box);
    float *now = xcalloc((size_t)blocks * 2 + 1, sizeof *now), *next = now + blocks;
    note_scales(&c, &pieces.piece, &box, at);
    copy_scales(&c, &box, DEVICE_TO_HOST, now);
    memcpy(next, now, sizeof *now * (size_t)blocks);
    for (int64_t i = 0; i < n; i++) next[at[i]] = fmaxf(next[at[i]], state_scale(host[i]));
    UNLESS_FAULT(codes_keep_old_scales) grow_scales(&c, &box, now, next);
    for (int64_t i = 0; i < n; i++)
      codes[i] = state_encode(&c.code, host[i], state_inverse(next[at[i]]), STATE_NEAREST);
    copy_codes(&c, &pieces.piece, DEVICE_FROM_HOST, codes);
    copy_scales(&c, &box, DEVICE_FROM_HOST, next);
    free(now);
    host += n;
  }
}

static void before_loading_codes(const State *s, int variable) {
  int scales = variable_part(s->program->graph, variable);
  float zero[AT_ONCE] = {0};
  for (ShardBoxes b = state_boxes(s, scales, -1); shard_next(&b);) {
    BoxPieces pieces = {.whole = b.box, .most = AT_ONCE};
    while (box_next_piece(&pieces)) state_copy_stored(s, scales, -1, &pieces.piece, DEVICE_FROM_HOST, zero);
  }
}

const EncodingAccess encoding_codes = {read_codes, write_codes, before_loading_codes};
