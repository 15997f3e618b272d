// Looking for a free port.
#include "elastic/port.h"
#include "net/socket.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_PORT = 20000, PORTS = 12000, BEHIND = 5003 }; // below the ports that systems give out by themselves

// The first free port of a row that begins at a place and comes round.
static int look_from(const char *address, unsigned start) {
  for (int i = 0; i < 100; i++) {
    int port = FIRST_PORT + (int)((start + 37u * (unsigned)i) % PORTS);
    NetAddress at;
    if (net_resolve(address, port, &at, NULL)) break;
    int fd = net_listen(&at);
    if (fd >= 0) return close(fd), port;
  }
  return FIRST_PORT + (int)(start % PORTS);
}

int port_free(const char *address, const char *seed) {
  size_t length = strlen(seed);
  return look_from(address, (unsigned)strtoul(length > 8 ? seed + length - 8 : seed, NULL, 16));
}

int port_after(const char *address, int port) { return look_from(address, (unsigned)(port - FIRST_PORT + BEHIND)); }
