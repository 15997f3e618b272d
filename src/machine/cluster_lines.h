// Tables of measurements in cluster files: lines of comma-separated values after a line that names the columns. For
// machine/cluster_measured.c and machine/kernel_lines.c.
#pragma once
#include "machine/cluster.h"
#include <stdbool.h>

enum { LINES_MOST_COLUMNS = 16, LINES_MOST_ROWS = 1 << 16 };

typedef struct ClusterLine { const char *name; int number; Error *error; } ClusterLine; // of a file, for messages

// Adds one row to the cluster. cell: (columns of the table), may be changed.
typedef int ClusterRowReader(Cluster *cluster, const ClusterLine *line, char **cell);
typedef struct ClusterTable {
  const char *header;       // "kind,ranks,nodes,bytes,seconds"
  const char *count;        // of its columns, in words: "five"
  const char *what;         // the rows, for messages: "measurements"
  const char *hint;         // what to do where there are none
  ClusterRowReader *read;
} ClusterTable;

// Reads all rows; empty lines and those that begin with # are left out. first_line: of `text` in the file `name`.
// PLAIT_BAD_INPUT with file and line.
int cluster_lines_parse(Cluster *cluster, const ClusterTable *table, const char *name, int first_line, const char *text,
                        Error *error);
// A decimal number in a range; `column` is for messages. PLAIT_BAD_INPUT.
int cluster_lines_number(const ClusterLine *line, const char *column, const char *text, double least, double most,
                         bool whole, double *value);
