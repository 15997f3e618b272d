// Sums of two tensors, with numbers of one dtype.
KERNEL(NAME(blend), BlendArguments) {
  REAL alpha = (REAL)a.alpha;
  const REAL beta = (REAL)a.beta;
  if (a.squares) alpha = a.squares[0] > 0 ? (REAL)(1 / sqrt(a.squares[0])) : (REAL)0;
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS)
    PUT(a.to, i, alpha * ARRAY(a.x, i) + (a.y.data ? beta * ARRAY(a.y, i) : (REAL)0));
}
