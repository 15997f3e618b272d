// Rows of compact tensors for the ops of experts: in which order they lie, and how many each expert has.
#pragma once
#include "base/fault.h"
#include "op/op.h"

// A mask as a kernel gets it: (tokens = b·s, experts), 1 where the token goes to the expert.
typedef struct ExpertRows { const uint8_t *mask; int64_t tokens, experts; } ExpertRows;

static inline ExpertRows expert_rows(const Operand *mask) {
  return (ExpertRows){mask->data, operand_extent(mask, 0, 2), mask->size[2]};
}

// How many rows an expert has.
static inline int64_t expert_rows_of(const ExpertRows *m, int64_t expert) {
  int64_t n = 0;
  for (int64_t t = 0; t < m->tokens; t++) n += m->mask[t * m->experts + expert];
  return n;
}

// The rows in memory's order, experts outermost: each with its token and expert.
typedef struct ExpertRow { int64_t index, token, expert; } ExpertRow;
static inline ExpertRow expert_row_first(void) { return (ExpertRow){-1, -1, 0}; }
// The next row: 0 when there is none left.
static inline int expert_row_next(const ExpertRows *m, ExpertRow *r) {
  for (;;) {
    if (++r->token == m->tokens) r->token = 0, r->expert++;
    if (r->expert >= m->experts || !m->tokens) return 0;
    if (m->mask[r->token * m->experts + r->expert]) return ++r->index, 1;
  }
}
