// A rank's memory: access to parts of Variables for code outside kernels, and init rules.
#include "runtime/state.h"
#include "base/fault.h"
#include "op/state_code.h"
#include <math.h>
#include <string.h>

int64_t program_work_bytes(const Program *p) { return program_input_offset(p) + p->input_bytes; }

int64_t state_plan_bytes(const Program *program, int space, int64_t work_bytes) {
  const DeviceSpace *s = &program->device->space[space];
  if (space && !program->state_bytes[space]) return 0;
  return round_up(program->state_bytes[space] + (space ? 0 : work_bytes) + s->alignment, s->page);
}

static int create_in(State *s, int space, int64_t work_bytes, Error *error) {
  StateMemory *in = &s->in[space];
  in->bytes = state_plan_bytes(s->program, space, work_bytes);
  int code = in->bytes ? device_allocate(s->device, space, in->bytes, &in->memory, error) : PLAIT_OK;
  if (code) error_name_rank(error, s->rank, NULL);
  else if (in->memory)
    in->work = in->memory + round_up(s->program->state_bytes[space], s->device->space[space].alignment);
  return code;
}

int state_create(const Program *program, const Device *device, int64_t work_bytes, int rank, State **out,
                 Error *error) {
  State *s = xcalloc(1, sizeof *s);
  *s = (State){.program = program, .device = device, .rank = rank, .changes = 1};
  int code = PLAIT_OK;
  for (int space = 0; space < device->spaces && !code; space++) code = create_in(s, space, work_bytes, error);
  if (!code) code = device_queue_create(device, NULL, &s->queue, error);
  if (code) {
    state_destroy(s);
    return code;
  }
  *out = s;
  return PLAIT_OK;
}

void state_destroy(State *s) {
  if (!s) return;
  device_queue_destroy(s->queue);
  for (int space = 0; space < s->device->spaces; space++)
    device_release(s->device, space, s->in[space].memory, s->in[space].bytes);
  free(s);
}

// Parts of Variables ------------------------------------------------------------------------------------------------

static const Variable *find_variable(const State *s, int v, int copy) {
  const Graph *g = s->program->graph;
  CHECK(v >= 0 && v < g->variable.count && copy < g->variable.data[v].copies, "Variable %d, Copy %d does not exist", v,
        copy);
  return &g->variable.data[v];
}

ShardBoxes state_boxes(const State *s, int variable, int copy) {
  const Variable *v = find_variable(s, variable, copy);
  if (s->program->variable_place[variable].offset < 0) return (ShardBoxes){.shard = shard_nowhere()};
  return (ShardBoxes){.shard = shard_of(&s->program->mesh, variable_placement(v, copy), &v->shape, s->rank)};
}

Dtype state_dtype(const State *s, int variable, int copy) {
  const Variable *v = find_variable(s, variable, copy);
  return copy < 0 ? variable_dtype(v) : v->copy[copy].dtype;
}

static Dtype stored_dtype(const State *s, int variable, int copy) {
  const Variable *v = find_variable(s, variable, copy);
  return copy < 0 ? v->dtype : v->copy[copy].dtype;
}

// The host's memory ↔ a part of a Variable, run by run: a run ends where the memory has padding, or what the part
// leaves out.
static void copy_part(const State *s, int variable, int copy, const Box *part, DeviceCopy kind, char *host) {
  int64_t stride[BOX_MAX_RANK], run = 1;
  Place place = program_variable_place(s->program, variable, copy, s->turn);
  int64_t size = (int64_t)dtype_size(stored_dtype(s, variable, copy)), index[BOX_MAX_RANK] = {0};
  int outer = part->rank; // dims before this one are gone through one by one
  if (!box_elements(part)) return;
  ShardBoxes held = state_boxes(s, variable, copy);
  CHECK(shard_find(&held, part), "%s: rank %d does not have this part", find_variable(s, variable, copy)->name,
        s->rank);
  shard_strides(&held.shard, stride);
  while (outer > 0 && stride[outer - 1] == run) run *= part->local[--outer];
  for (;;) {
    int64_t at = 0;
    for (int d = 0; d < part->rank; d++)
      at += (held.at[d] + part->offset[d] - held.box.offset[d] + index[d]) * stride[d];
    char *memory = state_address(s, place) + at * size;
    char *to = kind == DEVICE_TO_HOST ? host : memory, *from = kind == DEVICE_TO_HOST ? memory : host;
    FAULT(memory_is_a_pointer, device_copy(s->queue, kind, place.space, to, from, run * size),
          (void)memcpy(to, from, (size_t)(run * size)));
    host += run * size;
    int d = outer - 1;
    while (d >= 0 && ++index[d] == part->local[d]) index[d--] = 0;
    if (d < 0) break;
  }
  Error error = {0};
  CHECK(!device_drain(s->queue, &error), "%s", error.message);
}

// fp32 that is stored as bf16 and the rest: some elements at a time, in the order of the part.
static void copy_split(const State *s, int variable, const Box *part, DeviceCopy kind, float *host) {
  enum { AT_ONCE = 4096 };
  uint16_t high[AT_ONCE], low[AT_ONCE] = {0};
  int rest = graph_find_of(s->program->graph, OF_LOW, variable);
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    int64_t n = box_elements(&pieces.piece);
    if (kind == DEVICE_TO_HOST) {
      copy_part(s, variable, -1, &pieces.piece, kind, (char *)high);
      if (rest >= 0) copy_part(s, rest, -1, &pieces.piece, kind, (char *)low);
      for (int64_t i = 0; i < n; i++) host[i] = bf16_join(high[i], FAULT(masters_lose_their_low_bits, low[i], 0));
    } else {
      for (int64_t i = 0; i < n; i++) high[i] = bf16_split(host[i], &low[i]);
      copy_part(s, variable, -1, &pieces.piece, kind, (char *)high);
      if (rest >= 0) copy_part(s, rest, -1, &pieces.piece, kind, (char *)low);
    }
    host += n;
  }
}

// The scales of the blocks in which a box of a moment has elements, as a box of the Variable of scales.
static Box scales_box(const StateBlocks *b, const int64_t *global, const Box *part) {
  Box box = {.rank = b->lead + 1};
  int64_t first = 0, last = 0; // of the part's elements, by their number in the dims from `lead` on
  for (int d = b->lead; d < part->rank; d++) {
    first = first * global[d] + part->offset[d];
    last = last * global[d] + part->offset[d] + part->local[d] - 1;
  }
  memcpy(box.offset, part->offset, sizeof *box.offset * (size_t)b->lead);
  memcpy(box.local, part->local, sizeof *box.local * (size_t)b->lead);
  box.offset[b->lead] = first / STATE_BLOCK;
  box.local[b->lead] = last / STATE_BLOCK + 1 - first / STATE_BLOCK;
  return box;
}

// Of the elements of a box in order: which of the scales in their box is theirs.
static void note_scales(const StateBlocks *b, const int64_t *global, const Box *part, const Box *scales, int64_t *at) {
  int64_t index[BOX_MAX_RANK] = {0}, n = box_elements(part);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = 0, tail = 0;
    for (int d = 0; d < b->lead; d++) row = row * part->local[d] + index[d];
    for (int d = b->lead; d < part->rank; d++) tail = tail * global[d] + part->offset[d] + index[d];
    at[i] = row * scales->local[b->lead] + tail / STATE_BLOCK - scales->offset[b->lead];
    for (int d = part->rank - 1; d >= 0 && ++index[d] == part->local[d]; d--) index[d] = 0;
  }
}

// The codes that a rank has of one block are read, and written for a larger scale.
static void rescale_block(const State *s, int variable, const StateBlocks *b, const StateCode *code, const Box *scale,
                          float from, float to) {
  const Variable *v = find_variable(s, variable, -1);
  Box one = {.rank = v->shape.rank};
  int64_t first = scale->offset[b->lead] * STATE_BLOCK, end = first + STATE_BLOCK;
  if (end > b->tail) end = b->tail;
  for (int d = 0; d < one.rank; d++) one.local[d] = 1;
  memcpy(one.offset, scale->offset, sizeof *one.offset * (size_t)b->lead);
  for (int64_t i = first; i < end; i++) {
    int64_t rest = i;
    for (int d = one.rank - 1; d >= b->lead; d--) {
      one.offset[d] = rest % v->shape.size[d];
      rest /= v->shape.size[d];
    }
    ShardBoxes held = state_boxes(s, variable, -1);
    uint8_t byte;
    if (!shard_find(&held, &one)) continue;
    copy_part(s, variable, -1, &one, DEVICE_TO_HOST, (char *)&byte);
    byte = state_encode(code, state_decode(code, byte, from), state_inverse(to), STATE_NEAREST);
    copy_part(s, variable, -1, &one, DEVICE_FROM_HOST, (char *)&byte);
  }
}

// One scale that grows, so that all of its box's do: those of `scales`, of which `now` are there and `next` are wanted.
static void grow_scales(const State *s, int variable, const StateBlocks *b, const StateCode *code, const Box *scales,
                        const float *now, const float *next) {
  int64_t index[BOX_MAX_RANK] = {0}, n = box_elements(scales);
  for (int64_t i = 0; i < n; i++) {
    Box one = {.rank = scales->rank};
    for (int d = 0; d < one.rank; d++) one.offset[d] = scales->offset[d] + index[d], one.local[d] = 1;
    if (now[i] > 0 && now[i] < next[i]) rescale_block(s, variable, b, code, &one, now[i], next[i]);
    for (int d = one.rank - 1; d >= 0 && ++index[d] == scales->local[d]; d--) index[d] = 0;
  }
}

// fp32 that is stored as codes of 8 bits. Writes make scales grow where they must and never shrink: of a Variable that
// is read anew they are 0 at first (state_clear_scales). Where ranks share a block each has its own part's scale until
// the next update: the values that both decode are the same (op/state_code.h).
static void copy_codes(const State *s, int variable, const Box *part, DeviceCopy kind, float *host) {
  enum { AT_ONCE = 4096 };
  const Variable *v = find_variable(s, variable, -1);
  uint8_t byte[AT_ONCE];
  int64_t at[AT_ONCE];
  StateCode code;
  state_code(v->encoding == ENCODING_8BIT_POSITIVE, &code);
  StateBlocks b = state_blocks(v->shape.rank, v->shape.size);
  int rest = graph_find_of(s->program->graph, OF_SCALES, variable);
  BoxPieces pieces = {.whole = *part, .most = AT_ONCE};
  while (box_next_piece(&pieces)) {
    int64_t n = box_elements(&pieces.piece);
    Box box = scales_box(&b, v->shape.size, &pieces.piece);
    int64_t blocks = box_elements(&box);
    float *now = xcalloc((size_t)blocks * 2 + 1, sizeof *now), *next = now + blocks;
    note_scales(&b, v->shape.size, &pieces.piece, &box, at);
    copy_part(s, rest, -1, &box, DEVICE_TO_HOST, (char *)now);
    if (kind == DEVICE_TO_HOST) {
      copy_part(s, variable, -1, &pieces.piece, kind, (char *)byte);
      for (int64_t i = 0; i < n; i++) host[i] = state_decode(&code, byte[i], FAULT(scales_are_not_read, now[at[i]], 1));
    } else {
      memcpy(next, now, sizeof *now * (size_t)blocks);
      for (int64_t i = 0; i < n; i++) next[at[i]] = fmaxf(next[at[i]], state_scale(host[i]));
      UNLESS_FAULT(codes_keep_old_scales) grow_scales(s, variable, &b, &code, &box, now, next);
      for (int64_t i = 0; i < n; i++)
        byte[i] = state_encode(&code, host[i], state_inverse(next[at[i]]), STATE_NEAREST);
      copy_part(s, variable, -1, &pieces.piece, kind, (char *)byte);
      copy_part(s, rest, -1, &box, DEVICE_FROM_HOST, (char *)next);
    }
    free(now);
    host += n;
  }
}

void state_clear_scales(State *s) {
  enum { AT_ONCE = 4096 };
  const Graph *g = s->program->graph;
  float zero[AT_ONCE] = {0};
  for (int i = 0; i < g->variable.count; i++)
    for (ShardBoxes b = state_boxes(s, i, -1); g->variable.data[i].of == OF_SCALES && shard_next(&b);) {
      BoxPieces pieces = {.whole = b.box, .most = AT_ONCE};
      while (box_next_piece(&pieces)) copy_part(s, i, -1, &pieces.piece, DEVICE_FROM_HOST, (char *)zero);
    }
}

static void copy_decoded(const State *s, int variable, int copy, const Box *part, DeviceCopy kind, void *host) {
  Encoding encoding = copy >= 0 ? ENCODING_PLAIN : find_variable(s, variable, copy)->encoding;
  switch (encoding) {
  case ENCODING_PLAIN: copy_part(s, variable, copy, part, kind, host); break;
  case ENCODING_SPLIT: copy_split(s, variable, part, kind, host); break;
  case ENCODING_8BIT:
  case ENCODING_8BIT_POSITIVE: copy_codes(s, variable, part, kind, host); break;
  }
}

void state_read(const State *s, int variable, int copy, const Box *part, void *out) {
  copy_decoded(s, variable, copy, part, DEVICE_TO_HOST, out);
}

void state_write(State *s, int variable, int copy, const Box *part, const void *in) {
  copy_decoded(s, variable, copy, part, DEVICE_FROM_HOST, (void *)(uintptr_t)in);
  UNLESS_FAULT(written_state_is_not_stale) s->changes++;
}

int state_has(const State *s, KnownVariable known) { return s->program->graph->known[known] >= 0; }

double state_scalar(const State *s, KnownVariable known) {
  CHECK(state_has(s, known), "this Program does not have %s, %s", known_name(known), known_what(known));
  double x;
  state_read(s, s->program->graph->known[known], -1, &(Box){0}, &x);
  return x;
}

// Initialisation ----------------------------------------------------------------------------------------------------

// The elements of one row of the last dim, whose first has the global index `first`.
static void init_row(const Variable *v, PhiloxKey key, int64_t first, int64_t count, void *out, int64_t at) {
  for (int64_t i = 0; i < count; i++) {
    double x = v->init.value;
    if (v->init.kind == INIT_NORMAL) x *= philox_normal(key, (uint64_t)(first + i));
    dtype_store(out, variable_dtype(v), at + i, x);
  }
}

static void init_piece(const Variable *v, PhiloxKey key, const Box *piece, void *out) {
  int rank = v->shape.rank;
  int64_t width = rank ? piece->local[rank - 1] : 1, rows = box_elements(piece) / width, index[BOX_MAX_RANK] = {0};
  for (int64_t r = 0; r < rows; r++) {
    int64_t first = 0;
    for (int d = 0; d < rank; d++)
      first = first * FAULT(address_of_init, v->shape.size[d], piece->local[d]) + piece->offset[d] + index[d];
    init_row(v, key, first, width, out, r * width);
    for (int d = rank - 2; d >= 0 && ++index[d] == piece->local[d]; d--) index[d] = 0;
  }
}

void state_init(State *s, uint64_t seed, VariableTest *wanted) {
  enum { AT_ONCE = 1 << 16 };
  const Graph *g = s->program->graph;
  double *memory = xcalloc(AT_ONCE, sizeof *memory);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!wanted(v) || v->init.kind == INIT_ZERO) continue;
    PhiloxKey key = philox_key(seed, 0, philox_name(v->name));
    for (ShardBoxes b = state_boxes(s, i, -1); shard_next(&b);) {
      BoxPieces pieces = {.whole = b.box, .most = AT_ONCE};
      while (box_next_piece(&pieces)) {
        init_piece(v, key, &pieces.piece, memory);
        state_write(s, i, -1, &pieces.piece, memory);
      }
    }
  }
  free(memory);
}
