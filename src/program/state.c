// A rank's memory: parts of Variables for those who are not kernels, and init rules.
#include "program/state.h"
#include "base/fault.h"
#include <string.h>

int64_t program_work_bytes(const Program *p) { return program_input_offset(p) + p->input_bytes; }

int64_t state_plan_bytes(const Program *program, int64_t work_bytes) {
  const DeviceSpace *space = &program->device->space;
  return round_up(program->state_bytes + work_bytes + space->alignment, space->page);
}

int state_create(const Program *program, const Device *device, int64_t work_bytes, int rank, State **out, Error *error) {
  State *s = xcalloc(1, sizeof *s);
  *s = (State){.program = program, .device = device, .rank = rank, .bytes = state_plan_bytes(program, work_bytes)};
  int code = device_allocate(device, s->bytes, &s->memory, error);
  if (code) error_prefix(error, "rank %d", rank);
  if (!code) code = device_queue_create(device, NULL, &s->queue, error);
  if (code) {
    state_destroy(s);
    return code;
  }
  s->work = s->memory + round_up(program->state_bytes, device->space.alignment);
  *out = s;
  return PLAIT_OK;
}

void state_destroy(State *s) {
  if (!s) return;
  device_queue_destroy(s->queue);
  device_release(s->device, s->memory, s->bytes);
  free(s);
}

// Parts of Variables ------------------------------------------------------------------------------------------------

static const Variable *find_variable(const State *s, int v, int copy) {
  const Graph *g = s->program->graph;
  CHECK(v >= 0 && v < g->variable.count && copy < g->variable.data[v].copies, "Variable %d, Copy %d does not exist", v, copy);
  return &g->variable.data[v];
}

int state_box(const State *s, int variable, int copy, Box *box) {
  const Variable *v = find_variable(s, variable, copy);
  const Placement *p = variable_placement(v, copy);
  if (s->program->variable_offset[variable] < 0 || !placement_here(&s->program->mesh, p, s->rank)) return 0;
  *box = (Box){.rank = v->shape.rank};
  for (int d = 0; d < v->shape.rank; d++) {
    IndexMap map = axis_list_map(&s->program->mesh, &p->dim[d], v->shape.size[d], s->rank);
    box->local[d] = map.valid;
    box->offset[d] = map.valid ? map.run[0].global : 0;
  }
  return 1;
}

Dtype state_dtype(const State *s, int variable, int copy) {
  const Variable *v = find_variable(s, variable, copy);
  return copy < 0 ? v->dtype : v->copy[copy].dtype;
}

// stride[d]: elements between neighbours in dim d.
static void memory_strides(const State *s, const Variable *v, const Placement *p, int64_t stride[BOX_MAX_RANK]) {
  int64_t n = 1;
  for (int d = v->shape.rank - 1; d >= 0; d--) {
    stride[d] = n;
    n *= axis_list_map(&s->program->mesh, &p->dim[d], v->shape.size[d], s->rank).local;
  }
}

// The host's memory ↔ a part of a Variable, run by run: a run ends where the memory has padding, or what the part leaves out.
static void copy_part(const State *s, int variable, int copy, const Box *part, DeviceCopy kind, char *host) {
  const Variable *v = find_variable(s, variable, copy);
  int64_t stride[BOX_MAX_RANK], run = 1, offset = copy < 0 ? s->program->variable_offset[variable] : s->program->copy_offset[variable][copy];
  int64_t size = (int64_t)dtype_size(state_dtype(s, variable, copy)), index[BOX_MAX_RANK] = {0};
  int outer = part->rank; // dims before this one are gone through one by one
  Box held;
  CHECK(state_box(s, variable, copy, &held) && part->rank == held.rank, "%s does not live on rank %d", v->name, s->rank);
  memory_strides(s, v, variable_placement(v, copy), stride);
  for (int d = 0; d < part->rank; d++)
    CHECK(part->offset[d] >= held.offset[d] && part->offset[d] + part->local[d] <= held.offset[d] + held.local[d], "%s: rank %d does not have this part", v->name, s->rank);
  if (!box_elements(part)) return;
  while (outer > 0 && stride[outer - 1] == run) run *= part->local[--outer];
  for (;;) {
    int64_t at = 0;
    for (int d = 0; d < part->rank; d++) at += (part->offset[d] - held.offset[d] + index[d]) * stride[d];
    char *memory = s->memory + offset + at * size;
    char *to = kind == DEVICE_TO_HOST ? host : memory, *from = kind == DEVICE_TO_HOST ? memory : host;
    FAULT(memory_is_a_pointer, device_copy(s->queue, kind, to, from, run * size), (void)memcpy(to, from, (size_t)(run * size)));
    host += run * size;
    int d = outer - 1;
    while (d >= 0 && ++index[d] == part->local[d]) index[d--] = 0;
    if (d < 0) break;
  }
  Error error = {0};
  CHECK(!device_drain(s->queue, &error), "%s", error.message);
}

void state_read(const State *s, int variable, int copy, const Box *part, void *out) { copy_part(s, variable, copy, part, DEVICE_TO_HOST, out); }

void state_write(State *s, int variable, int copy, const Box *part, const void *in) {
  copy_part(s, variable, copy, part, DEVICE_FROM_HOST, (char *)(uintptr_t)in);
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
    dtype_store(out, v->dtype, at + i, x);
  }
}

static void init_piece(const Variable *v, PhiloxKey key, const Box *piece, void *out) {
  int rank = v->shape.rank;
  int64_t width = rank ? piece->local[rank - 1] : 1, rows = box_elements(piece) / width, index[BOX_MAX_RANK] = {0};
  for (int64_t r = 0; r < rows; r++) {
    int64_t first = 0;
    for (int d = 0; d < rank; d++) first = first * FAULT(address_of_init, v->shape.size[d], piece->local[d]) + piece->offset[d] + index[d];
    init_row(v, key, first, width, out, r * width);
    for (int d = rank - 2; d >= 0 && ++index[d] == piece->local[d]; d--) index[d] = 0;
  }
}

void state_init(State *s, uint64_t seed, unsigned kinds) {
  enum { AT_ONCE = 1 << 16 };
  const Graph *g = s->program->graph;
  double *memory = xcalloc(AT_ONCE, sizeof *memory);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    BoxPieces pieces = {.most = AT_ONCE};
    if (!(kinds >> v->kind & 1) || v->init.kind == INIT_ZERO || !state_box(s, i, -1, &pieces.whole)) continue;
    PhiloxKey key = philox_key(seed, 0, philox_name(v->name));
    while (box_next_piece(&pieces)) {
      init_piece(v, key, &pieces.piece, memory);
      state_write(s, i, -1, &pieces.piece, memory);
    }
  }
  free(memory);
}
