// Checks what other ranks say of themselves, before anything of it is used.
#include "comm/net_record.h"
#include "base/fault.h"
#include <string.h>

static bool is_text(const char *data, size_t size) { return memchr(data, 0, size) != NULL; }

bool place_is_valid(const void *data, size_t bytes) {
  const Place *p = data;
  return bytes == sizeof *p && is_text(p->host, sizeof p->host) && is_text(p->boot, sizeof p->boot);
}

bool places_share_memory(const Place *a, const Place *b) {
  bool same_system = *a->boot && !strcmp(a->boot, b->boot) && !strcmp(a->host, b->host);
  bool same_spaces = a->processes && a->processes == b->processes && a->segments && a->segments == b->segments;
  return same_system && FAULT(containers_share_memory, same_spaces, true);
}

bool record_is_valid(const void *data, size_t bytes) {
  const Record *r = data;
  if (bytes < sizeof *r || r->address_bytes != bytes - sizeof *r) return false;
  bool is_address = FAULT(records_may_lack_an_address, r->address_bytes > 0, true);
  return is_address && r->watch_port <= UINT16_MAX && is_text(r->host, sizeof r->host) &&
         is_text(r->boot, sizeof r->boot);
}

bool record_same_machine(const Record *a, const Record *b) {
  return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot);
}
