// The second half of sums over rows (ColumnsArguments): a block has COLUMNS_OF_A_BLOCK columns, and each thread some of
// the chunks of one.
KERNEL(NAME(columns_total), ColumnsArguments) {
  SHARED(REAL, shared, BLOCK_THREADS);
  const int64_t column = BLOCK * COLUMNS_OF_A_BLOCK + THREAD % COLUMNS_OF_A_BLOCK,
                chunks = FAULT(kernel_last_chunk_of_rows, a.chunks, a.chunks - 1);
  for (int64_t k = 0; k < a.sums; k++) {
    REAL sum = 0;
    UNROLL_BY(8)
    for (int64_t chunk = THREAD / COLUMNS_OF_A_BLOCK; chunk < chunks; chunk += THREADS / COLUMNS_OF_A_BLOCK)
      sum += column < a.width ? ((const REAL *)a.partial)[(chunk * a.sums + k) * a.width + column] : (REAL)0;
    shared[THREAD] = sum;
    BARRIER();
    sum = 0;
    for (int t = THREAD; t < THREADS; t += COLUMNS_OF_A_BLOCK) sum += shared[t];
    if (THREAD < COLUMNS_OF_A_BLOCK && column < a.width) PUT(a.out[k], column, sum);
    BARRIER();
  }
}
