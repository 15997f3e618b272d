// What goes over a connection between a store's server and a supervisor. Both are of one build: other versions refuse.
#pragma once
#include "net/socket.h"
#include "elastic/store.h"

// Both sides say it first; the server answers another version or job with its own, and closes.
typedef struct StoreGreeting { char magic[8]; uint32_t version, reserved; uint64_t job; } StoreGreeting;
#define STORE_GREETING(job) ((StoreGreeting){"plaitsto", 1, 0, (job)})

typedef enum StoreCall { STORE_GET, STORE_SET, STORE_WAIT, STORE_LEASE } StoreCall;

// The key (without a NUL) and the value follow.
typedef struct StoreRequest {
  uint32_t call, key_bytes, value_bytes, reserved;
  uint64_t version, lease;
  double seconds;
} StoreRequest;

// The value follows.
typedef struct StoreReply { uint32_t done, value_bytes; uint64_t version, lease; } StoreReply;

// Of bytes that have come (store_parse.c): how many a greeting, or a whole request, has; 0: more have to come; -1: they
// are no request. value: in `data`.
int store_take_greeting(const uint8_t *data, size_t bytes, uint64_t job, bool *good);
int store_take_request(const uint8_t *data, size_t bytes, StoreRequest *request, char key[STORE_KEY + 1],
                       const uint8_t **value);

// Of what has come to a client: whether it is a reply, before its value is read; who answered its greeting.
bool store_reply_is_valid(const StoreReply *reply);
typedef enum StoreAnswerer { STORE_OURS, STORE_NOT_PLAIT, STORE_OTHER_VERSION, STORE_OTHER_JOB } StoreAnswerer;
StoreAnswerer store_who_answers(const StoreGreeting *mine, const StoreGreeting *theirs);

uint64_t store_job(const char *id); // its number in the greeting
// Listens at the address and serves from a thread. PLAIT_FAILED: it is taken, or not this machine's.
int store_server_start(const NetAddress *address, uint64_t job, StoreServer **server, Error *error);
