// MATMUL on bf16: which product it is, and how it is made.

static Product matmul_product(const Operand *input, const Operand *output, const MatmulAttr *attr) {
  MatmulShape s = cpu_matmul_shape(input, attr);
  return (Product){.m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .a = input[0].data,
                   .a_row = s.a_row,
                   .a_column = s.a_column,
                   .b = input[1].data,
                   .b_row = s.b_row,
                   .b_column = s.b_column,
                   .c = output[0].data,
                   .c_row = s.n,
                   .wide = output[0].dtype == DTYPE_F32,
                   .bias = attr->bias ? input[2].data : NULL};
}

static size_t matmul_bf16_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Product g = matmul_product(input, output, attr);
  return groups_fit(&g) ? groups_workspace(&g, threads) : product_workspace(g.n, g.k, g.wide, threads);
}

static void matmul_bf16(const KernelCall *call) {
  Product g = matmul_product(call->input, call->output, call->attr);
  g.add = call_adds(call, ((const MatmulAttr *)call->attr)->accumulate);
  Dtype added = g.bias ? DTYPE_F32 : call->output[0].dtype;
  if ((g.bias && (g.wide || !g.k)) || ((g.bias || g.add) && call->input[2].dtype != added)) {
    op_def(OP_MATMUL)->reference(call);
    return;
  }
  if (g.add && call->input[2].data != g.c) memcpy(g.c, call->input[2].data, dtype_size(added) * (size_t)(g.m * g.n));
  (groups_fit(&g) ? product_by_groups : product)(&g, call->workspace, call_team(call));
}
