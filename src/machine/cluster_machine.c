// The name of this machine, and the cache of what was measured of it.
#include "machine/cluster_machine.h"
#include "base/cores.h"
#include "device/device.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cluster_machine_processor(char *out, size_t size) {
  char line[512];
  FILE *in = fopen("/proc/cpuinfo", "re");
  *out = 0;
  while (in && fgets(line, sizeof line, in)) {
    const char *colon = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
    if (!colon) continue;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    break;
  }
  if (in) fclose(in);
}

const char *cluster_machine(void) {
  static char text[192];
  char model[96];
  int cores = cores_available();
  const char *variant = device_cpu()->variant;
  cluster_machine_processor(model, sizeof model);
  snprintf(text, sizeof text, "%s, %s, %d core%s", *model ? model : "unknown processor", variant ? variant : "portable",
           cores, cores > 1 ? "s" : "");
  return text;
}

char *cluster_machine_cache(const char *name) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (xdg && *xdg == '/') return xformat("%s/plait/%s", xdg, name);
  return home && *home == '/' ? xformat("%s/.cache/plait/%s", home, name) : NULL;
}

char *cluster_machine_path(void) {
  char name[32];
  uint32_t hash = 2166136261u; // FNV-1a: homes may be shared by machines
  for (const unsigned char *c = (const unsigned char *)cluster_machine(); *c; c++) hash = (hash ^ *c) * 16777619u;
  snprintf(name, sizeof name, "probe-%08x.yaml", hash);
  return cluster_machine_cache(name);
}
