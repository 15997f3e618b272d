// The second half of sums over rows (ColumnsArguments): a thread a column.
KERNEL(NAME(columns_total), ColumnsArguments) {
  const int64_t column = BLOCK * THREADS + THREAD;
  if (column >= a.width) return;
  for (int k = 0; k < a.sums; k++) {
    REAL sum = 0;
    for (int64_t chunk = 0; chunk < FAULT(kernel_last_chunk_of_rows, a.chunks, a.chunks - 1); chunk++)
      sum += ((const REAL *)a.partial)[(chunk * a.sums + k) * a.width + column];
    PUT(a.out[k], column, sum);
  }
}
