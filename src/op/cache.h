// Where positions of a request lie in a cache of pages: for the kernels of CACHE_ATTENTION.
#pragma once
#include "base/fault.h"
#include "op/build.h"

// The row, of those of sample b, that has position `position` of a request.
static inline int64_t cache_row(const KernelCall *call, int64_t b, int64_t request, int64_t position) {
  const Operand *pages = &call->input[5];
  int64_t page = ((const CacheAttr *)call->attr)->page;
  int64_t of = FAULT(page_table_is_off_by_one, position / page, (position + 1) / page);
  int64_t at = (b * pages->size[1] + request) * pages->size[2] + (of < pages->size[2] ? of : 0);
  return ((const int32_t *)pages->data)[at] * page + position % page;
}
