// Launches of norms, sums and everything else that goes by rows.
#include "device/cuda/launch.h"
#include <string.h>

enum { LEAST_ROWS = 32, MOST_CHUNKS = 512, SUM_EACH = 4096, MOST_SUMS = 1024 };
enum { LEAST_WHOLE = 16, MOST_WHOLE = 1024 }; // of norm_grad_whole, with a block a chunk, of BLOCK_THREADS
enum { PARTIAL_PLACES = MANY, PARTIAL_BYTES = MOST_SUMS * 8 };

static int64_t width_of(const Operand *x) { return x->size[x->rank - 1]; }
static int64_t rows_of(const Operand *x) { return operand_extent(x, 0, x->rank - 1); }
static int64_t bytes_of(const Launch *l, int64_t elements) { return elements * (int64_t)dtype_size(l->dtype); }

// Sums over rows ------------------------------------------------------------------------------------------------------

static int64_t rows_of_a_chunk(int64_t rows) {
  int64_t each = divide_up(rows, MOST_CHUNKS);
  return each > LEAST_ROWS ? each : LEAST_ROWS;
}

static int64_t rows_of_a_block(int64_t rows, int64_t width, Dtype dtype) {
  int64_t each = divide_up(rows, MOST_WHOLE * BLOCK_THREADS / pack_threads(width, dtype));
  return each > LEAST_WHOLE ? each : LEAST_WHOLE;
}

static int64_t partial_bytes(int64_t rows, int64_t each, int64_t width, int64_t sums, Dtype dtype) {
  return divide_up(rows, each) * width * sums * sum_bytes(dtype);
}

size_t cuda_reduce_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t width = operand_elements(output), rows = operand_extent(input, 0, input->rank - output->rank);
  return (size_t)partial_bytes(rows, rows_of_a_chunk(rows), width, 1, input->dtype);
}

// out (width) = sums over chunks of partial (chunks, sums, width)
static void launch_columns_total(Launch *l, void *partial, int64_t chunks, int64_t width, int64_t sums,
                                 const Operand *const out[]) {
  static const char *const names[] = {"out", "out2", "out3"};
  ColumnsArguments a = {.partial = partial, .width = width, .chunks = chunks, .sums = sums};
  launch_bytes(l, "partial", partial, chunks * sums * width * sum_bytes(l->dtype), CUDA_READS);
  for (int64_t k = 0; k < sums; k++) a.out[k] = launch_array(l, names[k], out[k], CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_columns_total, divide_up(width, COLUMNS_OF_A_BLOCK),
                block_threads(chunks * COLUMNS_OF_A_BLOCK), &a);
}

// The operands of *a are those of the first launch already.
static void launch_columns(Launch *l, const ColumnsArguments *of, const Operand *const out[]) {
  ColumnsArguments whole = *of, *a = &whole;
  a->each = rows_of_a_chunk(a->rows);
  a->chunks = divide_up(a->rows, a->each);
  int64_t bytes = partial_bytes(a->rows, a->each, a->width, a->sums, l->dtype);
  int64_t across = divide_up(bytes_of(l, a->width), 16 * WARP);
  a->partial = launch_bytes(l, "partial", l->call->workspace, bytes, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_columns, across * a->chunks,
                block_threads((a->rows < a->each ? a->rows : a->each) * WARP), a);
  launch_columns_total(l, a->partial, a->chunks, a->width, a->sums, out);
}

void launch_reduce(Launch *l) {
  const Operand *x = launch_input(l, 0), *out = launch_output(l, 0);
  ColumnsArguments a = {.sums = 1, .width = operand_elements(out), .rows = operand_extent(x, 0, x->rank - out->rank)};
  a.dy = launch_operand(l, "x", x, CUDA_READS);
  launch_columns(l, &a, &out);
}

// Norms ---------------------------------------------------------------------------------------------------------------

// x and y, and what is added first, are of the kernel's dtype.
int fits_norm(const KernelCall *call, Dtype dtype) {
  int sum = ((const NormAttr *)call->attr)->sum;
  return call->input[0].dtype == dtype && call->output[0].dtype == dtype &&
         (!sum || (call->input[call->ninput - 1].dtype == dtype && call->output[call->noutput - 1].dtype == dtype));
}

static NormArguments norm_of(Launch *l) {
  const NormAttr *attr = l->call->attr;
  const Operand *x = launch_input(l, 0);
  NormArguments a = {.epsilon = attr->epsilon, .rows = rows_of(x), .width = width_of(x)};
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  a.gain = launch_array(l, "gain", launch_input(l, 1), CUDA_READS);
  if (!attr->sum) return a;
  a.added = launch_operand(l, "added", launch_input(l, l->call->ninput - 1), CUDA_READS);
  a.sum = launch_operand(l, "sum", launch_output(l, l->call->noutput - 1), CUDA_WRITES);
  return a;
}

void launch_layer_norm(Launch *l) {
  NormArguments a = norm_of(l);
  a.bias = launch_array(l, "bias", launch_input(l, 2), CUDA_READS);
  a.mean = launch_array(l, "mean", launch_output(l, 1), CUDA_WRITES);
  a.rstd = launch_array(l, "rstd", launch_output(l, 2), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_layer_norm, a.rows, pack_threads(a.width, l->dtype), &a);
}

void launch_rms_norm(Launch *l) {
  NormArguments a = norm_of(l);
  a.rstd = launch_array(l, "rstd", launch_output(l, 1), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_rms_norm, a.rows, pack_threads(a.width, l->dtype), &a);
}

int fits_norm_grad(const KernelCall *call, Dtype dtype) {
  int accumulate = call_adds(call, ((const NormAttr *)call->attr)->accumulate);
  return call->input[0].dtype == dtype && call->input[1].dtype == dtype && call->output[0].dtype == dtype &&
         (!accumulate || call->input[call->ninput - 1].dtype == dtype);
}

// dy, x and dx are of the kernel's dtype.
int fits_norm_grad_part(const KernelCall *call, Dtype dtype) {
  return call->input[0].dtype == dtype && call->input[1].dtype == dtype &&
         (call->noutput == 1 || call->output[0].dtype == dtype);
}

// Whether a block has a thread for each pack of a row.
static int is_whole(int64_t width, Dtype dtype) { return width * (int64_t)dtype_size(dtype) <= BLOCK_THREADS * 16; }

size_t cuda_norm_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t rows = rows_of(&input[1]), width = width_of(&input[1]), least = rows_of_a_chunk(rows);
  const int64_t each = rows_of_a_block(rows, width, input[0].dtype);
  if (is_whole(width, input[0].dtype) && each < least) least = each;
  return (size_t)partial_bytes(rows, least, width, 3, input[0].dtype);
}

// The operands of a gradient. dx may lie in the memory of what it is added to only.
static NormGradArguments norm_grad_of(Launch *l, const Operand *mean, const Operand *rstd) {
  const KernelCall *call = l->call;
  const Operand *x = launch_input(l, 1);
  const NormAttr *attr = call->attr;
  NormGradArguments a = {.rows = rows_of(x), .width = width_of(x), .sums = call->noutput - 1,
                         .bias = call->noutput - attr->row_sum > 2, .row_sum = attr->row_sum};
  a.dy = launch_operand(l, "dy", launch_input(l, 0), CUDA_READS);
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.gain = launch_array(l, "gain", launch_input(l, 2), CUDA_READS);
  if (mean) a.mean = launch_array(l, "mean", mean, CUDA_READS);
  a.rstd = launch_array(l, "rstd", rstd, CUDA_READS);
  if (call_adds(call, attr->accumulate))
    a.added = launch_operand(l, "added", &call->input[call->ninput - 1], CUDA_READS);
  a.dx = launch_operand(l, "dx", launch_output(l, 0), CUDA_WRITES);
  return a;
}

// mean NULL: of an RMS norm.
static void launch_norm_grad(Launch *l, const Operand *mean, const Operand *rstd) {
  const KernelCall *call = l->call;
  const Operand *x = launch_input(l, 1), *out[] = {&call->output[1], &call->output[2], &call->output[3]};
  const int64_t rows = rows_of(x), width = width_of(x), sums = call->noutput - 1,
                row_sum = ((const NormAttr *)call->attr)->row_sum;
  CHECK(sums > 0, "%s has no gradient of its gain", l->op);
  if (is_whole(width, l->dtype)) {
    NormGradArguments a = norm_grad_of(l, mean, rstd);
    a.each = rows_of_a_block(rows, width, l->dtype);
    const int64_t blocks = divide_up(rows, a.each);
    a.partial = launch_bytes(l, "partial", call->workspace, partial_bytes(rows, a.each, width, sums, l->dtype),
                             CUDA_WRITES);
    launch_kernel(l, CUDA_KERNEL_norm_grad_whole, blocks, pack_threads(width, l->dtype), &a);
    launch_columns_total(l, a.partial, blocks, width, sums, out);
    return;
  }
  ColumnsArguments c = {.rows = rows, .width = width, .sums = sums - row_sum};
  c.dy = launch_operand(l, "dy", launch_input(l, 0), CUDA_READS);
  c.x = launch_operand(l, "x", x, CUDA_READS);
  if (mean) c.mean = launch_array(l, "mean", mean, CUDA_READS);
  c.rstd = launch_array(l, "rstd", rstd, CUDA_READS);
  launch_columns(l, &c, out);
  NormGradArguments a = norm_grad_of(l, mean, rstd);
  launch_kernel(l, CUDA_KERNEL_norm_grad, rows, pack_threads(width, l->dtype), &a);
  if (!row_sum) return;
  c = (ColumnsArguments){.rows = rows, .width = width, .sums = 1};
  c.dy = launch_operand(l, "dx", launch_output(l, 0), CUDA_READS);
  launch_columns(l, &c, &out[sums - 1]);
}
void launch_layer_norm_grad(Launch *l) { launch_norm_grad(l, launch_input(l, 3), launch_input(l, 4)); }
void launch_rms_norm_grad(Launch *l) { launch_norm_grad(l, NULL, launch_input(l, 3)); }

// Parts of norms ------------------------------------------------------------------------------------------------------

// Of rows of x, and of y where there is such.
static NormPartArguments norm_part_of(Launch *l, const Operand *x) {
  NormPartArguments a = {.width = width_of(x), .whole = (double)x->map[x->rank - 1].global};
  a.x = launch_operand(l, "x", x, CUDA_READS);
  return a;
}

static void launch_norm_part(Launch *l, CudaKernel kernel, const Operand *x, const NormPartArguments *a) {
  launch_kernel(l, kernel, rows_of(x), block_threads(a->width), a);
}

void launch_norm_sum(Launch *l) {
  const Operand *x = launch_input(l, 0);
  NormPartArguments a = norm_part_of(l, x);
  a.squared = ((const NormSumAttr *)l->call->attr)->squares;
  a.sum = launch_array(l, "sum", launch_input(l, 1), CUDA_READS);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_norm_part(l, CUDA_KERNEL_norm_sum, x, &a);
}

void launch_norm_apply(Launch *l) {
  const Operand *x = launch_input(l, 0), *sum = launch_input(l, 3);
  NormPartArguments a = norm_part_of(l, x);
  a.epsilon = ((const NormAttr *)l->call->attr)->epsilon;
  a.gain = launch_array(l, "gain", launch_input(l, 1), CUDA_READS);
  a.bias = launch_array(l, "bias", launch_input(l, 2), CUDA_READS);
  a.sum = launch_array(l, "sum", sum, CUDA_READS);
  a.squares = launch_array(l, "squares", launch_input(l, 4), CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  if (sum->data) a.mean = launch_array(l, "mean", launch_output(l, 1), CUDA_WRITES);
  a.rstd = launch_array(l, "rstd", launch_output(l, sum->data ? 2 : 1), CUDA_WRITES);
  launch_norm_part(l, CUDA_KERNEL_norm_apply, x, &a);
}

// dy, x and what the forward pass knew of its rows, for the next launch.
static NormPartArguments norm_grad_part_of(Launch *l) {
  NormPartArguments a = norm_part_of(l, launch_input(l, 1));
  a.dy = launch_operand(l, "dy", launch_input(l, 0), CUDA_READS);
  a.gain = launch_array(l, "gain", launch_input(l, 2), CUDA_READS);
  a.mean = launch_array(l, "mean", launch_input(l, 3), CUDA_READS);
  a.rstd = launch_array(l, "rstd", launch_input(l, 4), CUDA_READS);
  return a;
}

void launch_norm_grad_sums(Launch *l) {
  NormPartArguments a = norm_grad_part_of(l);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_norm_part(l, CUDA_KERNEL_norm_grad_sums, launch_input(l, 1), &a);
}

// Sums for gain and bias first: dx may lie in the memory of dy.
void launch_norm_grad_apply(Launch *l) {
  const KernelCall *call = l->call;
  const Operand *dy = launch_input(l, 0), *x = launch_input(l, 1), *mean = launch_input(l, 3);
  ColumnsArguments c = {.rows = rows_of(x), .width = width_of(x), .sums = call->noutput - 1};
  c.dy = launch_operand(l, "dy", dy, CUDA_READS);
  c.x = launch_operand(l, "x", x, CUDA_READS);
  c.mean = launch_array(l, "mean", mean, CUDA_READS);
  c.rstd = launch_array(l, "rstd", launch_input(l, 4), CUDA_READS);
  launch_columns(l, &c, (const Operand *[2]){&call->output[1], call->noutput > 2 ? &call->output[2] : NULL});
  NormPartArguments a = norm_grad_part_of(l);
  a.sum = launch_array(l, "sums", launch_input(l, 5), CUDA_READS);
  a.y = launch_operand(l, "dx", launch_output(l, 0), CUDA_WRITES);
  launch_norm_part(l, CUDA_KERNEL_norm_grad_apply, x, &a);
}

// Sums of everything --------------------------------------------------------------------------------------------------

static int64_t elements_of_a_sum(int64_t n) {
  int64_t each = divide_up(n, MOST_SUMS);
  return each > SUM_EACH ? each : SUM_EACH;
}

int64_t cuda_sum_partial_bytes(int64_t n) {
  return (int64_t)sizeof(double) * (divide_up(n, elements_of_a_sum(n)) + 1);
}
size_t cuda_sum_squares_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  const int64_t n = operand_elements(input), blocks = divide_up(n, elements_of_a_sum(n));
  return blocks > 1 ? PARTIAL_PLACES * PARTIAL_BYTES : 0;
}

// Of the first `valid` elements, in parts as `n` has them. One part needs no partial sums.
static void sum_squares(Launch *l, const void *x, int64_t n, int64_t valid, double *partial, Array out) {
  const int64_t each = elements_of_a_sum(n), blocks = divide_up(valid, each), bytes = blocks * (int64_t)sizeof(double);
  SumArguments a = {.n = valid, .each = each};
  a.x = launch_bytes(l, "x", (void *)(uintptr_t)x, n * (int64_t)dtype_size(l->dtype), CUDA_READS);
  if (blocks == 1) {
    launch_bytes(l, "out", out.data, (int64_t)dtype_size((Dtype)out.dtype), CUDA_WRITES);
    a.out = out;
  } else a.partial = launch_bytes(l, "partial", partial, bytes, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_sum_squares, blocks, block_threads(a.n), &a);
  if (blocks == 1) return;
  launch_bytes(l, "partial", partial, bytes, CUDA_READS);
  launch_bytes(l, "out", out.data, (int64_t)dtype_size((Dtype)out.dtype), CUDA_WRITES);
  a = (SumArguments){.partial = a.partial, .out = out, .n = blocks, .each = each};
  launch_kernel(l, CUDA_KERNEL_sum, 1, block_threads(blocks), &a);
}

void launch_sum_of_squares(Launch *l, const void *x, int64_t n, double *partial, Array out) {
  sum_squares(l, x, n, n, partial, out);
}

void launch_sum_squares(Launch *l) {
  const Operand *x = launch_input(l, 0), *out = launch_output(l, 0);
  char *places = l->call->workspace; // in turn, so that neighbours need not wait for each other
  const size_t place = l->queue->partials++ % PARTIAL_PLACES;
  double *partial = places ? (double *)(void *)(places + place * PARTIAL_BYTES) : NULL;
  sum_squares(l, x->data, operand_elements(x), launch_valid(x), partial, (Array){out->data, out->dtype});
}
