// What a rank tells all others of itself when a world of net is made.
#pragma once
#include "comm/process.h"
#include <stdbool.h>

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
