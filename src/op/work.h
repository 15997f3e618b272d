// The cost of one call of an op on any device: FLOPs, the products and attention that they belong to, and bytes of
// memory.
#pragma once
#include <stdint.h>

// c products (m, k) · (k, n): 2·c·m·n·k FLOPs. kind: how the operands lie, a MatmulKind, for ops that have one.
typedef struct OpProduct { double m, n, k, c; int kind; } OpProduct;
enum { MAX_PRODUCTS = 4 };

// Attention: `pairs` of a query and a key that it sees, of all heads, of `width` elements each; `length`: keys of a
// sequence. `scores`: bytes of the scores where an implementation keeps them (materialised). `causal`: about half of
// the pairs are masked, and the blocks that have none are left out.
typedef struct OpAttention { double pairs, width, length, scores; int backward, causal; } OpAttention;

typedef struct OpWork {
  double matrix;                   // FLOPs of products and attention, a multiply-add is 2
  double vector;                   // other FLOPs, about
  double read, written;            // bytes of memory; an update in place counts in both
  OpProduct product[MAX_PRODUCTS]; // what `matrix` is made of, where the op is products
  int products;
  double rows_read, rows_written; // bytes of rows of a product's result that a device whose products are a library's
                                  // takes through a separate kernel (softmax and its gradient): beside read, written
  OpAttention attention;           // where the op is attention; pairs 0: it is not
} OpWork;
