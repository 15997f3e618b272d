// MATMUL: the three products of a linear layer.

static GEMM TYPED(matmul_gemm)(const Operand *input, const Operand *output, const MatmulAttr *attr) {
  MatmulShape s = cpu_matmul_shape(input, attr);
  GEMM g = {.m = s.m,
            .n = s.n,
            .k = s.k,
            .a = input[0].data,
            .a_row = s.a_row,
            .a_column = s.a_column,
            .b_row = s.b_row,
            .b_column = s.b_column,
            .c = output[0].data,
            .c_row = s.n,
            .bias = attr->bias ? input[2].data : NULL};
  TYPED(gemm_weight)(&g, &input[1], 0);
  return g;
}

static size_t TYPED(matmul_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  GEMM g = TYPED(matmul_gemm)(input, output, attr);
  return TYPED(gemm_workspace)(g.n, g.k, threads);
}

static void TYPED(matmul)(const KernelCall *call) {
  GEMM g = TYPED(matmul_gemm)(call->input, call->output, call->attr);
  g.add = FAULT(accumulate_forgets, call_adds(call, ((const MatmulAttr *)call->attr)->accumulate), 0);
  if (g.add && call->input[2].data != call->output[0].data)
    memcpy(g.c, call->input[2].data, sizeof(REAL) * (size_t)(g.m * g.n));
  TYPED(gemm)(&g, call->workspace, call_team(call));
}
