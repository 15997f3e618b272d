// Connections of a rank with all others (link.h): it listens, connects to a rank when it sends it the first message,
// and lets in who proves to be a rank of this world (net/proof.h). Between two ranks there is one connection each way:
// each sends over the one that it has opened. Nothing here waits; all is called with the world's lock.
#pragma once
#include "comm/link.h"
#include "comm/link_address.h"
#include "comm/process.h"
#include "net/secret.h"

typedef struct Links Links;

Links *links_create(int rank, int ranks);
void links_destroy(Links *links); // NULL is fine
// Before the ranks tell each other where they are: *address has what others are to be told. interface_address: by which
// this machine reaches the others; its port is not used. PLAIT_FAILED.
int links_listen_tcp(Links *links, const NetAddress *interface_address, LinkAddress *address, Error *error);
int links_listen_unix(Links *links, LinkAddress *address, Error *error);
// Where a rank listens. is_near: on the same machine, where its Unix socket is used.
void links_set_peer(Links *links, int rank, const LinkAddress *address, bool is_near);
// Then connections may begin. secret: of this world. hosts: (ranks) borrowed.
void links_begin(Links *links, const Secret *secret, bool encrypts, const char (*hosts)[HOST_NAME]);

// Messages: at their place until they are done or forgotten. tag: of LINK_TAG_BITS.
void links_send(Links *links, LinkMessage *message, int rank, uint64_t tag, bool answer);
void links_receive(Links *links, LinkMessage *message, int rank, uint64_t tag); // MATCH_ANY: from any
void links_forget(Links *links, LinkMessage *message, int rank, bool receives);

// Moves what can be moved, and lets others in. Returns how often bytes have moved.
unsigned links_progress(Links *links);
bool links_are_idle(const Links *links); // all that is to be sent has gone to the sockets
// Why messages with a rank do not move any more; NULL: they may. A rank that sends what no rank sends ends all of them:
// *rank is that one then.
const char *links_broken(const Links *links, int *rank, bool receives);

void links_describe(const Links *links, int rank, char *text, size_t size); // "tcp", "unix", "self", "tls"
uint64_t links_strangers(const Links *links); // connections that were closed because they did not come from a rank
// The most that have not said yet who they are, and how long they have for it.
enum { LINKS_GUESTS = 64 };
