// The arena of a rank, and the init rules of Variables.
#include "program/state.h"
#include "base/fault.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

int64_t program_work_bytes(const Program *p) { return program_scratch_offset(p) + p->scratch_bytes; }

int64_t state_plan_bytes(const Program *program, int64_t work_bytes) {
  return round_up(program->state_bytes + work_bytes + BUFFER_ALIGNMENT, HUGE_PAGE);
}

int state_create(const Program *program, int64_t work_bytes, int rank, State **out, Error *error) {
  State *s = xcalloc(1, sizeof *s);
  s->program = program;
  s->rank = rank;
  s->bytes = state_plan_bytes(program, work_bytes);
  int64_t asked = s->bytes + HUGE_PAGE;
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  errno = ENOMEM; // 32 bits cannot even ask for more than 4 GiB
  char *raw = (int64_t)(size_t)asked == asked ? mmap(NULL, (size_t)asked, protection, flags, -1, 0) : MAP_FAILED;
  if (raw == MAP_FAILED) {
    int why = errno;
    error_set(error, PLAIT_NO_MEMORY, "rank %d: cannot get the %lld bytes of its memory plan: %s", rank, (long long)s->bytes, strerror(why));
    free(s);
    return PLAIT_NO_MEMORY;
  }
  char *aligned = (char *)(intptr_t)round_up((int64_t)(intptr_t)raw, HUGE_PAGE);
  if (aligned > raw) munmap(raw, (size_t)(aligned - raw));
  if (aligned - raw < HUGE_PAGE) munmap(aligned + s->bytes, (size_t)(HUGE_PAGE - (aligned - raw)));
  s->memory = aligned;
  madvise(s->memory, (size_t)s->bytes, MADV_HUGEPAGE);
  memset(s->memory, 0, (size_t)s->bytes);
  s->work = s->memory + round_up(program->state_bytes, BUFFER_ALIGNMENT);
  *out = s;
  return PLAIT_OK;
}

void state_destroy(State *s) {
  if (!s) return;
  munmap(s->memory, (size_t)s->bytes);
  free(s);
}

void *state_variable(const State *s, int v, int copy) {
  const Graph *g = s->program->graph;
  CHECK(v >= 0 && v < g->variable.count && copy < g->variable.data[v].copies, "Variable %d, Copy %d does not exist", v, copy);
  if (s->program->variable_offset[v] < 0) return NULL;
  const Variable *variable = &g->variable.data[v];
  if (!placement_here(&s->program->mesh, copy < 0 ? variable->storage : variable->copy[copy].placement, s->rank)) return NULL;
  return s->memory + (copy < 0 ? s->program->variable_offset[v] : s->program->copy_offset[v][copy]);
}

int state_has(const State *s, KnownVariable known) { return s->program->graph->known[known] >= 0; }

double state_scalar(const State *s, KnownVariable known) {
  CHECK(state_has(s, known), "this Program does not have %s, %s", known_name(known), known_what(known));
  const double *x = state_variable(s, s->program->graph->known[known], -1);
  CHECK(x, "%s does not live on this rank", known_name(known));
  return *x;
}

// Global linear index of a local element, or -1 when it is padding.
static int64_t global_index(const Variable *v, const IndexMap *map, int64_t local) {
  int64_t index[MAX_RANK], linear = 0;
  for (int d = v->shape.rank - 1; d >= 0; d--) {
    index[d] = local % map[d].local;
    local /= map[d].local;
  }
  for (int d = 0; d < v->shape.rank; d++) {
    if (index[d] >= map[d].valid) return -1;
    linear = linear * FAULT(address_of_init, v->shape.size[d], map[d].local) + index_map(&map[d], index[d]);
  }
  return linear;
}

static void init_variable(State *s, const Variable *v, uint64_t seed) {
  void *data = s->memory + s->program->variable_offset[v->id];
  IndexMap map[MAX_RANK];
  int64_t n = 1;
  for (int d = 0; d < v->shape.rank; d++) {
    map[d] = axis_list_map(&s->program->mesh, &v->storage->dim[d], v->shape.size[d], s->rank);
    n *= map[d].local;
  }
  PhiloxKey key = philox_key(seed, 0, philox_name(v->name));
  for (int64_t i = 0; i < n; i++) {
    int64_t g = global_index(v, map, i);
    double x = v->init.kind == INIT_ZERO ? 0 : v->init.value;
    if (v->init.kind == INIT_NORMAL) x *= philox_normal(key, (uint64_t)g);
    dtype_store(data, v->dtype, i, g < 0 ? 0 : x);
  }
}

void state_init(State *s, uint64_t seed, unsigned kinds) {
  const Graph *g = s->program->graph;
  for (int i = 0; i < g->variable.count; i++)
    if (kinds >> g->variable.data[i].kind & 1 && s->program->variable_offset[i] >= 0 && g->variable.data[i].init.kind != INIT_ZERO && placement_here(&s->program->mesh, g->variable.data[i].storage, s->rank))
      init_variable(s, &g->variable.data[i], seed);
}
