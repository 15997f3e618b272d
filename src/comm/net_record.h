// What a rank tells all others of itself when a world of net is made: first its Place, and when it knows all places and
// has opened UCX accordingly, its Record.
#pragma once
#include "comm/process.h"
#include <stdbool.h>

// Where a rank is, as far as shared memory goes: its machine, and the namespaces of its processes and of its System V
// segments. Containers of one machine may have the same host name, but not these.
typedef struct Place {
  char host[HOST_NAME], boot[40];
  uint64_t processes, segments; // 0: not known
} Place;

// Whether bytes that have come (aligned, as malloc's) are a place: its texts end.
bool place_is_valid(const void *data, size_t bytes);
// Whether UCX can carry messages between ranks at these places by shared memory. What is not known shares nothing.
bool places_share_memory(const Place *a, const Place *b);

// The address of its worker of UCX follows.
typedef struct Record {
  char host[HOST_NAME], boot[40]; // boot: tells machines apart whose names are the same
  uint64_t token;                 // of rank 0: of this world
  uint32_t watch_port;            // of rank 0
  uint32_t address_bytes;
} Record;

// Whether bytes that have come (aligned, as malloc's) are a record: its texts end, the port is one, and an address
// follows. What the address means, only UCX can say.
bool record_is_valid(const void *data, size_t bytes);
bool record_same_machine(const Record *a, const Record *b);
