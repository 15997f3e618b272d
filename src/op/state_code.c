// Moments as codes: the table of values, and where the blocks lie in a rank's memory.
#include "op/state_code.h"

// The last segment's octaves have one value, so that below the least value the distance to 0 is that to the next value.
void state_code(Encoding encoding, StateCode *c) {
  const EncodingDef *e = &encodings[encoding];
  uint32_t positive = e->squares == encoding, exponent = 127;
  uint32_t number = (1u << (e->bits - !positive)) - 1, signs = number + 1;
  CHECK(e->octaves[STATE_SEGMENTS - 1] && e->bits <= 8 && e->block <= STATE_BLOCK_MOST, "codes: %s", e->meaning);
  *c = (StateCode){.positive = positive, .bits = e->bits};
  c->value[number] = 1;
  memset(c->segment, STATE_SEGMENTS - 1, sizeof c->segment);
  c->segment[127] = 0;
  for (uint32_t s = 0; s < STATE_SEGMENTS; s++) {
    uint32_t shift = state_shift(s), top = exponent << 23 >> shift;
    for (uint32_t o = 0; o < e->octaves[s]; o++) c->segment[--exponent] = (uint8_t)s;
    c->least[s] = exponent << 23;
    c->base[s] = number - top;
    for (uint32_t v = c->least[s] >> shift; v < top; v++) {
      uint32_t bits = v << shift;
      memcpy(&c->value[c->base[s] + v], &bits, 4);
    }
    number -= top - (c->least[s] >> shift);
  }
  CHECK(number == 1, "the values of a code");
  for (uint32_t i = 1; !positive && i < signs; i++) c->value[signs | i] = -c->value[i];
}

StateRuns state_runs(Encoding encoding, const Operand *x, int64_t from, int64_t to) {
  int64_t global[MAX_RANK];
  for (int d = 0; d < x->rank; d++) global[d] = x->map[d].global;
  StateRuns r = {.x = x,
                 .blocks = encoding_blocks(encoding, x->rank, global),
                 .row = x->rank - 1,
                 .inner = 1,
                 .at = from,
                 .to = to};
  while (r.row > 0 && index_is_whole(&x->map[r.row])) r.inner *= x->size[r.row--];
  r.local_tail = operand_extent(x, r.blocks.lead, x->rank);
  return r;
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

// `left` elements from r->at on follow each other. The first has this global index and this place in its tail, whose
// scales begin at `scale`.
static void take_run(StateRuns *r, uint64_t index, int64_t tail, int64_t scale, int64_t left) {
  int64_t size = r->blocks.block, n = least_of(left, size - tail % size), block = tail / size;
  n = least_of(least_of(n, r->blocks.tail - tail), r->to - r->at);
  block -= FAULT(last_block_has_no_scale, 0, block && tail / size * size + size > r->blocks.tail);
  r->run = (StateRun){r->at, n, scale + block, index};
  r->at += n;
  r->left = left - n;
  r->tail = tail + n;
  r->scale = scale;
}

int state_next_run(StateRuns *r) {
  const Operand *x = r->x;
  if (r->left && r->tail < r->blocks.tail && r->at < r->to) { // the next block of the same tail, without a division
    uint64_t index = r->run.index + FAULT(next_run_has_the_first_index, (uint64_t)r->run.n, 0);
    take_run(r, index, r->tail, r->scale, r->left);
    return 1;
  }
  while (r->at < r->to) {
    const IndexMap *m = &x->map[r->row];
    int64_t length = x->size[r->row] * r->inner, row = r->at / length, in_row = r->at % length, i = in_row / r->inner,
            stride = 1, valid = i < m->valid;
    uint64_t before = 0; // global index of the rows of the dims before `row`
    for (int64_t d = r->row - 1, rest = row; d >= 0; d--) {
      int64_t k = rest % x->size[d];
      rest /= x->size[d];
      valid &= k < x->map[d].valid;
      before += (uint64_t)(index_map(&x->map[d], k) * stride);
      stride *= x->map[d].global;
    }
    if (!valid) {
      r->at = (row + 1) * length;
      continue;
    }
    int64_t end = index_run_end(m, i), rest = in_row % r->inner,
            global = (int64_t)before * m->global * r->inner + index_map(m, i) * r->inner + rest;
    take_run(r, (uint64_t)global, global % r->blocks.tail, r->at / r->local_tail * r->blocks.blocks,
             (end - i) * r->inner - rest);
    return 1;
  }
  return 0;
}
