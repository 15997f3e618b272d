// Launches of ORTHOGONALIZE: products of a matrix with itself, in the dtype of sums, and sums of matrices.
#include "device/cuda/launch.h"
#include "op/orthogonalize.h"

enum { SPACING = 256 };

static int64_t spaced(int64_t bytes) { return divide_up(bytes, SPACING) * SPACING; }

// In the workspace, one after the other: of one matrix x and the next x, x xᵀ (or xᵀ x) and its polynomial, the sum of
// squares, and what it is made of. The library's is behind them.
typedef struct Places { int64_t x, next, square, polynomial, sum, partial, end; } Places;
static Places places_of(const OrthogonalizeShape *s, Dtype dtype) {
  const int64_t each = sum_bytes(dtype), matrix = spaced(s->rows * s->columns * each),
                square = spaced(s->shorter * s->shorter * each);
  Places p = {.next = matrix};
  p.square = p.next + matrix;
  p.polynomial = p.square + square;
  p.sum = p.polynomial + square;
  p.partial = p.sum + SPACING;
  p.end = p.partial + spaced(cuda_sum_partial_bytes(s->rows * s->columns));
  return p;
}

size_t cuda_orthogonalize_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  const OrthogonalizeShape s = orthogonalize_shape(&input[0], attr);
  return (size_t)places_of(&s, input[0].dtype).end + PRODUCT_WORKSPACE;
}

// One matrix, in the call's workspace.
typedef struct Work { Launch *l; OrthogonalizeShape s; Array x, next, square, polynomial; } Work;

static Array read(const Work *w, const char *name, Array x, int64_t n) {
  launch_bytes(w->l, name, x.data, n * (int64_t)dtype_size((Dtype)x.dtype), CUDA_READS);
  return x;
}
static Array written(const Work *w, const char *name, Array x, int64_t n) {
  launch_bytes(w->l, name, x.data, n * (int64_t)dtype_size((Dtype)x.dtype), CUDA_WRITES);
  return x;
}

// to = alpha x + beta y, where to may be x or y.
static void blend(const Work *w, Array to, double alpha, Array x, double beta, Array y, const double *squares,
                  int64_t n) {
  BlendArguments a = {.alpha = alpha, .beta = beta, .n = n};
  a.x = read(w, "x", x, n);
  if (y.data) a.y = read(w, "y", y, n);
  a.squares = launch_bytes(w->l, "squares", (void *)(uintptr_t)squares, squares ? 8 : 0, CUDA_READS);
  a.to = written(w, "sum", to, n);
  launch_over(w->l, CUDA_KERNEL_blend, n, 4, &a);
}

// out (rows, columns) = a · b, whose elements are (rows, depth) with strides a_row and a_depth, and so on.
static void multiply(const Work *w, Array out, Array a, Array b, ProductArguments p) {
  p.a = read(w, "a", a, p.rows * p.depth);
  if (b.data != a.data) read(w, "b", b, p.columns * p.depth);
  p.b = b;
  p.out = written(w, "out", out, p.rows * p.columns);
  launch_product(w->l, &p);
}

static void iterate(Work *w, Array out) {
  const int64_t r = w->s.rows, c = w->s.columns, n = w->s.shorter;
  const int wide = w->s.is_wide;
  for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
    const ProductArguments square = {.rows = n, .columns = n, .depth = wide ? c : r, .a_row = wide ? c : 1,
                                     .a_depth = wide ? 1 : c, .b_column = wide ? c : 1, .b_depth = wide ? 1 : c},
                           power = {.rows = n, .columns = n, .depth = n, .a_row = n, .a_depth = 1, .b_column = n,
                                    .b_depth = 1},
                           next = {.rows = r, .columns = c, .depth = n, .a_row = n, .a_depth = 1, .b_column = 1,
                                   .b_depth = c};
    multiply(w, w->square, w->x, w->x, square);
    multiply(w, w->polynomial, w->square, w->square, power); // square is symmetric
    blend(w, w->polynomial, ORTHOGONALIZE_C, w->polynomial, ORTHOGONALIZE_B, w->square, NULL, n * n);
    multiply(w, w->next, wide ? w->polynomial : w->x, wide ? w->x : w->polynomial, next);
    blend(w, step + 1 < ORTHOGONALIZE_STEPS ? w->x : out, ORTHOGONALIZE_A, w->x, 1, w->next, NULL, r * c);
  }
}

void launch_orthogonalize(Launch *l) {
  const Operand *u = launch_input(l, 0), *o = launch_output(l, 0);
  Work w = {.l = l, .s = orthogonalize_shape(u, l->call->attr)};
  const Places p = places_of(&w.s, u->dtype);
  const int64_t n = w.s.rows * w.s.columns, dtype = sum_dtype(u->dtype);
  char *at = l->call->workspace;
  double *sum = (double *)(void *)(at + p.sum), *partial = (double *)(void *)(at + p.partial);
  w.x = (Array){at, dtype};
  w.next = (Array){at + p.next, dtype};
  w.square = (Array){at + p.square, dtype};
  w.polynomial = (Array){at + p.polynomial, dtype};
  for (int64_t k = 0; k < w.s.matrices && n; k++) {
    const Array from = {(char *)u->data + (size_t)(k * n) * dtype_size(u->dtype), u->dtype},
                to = {(char *)o->data + (size_t)(k * n) * dtype_size(o->dtype), o->dtype};
    launch_sum_of_squares(l, from.data, n, partial, (Array){sum, DTYPE_F64});
    blend(&w, w.x, 0, from, 0, (Array){0}, FAULT(kernel_matrix_keeps_its_size, sum, NULL), n);
    iterate(&w, to);
  }
}
