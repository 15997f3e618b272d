// Looking for a free port.
#include "elastic/port.h"
#include "comm/net_socket.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_PORT = 20000, PORTS = 12000 }; // below the ports that systems give out by themselves

int port_free(const char *address, const char *seed) {
  size_t length = strlen(seed);
  unsigned start = (unsigned)strtoul(length > 8 ? seed + length - 8 : seed, NULL, 16);
  for (int i = 0; i < 100; i++) {
    int port = FIRST_PORT + (int)((start + 37u * (unsigned)i) % PORTS);
    NetAddress at;
    if (net_resolve(address, port, &at, NULL)) break;
    int fd = net_listen(&at);
    if (fd >= 0) return close(fd), port;
  }
  return FIRST_PORT + (int)(start % PORTS);
}
