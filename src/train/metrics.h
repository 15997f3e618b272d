// metrics.jsonl: one JSON object a line, written whole or not at all; cut back on resume; read back as series.
#pragma once
#include "base/error.h"
#include "train/events.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Writing allocates nothing. Keys appear in the order given; doubles carry 17 significant digits and read back to the
// same bits; what is not a number is null, infinite ones are the strings "inf" and "-inf".
//   metrics_begin(&m); metrics_integer(&m, "step", 3); metrics_real(&m, "loss", 2.5); code = metrics_end(&m, error);
typedef struct Metrics {
  int fd;
  char *path;
  int length;
  bool overflow; // the line did not fit
  Events *events; // may be NULL: every number of a line that begins with "step" goes there too
  FILE *copy;     // may be NULL: gets every line too. Where nobody reads it any more, the run is asked to stop (SIGHUP)
  char line[16384];
} Metrics;

int metrics_open(Metrics *metrics, const char *path, Error *error); // appends; creates the file
void metrics_close(Metrics *metrics);                               // safe on a zeroed one, and twice
void metrics_begin(Metrics *metrics);
void metrics_integer(Metrics *metrics, const char *key, int64_t value);
void metrics_real(Metrics *metrics, const char *key, double value);
void metrics_integers(Metrics *metrics, const char *key, const int *values, int count); // a list
void metrics_unknown(Metrics *metrics, const char *key); // null
void metrics_text(Metrics *metrics, const char *key, const char *value);
int metrics_end(Metrics *metrics, Error *error); // writes the line; a full disk leaves no half line, PLAIT_FAILED

// Drops, atomically, the lines whose "step" is beyond `step`, and those that are not a JSON object (torn by a crash).
// Lines without a step stay. A missing file is fine.
int metrics_truncate_after(const char *path, int64_t step, Error *error);

// The values of one key by step, in the order of the file; lines without the key are skipped.
typedef struct MetricsSeries { int64_t *step; double *value; int count, capacity; } MetricsSeries;
int metrics_read(const char *path, const char *key, MetricsSeries *series, Error *error);
void metrics_series_free(MetricsSeries *series);

// The lists of integers of one key, in the order of the file. Lines without the key are skipped, and so are other
// values.
typedef struct MetricsList { int64_t step; int count, *value; } MetricsList;
typedef struct MetricsLists { MetricsList *list; int count; } MetricsLists;
int metrics_read_lists(const char *path, const char *key, MetricsLists *lists, Error *error);
void metrics_lists_keep(MetricsLists *lists, int index); // this one alone; -1: none
char *metrics_lists_text(const MetricsLists *lists); // for another process; the caller frees it
void metrics_lists_parse(const char *text, MetricsLists *lists);
void metrics_lists_free(MetricsLists *lists);
