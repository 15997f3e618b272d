// Cluster files from facts, by the table of keys.
#include "base/file.h"
#include "machine/cluster_keys.h"
#include "machine/kernel_table.h"
#include <stdlib.h>
#include <string.h>

typedef struct Writer { Cluster *cluster; const char *source; FILE *out; } Writer; // the cluster is only read

static void write_section(const Writer *writer, ClusterSection section, const void *at, int indent, bool dash);

static void write_rates(const double *rates, FILE *out) {
  int count = 0;
  for (int d = 0; d < DTYPE_COUNT; d++) {
    if (!(rates[d] > 0)) continue;
    fprintf(out, "%s%s: ", count++ ? ", " : "{", dtype_name((Dtype)d));
    yaml_print_real(rates[d], out);
  }
  fputs(count ? "}" : "{}", out);
}

// Below 0: auto.
static void write_pair(const double pair[2], FILE *out) {
  if (pair[0] < 0 || pair[1] < 0) {
    fputs("auto", out);
    return;
  }
  for (int i = 0; i < 2; i++) {
    fputs(i ? ", " : "[", out);
    yaml_print_real(pair[i], out);
  }
  fputs("]", out);
}

static void write_scalar(const Writer *writer, const ClusterKey *key, const void *field) {
  FILE *out = writer->out;
  switch (key->kind) {
  case CLUSTER_TEXT:
  case CLUSTER_LEVEL_NAME:
  case CLUSTER_SPACE_NAME: {
    const char *text = *(const char *const *)field;
    if (!strcmp(key->name, "source") && !text) text = writer->source;
    yaml_print_text(text ? text : "not named", out);
    break;
  }
  case CLUSTER_INT: fprintf(out, "%d", *(const int *)field); break;
  case CLUSTER_REAL: yaml_print_real(*(const double *)field, out); break;
  case CLUSTER_PAIR: write_pair(field, out); break;
  case CLUSTER_RATES: write_rates(field, out); break;
  case CLUSTER_LEVEL_KIND:
  case CLUSTER_BOOL:
  case CLUSTER_BACKEND:
  case CLUSTER_ATTENTION: fputs(cluster_key_words(key)[*(const int *)field], out); break;
  case CLUSTER_MAP:
  case CLUSTER_LIST:
  case CLUSTER_KERNELS:
  case CLUSTER_TABLE: break;
  }
}

static void write_measured(const Cluster *cluster, FILE *out) {
  fputs(" |\n  kind,ranks,nodes,bytes,seconds\n", out);
  for (int i = 0; i < cluster->measured.count; i++) {
    const MeasuredCollective *row = &cluster->measured.data[i];
    fprintf(out, "  %s,%d,%d,", row->kind, row->ranks, row->nodes);
    yaml_print_real(row->bytes, out);
    fputc(',', out);
    yaml_print_real(row->seconds, out);
    fputc('\n', out);
  }
}

static void write_kernels(const Cluster *cluster, FILE *out) {
  fputs(" |\n  " KERNEL_COLUMNS "\n", out);
  for (int i = 0; i < cluster->kernel.count; i++) {
    fputs("  ", out);
    kernel_line_print(&cluster->kernel.data[i], out);
  }
}

// Keys that the file need not have: lists without items, and values without a source, which nobody gave.
static bool is_absent(const Writer *writer, const ClusterKey *key) {
  static const double zero;
  const Cluster *c = writer->cluster;
  if (key->section != CLUSTER_TOP) return false;
  if (key->kind == CLUSTER_LIST) return cluster_list_count(c, key) == 0;
  if (key->kind == CLUSTER_TABLE) return c->measured.count == 0;
  if (key->kind == CLUSTER_KERNELS || key->offset == offsetof(Cluster, kernel_rows)) return c->kernel.count == 0;
  bool plain = c->software.attention == ATTENTION_FLASH && c->software.fusions && c->software.launches_per_op == 1 &&
               !c->software.blocking_sends && !(c->software.parameter_bytes > 0);
  if (key->offset == offsetof(Cluster, software)) return plain && !c->software.source;
  bool nothing = !memcmp(&c->spread, &zero, sizeof c->spread) && c->base[0] < 0;
  if (key->kind == CLUSTER_REAL || key->kind == CLUSTER_PAIR) return nothing && !c->source;
  return !strcmp(key->name, "source") && nothing && !c->source && !c->measured.count && !c->kernel.count;
}

static void write_key(const Writer *writer, const ClusterKey *key, const void *at, int indent) {
  const char *field = (const char *)at + key->offset;
  fprintf(writer->out, "%s:", key->name);
  if (key->kind == CLUSTER_TABLE) {
    write_measured(writer->cluster, writer->out);
  } else if (key->kind == CLUSTER_KERNELS) {
    write_kernels(writer->cluster, writer->out);
  } else if (key->kind == CLUSTER_MAP) {
    fputc('\n', writer->out);
    write_section(writer, cluster_key_child(key), field, indent + 2, false);
  } else if (key->kind == CLUSTER_LIST) {
    fputc('\n', writer->out);
    for (int i = 0; i < cluster_list_count(writer->cluster, key); i++)
      write_section(writer, cluster_key_child(key), cluster_list_item(writer->cluster, key, i), indent + 4, true);
  } else {
    fputc(' ', writer->out);
    write_scalar(writer, key, field);
    fputc('\n', writer->out);
  }
}

// dash: it is an item of a list, whose first key stands after "- ".
static void write_section(const Writer *writer, ClusterSection section, const void *at, int indent, bool dash) {
  for (int i = 0; i < cluster_key_count; i++) {
    const ClusterKey *key = &cluster_keys[i];
    if (key->section != section || is_absent(writer, key)) continue;
    if (dash) fprintf(writer->out, "%*s- ", indent - 2, "");
    else fprintf(writer->out, "%*s", indent, "");
    dash = false;
    write_key(writer, key, at, indent);
  }
}

void cluster_print_file(const Cluster *cluster, const char *source, FILE *out) {
  Cluster counted = *cluster; // borrows all
  counted.kernel_rows = cluster->kernel.count;
  Writer writer = {&counted, source ? source : "not known", out};
  fputs("# A cluster, written by plait; docs/clusters.md explains every key.\n", out);
  write_section(&writer, CLUSTER_TOP, &counted, 0, false);
}

int cluster_write(const Cluster *cluster, const char *source, const char *path, Error *error) {
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code < 0) return code;
  cluster_print_file(cluster, source, file.stream);
  return file_commit(&file, error);
}
