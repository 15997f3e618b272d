// Finds the stretches of memory in which operands lie.
#include "device/stretches.h"
#include <stdlib.h>

enum { ALIGNMENT = 256 }; // addresses of a copy are those of the device modulo this

static int by_address(const void *a, const void *b) {
  const Stretch *x = a, *y = b;
  return x->from < y->from ? -1 : x->from > y->from;
}

int stretches_find(const Operand *operand, int count, Stretch *stretch, size_t *bytes) {
  int n = 0, last = 0;
  for (int i = 0; i < count; i++)
    if (operand_bytes_there(&operand[i]) > 0)
      stretch[n++] = (Stretch){operand[i].data, (char *)operand[i].data + operand_bytes_there(&operand[i]), NULL};
  qsort(stretch, (size_t)n, sizeof *stretch, by_address);
  for (int i = 1; i < n; i++)
    if (stretch[i].from < stretch[last].to) {
      if (stretch[i].to > stretch[last].to) stretch[last].to = stretch[i].to;
    } else stretch[++last] = stretch[i];
  n = n ? last + 1 : 0;
  *bytes = 0;
  for (int i = 0; i < n; i++) {
    stretch[i].host = (char *)(*bytes + (uintptr_t)stretch[i].from % ALIGNMENT);
    size_t end = (size_t)(uintptr_t)stretch[i].host + (size_t)(stretch[i].to - stretch[i].from);
    *bytes = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  return n;
}

char *stretches_host(const Stretch *stretch, int count, const void *address) {
  for (int i = 0; i < count; i++)
    if ((const char *)address >= stretch[i].from && (const char *)address < stretch[i].to)
      return stretch[i].host + ((const char *)address - stretch[i].from);
  return NULL;
}
