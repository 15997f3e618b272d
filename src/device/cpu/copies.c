// Kernels that only copy rows, for all levels and dtypes: REORDER_ROWS, SPLIT_POSITIONS, JOIN_POSITIONS and
// CACHE_WRITE.
#include "device/cpu/copies.h"
#include "base/fault.h"
#include "op/expert_rows.h"
#include <string.h>

// ---- rows of several ranks in the order of a compact tensor, and back

// First how many rows of each expert each part has, where each expert's begin and how many a part has, then of each row
// in the order of a compact tensor its place in that of the parts.
static size_t reorder_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t tokens = operand_extent(&input[1], 0, 2), experts = input[1].size[2], parts = row_parts(attr);
  return sizeof(int64_t) * (size_t)((parts + 1) * (experts + 1)) + sizeof(int32_t) * (size_t)(tokens * experts);
}

typedef struct Reorder {
  int64_t parts, experts, *next, *begin,
      *part_begin; // next: (parts, experts); begin: (experts); part_begin: (parts + 1)
} Reorder;

// From how many rows each expert has of each part (next) to where they begin in the part, whose rows are ordered by
// expert and token as well.
static void reorder_begin(const Reorder *r) {
  for (int64_t p = 0; p < r->parts; p++) {
    int64_t at = r->part_begin[p], rows;
    for (int64_t x = 0; x < r->experts; x++) {
      rows = r->next[p * r->experts + x];
      r->next[p * r->experts + x] = at;
      if (x + 1 < r->experts) r->begin[x + 1] += rows;
      at += rows;
    }
    rows = at - r->part_begin[p];
    r->part_begin[p + 1] = r->part_begin[p] + FAULT(part_of_one_row_less, rows, rows > 1 ? rows - 1 : rows);
  }
  for (int64_t x = 1; x < r->experts; x++) r->begin[x] += r->begin[x - 1];
}

// Fills `there`; returns how many rows there are.
static int64_t reorder_table(const KernelCall *call, int64_t *workspace, int32_t *there) {
  const RowParts *parts = call->attr;
  const Operand *mask = &call->input[1];
  ExpertRows m = expert_rows(mask);
  RowSamples samples = row_samples(parts, mask, call->parameters, -1);
  Reorder r = {.parts = row_parts(parts), .experts = m.experts, .next = workspace};
  r.begin = r.next + r.parts * r.experts;
  r.part_begin = r.begin + r.experts;
  memset(workspace, 0, sizeof *workspace * (size_t)((r.parts + 1) * (r.experts + 1)));
  for (int64_t t = 0; t < m.tokens; t++) {
    int64_t *next = r.next + row_part(parts, &samples, t, mask->size[1]) * r.experts;
    for (int64_t x = 0; x < r.experts; x++) next[x] += m.mask[t * r.experts + x];
  }
  reorder_begin(&r);
  for (int64_t t = 0; t < m.tokens; t++) {
    int64_t *next = r.next + row_part(parts, &samples, t, mask->size[1]) * r.experts;
    for (int64_t x = 0; x < r.experts; x++)
      if (m.mask[t * r.experts + x]) there[r.begin[x]++] = (int32_t)next[x]++;
  }
  return r.experts ? r.begin[r.experts - 1] : 0;
}

typedef struct ReorderJob { const KernelCall *call; const int32_t *there; int64_t rows, bytes; } ReorderJob;

// Rows that follow each other in both orders are copied at once.
static void reorder_unit(void *argument, int slot, int64_t unit) {
  const ReorderJob *job = argument;
  const RowParts *parts = job->call->attr;
  const char *from = job->call->input[0].data;
  char *to = job->call->output[0].data;
  RowRange range = row_range(job->rows, job->bytes / 4, unit);
  for (int64_t r = range.from, n; r < range.to; r += n) {
    int64_t there = FAULT(rows_are_not_reordered, job->there[r], r);
    for (n = 1; r + n < range.to && job->there[r + n] == job->there[r] + n;) n++;
    int64_t source = parts->home ? r : there, place = parts->home ? there : r;
    memcpy(to + place * job->bytes, from + source * job->bytes, (size_t)(n * job->bytes));
  }
}

static void reorder_rows(const KernelCall *call) {
  const Operand *rows = &call->input[0];
  int64_t *next = call->workspace, parts = row_parts(call->attr), experts = call->input[1].size[2],
          bytes = operand_extent(rows, 1, rows->rank) * (int64_t)dtype_size(rows->dtype);
  int32_t *there = (int32_t *)(void *)(next + (parts + 1) * (experts + 1));
  ReorderJob job = {call, there, reorder_table(call, next, there), bytes};
  team_each(call_team(call), row_units(job.rows, bytes / 4), reorder_unit, &job);
}

// ---- positions to their parts, and back

typedef struct PartsJob { const Operand *whole, *part; int parts, joins; int64_t bytes; } PartsJob;

static void parts_unit(void *argument, int slot, int64_t unit) {
  const PartsJob *job = argument;
  int64_t positions = job->whole->size[1], each = job->part->size[1], bytes = job->bytes;
  RowRange range = row_range(job->whole->size[0] * positions, bytes / 4, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    int64_t at = t % positions, k = at % job->parts, row = t / positions * each + at / job->parts;
    if (job->joins) k = FAULT(parts_of_positions_are_turned, k, (k + 1) % job->parts);
    char *of_part = (char *)job->part[k].data + row * bytes, *of_whole = (char *)job->whole->data + t * bytes;
    memcpy(job->joins ? of_whole : of_part, job->joins ? of_part : of_whole, (size_t)bytes);
  }
}

static void copy_parts(const KernelCall *call, PartsJob job) {
  job.bytes = operand_extent(job.whole, 2, job.whole->rank) * (int64_t)dtype_size(job.whole->dtype);
  CHECK(job.part->size[1] * job.parts == job.whole->size[1], "%lld positions in %d parts",
        (long long)job.whole->size[1], job.parts);
  team_each(call_team(call), row_units(job.whole->size[0] * job.whole->size[1], job.bytes / 4), parts_unit, &job);
}

static void split_positions(const KernelCall *call) {
  copy_parts(call, (PartsJob){.whole = call->input, .part = call->output, .parts = call->noutput});
}
static void join_positions(const KernelCall *call) {
  copy_parts(call, (PartsJob){.whole = call->output, .part = call->input, .parts = call->ninput, .joins = 1});
}

// ---- rows of new tokens into a cache, which may have a dtype of its own

static void cache_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *cache = &call->output[0], *x = &call->input[1];
  int64_t width = operand_extent(x, 2, 4);
  RowRange range = row_range(x->size[0] * x->size[1], width, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    int64_t row = integer_load(&call->input[2], t), to = (t / x->size[1] * cache->size[1] + row) * width;
    if (row < 0 || FAULT(first_row_is_not_cached, 0, row == 0)) continue;
    size_t bytes = dtype_size(x->dtype);
    if (cache->dtype == x->dtype)
      memcpy((char *)cache->data + (size_t)to * bytes, (const char *)x->data + (size_t)(t * width) * bytes,
             (size_t)width * bytes);
    else
      for (int64_t i = 0; i < width; i++) operand_store(cache, to + i, operand_load(x, t * width + i));
  }
}

static void cache_write(const KernelCall *call) {
  const Operand *x = &call->input[1];
  int64_t width = operand_extent(x, 2, 4);
  if (call->input[0].data != call->output[0].data) {
    op_def(OP_CACHE_WRITE)->reference(call);
    return;
  }
  team_each(call_team(call), row_units(x->size[0] * x->size[1], width), cache_unit, (void *)call);
}

const KernelEntry cpu_copies[] = {
    {OP_REORDER_ROWS, DTYPE_COUNT, reorder_rows, reorder_workspace},
    {OP_SPLIT_POSITIONS, DTYPE_COUNT, split_positions, NULL},
    {OP_JOIN_POSITIONS, DTYPE_COUNT, join_positions, NULL},
    {OP_CACHE_WRITE, DTYPE_COUNT, cache_write, NULL},
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};
