// Looks for the interfaces that --iface names, since UCX finds none of them only when ranks meet, and says little.
#include "cmd/launch_interface.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char network[] = "/sys/class/net", infiniband[] = "/sys/class/infiniband";

static int is_there(const char *folder, const char *name, size_t length) {
  char path[300];
  snprintf(path, sizeof path, "%s/%.*s", folder, (int)length, name);
  return length && !memchr(name, '/', length) && access(path, F_OK) == 0;
}

// "eth0, lo"
static void list_all(char *text, size_t size) {
  *text = 0;
  for (int i = 0; i < 2; i++) {
    DIR *d = opendir(i ? infiniband : network);
    for (struct dirent *e; d && (e = readdir(d));) {
      size_t n = strlen(text);
      if (e->d_name[0] != '.') snprintf(text + n, size - n, "%s%s", n ? ", " : "", e->d_name);
    }
    if (d) closedir(d);
  }
}

int launch_check_interfaces(const char *list, Error *error) {
  char have[400];
  if (access(network, R_OK)) return PLAIT_OK; // nobody can say
  for (const char *word = list;; word++) {
    size_t n = strcspn(word, ","), name = strcspn(word, ",:");
    int pattern = strcspn(word, "*?[^") < n, all = n == 3 && !strncmp(word, "all", 3);
    if (!pattern && !all && !is_there(network, word, n) && !is_there(infiniband, word, name)) {
      list_all(have, sizeof have);
      return error_set(error, PLAIT_BAD_INPUT, "--iface: this machine has no network interface \"%.*s\"; it has %s",
                       n > 40 ? 40 : (int)n, word, have);
    }
    word += n;
    if (!*word) return PLAIT_OK;
  }
}
