// Launches of einsums: products, where dims can be read as rows, columns and depth of matrices, and plain kernels.
#include "device/cuda/launch.h"
#include "op/attributes.h"

enum { LETTERS = 26, OUTPUT = 2 };
// Matrices of one einsum that are products of their own: below, launching them would take longer than multiplying.
enum { MOST_PRODUCTS = 1024, LEAST_OF_MANY = 1 << 22 };
// Sums so long, of elements so few, are made by a block each.
enum { LEAST_LONG = 64, MOST_LONG = 1 << 16, LEAST_SIDE = 16 };

static int find(const EinsumAttr *a, int operand, int letter) {
  for (int d = 0; d < a->rank[operand]; d++)
    if (a->letter[operand][d] == letter) return d;
  return -1;
}

// Adds a loop over an index of the einsum, inside those that there are. It is merged with the innermost of them where
// all operands are contiguous over both.
static void add_loop(EinsumLoops *l, int64_t size, const int64_t step[3]) {
  const int64_t last = l->count - 1;
  int joins = l->count > 0;
  if (size == 1) return;
  for (int k = 0; k < 3 && joins; k++) joins = l->step[k][last] == step[k] * size;
  if (!joins) l->size[l->count] = 1;
  const int64_t at = joins ? last : l->count++;
  l->size[at] *= size;
  for (int k = 0; k < 3; k++) l->step[k][at] = step[k];
  l->all *= size;
}

static void add_letter(const KernelCall *call, int letter, EinsumArguments *e) {
  const EinsumAttr *a = call->attr;
  const Operand *operand[3] = {&call->input[0], call->ninput > 1 ? &call->input[1] : NULL, &call->output[0]};
  int64_t size = 1, step[3] = {0, 0, 0};
  int has[3];
  for (int k = 0; k < 3; k++) {
    const int d = operand[k] ? find(a, k, letter) : -1;
    has[k] = d >= 0;
    if (!has[k]) continue;
    size = operand[k]->size[d];
    step[k] = operand_extent(operand[k], d + 1, a->rank[k]);
  }
  const EinsumPart part = !has[OUTPUT]       ? EINSUM_SUMS
                          : has[0] && has[1] ? EINSUM_BOTH
                          : has[0]           ? EINSUM_ROWS
                                             : EINSUM_COLUMNS;
  add_loop(&e->part[part], size, step);
}

static void find_loops(const KernelCall *call, EinsumArguments *e) {
  const EinsumAttr *a = call->attr;
  *e = (EinsumArguments){.part = {{.all = 1}, {.all = 1}, {.all = 1}, {.all = 1}}};
  for (int d = 0; d < a->rank[OUTPUT]; d++) add_letter(call, a->letter[OUTPUT][d], e);
  for (int k = 0; k < call->ninput; k++)
    for (int d = 0; d < a->rank[k]; d++) {
      const int letter = a->letter[k][d];
      if (find(a, OUTPUT, letter) < 0 && !(k && find(a, 0, letter) >= 0)) add_letter(call, letter, e);
    }
}

// Products -----------------------------------------------------------------------------------------------------------

static int64_t step_of(const EinsumLoops *l, int operand) { return l->count ? l->step[operand][0] : 1; }

// One matrix of them; swapped: its transpose, of which b has the rows. 0: dims cannot be read as those of matrices, or
// the output's rows do not lie one after the other.
static int product_of(const EinsumArguments *e, int swapped, ProductArguments *p) {
  const int x = swapped, y = !swapped;
  const EinsumLoops *rows = &e->part[swapped ? EINSUM_COLUMNS : EINSUM_ROWS],
                    *columns = &e->part[swapped ? EINSUM_ROWS : EINSUM_COLUMNS], *sums = &e->part[EINSUM_SUMS];
  if (rows->count != 1 || columns->count != 1 || sums->count != 1) return 0;
  if (!sums->step[0][0] || !sums->step[1][0] || !rows->step[x][0] || !columns->step[y][0]) return 0;
  *p = (ProductArguments){.rows = rows->all, .columns = columns->all, .depth = sums->all, .a_row = step_of(rows, x),
                          .a_depth = step_of(sums, x), .b_column = step_of(columns, y), .b_depth = step_of(sums, y)};
  return step_of(columns, OUTPUT) == 1 && step_of(rows, OUTPUT) == columns->all;
}

// The operand's part that begins at an element; n: its elements, 0: all that follow.
static Array array_at(Launch *l, const char *name, const Operand *x, int64_t at, int64_t n, unsigned mode) {
  const int64_t size = (int64_t)dtype_size(x->dtype);
  char *from = x->data ? (char *)x->data + at * size : NULL;
  if (!n) n = operand_elements(x) - at;
  return (Array){launch_bytes(l, name, from, n * size, mode), x->dtype};
}

static int64_t loops_at(const EinsumLoops *l, int operand, int64_t index) {
  int64_t at = 0;
  for (int64_t d = l->count - 1; d >= 0; d--) {
    at += index % l->size[d] * l->step[operand][d];
    index /= l->size[d];
  }
  return at;
}

// 0: they are not products, or too small ones, and nothing was put into the queue.
static int launch_products(Launch *l, const EinsumArguments *e) {
  const KernelCall *call = l->call;
  const EinsumLoops *both = &e->part[EINSUM_BOTH];
  ProductArguments p;
  int swapped = 0;
  if (!product_of(e, 0, &p) && !(swapped = product_of(e, 1, &p))) return 0;
  if (both->all > 1 && (both->all > MOST_PRODUCTS || p.rows * p.columns * p.depth < LEAST_OF_MANY)) return 0;
  for (int64_t i = 0; i < both->all; i++) {
    p.a = array_at(l, "a", &call->input[swapped], loops_at(both, swapped, i), 0, CUDA_READS);
    p.b = array_at(l, "b", &call->input[!swapped], loops_at(both, !swapped, i), 0, CUDA_READS);
    p.out = array_at(l, "out", &call->output[0], loops_at(both, OUTPUT, i), p.rows * p.columns, CUDA_WRITES);
    launch_product(l, &p);
  }
  return 1;
}

// Plain kernels ------------------------------------------------------------------------------------------------------

void launch_einsum(Launch *l) {
  const KernelCall *call = l->call;
  EinsumArguments e;
  find_loops(call, &e);
  const int64_t rows = e.part[EINSUM_ROWS].all, columns = e.part[EINSUM_COLUMNS].all, both = e.part[EINSUM_BOTH].all,
                sums = e.part[EINSUM_SUMS].all, n = operand_elements(&call->output[0]);
  if (call->ninput > 1 && n && sums && launch_products(l, &e)) return;
  e.a = launch_array(l, "a", &call->input[0], CUDA_READS);
  if (call->ninput > 1) e.b = launch_array(l, "b", &call->input[1], CUDA_READS);
  e.out = launch_array(l, "out", &call->output[0], CUDA_WRITES);
  if (call->ninput > 1 && rows >= LEAST_SIDE && columns >= LEAST_SIDE && sums)
    launch_kernel(l, CUDA_KERNEL_einsum_tiles, both * divide_up(rows, TILE) * divide_up(columns, TILE), BLOCK_THREADS,
                  &e);
  else if (sums >= LEAST_LONG && n <= MOST_LONG)
    launch_kernel(l, CUDA_KERNEL_einsum_long, n, block_threads(sums), &e);
  else launch_over(l, CUDA_KERNEL_einsum, n, 1, &e);
}
