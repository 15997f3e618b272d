// What a rank tells all others of itself when a world of net is made: first its NetPlace, and when it knows all places
// and listens, and has opened UCX, accordingly, its Record.
#pragma once
#include "comm/launcher.h"
#include "comm/link_address.h"
#include "comm/process.h"
#include <stdbool.h>

// Where a rank is, as far as shared memory and files go: its machine, the namespaces of its processes, of its System V
// segments and of its files, and its user. Containers of one machine may have the same host name, but not these.
typedef struct NetPlace {
  char host[HOST_NAME], boot[40];
  uint64_t processes, segments, files; // 0: not known
  uint64_t user;
  uint32_t wire, has_ucx;              // its NetWireChoice; UCX can be loaded there
} NetPlace;

// What carries messages from one rank to another.
typedef enum NetCarrier { CARRIER_SELF, CARRIER_UNIX, CARRIER_TCP, CARRIER_UCX } NetCarrier;

// Whether bytes that have come (aligned, as malloc's) are a place: its texts end, and its choice is one.
bool place_is_valid(const void *data, size_t bytes);
// Whether UCX can carry messages between ranks at these places by shared memory. What is not known shares nothing.
bool places_share_memory(const NetPlace *a, const NetPlace *b);
// Whether one can reach the other's Unix socket.
bool places_share_files(const NetPlace *a, const NetPlace *b);
// Between two ranks (a's and b's numbers) of the same choice; both find the same.
NetCarrier carrier_between(const NetPlace *a, int rank, const NetPlace *b, int other);

// The address of its worker of UCX follows, where it has one.
typedef struct Record {
  char host[HOST_NAME], boot[40]; // boot: tells machines apart whose names are the same
  uint64_t token;                 // of rank 0: of this world
  uint32_t watch_port;            // of rank 0
  uint32_t address_bytes;
  LinkAddress link;               // where it listens for other ranks
} Record;

// Whether bytes that have come (aligned, as malloc's) are a record: its texts end, its ports are ports, and an address
// follows where it says so. What the address means, only UCX can say.
bool record_is_valid(const void *data, size_t bytes);
bool record_same_machine(const Record *a, const Record *b);
// Whether it says where the rank can be reached by this carrier.
bool record_has(const Record *record, NetCarrier carrier);
