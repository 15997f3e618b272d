// Graphs of cuDNN's double: each operation in double, one after the other, with all tensors in memory.
#include "cudnn.h"
#include "base/half.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t dtype_bytes(DnnDtype dtype) { return dtype == DNN_F32 || dtype == DNN_I32 ? 4 : dtype == DNN_BOOLEAN ? 1 : 2; }

int64_t view_extent(const View *v) {
  int64_t n = 1;
  for (int i = 0; i < DIMS; i++) n += (v->size[i] - 1) * v->stride[i];
  return n;
}

// Elements in memory ---------------------------------------------------------------------------------------------------

static double load(const char *at, DnnDtype dtype, int64_t i) {
  uint16_t half;
  float x;
  if (dtype == DNN_F32) return ((const float *)(const void *)at)[i];
  if (dtype == DNN_I32) return ((const int32_t *)(const void *)at)[i];
  memcpy(&half, at + 2 * i, sizeof half);
  if (dtype == DNN_F16) return half_to_float(half);
  const uint32_t bits = (uint32_t)half << 16;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void store(char *at, DnnDtype dtype, int64_t i, double value) {
  float x = (float)value;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t half = dtype == DNN_F16 ? half_from_float(x) : isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  if (dtype == DNN_F32) ((float *)(void *)at)[i] = x;
  else memcpy(at + 2 * i, &half, sizeof half);
}

// Shapes ---------------------------------------------------------------------------------------------------------------

static int is_broadcast(const View *x, const View *y) {
  for (int i = 0; i < DIMS; i++)
    if (x->size[i] != y->size[i] && x->size[i] != 1) return 0;
  return 1;
}

static void check(int holds, const char *what) {
  if (!holds) wrong("cudnnBackendFinalize", "%s", what);
}

static void check_product(const View *a, const View *b, const View *c) {
  check(a->size[3] == b->size[2] && c->size[2] == a->size[2] && c->size[3] == b->size[3], "matrices of a product do not fit together");
  check(a->size[0] == b->size[0] && a->size[0] == c->size[0] && a->size[1] == c->size[1], "a product has matrices of other batches");
  check(b->size[1] > 0 && a->size[1] % b->size[1] == 0, "heads of a product are no multiple of those that they share");
}

static void check_reduction(const View *x, const View *y) {
  int reduced = 0;
  for (int i = 0; i < DIMS; i++) {
    const int same = x->size[i] == y->size[i];
    reduced += !same;
    check(same || y->size[i] == 1 || (i == 1 && x->size[1] % y->size[1] == 0), "a reduction has an output of another shape");
  }
  check(reduced <= 1, "a reduction is one over several dims");
}

void check_step(const Program *p, const Step *s) {
  const View *x = &p->tensor[s->x], *y = &p->tensor[s->y], *b = s->b < 0 ? NULL : &p->tensor[s->b], *t = s->t < 0 ? NULL : &p->tensor[s->t];
  if (s->kind == DNN_DO_MATMUL) check_product(x, b, y);
  else if (s->kind == DNN_DO_REDUCTION) check_reduction(x, y);
  else if (s->kind == DNN_DO_RESHAPE) check(view_extent(x) == view_extent(y), "a tensor is reshaped into one of another size");
  else {
    check(is_broadcast(x, y) && (!b || is_broadcast(b, y)) && (!t || is_broadcast(t, y)), "operands of a pointwise operation have other shapes than its output");
    const int takes_one = s->mode == DNN_EXP || s->mode == DNN_LOG || s->mode == DNN_COPY || s->mode == DNN_INDEX;
    check(takes_one == !b, "a pointwise operation has too many operands, or too few");
    check((s->mode == DNN_SELECT) == (t != NULL), "only a selection has three operands");
    check(s->mode != DNN_SELECT || t->dtype == DNN_BOOLEAN, "a selection is not one by booleans");
    check((s->mode == DNN_INDEX) == (s->axis >= 0), "an index needs an axis, and nothing else has one");
    check((s->mode == DNN_IS_AT_LEAST) == (y->dtype == DNN_BOOLEAN), "a comparison is not a boolean");
  }
}

// Operations -----------------------------------------------------------------------------------------------------------

typedef struct Tensor { const View *view; double *data; } Tensor; // data: laid out by its strides

static int64_t place_of(const View *v, const int64_t at[DIMS]) {
  int64_t place = 0;
  for (int i = 0; i < DIMS; i++) place += (v->size[i] == 1 ? 0 : at[i]) * v->stride[i];
  return place;
}

// The next index below `size`; 0: there is none.
static int next(int64_t at[DIMS], const int64_t size[DIMS]) {
  for (int i = DIMS; i-- > 0;) {
    if (++at[i] < size[i]) return 1;
    at[i] = 0;
  }
  return 0;
}

static void multiply(Tensor a, Tensor b, Tensor c) {
  const int64_t shared = a.view->size[1] / b.view->size[1], depth = a.view->size[3];
  int64_t at[DIMS] = {0};
  do {
    const double *x = a.data + at[0] * a.view->stride[0] + at[1] * a.view->stride[1] + at[2] * a.view->stride[2];
    const double *y = b.data + at[0] * b.view->stride[0] + at[1] / shared * b.view->stride[1] + at[3] * b.view->stride[3];
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) sum += x[k * a.view->stride[3]] * y[k * b.view->stride[2]];
    c.data[place_of(c.view, at)] = sum;
  } while (next(at, c.view->size));
}

static void reduce(unsigned mode, Tensor x, Tensor y) {
  int64_t at[DIMS] = {0};
  do y.data[place_of(y.view, at)] = mode == DNN_MAXIMUM ? -INFINITY : 0;
  while (next(at, y.view->size));
  do {
    int64_t to[DIMS];
    for (int i = 0; i < DIMS; i++) to[i] = at[i] * y.view->size[i] / x.view->size[i];
    double *sum = &y.data[place_of(y.view, to)], value = x.data[place_of(x.view, at)];
    *sum = mode == DNN_MAXIMUM ? fmax(*sum, value) : *sum + value;
  } while (next(at, x.view->size));
}

static double point(unsigned mode, double x, double b, double t) {
  switch (mode) {
  case DNN_ADD: return x + b;
  case DNN_SUB: return x - b;
  case DNN_MUL: return x * b;
  case DNN_DIV: return x / b;
  case DNN_EXP: return exp(x);
  case DNN_LOG: return log(x);
  case DNN_IS_AT_LEAST: return x >= b;
  case DNN_SELECT: return t != 0 ? x : b;
  default: return x; // DNN_COPY
  }
}

static void each(const Step *s, Tensor x, Tensor b, Tensor t, Tensor y) {
  int64_t at[DIMS] = {0};
  do {
    const double value = s->mode == DNN_INDEX ? (double)at[s->axis] : x.data[place_of(x.view, at)];
    y.data[place_of(y.view, at)] = point(s->mode, value, b.view ? b.data[place_of(b.view, at)] : 0, t.view ? t.data[place_of(t.view, at)] : 0);
  } while (next(at, y.view->size));
}

// Only elements of the view: what lies between them is somebody else's.
static void copy(Tensor x, char *at_memory, int writes) {
  int64_t at[DIMS] = {0};
  do {
    const int64_t i = place_of(x.view, at);
    if (writes) store(at_memory, x.view->dtype, i, x.data[i]);
    else x.data[i] = load(at_memory, x.view->dtype, i);
  } while (next(at, x.view->size));
}

static int is_output(const Program *p, int tensor) {
  for (int i = 0; i < p->steps; i++)
    if (p->step[i].y == tensor) return 1;
  return 0;
}

void program_run(const Program *p, char *const own[]) {
  Tensor all[MOST_TENSORS + 1] = {{0}}; // the last stands for a tensor that is absent
  for (int i = 0; i < p->tensors; i++) {
    const View *v = &p->tensor[i];
    all[i] = (Tensor){v, malloc(sizeof(double) * (size_t)view_extent(v))};
    for (int64_t k = 0; k < view_extent(v); k++) all[i].data[k] = v->is_value ? p->value[i] : (double)NAN;
    if (!v->is_virtual && !v->is_value && !is_output(p, i)) copy(all[i], own[p->operand[i]], 0);
  }
  for (int i = 0; i < p->steps; i++) {
    const Step *s = &p->step[i];
    Tensor x = all[s->x], y = all[s->y], b = all[s->b < 0 ? MOST_TENSORS : s->b], t = all[s->t < 0 ? MOST_TENSORS : s->t];
    if (s->kind == DNN_DO_MATMUL) multiply(x, b, y);
    else if (s->kind == DNN_DO_REDUCTION) reduce(s->mode, x, y);
    else if (s->kind == DNN_DO_RESHAPE) memcpy(y.data, x.data, sizeof(double) * (size_t)view_extent(x.view));
    else each(s, x, b, t, y);
  }
  for (int i = 0; i < p->tensors; i++) {
    const View *v = &p->tensor[i];
    if (v->is_virtual || v->is_value || !is_output(p, i)) continue;
    if (p->spoiled && (v->dtype == DNN_BF16 || v->dtype == DNN_F16)) all[i].data[view_extent(v) - 1] += 1;
    copy(all[i], own[p->operand[i]], 1);
  }
  for (int i = 0; i < p->tensors; i++) free(all[i].data);
}
