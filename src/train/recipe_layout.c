// The section `layout:` of recipes: which mesh axes cut which dims, from the shipped Layout that it starts from.
#include "base/error.h"
#include "train/recipe.h"
#include <stdio.h>
#include <string.h>

const char *const recipe_axis_names[RECIPE_AXES] = {"dp", "cp", "tp"};

static const char *const row_names[] = {
#define LAYOUT_ROW(id, name, meaning) name,
#include "dist/layout_rows.def"
};

static const char *const shipped[][RECIPE_ROWS] = {
#define LAYOUT_SHIPPED(id, name, meaning, ...) {__VA_ARGS__},
#include "dist/layout_rows.def"
};

static RecipeAxes one_axis(const char *name) {
  for (int a = 0; a < RECIPE_AXES; a++)
    if (!strcmp(name, recipe_axis_names[a])) return (RecipeAxes){.count = 1, .axis = {a}};
  return (RecipeAxes){0};
}

RecipeAxes recipe_layout_row(const Recipe *r, RecipeRow row) {
  if (r->layout.row[row].count >= 0) return r->layout.row[row];
  if (row == RECIPE_ROW_SEQ && r->parallel.sequence) return one_axis("tp");
  return one_axis(shipped[r->layout.name ? r->layout.name - 1 : RECIPE_LAYOUT_TENSOR - 1][row]);
}

int recipe_layout_shards(const Recipe *r, RecipeRow row) {
  RecipeAxes axes = recipe_layout_row(r, row);
  int n = 1;
  for (int i = 0; i < axes.count; i++) n *= recipe_axis_size(r, axes.axis[i]);
  return n;
}

static void axes_text(const RecipeAxes *axes, char text[32]) {
  size_t n = (size_t)snprintf(text, 32, "[");
  for (int i = 0; i < axes->count; i++) n += (size_t)snprintf(text + n, 32 - n, "%s%s", i ? ", " : "", recipe_axis_names[axes->axis[i]]);
  snprintf(text + n, 32 - n, "]");
}

// An axis that cuts two dims of one tensor.
static int check_meeting(const Recipe *r, char *text, size_t size) {
  static const RecipeRow pairs[][2] = {
#define LAYOUT_MEET(a, b) {RECIPE_ROW_##a, RECIPE_ROW_##b},
#include "dist/layout_rows.def"
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    RecipeAxes a = recipe_layout_row(r, pairs[i][0]), b = recipe_layout_row(r, pairs[i][1]);
    for (int k = 0; k < a.count * b.count; k++) {
      int axis = a.axis[k / b.count];
      if (axis != b.axis[k % b.count] || recipe_axis_size(r, axis) == 1) continue;
      snprintf(text, size, "layout: %s and %s are both cut over %s, but there are tensors that have both dims; take it out of one, as in layout.%s=[]",
               row_names[pairs[i][0]], row_names[pairs[i][1]], recipe_axis_names[axis], row_names[pairs[i][1]]);
      return (int)pairs[i][r->layout.row[pairs[i][0]].count < 0];
    }
  }
  return -1;
}

int recipe_layout_problem(const Recipe *r, char *text, size_t size) {
  char list[32];
  const RecipeAxes *seq = &r->layout.row[RECIPE_ROW_SEQ], batch = recipe_layout_row(r, RECIPE_ROW_BATCH);
  axes_text(seq, list);
  if (r->parallel.sequence && seq->count >= 0 && strcmp(list, "[tp]")) {
    snprintf(text, size, "layout.seq is %s, but parallel.sequence is true, which means [tp]; leave one of them out", list);
    return RECIPE_ROW_SEQ;
  }
  axes_text(&batch, list);
  for (int i = 1; i < batch.count; i++)
    if (batch.axis[i] < batch.axis[i - 1]) {
      snprintf(text, size, "layout.batch is %s, but ranks read their samples in the order of the mesh: dp, cp, tp", list);
      return RECIPE_ROW_BATCH;
    }
  int shards = recipe_layout_shards(r, RECIPE_ROW_BATCH), samples = r->batch.micro * r->mesh.dp;
  if (samples % shards) {
    snprintf(text, size, "layout.batch is %s, %d ranks, which must divide the batch.micro · mesh.dp = %d samples of a microbatch; the nearest batch.micro is %d",
             list, shards, samples, (samples / shards + 1) * shards / r->mesh.dp);
    return RECIPE_ROW_BATCH;
  }
  shards = recipe_layout_shards(r, RECIPE_ROW_SEQ);
  if (!r->parallel.sequence && r->data.seq_len % shards) {
    snprintf(text, size, "layout.seq is cut over %d ranks, which must divide data.seq_len (%d); the nearest data.seq_len is %d or %d", shards, r->data.seq_len,
             r->data.seq_len / shards * shards, (r->data.seq_len / shards + 1) * shards);
    return RECIPE_ROW_SEQ;
  }
  return check_meeting(r, text, size);
}
