// MATMUL on bf16: which product it is, and how it is made.

static Product matmul_product(const Operand *input, const Operand *output, const MatmulAttr *attr) {
  const Operand *a = &input[0], *b = &input[1];
  int64_t m = operand_extent(a, 0, attr->m), n, k;
  Product g;
  switch (attr->kind) {
  case MATMUL_NT: // x (m, k), w (n, k) → (m, n)
    k = operand_extent(a, attr->m, a->rank), n = operand_extent(b, 0, attr->n);
    g = (Product){.m = m, .n = n, .k = k, .a_row = k, .a_column = 1, .b_row = 1, .b_column = k};
    break;
  case MATMUL_NN: // dy (m, n), w (n, k) → (m, k): the sum is over n
    n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->n, b->rank);
    g = (Product){.m = m, .n = k, .k = n, .a_row = n, .a_column = 1, .b_row = k, .b_column = 1};
    break;
  default: // dy (m, n), x (m, k) → (n, k): the sum is over m
    n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->m, b->rank);
    g = (Product){.m = n, .n = k, .k = m, .a_row = 1, .a_column = n, .b_row = k, .b_column = 1, .add = attr->accumulate};
  }
  g.a = a->data;
  g.b = b->data;
  g.c = output[0].data;
  g.c_row = g.n;
  g.wide = output[0].dtype == DTYPE_F32;
  return g;
}

static size_t matmul_bf16_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Product g = matmul_product(input, output, attr);
  return groups_fit(&g) ? groups_workspace(&g, threads) : product_workspace(g.n, g.k, g.wide, threads);
}

static void matmul_bf16(const KernelCall *call) {
  Product g = matmul_product(call->input, call->output, call->attr);
  if (((const MatmulAttr *)call->attr)->bias) {
    g.bias = call->input[2].data;
    if (g.wide || !g.k) {
      op_def(OP_MATMUL)->reference(call);
      return;
    }
  }
  if (g.add && call->input[2].data != g.c) memcpy(g.c, call->input[2].data, sizeof(float) * (size_t)(g.m * g.n));
  (groups_fit(&g) ? product_by_groups : product)(&g, call->workspace, call->team);
}
