// What goes over a connection of the rendezvous (rendezvous_tcp.c), and what bytes from the other side are to it. No
// sockets here, so that fuzz targets can give it any bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RENDEZVOUS_RECORD = 1 << 20, RENDEZVOUS_REASON = 200 }; // most bytes of a record; of a sentence, with its NUL

// What rank 0 says first.
typedef struct Greeting { char magic[8]; uint32_t version, ranks; uint64_t run; } Greeting;
#define GREETING(ranks, run) ((Greeting){"plaitnet", 2, (uint32_t)(ranks), (run)})
// What another rank answers; its record follows. Then rank 0 sends each rank's length (uint64_t) and record, or a
// length of 0 and a sentence of RENDEZVOUS_REASON bytes. A further exchange begins with the answer.
typedef struct Answer { uint32_t rank, bytes; } Answer;

// Whether what listens at `where` is rank 0 of the run `id` that `mine` greets for; else why not.
bool greeting_is_ours(const Greeting *theirs, const Greeting *mine, const char *where, const char *id,
                      char reason[RENDEZVOUS_REASON]);
// Whether a rank of these, other than 0, announces a record.
bool answer_is_valid(const Answer *answer, int ranks);

// What follows a length of rank 0.
typedef enum Told { TOLD_RECORD, TOLD_REASON, TOLD_MALFORMED } Told;
Told told_by_root(uint64_t length);
// Whether bytes that have come are a sentence: text that ends, is not empty, and has no control characters.
bool reason_is_valid(const char reason[RENDEZVOUS_REASON]);
