// Measured collectives: lines of kind,ranks,nodes,bytes,seconds after a header, sorted.
#include "base/fault.h"
#include "base/nearest.h"
#include "machine/cluster_keys.h"
#include "machine/cluster_lines.h"
#include <string.h>

static const char *const kinds[] = {
#define COLLECTIVE(id, name, meaning) name,
#include "machine/collectives.def"
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int refuse(const ClusterLine *line, const char *why, const char *detail) {
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: %s%s", line->name, line->number, why, detail);
}

static int read_kind(const ClusterLine *line, const char *text, const char **kind) {
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

// By kind (as words), ranks, nodes, bytes.
static int compare(const MeasuredCollective *a, const MeasuredCollective *b) {
  int kind = strcmp(a->kind, b->kind);
  if (kind) return kind;
  if (a->ranks != b->ranks) return a->ranks < b->ranks ? -1 : 1;
  if (a->nodes != b->nodes) return a->nodes < b->nodes ? -1 : 1;
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int check_row(const Cluster *cluster, const ClusterLine *line, const MeasuredCollective *row) {
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

static int read_row(Cluster *cluster, const ClusterLine *line, char **cell) {
  MeasuredCollective row = {0};
  double ranks = 0, nodes = 0;
  int code = read_kind(line, cell[0], &row.kind);
  if (!code) code = cluster_lines_number(line, "ranks", cell[1], 1, CLUSTER_MAX_DEVICES, true, &ranks);
  if (!code) code = cluster_lines_number(line, "nodes", cell[2], 1, CLUSTER_MAX_DEVICES, true, &nodes);
  if (!code) code = cluster_lines_number(line, "bytes", cell[3], 1, 1e21, false, &row.bytes);
  if (!code) code = cluster_lines_number(line, "seconds", cell[4], 1e-12, 1e15, false, &row.seconds);
  row.ranks = (int)ranks, row.nodes = (int)nodes;
  if (!code) code = check_row(cluster, line, &row);
  if (!code) vec_push(&cluster->measured, row);
  return code;
}

int cluster_measured_parse(Cluster *cluster, const char *name, int first_line, const char *text, Error *error) {
  static const ClusterTable table = {"kind,ranks,nodes,bytes,seconds", "five", "measurements",
                                     "after the line kind,ranks,nodes,bytes,seconds there is one on each line",
                                     read_row};
  return cluster_lines_parse(cluster, &table, name, first_line, text, error);
}
