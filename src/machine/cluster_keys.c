// The table of the keys of cluster files, and what follows from a row.
#include "machine/cluster_keys.h"
#include <string.h>

#define CLUSTER_SECTION(id, type, name, heading, doc) typedef type Struct_##id;
#include "machine/cluster_keys.def"

const ClusterSectionRow cluster_sections[CLUSTER_SECTIONS] = {
#define CLUSTER_SECTION(id, type, name, heading, doc) {name, heading, doc, sizeof(type)},
#include "machine/cluster_keys.def"
};

const ClusterKey cluster_keys[] = {
#define CLUSTER_KEY(section, name, kind, field, ...)                                                                   \
  {CLUSTER_##section, name, CLUSTER_##kind, offsetof(Struct_##section, field), __VA_ARGS__},
#include "machine/cluster_keys.def"
};
const int cluster_key_count = sizeof cluster_keys / sizeof *cluster_keys;

const ClusterKey *cluster_key_find(ClusterSection section, const char *name) {
  for (int i = 0; i < cluster_key_count; i++)
    if (cluster_keys[i].section == section && !strcmp(cluster_keys[i].name, name)) return &cluster_keys[i];
  return NULL;
}

ClusterSection cluster_key_child(const ClusterKey *key) {
  for (int s = 0; s < CLUSTER_SECTIONS; s++)
    if (!strcmp(cluster_sections[s].heading, key->name)) return (ClusterSection)s;
  CHECK(false, "%s has no section", key->name);
  return CLUSTER_SECTIONS;
}

const char *const *cluster_key_words(const ClusterKey *key) {
  static const char *const level_kinds[] = {"switch", "ring", "mesh", "bus", NULL};
  static const char *const spaces[] = {"host", "disk", NULL};
  static const char *const attention[] = {"flash", "materialised", "cudnn", NULL};
  static const char *const backends[] = {
#define DEVICE(id, name, shares) #name,
#include "device/devices.def"
      NULL};
  static const char *const truth[] = {"false", "true", NULL};
  _Static_assert(sizeof level_kinds / sizeof *level_kinds == LEVEL_KINDS + 1, "a word for each kind of level");
  _Static_assert(sizeof attention / sizeof *attention == ATTENTION_KINDS + 1, "a word for each kind of attention");
  switch (key->kind) {
  case CLUSTER_LEVEL_KIND: return level_kinds;
  case CLUSTER_SPACE_NAME: return spaces;
  case CLUSTER_ATTENTION: return attention;
  case CLUSTER_BACKEND: return backends;
  case CLUSTER_BOOL: return truth;
  default: return NULL;
  }
}

bool cluster_dtype_has_rate(Dtype dtype) { return dtype_is_float(dtype) != 0; }

static void range_text(const ClusterKey *key, char *out, size_t size) {
  bool open = key->most >= 1e15;
  char unit[24] = "";
  if (*key->unit) snprintf(unit, sizeof unit, " %s", key->unit);
  if (open) snprintf(out, size, "of at least %.15g%s", key->least, unit);
  else snprintf(out, size, "from %.15g to %.15g%s", key->least, key->most, unit);
}

static void words_text(const char *const *words, char *out, size_t size) {
  *out = 0;
  for (int i = 0; words[i]; i++) {
    size_t n = strlen(out);
    snprintf(out + n, size - n, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
  }
}

void cluster_key_allowed(const ClusterKey *key, char *out, size_t size) {
  char range[96], words[96];
  range_text(key, range, sizeof range);
  if (cluster_key_words(key)) words_text(cluster_key_words(key), words, sizeof words);
  switch (key->kind) {
  case CLUSTER_TEXT: snprintf(out, size, "a text"); break;
  case CLUSTER_LEVEL_NAME: snprintf(out, size, "a word of a-z, 0-9, _ and - that starts with a letter"); break;
  case CLUSTER_INT: snprintf(out, size, "an integer %s", range); break;
  case CLUSTER_REAL: snprintf(out, size, "a number %s", range); break;
  case CLUSTER_PAIR: snprintf(out, size, "auto, or a list of two numbers %s", range); break;
  case CLUSTER_RATES: snprintf(out, size, "a map from dtypes to numbers %s, as in {fp32: 19.5e12}", range); break;
  case CLUSTER_MAP: snprintf(out, size, "a map of keys"); break;
  case CLUSTER_LIST: snprintf(out, size, "a list of at most %.0f maps of keys", key->most); break;
  case CLUSTER_KERNELS:
  case CLUSTER_TABLE: snprintf(out, size, "the path of a CSV file, or its lines"); break;
  case CLUSTER_SPACE_NAME:
  case CLUSTER_BOOL:
  case CLUSTER_BACKEND:
  case CLUSTER_LEVEL_KIND:
  case CLUSTER_ATTENTION: snprintf(out, size, "%s", words); break;
  }
}

int cluster_list_count(const Cluster *cluster, const ClusterKey *key) {
  switch (cluster_key_child(key)) {
  case CLUSTER_SPACE: return cluster->spaces;
  case CLUSTER_LEVEL: return cluster->levels;
  default: return cluster->island.count;
  }
}

void *cluster_list_item(Cluster *cluster, const ClusterKey *key, int i) {
  switch (cluster_key_child(key)) {
  case CLUSTER_SPACE: return &cluster->space[i];
  case CLUSTER_LEVEL: return &cluster->level[i];
  default: return &cluster->island.data[i];
  }
}
