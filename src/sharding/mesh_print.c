// Grids and groups of ranks as text.
#include "sharding/mesh_print.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

enum {
  COLUMNS = 16,
  ROWS = 8,
  WIDTH = 100
}; // columns of ranks; rows shown of a large mesh at its start; characters of a line

static int digits(int n) {
  int d = 1;
  for (; n > 9; n /= 10) d++;
  return d;
}

// ---- grid ----------------------------------------------------------------------------------------------------------

static int column_axis(const Mesh *mesh) {
  int axis = mesh->naxis - 1;
  while (axis > 0 && mesh->axis[axis].size == 1) axis--;
  return axis;
}

// "pp 1  dp 0  ": coordinates of the axes before the column axis, blank where they are those of the row above.
static void print_row_name(const Mesh *mesh, int rank, int before, int columns, FILE *out) {
  int changed = 0;
  for (int a = 0; a < columns; a++) {
    if (mesh->axis[a].size == 1) continue;
    int c = mesh_coordinate(mesh, rank, a), width = digits(mesh->axis[a].size - 1);
    changed |= before < 0 || mesh_coordinate(mesh, before, a) != c;
    if (changed) fprintf(out, "%s %-*d  ", mesh->axis[a].name, width, c);
    else fprintf(out, "%*s", (int)strlen(mesh->axis[a].name) + 1 + width + 2, "");
  }
}

static void print_header(const Mesh *mesh, int columns, int width, FILE *out) {
  int indent = 2, shown = mesh->axis[columns].size < COLUMNS ? mesh->axis[columns].size : COLUMNS;
  for (int a = 0; a < columns; a++)
    if (mesh->axis[a].size > 1) indent += (int)strlen(mesh->axis[a].name) + 1 + digits(mesh->axis[a].size - 1) + 2;
  fprintf(out, "%*s%s", indent, "", mesh->axis[columns].name);
  for (int i = 0; i < shown; i++)
    fprintf(out, "%*d",
            i                                                   ? width
            : width - (int)strlen(mesh->axis[columns].name) > 1 ? width - (int)strlen(mesh->axis[columns].name)
                                                                : 2,
            i);
  if (mesh->ranks > MESH_PRINT_ALL && shown < mesh->axis[columns].size) fputs(" …", out);
  fputc('\n', out);
}

static void print_row(const Mesh *mesh, int first, int columns, int width, FILE *out) {
  int size = mesh->axis[columns].size, all = mesh->ranks <= MESH_PRINT_ALL, indent = 2;
  for (int a = 0; a < columns; a++)
    if (mesh->axis[a].size > 1) indent += (int)strlen(mesh->axis[a].name) + 1 + digits(mesh->axis[a].size - 1) + 2;
  for (int i = 0; i < size; i++) {
    if (!all && size > COLUMNS && i == COLUMNS - 1) fprintf(out, " … %d", first + size - 1);
    if (!all && i >= COLUMNS - 1 && size > COLUMNS) break;
    if (i && i % COLUMNS == 0) fprintf(out, "\n%*s", indent, "");
    fprintf(out, "%*d", width, first + i);
  }
}

void mesh_print_grid(const Mesh *mesh, const char *(*remark)(const void *context, int coordinate), const void *context,
                     FILE *out) {
  int columns = column_axis(mesh), size = mesh->axis[columns].size, rows = mesh->ranks / size, before = -1,
      pp = mesh_pipeline(mesh);
  int width = digits(mesh->ranks - 1) + 3;
  print_header(mesh, columns, width, out);
  for (int r = 0; r < rows; r++) {
    if (mesh->ranks > MESH_PRINT_ALL && r == ROWS && rows > ROWS + 1) {
      fprintf(out, "  … %d more rows …\n", rows - ROWS - 1);
      r = rows - 1;
      before = -1;
    }
    int first = r * size;
    fputs("  ", out);
    print_row_name(mesh, first, before, columns, out);
    print_row(mesh, first, columns, width, out);
    int c = pp >= 0 ? mesh_coordinate(mesh, first, pp) : 0;
    if (remark && pp >= 0 && pp != columns && (before < 0 || mesh_coordinate(mesh, before, pp) != c))
      fprintf(out, "   %s", remark(context, c));
    fputc('\n', out);
    before = first;
  }
  if (remark && pp == columns)
    for (int c = 0; c < mesh->axis[pp].size && c < MESH_PRINT_ALL; c++)
      fprintf(out, "  pp %d: %s\n", c, remark(context, c));
}

// ---- groups --------------------------------------------------------------------------------------------------------

enum { INDENT = 14 };

// Writes a word, on a new line where it does not fit any more. `at`: the characters of the line.
static void print_word(const char *word, int *at, FILE *out) {
  int n = (int)strlen(word);
  if (*at > INDENT && *at + 1 + n > WIDTH) {
    fprintf(out, "\n%*s", INDENT, "");
    *at = INDENT;
  } else if (*at > INDENT) {
    fputc(' ', out);
    ++*at;
  }
  fputs(word, out);
  *at += n;
}

// "0 4 8", or "0 4 8 12 16 ... 60" when there are many.
static void print_group(const int *ranks, int count, int all, int *at, FILE *out) {
  enum { SHOWN = 6 };
  char word[32];
  for (int i = 0; i < count; i++) {
    if (!all && count > SHOWN && i == SHOWN - 1) {
      print_word("...", at, out);
      i = count - 1;
    }
    snprintf(word, sizeof word, "%d", ranks[i]);
    print_word(word, at, out);
  }
}

void mesh_print_groups(const Mesh *mesh, uint32_t axes, const char *name, const char *meaning, FILE *out) {
  enum { SHOWN = 4 };
  int *ranks = xcalloc((size_t)mesh->ranks, sizeof *ranks), size = mesh_size(mesh, axes), groups = mesh->ranks / size,
      at = INDENT, shown = 0;
  int all = mesh->ranks <= MESH_PRINT_ALL;
  fprintf(out, "  %-*s%d group%s of %d%s%s\n%*s", INDENT - 2, name, groups, groups > 1 ? "s" : "", size,
          meaning ? ": " : "", meaning ? meaning : "", INDENT, "");
  for (int r = 0; r < mesh->ranks; r++) {
    int count = mesh_group(mesh, r, axes, 0, ranks);
    if (ranks[0] != r) continue; // once a group, at its first rank
    if (shown) print_word("|", &at, out);
    if (!all && shown == SHOWN && groups > SHOWN + 1) {
      char more[32];
      snprintf(more, sizeof more, "%d more", groups - SHOWN);
      print_word(more, &at, out);
      break;
    }
    print_group(ranks, count, all, &at, out);
    shown++;
  }
  fputc('\n', out);
  free(ranks);
}
