// Rows of one dtype, a block each.

// y (b, t, width) of x (b, s, width): row index[b, t] of its sample, or 0.
KERNEL(NAME(take), RowsArguments) {
  const int64_t row = map_local(&a.map, array_integer(a.index, BLOCK)), from = BLOCK / a.t * a.s + row;
  for (int64_t i = THREAD; i < a.width; i += THREADS)
    ((ELEMENT *)a.y)[BLOCK * a.width + i] = row < 0 ? (ELEMENT)0 : ((const ELEMENT *)a.x)[from * a.width + i];
}

// Row t of `from` (b, t, width) becomes row index[b, t] of y (b, s, width), its sample's; none where that is negative.
KERNEL(NAME(cache_write), RowsArguments) {
  const int64_t row = array_integer(a.index, BLOCK), to = BLOCK / a.t * a.s + row;
  for (int64_t i = THREAD; i < a.width && FAULT(kernel_cache_row_of_no_token, row >= 0, row >= -1); i += THREADS)
    ((ELEMENT *)a.y)[to * a.width + i] = NARROW(ARRAY(a.from, BLOCK * a.width + i));
}
