// Cluster files by name: in $PLAIT_CLUSTERS, in the repository that the binary or an example was built in, beside an
// installed binary, or where plait was configured to be installed.
#include "machine/cluster_find.h"
#include "base/file.h"
#include "base/nearest.h"
#include "machine/cluster.h"
#include "machine/cluster_machine.h"
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PLAIT_DATA
#define PLAIT_DATA "/usr/local/share/plait"
#endif

enum { FOLDERS = 2 };

// The folder of the running program, "" where it cannot be told.
static void program_folder(char *out, size_t size) {
  ssize_t n = readlink("/proc/self/exe", out, size - 1);
  out[n > 0 ? n : 0] = 0;
  char *slash = strrchr(out, '/');
  if (slash) *slash = 0;
}

// The folders that have cluster files, at most FOLDERS: that of the user, and the first of plait's own that is there.
// The caller frees them.
static int folders(char *out[FOLDERS]) {
  static const char *const beside[] = {"clusters", "../clusters", "../share/plait/clusters", "../../clusters"};
  int count = 0;
  const char *own = getenv("PLAIT_CLUSTERS");
  if (own && *own) out[count++] = xstrdup(own);
  char program[PATH_MAX];
  program_folder(program, sizeof program);
  for (size_t i = 0; *program && i < sizeof beside / sizeof *beside; i++) {
    char *path = xformat("%s/%s", program, beside[i]);
    if (file_is_folder(path)) return out[count++] = path, count;
    free(path);
  }
  if (file_is_folder(PLAIT_DATA "/clusters")) out[count++] = xstrdup(PLAIT_DATA "/clusters");
  return count;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void add_name(ClusterList *list, const char *file) {
  size_t n = strlen(file);
  if (n <= 5 || strcmp(file + n - 5, ".yaml") || *file == '.') return;
  for (int i = 0; i < list->count; i++)
    if (strlen(list->names[i]) == n - 5 && !strncmp(list->names[i], file, n - 5)) return;
  list->names = xrealloc(list->names, sizeof *list->names * ((size_t)list->count + 1));
  list->names[list->count++] = xformat("%.*s", (int)(n - 5), file);
}

ClusterList cluster_list(void) {
  ClusterList list = {0};
  char *folder[FOLDERS];
  int count = folders(folder);
  for (int i = 0; i < count; i++) {
    DIR *dir = opendir(folder[i]);
    for (struct dirent *entry; dir && (entry = readdir(dir));) add_name(&list, entry->d_name);
    if (dir) closedir(dir);
    free(folder[i]);
  }
  if (list.count) qsort(list.names, (size_t)list.count, sizeof *list.names, by_name);
  return list;
}

void cluster_list_free(ClusterList *list) {
  for (int i = 0; i < list->count; i++) free(list->names[i]);
  free(list->names);
  *list = (ClusterList){0};
}

void cluster_names(char *text, size_t size) {
  ClusterList list = cluster_list();
  *text = 0;
  for (int i = 0; i < list.count; i++) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", i ? ", " : "", list.names[i]);
  }
  cluster_list_free(&list);
}

static int not_found(const char *name, Error *error) {
  ClusterList list = cluster_list();
  char names[512];
  cluster_names(names, sizeof names);
  const char *nearest = nearest_word(name, (const char *const *)list.names, list.count);
  int code = list.count
                 ? error_set(error, PLAIT_BAD_INPUT,
                             "\"%.100s\" is neither a file nor a cluster that comes with plait; those are %s%s%s%s",
                             name, names, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "")
                 : error_set(error, PLAIT_BAD_INPUT,
                             "\"%.100s\" is not a file, and plait's own cluster files are "
                             "not installed; set PLAIT_CLUSTERS to the folder that has them",
                             name);
  cluster_list_free(&list);
  return code;
}

int cluster_find(const char *name, char **path, Error *error) {
  *path = NULL;
  if (!strcmp(name, "probe")) {
    *path = cluster_machine_path();
    if (*path && cluster_machine_is_measured()) return PLAIT_OK;
    free(*path);
    *path = NULL;
    return error_set(error, PLAIT_BAD_INPUT, "this machine has not been measured yet; run plait probe");
  }
  if (file_is_folder(name) && strchr(name, '/'))
    return error_set(error, PLAIT_BAD_INPUT, "%s is a folder; a cluster is a YAML file", name);
  if (file_exists(name) && !file_is_folder(name)) return *path = xstrdup(name), PLAIT_OK;
  char *folder[FOLDERS];
  int count = *name && !strchr(name, '/') ? folders(folder) : 0;
  for (int i = 0; i < count; i++) {
    char *candidate = xformat("%s/%s.yaml", folder[i], name);
    if (!*path && file_exists(candidate)) *path = realpath(candidate, NULL); // without ..
    free(candidate);
    free(folder[i]);
  }
  if (*path) return PLAIT_OK;
  return strchr(name, '/') ? error_set(error, PLAIT_BAD_INPUT, "%s: there is no such file", name)
                           : not_found(name, error);
}
