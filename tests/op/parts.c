// Parts of operands by IndexMaps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "evaluate.h"
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
