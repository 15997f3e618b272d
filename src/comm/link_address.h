// Where a rank listens for others (net_links.h): a Unix socket for those of its machine, a TCP port for the rest.
#pragma once
#include "net/socket.h"
#include <stdbool.h>
#include <stdint.h>

enum { LINK_PATH = 104 };

// As a rank says it to the others. All zero: it listens nowhere.
typedef struct LinkAddress {
  uint32_t family, port, scope, zero; // 4 or 6 of IP; 0: no TCP port
  unsigned char host[16];             // of which IPv4 has 4
  char path[LINK_PATH];               // of the Unix socket; empty: there is none
} LinkAddress;

bool link_address_is_valid(const LinkAddress *address); // of one that has come: the path ends, and begins at the root
void link_address_set(LinkAddress *address, const NetAddress *tcp);
NetAddress link_address_get(const LinkAddress *address); // with a TCP port

// A folder for a socket that only this user can enter, below $XDG_RUNTIME_DIR, or else /tmp. Removes those of dead
// processes first. *path: of the socket. Below 0: -errno. Else a socket that listens there.
int link_folder_listen(char path[LINK_PATH]);
void link_folder_remove(const char *path); // the socket and its folder
