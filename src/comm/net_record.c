// Checks what other ranks say of themselves, before anything of it is used.
#include "comm/net_record.h"
#include "base/fault.h"
#include <string.h>

static bool is_text(const char *data, size_t size) { return memchr(data, 0, size) != NULL; }

bool place_is_valid(const void *data, size_t bytes) {
  const NetPlace *p = data;
  return bytes == sizeof *p && is_text(p->host, sizeof p->host) && is_text(p->boot, sizeof p->boot) &&
         p->wire <= NET_WIRE_MIXED && p->has_ucx <= 1;
}

static bool are_same_system(const NetPlace *a, const NetPlace *b) {
  return *a->boot && !strcmp(a->boot, b->boot) && !strcmp(a->host, b->host);
}

bool places_share_memory(const NetPlace *a, const NetPlace *b) {
  bool same_spaces = a->processes && a->processes == b->processes && a->segments && a->segments == b->segments;
  return are_same_system(a, b) && FAULT(containers_share_memory, same_spaces, true);
}

bool places_share_files(const NetPlace *a, const NetPlace *b) {
  bool same_files = a->files && a->files == b->files && a->user == b->user;
  return are_same_system(a, b) && FAULT(containers_share_files, same_files, true);
}

NetCarrier carrier_between(const NetPlace *a, int rank, const NetPlace *b, int other) {
  if (a->wire == NET_WIRE_UCX) return CARRIER_UCX;
  if (rank == other) return CARRIER_SELF;
  if (a->wire == NET_WIRE_TCP || (a->wire == NET_WIRE_MIXED && (rank + other) % 2)) return CARRIER_TCP;
  bool by_memory = a->wire != NET_WIRE_SOCKETS && a->has_ucx && b->has_ucx;
  if (by_memory && places_share_memory(a, b)) return CARRIER_UCX;
  return places_share_files(a, b) ? CARRIER_UNIX : CARRIER_TCP;
}

bool record_is_valid(const void *data, size_t bytes) {
  const Record *r = data;
  if (bytes < sizeof *r || r->address_bytes != bytes - sizeof *r) return false;
  return r->watch_port <= UINT16_MAX && is_text(r->host, sizeof r->host) && is_text(r->boot, sizeof r->boot) &&
         link_address_is_valid(&r->link);
}

bool record_same_machine(const Record *a, const Record *b) {
  return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot);
}

bool record_has(const Record *r, NetCarrier carrier) {
  switch (carrier) {
  case CARRIER_UCX: return FAULT(records_may_lack_an_address, r->address_bytes > 0, true);
  case CARRIER_UNIX: return *r->link.path != 0;
  case CARRIER_TCP: return r->link.port > 0;
  case CARRIER_SELF: break;
  }
  return true;
}
