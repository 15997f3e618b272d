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

// An operand may have more rows than its mask lets through: these are stored as 0, and nobody reads them one by one.
static inline void expert_rows_clear(const Operand *rows, int64_t from) {
  for (int64_t n = operand_elements(rows), i = from * operand_extent(rows, 1, rows->rank); i < n; i++)
    operand_store(rows, i, 0);
}

// ---- rows of several ranks' tokens ----------------------------------------------------------------------------------

enum { ROW_PARTS_MOST = 1024 };
static inline int row_parts(const RowParts *p) { return p->batch * p->zigzag * p->seq; }

// The samples of a mask: how many each of the parts has, or, where they are uneven, where the ranks' begin.
typedef struct RowSamples {
  int64_t each; // samples of a part, where all have as many (more than there are: one part); 0: as `begins` says
  const int64_t *begins; // CallParameters.rank_begins
  int parts;
  int rank, ranks;             // the first data rank, and how many a part has
  int64_t first;               // of the microbatch
} RowSamples;

// rank: the first data rank of them; -1: it is looked for. All their ranks are neighbours, and the first is a multiple
// of their number.
static inline RowSamples row_samples(const RowParts *p, const Operand *mask, const CallParameters *call, int rank) {
  RowSamples s = {.parts = p->batch, .ranks = p->ranks > 1 ? p->ranks : 1};
  if (p->batch == 1 || !call || !call->rank_begins || !mask->size[0]) {
    s.each = p->batch == 1 || !mask->size[0] ? mask->size[0] + 1 : mask->size[0] / p->batch;
    return s;
  }
  s.begins = call->rank_begins;
  s.first = index_map(&mask->map[0], 0);
  while (rank < 0 && s.begins[s.rank + 1] <= s.first) s.rank++;
  s.rank = rank >= 0 ? rank : s.rank - s.rank % (s.parts * s.ranks);
  return s;
}

// The part that a sample belongs to.
static inline int row_part_of_sample(const RowSamples *s, int64_t sample) {
  if (s->each) return (int)(sample / s->each);
  int rank = s->rank;
  while (s->begins[rank + 1] <= s->first + sample) rank++;
  CHECK(rank - s->rank < s->parts * s->ranks);
  return FAULT(part_has_one_rank, (rank - s->rank) / s->ranks, (rank - s->rank) % s->parts);
}

static inline int row_part_of_position(const RowParts *p, int64_t position, int64_t positions) {
  int zigzag = 0;
  if (p->zigzag > 1) {
    int64_t chunk = positions / (2 * p->zigzag), number = position / chunk, second = number >= p->zigzag;
    zigzag = (int)(second ? 2 * p->zigzag - 1 - number : number);
    position = second * chunk + position % chunk;
    positions = 2 * chunk;
  }
  return zigzag * p->seq + (int)(position / (positions / p->seq));
}

// The part, of those in the order of the group's ranks, that a token of a mask of `positions` positions belongs to.
static inline int row_part(const RowParts *p, const RowSamples *samples, int64_t token, int64_t positions) {
  return row_part_of_sample(samples, token / positions) * p->zigzag * p->seq +
         row_part_of_position(p, token % positions, positions);
}

// How many rows of a mask belong to each part.
static inline void row_parts_count(const RowParts *p, const Operand *mask, const CallParameters *call, int rank,
                                   int64_t *rows) {
  ExpertRows m = expert_rows(mask);
  RowSamples samples = row_samples(p, mask, call, rank);
  for (int64_t t = 0; t < m.tokens; t++) {
    int part = row_part(p, &samples, t, mask->size[1]);
    for (int64_t x = 0; x < m.experts; x++) rows[part] += m.mask[t * m.experts + x];
  }
}

// How many rows of a mask belong to each of `parts` equal parts of its experts.
static inline void expert_parts_count(const Operand *mask, int parts, int64_t *rows) {
  ExpertRows m = expert_rows(mask);
  int64_t each = m.experts / parts;
  for (int64_t t = 0; t < m.tokens; t++)
    for (int64_t x = 0; x < m.experts; x++) rows[x / each] += m.mask[t * m.experts + x];
}
