// Measured collectives: lines of kind,ranks,nodes,bytes,seconds after a header, sorted.
#include "base/fault.h"
#include "base/nearest.h"
#include "plan/cluster_keys.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
#define COLLECTIVE(id, name, meaning) name,
#include "plan/collectives.def"
};
enum { KINDS = sizeof kinds / sizeof *kinds, COLUMNS = 5, MOST_ROWS = 1 << 16 };
static const char *const columns[COLUMNS] = {"kind", "ranks", "nodes", "bytes", "seconds"};
static const char header[] = "kind,ranks,nodes,bytes,seconds";

typedef struct Line { const char *name; int number; Error *error; } Line;

static int refuse(const Line *line, const char *why, const char *detail) {
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: %s%s", line->name, line->number, why, detail);
}

static int read_kind(const Line *line, const char *text, const char **kind) {
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(kinds[i], text)) return *kind = kinds[i], PLAIT_OK;
  const char *nearest = nearest_word(text, kinds, KINDS);
  char list[160] = "";
  for (int i = 0; i < KINDS; i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", kinds[i]);
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: \"%.40s\" is not a kind of collective; those are %s%s%s%s",
                   line->name, line->number, text, list, nearest ? "; did you mean " : "", nearest ? nearest : "",
                   nearest ? "?" : "");
}

static int read_number(const Line *line, int column, const char *text, double least, double most, bool whole,
                       double *value) {
  char *end;
  bool good = *text && strspn(text, "0123456789+-.eE") == strlen(text);
  *value = good ? strtod(text, &end) : 0;
  good = good && !*end && isfinite(*value) && (!whole || *value == nearbyint(*value));
  if (good && *value >= least && *value <= most) return PLAIT_OK;
  char range[64];
  if (most < 1e15) snprintf(range, sizeof range, "from %.0f to %.0f", least, most);
  else if (least > 0 && least < 1) snprintf(range, sizeof range, "above 0");
  else snprintf(range, sizeof range, "of at least %.0f", least);
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: %s must be %s %s, not \"%.40s\"", line->name, line->number,
                   columns[column], whole ? "an integer" : "a number", range, text);
}

// By kind (as words), ranks, nodes, bytes.
static int compare(const MeasuredCollective *a, const MeasuredCollective *b) {
  int kind = strcmp(a->kind, b->kind);
  if (kind) return kind;
  if (a->ranks != b->ranks) return a->ranks < b->ranks ? -1 : 1;
  if (a->nodes != b->nodes) return a->nodes < b->nodes ? -1 : 1;
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int check_row(const Cluster *cluster, const Line *line, const MeasuredCollective *row) {
  int64_t devices = cluster_devices(cluster);
  if (row->ranks > devices)
    return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: %d ranks, but the cluster has %lld device%s", line->name,
                     line->number, row->ranks, (long long)devices, devices == 1 ? "" : "s");
  if (row->nodes > row->ranks)
    return error_set(line->error, PLAIT_BAD_INPUT,
                     "%s:%d: %d ranks cannot be on %d nodes; there are at most %d of them", line->name, line->number,
                     row->ranks, row->nodes, row->ranks);
  if (!cluster->measured.count) return PLAIT_OK;
  int order = compare(&cluster->measured.data[cluster->measured.count - 1], row);
  if (order == 0) return refuse(line, "this kind, ranks, nodes and bytes are there already", ", in the line before");
  if (FAULT(cluster_takes_unsorted_measurements, order, 0) > 0)
    return refuse(line, "out of order: lines must be sorted by kind, then ranks, nodes and bytes; ",
                  "`sort -t, -k1,1 -k2,2n -k3,3n -k4,4g` sorts them");
  return PLAIT_OK;
}

static int read_row(Cluster *cluster, const Line *line, char *text) {
  char *cell[COLUMNS];
  int count = 0;
  for (char *at = text; at && count <= COLUMNS; count++) {
    char *comma = strchr(at, ',');
    if (comma) *comma = 0;
    if (count < COLUMNS) cell[count] = at;
    at = comma ? comma + 1 : NULL;
  }
  if (count != COLUMNS) return refuse(line, "a line has five values, ", header);
  MeasuredCollective row = {0};
  double ranks = 0, nodes = 0;
  int code = read_kind(line, cell[0], &row.kind);
  if (!code) code = read_number(line, 1, cell[1], 1, CLUSTER_MAX_DEVICES, true, &ranks);
  if (!code) code = read_number(line, 2, cell[2], 1, CLUSTER_MAX_DEVICES, true, &nodes);
  if (!code) code = read_number(line, 3, cell[3], 1, 1e21, false, &row.bytes);
  if (!code) code = read_number(line, 4, cell[4], 1e-12, 1e15, false, &row.seconds);
  row.ranks = (int)ranks, row.nodes = (int)nodes;
  if (!code) code = check_row(cluster, line, &row);
  if (!code && cluster->measured.count == MOST_ROWS) code = refuse(line, "more than 65536 rows", "");
  if (!code) vec_push(&cluster->measured, row);
  return code;
}

int cluster_measured_parse(Cluster *cluster, const char *name, int first_line, const char *text, Error *error) {
  Line line = {name, first_line, error};
  char *copy = xstrdup(text);
  int code = PLAIT_OK;
  bool started = false;
  for (char *at = copy, *next; at && *at && !code; at = next, line.number++) {
    next = strchr(at, '\n');
    if (next) *next++ = 0;
    at[strcspn(at, "\r")] = 0;
    if (*at == '#' || !*at) continue;
    if (started) code = read_row(cluster, &line, at);
    else if (strcmp(at, header)) code = refuse(&line, "the first line must name the columns: ", header);
    started = true;
  }
  free(copy);
  if (!code && !cluster->measured.count)
    return error_set(error, PLAIT_BAD_INPUT, "%s: holds no measurements; after the line %s there is one on each line",
                     name, header);
  return code;
}
