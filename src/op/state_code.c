// Moments in 8 bits: the table of values, and where the blocks lie in a rank's memory.
#include "op/state_code.h"

// From the largest octave down: so many of them, each of 2^bits values. The last have one, so that below the least
// value the distance to 0 is that to the next value.
typedef struct Octaves { int count, bits; } Octaves;
static const Octaves octaves[2][5] = {
    {{4, 4}, {4, 3}, {4, 2}, {4, 1}, {6, 0}},  // of either sign
    {{10, 4}, {6, 3}, {8, 2}, {4, 1}, {6, 0}}, // means of squares
};

void state_code(int positive, StateCode *c) {
  *c = (StateCode){.positive = positive != 0};
  uint32_t number = positive ? 255 : 127, octave = 0;
  c->value[number] = 1;
  c->first[0] = number;
  c->shift[0] = 23;
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < octaves[positive != 0][i].count; k++) {
      uint32_t n = 1u << octaves[positive != 0][i].bits;
      float least = 1;
      for (uint32_t o = 0; o <= octave; o++) least /= 2;
      octave++;
      number -= n;
      c->first[octave] = number;
      c->shift[octave] = 23 - (uint32_t)octaves[positive != 0][i].bits;
      for (uint32_t v = 0; v < n; v++) c->value[number + v] = least * (1 + (float)v / (float)n);
    }
  CHECK(number == 1 && octave + 1 < STATE_OCTAVES, "the values of a code");
  c->octaves = octave;
  for (int i = 1; !positive && i < 128; i++) c->value[0x80 | i] = -c->value[i];
}

StateBlocks state_blocks(int rank, const int64_t *global) {
  StateBlocks b = {.lead = rank, .tail = 1};
  int64_t elements = 1;
  for (int d = rank - 1; d >= 0; d--) {
    elements *= global[d];
    if (elements % STATE_BLOCK && d > 0) continue;
    b.lead = d;
    b.tail = elements;
    break;
  }
  b.blocks = (b.tail + STATE_BLOCK - 1) / STATE_BLOCK;
  return b;
}

Shape state_scales_shape(const Shape *shape) {
  StateBlocks b = state_blocks(shape->rank, shape->size);
  Shape s = shape_of(b.lead, shape->size, shape->dim);
  s.size[s.rank] = b.blocks;
  s.dim[s.rank++] = DIM_NONE;
  return s;
}

StateRuns state_runs(const Operand *x, int64_t from, int64_t to) {
  int64_t global[MAX_RANK];
  for (int d = 0; d < x->rank; d++) global[d] = x->map[d].global;
  StateRuns r = {.x = x, .blocks = state_blocks(x->rank, global), .row = x->rank - 1, .inner = 1, .at = from, .to = to};
  while (r.row > 0 && index_is_whole(&x->map[r.row])) r.inner *= x->size[r.row--];
  r.local_tail = operand_extent(x, r.blocks.lead, x->rank);
  return r;
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

int state_next_run(StateRuns *r) {
  const Operand *x = r->x;
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
            global = (int64_t)before * m->global * r->inner + index_map(m, i) * r->inner + rest,
            tail = global % r->blocks.tail, n = (end - i) * r->inner - rest;
    n = least_of(least_of(n, STATE_BLOCK - tail % STATE_BLOCK), least_of(r->blocks.tail - tail, r->to - r->at));
    int64_t block = tail / STATE_BLOCK;
    block -=
        FAULT(last_block_has_no_scale, 0, block && tail / STATE_BLOCK * STATE_BLOCK + STATE_BLOCK > r->blocks.tail);
    r->run = (StateRun){r->at, n, r->at / r->local_tail * r->blocks.blocks + block, (uint64_t)global};
    r->at += n;
    return 1;
  }
  return 0;
}
