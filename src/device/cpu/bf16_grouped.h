// GROUPED and GROUPED_WEIGHT on bf16: for each expert the product of its rows, one after the other.

static Product grouped_product(const KernelCall *call, int64_t expert, int64_t at, int64_t rows) {
  const Operand *w = &call->input[1];
  int nt = ((const GroupedAttr *)call->attr)->kind == MATMUL_NT;
  int64_t n = call->output[0].size[3], k = call->input[0].size[3];
  return (Product){.m = rows,
                   .n = n,
                   .k = k,
                   .a = (const uint16_t *)call->input[0].data + at * k,
                   .a_row = k,
                   .a_column = 1,
                   .b = (const uint16_t *)w->data + expert * n * k,
                   .b_row = nt ? 1 : n,
                   .b_column = nt ? k : 1,
                   .c = (uint16_t *)call->output[0].data + at * n,
                   .c_row = n};
}

static size_t grouped_bf16_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Product g = {.m = input->size[0], .n = output->size[3], .k = input->size[3], .a_column = 1};
  size_t bytes = groups_fit(&g) ? groups_workspace(&g, threads) : product_workspace(g.n, g.k, 0, threads);
  return sizeof(int64_t) * (size_t)input[2].size[2] + bytes;
}

static void grouped_bf16(const KernelCall *call) {
  int64_t *count = call->workspace, experts = call->input[1].size[0], at = 0;
  cpu_rows_of_experts(&call->input[2], count);
  for (int64_t x = 0; x < experts; at += count[x++]) {
    Product g = grouped_product(call, x, at, count[x]);
    if (g.m) (groups_fit(&g) ? product_by_groups : product)(&g, count + experts, call_team(call));
  }
  cpu_clear_rows(&call->output[0], at);
}

static size_t grouped_weight_bf16_workspace(const Operand *input, const Operand *output, const void *attr,
                                            int threads) {
  return sizeof(int64_t) * (size_t)input[2].size[2] +
         product_workspace(output->size[2], input->size[0], 1, threads);
}

static void grouped_weight_bf16(const KernelCall *call) {
  const Operand *dw = &call->output[0];
  int64_t *count = call->workspace, experts = dw->size[0], n = dw->size[1], k = dw->size[2], at = 0;
  int add = call_adds(call, ((const GroupedAttr *)call->attr)->accumulate);
  if (add && call->input[3].data != dw->data)
    memcpy(dw->data, call->input[3].data, sizeof(float) * (size_t)(experts * n * k));
  cpu_rows_of_experts(&call->input[2], count);
  for (int64_t x = 0; x < experts; at += count[x++]) {
    Product g = {.m = n,
                 .n = k,
                 .k = count[x],
                 .a = (const uint16_t *)call->input[0].data + at * n,
                 .a_row = 1,
                 .a_column = n,
                 .b = (const uint16_t *)call->input[1].data + at * k,
                 .b_row = k,
                 .b_column = 1,
                 .c = (float *)dw->data + x * n * k,
                 .c_row = k,
                 .wide = 1,
                 .add = add};
    product(&g, count + experts, call_team(call));
  }
}
