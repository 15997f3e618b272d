// The table of the keys of cluster files, and the reading of one value; for machine/cluster_*.c.
#pragma once
#include "base/yaml.h"
#include "machine/cluster.h"
#include <stdbool.h>

typedef enum ClusterSection {
#define CLUSTER_SECTION(id, ...) CLUSTER_##id,
#include "machine/cluster_keys.def"
  CLUSTER_SECTIONS
} ClusterSection;

typedef enum ClusterKind {
  CLUSTER_TEXT,       // const char *
  CLUSTER_LEVEL_NAME, // const char *, a word that no other section has
  CLUSTER_SPACE_NAME, // const char *, "host" or "disk"
  CLUSTER_INT,        // int
  CLUSTER_REAL,       // double
  CLUSTER_PAIR,       // double[2]
  CLUSTER_RATES,      // double[DTYPE_COUNT]
  CLUSTER_BOOL,       // int
  CLUSTER_LEVEL_KIND, // LevelKind
  CLUSTER_ATTENTION,  // AttentionKind
  CLUSTER_BACKEND,    // DeviceKind
  CLUSTER_MAP,        // a section
  CLUSTER_LIST,       // sections
  CLUSTER_TABLE,      // Vec(MeasuredCollective)
  CLUSTER_KERNELS,    // Vec(MeasuredKernel)
} ClusterKind;

typedef struct ClusterKey {
  ClusterSection section;
  const char *name;
  ClusterKind kind;
  size_t offset; // in the section's struct
  double least, most;
  const char *unit, *fallback, *doc;
} ClusterKey;

extern const ClusterKey cluster_keys[];
extern const int cluster_key_count;

typedef struct ClusterSectionRow { const char *name, *heading, *doc; size_t size; } ClusterSectionRow;
extern const ClusterSectionRow cluster_sections[CLUSTER_SECTIONS];

enum { CLUSTER_MAX_KEYS = 64, CLUSTER_MAX_DEVICES = 1 << 24 };

const ClusterKey *cluster_key_find(ClusterSection section, const char *name); // NULL when there is none
ClusterSection cluster_key_child(const ClusterKey *key);                      // of CLUSTER_MAP and CLUSTER_LIST
const char *const *cluster_key_words(const ClusterKey *key); // allowed ones in the order of their values, or NULL
void cluster_key_allowed(const ClusterKey *key, char *out, size_t size); // "a number of at least 1 (B/s)"
// The sections of a list: how many there are, and where one lies.
int cluster_list_count(const Cluster *cluster, const ClusterKey *key);
void *cluster_list_item(Cluster *cluster, const ClusterKey *key, int i);
bool cluster_dtype_has_rate(Dtype dtype); // floating point: those that rates are given for

typedef struct ClusterReader {
  Cluster *cluster;
  const char *name; // of the source in messages: the file, or the change
  bool positions;   // messages carry line and column
  Arena arena;      // trees and messages, freed at the end
  Error *error;
} ClusterReader;

// "clusters/dgx-2.yaml:7:3", or the name alone.
const char *cluster_place(ClusterReader *reader, const YamlNode *node);
// A scalar, a list of two or a map of rates into the field; `path` is the key's name in messages.
int cluster_set_value(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                      void *field);
int cluster_set_rate(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                     double *rate);
bool cluster_is_level_name(const char *text); // a word, and not the name of another section
// Checks facts that span several keys: names, the number of devices, islands. `name` starts the message.
int cluster_check(const Cluster *cluster, const char *name, Error *error);
// kind,ranks,nodes,bytes,seconds; first_line: of `text` in the file that messages name.
int cluster_measured_parse(Cluster *cluster, const char *name, int first_line, const char *text, Error *error);
