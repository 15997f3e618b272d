// Parts of operands by IndexMaps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/evaluate.h"
#include "parts.h"

int64_t whole_index(const Operand *part, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int d = part->rank - 1; d >= 0; d--) {
    int64_t local = i % part->size[d];
    if (local >= part->map[d].valid) return -1;
    index += stride * index_map(&part->map[d], local);
    stride *= part->map[d].global;
    i /= part->size[d];
  }
  return index;
}

Operand take_part(const Operand *whole, const IndexMap *map) {
  Operand part = {.dtype = whole->dtype, .rank = whole->rank};
  if (!whole->data) return part;
  for (int d = 0; d < part.rank; d++) {
    part.map[d] = map[d];
    part.size[d] = map[d].local;
  }
  operand_allocate(&part);
  for (int64_t i = operand_elements(&part) - 1; i >= 0; i--) {
    int64_t from = whole_index(&part, i);
    operand_store(&part, i, from < 0 ? 0 : operand_load(whole, from));
  }
  return part;
}

void add_part(double *whole, const Operand *part, double weight, const char *name) {
  for (int64_t i = operand_elements(part) - 1; i >= 0; i--) {
    int64_t to = whole_index(part, i);
    double value = operand_load(part, i);
    if (to >= 0) whole[to] += value * weight;
    else if (value != 0) fail_msg("%s: padding holds %g", name, value);
  }
}

// Copies row by row; returns how many rows the mask lets through.
static int64_t copy_rows(const Operand *mask, const Operand *rows, const Operand *dense, int64_t width, int packs) {
  int64_t tokens = mask->size[0] * mask->size[1], experts = mask->size[2], n = 0;
  for (int64_t x = 0; x < experts; x++)
    for (int64_t t = 0; t < tokens; t++) {
      if (!operand_load(mask, t * experts + x)) continue;
      for (int64_t i = 0; rows && i < width; i++) {
        int64_t packed = n * width + i, at = (t * experts + x) * width + i;
        if (packs) operand_store(rows, packed, operand_load(dense, at));
        else operand_store(dense, at, operand_load(rows, packed));
      }
      n++;
    }
  return n;
}

Operand rows_unpacked(const Operand *rows, const Operand *mask) {
  Operand dense = *rows;
  for (int d = 0; d < 3; d++) {
    dense.size[d] = mask->size[d];
    dense.map[d] = mask->map[d];
  }
  operand_allocate(&dense);
  copy_rows(mask, rows, &dense, operand_extent(rows, 3, rows->rank), 0);
  return dense;
}

Operand rows_packed(const Operand *dense, const Operand *mask) {
  Operand rows = *dense;
  for (int d = 0; d < 3; d++) {
    rows.size[d] = d ? 1 : copy_rows(mask, NULL, dense, 0, 1);
    rows.map[d] = index_whole(rows.size[d]);
  }
  operand_allocate(&rows);
  copy_rows(mask, &rows, dense, operand_extent(&rows, 3, rows.rank), 1);
  return rows;
}
