// A message is, for each box of a rank and each row of the batch in it, what is wanted of its rows: of logits
// whole rows or their best, of the other outputs a number each.
#include "infer/logits.h"
#include "base/fault.h"
#include "runtime/state_tensors.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const KnownVariable outputs[] = {KNOWN_LOGITS, KNOWN_LOGITS_MAXIMUM, KNOWN_LOGITS_SUM};
enum { OUTPUTS = sizeof outputs / sizeof *outputs, BATCH = 0, ROW = 1, WORD = 2 };

static const Program *program_of(const Job *j, int rank) {
  return job_program(j, mesh_pipeline_coordinate(&j->options.parallel.mesh, rank));
}

static void add_boxes(LogitsMap *m, int rank, int output) {
  const Program *p = program_of(m->job, rank);
  RankLogits *to = &m->rank[rank];
  Box *boxes;
  int n = program_primary_boxes(p, p->graph->known[outputs[output]], rank, &boxes);
  to->box = xrealloc(to->box, sizeof *to->box * (size_t)(to->count + n + 1));
  for (int i = 0; i < n; i++) to->box[to->count++] = (struct LogitsBox){output, boxes[i]};
  free(boxes);
}

void logits_map_create(LogitsMap *m, const Job *job, int rows, int wanted, int vocab) {
  *m = (LogitsMap){.job = job, .ranks = job->options.parallel.mesh.ranks, .rows = rows, .wanted = wanted,
                   .vocab = vocab};
  m->rank = xcalloc((size_t)m->ranks, sizeof *m->rank);
  for (int r = 0; r < m->ranks; r++)
    for (int k = 0; k < OUTPUTS; k++) add_boxes(m, r, k);
}

void logits_map_destroy(LogitsMap *m) {
  for (int r = 0; m->rank && r < m->ranks; r++) {
    free(m->rank[r].box);
    free(m->rank[r].copy);
  }
  free(m->rank);
  *m = (LogitsMap){0};
}

// Whether the host cannot read a rank's logits where they are, as they are.
static bool copies(const LogitsMap *m, int rank) {
  const Program *p = program_of(m->job, rank);
  int variable = p->graph->known[outputs[0]];
  return m->rank[rank].count && (variable_dtype(&p->graph->variable.data[variable]) != DTYPE_F32 ||
                                 !p->device->space[p->variable_place[variable].space].is_host);
}

int64_t logits_map_bytes(const LogitsMap *m, int rank) {
  int64_t rows = (int64_t)m->rows * m->wanted, bytes = 0, vocab = m->vocab;
  bool joins = copies(m, 0);
  if (copies(m, rank)) bytes += (int64_t)sizeof(double) * m->wanted * vocab;
  if (rank) return bytes;
  for (int r = 0; r < m->ranks; r++)
    for (int i = 0; i < m->rank[r].count; i++)
      joins |= !m->rank[r].box[i].output && m->rank[r].box[i].box.local[WORD] < vocab;
  if (joins) bytes += (int64_t)sizeof(float) * rows * vocab;
  return bytes + rows * (int64_t)(sizeof(float *) + sizeof(SampleBest) + 2 * sizeof(float));
}

// ---- the rows of a box

// Goes through a rank's boxes row by row, those that are wanted.
typedef struct BoxRows {
  const LogitsMap *map;
  const RankLogits *of;
  const RowWant *want; // NULL: all are
  int64_t b, l;        // where it is in the box
  int at;              // of the boxes
  // Of a row that was found:
  int output;
  RowWant how;
  int64_t row, first, count; // in (rows, wanted); its words
} BoxRows;

static bool next_row(BoxRows *r) {
  for (; r->at < r->of->count; r->at++, r->b = r->l = 0) {
    const Box *box = &r->of->box[r->at].box;
    for (; r->b < box->local[BATCH]; r->b++, r->l = 0)
      while (r->l < box->local[ROW]) {
        r->row = (box->offset[BATCH] + r->b) * r->map->wanted + box->offset[ROW] + r->l++;
        r->how = r->want ? r->want[r->row] : ROW_WHOLE;
        if (!r->how.end) continue;
        r->output = r->of->box[r->at].output;
        r->first = r->output ? 0 : box->offset[WORD];
        r->count = r->output ? 1 : box->local[WORD];
        return true;
      }
  }
  return false;
}

static bool is_best(const BoxRows *r) { return !r->output && r->how.end > 0; }

static size_t bytes_of(const BoxRows *r) {
  return is_best(r) ? sizeof(SampleBest) : sizeof(float) * (size_t)r->count;
}

int64_t logits_bytes(const LogitsMap *m, int rank, const RowWant *want) {
  BoxRows r = {.map = m, .of = &m->rank[rank], .want = want};
  int64_t bytes = 0;
  while (next_row(&r)) bytes += (int64_t)bytes_of(&r);
  return bytes;
}

// Used rows that follow each other in a box, which are read together, in fp32.
typedef struct Reading {
  const float *data;
  int64_t stride, begin, end; // elements from row to row; rows
  int at;                     // of the boxes
  bool lies;                  // in the State's memory: else it is a copy, until the next reading
} Reading;

static void begin_reading(Reading *now, const BoxRows *r, RankLogits *of, const State *s) {
  const int variable = s->program->graph->known[outputs[r->output]], rank = r->output ? WORD : WORD + 1;
  const Box *box = &of->box[r->at].box;
  int64_t stride[BOX_MAX_RANK], l = r->row % r->map->wanted, end = l + 1, last = box->offset[ROW] + box->local[ROW];
  while (end < last && (!r->want || r->want[r->row + end - l].end)) end++;
  const Box part = {rank, {r->row / r->map->wanted, l, r->first}, {1, end - l, r->count}};
  *now = (Reading){.begin = r->row, .end = r->row + end - l, .at = r->at};
  now->data = state_view(s, variable, &part, DTYPE_F32, stride);
  now->lies = now->data != NULL;
  now->stride = now->lies ? stride[ROW] : r->count;
  if (now->lies) return;
  if (!of->copy) of->copy = xcalloc((size_t)r->map->wanted * (size_t)r->map->vocab, sizeof(double));
  Dtype dtype = state_dtype(s, variable, -1);
  state_read(s, variable, -1, &part, of->copy);
  for (int64_t i = 0, n = box_elements(&part); dtype != DTYPE_F32 && i < n; i++)
    dtype_store(of->copy, DTYPE_F32, i, dtype_load(of->copy, dtype, i));
  now->data = of->copy;
}

static const float *read_row(Reading *now, const BoxRows *r, LogitsMap *m, const State *s) {
  if (r->at != now->at || r->row >= now->end) begin_reading(now, r, &m->rank[s->rank], s);
  return now->data + (r->row - now->begin) * now->stride;
}

static SampleBest best_of(const BoxRows *r, const float *logits) {
  return sample_best(logits, r->count, (int32_t)r->first, r->how);
}

void logits_pack(LogitsMap *m, const State *s, const RowWant *want, char *message) {
  BoxRows r = {.map = m, .of = &m->rank[s->rank], .want = want};
  Reading reading = {.at = -1};
  while (next_row(&r)) {
    const float *logits = read_row(&reading, &r, m, s);
    SampleBest best;
    if (is_best(&r)) best = best_of(&r, logits);
    memcpy(message, is_best(&r) ? (const void *)&best : logits, bytes_of(&r));
    message += bytes_of(&r);
  }
}

// ---- on rank 0

void logits_rows_create(LogitsRows *rows, const LogitsMap *m) {
  size_t n = (size_t)(m->rows * m->wanted);
  *rows = (LogitsRows){.row = xcalloc(n, sizeof *rows->row),
                       .best = xcalloc(n, sizeof *rows->best),
                       .maximum = xcalloc(n, sizeof *rows->maximum),
                       .sum = xcalloc(n, sizeof *rows->sum)};
}

void logits_rows_destroy(LogitsRows *rows) {
  free(rows->row);
  free(rows->best);
  free(rows->maximum);
  free(rows->sum);
  free(rows->joined);
  *rows = (LogitsRows){0};
}

void logits_begin(LogitsRows *rows, const LogitsMap *m) {
  for (int i = 0; i < m->rows * m->wanted; i++) {
    rows->row[i] = NULL;
    rows->best[i] = (SampleBest){-INFINITY, -1};
  }
}

// lies: the logits stay where they are until they have been drawn from.
static void take_row(LogitsRows *rows, const BoxRows *r, const float *logits, bool lies) {
  const LogitsMap *m = r->map;
  if (r->output == 1) rows->maximum[r->row] = *logits;
  if (r->output == 2) rows->sum[r->row] = *logits;
  if (r->output) return;
  rows->row[r->row] = logits;
  if (lies && r->count == m->vocab) return;
  if (!rows->joined) rows->joined = xcalloc((size_t)m->rows * (size_t)m->wanted * (size_t)m->vocab, sizeof(float));
  float *joined = rows->joined + r->row * m->vocab;
  memcpy(joined + r->first, logits, sizeof *logits * (size_t)r->count);
  rows->row[r->row] = joined;
}

void logits_unpack(LogitsRows *rows, const LogitsMap *m, int rank, const RowWant *want, const char *message) {
  BoxRows r = {.map = m, .of = &m->rank[rank], .want = want};
  for (; next_row(&r); message += bytes_of(&r)) {
    SampleBest best;
    if (!is_best(&r)) {
      take_row(rows, &r, (const float *)(const void *)message, true);
      continue;
    }
    memcpy(&best, message, sizeof best);
    rows->best[r.row] = sample_better(rows->best[r.row], best);
  }
}

void logits_own(LogitsRows *rows, LogitsMap *m, const State *s, const RowWant *want) {
  BoxRows r = {.map = m, .of = &m->rank[s->rank], .want = want};
  Reading reading = {.at = -1};
  while (next_row(&r)) {
    const float *logits = read_row(&reading, &r, m, s);
    if (!is_best(&r)) take_row(rows, &r, logits, reading.lies);
    else rows->best[r.row] = sample_better(rows->best[r.row], best_of(&r, logits));
  }
}
