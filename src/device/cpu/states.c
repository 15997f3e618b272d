// Moments that are codes (op/state_code.h) go some blocks at a time through the level's kernel of the optimizer:
// decoded on the stack, updated, encoded again. Where a rank has whole blocks, their scales are found on the way.
#include "device/cpu/states.h"
#include "base/fault.h"
#include "op/state_update.h"

// Elements and runs at a time. Parts end at multiples of AT_ONCE, which is one of every block, as units are, so that
// whole blocks stay whole; or after RUNS runs, where blocks are not whole anyway: whole ones are fewer.
enum { AT_ONCE = 1024, RUNS = 64 };

static int has_loops(const StateCode *c) { return c->bits == 8; }

static uint32_t segment_of(const StateCode *c, uint32_t bits) { return bits >> 23 < 127 ? c->segment[bits >> 23] : 0; }

void state_tables(Encoding encoding, StateTables *t) {
  *t = (StateTables){.by_bits = {0}};
  state_code(encoding, &t->code);
  if (!has_loops(&t->code)) return;
  const uint32_t last = STATE_SEGMENTS - 1;
  for (uint32_t i = 0; i < 16; i++) { // each for two octaves, which are of one segment; the first for all below, too
    uint32_t from = (i << STATE_BITS_SHIFT) - (uint32_t)STATE_BITS_OFFSET, segment = segment_of(&t->code, from);
    CHECK(segment == segment_of(&t->code, from + (1 << 23)) && (i || segment == last), "segments are of two octaves");
    t->by_bits[i] = (uint8_t)(last - segment);
  }
  for (uint32_t code = t->code.positive ? 255 : 127, known = 16; code > 0; code--) {
    uint32_t bits, at = (code + 1) / 8 < 15 ? (code + 1) / 8 : 15;
    memcpy(&bits, &t->code.value[code], 4);
    uint8_t by = (uint8_t)(last - segment_of(&t->code, bits));
    CHECK(at != known || t->by_code[at] == by, "segments are of 8 codes");
    t->by_code[known = at] = by;
  }
  for (uint32_t s = 0; s < STATE_SEGMENTS; s++) t->base[last - s] = t->code.base[s];
  CHECK(!t->by_code[0], "small codes are of the last segment");
}

static uint32_t most_of_doubles(const double *x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    float y = (float)x[i];
    uint32_t u;
    memcpy(&u, &y, 4);
    u &= 0x7fffffffu;
    most = u > most ? u : most;
  }
  return most;
}

typedef struct Update {
  const KernelCall *call;
  const StateAttr *attr;
  const StateLoops *loops;
  Kernel kernel; // of the optimizer's op
  PhiloxKey key;
  StateMoments moments;
  StateTables tables[OPTIMIZER_STATES];
  int only_scales; // STATE_SCALES
  int given;       // new scales are
} Update;

// Elements of a rank from `from` on: all of these runs, and padding. Moments have the same runs.
typedef struct Part {
  int64_t from, n;
  int count, padding;
  StateRun run[RUNS];
} Part;

static void find_part(const Update *u, int64_t from, int64_t to, Part *p) {
  int64_t end = (from / AT_ONCE + 1) * AT_ONCE, covered = 0;
  p->from = from;
  p->n = (to < end ? to : end) - from;
  p->count = 0;
  StateRuns runs =
      state_runs(u->moments.moment[0].encoding, &u->call->input[u->moments.moment[0].input], from, from + p->n);
  while (state_next_run(&runs)) {
    if (p->count == RUNS) { // the next part begins with this one
      p->n = FAULT(parts_forget_runs, runs.run.at - from, p->n);
      break;
    }
    p->run[p->count++] = runs.run;
    covered += runs.run.n;
  }
  p->padding = covered < p->n;
}

static int is_wide(const Update *u) { return u->attr->dtype == DTYPE_F64; }

static int by_loops(const Update *u, int i) { return !is_wide(u) && has_loops(&u->tables[i].code); }

static void raise_scale(float *scale, uint32_t bits) {
  uint32_t *at = (uint32_t *)(void *)scale, now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (now < bits && !__atomic_compare_exchange_n(at, &now, bits, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

// Element by element: moments that are computed in fp64, or of a code without loops, at every level.
static void decode_each(const Update *u, int i, const StateRun *r, const uint8_t *codes, float scale, void *to,
                        int64_t at) {
  const StateCode *c = &u->tables[i].code;
  for (int64_t e = 0; e < r->n; e++) {
    float x = state_decode(c, packed_load(codes, c->bits, r->at + e), scale);
    if (is_wide(u)) ((double *)to)[at + e] = (double)x;
    else ((float *)to)[at + e] = x;
  }
}
static void encode_each(const Update *u, int i, const StateRun *r, uint8_t *codes, float inverse, const void *x,
                        const uint32_t *random) {
  const StateCode *c = &u->tables[i].code;
  for (int64_t e = 0; e < r->n; e++) {
    float one = is_wide(u) ? (float)((const double *)x)[e] : ((const float *)x)[e];
    packed_store(codes, c->bits, r->at + e, state_encode(c, one, inverse, random[e] >> 16 * (i & 1) & 0xffff));
  }
}

// Moment number i. to: (part->n)
static void decode(const Update *u, int i, const Part *part, void *to) {
  const uint8_t *codes = u->call->input[u->moments.moment[i].input].data;
  const float *scales = u->call->input[u->attr->ninput + i].data;
  if (part->padding) memset(to, 0, (size_t)part->n * dtype_size((Dtype)u->attr->dtype));
  for (const StateRun *r = part->run; r < part->run + part->count; r++) {
    int64_t at = r->at - part->from;
    if (by_loops(u, i)) u->loops->decode((float *)to + at, codes + r->at, r->n, &u->tables[i], scales[r->scale]);
    else decode_each(u, i, r, codes, scales[r->scale], to, at);
  }
}

// The scale of a run of moment number i, whose elements are x. Returns 0 where only scales are asked for
// (STATE_SCALES).
static int scale_of(const Update *u, int i, const StateRun *r, const void *x, float *scale) {
  if (u->given) {
    const float *given = u->call->input[u->attr->ninput + u->moments.count + i].data;
    *scale = given[r->scale];
    return 1;
  }
  float *scales = u->call->output[u->only_scales ? i : u->attr->noutput + i].data;
  uint32_t bits = state_scale_bits(is_wide(u) ? most_of_doubles(x, r->n) : u->loops->most(x, r->n));
  if (u->only_scales) {
    raise_scale(&scales[r->scale], bits);
    return 0;
  }
  memcpy(scale, &bits, 4);
  scales[r->scale] = *scale;
  return 1;
}

// A word for each element of the run, whose halves round two moments: number i, which is even, and the next one.
static const uint32_t *draw(const Update *u, int i, const StateRun *r, uint32_t *room) {
  uint64_t index = FAULT(rounding_by_local_index, r->index, (uint64_t)r->at), first = index & ~UINT64_C(3);
  u->loops->random(u->key, (uint32_t)i >> 1, first, r->n + (int64_t)(index - first), room);
  return room + (index - first);
}

static void clear_codes(const Update *u, int i, const Part *part) {
  uint8_t *codes = u->call->output[u->moments.moment[i].output].data;
  int bits = u->tables[i].code.bits;
  if (bits == 8) memset(codes + part->from, 0, (size_t)part->n);
  for (int64_t e = 0; bits < 8 && e < part->n; e++) packed_store(codes, bits, part->from + e, 0);
}

static void encode(const Update *u, const Part *part, double moment[][AT_ONCE]) {
  uint32_t room[STATE_BLOCK_MOST + 4 + STATE_RANDOM_ROOM];
  const uint32_t *random = room;
  for (int i = 0; part->padding && !u->only_scales && i < u->moments.count; i++) clear_codes(u, i, part);
  for (const StateRun *r = part->run; r < part->run + part->count; r++)
    for (int i = 0; i < u->moments.count; i++) {
      int64_t at = r->at - part->from;
      const void *x = is_wide(u) ? (const void *)(moment[i] + at) : (const void *)((const float *)moment[i] + at);
      float scale;
      if (!scale_of(u, i, r, x, &scale)) continue;
      if (i % 2 == 0) random = draw(u, i, r, room);
      uint8_t *codes = u->call->output[u->moments.moment[i].output].data;
      float inverse = state_inverse(scale);
      if (by_loops(u, i)) u->loops->encode(codes + r->at, x, r->n, &u->tables[i], inverse, random, i & 1);
      else encode_each(u, i, r, codes, inverse, x, random);
    }
}

// The optimizer's call on one part after the other, whose moments are here. Operands are large: only what differs
// between parts is written for each.
typedef struct Wide {
  KernelCall call;
  Operand input[STATE_MOST], output[STATE_MOST];
  double moment[OPTIMIZER_STATES][AT_ONCE], other[2][AT_ONCE]; // room for elements of any dtype
} Wide;

static void prepare(const Update *u, Wide *w) {
  const KernelCall *call = u->call;
  const StateAttr *attr = u->attr;
  w->call = state_inner_call(call, w->input, w->output);
  for (int k = 0; k < attr->ninput; k++) w->input[k] = cpu_operand_part(&call->input[k], 0, AT_ONCE);
  const Operand *last = &w->input[attr->ninput - 1];
  for (int k = 0; k < attr->noutput; k++) {
    if (!u->only_scales) {
      w->output[k] = cpu_operand_part(&call->output[k], 0, AT_ONCE);
      continue;
    }
    // STATE_SCALES needs the new moments only: other outputs (w and its lower bits) go to memory that nobody reads.
    w->output[k] = k == attr->noutput - 1 && last->dtype == DTYPE_U16 ? *last : w->input[0];
    if (w->output[k].dtype == DTYPE_U8) w->output[k].dtype = (Dtype)attr->dtype;
    w->output[k].data = w->other[k > 0];
  }
  for (int i = 0; i < u->moments.count; i++) {
    const StateMoment *m = &u->moments.moment[i];
    w->input[m->input].data = w->moment[i];
    w->input[m->input].dtype = (Dtype)attr->dtype;
    w->output[m->output] = w->input[m->input];
  }
}

// of: what `prepare` made of x; a moment and what nobody reads stay where they are.
static void set_part(const Part *part, const Operand *x, Operand *of, int stays) {
  if (!x->data || !x->rank) return;
  if (!stays) of->data = (char *)x->data + part->from * (int64_t)dtype_size(x->dtype);
  if (of->size[0] == part->n) return;
  of->size[0] = part->n;
  of->map[0] = index_whole(part->n);
}

static void run_part(const Update *u, const Part *part, Wide *w) {
  uint32_t in = 0, out = 0; // moments
  for (int i = 0; i < u->moments.count; i++) {
    in |= 1u << u->moments.moment[i].input;
    out |= 1u << u->moments.moment[i].output;
    decode(u, i, part, w->moment[i]);
  }
  for (int k = 0; k < w->call.ninput; k++) set_part(part, &u->call->input[k], &w->input[k], in >> k & 1);
  for (int k = 0; k < w->call.noutput; k++)
    set_part(part, u->only_scales ? &w->output[k] : &u->call->output[k], &w->output[k], u->only_scales || out >> k & 1);
  int old = FAULT(scales_before_the_update, 0, u->only_scales);
  if (!old) u->kernel(&w->call);
  encode(u, part, w->moment);
}

static void run_unit(void *argument, int slot, int64_t unit) {
  const Update *u = argument;
  RowRange r = chunk_range(operand_elements(&u->call->input[u->moments.moment[0].input]), unit);
  Wide wide;
  Part part;
  prepare(u, &wide);
  for (int64_t from = r.from; from < r.to; from += part.n) {
    find_part(u, from, r.to, &part);
    run_part(u, &part, &wide);
  }
}

// The dtype of w, by which the optimizer's kernel is looked up; of an op without w, that in which it computes.
static Dtype kernel_dtype(const KernelCall *call, const StateAttr *attr) {
  return call->input[0].dtype == DTYPE_U8 ? (Dtype)attr->dtype : call->input[0].dtype;
}

static void run(const KernelCall *call, CpuLevel level, const StateLoops *loops, int only_scales) {
  const StateAttr *attr = call->attr;
  Update u = {.call = call, .attr = attr, .loops = loops, .only_scales = only_scales};
  u.moments = state_moments_of_call(call);
  u.given = !only_scales && call->ninput > attr->ninput + u.moments.count;
  u.key = philox_key(call->parameters->seed, call->parameters->step, attr->stream);
  const KernelEntry *entry = cpu_find(level, (Op)attr->op, kernel_dtype(call, attr));
  u.kernel = entry ? entry->kernel : op_def((Op)attr->op)->reference;
  for (int i = 0; i < u.moments.count; i++) state_tables(u.moments.moment[i].encoding, &u.tables[i]);
  for (int i = 0; only_scales && i < u.moments.count; i++)
    memset(call->output[i].data, 0, (size_t)operand_elements(&call->output[i]) * sizeof(float));
  int64_t n = operand_elements(&call->input[u.moments.moment[0].input]);
  team_each(call_team(call), chunk_units(n), run_unit, &u);
  for (int i = 0; u.given && i < u.moments.count; i++) { // all have been decoded with the old ones
    const Operand *to = &call->output[attr->noutput + i];
    memcpy(to->data, call->input[attr->ninput + u.moments.count + i].data,
           (size_t)operand_elements(to) * sizeof(float));
  }
}

#define KERNELS(level, number, loops)                                                                                  \
  static void update_##level(const KernelCall *call) { run(call, number, &loops, 0); }                                 \
  static void scales_##level(const KernelCall *call) { run(call, number, &loops, 1); }                                 \
  const KernelEntry cpu_states_##level[] = {                                                                           \
      {OP_STATE_UPDATE, DTYPE_F32, update_##level, NULL},  {OP_STATE_UPDATE, DTYPE_F64, update_##level, NULL},         \
      {OP_STATE_UPDATE, DTYPE_BF16, update_##level, NULL}, {OP_STATE_SCALES, DTYPE_F32, scales_##level, NULL},         \
      {OP_STATE_SCALES, DTYPE_F64, scales_##level, NULL},  {OP_STATE_SCALES, DTYPE_BF16, scales_##level, NULL},        \
      {OP_COUNT, DTYPE_COUNT, NULL, NULL},                                                                             \
  };
KERNELS(portable, CPU_PORTABLE, state_loops_portable)
#if defined(__x86_64__)
KERNELS(avx2, CPU_AVX2, state_loops_avx2)
KERNELS(avx512, CPU_AVX512, state_loops_avx512)
#endif
