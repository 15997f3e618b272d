// Changes a key of a cluster: it gets another value, or is multiplied. Also the facts of a cluster that runs ask for.
#include "base/fault.h"
#include "base/nearest.h"
#include "machine/cluster_keys.h"
#include <stdlib.h>
#include <string.h>

// A key that can be changed, and where it lies.
typedef struct Target {
  const char *path; // "nvlink.bandwidth"
  const ClusterKey *key;
  void *field;
  int dtype;           // of one rate, or -1
  const char **source; // of its section
} Target;
typedef Vec(Target) Targets;

static bool can_change(const ClusterKey *key) {
  if (key->section == CLUSTER_TOP && key->offset == offsetof(Cluster, kernel_rows)) return false; // a check of the file
  return key->kind >= CLUSTER_INT && key->kind <= CLUSTER_ATTENTION;
}

static void add_section(Targets *targets, ClusterReader *reader, ClusterSection section, const char *name, void *at) {
  const ClusterKey *source = cluster_key_find(section, "source");
  for (int i = 0; i < cluster_key_count; i++) {
    const ClusterKey *key = &cluster_keys[i];
    if (key->section != section || !can_change(key)) continue;
    Target target = {.path = name ? arena_join(&reader->arena, name, key->name) : key->name, .key = key, .dtype = -1};
    target.field = (char *)at + key->offset;
    target.source = (const char **)((char *)at + source->offset);
    vec_push(targets, target);
    for (int d = 0; key->kind == CLUSTER_RATES && d < DTYPE_COUNT; d++) {
      if (!cluster_dtype_has_rate((Dtype)d)) continue;
      Target rate = target;
      rate.path = arena_join(&reader->arena, target.path, dtype_name((Dtype)d));
      rate.dtype = d;
      vec_push(targets, rate);
    }
  }
}

static Targets list_targets(ClusterReader *reader) {
  Cluster *c = reader->cluster;
  Targets targets = {0};
  add_section(&targets, reader, CLUSTER_DEVICE, "device", &c->device);
  for (int i = 0; i < c->spaces; i++) add_section(&targets, reader, CLUSTER_SPACE, c->space[i].name, &c->space[i]);
  for (int i = 0; i < c->levels; i++) add_section(&targets, reader, CLUSTER_LEVEL, c->level[i].name, &c->level[i]);
  add_section(&targets, reader, CLUSTER_SOFTWARE, "software", &c->software);
  add_section(&targets, reader, CLUSTER_TOP, NULL, c);
  return targets;
}

static int unknown(ClusterReader *reader, const Targets *targets, const char *path) {
  const char **names = arena_array(&reader->arena, const char *, targets->count), *levels = NULL;
  for (int i = 0; i < targets->count; i++) names[i] = targets->data[i].path;
  for (int i = 0; i < reader->cluster->levels; i++) {
    const char *name = reader->cluster->level[i].name;
    levels = levels ? arena_format(&reader->arena, "%s, %s", levels, name) : name;
  }
  const char *nearest = nearest_word(path, names, targets->count);
  if (nearest)
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %.100s: unknown key; did you mean %s?", reader->name, path,
                     nearest);
  return error_set(reader->error, PLAIT_BAD_INPUT,
                   "%s: %.100s: unknown key; it is one of device, as device.bandwidth, of a level (%s), of a space, of "
                   "software, or spread or base", reader->name, path, levels ? levels : "there is none");
}

// "2x", "0.5x"
static bool read_factor(const char *text, double *factor) {
  size_t n = strspn(text, "0123456789.eE+-");
  if (!n || strcmp(text + n, "x")) return false;
  char *end;
  *factor = strtod(text, &end);
  return end == text + n && *factor >= 0 && *factor <= 1e21;
}

static int set_number(ClusterReader *reader, const Target *target, double value, double *field) {
  char text[YAML_REAL];
  yaml_real_text(value, text);
  YamlNode node = {.kind = YAML_SCALAR, .text = text, .plain = true};
  return cluster_set_value(reader, target->key, target->path, &node, field);
}

static int multiply_rates(ClusterReader *reader, const Target *target, double factor, double *rates) {
  if (target->dtype >= 0 && !(rates[target->dtype] > 0))
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: the cluster has no %s to multiply; give a number",
                     reader->name, target->path);
  for (int d = 0; d < DTYPE_COUNT; d++) {
    if (!(rates[d] > 0) || (target->dtype >= 0 && d != target->dtype)) continue;
    char text[YAML_REAL];
    yaml_real_text(rates[d] * factor, text);
    YamlNode node = {.kind = YAML_SCALAR, .text = text, .plain = true};
    const char *path = target->dtype >= 0 ? target->path
                                          : arena_join(&reader->arena, target->path, dtype_name((Dtype)d));
    int code = cluster_set_rate(reader, target->key, path, &node, &rates[d]);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

// A pair is multiplied number by number.
static int multiply_pair(ClusterReader *reader, const Target *target, double factor) {
  const double *pair = target->field;
  if (pair[0] < 0)
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s is auto and cannot be multiplied; give two numbers",
                     reader->name, target->path);
  char first[YAML_REAL], second[YAML_REAL];
  yaml_real_text(pair[0] * factor, first), yaml_real_text(pair[1] * factor, second);
  YamlNode a = {.kind = YAML_SCALAR, .text = first, .plain = true},
           b = {.kind = YAML_SCALAR, .text = second, .plain = true};
  YamlNode node = {.kind = YAML_LIST, .count = 2, .items = (YamlNode *[]){&a, &b}};
  return cluster_set_value(reader, target->key, target->path, &node, target->field);
}

static int multiply(ClusterReader *reader, const Target *target, double factor) {
  switch (target->key->kind) {
  case CLUSTER_INT: return set_number(reader, target, *(int *)target->field * factor, target->field);
  case CLUSTER_REAL:
    factor = FAULT(cluster_factor_is_the_value, *(double *)target->field * factor, factor);
    return set_number(reader, target, factor, target->field);
  case CLUSTER_PAIR: return multiply_pair(reader, target, factor);
  case CLUSTER_RATES: return multiply_rates(reader, target, factor, target->field);
  default:
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s is not a number and cannot be multiplied; give a value",
                     reader->name, target->path);
  }
}

static int set(ClusterReader *reader, const Target *target, const char *value) {
  double factor;
  if (read_factor(value, &factor)) return multiply(reader, target, factor);
  YamlNode *node;
  int code = yaml_tree_parse(reader->name, value, strlen(value), &reader->arena, &node, reader->error);
  if (code) return code;
  if (target->dtype >= 0)
    return cluster_set_rate(reader, target->key, target->path, node, &((double *)target->field)[target->dtype]);
  return cluster_set_value(reader, target->key, target->path, node, target->field);
}

static int change(ClusterReader *reader, const char *path, const char *value) {
  Targets targets = list_targets(reader);
  const Target *target = NULL;
  for (int i = 0; i < targets.count && !target; i++)
    if (!strcmp(targets.data[i].path, path)) target = &targets.data[i];
  int code = target ? set(reader, target, value) : unknown(reader, &targets, path);
  Cluster *cluster = reader->cluster;
  if (!code) code = cluster_check(cluster, reader->name, reader->error);
  if (!code) {
    const char *source = *target->source;
    *target->source = arena_format(&cluster->arena, "%s%schanged: %s", source ? source : "", source ? "; " : "",
                                   reader->name);
    UNLESS_FAULT(cluster_keeps_measurements_of_other_links)
    if (target->key->section == CLUSTER_LEVEL || target->key->kind == CLUSTER_PAIR) vec_free(&cluster->measured);
  }
  vec_free(&targets);
  return code;
}

int cluster_change(Cluster *cluster, const char *text, Error *error) {
  ClusterReader reader = {.cluster = cluster, .error = error};
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1])
    return error_set(error, PLAIT_BAD_INPUT,
                     "\"%.100s\" is not of the form key=value, as in nvlink.bandwidth=2x or device.memory=40e9", text);
  reader.name = arena_format(&reader.arena, "%.200s", text);
  Cluster before = *cluster;
  int code = change(&reader, arena_format(&reader.arena, "%.*s", (int)(equals - text), text), equals + 1);
  if (code) {
    before.arena = cluster->arena; // it may have grown
    *cluster = before;
  }
  arena_free(&reader.arena);
  return code;
}

bool cluster_can_change(Cluster *cluster, const char *key) {
  ClusterReader reader = {.cluster = cluster};
  Targets targets = list_targets(&reader);
  bool found = false;
  for (int i = 0; i < targets.count && !found; i++) found = !strcmp(targets.data[i].path, key);
  vec_free(&targets);
  arena_free(&reader.arena);
  return found;
}

// --- what runs ask ---------------------------------------------------------------------------------------------------

int cluster_check_ranks(const Cluster *cluster, int64_t ranks, Error *error) {
  int64_t devices = cluster_devices(cluster);
  if (ranks <= devices) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s has %lld device%s, too few for %lld ranks; at most %lld ranks fit",
                   cluster->path, (long long)devices, devices == 1 ? "" : "s", (long long)ranks, (long long)devices);
}

static int check_device_dtype(const Cluster *cluster, const DeviceFacts *device, Dtype dtype, Error *error) {
  if (device->matrix[dtype] > 0) return PLAIT_OK;
  char list[64] = "";
  for (int d = 0; d < DTYPE_COUNT; d++) {
    size_t n = strlen(list);
    if (device->matrix[d] > 0)
      snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", dtype_name((Dtype)d));
  }
  Dtype near = dtype == DTYPE_BF16 ? DTYPE_F16 : dtype == DTYPE_F16 ? DTYPE_BF16 : DTYPE_F32;
  if (!(device->matrix[near] > 0)) near = DTYPE_F32;
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s has no rate of products in %s; it has %s; the nearest is %s",
                   cluster->path ? cluster->path : cluster->name, device->name, dtype_name(dtype), list,
                   dtype_name(near));
}

int cluster_check_dtype(const Cluster *cluster, Dtype dtype, Error *error) {
  int code = check_device_dtype(cluster, &cluster->device, dtype, error);
  for (int i = 0; i < cluster->island.count && !code; i++)
    code = check_device_dtype(cluster, &cluster->island.data[i].device, dtype, error);
  return code;
}
