// Reads /proc and control groups with plain read(), so that measuring memory allocates next to none.
#include "base/memory_usage.h"
#include "base/control_group.h"
#include "base/file.h"
#include "base/units.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// The number of kilobytes after "KEY:" in a file of /proc, in bytes.
static int64_t kilobytes_of(const char *path, const char *key) {
  char text[8192];
  file_peek(path, text, sizeof text);
  const char *found = strstr(text, key);
  if (!found) return -1;
  found += strlen(key);
  while (isspace((unsigned char)*found)) found++;
  return isdigit((unsigned char)*found) ? (int64_t)strtoll(found, NULL, 10) * 1024 : -1;
}

int64_t memory_usage_anonymous(void) { return kilobytes_of("/proc/self/status", "\nRssAnon:"); }

// cache: keys of memory.stat; what they count the kernel gives back before it refuses memory
static const struct {
  const char *limit, *used, *cache[3];
} files[] = {[1] = {"memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}},
             [2] = {"memory.max", "memory.current", {"active_file", "inactive_file", "slab_reclaimable"}}};

// The bytes left in a group; -1 where it has no limit, for which version 1 has a number beyond all memory.
static int64_t left_in(const ControlGroup *g, int64_t *limit) {
  *limit = control_group_number(g, files[g->version].limit, NULL);
  if (*limit < 0 || *limit > (int64_t)1 << 60) return -1;
  int64_t left = *limit, used = control_group_number(g, files[g->version].used, NULL);
  if (used > 0) left -= used;
  for (int i = 0; i < 3 && files[g->version].cache[i]; i++) {
    int64_t cache = control_group_number(g, "memory.stat", files[g->version].cache[i]);
    if (cache > 0) left += cache;
  }
  return left < 0 ? 0 : left < *limit ? left : *limit;
}

// In version 1 a group may leave the groups below it out of account.
static int up(ControlGroup *g) {
  return control_group_up(g) && (g->version == 2 || control_group_number(g, "memory.use_hierarchy", NULL) != 0);
}

MemoryAvailable memory_usage_available_in(const char *root) {
  char path[CONTROL_GROUP_PATH];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  MemoryAvailable m = {.bytes = kilobytes_of(path, "\nMemAvailable:")};
  int64_t least = -1, limit;
  ControlGroup g;
  for (int more = control_group_find(root, "memory", &g); more; more = up(&g)) {
    int64_t left = left_in(&g, &limit);
    if (left < 0 || (least >= 0 && left >= least)) continue;
    least = left;
    m.limit = limit;
    if (m.bytes >= 0 && least >= m.bytes) continue;
    const char *name = control_group_name(&g);
    int container = !strcmp(name, "/"); // the group at the mount point has a limit in a container only
    snprintf(m.why, sizeof m.why, " under the limit of %s of %s%.80s", units_bytes((double)limit).s,
             container ? "this container" : "control group ", container ? "" : name);
  }
  if (least >= 0 && (m.bytes < 0 || least < m.bytes)) m.bytes = least;
  return m;
}

int64_t memory_usage_available(void) { return memory_usage_available_in("").bytes; }
