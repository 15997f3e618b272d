// Reading lines of comma-separated values.
#include "machine/cluster_lines.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int cluster_lines_number(const ClusterLine *line, const char *column, const char *text, double least, double most,
                         bool whole, double *value) {
  char *end, range[64];
  bool good = *text && strspn(text, "0123456789+-.eE") == strlen(text);
  *value = good ? strtod(text, &end) : 0;
  good = good && !*end && isfinite(*value) && (!whole || *value == nearbyint(*value));
  if (good && *value >= least && *value <= most) return PLAIT_OK;
  if (most < 1e15) snprintf(range, sizeof range, "from %.0f to %.0f", least, most);
  else if (least > 0 && least < 1) snprintf(range, sizeof range, "above 0");
  else snprintf(range, sizeof range, "of at least %.0f", least);
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: %s must be %s %s, not \"%.40s\"", line->name, line->number,
                   column, whole ? "an integer" : "a number", range, text);
}

static int columns_of(const char *header) {
  int n = 1;
  for (; *header; header++) n += *header == ',';
  return n;
}

static int read_row(Cluster *cluster, const ClusterTable *table, const ClusterLine *line, char *text) {
  char *cell[LINES_MOST_COLUMNS];
  int count = 0, columns = columns_of(table->header);
  for (char *at = text; at && count <= columns; count++) {
    char *comma = strchr(at, ',');
    if (comma) *comma = 0;
    if (count < columns) cell[count] = at;
    at = comma ? comma + 1 : NULL;
  }
  if (count != columns)
    return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: a line has %s values, %s", line->name, line->number,
                     table->count, table->header);
  return table->read(cluster, line, cell);
}

int cluster_lines_parse(Cluster *cluster, const ClusterTable *table, const char *name, int first_line, const char *text,
                        Error *error) {
  ClusterLine line = {name, first_line, error};
  char *copy = xstrdup(text);
  int code = PLAIT_OK, rows = -1; // -1: before the header
  for (char *at = copy, *next; at && *at && !code; at = next, line.number++) {
    next = strchr(at, '\n');
    if (next) *next++ = 0;
    at[strcspn(at, "\r")] = 0;
    if (*at == '#' || !*at) continue;
    if (rows < 0 && strcmp(at, table->header))
      code = error_set(error, PLAIT_BAD_INPUT, "%s:%d: the first line must name the columns: %s", name, line.number,
                       table->header);
    else if (rows == LINES_MOST_ROWS)
      code = error_set(error, PLAIT_BAD_INPUT, "%s:%d: more than %d rows", name, line.number, LINES_MOST_ROWS);
    else if (rows >= 0) code = read_row(cluster, table, &line, at);
    rows++;
  }
  free(copy);
  if (!code && rows <= 0)
    return error_set(error, PLAIT_BAD_INPUT, "%s: holds no %s; %s", name, table->what, table->hint);
  return code;
}
