// Measured kernels as lines of a cluster file.
#include "base/nearest.h"
#include "op/op.h"
#include "machine/cluster_lines.h"
#include "machine/kernel_table.h"
#include <string.h>

static int read_op(const ClusterLine *line, const char *text, const char **op) {
  const char *names[OP_COUNT];
  for (int i = 0; i < OP_COUNT; i++)
    if (!strcmp(names[i] = op_name((Op)i), text)) return *op = names[i], PLAIT_OK;
  const char *nearest = nearest_word(text, names, OP_COUNT);
  return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: \"%.40s\" is not an op of plait%s%s%s", line->name,
                   line->number, text, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int read_dtype(const ClusterLine *line, const char *text, Dtype *dtype) {
  int d = dtype_from_name(text);
  if (d < 0)
    return error_set(line->error, PLAIT_BAD_INPUT, "%s:%d: \"%.40s\" is not a dtype; those are fp32, bf16, fp16, …",
                     line->name, line->number, text);
  return *dtype = (Dtype)d, PLAIT_OK;
}

static int read_kernel(Cluster *cluster, const ClusterLine *line, char **cell) {
  static const char *const sizes[KERNEL_FEATURES] = {"a", "b", "c", "d"};
  MeasuredKernel k = {0};
  double threads = 0, active = 0, kind = 0;
  int code = read_op(line, cell[0], &k.op);
  if (!code) code = read_dtype(line, cell[1], &k.dtype);
  if (!code) code = cluster_lines_number(line, "threads", cell[2], 1, 1 << 16, true, &threads);
  if (!code) code = cluster_lines_number(line, "active", cell[3], threads, 1 << 16, true, &active);
  if (!code) code = cluster_lines_number(line, "kind", cell[4], 0, 1 << 16, true, &kind);
  for (int i = 0; i < KERNEL_FEATURES && !code; i++)
    code = cluster_lines_number(line, sizes[i], cell[5 + i], 0, 1e21, false, &k.size[i]);
  if (!code) code = cluster_lines_number(line, "flops", cell[9], 0, 1e24, false, &k.flops);
  if (!code) code = cluster_lines_number(line, "bytes", cell[10], 0, 1e21, false, &k.bytes);
  if (!code) code = cluster_lines_number(line, "seconds", cell[11], 1e-12, 1e9, false, &k.seconds);
  k.threads = (int)threads, k.active = (int)active, k.kind = (int)kind;
  if (!code) vec_push(&cluster->kernel, k);
  return code;
}

int kernel_lines_parse(Cluster *cluster, const char *name, int first_line, const char *text, Error *error) {
  static const ClusterTable table = {KERNEL_COLUMNS, "twelve", "kernels", "plait probe --out FILE writes some",
                                     read_kernel};
  return cluster_lines_parse(cluster, &table, name, first_line, text, error);
}

void kernel_line_print(const MeasuredKernel *k, FILE *out) {
  fprintf(out, "%s,%s,%d,%d,%d", k->op, dtype_name(k->dtype), k->threads, k->active, k->kind);
  for (int i = 0; i < KERNEL_FEATURES; i++) fprintf(out, ",%.17g", k->size[i]);
  fprintf(out, ",%.17g,%.17g,%.4g\n", k->flops, k->bytes, k->seconds);
}
