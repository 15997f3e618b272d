// Sockets with time limits, for how the ranks of net find and watch each other.
#pragma once
#include "base/error.h"
#include <sys/socket.h>

typedef struct NetAddress {
  struct sockaddr_storage storage; // IPv4 or IPv6
  socklen_t length;
} NetAddress;

// The address of a host, IPv6 with or without brackets; IPv4 before IPv6, and others before loopback. PLAIT_BAD_INPUT:
// there is none.
int net_resolve(const char *host, int port, NetAddress *address, Error *error);
// PLAIT_BAD_INPUT: the host is a name that others are to find, but here it is loopback's, as Debian's /etc/hosts has it
// for a machine's own name (127.0.1.1). Addresses and "localhost" are what the user means.
int net_check_name(const char *host, const NetAddress *address, Error *error);
void net_set_port(NetAddress *address, int port);
int net_port(const NetAddress *address);
int net_is_loopback(const NetAddress *address);
void net_describe_host(const NetAddress *address, char *text, size_t size); // "127.0.0.1", "fe80::1%eth0"
void net_describe(const NetAddress *address, char *text, size_t size); // "127.0.0.1:29500", "[::1]:29500"
// The interface by which this machine reaches an address (which may be its own), as in "lo". 0: it is not known.
int net_interface(const NetAddress *address, char *name, size_t size);

// A socket that listens; port 0: any, which *address has then. Below 0: -errno.
int net_listen(NetAddress *address);
// Below 0: -errno. The deadline is of clock_seconds().
int net_accept(int listener, double deadline);
int net_connect(const NetAddress *address, double deadline);
// Sockets that do not wait: a connection may still be under way (POLLOUT says when it is there, or has failed, which
// net_connect_result tells). Below 0: -errno.
int net_connect_begin(const NetAddress *address);
int net_connect_begin_unix(const char *path);
int net_connect_result(int fd); // 0, or -errno
int net_listen_unix(const char *path);
int net_unix_is_dead(const char *path); // the process that listened there has ended. Whoever listens does not notice
int net_is_own_user(int fd);    // of a Unix socket: the other side is a process of this user
// By which this machine reaches an address. Below 0: -errno.
int net_own_address(const NetAddress *address, NetAddress *own);
int net_ready(int fd, short events, double deadline); // poll's events; 0: not until then
// All the bytes, or 0 if they do not come, or go, until then.
int net_read(int fd, void *data, size_t bytes, double deadline);
int net_write(int fd, const void *data, size_t bytes, double deadline);
