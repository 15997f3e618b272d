// Launches of what experts do with the rows of tokens that go to them.
#include "device/cuda/launch.h"
#include "op/expert_rows.h"

// In the workspace: where each token's rows lie, and where each expert's begin.
static int64_t index_bytes(const Operand *mask) { return divide_up(operand_elements(mask) * 4, 8) * 8; }
static size_t workspace_of(const Operand *mask) { return (size_t)(index_bytes(mask) + (mask->size[2] + 1) * 8); }
size_t cuda_mask_first_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return workspace_of(&input[0]);
}
size_t cuda_mask_second_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return workspace_of(&input[1]);
}
size_t cuda_mask_third_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return workspace_of(&input[2]);
}

// Finds them, and gives their addresses to the next launch.
static ExpertArguments find_rows(Launch *l, const Operand *mask) {
  ExpertArguments a = {.tokens = operand_extent(mask, 0, 2), .experts = mask->size[2]};
  char *workspace = l->call->workspace;
  const int64_t bytes = operand_elements(mask) * 4, begins = (a.experts + 1) * 8;
  a.mask = launch_operand(l, "mask", mask, CUDA_READS);
  a.index = launch_bytes(l, "index", workspace, bytes, CUDA_WRITES);
  a.begins = launch_bytes(l, "begins", workspace + index_bytes(mask), begins, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_expert_index, a.experts, BLOCK_THREADS, &a);
  return a;
}

static void read_index(Launch *l, ExpertArguments *a) {
  launch_bytes(l, "index", a->index, a->tokens * a->experts * 4, CUDA_READS);
  a->mask = NULL; // what the launch does not read it does not know
  a->begins = NULL;
}

static int64_t *read_begins(Launch *l, const ExpertArguments *a) {
  return launch_bytes(l, "begins", a->begins, (a->experts + 1) * 8, CUDA_READS);
}

// Without tokens there are no rows, and no workspace.
static int has_tokens(const Operand *mask) { return operand_elements(mask) > 0; }

int fits_dispatch(const KernelCall *call, Dtype dtype) {
  return call->input[1].dtype == DTYPE_U8 && call->output[0].dtype == dtype && has_tokens(&call->input[1]);
}

void launch_dispatch(Launch *l) {
  const Operand *x = launch_input(l, 0);
  ExpertArguments a = find_rows(l, launch_input(l, 1));
  int64_t *begins = read_begins(l, &a);
  a.width = x->size[2];
  a.rows_there = launch_output(l, 0)->size[0];
  read_index(l, &a);
  a.begins = begins;
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.weights = launch_array(l, "weights", launch_input(l, 2), CUDA_READS);
  a.y = launch_operand(l, "rows", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_dispatch, a.tokens * a.experts, block_threads(a.width), &a);
}

int fits_combine(const KernelCall *call, Dtype dtype) {
  return call->input[0].dtype == DTYPE_U8 && call->input[1].dtype == dtype && call->output[0].dtype == dtype &&
         has_tokens(&call->input[0]);
}

void launch_combine(Launch *l) {
  ExpertArguments a = find_rows(l, launch_input(l, 0));
  a.width = launch_output(l, 0)->size[2];
  read_index(l, &a);
  a.x = launch_operand(l, "rows", launch_input(l, 1), CUDA_READS);
  a.weights = launch_array(l, "weights", launch_input(l, 2), CUDA_READS);
  a.y = launch_operand(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_combine, a.tokens, block_threads(a.width), &a);
}

int fits_mask_third(const KernelCall *call, Dtype dtype) {
  return call->input[2].dtype == DTYPE_U8 && call->input[0].dtype == dtype && has_tokens(&call->input[2]);
}

void launch_combine_grad(Launch *l) {
  ExpertArguments a = find_rows(l, launch_input(l, 2));
  a.width = launch_input(l, 0)->size[2];
  read_index(l, &a);
  a.x = launch_operand(l, "dout", launch_input(l, 0), CUDA_READS);
  a.rows = launch_array(l, "rows", launch_input(l, 1), CUDA_READS);
  a.weights = launch_array(l, "dweights", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_combine_grad, a.tokens * a.experts, block_threads(a.width), &a);
}

// By tensor cores where these take them. Each expert's last tile of rows may be a part of one.
static void launch_products_of_experts(Launch *l, const ExpertProductArguments *a) {
  const Dtype dtype = l->dtype;
  const int by_tiles = !l->own && product_fits_tiles(a->a, a->a_row, a->a_depth, a->b, a->b_column, a->b_depth);
  const int64_t edge = by_tiles ? MMA_TILE : TILE, across = divide_up(a->columns, edge);
  const int64_t down = a->by_rows ? divide_up(a->rows_there, edge) + a->experts : a->experts * divide_up(a->rows, edge);
  l->dtype = by_tiles ? (Dtype)a->a.dtype : l->dtype;
  launch_kernel(l, by_tiles ? CUDA_KERNEL_grouped_tiles : CUDA_KERNEL_grouped, down * across,
                by_tiles ? MMA_THREADS : BLOCK_THREADS, a);
  l->dtype = dtype;
}

void launch_grouped(Launch *l) {
  const Operand *rows = launch_input(l, 0), *w = launch_input(l, 1);
  const int nt = ((const GroupedAttr *)l->call->attr)->kind == MATMUL_NT;
  const ExpertArguments found = find_rows(l, launch_input(l, 2));
  ExpertProductArguments a = {.by_rows = 1, .rows_there = rows->size[0], .experts = found.experts,
                              .columns = w->size[nt ? 1 : 2], .depth = w->size[nt ? 2 : 1], .a_depth = 1};
  a.a_row = a.depth;
  a.b_column = nt ? a.depth : 1;
  a.b_depth = nt ? 1 : a.columns;
  a.begins = read_begins(l, &found);
  a.a = launch_array(l, "rows", rows, CUDA_READS);
  a.b = launch_array(l, "w", w, CUDA_READS);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_products_of_experts(l, &a);
}

void launch_grouped_weight(Launch *l) {
  const KernelCall *call = l->call;
  const Operand *dw = launch_output(l, 0);
  const ExpertArguments found = find_rows(l, launch_input(l, 2));
  ExpertProductArguments a = {.experts = found.experts, .rows = dw->size[1], .columns = dw->size[2], .a_row = 1,
                              .a_depth = dw->size[1], .b_column = 1, .b_depth = dw->size[2]};
  a.begins = read_begins(l, &found);
  a.a = launch_array(l, "drows", launch_input(l, 0), CUDA_READS);
  a.b = launch_array(l, "rows", launch_input(l, 1), CUDA_READS);
  if (call_adds(call, ((const GroupedAttr *)call->attr)->accumulate))
    a.added = launch_array(l, "added", launch_input(l, 3), CUDA_READS);
  a.out = launch_array(l, "dw", dw, CUDA_WRITES);
  launch_products_of_experts(l, &a);
}

// Rows of several ranks -----------------------------------------------------------------------------------------------

// The last part has the places of rows rank after rank.
size_t cuda_reorder_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return workspace_of(&input[1]) + (size_t)index_bytes(&input[1]);
}

int fits_reorder_rows(const KernelCall *call, Dtype dtype) {
  return call->input[0].dtype == dtype && call->input[1].dtype == DTYPE_U8 && has_tokens(&call->input[1]);
}

// Of a mask of several ranks' tokens, which the next launch reads.
static PartArguments read_parts(Launch *l, const Operand *mask) {
  const RowParts *parts = l->call->attr;
  const CallParameters *p = l->call->parameters;
  const RowSamples samples = row_samples(parts, mask, NULL, 0);
  const int uneven = parts->batch > 1 && p && p->rank_begins;
  PartArguments a = {.tokens = operand_extent(mask, 0, 2), .positions = mask->size[1], .experts = mask->size[2],
                     .each = uneven ? 0 : samples.each, .first = index_map(&mask->map[0], 0), .batch = parts->batch,
                     .zigzag = parts->zigzag, .seq = parts->seq, .ranks = samples.ranks, .home = parts->home};
  a.mask = launch_operand(l, "mask", mask, CUDA_READS);
  if (uneven)
    a.rank_begins = launch_bytes(l, "rank begins", (void *)(uintptr_t)p->rank_begins, (p->data_ranks + 1) * 8,
                                 CUDA_READS);
  return a;
}

void launch_reorder_rows(Launch *l) {
  const RowParts *parts = l->call->attr;
  const Operand *rows = launch_input(l, 0), *mask = launch_input(l, 1);
  ExpertArguments found = find_rows(l, mask);
  PartArguments a = read_parts(l, mask);
  const int64_t bytes = a.tokens * a.experts * 4;
  char *there = (char *)l->call->workspace + workspace_of(mask);
  a.width = operand_extent(rows, 1, rows->rank);
  a.there = launch_bytes(l, "there", there, bytes, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_part_index, row_parts(parts), BLOCK_THREADS, &a);
  read_index(l, &found);
  a.mask = NULL;
  a.rank_begins = NULL;
  a.index = found.index;
  launch_bytes(l, "there", there, bytes, CUDA_READS);
  a.x = launch_operand(l, "rows", rows, CUDA_READS);
  a.y = launch_operand(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_reorder_rows, a.tokens * a.experts, block_threads(a.width), &a);
}

int fits_count_rows(const KernelCall *call, Dtype dtype) {
  return call->input[0].dtype == DTYPE_U8 && call->input[1].dtype == DTYPE_U8 && call->output[0].dtype == DTYPE_F64;
}

void launch_count_rows(Launch *l) {
  const Operand *mask = launch_input(l, 0), *counts = launch_output(l, 0);
  RowCountArguments a = {.tokens = operand_extent(mask, 0, 2), .experts = mask->size[2], .ranks = counts->size[1]};
  a.mask = launch_operand(l, "mask of tokens", mask, CUDA_READS);
  a.part = read_parts(l, launch_input(l, 1));
  a.counts = launch_operand(l, "counts", counts, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_count_rows, 2 * a.ranks, BLOCK_THREADS, &a);
}
