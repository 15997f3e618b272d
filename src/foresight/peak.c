// The measured peak and its cache, a small JSON file: {"peaks": [{"key": …, "flops": …, "time": …}, …]}, newest last.
#include "foresight/peak.h"
#include "base/file.h"
#include "base/cores.h"
#include "machine/cluster_machine.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, MOST_ENTRIES = 64, LIFE = 30 * 86400 }; // seconds: machines get new kernels and cooling

static char *key_of(const Device *device, Dtype dtype, int threads, int processes) {
  char host[80] = "", model[256], together[40] = "";
  if (gethostname(host, sizeof host - 1)) *host = 0;
  cluster_machine_processor(model, sizeof model);
  if (processes > 1) snprintf(together, sizeof together, ", %d processes", processes);
  return xformat("%s, %s, %d cores; plait %s, %s %s, %s, %d threads%s", host, model, cores_available(), PLAIT_VERSION,
                 device->name, device->variant ? device->variant : "", dtype_name(dtype), threads, together);
}

static json_t *read_entries(const char *path) {
  char *text = NULL;
  size_t size = 0;
  Error ignored = {0};
  json_t *root = NULL, *entries = NULL;
  if (!file_read(path, MOST_BYTES, &text, &size, &ignored)) root = json_loadb(text, size, 0, NULL);
  free(text);
  if (json_is_array(json_object_get(root, "peaks"))) entries = json_incref(json_object_get(root, "peaks"));
  json_decref(root);
  return entries ? entries : json_array();
}

static double find(const json_t *entries, const char *key) {
  size_t i;
  json_t *entry;
  double now = (double)time(NULL), flops = 0;
  json_array_foreach(entries, i, entry) {
    const char *name = json_string_value(json_object_get(entry, "key"));
    double age = now - json_number_value(json_object_get(entry, "time"));
    if (name && !strcmp(name, key) && age >= 0 && age < LIFE)
      flops = json_number_value(json_object_get(entry, "flops"));
  }
  return flops;
}

// Without its own entry of before, and the oldest where there are too many. A failure is not an error: the speed is
// measured again.
static void remember(const char *path, json_t *entries, const char *key, double flops) {
  Error ignored = {0};
  char *folder = xstrdup(path);
  *strrchr(folder, '/') = 0;
  for (size_t i = json_array_size(entries); i--;) {
    const char *name = json_string_value(json_object_get(json_array_get(entries, i), "key"));
    if (!name || !strcmp(name, key)) json_array_remove(entries, i);
  }
  while (json_array_size(entries) >= MOST_ENTRIES) json_array_remove(entries, 0);
  json_array_append_new(entries,
                        json_pack("{s:s, s:f, s:I}", "key", key, "flops", flops, "time", (json_int_t)time(NULL)));
  AtomicFile file;
  int code = folder_create(folder, &ignored);
  free(folder);
  if (code || file_begin(&file, path, &ignored)) return;
  json_t *root = json_pack("{s:O}", "peaks", entries);
  json_dumpf(root, file.stream, JSON_INDENT(1));
  json_decref(root);
  file_commit(&file, &ignored);
}

static double measure(const Device *device, Dtype dtype, int threads) {
  Team *team;
  if (team_create(threads, &team, NULL)) return 0; // refused: the ranks will say why
  double flops = device->peak_flops(device, dtype, team);
  team_destroy(team);
  return flops;
}

static double peak(const Device *device, Dtype dtype, int threads, int processes, bool again) {
  if (threads > cores_available()) threads = cores_available();
  char *path = cluster_machine_cache("peaks.json"), *key = key_of(device, dtype, threads, processes);
  json_t *entries = path ? read_entries(path) : NULL;
  double known = entries ? find(entries, key) : 0,
         measured = again || !(known > 0) ? measure(device, dtype, threads) : 0;
  if (entries && measured > known) remember(path, entries, key, measured);
  json_decref(entries);
  free(key);
  free(path);
  return measured > known ? measured : known;
}

double peak_flops(const Device *device, Dtype dtype, int threads, int processes) {
  return peak(device, dtype, threads, processes, false);
}

double peak_flops_again(const Device *device, Dtype dtype, int threads, int processes) {
  return peak(device, dtype, threads, processes, true);
}
