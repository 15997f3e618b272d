// Tables of the rows of experts, for the kernels of all levels.
#include "device/cpu/cpu.h"
#include "base/fault.h"

// First the rows of each expert, and where each begins, then of each token (tokens + 1) and its choices.
size_t cpu_rows_bytes(const Operand *mask) {
  int64_t tokens = operand_extent(mask, 0, 2), experts = mask->size[2];
  return sizeof(int64_t) * (size_t)(experts + tokens + 2) + sizeof(CpuChoice) * (size_t)(tokens * experts);
}

CpuRows cpu_rows(const Operand *mask, void *workspace) {
  CpuRows r = {.tokens = operand_extent(mask, 0, 2), .experts = mask->size[2]};
  const uint8_t *m = mask->data;
  int64_t *next = workspace, at = 0, count = 0;
  r.first = next + r.experts + 1;
  r.choice = (CpuChoice *)(void *)(r.first + r.tokens + 1);
  cpu_rows_of_experts(mask, next);
  for (int64_t x = 0, rows; x < r.experts; x++) { // how many there are → where they begin
    rows = next[x];
    next[x] = at;
    at += rows;
  }
  for (int64_t t = 0; t < r.tokens; t++) {
    r.first[t] = count;
    for (int64_t x = 0; x < r.experts; x++)
      if (m[t * r.experts + x]) r.choice[count++] = (CpuChoice){(int32_t)next[x]++, (int32_t)x};
  }
  r.first[r.tokens] = count;
  return r;
}

void cpu_clear_rows(const Operand *x, int64_t from) {
  size_t row = (size_t)operand_extent(x, 1, x->rank) * dtype_size(x->dtype);
  if (from < x->size[0]) memset((char *)x->data + (size_t)from * row, 0, (size_t)(x->size[0] - from) * row);
}

void cpu_rows_of_experts(const Operand *mask, int64_t *rows) {
  int64_t tokens = operand_extent(mask, 0, 2), experts = mask->size[2];
  const uint8_t *m = mask->data;
  memset(rows, 0, sizeof *rows * (size_t)experts);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t x = 0; x < experts; x++) rows[x] += m[t * experts + x];
  if (FAULT(expert_takes_a_row_too_many, 0, experts > 1 && rows[1])) rows[0]++, rows[1]--;
}
