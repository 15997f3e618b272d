// GROUPED and GROUPED_WEIGHT: for each expert the product of its rows, one after the other; each is as in a product of
// its own.

static size_t TYPED(grouped_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(int64_t) * (size_t)input[2].size[2] + TYPED(gemm_workspace)(output->size[3], input->size[3], threads);
}

static void TYPED(grouped)(const KernelCall *call) {
  const Operand *rows = &call->input[0], *w = &call->input[1];
  int nt = ((const GroupedAttr *)call->attr)->kind == MATMUL_NT;
  int64_t *count = call->workspace, experts = w->size[0], n = call->output[0].size[3], k = rows->size[3], at = 0;
  cpu_rows_of_experts(&call->input[2], count);
  for (int64_t x = 0; x < experts; at += count[x++]) {
    GEMM g = {.m = count[x],
              .n = n,
              .k = k,
              .a = (const REAL *)rows->data + at * k,
              .a_row = k,
              .a_column = 1,
              .b_row = nt ? 1 : n,
              .b_column = nt ? k : 1,
              .c = (REAL *)call->output[0].data + at * n,
              .c_row = n};
    TYPED(gemm_weight)(&g, w, x * n * k);
    if (g.m) TYPED(gemm)(&g, count + experts, call_team(call));
  }
  cpu_clear_rows(&call->output[0], at);
}

static size_t TYPED(grouped_weight_workspace)(const Operand *input, const Operand *output, const void *attr,
                                              int threads) {
  return sizeof(int64_t) * (size_t)input[2].size[2] + TYPED(gemm_workspace)(output->size[2], input->size[0], threads);
}

static void TYPED(grouped_weight)(const KernelCall *call) {
  const Operand *drows = &call->input[0], *rows = &call->input[1], *dw = &call->output[0];
  int64_t *count = call->workspace, experts = dw->size[0], n = dw->size[1], k = dw->size[2], at = 0;
  int add = call_adds(call, ((const GroupedAttr *)call->attr)->accumulate);
  if (add && call->input[3].data != dw->data)
    memcpy(dw->data, call->input[3].data, sizeof(REAL) * (size_t)(experts * n * k));
  cpu_rows_of_experts(&call->input[2], count);
  for (int64_t x = 0; x < experts; at += count[x++]) {
    GEMM g = {.m = n,
              .n = k,
              .k = count[x],
              .a = (const REAL *)drows->data + at * n,
              .a_row = 1,
              .a_column = n,
              .b = (const REAL *)rows->data + at * k,
              .b_row = k,
              .b_column = 1,
              .c = (REAL *)dw->data + x * n * k,
              .c_row = k,
              .add = add};
    TYPED(gemm)(&g, count + experts, call_team(call));
  }
}
