// Moments of 8 bits (op/state_code.h) go block by block through the level's kernel of the optimizer: decoded on the
// stack, updated, encoded again. Where a rank has whole blocks, their scales are found on the way.
#include "device/cpu/states.h"
#include "base/fault.h"
#include "device/cpu/philox_batch.h"
#include "op/state_update.h"

enum { AT_ONCE = 2048 }; // elements; a multiple of STATE_BLOCK, as units are, so that whole blocks stay whole

// What a level does with the elements of one run. `random` of the first: a word for each element from `index`, a
// multiple of 4, on, and room for PHILOX_BATCH counters more; of encode: 16 bits of each word, from bit `shift` on.
typedef struct StateLoops {
  void (*random)(PhiloxKey key, uint32_t stream, uint64_t index, int64_t n, uint32_t *out);
  void (*decode_float)(float *to, const uint8_t *from, int64_t n, const StateCode *code, float scale);
  void (*decode_double)(double *to, const uint8_t *from, int64_t n, const StateCode *code, float scale);
  uint32_t (*most_float)(const float *x, int64_t n); // bits of the largest absolute value
  uint32_t (*most_double)(const double *x, int64_t n);
  void (*encode_float)(uint8_t *to, const float *from, int64_t n, const StateCode *code, float inverse,
                       const uint32_t *random, uint32_t shift);
  void (*encode_double)(uint8_t *to, const double *from, int64_t n, const StateCode *code, float inverse,
                        const uint32_t *random, uint32_t shift);
} StateLoops;

#define LOOPS_OF(level, attribute, real)                                                                               \
  attribute static void decode_##real##_##level(real *restrict to, const uint8_t *restrict from, int64_t n,            \
                                                const StateCode *code, float scale) {                                  \
    for (int64_t i = 0; i < n; i++) to[i] = (real)state_decode(code, from[i], scale);                                  \
  }                                                                                                                    \
  attribute static uint32_t most_##real##_##level(const real *restrict x, int64_t n) {                                 \
    uint32_t most = 0;                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      float y = (float)x[i];                                                                                           \
      uint32_t u;                                                                                                      \
      memcpy(&u, &y, 4);                                                                                               \
      u &= 0x7fffffffu;                                                                                                \
      most = u > most ? u : most;                                                                                      \
    }                                                                                                                  \
    return most;                                                                                                       \
  }                                                                                                                    \
  attribute static void encode_##real##_##level(uint8_t *restrict to, const real *restrict from, int64_t n,            \
                                                const StateCode *code, float inverse, const uint32_t *restrict random, \
                                                uint32_t shift) {                                                      \
    for (int64_t i = 0; i < n; i++)                                                                                    \
      to[i] = state_encode(code, (float)from[i], inverse, random[i] >> shift & 0xffff);                                \
  }

#define LOOPS(level, attribute)                                                                                        \
  attribute static void random_##level(PhiloxKey key, uint32_t stream, uint64_t index, int64_t n, uint32_t *out) {     \
    uint32_t c[4][PHILOX_BATCH];                                                                                     \
    for (int64_t from = 0; from < n; from += 4 * PHILOX_BATCH) {                                                     \
      for (int i = 0; i < PHILOX_BATCH; i++) {                                                                       \
        uint64_t number = (index + (uint64_t)from) / 4 + (uint64_t)i;                                                  \
        c[0][i] = (uint32_t)number;                                                                                    \
        c[1][i] = (uint32_t)(number >> 32);                                                                            \
        c[2][i] = stream;                                                                                              \
        c[3][i] = 0;                                                                                                   \
      }                                                                                                                \
      philox_rounds(key, c);                                                                                           \
      for (int i = 0; i < PHILOX_BATCH; i++)                                                                         \
        for (int word = 0; word < 4; word++) out[from + 4 * i + word] = c[word][i];                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  LOOPS_OF(level, attribute, float)                                                                                    \
  LOOPS_OF(level, attribute, double)                                                                                   \
  static const StateLoops loops_##level = {random_##level,       decode_float_##level,  decode_double_##level,         \
                                           most_float_##level,   most_double_##level,   encode_float_##level,          \
                                           encode_double_##level};

LOOPS(portable, )
#if defined(__x86_64__)
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

typedef struct Update {
  const KernelCall *call;
  const StateAttr *attr;
  const StateLoops *loops;
  Kernel kernel; // of the optimizer's op
  PhiloxKey key;
  StateMoments moments;
  StateCode code[OPTIMIZER_STATES];
  int only_scales; // STATE_SCALES
  int given;       // new scales are
} Update;

static void raise_scale(float *scale, uint32_t bits) {
  uint32_t *at = (uint32_t *)(void *)scale, now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (now < bits && !__atomic_compare_exchange_n(at, &now, bits, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static void decode(const Update *u, int i, int64_t from, int64_t n, void *to) {
  const Operand *codes = &u->call->input[u->moments.moment[i].input];
  const float *scales = u->call->input[u->attr->ninput + i].data;
  int wide = u->attr->dtype == DTYPE_F64;
  StateRuns runs = state_runs(codes, from, from + n);
  memset(to, 0, (size_t)n * dtype_size((Dtype)u->attr->dtype)); // padding
  while (state_next_run(&runs)) {
    const uint8_t *code = (const uint8_t *)codes->data + runs.run.at;
    if (wide)
      u->loops->decode_double((double *)to + runs.run.at - from, code, runs.run.n, &u->code[i], scales[runs.run.scale]);
    else
      u->loops->decode_float((float *)to + runs.run.at - from, code, runs.run.n, &u->code[i], scales[runs.run.scale]);
  }
}

// A word for each element, whose halves are those of two moments. out: (n)
static void draw(const Update *u, int i, int64_t from, int64_t n, uint32_t *out) {
  uint32_t words[STATE_BLOCK + 8 * PHILOX_BATCH];
  StateRuns runs = state_runs(&u->call->input[u->moments.moment[i].input], from, from + n);
  while (state_next_run(&runs)) {
    const StateRun *r = &runs.run;
    uint64_t index = FAULT(rounding_by_local_index, r->index, (uint64_t)r->at), first = index & ~UINT64_C(3);
    u->loops->random(u->key, (uint32_t)i >> 1, first, r->n + (int64_t)(index - first), words);
    memcpy(out + r->at - from, words + (index - first), sizeof *out * (size_t)r->n);
  }
}

static void encode(const Update *u, int i, int64_t from, int64_t n, const void *x, const uint32_t *random) {
  const Operand *codes = &u->call->input[u->moments.moment[i].input];
  float *scales = u->call->output[u->only_scales ? i : u->attr->noutput + i].data;
  const float *given = u->given ? u->call->input[u->attr->ninput + u->moments.count + i].data : NULL;
  int wide = u->attr->dtype == DTYPE_F64;
  if (!u->only_scales)
    memset((char *)u->call->output[u->moments.moment[i].output].data + from, 0, (size_t)n); // padding
  StateRuns runs = state_runs(codes, from, from + n);
  while (state_next_run(&runs)) {
    const StateRun *r = &runs.run;
    const float *narrow = (const float *)x + r->at - from;
    const double *doubles = (const double *)x + r->at - from;
    float scale;
    if (given) {
      scale = given[r->scale];
    } else {
      uint32_t bits =
          state_scale_bits(wide ? u->loops->most_double(doubles, r->n) : u->loops->most_float(narrow, r->n));
      if (u->only_scales) {
        raise_scale(&scales[r->scale], bits);
        continue;
      }
      memcpy(&scale, &bits, 4);
      scales[r->scale] = scale;
    }
    uint8_t *to = (uint8_t *)u->call->output[u->moments.moment[i].output].data + r->at;
    const uint32_t *own = random + r->at - from;
    uint32_t shift = i & 1 ? 16 : 0;
    if (wide) u->loops->encode_double(to, doubles, r->n, &u->code[i], state_inverse(scale), own, shift);
    else u->loops->encode_float(to, narrow, r->n, &u->code[i], state_inverse(scale), own, shift);
  }
}

static void run_part(const Update *u, int64_t from, int64_t n) {
  const KernelCall *call = u->call;
  const StateAttr *attr = u->attr;
  Operand input[STATE_MOST], output[STATE_MOST];
  double moment[OPTIMIZER_STATES][AT_ONCE], other[2][AT_ONCE]; // room for elements of any dtype
  uint32_t random[AT_ONCE];
  KernelCall wide = *call;
  wide.ninput = attr->ninput;
  wide.noutput = attr->noutput;
  wide.input = input;
  wide.output = output;
  wide.attr = &attr->attr;
  wide.queue = NULL;
  for (int k = 0; k < wide.ninput; k++) input[k] = cpu_operand_part(&call->input[k], from, n);
  const Operand *last = &input[wide.ninput - 1];
  for (int k = 0; k < wide.noutput; k++) {
    if (!u->only_scales) {
      output[k] = cpu_operand_part(&call->output[k], from, n);
      continue;
    }
    // STATE_SCALES needs the new moments only: other outputs (w and its lower bits) go to memory that nobody reads.
    output[k] = k == wide.noutput - 1 && last->dtype == DTYPE_U16 ? *last : input[0];
    if (output[k].dtype == DTYPE_U8) output[k].dtype = (Dtype)attr->dtype;
    output[k].data = other[k > 0];
  }
  for (int i = 0; i < u->moments.count; i++) {
    const StateMoment *m = &u->moments.moment[i];
    decode(u, i, from, n, moment[i]);
    input[m->input].data = moment[i];
    input[m->input].dtype = (Dtype)attr->dtype;
    output[m->output] = input[m->input];
  }
  int old = FAULT(scales_before_the_update, 0, u->only_scales);
  if (!old) u->kernel(&wide);
  for (int i = 0; i < u->moments.count; i++) {
    if (!u->only_scales && i % 2 == 0) draw(u, i, from, n, random);
    encode(u, i, from, n, moment[i], random);
  }
}

static void run_unit(void *argument, int slot, int64_t unit) {
  const Update *u = argument;
  RowRange r = chunk_range(operand_elements(&u->call->input[u->moments.moment[0].input]), unit);
  for (int64_t from = r.from; from < r.to; from += AT_ONCE)
    run_part(u, from, r.to - from < AT_ONCE ? r.to - from : AT_ONCE);
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
  for (int i = 0; i < u.moments.count; i++) state_code(u.moments.moment[i].positive, &u.code[i]);
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
KERNELS(portable, CPU_PORTABLE, loops_portable)
#if defined(__x86_64__)
KERNELS(avx2, CPU_AVX2, loops_avx2)
KERNELS(avx512, CPU_AVX512, loops_avx2)
#endif
