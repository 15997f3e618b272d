// The memory of operands as stretches that do not overlap, for copies of all of it: what overlaps on a device, as in an
// update in place, lies together in the copy too.
#pragma once
#include "op/op.h"

typedef struct Stretch { char *from, *to, *host; } Stretch; // of the device's addresses, and where the copy begins

static inline int64_t operand_bytes_there(const Operand *x) {
  return x->data ? operand_elements(x) * (int64_t)dtype_size(x->dtype) : 0;
}
// The stretches, from low to high addresses, into (count): how many there are. Gives each its offset from the beginning
// of the copy's memory (as `host`), and *bytes, which all of them need.
int stretches_find(const Operand *operand, int count, Stretch *stretch, size_t *bytes);
// Where the copy of an address is; NULL: in none of them.
char *stretches_host(const Stretch *stretch, int count, const void *address);
