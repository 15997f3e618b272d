#include "runtime/mirror.h"
#include "base/fault.h"
#include "device/host.h"
#include "op/op.h"
#include <stdlib.h>

int mirror_create(const Device *device, int64_t bytes, Mirror **out, Error *error) {
  Mirror *m = xcalloc(1, sizeof *m);
  *m = (Mirror){.device = device, .bytes = round_up(bytes, MIRROR_PAGE), .refused = !device->implementation->pin};
  int code = host_reserve(m->bytes, &m->memory, error);
  if (code) return free(m), code;
  m->pinned = xcalloc((size_t)(m->bytes / MIRROR_PAGE) + 1, 1);
  pthread_mutex_init(&m->mutex, NULL);
  *out = m;
  return PLAIT_OK;
}

void mirror_destroy(Mirror *m) {
  if (!m) return;
  for (int i = 0; i < m->runs.count; i++) m->device->implementation->unpin(m->device, m->runs.data[i].at);
  host_release(m->memory, m->bytes);
  pthread_mutex_destroy(&m->mutex);
  vec_free(&m->runs);
  free(m->pinned);
  free(m);
}

static void pin_run(Mirror *m, int64_t first, int64_t end) {
  MirrorRun run = {m->memory + first * MIRROR_PAGE, (end - first) * MIRROR_PAGE};
  m->refused = !m->device->implementation->pin(m->device, run.at, run.bytes);
  if (m->refused) return;
  for (int64_t page = first; page < end; page++) m->pinned[page] = 1;
  vec_push(&m->runs, run);
}

void mirror_pin(Mirror *m, int64_t offset, int64_t bytes) {
  if (bytes <= 0) return;
  pthread_mutex_lock(&m->mutex);
  const int64_t end = (offset + bytes - 1) / MIRROR_PAGE + 1;
  for (int64_t page = offset / MIRROR_PAGE, next; page < end && !m->refused; page = next) {
    for (next = page; next < end && !m->pinned[next];) next++;
    if (next > page) pin_run(m, page, next);
    else next = page + 1;
  }
  pthread_mutex_unlock(&m->mutex);
}

// Pages that will be touched ------------------------------------------------------------------------------------------

// owner: of the Variables.
typedef struct Touched { const Program *owner; uint8_t *page; int64_t count, work, bytes; } Touched;

static void touch(Touched *t, Place place, int64_t bytes) {
  if (place.offset < 0 || place.space || bytes <= 0) return;
  const int64_t from = place.offset + (place.area == AREA_VARIABLE ? 0 : t->work);
  CHECK(from + bytes <= t->bytes, "a tensor beyond its memory");
  for (int64_t page = from / MIRROR_PAGE; page <= (from + bytes - 1) / MIRROR_PAGE; page++) {
    t->count += !t->page[page];
    t->page[page] = 1;
  }
}

// All instances of a tensor.
static void touch_tensor(Touched *t, const Program *p, int tensor) {
  const Tensor *x = graph_tensor(p->graph, tensor);
  const TensorPlace *at = &p->place[tensor];
  const int64_t bytes = tensor_allocated(p->graph, x) * (int64_t)dtype_size(x->dtype);
  if (at->area == AREA_VARIABLE) {
    const Program *o = t->owner;
    const int v = graph_find_variable(o->graph, p->graph->variable.data[x->variable].name);
    const int turns = !o->schedule->streams ? 1
                      : x->copy >= 0        ? o->copy_instances[v][x->copy]
                      : o->places[v]        ? o->graph->variable.data[o->graph->variable.data[v].parameter].delay + 1
                                            : o->variable_instances[v];
    for (int i = 0; i < turns; i++)
      touch(t, program_variable_place(o, v, x->copy, (Turn){.step = i, .newest = i}), bytes);
  } else if (at->area == AREA_INPUT) {
    touch(t, (Place){.area = AREA_INPUT, .offset = program_input_offset(p)}, p->input_bytes); // some of them
  } else {
    for (int i = 0; i < at->count; i++)
      touch(t, (Place){.area = at->area, .offset = p->offset[at->first + i]}, bytes);
  }
}

static void touch_body(Touched *t, const Program *p, const Body *body) {
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    if (!op_def(n->op)->communicates) continue;
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      const int tensor = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (tensor >= 0 && node_moves_operand(n, k)) touch_tensor(t, p, tensor);
    }
  }
}

static void touch_program(Touched *t, const Program *p) {
  touch_body(t, p, &p->begin);
  touch_body(t, p, &p->end);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) touch_body(t, p, &p->micro[s][phase]);
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (a->kind == ACTION_SEND || a->kind == ACTION_RECV) touch_tensor(t, p, a->tensor);
  }
}

int64_t mirror_touched(Program *const *program, int count, int64_t work, int64_t bytes) {
  Touched t = {
      .owner = program[0], .page = xcalloc((size_t)(bytes / MIRROR_PAGE) + 2, 1), .work = work, .bytes = bytes};
  int sketch = 0; // has no offsets
  for (int i = 0; i < count; i++) sketch |= program[i]->sketch;
  for (int i = 0; i < count && !sketch; i++) touch_program(&t, program[i]);
  free(t.page);
  return FAULT(plan_lacks_the_mirror, sketch ? bytes : t.count * MIRROR_PAGE, 0);
}
