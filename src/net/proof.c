// Proofs of a secret on a connection.
#include "net/proof.h"
#include "base/fault.h"
#include "net/sha256.h"
#include "net/socket.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 'p', 'r', 'f'};
_Static_assert(sizeof(ProofHello) == PROOF_HEAD + PROOF_NONCE + PROOF_WORDS * 8, "a hello has no gaps");
_Static_assert(sizeof(ProofClaim) == sizeof(ProofHello) + PROOF_BYTES, "a claim has no gaps");
_Static_assert(sizeof(ProofVerdict) == 8 + PROOF_BYTES, "a verdict has no gaps");

static const char *version_of(const Proof *p) { return p->terms.version ? p->terms.version : PLAIT_VERSION; }

// Sends this next; `then` is what follows when it has gone.
static void send_next(Proof *p, const void *data, size_t bytes, ProofState then) {
  memcpy(p->out.bytes, data, bytes);
  p->sent = 0;
  p->send = bytes;
  p->then = then;
}

static void read_next(Proof *p, size_t bytes) {
  p->have = 0;
  p->want = bytes;
}

// Notes why the other side is refused. `at_once`: it is told nothing more.
static void refuse(Proof *p, ProofRefusal why, bool at_once) {
  static const char *const reasons[] = {[REFUSAL_STRANGER] = "is not plait",
                                        [REFUSAL_SECRET] = "does not have the secret of this job",
                                        [REFUSAL_WORDS] = "is not whom this connection is for",
                                        [REFUSAL_LEFT] = "has ended the connection"};
  if (why == REFUSAL_VERSION && strncmp(p->theirs.version, version_of(p), PROOF_VERSION) == 0)
    snprintf(p->reason, sizeof p->reason, "is plait %.31s with protocol %u of connections, and this has protocol %d",
             p->theirs.version, p->theirs.protocol, PROOF_PROTOCOL);
  else if (why == REFUSAL_VERSION)
    snprintf(p->reason, sizeof p->reason, "is plait %.31s, and this is plait %.31s", p->theirs.version, version_of(p));
  else snprintf(p->reason, sizeof p->reason, "%s", reasons[why]);
  p->refusal = why;
  p->then = PROOF_REFUSED;
  if (at_once) p->send = p->sent = 0;
}

void proof_begin(Proof *p, const ProofTerms *terms, bool is_server) {
  *p = (Proof){.terms = *terms, .is_server = is_server, .then = PROOF_READS, .mine = {.protocol = PROOF_PROTOCOL}};
  memcpy(p->mine.magic, magic, sizeof magic);
  memcpy(p->mine.words, terms->words, sizeof p->mine.words);
  size_t length = strlen(version_of(p));
  CHECK(length < PROOF_VERSION);
  memcpy(p->mine.version, version_of(p), length);
  CHECK(getrandom(p->mine.nonce, PROOF_NONCE, 0) == PROOF_NONCE, "the system gives no random numbers");
  read_next(p, PROOF_HEAD);
  if (is_server) send_next(p, &p->mine, sizeof p->mine, PROOF_READS);
}

static const ProofHello no_hello __attribute__((unused)); // of a fault

// Of one side.
static void prove(const Proof *p, bool of_server, unsigned char proof[PROOF_BYTES]) {
  const ProofHello *server = p->is_server ? &p->mine : &p->theirs, *client = p->is_server ? &p->theirs : &p->mine;
  Hmac hmac;
  hmac_begin(&hmac, p->terms.secret->key, SECRET_BYTES);
  hmac_add(&hmac, "plait: proof", sizeof "plait: proof");
  hmac_add(&hmac, p->terms.purpose, strlen(p->terms.purpose) + 1);
  hmac_add(&hmac, FAULT(proofs_may_be_reflected, of_server, false) ? "server" : "client", 6);
  if (FAULT(proofs_may_be_replayed, false, true)) server = client = &no_hello;
  hmac_add(&hmac, server, sizeof *server);
  hmac_add(&hmac, client, sizeof *client);
  hmac_end(&hmac, proof);
}

static bool proves(const Proof *p, const unsigned char proof[PROOF_BYTES]) {
  unsigned char right[PROOF_BYTES];
  prove(p, !p->is_server, right);
  return proofs_are_equal(right, proof);
}

static bool is_expected(const Proof *p) {
  return !p->terms.expects || FAULT(proofs_of_anybody_count, p->terms.expects(p->theirs.words, p->terms.context), true);
}

// Magic and version: text that ends, of printable characters, and zeros after it.
static bool head_is_valid(const ProofHello *h) {
  size_t n = strnlen(h->version, PROOF_VERSION);
  if (memcmp(h->magic, magic, sizeof magic) || h->zero || !n || n == PROOF_VERSION) return false;
  for (size_t i = 0; i < PROOF_VERSION; i++)
    if (i < n ? h->version[i] <= ' ' || h->version[i] > '~' : h->version[i] != 0) return false;
  return true;
}

// The head has come: is there a rest of which the length is known?
static void take_head(Proof *p) {
  memcpy(&p->theirs, p->in.bytes, PROOF_HEAD);
  if (!head_is_valid(&p->theirs)) return refuse(p, REFUSAL_STRANGER, true);
  if (p->theirs.protocol == PROOF_PROTOCOL) p->want = p->is_server ? sizeof(ProofClaim) : sizeof(ProofHello);
  else refuse(p, REFUSAL_VERSION, true);
  ProofVerdict verdict = {.refusal = REFUSAL_VERSION};
  if (p->refusal && p->is_server) send_next(p, &verdict, sizeof verdict, PROOF_REFUSED);
  if (p->refusal && !p->is_server) send_next(p, &p->mine, sizeof p->mine, PROOF_REFUSED);
}

// The client: the server's hello has come. Another version is told this one's, and no proof.
static void take_hello(Proof *p) {
  p->theirs = p->in.claim.hello;
  ProofClaim claim = {.hello = p->mine};
  bool same = !strncmp(p->theirs.version, version_of(p), PROOF_VERSION);
  if (same) prove(p, false, claim.proof);
  p->is_verdict = true;
  read_next(p, sizeof(ProofVerdict));
  send_next(p, &claim, sizeof claim, PROOF_READS);
  if (!same) refuse(p, REFUSAL_VERSION, false);
}

// The server: the client's hello and proof have come.
static void take_claim(Proof *p) {
  ProofVerdict verdict = {.refusal = REFUSAL_NONE};
  p->theirs = p->in.claim.hello;
  if (strncmp(p->theirs.version, version_of(p), PROOF_VERSION)) verdict.refusal = REFUSAL_VERSION;
  else if (!proves(p, p->in.claim.proof)) verdict.refusal = REFUSAL_SECRET;
  else if (!is_expected(p)) verdict.refusal = REFUSAL_WORDS;
  else prove(p, true, verdict.proof);
  send_next(p, &verdict, sizeof verdict, PROOF_DONE);
  if (verdict.refusal) refuse(p, (ProofRefusal)verdict.refusal, false);
}

// The client. A refusal proves nothing, and is taken for what it says: the connection is of no use anyway.
static void take_verdict(Proof *p) {
  const ProofVerdict *v = &p->in.verdict;
  if (v->refusal == REFUSAL_SECRET || v->refusal == REFUSAL_WORDS) refuse(p, (ProofRefusal)v->refusal, true);
  else if (v->refusal || v->zero) refuse(p, REFUSAL_STRANGER, true);
  else if (!proves(p, v->proof)) refuse(p, REFUSAL_SECRET, true);
  else if (!is_expected(p)) refuse(p, REFUSAL_WORDS, true);
  else p->then = PROOF_DONE;
}

ProofState proof_state(const Proof *p) { return p->sent < p->send ? PROOF_WRITES : p->then; }

const void *proof_output(const Proof *p, size_t *bytes) {
  *bytes = p->send - p->sent;
  return p->out.bytes + p->sent;
}

void proof_sent(Proof *p, size_t bytes) { p->sent += bytes; }

void *proof_input(Proof *p, size_t *bytes) {
  *bytes = p->want - p->have;
  return p->in.bytes + p->have;
}

void proof_received(Proof *p, size_t bytes) {
  p->have += bytes;
  CHECK(p->have <= p->want);
  if (p->have < p->want) return;
  if (p->is_verdict) take_verdict(p);
  else if (p->want == PROOF_HEAD) take_head(p);
  else if (p->is_server) take_claim(p);
  else take_hello(p);
}

void proof_ended(Proof *p) {
  if (p->refusal) p->send = p->sent = 0; // it is known why already
  else refuse(p, REFUSAL_LEFT, true);
}

ProofState proof_advance(Proof *p, int fd) {
  for (;;) {
    ProofState state = proof_state(p);
    size_t bytes = 0;
    ssize_t n = 0;
    if (state == PROOF_DONE || state == PROOF_REFUSED) return state;
    if (state == PROOF_WRITES) {
      const void *data = proof_output(p, &bytes);
      n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) proof_sent(p, (size_t)n);
    } else {
      void *data = proof_input(p, &bytes);
      n = recv(fd, data, bytes, MSG_DONTWAIT);
      if (n > 0) proof_received(p, (size_t)n);
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return state;
    if (n <= 0) proof_ended(p);
  }
}

const uint64_t *proof_words(const Proof *p) { return p->theirs.words; }
const char *proof_reason(const Proof *p) { return p->reason; }

int proof_meet(int fd, const ProofTerms *terms, bool is_server, double deadline, uint64_t *words, Error *error) {
  Proof p;
  ProofState state;
  proof_begin(&p, terms, is_server);
  while ((state = proof_advance(&p, fd)) == PROOF_READS || state == PROOF_WRITES)
    if (!net_ready(fd, state == PROOF_READS ? POLLIN : POLLOUT, deadline))
      return error_set(error, PLAIT_FAILED, "has not proved in time to have the secret");
  if (state == PROOF_REFUSED)
    return error_set(error, p.refusal == REFUSAL_STRANGER || p.refusal == REFUSAL_LEFT ? PLAIT_FAILED : PLAIT_BAD_INPUT,
                     "%s", p.reason);
  if (words) memcpy(words, p.theirs.words, sizeof p.theirs.words);
  return PLAIT_OK;
}
