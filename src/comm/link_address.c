// Addresses of ranks, and folders for Unix sockets.
#include "comm/link_address.h"
#include "base/fault.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "plait-wire-", name[] = "/socket";

bool link_address_is_valid(const LinkAddress *a) {
  bool is_text = memchr(a->path, 0, sizeof a->path) != NULL, has_port = a->port > 0 && a->port <= UINT16_MAX;
  bool is_tcp = (a->family == 4 || a->family == 6) && has_port, is_none = !a->family && !a->port;
  return is_text && (!*a->path || *a->path == '/') && (is_tcp || is_none) && !a->zero;
}

void link_address_set(LinkAddress *a, const NetAddress *tcp) {
  a->port = (uint32_t)net_port(tcp);
  if (tcp->storage.ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const void *)&tcp->storage;
    a->family = 4;
    memcpy(a->host, &v4->sin_addr, sizeof v4->sin_addr);
    return;
  }
  const struct sockaddr_in6 *v6 = (const void *)&tcp->storage;
  a->family = 6;
  a->scope = v6->sin6_scope_id;
  memcpy(a->host, &v6->sin6_addr, sizeof v6->sin6_addr);
}

NetAddress link_address_get(const LinkAddress *a) {
  NetAddress to = {0};
  if (a->family == 4) {
    struct sockaddr_in *v4 = (void *)&to.storage;
    v4->sin_family = AF_INET;
    memcpy(&v4->sin_addr, a->host, sizeof v4->sin_addr);
    to.length = sizeof *v4;
  } else {
    struct sockaddr_in6 *v6 = (void *)&to.storage;
    v6->sin6_family = AF_INET6;
    memcpy(&v6->sin6_addr, a->host, sizeof v6->sin6_addr);
    to.length = sizeof *v6;
  }
  net_set_port(&to, (int)a->port);
  return to;
}

// Folders ------------------------------------------------------------------------------------------------------------

// Where folders are made: short enough for the path of a socket.
static const char *base(void) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  struct stat s;
  bool is_good = runtime && *runtime == '/' && strlen(runtime) < 64 && !stat(runtime, &s) && S_ISDIR(s.st_mode) &&
                 s.st_uid == geteuid() && !access(runtime, W_OK);
  return is_good ? runtime : "/tmp";
}

void link_folder_remove(const char *path) {
  char folder[LINK_PATH];
  if (!*path) return;
  unlink(path);
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  rmdir(folder);
}

// Removes the folders of processes that have died: nobody accepts at their sockets. A folder whose socket has no name
// yet belongs to a process that is starting, and stays.
static void remove_dead(const char *at) {
  DIR *all = opendir(at);
  for (struct dirent *e; all && (e = readdir(all));) {
    char path[LINK_PATH];
    struct stat s;
    if (strncmp(e->d_name, prefix, sizeof prefix - 1) ||
        snprintf(path, sizeof path, "%s/%.40s", at, e->d_name) >= (int)sizeof path || lstat(path, &s) ||
        !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || strlen(path) + sizeof name > sizeof path)
      continue;
    strcat(path, name);
    if (net_unix_is_dead(path)) link_folder_remove(path);
  }
  if (all) closedir(all);
}

// The socket gets its name when it listens, so that nobody takes it for a dead one's.
int link_folder_listen(char path[LINK_PATH]) {
  char folder[LINK_PATH], early[LINK_PATH];
  remove_dead(base());
  snprintf(folder, sizeof folder, "%s/%sXXXXXX", base(), prefix);
  *path = 0;
  if (!mkdtemp(folder)) return -errno; // of mode 0700
  snprintf(early, sizeof early, "%.90s/begun", folder);
  int fd = net_listen_unix(early), code = fd;
  if (fd >= 0) snprintf(path, LINK_PATH, "%.90s%s", folder, name);
  if (fd >= 0 && rename(early, path)) code = -errno, close(fd);
  if (code >= 0) return fd;
  unlink(early);
  rmdir(folder);
  *path = 0;
  return code;
}
