// plait explain --shards: which ranks hold which part of a Variable, drawn as a table of ranks over its dims.
#include "cmd/explain.h"
#include "sharding/shard.h"
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 16, CELL = 80 }; // ranges of a dim that are drawn, and one more for the others; bytes of a cell

typedef struct Range { int64_t begin, end; } Range;

// The rows and columns of a table are the ranges into which ranks cut two dims; a dim of -1 is none.
typedef struct Table {
  const Shape *shape;
  int dim[2], count[2];
  Range range[2][SHOWN + 1];
  char cell[SHOWN + 1][SHOWN + 1][CELL]; // ranks
} Table;

// "ffn 0–63"
static const char *range_text(const Table *t, int side, int i, char text[CELL]) {
  const Range *r = &t->range[side][i];
  text[0] = 0;
  if (t->dim[side] < 0) return text;
  const char *name = dim_name(t->shape->dim[t->dim[side]]);
  if (i == SHOWN) snprintf(text, CELL, "%s …", name);
  else if (r->end - r->begin == 1) snprintf(text, CELL, "%s %lld", name, (long long)r->begin);
  else snprintf(text, CELL, "%s %lld–%lld", name, (long long)r->begin, (long long)r->end - 1);
  return text;
}

// Characters, not bytes: a dash has three of these.
static int width_of(const char *text) {
  int n = 0;
  for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
  return n;
}

static int wider(int width, const char *text) { return width_of(text) > width ? width_of(text) : width; }

// A matrix has both dims in the table, a vector its one; of a tensor with more dims the first two that are cut.
static void choose_dims(Table *t, const Placement *p) {
  int n = 0;
  t->dim[0] = t->dim[1] = -1;
  for (int d = 0; d < t->shape->rank && n < 2; d++)
    if (t->shape->rank <= 2 || p->dim[d].n) t->dim[n++] = d;
}

static Range range_of(const Table *t, int side, const Box *box) {
  int d = t->dim[side];
  return d < 0 ? (Range){0, 0} : (Range){box->offset[d], box->offset[d] + box->local[d]};
}

// The row (side 0) or column (side 1) of a box; SHOWN when it is not drawn.
static int range_index(const Table *t, int side, const Box *box) {
  int i = 0;
  while (i < t->count[side] && t->range[side][i].begin != range_of(t, side, box).begin) i++;
  return i < SHOWN ? i : SHOWN;
}

static void add_range(Table *t, int side, const Box *box) {
  int i = range_index(t, side, box);
  if (i == t->count[side]) t->range[side][t->count[side]++] = range_of(t, side, box);
}

static int by_begin(const void *a, const void *b) {
  const Range *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static void add_rank(char *cell, int rank) {
  size_t n = strlen(cell);
  if (n + 16 < CELL) snprintf(cell + n, CELL - n, "%s%d", n ? " " : "", rank);
  else if (cell[n - 1] != '.') snprintf(cell + n, CELL - n, " ...");
}

// Calls `see` for every box that a rank holds.
static void each_box(const Mesh *mesh, const Placement *p, const StageSet *stages, Table *t,
                     void (*see)(Table *t, const Box *box, int rank)) {
  for (int rank = 0; rank < mesh->ranks; rank++) {
    if (!mesh_runs_stages(mesh, mesh_pipeline_coordinate(mesh, rank), stages)) continue;
    ShardBoxes boxes = {.shard = shard_of(mesh, p, t->shape, rank)};
    while (shard_next(&boxes)) see(t, &boxes.box, rank);
  }
}

static void see_ranges(Table *t, const Box *box, int rank) {
  add_range(t, 0, box);
  add_range(t, 1, box);
}

static void see_rank(Table *t, const Box *box, int rank) {
  add_rank(t->cell[range_index(t, 0, box)][range_index(t, 1, box)], rank);
}

static void fill_table(const Mesh *mesh, const Placement *p, const StageSet *stages, Table *t) {
  each_box(mesh, p, stages, t, see_ranges);
  for (int side = 0; side < 2; side++)
    qsort(t->range[side], (size_t)(t->count[side] < SHOWN ? t->count[side] : SHOWN), sizeof(Range), by_begin);
  each_box(mesh, p, stages, t, see_rank);
}

static void print_cell(const char *text, int width, FILE *out) {
  fprintf(out, "%*s%s", width - width_of(text), "", text);
}

static void print_table(const Table *t, FILE *out) {
  char text[CELL];
  int label = 0, width = 0;
  for (int row = 0; row < t->count[0]; row++) {
    label = wider(label, range_text(t, 0, row, text));
    for (int column = 0; column < t->count[1]; column++) width = wider(width, t->cell[row][column]);
  }
  for (int column = 0; column < t->count[1]; column++) width = wider(width, range_text(t, 1, column, text));
  if (t->dim[1] >= 0) {
    fprintf(out, "    %*s", label, "");
    for (int column = 0; column < t->count[1]; column++) print_cell(range_text(t, 1, column, text), width + 3, out);
    fputc('\n', out);
  }
  for (int row = 0; row < t->count[0]; row++) {
    fputs("    ", out);
    range_text(t, 0, row, text);
    fprintf(out, "%s%*s", text, label - width_of(text), "");
    for (int column = 0; column < t->count[1]; column++)
      print_cell(t->cell[row][column], width + (label ? 3 : 0), out);
    fputc('\n', out);
  }
}

// `what`: "storage" or "Copy".
static void explain_placement(const Graph *g, const Mesh *mesh, const Variable *v, const char *what,
                              const Placement *p, FILE *out) {
  char text[256];
  Table *t = xcalloc(1, sizeof *t);
  t->shape = &v->shape;
  choose_dims(t, p);
  fill_table(mesh, p, graph_stages(g, v->stages), t);
  placement_text(mesh, p, &v->shape, text, sizeof text);
  fprintf(out, "  %s {%s}%s\n", what, text, p->partial ? ": ranks of one cell hold terms of a sum" : "");
  print_table(t, out);
  free(t);
}

int explain_shards(const Graph *g, const Mesh *mesh, const char *names, FILE *out) {
  int count = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!names_match(names, v->name)) continue;
    fprintf(out, "%s%s(", count++ ? "\n" : "", v->name);
    for (int d = 0; d < v->shape.rank; d++)
      fprintf(out, "%s%s=%lld", d ? " " : "", dim_name(v->shape.dim[d]), (long long)v->shape.size[d]);
    fprintf(out, "): which ranks hold which part\n");
    explain_placement(g, mesh, v, "storage", v->storage, out);
    for (int c = 0; c < v->copies; c++) explain_placement(g, mesh, v, "Copy", v->copy[c].placement, out);
  }
  return count;
}
