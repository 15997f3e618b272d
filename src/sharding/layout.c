// The Layout table and the Layouts that ship with plait.
#include "sharding/layout.h"
#include "base/fault.h"
#include <string.h>

void layout_add(Layout *layout, Role role, DimName dim, int axis, int zigzag) {
  int i = 0;
  while (i < layout->n && (layout->entry[i].role != role || layout->entry[i].dim != dim)) i++;
  CHECK(i < (int)(sizeof layout->entry / sizeof *layout->entry));
  if (i == layout->n) layout->entry[layout->n++] = (LayoutEntry){.role = role, .dim = dim};
  AxisList *axes = &layout->entry[i].axes;
  axis_list_push(axes, axis);
  if (zigzag) axes->zigzag = axes->n;
}

AxisList layout_axes(const Layout *layout, Role role, DimName dim) {
  for (int i = 0; i < layout->n; i++)
    if (layout->entry[i].role == role && layout->entry[i].dim == dim) return layout->entry[i].axes;
  return (AxisList){0};
}

static uint32_t input_axes(const Layout *layout, DimName dim) {
  AxisList list = layout_axes(layout, ROLE_DATA, dim);
  return axis_list_axes(&list);
}

uint32_t layout_data_axes(const Layout *layout) { return input_axes(layout, DIM_BATCH); }

uint32_t layout_input_axes(const Layout *layout) { return input_axes(layout, DIM_BATCH) | input_axes(layout, DIM_SEQ); }

uint32_t layout_expert_axes(const Layout *layout) {
  AxisList axes = layout_axes(layout, ROLE_WEIGHT, DIM_EXPERT);
  return axis_list_axes(&axes);
}

// A list without axes of size 1.
static AxisList cutting_axes(const Layout *layout, const Mesh *mesh, Role role, DimName dim) {
  Shape s = {.rank = 1, .dim = {dim}};
  return layout_placement(layout, mesh, role, &s).dim[0];
}

AxisList layout_first_axes(const Layout *layout, const Mesh *mesh) {
  AxisList stream = cutting_axes(layout, mesh, ROLE_RESIDUAL, DIM_BATCH),
           interior = cutting_axes(layout, mesh, ROLE_INTERIOR, DIM_BATCH);
  int n = 0;
  while (n < stream.n && n < interior.n && stream.axis[n] == interior.axis[n]) n++;
  for (int i = n; i < stream.n; i++) stream.axis[i] = 0;
  stream.n = (int8_t)n;
  return stream;
}

Placement layout_placement(const Layout *layout, const Mesh *mesh, Role role, const Shape *shape) {
  Placement p = {.rank = shape->rank};
  int vector = FAULT(vectors_lie_as_weights, role, ROLE_DATA) == ROLE_WEIGHT && shape->rank == 1 &&
               shape->dim[0] == DIM_EMBED && layout_axes(layout, ROLE_RESIDUAL, DIM_EMBED).n > 0;
  for (int d = 0; d < shape->rank; d++) {
    AxisList axes = layout_axes(layout, vector ? ROLE_RESIDUAL : role, shape->dim[d]);
    for (int i = 0; i < axes.n; i++)
      if (mesh->axis[axes.axis[i]].size > 1) axis_list_take(&p.dim[d], &axes, i);
  }
  return p;
}

int layout_annotated(const Layout *layout, const Mesh *mesh, const char *name, const Shape *shape, Placement *out) {
  uint32_t taken = 0;
  int found = 0;
  for (int i = 0; i < layout->annotations; i++) {
    const LayoutTensor *a = &layout->annotation[i];
    if (strcmp(a->name, name)) continue;
    found = 1;
    if (a->axis >= 0) taken |= 1u << a->axis;
  }
  if (!found) return 0;
  *out = (Placement){.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    AxisList *list = &out->dim[d],
             data = shape->dim[d] == DIM_BATCH ? layout_axes(layout, ROLE_DATA, DIM_BATCH) : (AxisList){0};
    for (int i = 0; i < data.n; i++)
      if (!(taken >> data.axis[i] & 1) && mesh->axis[data.axis[i]].size > 1) axis_list_push(list, data.axis[i]);
    for (int i = 0; i < layout->annotations; i++) {
      const LayoutTensor *a = &layout->annotation[i];
      if (strcmp(a->name, name) || a->axis < 0 || a->dim != d || mesh->axis[a->axis].size == 1) continue;
      axis_list_push(list, a->axis);
    }
  }
  return 1;
}

// --- tables ---------------------------------------------------------------------------------------------------------

const AxisId layout_axes_named[LAYOUT_WORDS] = {AXIS_DP, AXIS_CP, AXIS_TP, AXIS_TP_ROW, AXIS_TP_DEPTH};

int layout_words_equal(const LayoutWords *a, const LayoutWords *b) {
  int same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) same = a->axis[i] == b->axis[i];
  return same;
}

// The text after `word`, where it begins with that and a space or the end follows; NULL: it is another word.
static const char *word_end(const char *text, const char *word) {
  while (*word && *text == *word) text++, word++;
  return *word || (*text && *text != ' ') ? NULL : text;
}

// "dp tp_row". A search asks for the rows of millions of plans, so that this is short.
static LayoutWords words_of(const char *text) {
  LayoutWords words = {0};
  while (*text) {
    const char *after = NULL;
    int i = 0;
    while (i < LAYOUT_WORDS && !(after = word_end(text, axis_names[layout_axes_named[i]]))) i++;
    CHECK(after && words.count < LAYOUT_WORDS, "a shipped Layout names the axis %s", text);
    words.axis[words.count++] = layout_axes_named[i];
    text = after + (*after == ' ');
  }
  return words;
}

LayoutWords layout_shipped_row(LayoutShipped name, LayoutRow row) {
  static const char *const rows[][LAYOUT_ROWS] = {
#define LAYOUT_SHIPPED(id, name, meaning, ...) {__VA_ARGS__},
#include "sharding/layout_rows.def"
  };
  return words_of(rows[name][row]);
}

LayoutWords layout_tensor_row(LayoutTensorKind kind, LayoutRow row) {
  static const char *const rows[][LAYOUT_ROWS] = {
#define LAYOUT_TENSOR(id, name, meaning, ...) {__VA_ARGS__},
#include "sharding/layout_rows.def"
  };
  return words_of(rows[kind][row]);
}

LayoutTable layout_shipped(LayoutShipped name) {
  LayoutTable table;
  for (int r = 0; r < LAYOUT_ROWS; r++) table.row[r] = layout_shipped_row(name, (LayoutRow)r);
  return table;
}

LayoutTable layout_of_tensor(LayoutTensorKind kind) {
  LayoutTable table;
  for (int r = 0; r < LAYOUT_ROWS; r++) table.row[r] = layout_tensor_row(kind, (LayoutRow)r);
  return table;
}

static void add_axis(Layout *l, const Mesh *mesh, LayoutRow row, int axis) {
  static const struct { LayoutRow row; Role role; DimName dim;
  } meaning[] = {
      {LAYOUT_ROW_BATCH, ROLE_DATA, DIM_BATCH},         {LAYOUT_ROW_BATCH, ROLE_RESIDUAL, DIM_BATCH},
      {LAYOUT_ROW_SEQ, ROLE_RESIDUAL, DIM_SEQ},         {LAYOUT_ROW_EMBED, ROLE_WEIGHT, DIM_EMBED},
      {LAYOUT_ROW_HEADS, ROLE_WEIGHT, DIM_KV_HEADS},    {LAYOUT_ROW_HEAD_DIM, ROLE_WEIGHT, DIM_HEAD_DIM},
      {LAYOUT_ROW_FFN, ROLE_WEIGHT, DIM_FFN},           {LAYOUT_ROW_VOCAB, ROLE_WEIGHT, DIM_VOCAB},
      {LAYOUT_ROW_POSITION, ROLE_WEIGHT, DIM_POSITION}, {LAYOUT_ROW_WIDTH, ROLE_RESIDUAL, DIM_EMBED},
      {LAYOUT_ROW_INTERIOR, ROLE_INTERIOR, DIM_BATCH},   {LAYOUT_ROW_EXPERT, ROLE_WEIGHT, DIM_EXPERT},
      {LAYOUT_ROW_EXPERT_FFN, ROLE_WEIGHT, DIM_EXPERT_FFN},
  };
  const Axis *a = &mesh->axis[axis];
  int group = row == LAYOUT_ROW_HEADS && a->id == AXIS_TP_GROUP;
  int context = row == LAYOUT_ROW_SEQ && a->role == AXIS_CONTEXT, zigzag = context && !axis_is_part(a->id);
  for (size_t i = 0; i < sizeof meaning / sizeof *meaning; i++)
    if (meaning[i].row == row) layout_add(l, meaning[i].role, group ? DIM_GROUP : meaning[i].dim, axis, zigzag);
  if (context) layout_add(l, ROLE_DATA, DIM_SEQ, axis, zigzag);
}

Layout layout_from_table(const LayoutTable *table, const Mesh *mesh) {
  Layout l = {0};
  int axes[MAX_AXES];
  for (int row = 0; row < LAYOUT_ROWS; row++)
    for (int w = 0; w < table->row[row].count; w++)
      for (int i = 0, n = mesh_axes_of(mesh, table->row[row].axis[w], axes); i < n; i++)
        add_axis(&l, mesh, (LayoutRow)row, axes[i]);
  return l;
}
