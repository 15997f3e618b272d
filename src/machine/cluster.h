// Cluster files: YAML that describes devices, links and measurements. docs/clusters.md is written from the table of
// keys.
#pragma once
#include "base/error.h"
#include "machine/facts.h"
#include <stdbool.h>
#include <stdio.h>

// A path, or the name of a shipped one ("dgx-a100-superpod"; $PLAIT_CLUSTERS, beside the binary, or installed).
// PLAIT_BAD_INPUT with one sentence: file, line or key, what is allowed, the nearest valid value.
int cluster_load(const char *name, Cluster **out, Error *error);
// From text in memory; `path` is for messages.
int cluster_parse(const char *text, const char *path, Cluster **out, Error *error);
void cluster_free(Cluster *cluster); // NULL is fine

// As a file that cluster_load reads to the same facts, bit by bit; measurements stand in it too. source: of all numbers
// whose section has none ("measured by plait probe …"); NULL: "not known".
int cluster_write(const Cluster *cluster, const char *source, const char *path, Error *error); // whole or not at all
void cluster_print_file(const Cluster *cluster, const char *source, FILE *out); // the text of such a file

// key=value as in `--what-if nvlink.bandwidth=2x`: a factor (2x), or a value. Keys: LEVEL.bandwidth, LEVEL.latency,
// device.bandwidth, device.matrix, device.matrix.bf16, host.bandwidth, spread, base, …; islands keep what they have.
// The section's source says what was changed. Measured collectives go when a link or the base changes, since they are
// of the old ones. PLAIT_BAD_INPUT with the nearest key; the cluster is as before then.
int cluster_change(Cluster *cluster, const char *change, Error *error);
bool cluster_can_change(Cluster *cluster, const char *key); // is it a key of cluster_change?

// PLAIT_BAD_INPUT and a sentence where a run cannot be on the cluster: more ranks than devices; a dtype for which a
// device has no rate of products, with those that it has.
int cluster_check_ranks(const Cluster *cluster, int64_t ranks, Error *error);
int cluster_check_dtype(const Cluster *cluster, Dtype dtype, Error *error);

// Prints what a cluster has: devices, levels with the bandwidth of one port and of all, memory, rates.
void cluster_print(const Cluster *cluster, FILE *out);
// docs/clusters.md: keys, rules, and the shipped clusters. A shipped file that cannot be read is PLAIT_BAD_INPUT.
int cluster_print_docs(FILE *out, Error *error);
// A line for each shipped cluster: its name, devices, what it is.
int cluster_print_list(FILE *out, Error *error);
// The names of all shipped ones, for messages and completion: "dgx-2, dgx-a100-superpod …".
void cluster_names(char *text, size_t size);
