// Reads RssAnon and MemAvailable from /proc with plain read(), so that measuring memory allocates none.
#include "base/memory_usage.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The number of kilobytes after "KEY:" in a file of /proc, in bytes.
static int64_t kilobytes_of(const char *path, const char *key) {
  char text[8192];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t n = 0;
  for (ssize_t got; n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
  close(fd);
  text[n] = 0;
  const char *found = strstr(text, key);
  if (!found) return -1;
  found += strlen(key);
  while (isspace((unsigned char)*found)) found++;
  return isdigit((unsigned char)*found) ? (int64_t)strtoll(found, NULL, 10) * 1024 : -1;
}

int64_t memory_usage_anonymous(void) { return kilobytes_of("/proc/self/status", "\nRssAnon:"); }

int64_t memory_usage_available(void) { return kilobytes_of("/proc/meminfo", "\nMemAvailable:"); }
