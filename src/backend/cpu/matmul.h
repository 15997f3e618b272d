// MATMUL: the three products of a linear layer.

// Strides of the product that an op's operands stand for.
static GEMM TYPED(matmul_gemm)(const Operand *input, const Operand *output, const MatmulAttr *attr) {
  GEMM g = {0};
  const Operand *a = &input[0], *b = &input[1];
  int64_t m, n, k;
  switch (attr->kind) {
  case MATMUL_NT: // x (m, k), w (n, k) → (m, n)
    m = operand_extent(a, 0, attr->m), k = operand_extent(a, attr->m, a->rank), n = operand_extent(b, 0, attr->n);
    g = (GEMM){.m = m, .n = n, .k = k, .a_row = k, .a_column = 1, .b_row = 1, .b_column = k};
    break;
  case MATMUL_NN: // dy (m, n), w (n, k) → (m, k): the sum is over n
    m = operand_extent(a, 0, attr->m), n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->n, b->rank);
    g = (GEMM){.m = m, .n = k, .k = n, .a_row = n, .a_column = 1, .b_row = k, .b_column = 1};
    break;
  default: // dy (m, n), x (m, k) → (n, k): the sum is over m
    m = operand_extent(a, 0, attr->m), n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->m, b->rank);
    g = (GEMM){.m = n, .n = k, .k = m, .a_row = 1, .a_column = n, .b_row = k, .b_column = 1, .add = attr->accumulate};
  }
  if (attr->bias) g.bias = input[2].data;
  g.a = a->data;
  g.b = b->data;
  g.c = output[0].data;
  g.c_row = g.n;
  return g;
}

static size_t TYPED(matmul_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  GEMM g = TYPED(matmul_gemm)(input, output, attr);
  return TYPED(gemm_workspace)(g.n, g.k, threads);
}

static void TYPED(matmul)(const KernelCall *call) {
  GEMM g = TYPED(matmul_gemm)(call->input, call->output, call->attr);
  if (g.add && call->input[2].data != call->output[0].data)
    memcpy(g.c, call->input[2].data, sizeof(REAL) * (size_t)(g.m * g.n));
  TYPED(gemm)(&g, call->workspace, call->team);
}
