// Both ends of a connection prove to each other that they have the same secret, before anything else is said on it.
// Nothing here waits, and nothing here reads or writes a socket but proof_advance and proof_meet.
//
//   server → client   hello: magic, protocol, version of plait, 32 random bytes, the server's words
//   client → server   hello of the same form, and the client's proof
//   server → client   verdict: the server's proof, or why there is none
//
// A proof is an HMAC-SHA256 with the secret over the purpose, who proves (server or client) and both hellos. So it
// holds for this connection, this direction and these words alone: nothing that was recorded, reflected or said
// elsewhere proves anything. The client proves first, since strangers come to servers: a server gives nothing that was
// made with the secret to who has not proved to have it. And the server speaks first: a client tells nothing to what is
// not plait.
//
// This says who is at the other end when the connection begins. What follows is neither encrypted nor protected from
// who can change what the network carries; that is what TLS (net/channel.h) is for.
#pragma once
#include "net/secret.h"

enum { PROOF_NONCE = 32, PROOF_VERSION = 32, PROOF_WORDS = 4, PROOF_REASON = 160, PROOF_PROTOCOL = 1 };

// How the two sides prove themselves. All is borrowed until proof_advance has returned DONE or REFUSED.
typedef struct ProofTerms {
  const Secret *secret;
  const char *purpose;         // of the connection; both sides must have the same
  uint64_t words[PROOF_WORDS]; // what this side says of itself. In clear: nothing secret may be in them
  // Whether the other side may say this of itself; asked once its proof is good. NULL: it may say anything.
  bool (*expects)(const uint64_t words[PROOF_WORDS], const void *context);
  const void *context;
  const char *version;         // of plait, under PROOF_VERSION characters; NULL: this one's
} ProofTerms;

typedef enum ProofState {
  PROOF_READS,   // more has to come
  PROOF_WRITES,  // more has to go
  PROOF_DONE,    // both have proved to have the secret
  PROOF_REFUSED, // close the connection
} ProofState;

// Why a connection was refused.
typedef enum ProofRefusal {
  REFUSAL_NONE,
  REFUSAL_STRANGER,  // it is not plait
  REFUSAL_VERSION,   // another version of plait
  REFUSAL_SECRET,    // it has not the secret, or is there for another purpose
  REFUSAL_WORDS,     // it has the secret, but its words are not expected
  REFUSAL_LEFT,      // it has ended the connection
} ProofRefusal;

// The messages. Magic, protocol and version stay where they are in all protocols, so that each can name the other.
typedef struct ProofHello {
  char magic[8];
  uint32_t protocol, zero;
  char version[PROOF_VERSION]; // printable; the rest is 0
  unsigned char nonce[PROOF_NONCE];
  uint64_t words[PROOF_WORDS];
} ProofHello;
typedef struct ProofVerdict { uint32_t refusal, zero; unsigned char proof[PROOF_BYTES]; } ProofVerdict;
typedef struct ProofClaim { ProofHello hello; unsigned char proof[PROOF_BYTES]; } ProofClaim;
enum { PROOF_HEAD = 16 + PROOF_VERSION, PROOF_MOST = sizeof(ProofClaim) + sizeof(ProofVerdict) }; // MOST: bytes to read

// One end. Its fields are proof.c's.
typedef struct Proof {
  ProofTerms terms;
  bool is_server;
  ProofHello mine, theirs;       // the hellos
  union { ProofClaim claim; ProofVerdict verdict; unsigned char bytes[sizeof(ProofClaim)]; } in, out;
  size_t have, want, sent, send; // bytes of `in` and `out`
  bool is_verdict;               // the client waits for it
  ProofState then;               // when all has gone
  ProofRefusal refusal;
  char reason[PROOF_REASON];
} Proof;

void proof_begin(Proof *proof, const ProofTerms *terms, bool is_server);
ProofState proof_state(const Proof *proof);
// WRITES: the bytes that have to go; so many of them have gone.
const void *proof_output(const Proof *proof, size_t *bytes);
void proof_sent(Proof *proof, size_t bytes);
// READS: where up to *bytes of what comes are to be put, no more than belong to the proof; so many have come.
void *proof_input(Proof *proof, size_t *bytes);
void proof_received(Proof *proof, size_t bytes);
void proof_ended(Proof *proof); // the connection has: REFUSED

// Goes on as far as a socket that does not block lets it.
ProofState proof_advance(Proof *proof, int fd);
// The words of the other side. DONE only.
const uint64_t *proof_words(const Proof *proof);
// REFUSED: what is wrong with the other side, as in "what listens at hostA:1 " "does not have the secret of this job".
const char *proof_reason(const Proof *proof);

// All of it, waiting until a deadline of clock_seconds(). words (PROOF_WORDS): of the other side; may be NULL.
// PLAIT_BAD_INPUT: another version, secret or words; PLAIT_FAILED: not plait, it has gone, or not in time. The error is
// proof_reason.
int proof_meet(int fd, const ProofTerms *terms, bool is_server, double deadline, uint64_t *words, Error *error);
