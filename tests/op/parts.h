// Parts of operands by IndexMaps: what a rank has of a whole operand, and back.
#pragma once
#include "op/op.h"

// Local element i of a part → its index in the whole operand, or -1 in padding.
int64_t whole_index(const Operand *part, int64_t i);
// An operand like `whole` with the given maps; values from it, 0 in padding. The caller frees data.
Operand take_part(const Operand *whole, const IndexMap *map);
// Adds a part into the whole (doubles); padding must be zero.
void add_part(double *whole, const Operand *part, double weight, const char *name);
