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

enum { KEPT_BYTES = 16 << 20, MOST_PEAKS = 64, LIFE = 30 * 86400 }; // seconds
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

// text: NULL where the file cannot be read. cluster: what stands there after the lines of peaks.
typedef struct Kept { char *path, *text; const char *cluster; } Kept;

static const char *next_line(const char *line) {
  line += strcspn(line, "\n");
  return line + (*line == '\n');
}

static bool is_peak(const char *line) { return !strncmp(line, PEAK, sizeof PEAK - 1); }

static Kept kept_read(void) {
  Kept k = {.path = cluster_machine_path(), .cluster = ""};
  size_t size;
  Error ignored = {0};
  if (!k.path || file_read(k.path, KEPT_BYTES, &k.text, &size, &ignored)) return k.text = NULL, k;
  for (k.cluster = k.text; is_peak(k.cluster);) k.cluster = next_line(k.cluster);
  return k;
}

static void kept_free(Kept *k) {
  free(k->path);
  free(k->text);
}

static char *folder_of(const char *path) { return xformat("%.*s", (int)(strrchr(path, '/') - path), path); }

// The lock of the file's folder, while a process changes the file: else one of two could forget what the other keeps.
// -1: it cannot be had.
static int kept_lock(const char *path) {
  char *folder = folder_of(path);
  int fd = file_open(folder, O_RDONLY | O_DIRECTORY);
  free(folder);
  if (fd < 0 || !run_lock_take(fd)) return fd;
  close(fd);
  return -1;
}

static void kept_unlock(int fd) {
  if (fd >= 0) close(fd);
}

bool cluster_machine_is_measured(void) {
  Kept k = kept_read();
  bool is = k.text ? k.cluster[strspn(k.cluster, " \r\n")] : k.path && file_exists(k.path);
  kept_free(&k);
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
  int code = cluster_machine_prepare(&path, error), lock = code ? -1 : kept_lock(path);
  Kept k = kept_read();
  if (!code) code = file_begin(&file, path, error);
  if (!code) {
    if (k.text) fwrite(k.text, 1, FAULT(probe_forgets_peaks, (size_t)(k.cluster - k.text), 0), file.stream);
    cluster_print_file(cluster, NULL, file.stream);
    code = file_commit(&file, error);
  }
  kept_unlock(lock);
  kept_free(&k);
  free(path);
  return code;
}

// ---- peaks ---------------------------------------------------------------------------------------------------------

typedef struct Peak { double flops; long long time; const char *key; } Peak; // key: to the end of its line

static bool read_peak(const char *line, Peak *out) {
  int n = 0;
  if (!is_peak(line) || sscanf(line, PEAK "%lf %lld %n", &out->flops, &out->time, &n) != 2 || !n) return false;
  return out->key = line + n, true;
}

static bool has_key(const Peak *p, const char *key) {
  size_t n = strlen(key);
  return !strncmp(p->key, key, n) && (p->key[n] == '\n' || !p->key[n]);
}

double cluster_machine_peak(const char *key) {
  Kept k = kept_read();
  Peak p;
  double flops = 0;
  for (const char *line = k.text; line && line < k.cluster; line = next_line(line)) {
    double age = read_peak(line, &p) && has_key(&p, key) ? (double)(time(NULL) - p.time) : -1;
    if (age >= 0 && age < LIFE) flops = p.flops;
  }
  kept_free(&k);
  return flops;
}

void cluster_machine_keep_peak(const char *key, double flops) {
  Error ignored = {0};
  AtomicFile file;
  Peak p;
  char *path;
  int lock = cluster_machine_prepare(&path, &ignored) ? -1 : kept_lock(path), peaks = 1;
  Kept k = kept_read();
  if (lock >= 0 && !file_begin(&file, path, &ignored)) {
    for (const char *line = k.text; line && line < k.cluster; line = next_line(line)) peaks++;
    for (const char *line = k.text; line && line < k.cluster; line = next_line(line))
      if (peaks-- <= MOST_PEAKS && read_peak(line, &p) && !has_key(&p, key))
        fprintf(file.stream, "%.*s\n", (int)strcspn(line, "\n"), line);
    fprintf(file.stream, PEAK "%.17g %lld %s\n%s", flops, (long long)time(NULL), key,
            FAULT(peaks_forget_the_probe, k.cluster, ""));
    file_commit(&file, &ignored);
  }
  kept_unlock(lock);
  kept_free(&k);
  free(path);
}
