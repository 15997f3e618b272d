// Predicts calls that were not measured from kernels that were.
#include "machine/kernel_table.h"
#include "base/error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 5 };

// The calls of one kind, [first, first + count) of the table's kernels.
typedef struct KindModel { int first, count; double coefficient[TERMS]; } KindModel;

struct KernelTable {
  MeasuredKernel *kernel; // (kernels) by kind
  Vec(KindModel) kind;
  DeviceFacts device;     // whose rates go with the measurements
};

void kernel_describe(const Program *p, const Node *n, const OpWork *work, double cache, MeasuredKernel *k) {
  int operands = n->ninput + n->noutput;
  *k = (MeasuredKernel){.op = op_name(n->op), .dtype = node_dtype(p->graph, n), .flops = work->matrix + work->vector,
                        .bytes = work->read + work->written};
  if (work->products) {
    const OpProduct *product = &work->product[0];
    k->kind = operands * 4 + product->kind;
    k->size[0] = product->m, k->size[1] = product->n, k->size[2] = product->k, k->size[3] = product->c;
  } else if (work->attention.pairs > 0) {
    const OpAttention *a = &work->attention;
    k->kind = operands * 4 + a->causal * 2 + a->backward;
    k->size[0] = a->pairs, k->size[1] = a->width, k->size[2] = a->length;
  } else {
    int cold = n->region != REGION_MICRO && (double)p->memory.total * p->mesh.ranks > cache;
    k->kind = operands * 2 + cold;
    k->size[0] = work->read, k->size[1] = work->written;
  }
}

static int is_product(const MeasuredKernel *k) { return k->size[3] > 0; }
static int is_attention(const MeasuredKernel *k) { return k->size[2] > 0 && !is_product(k); }

static void terms_of(const MeasuredKernel *k, double term[TERMS]) {
  const double *s = k->size;
  memset(term, 0, sizeof *term * TERMS);
  term[0] = 1;
  if (is_product(k)) {
    term[1] = s[3] * s[0] * s[1] * s[2];
    term[2] = s[3] * s[0] * s[1], term[3] = s[3] * s[1] * s[2], term[4] = s[3] * s[0] * s[2];
  } else if (is_attention(k)) {
    term[1] = s[0] * s[1], term[2] = s[0], term[3] = k->bytes;
  } else {
    term[1] = s[0], term[2] = s[1];
  }
}

const char *kernel_table_lacks(const Cluster *c) {
  int products = 0, attention = 0;
  for (int i = 0; i < c->kernel.count; i++) {
    products += is_product(&c->kernel.data[i]);
    attention += is_attention(&c->kernel.data[i]);
  }
  if (!products) return "products";
  if (!attention) return "attention";
  return products + attention < c->kernel.count ? NULL : "calls that only move bytes";
}

// Fitting -----------------------------------------------------------------------------------------------------------

// Least Σ (Σ_j x_j a_ij - 1)², x ≥ 0, by coordinate descent: a convex problem of few unknowns. a: (rows, TERMS), every
// column scaled to at most 1.
static void least_squares(const double (*a)[TERMS], int rows, double x[TERMS]) {
  enum { ROUNDS = 4000 };
  double product[TERMS][TERMS] = {{0}}, right[TERMS] = {0};
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < TERMS; j++) {
      right[j] += a[i][j];
      for (int k = 0; k < TERMS; k++) product[j][k] += a[i][j] * a[i][k];
    }
  memset(x, 0, sizeof *x * TERMS);
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 1; i <= TERMS; i++) {
      int j = i % TERMS; // the constant last: of few calls it must not explain all
      double rest = right[j];
      for (int k = 0; k < TERMS; k++) rest -= k == j ? 0 : product[j][k] * x[k];
      x[j] = product[j][j] > 0 ? fmax(0, rest / product[j][j]) : 0;
    }
}

static int by_kind(const void *a, const void *b) {
  const MeasuredKernel *x = a, *y = b;
  int op = strcmp(x->op, y->op);
  if (op) return op;
  const int left[] = {x->dtype, x->kind, x->threads, x->active}, right[] = {y->dtype, y->kind, y->threads, y->active};
  for (int i = 0; i < 4; i++)
    if (left[i] != right[i]) return left[i] - right[i];
  return 0;
}

// Where a kind has few calls, those of the op's other kinds help: with and without a bias products cost alike.
static int alike(const MeasuredKernel *a, const MeasuredKernel *b, int few) {
  return few ? !strcmp(a->op, b->op) && a->dtype == b->dtype && a->threads == b->threads && a->active == b->active
             : !by_kind(a, b);
}

static void fit(const MeasuredKernel *kernel, int kernels, KindModel *kind) {
  enum { ENOUGH = 4 };
  int rows = 0;
  double (*a)[TERMS] = xcalloc((size_t)kernels, sizeof *a), most[TERMS] = {0};
  for (int i = 0; i < kernels; i++) {
    if (!alike(&kernel[i], &kernel[kind->first], kind->count < ENOUGH)) continue;
    terms_of(&kernel[i], a[rows]);
    for (int j = 0; j < TERMS; j++) a[rows][j] /= kernel[i].seconds, most[j] = fmax(most[j], a[rows][j]);
    rows++;
  }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < TERMS; j++) a[i][j] = most[j] > 0 ? a[i][j] / most[j] : 0;
  least_squares((const double (*)[TERMS])a, rows, kind->coefficient);
  for (int j = 0; j < TERMS; j++) kind->coefficient[j] = most[j] > 0 ? kind->coefficient[j] / most[j] : 0;
  free(a);
}

KernelTable *kernel_table_create(const Cluster *c) {
  if (!c->kernel.count) return NULL;
  KernelTable *t = xcalloc(1, sizeof *t);
  size_t bytes = sizeof *t->kernel * (size_t)c->kernel.count;
  t->device = c->device;
  t->kernel = xcalloc(1, bytes);
  memcpy(t->kernel, c->kernel.data, bytes);
  qsort(t->kernel, (size_t)c->kernel.count, sizeof *t->kernel, by_kind);
  for (int i = 0; i < c->kernel.count; i++) {
    if (!i || by_kind(&t->kernel[i - 1], &t->kernel[i])) vec_push(&t->kind, ((KindModel){.first = i}));
    t->kind.data[t->kind.count - 1].count++;
  }
  for (int i = 0; i < t->kind.count; i++) fit(t->kernel, c->kernel.count, &t->kind.data[i]);
  return t;
}

void kernel_table_free(KernelTable *t) {
  if (!t) return;
  free(t->kernel);
  vec_free(&t->kind);
  free(t);
}

// Looking up --------------------------------------------------------------------------------------------------------

static double by_terms(const KindModel *kind, const MeasuredKernel *call) {
  double term[TERMS], seconds = 0;
  terms_of(call, term);
  for (int j = 0; j < TERMS; j++) seconds += kind->coefficient[j] * term[j];
  return fmax(seconds, 1e-9);
}

// Squared, in logarithms: 1 is a factor e in one size.
static double distance(const MeasuredKernel *a, const MeasuredKernel *b) {
  double sum = 0;
  for (int i = 0; i < KERNEL_FEATURES; i++) {
    double d = log((a->size[i] + 1) / (b->size[i] + 1));
    sum += d * d;
  }
  return sum;
}

static double kind_seconds(const KernelTable *t, const KindModel *kind, const MeasuredKernel *call) {
  const double near = 0.1, prior = 0.02; // of the distance; of no correction at all
  double sum = 0, weights = prior;
  for (int i = 0; i < kind->count; i++) {
    const MeasuredKernel *k = &t->kernel[kind->first + i];
    double d = distance(k, call), w = 1 / ((d + near) * (d + near));
    sum += w * log(k->seconds / by_terms(kind, k));
    weights += w;
  }
  return by_terms(kind, call) * exp(sum / weights);
}

// How well measurements of a kind stand for a call: smaller is better, negative: not at all. The levels: the same op,
// dtype and operands; other operands; another dtype; another op, if both move bytes only.
static double unlike(const MeasuredKernel *k, const MeasuredKernel *call) {
  int same_shape = is_product(k) == is_product(call) && is_attention(k) == is_attention(call);
  if (!same_shape) return -1;
  if (strcmp(k->op, call->op)) return 3 + (k->dtype != call->dtype);
  if (k->dtype != call->dtype) return 2;
  return k->kind != call->kind;
}

// Threads that were measured and are the nearest: first as many of the rank, then as many of the machine.
static double threads_apart(const MeasuredKernel *k, int threads, int active) {
  return 16 * fabs(log((double)k->threads / threads)) + fabs(log((double)k->active / active));
}

double kernel_table_seconds(const KernelTable *t, const DeviceFacts *device, const MeasuredKernel *call, int threads,
                            int active, int *guessed) {
  const KindModel *best = NULL;
  double least = INFINITY;
  for (int i = 0; i < t->kind.count; i++) {
    const MeasuredKernel *k = &t->kernel[t->kind.data[i].first];
    double worse = unlike(k, call);
    if (worse < 0) continue;
    // Among kinds that are as unlike the one with the most measurements is the safest.
    double cost = 1e3 * worse + threads_apart(k, threads, active) - (worse > 0) * 1e-3 * t->kind.data[i].count;
    if (cost < least) least = cost, best = &t->kind.data[i];
  }
  if (!best) return *guessed = 1, INFINITY;
  const MeasuredKernel *k = &t->kernel[best->first];
  if (unlike(k, call) > 1) *guessed = 1;
  double seconds = kind_seconds(t, best, call) * k->threads / threads;
  int products = is_product(call) || is_attention(call);
  double was = products ? t->device.matrix[call->dtype] : t->device.bandwidth,
         is = products ? device->matrix[call->dtype] : device->bandwidth;
  return was > 0 && is > 0 ? seconds * was / is : seconds;
}
