// Loading of cluster files: the YAML tree walks through the table of keys into the facts.
#include "machine/cluster.h"
#include "base/file.h"
#include "base/nearest.h"
#include "machine/cluster_find.h"
#include "machine/cluster_keys.h"
#include "machine/cluster_machine.h"
#include "machine/devices.h"
#include "machine/kernel_table.h"
#include <stdlib.h>
#include <string.h>

// The most of a file of measurements.
enum { MEASURED_BYTES = 16 << 20 };

static int read_section(ClusterReader *reader, ClusterSection section, const char *path, const YamlNode *node,
                        void *at);

static const char *key_path(ClusterReader *reader, const char *path, const char *name) {
  return *path ? arena_join(&reader->arena, path, name) : name;
}

static int unknown_key(ClusterReader *reader, ClusterSection section, const char *path, const YamlNode *name) {
  const char *names[CLUSTER_MAX_KEYS], *elsewhere = NULL, *list = NULL;
  int count = 0;
  for (int i = 0; i < cluster_key_count; i++) {
    const ClusterKey *key = &cluster_keys[i];
    if (key->section != section) {
      if (!strcmp(key->name, name->text) && !elsewhere) elsewhere = cluster_sections[key->section].heading;
      continue;
    }
    names[count++] = key->name;
    list = list ? arena_format(&reader->arena, "%s, %s", list, key->name) : key->name;
  }
  const char *nearest = nearest_word(name->text, names, count), *hint = "";
  if (nearest) hint = arena_format(&reader->arena, "did you mean %s?", nearest);
  else if (elsewhere && section) hint = arena_format(&reader->arena, "allowed are %s", list);
  else if (elsewhere) hint = arena_format(&reader->arena, "it belongs into %s", elsewhere);
  else hint = arena_format(&reader->arena, "allowed are %s", list);
  const char *shown = arena_format(&reader->arena, "%.60s", name->text);
  return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s: unknown key; %s", cluster_place(reader, name),
                   key_path(reader, path, shown), hint);
}

// "infiniband", or "levels[1]" where it has no valid name.
static const char *item_path(ClusterReader *reader, const ClusterKey *list, const YamlNode *item, int i) {
  for (int k = 0; item->kind == YAML_MAP && k < item->count; k++) {
    const YamlNode *name = item->items[k];
    if (strcmp(item->keys[k]->text, "name") || name->kind != YAML_SCALAR) continue;
    bool space = cluster_key_child(list) == CLUSTER_SPACE;
    if (space ? !strcmp(name->text, "host") || !strcmp(name->text, "disk") : cluster_is_level_name(name->text))
      return name->text;
  }
  return arena_format(&reader->arena, "%s[%d]", list->name, i);
}

static int read_list(ClusterReader *reader, const ClusterKey *key, const YamlNode *node) {
  Cluster *cluster = reader->cluster;
  if (node->kind != YAML_LIST || node->count < 1 || node->count > (int)key->most) {
    char allowed[192];
    cluster_key_allowed(key, allowed, sizeof allowed);
    const char *shown = node->kind == YAML_LIST && node->count
                            ? arena_format(&reader->arena, "of %d", node->count) : yaml_shown(node, &reader->arena);
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be %s, not %s", cluster_place(reader, node),
                     key->name, allowed, shown);
  }
  ClusterSection child = cluster_key_child(key);
  for (int i = 0; i < node->count; i++) {
    if (child == CLUSTER_ISLAND) vec_push(&cluster->island, (IslandFacts){0});
    else if (child == CLUSTER_SPACE) cluster->spaces++;
    else cluster->levels++;
    const YamlNode *item = node->items[i];
    int code = read_section(reader, child, item_path(reader, key, item, i), item, cluster_list_item(cluster, key, i));
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

static int set_default(ClusterReader *reader, const ClusterKey *key, void *at) {
  if (!key->fallback || !*key->fallback) return PLAIT_OK;
  YamlNode *node;
  int code = yaml_tree_parse(key->name, key->fallback, strlen(key->fallback), &reader->arena, &node, reader->error);
  return code < 0 ? code : cluster_set_value(reader, key, key->name, node, (char *)at + key->offset);
}

static int read_key(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node, void *at) {
  const char *whole = key_path(reader, path, key->name);
  if (key->kind == CLUSTER_TABLE || key->kind == CLUSTER_KERNELS) return PLAIT_OK; // when the devices are known
  if (key->kind == CLUSTER_LIST) return read_list(reader, key, node);
  void *field = (char *)at + key->offset;
  if (key->kind == CLUSTER_MAP) return read_section(reader, cluster_key_child(key), whole, node, field);
  return cluster_set_value(reader, key, whole, node, field);
}

static int missing_key(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node) {
  const char *place = cluster_place(reader, node), *whole = key_path(reader, path, key->name);
  if (!strcmp(key->name, "source"))
    return error_set(reader->error, PLAIT_BAD_INPUT,
                     "%s: %s has numbers but no source; say where they come from, as in source: \"data sheet\"", place,
                     *path ? path : "the top of the file");
  return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be given: %s", place, whole, key->doc);
}

// Nothing, or the word auto.
static bool is_default(const ClusterKey *key, const YamlNode *value) {
  if (yaml_is_null(value)) return key->kind != CLUSTER_MAP;
  return value->kind == YAML_SCALAR && key->fallback && !strcmp(key->fallback, "auto") && !strcmp(value->text, "auto");
}

static int read_section(ClusterReader *reader, ClusterSection section, const char *path, const YamlNode *node,
                        void *at) {
  bool given[CLUSTER_MAX_KEYS] = {0};
  if (node->kind != YAML_MAP)
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be a map of keys, not %s",
                     cluster_place(reader, node), *path ? path : "a cluster file", yaml_shown(node, &reader->arena));
  int code = PLAIT_OK;
  for (int i = 0; i < cluster_key_count && !code; i++)
    if (cluster_keys[i].section == section) code = set_default(reader, &cluster_keys[i], at);
  for (int i = 0; i < node->count && !code; i++) {
    const ClusterKey *key = cluster_key_find(section, node->keys[i]->text);
    if (!key) return unknown_key(reader, section, path, node->keys[i]);
    if (is_default(key, node->items[i])) continue; // as if it were not there
    given[key - cluster_keys] = true;
    code = read_key(reader, key, path, node->items[i], at);
  }
  bool numbers = false;
  for (int i = 0; i < cluster_key_count && !code; i++) {
    const ClusterKey *key = &cluster_keys[i];
    if (key->section != section) continue;
    if (!key->fallback && !given[i]) code = missing_key(reader, key, path, node);
    numbers |= given[i] && (key->kind == CLUSTER_REAL || key->kind == CLUSTER_PAIR || key->kind == CLUSTER_TABLE ||
                           key->kind == CLUSTER_KERNELS);
    if (section == CLUSTER_TOP && numbers && !strcmp(key->name, "source") && !given[i])
      code = missing_key(reader, key, path, node); // source is the last of them
  }
  return code;
}

// --- what belongs together -------------------------------------------------------------------------------------------

static int check_names(const Cluster *c, const char *name, Error *error) {
  for (int i = 0; i < c->levels; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(c->level[i].name, c->level[k].name))
        return error_set(error, PLAIT_BAD_INPUT, "%s: two levels are called %s; give them different names", name,
                         c->level[i].name);
  for (int i = 0; i < c->spaces; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(c->space[i].name, c->space[k].name))
        return error_set(error, PLAIT_BAD_INPUT, "%s: two spaces are called %s; there are host and disk", name,
                         c->space[i].name);
  return PLAIT_OK;
}

static int check_islands(const Cluster *c, const char *name, Error *error) {
  int64_t devices = cluster_devices(c), free_from = 0;
  for (int i = 0; i < c->island.count; i++) {
    const IslandFacts *island = &c->island.data[i];
    int64_t last = (int64_t)island->first + island->count - 1;
    if (last >= devices)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s: islands[%d] is devices %d to %lld, but the cluster has %lld, 0 to %lld", name, i,
                       island->first, (long long)last, (long long)devices, (long long)devices - 1);
    if (island->first < free_from)
      return error_set(error, PLAIT_BAD_INPUT, "%s: islands[%d] starts at device %d, but the island before it ends at "
                       "device %lld; islands are in order and do not overlap", name, i, island->first,
                       (long long)free_from - 1);
    free_from = last + 1;
  }
  return PLAIT_OK;
}

static int check_device(const DeviceFacts *device, const char *name, const char *path, Error *error) {
  if (device->reserved < device->memory) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s.reserved is %.15g B, which leaves nothing of the memory of %.15g B",
                   name, path, device->reserved, device->memory);
}

int cluster_check(const Cluster *c, const char *name, Error *error) {
  int64_t devices = 1;
  for (int i = 0; i < c->levels; i++) {
    devices *= c->level[i].count; // cannot overflow: it is small enough before every product
    if (devices > CLUSTER_MAX_DEVICES)
      return error_set(error, PLAIT_BAD_INPUT, "%s: the counts of the levels make %lld devices; at most %d are allowed",
                       name, (long long)devices, CLUSTER_MAX_DEVICES);
  }
  int code = check_names(c, name, error);
  if (!code) code = check_device(&c->device, name, "device", error);
  for (int i = 0; i < c->island.count && !code; i++)
    code = check_device(&c->island.data[i].device, name, "islands: device", error);
  return code ? code : check_islands(c, name, error);
}

// The lines of a table of measurements, here or in a file beside this one. When the devices are known.
typedef int LinesParser(Cluster *cluster, const char *name, int first_line, const char *text, Error *error);
static int read_lines(ClusterReader *reader, const YamlNode *root, const char *key, LinesParser *parse) {
  const YamlNode *node = NULL;
  for (int i = 0; i < root->count; i++)
    if (!strcmp(root->keys[i]->text, key) && !yaml_is_null(root->items[i])) node = root->items[i];
  if (!node) return PLAIT_OK;
  if (node->kind != YAML_SCALAR || !*node->text)
    return error_set(reader->error, PLAIT_BAD_INPUT,
                     "%s: %s must be the path of a CSV file, or its lines, not %s", cluster_place(reader, node), key,
                     yaml_shown(node, &reader->arena));
  if (strchr(node->text, '\n')) // after `measured: |`
    return parse(reader->cluster, reader->name, node->line + 1, node->text, reader->error);
  const char *slash = strrchr(reader->name, '/');
  int folder = slash && node->text[0] != '/' ? (int)(slash - reader->name) + 1 : 0;
  const char *path = arena_format(&reader->arena, "%.*s%s", folder, reader->name, node->text);
  char *text;
  size_t size;
  if (file_is_folder(path))
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s: %s is a folder; it must be a CSV file",
                     cluster_place(reader, node), key, path);
  int code = file_read(path, MEASURED_BYTES, &text, &size, reader->error);
  if (code < 0) return error_prefix(reader->error, "%s: %s", cluster_place(reader, node), key);
  if (strlen(text) != size)
    code = error_set(reader->error, PLAIT_BAD_INPUT, "%s: text with a NUL character is not allowed", path);
  if (!code) code = parse(reader->cluster, path, 1, text, reader->error);
  free(text);
  return code;
}

// A table of kernels must be whole, and that of a CPU must tell of each sort of call.
static int check_kernels(const Cluster *c, const char *name, Error *error) {
  const char *missing = kernel_table_lacks(c);
  if (c->kernel_rows && c->kernel_rows != c->kernel.count)
    return error_set(error, PLAIT_BAD_INPUT, "%s: kernel_rows says that %d kernels were measured, but kernels has %d",
                     name, c->kernel_rows, c->kernel.count);
  if (!devices_share_cores(c) || !missing) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: kernels has no %s, and times of a CPU are known by measurements only",
                   name, missing);
}

// A damaged file that a probe has written can be written anew.
static int say_measure_again(const Cluster *c, const char *text, const char *path, Error *error) {
  char *kept = cluster_machine_path();
  bool is_kept = kept && !strcmp(kept, path);
  free(kept);
  if (is_kept) return error_append(error, "; measure again with plait probe");
  if (!devices_share_cores(c) && !strstr(text, "\nkernels:")) return error->code;
  return error_append(error, "; measure again with plait probe --out %s", path);
}

static int parse(const char *text, size_t size, const char *path, Cluster **out, Error *error) {
  Cluster *cluster = xcalloc(1, sizeof *cluster);
  ClusterReader reader = {.cluster = cluster, .name = path, .positions = true, .error = error};
  YamlNode *root;
  int code = yaml_tree_parse(path, text, size, &reader.arena, &root, error);
  if (!code && yaml_is_null(root))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: holds no keys; a cluster file starts with name, device, levels, …",
                     path);
  cluster->path = arena_strdup(&cluster->arena, path);
  for (int i = 0; i < cluster_key_count && !code; i++) // of software where it is not given
    if (cluster_keys[i].section == CLUSTER_SOFTWARE) code = set_default(&reader, &cluster_keys[i], &cluster->software);
  if (!code) code = read_section(&reader, CLUSTER_TOP, "", root, cluster);
  if (!code) code = cluster_check(cluster, path, error);
  if (!code) code = read_lines(&reader, root, "measured", cluster_measured_parse);
  if (!code) code = read_lines(&reader, root, "kernels", kernel_lines_parse);
  if (!code) code = check_kernels(cluster, path, error);
  if (!code) cluster->table = kernel_table_create(cluster);
  if (code == PLAIT_BAD_INPUT) code = say_measure_again(cluster, text, path, error);
  arena_free(&reader.arena);
  if (code) cluster_free(cluster), cluster = NULL;
  *out = cluster;
  return code;
}

int cluster_parse(const char *text, const char *path, Cluster **out, Error *error) {
  return parse(text, strlen(text), path, out, error);
}

int cluster_load(const char *name, Cluster **out, Error *error) {
  *out = NULL;
  char *path, *text;
  size_t size;
  int code = cluster_find(name, &path, error);
  if (code < 0) return code;
  code = file_read(path, YAML_MAX_BYTES, &text, &size, error);
  if (!code) {
    code = parse(text, size, path, out, error);
    free(text);
  }
  free(path);
  return code;
}

void cluster_free(Cluster *cluster) {
  if (!cluster) return;
  vec_free(&cluster->measured);
  vec_free(&cluster->kernel);
  kernel_table_free(cluster->table);
  vec_free(&cluster->island);
  arena_free(&cluster->arena);
  free(cluster);
}
