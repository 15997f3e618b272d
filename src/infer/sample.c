// Weights of all tokens, of which a heap gives the most likely ones in order as far as the cuts go, then one uniform
// number.
#include "infer/sample.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sample_scratch_create(SampleScratch *s, int count) {
  *s = (SampleScratch){.count = count};
  s->value = xcalloc((size_t)count, sizeof *s->value);
  s->weight = xcalloc((size_t)count, sizeof *s->weight);
  s->order = xcalloc((size_t)count, sizeof *s->order);
}

void sample_scratch_destroy(SampleScratch *s) {
  free(s->value);
  free(s->weight);
  free(s->order);
  *s = (SampleScratch){0};
}

// 53 bits, so that even the rarest of a large vocabulary can be met.
static double uniform(uint64_t seed, uint64_t position) {
  uint32_t r[4];
  philox4x32(philox_key(FAULT(seed_is_ignored, seed, 0), 0, philox_name("generate.sample")), (uint32_t)position,
             (uint32_t)(position >> 32), 0, 0, r);
  return (double)(((uint64_t)r[0] << 21) ^ (r[1] >> 11)) * 0x1p-53;
}

// exp(x), x ≤ 0, to 2 units of the last place. Not expf: every machine has these bits, and compilers make vectors of
// it.
static inline float weight_of(float x) {
  float clamped = x > -87 ? x : -87, k = clamped * 1.44269504f - 0.5f;
  int whole = (int)k; // towards 0: round to nearest, for k ≤ -0.5 + 0.5
  float r = clamped - (float)whole * 0.693359375f + (float)whole * 2.12194440e-4f;
  float p =
      1 + r * (1 + r * (0.5f + r * (1.6666667e-1f + r * (4.1666666e-2f + r * (8.3333345e-3f + r * 1.3888889e-3f)))));
  int32_t bits = (whole + 127) << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return x > -87 ? p * scale : 0;
}

// ---- logits

static void penalise(SampleScratch *s, const SampleOptions *o, const SampleText *text) {
  double repetition = o->repetition > 0 ? o->repetition : 1;
  for (int i = 0; i < o->biases; i++) s->value[o->bias[i].id] += o->bias[i].bias;
  if (repetition == 1 && o->presence == 0 && o->frequency == 0) return;
  memset(s->order, 0, sizeof *s->order * (size_t)s->count); // how often each was drawn, and 1 << 30 where it was met
  for (int64_t i = 0; i < text->count; i++) {
    int32_t id = text->ids[i], *met = &s->order[id];
    if (*met >> 30 == 0) {
      *met |= 1 << 30;
      s->value[id] = (float)(s->value[id] > 0 ? s->value[id] / repetition : s->value[id] * repetition);
    }
    if (i < FAULT(penalties_count_the_prompt, text->prompt, 0)) continue;
    s->value[id] -= (float)(o->frequency + ((*met & ((1 << 30) - 1)) ? 0 : o->presence));
    ++*met;
  }
}

// Sets value, -INFINITY where an id cannot be drawn, and returns the most likely id; -1: there is none, or a NaN.
static int32_t read_logits(SampleScratch *s, const float *logits, const uint8_t *allowed, const SampleOptions *o,
                           const SampleText *text) {
  int32_t best = -1;
  int broken = 0;
  for (int i = 0; i < s->count; i++) broken |= isnan(logits[i]) != 0;
  if (broken) return -1;
  memcpy(s->value, logits, sizeof *logits * (size_t)s->count);
  penalise(s, o, text);
  for (int i = 0; i < s->count; i++) {
    if ((allowed && !allowed[i]) || !isfinite(s->value[i])) s->value[i] = -INFINITY;
    else if (best < 0 || s->value[i] > s->value[best]) best = i;
  }
  return best;
}

// ---- the most likely one

// The greatest finite one; NAN where one is NaN. In lanes, of which compilers make vectors: a comparison from id to id
// would be a chain.
static float greatest(const float *logits, int64_t count) {
  enum { LANES = 16 };
  float most[LANES], value = -INFINITY;
  int broken[LANES] = {0}, any = 0;
  for (int l = 0; l < LANES; l++) most[l] = -INFINITY;
  for (int64_t i = 0; i < count; i += LANES) {
    float x[LANES];
    int n = count - i < LANES ? (int)(count - i) : LANES;
    for (int l = 0; l < LANES; l++) x[l] = -INFINITY;
    memcpy(x, logits + i, sizeof *x * (size_t)n);
    for (int l = 0; l < LANES; l++) {
      float finite = x[l] < INFINITY ? x[l] : -INFINITY;
      broken[l] |= x[l] != x[l];
      most[l] = finite > most[l] ? finite : most[l];
    }
  }
  for (int l = 0; l < LANES; l++) {
    any |= broken[l];
    if (most[l] > value) value = most[l];
  }
  return any ? NAN : value;
}

static int64_t within(int64_t x, int64_t least, int64_t most) { return x < least ? least : x < most ? x : most; }

SampleBest sample_best(const float *logits, int64_t count, int32_t first, SampleRange range) {
  int64_t at = within((int64_t)range.first - first, 0, count), end = within((int64_t)range.end - first, at, count);
  float value = greatest(logits + at, end - at);
  if (isnan(value) || isnan(greatest(logits, at)) || isnan(greatest(logits + end, count - end)))
    return (SampleBest){NAN, -1};
  if (isinf(value)) return (SampleBest){value, -1};
  while (logits[at] != value) at++;
  return (SampleBest){value, first + (int32_t)at};
}

SampleBest sample_better(SampleBest a, SampleBest b) {
  if (isnan(a.value) || isnan(b.value)) return (SampleBest){NAN, -1};
  if (a.id < 0 || b.id < 0) return a.id < 0 ? b : a;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return FAULT(ties_go_to_the_highest_id, a.id < b.id, a.id > b.id) ? a : b;
}

bool sample_takes_best(const SampleOptions *o) {
  return o->temperature <= 0 && !o->biases && (o->repetition <= 0 || o->repetition == 1) && o->presence == 0 &&
         o->frequency == 0;
}

// ---- the most likely ones, in their order

static bool comes_before(const SampleScratch *s, int32_t a, int32_t b) {
  return s->value[a] != s->value[b] ? s->value[a] > s->value[b] : a < b;
}

static void sift(SampleScratch *s, int at, int n) {
  int32_t id = s->order[at];
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && comes_before(s, s->order[child + 1], s->order[child])) child++;
    if (!comes_before(s, s->order[child], id)) break;
    s->order[at] = s->order[child];
  }
  s->order[at] = id;
}

// Moves the first of a heap of n to its end.
static int32_t pop(SampleScratch *s, int n) {
  int32_t first = s->order[0];
  s->order[0] = s->order[n - 1];
  s->order[n - 1] = first;
  sift(s, 0, n - 1);
  return first;
}

// Tokens that cannot be among those that top-p keeps are left out: all of them together weigh less than it cuts off.
static int make_heap(SampleScratch *s, const SampleOptions *o, double total) {
  double floor = o->top_k || !(o->top_p > 0) ? 0 : 0.999 * (1 - o->top_p) * total / s->count;
  int n = 0;
  for (int i = 0; i < s->count; i++)
    if (s->weight[i] > floor) s->order[n++] = i;
  for (int i = n / 2 - 1; i >= 0; i--) sift(s, i, n);
  return n;
}

// The kept ones end up at the end of order[0, n), the most likely one last; returns how many.
static int cut(SampleScratch *s, const SampleOptions *o, double total, int n, double *kept) {
  int most = o->top_k > 0 && o->top_k < n ? (int)o->top_k : n, count = 0;
  double sum = 0, share = o->top_p > 0 ? o->top_p : 1;
  for (int i = 0; i < most; i++) sum += s->weight[pop(s, n - i)];
  if (most < n) total = sum;
  for (*kept = 0; count < most; count++) {
    float weight = s->weight[s->order[n - 1 - count]];
    if (count && (*kept >= share * total || weight < o->min_p)) break;
    *kept += weight;
  }
  return count;
}

int32_t sample_token(const float *logits, const uint8_t *allowed, const SampleOptions *o, const SampleText *text,
                     SampleScratch *s) {
  if (!allowed && sample_takes_best(o)) return sample_best(logits, s->count, 0, (SampleRange){0, s->count}).id;
  int32_t best = read_logits(s, logits, allowed, o, text), last = best;
  if (best < 0 || o->temperature <= 0) return best;
  float most = s->value[best], by = (float)(1 / o->temperature);
  double total = 0;
  for (int i = 0; i < s->count; i++) s->weight[i] = weight_of((s->value[i] - most) * by);
  for (int i = 0; i < s->count; i++) total += s->weight[i];
  double at = uniform(o->seed, (uint64_t)text->count), sum = 0;
  if (!o->top_k && !(o->top_p > 0 && o->top_p < 1) && !(o->min_p > 0)) {
    for (int i = 0; i < s->count && sum <= at * total; i++)
      if (s->weight[i] > 0) sum += s->weight[last = i];
    return last;
  }
  double kept;
  int n = make_heap(s, o, total), count = cut(s, o, total, n, &kept);
  for (int i = 0; i < count && sum <= at * kept; i++) sum += s->weight[last = s->order[n - 1 - i]];
  return last;
}
