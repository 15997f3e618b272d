// The name of this machine, and the file of what was measured of it.
#include "machine/cluster_machine.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/run_lock.h"
#include "device/device.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_BYTES = 16 << 20, LIFE = 30 * 86400 }; // seconds: machines get new kernels and cooling
#define PEAK "# peak "

// As the system says it; "" where it does not.
static void processor(char *out, size_t size) {
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
  processor(model, sizeof model);
  snprintf(text, sizeof text, "%s, %s, %d core%s", *model ? model : "unknown processor", variant ? variant : "portable",
           cores, cores > 1 ? "s" : "");
  return text;
}

char *cluster_machine_path(void) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *below = "";
  uint32_t hash = 2166136261u; // FNV-1a
  for (const unsigned char *c = (const unsigned char *)cluster_machine(); *c; c++) hash = (hash ^ *c) * 16777619u;
  if (!xdg || *xdg != '/') xdg = home, below = "/.cache";
  return xdg && *xdg == '/' ? xformat("%s%s/plait/machine-%08x.yaml", xdg, below, hash) : NULL;
}

// ---- the file ------------------------------------------------------------------------------------------------------

// text: NULL where the file cannot be read. cluster: what stands there after the lines of peaks. lock: of the folder,
// while a process changes the file, since else one of two could forget what the other keeps; -1: it is not locked.
typedef struct Kept { char *path, *text; const char *cluster; int lock; } Kept;

static const char *next_line(const char *line) {
  line += strcspn(line, "\n");
  return line + (*line == '\n');
}

static char *folder_of(const char *path) { return xformat("%.*s", (int)(strrchr(path, '/') - path), path); }

static int take_lock(const char *path) {
  char *folder = folder_of(path);
  int fd = file_open(folder, O_RDONLY | O_DIRECTORY), failed = fd < 0 ? 0 : run_lock_take(fd);
  free(folder);
  return failed ? close(fd), -1 : fd;
}

// Takes over the path, which may be NULL.
static Kept kept_open(char *path, bool locked) {
  Kept k = {.path = path, .cluster = "", .lock = path && locked ? take_lock(path) : -1};
  size_t size;
  Error ignored = {0};
  if (path && !file_read(path, KEPT_BYTES, &k.text, &size, &ignored))
    for (k.cluster = k.text; !strncmp(k.cluster, PEAK, sizeof PEAK - 1);) k.cluster = next_line(k.cluster);
  return k;
}

static void kept_close(Kept *k) {
  if (k->lock >= 0) close(k->lock);
  free(k->path);
  free(k->text);
}

bool cluster_machine_is_measured(void) {
  Kept k = kept_open(cluster_machine_path(), false);
  bool is = k.text ? k.cluster[strspn(k.cluster, " \r\n")] : k.path && file_exists(k.path);
  kept_close(&k);
  return is;
}

int cluster_machine_prepare(char **path, Error *error) {
  *path = cluster_machine_path();
  if (!*path)
    return error_set(error, PLAIT_BAD_INPUT, "neither XDG_CACHE_HOME nor HOME says where measurements can be kept; say "
                                             "where, as in --out here.yaml");
  char *folder = folder_of(*path);
  int code = folder_create(folder, error);
  free(folder);
  return code;
}

int cluster_machine_keep(const Cluster *cluster, Error *error) {
  AtomicFile file;
  char *path;
  int code = cluster_machine_prepare(&path, error);
  Kept k = kept_open(path, !code);
  if (!code) code = file_begin(&file, path, error);
  if (!code) {
    if (k.text) fwrite(k.text, 1, FAULT(probe_forgets_peaks, (size_t)(k.cluster - k.text), 0), file.stream);
    cluster_print_file(cluster, NULL, file.stream);
    code = file_commit(&file, error);
  }
  kept_close(&k);
  return code;
}

// ---- peaks ---------------------------------------------------------------------------------------------------------

// FLOP/s of a line, and whether it has this key; 0: it is damaged, or too old.
static double read_peak(const char *line, const char *key, bool *is) {
  double flops;
  long long then;
  int n = 0;
  if (sscanf(line, PEAK "%lf %lld %n", &flops, &then, &n) != 2 || !n) return 0;
  *is = strcspn(line + n, "\n") == strlen(key) && !strncmp(line + n, key, strlen(key));
  double age = (double)(time(NULL) - then);
  return age >= 0 && age < LIFE ? flops : 0;
}

double cluster_machine_peak(const char *key) {
  Kept k = kept_open(cluster_machine_path(), false);
  double found = 0;
  for (const char *line = k.text; line && line < k.cluster; line = next_line(line)) {
    bool is = false;
    double flops = read_peak(line, key, &is);
    if (is) found = flops;
  }
  kept_close(&k);
  return found;
}

void cluster_machine_keep_peak(const char *key, double flops) {
  Error ignored = {0};
  AtomicFile file;
  char *path;
  Kept k = kept_open(cluster_machine_prepare(&path, &ignored) ? (free(path), NULL) : path, true);
  if (k.lock >= 0 && !file_begin(&file, k.path, &ignored)) {
    for (const char *line = k.text; line && line < k.cluster; line = next_line(line)) {
      bool is = false;
      if (read_peak(line, key, &is) > 0 && !is) fprintf(file.stream, "%.*s\n", (int)strcspn(line, "\n"), line);
    }
    fprintf(file.stream, PEAK "%.17g %lld %s\n%s", flops, (long long)time(NULL), key,
            FAULT(peaks_forget_the_probe, k.cluster, ""));
    file_commit(&file, &ignored);
  }
  kept_close(&k);
}
