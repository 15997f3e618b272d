// Parts of operands by IndexMaps: what a rank has of a whole operand, and back.
#pragma once
#include "op/op.h"

// Local element i of a part → its index in the whole operand, or -1 in padding.
int64_t whole_index(const Operand *part, int64_t i);
// An operand like `whole` with the given maps; values from it, 0 in padding. The caller frees data.
Operand take_part(const Operand *whole, const IndexMap *map);
// A compact operand of rows as the dense one (b, s, x, …) with 0 where the mask (b, s, x) is, and back. The caller
// frees data.
Operand rows_unpacked(const Operand *rows, const Operand *mask);
Operand rows_packed(const Operand *dense, const Operand *mask);
// Adds a part into the whole (doubles); padding must be zero.
void add_part(double *whole, const Operand *part, double weight, const char *name);
