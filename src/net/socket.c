// Sockets with time limits.
#include "net/socket.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/fault.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *address) {
  if (address->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

int net_resolve(const char *host, int port, NetAddress *address, Error *error) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
  Endpoint bare;
  if (*host == '[' && endpoint_parse(host, strlen(host), false, &bare) && !bare.port) host = bare.host;
  int status = getaddrinfo(host, NULL, &hints, &found);
  if (status) {
    hints.ai_family = AF_INET6;
    status = getaddrinfo(host, NULL, &hints, &found);
  }
  if (status)
    return error_set(error, PLAIT_BAD_INPUT, "%.200s has no address: %s", host, gai_strerror(status));
  const struct addrinfo *chosen = found;
  while (chosen && is_loopback(chosen->ai_addr)) chosen = chosen->ai_next;
  if (!chosen) chosen = found;
  memset(address, 0, sizeof *address);
  memcpy(&address->storage, chosen->ai_addr, chosen->ai_addrlen);
  address->length = chosen->ai_addrlen;
  freeaddrinfo(found);
  net_set_port(address, port);
  return PLAIT_OK;
}

int net_check_name(const char *host, const NetAddress *address, Error *error) {
  unsigned char number[16];
  char text[ENDPOINT_HOST];
  bool is_meant =
      !strcmp(host, "localhost") || *host == '[' || strchr(host, ':') || inet_pton(AF_INET, host, number) > 0;
  if (FAULT(loopback_is_waited_at, is_meant || !net_is_loopback(address), true)) return PLAIT_OK;
  net_describe_host(address, text, sizeof text);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%.100s is %s on this machine, where no other machine can reach it; give the address by which others "
      "reach it, or take the line with %.100s out of /etc/hosts (127.0.0.1, if all run on this machine)",
      host, text, host);
}

static struct sockaddr_in *v4(const NetAddress *a) { return (struct sockaddr_in *)(uintptr_t)&a->storage; }
static struct sockaddr_in6 *v6(const NetAddress *a) { return (struct sockaddr_in6 *)(uintptr_t)&a->storage; }
static int is_v4(const NetAddress *a) { return a->storage.ss_family == AF_INET; }

void net_set_port(NetAddress *address, int port) {
  if (is_v4(address)) v4(address)->sin_port = htons((uint16_t)port);
  else v6(address)->sin6_port = htons((uint16_t)port);
}

int net_port(const NetAddress *address) {
  return ntohs(is_v4(address) ? v4(address)->sin_port : v6(address)->sin6_port);
}

int net_is_loopback(const NetAddress *address) {
  return is_loopback((const struct sockaddr *)&address->storage);
}

void net_describe_host(const NetAddress *address, char *text, size_t size) {
  char host[ENDPOINT_HOST] = "";
  getnameinfo((const struct sockaddr *)&address->storage, address->length, host, sizeof host, NULL, 0, NI_NUMERICHOST);
  snprintf(text, size, "%s", host);
}

void net_describe(const NetAddress *address, char *text, size_t size) {
  char host[ENDPOINT_HOST], whole[ENDPOINT_TEXT];
  net_describe_host(address, host, sizeof host);
  snprintf(text, size, "%s", endpoint_print(host, net_port(address), whole));
}

static int same_host(const NetAddress *a, const struct sockaddr *b) {
  if (!b || b->sa_family != a->storage.ss_family) return 0;
  if (is_v4(a)) return v4(a)->sin_addr.s_addr == ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
  return !memcmp(&v6(a)->sin6_addr, &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16);
}

// A datagram socket that is connected has chosen its interface, and nothing was sent.
int net_own_address(const NetAddress *address, NetAddress *own) {
  int fd = socket(address->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), code = 0;
  if (fd < 0) return -errno;
  *own = (NetAddress){.length = sizeof own->storage};
  if (connect(fd, (const struct sockaddr *)&address->storage, address->length) ||
      getsockname(fd, (struct sockaddr *)&own->storage, &own->length))
    code = -errno;
  close(fd);
  return code;
}

int net_interface(const NetAddress *address, char *name, size_t size) {
  NetAddress own;
  struct ifaddrs *list = NULL;
  int found = 0;
  if (net_own_address(address, &own) < 0) return 0;
  if (!getifaddrs(&list))
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
      if (same_host(&own, i->ifa_addr)) found = snprintf(name, size, "%s", i->ifa_name) < (int)size;
  if (!found && net_is_loopback(&own)) { // 127.0.0.2 is nobody's in the list
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
      if (i->ifa_flags & IFF_LOOPBACK) found = snprintf(name, size, "%s", i->ifa_name) < (int)size;
  }
  if (list) freeifaddrs(list);
  return found;
}

int net_listen(NetAddress *address) {
  int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
  if (fd < 0) return -errno;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (const struct sockaddr *)&address->storage, address->length) || listen(fd, 4096) ||
      getsockname(fd, (struct sockaddr *)&address->storage, &address->length)) {
    int code = -errno;
    close(fd);
    return code;
  }
  return fd;
}

int net_ready(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline - clock_seconds();
    struct pollfd p = {fd, events, 0};
    int n = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
    if (n > 0) return 1;
    if (n == 0 && left <= 0) return 0;
    if (n < 0 && errno != EINTR) return 0;
  }
}

static int prepare(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

int net_accept(int listener, double deadline) {
  while (net_ready(listener, POLLIN, deadline)) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return prepare(fd);
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return -errno;
  }
  return -ETIMEDOUT;
}

static int connect_begin(const struct sockaddr *to, socklen_t length) {
  int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code = 0;
  if (fd < 0) return -errno;
  if (connect(fd, to, length) && errno != EINPROGRESS) code = -errno;
  if (!code) return prepare(fd);
  close(fd);
  return code;
}

int net_connect_begin(const NetAddress *address) {
  return connect_begin((const struct sockaddr *)&address->storage, address->length);
}

int net_connect_result(int fd) {
  int problem = 0;
  socklen_t length = sizeof problem;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length);
  return -problem;
}

int net_connect(const NetAddress *address, double deadline) {
  int fd = net_connect_begin(address);
  if (fd < 0) return fd;
  int code = net_ready(fd, POLLOUT, deadline) ? net_connect_result(fd) : -ETIMEDOUT;
  if (!code) return fd;
  close(fd);
  return code;
}

static int unix_address(const char *path, struct sockaddr_un *at) {
  *at = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof at->sun_path) return -ENAMETOOLONG;
  strcpy(at->sun_path, path);
  return 0;
}

int net_connect_begin_unix(const char *path) {
  struct sockaddr_un at;
  int code = unix_address(path, &at);
  return code ? code : connect_begin((const struct sockaddr *)&at, sizeof at);
}

int net_listen_unix(const char *path) {
  struct sockaddr_un at;
  int code = unix_address(path, &at), fd = code ? code : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return code ? code : -errno;
  if (!bind(fd, (const struct sockaddr *)&at, sizeof at) && !listen(fd, 4096)) return fd;
  code = -errno;
  close(fd);
  return code;
}

// A socket of another kind cannot be connected to what is alive, but the system looks first whether it is.
int net_unix_is_dead(const char *path) {
  struct sockaddr_un at;
  int fd = unix_address(path, &at) ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), dead = 0;
  if (fd < 0) return 0;
  dead = connect(fd, (const struct sockaddr *)&at, sizeof at) && errno == ECONNREFUSED;
  close(fd);
  return dead;
}

int net_is_own_user(int fd) {
  struct ucred other;
  socklen_t length = sizeof other;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) && other.uid == geteuid();
}

int net_read(int fd, void *data, size_t bytes, double deadline) {
  for (char *at = data; bytes;) {
    ssize_t n = recv(fd, at, bytes, 0);
    if (n > 0) at += n, bytes -= (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !net_ready(fd, POLLIN, deadline)) return 0;
  }
  return 1;
}

int net_write(int fd, const void *data, size_t bytes, double deadline) {
  for (const char *at = data; bytes;) {
    ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n >= 0) at += n, bytes -= (size_t)n;
    else if ((errno != EAGAIN && errno != EINTR) || !net_ready(fd, POLLOUT, deadline)) return 0;
  }
  return 1;
}
