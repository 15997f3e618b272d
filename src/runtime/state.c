// A rank's memory: access to parts of Variables for code outside kernels, and init rules.
#include "runtime/encoding.h"
#include "base/fault.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static int64_t work_offset(const Program *p) { return round_up(p->state_bytes[0], p->device->space[0].alignment); }

int64_t state_mirror_bytes(Program *const *program, int count, int64_t work_bytes) {
  const Program *owner = program[0];
  return owner->mesh.ranks > 1 && device_needs_mirror(owner->device)
             ? mirror_touched(program, count, work_offset(owner), state_plan_bytes(owner, 0, work_bytes))
             : 0;
}

static int create_mirror(State *s, Error *error) {
  int code = PLAIT_OK;
  if (s->program->mesh.ranks > 1 && device_needs_mirror(s->device))
    code = mirror_create(s->device, s->in[0].bytes, &s->mirror, error);
  if (code) error_name_rank(error, s->rank, NULL);
  return code;
}

int state_create(const Program *program, const Device *device, int64_t work_bytes, int rank, State **out,
                 Error *error) {
  State *s = xcalloc(1, sizeof *s);
  *s = (State){.program = program, .device = device, .rank = rank, .changes = 1};
  int code = PLAIT_OK;
  for (int space = 0; space < device->spaces && !code; space++) code = create_in(s, space, work_bytes, error);
  if (!code) code = create_mirror(s, error);
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
  mirror_destroy(s->mirror);
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

// Elements of the host, side by side in a device's memory from `at` bytes after a place on.
static void copy_bytes(const State *s, DeviceCopy kind, Place place, int64_t at, void *host, int64_t bytes) {
  char *memory = state_address(s, place) + at;
  void *to = kind == DEVICE_TO_HOST ? host : memory, *from = kind == DEVICE_TO_HOST ? memory : host;
  FAULT(memory_is_a_pointer, device_copy(s->queue, kind, place.space, to, from, bytes),
        (void)memcpy(to, from, (size_t)bytes));
}

// A device that has failed takes the process along: what it holds can neither be read nor computed with any more, and
// whoever reads a Variable must not write what was not read into a checkpoint.
static void drain(const State *s) {
  static pthread_mutex_t last_words = PTHREAD_MUTEX_INITIALIZER;
  Error error = {0};
  if (!device_drain(s->queue, &error)) return;
  pthread_mutex_lock(&last_words); // one rank says it; those that fail beside it wait for the end
  error_name_rank(&error, s->rank, NULL);
  fprintf(stderr, "plait: %s\n", error.message);
  fflush(NULL);
  _exit(1);
}

// The same of `n` numbers of a few bits each, number `first` on: of the bytes at both ends, others have a part.
static void copy_packed(const State *s, DeviceCopy kind, Place place, int bits, int64_t first, int64_t n,
                        uint8_t *host) {
  int64_t begin = first * bits / 8, bytes = ((first + n) * bits + 7) / 8 - begin, skipped = first - begin * 8 / bits;
  uint8_t *packed = xcalloc((size_t)bytes, 1);
  copy_bytes(s, DEVICE_TO_HOST, place, begin, packed, bytes);
  drain(s);
  for (int64_t i = 0; i < n; i++)
    if (kind == DEVICE_TO_HOST) host[i] = packed_load(packed, bits, skipped + i);
    else packed_store(packed, bits, skipped + i, host[i]);
  if (kind == DEVICE_FROM_HOST) copy_bytes(s, kind, place, begin, packed, bytes);
  drain(s);
  free(packed);
}

// `n` elements of a panel (inputs, rows), of which the first is number `from`, to or from the host's rows.
#define CONVERT(TYPE)                                                                                                  \
  for (int64_t i = 0; i < n; i++) {                                                                                    \
    TYPE *in_panel = (TYPE *)panel + k * rows + row, *in_row = (TYPE *)host + i;                                       \
    if (to_host) *in_row = *in_panel;                                                                                  \
    else *in_panel = *in_row;                                                                                          \
    if (++k == inputs) k = 0, row++;                                                                                   \
  }
static void convert_panel(int to_host, void *panel, int64_t rows, int64_t inputs, int64_t from, int64_t n, int size,
                          void *host) {
  int64_t row = from / inputs, k = from % inputs;
  CHECK(size == 2 || size == 4 || size == 8, "panels of elements of %d bytes", size);
  if (size == 2) CONVERT(uint16_t)
  else if (size == 4) CONVERT(uint32_t)
  else CONVERT(uint64_t)
}
#undef CONVERT

// The same as copy_bytes of `n` elements, number `first` on, of a matrix in panels. A panel of which others have a part
// is read before it is written.
static void copy_panels(const State *s, DeviceCopy kind, Place place, const Variable *v, int64_t first, int64_t n,
                        int size, char *host) {
  const int64_t *local = variable_local(s->program->graph, v, -1);
  int64_t inputs = 1, outputs = 1;
  for (int d = 0; d < v->shape.rank; d++) *(d < v->panels.lead ? &outputs : &inputs) *= local[d];
  const int64_t rows = v->panels.rows, all = rows * inputs, end = outputs / rows * all;
  const int is_host = s->device->space[place.space].is_host;
  char *panel = is_host ? NULL : xcalloc((size_t)all, (size_t)size);
  while (n && first < end) {
    const int64_t from = first % all, count = all - from < n ? all - from : n, at = (first - from) * size;
    if (is_host) panel = state_address(s, place) + at;
    const int is_part = !is_host && FAULT(panels_lose_what_others_have, kind == DEVICE_TO_HOST || count < all, 0);
    if (is_part) copy_bytes(s, DEVICE_TO_HOST, place, at, panel, all * size);
    if (is_part) drain(s);
    convert_panel(kind == DEVICE_TO_HOST, panel, rows, inputs, from, count, size, host);
    if (!is_host && kind == DEVICE_FROM_HOST) copy_bytes(s, kind, place, at, panel, all * size);
    if (!is_host && kind == DEVICE_FROM_HOST) drain(s);
    host += count * size;
    first += count;
    n -= count;
  }
  if (n) copy_bytes(s, kind, place, first * size, host, n * size);
  drain(s);
  if (!is_host) free(panel);
}

// Run by run: a run ends where the memory has padding, or what the part leaves out.
void state_copy_stored(const State *s, int variable, int copy, const Box *part, DeviceCopy kind, void *stored) {
  char *host = stored;
  int64_t stride[BOX_MAX_RANK], run = 1, index[BOX_MAX_RANK] = {0};
  Place place = program_variable_place(s->program, variable, copy, s->turn);
  const Variable *v = find_variable(s, variable, copy);
  int bits = variable_bits(v, copy), size = bits / 8;
  int outer = part->rank; // dims before this one are gone through one by one
  if (!box_elements(part)) return;
  ShardBoxes held = state_boxes(s, variable, copy);
  CHECK(shard_find(&held, part), "%s: rank %d does not have this part", v->name, s->rank);
  shard_strides(&held.shard, stride);
  while (outer > 0 && stride[outer - 1] == run) run *= part->local[--outer];
  for (;;) {
    int64_t at = 0;
    for (int d = 0; d < part->rank; d++)
      at += (held.at[d] + part->offset[d] - held.box.offset[d] + index[d]) * stride[d];
    if (copy < 0 && v->panels.rows) copy_panels(s, kind, place, v, at, run, size, host);
    else if (size) copy_bytes(s, kind, place, at * size, host, run * size);
    else copy_packed(s, kind, place, bits, at, run, (uint8_t *)host);
    host += run * (size ? size : 1);
    int d = outer - 1;
    while (d >= 0 && ++index[d] == part->local[d]) index[d--] = 0;
    if (d < 0) break;
  }
  drain(s);
}

// By the Variable's encoding; Copies are plain.
static const EncodingAccess *access_of(const State *s, int variable, int copy) {
  static const EncodingAccess *const access[ENCODING_COUNT] = {
#define ENCODING(id, file, storage, bits, block, part, memory, squares, meaning, ...) &encoding_##file,
#include "ir/encodings.def"
#undef ENCODING
  };
  return access[copy < 0 ? find_variable(s, variable, copy)->encoding : ENCODING_PLAIN];
}

void state_read(const State *s, int variable, int copy, const Box *part, void *out) {
  access_of(s, variable, copy)->read(s, variable, copy, part, out);
}

void state_write(State *s, int variable, int copy, const Box *part, const void *in) {
  access_of(s, variable, copy)->write(s, variable, copy, part, in);
  UNLESS_FAULT(written_state_is_not_stale) s->changes++;
}

void state_before_loading(State *s) {
  for (int i = 0; i < s->program->graph->variable.count; i++) {
    const EncodingAccess *access = access_of(s, i, -1);
    if (access->before_loading) access->before_loading(s, i);
  }
}

int state_has(const State *s, KnownVariable known) { return s->program->graph->known[known] >= 0; }

double state_scalar(const State *s, KnownVariable known) {
  CHECK(state_has(s, known), "this Program does not have %s, %s", known_name(known), known_what(known));
  double x;
  state_read(s, s->program->graph->known[known], -1, &(Box){0}, &x);
  return x;
}

// Initialisation ----------------------------------------------------------------------------------------------------

// A piece of a Variable, whose elements a team's threads make in parts.
typedef struct InitPiece {
  const Variable *variable;
  PhiloxKey key;
  const Box *box;
  void *out;
} InitPiece;
enum { INIT_PART = 1 << 12 }; // elements

// The elements of one row of the last dim, whose first has the global index `first`.
static void init_row(const InitPiece *p, int64_t first, int64_t count, int64_t at) {
  const Variable *v = p->variable;
  for (int64_t i = 0; i < count; i++) {
    double x = v->init.value;
    if (v->init.kind == INIT_NORMAL) x *= philox_normal(p->key, (uint64_t)(first + i));
    dtype_store(p->out, variable_dtype(v), at + i, x);
  }
}

// The global index of an element of the box, by its place there.
static int64_t global_index(const InitPiece *p, int64_t at) {
  int64_t index = 0, stride = 1;
  for (int d = p->variable->shape.rank - 1; d >= 0; d--) {
    index += (p->box->offset[d] + at % p->box->local[d]) * stride;
    at /= p->box->local[d];
    stride *= FAULT(address_of_init, p->variable->shape.size[d], p->box->local[d]);
  }
  return index;
}

static void init_part(void *argument, int slot, int64_t part) {
  const InitPiece *p = argument;
  int rank = p->variable->shape.rank;
  int64_t width = rank ? p->box->local[rank - 1] : 1, at = part * INIT_PART, end = at + INIT_PART;
  if (end > box_elements(p->box)) end = box_elements(p->box);
  while (at < end) {
    int64_t count = width - at % width;
    if (count > end - at) count = end - at;
    init_row(p, global_index(p, at), count, at);
    at += FAULT(init_parts_end_at_rows, count, width);
  }
}

void state_init(State *s, uint64_t seed, VariableTest *wanted, Team *team) {
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
        InitPiece piece = {v, key, &pieces.piece, memory};
        team_each(team, (box_elements(&pieces.piece) + INIT_PART - 1) / INIT_PART, init_part, &piece);
        state_write(s, i, -1, &pieces.piece, memory);
      }
    }
  }
  free(memory);
}
