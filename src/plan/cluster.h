// Cluster files: YAML that describes devices, links and measurements. docs/clusters.md is written from the table of
// keys.
#pragma once
#include "base/error.h"
#include "plan/facts.h"
#include <stdio.h>

// A path, or the name of a shipped one ("dgx-a100-superpod"; $PLAIT_CLUSTERS, beside the binary, or installed).
// PLAIT_BAD_INPUT with one sentence: file, line or key, what is allowed, the nearest valid value.
int cluster_load(const char *name, Cluster **out, Error *error);
// From text in memory; `path` is for messages.
int cluster_parse(const char *text, const char *path, Cluster **out, Error *error);
void cluster_free(Cluster *cluster); // NULL is fine

// As a file that cluster_load reads to the same facts, bit by bit. source: of all its numbers ("measured by plait probe
// …").
int cluster_write(const Cluster *cluster, const char *source, const char *path, Error *error); // whole or not at all

// key=value as in `--what-if nvlink.bandwidth=2x`: a factor (2x), or a value. Keys: LEVEL.bandwidth, LEVEL.latency,
// device.bandwidth, device.matrix, device.memory, … PLAIT_BAD_INPUT with the nearest key.
int cluster_change(Cluster *cluster, const char *change, Error *error);

// Prints what a cluster has: devices, levels with the bandwidth of one port and of all, memory, rates.
void cluster_print(const Cluster *cluster, FILE *out);
// docs/clusters.md.
void cluster_print_docs(FILE *out);
// The names of all shipped ones, for messages and completion: "dgx-2, dgx-a100-superpod …".
void cluster_names(char *text, size_t size);
