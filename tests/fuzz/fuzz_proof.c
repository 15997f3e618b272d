// Proofs of a secret on a connection. The first byte of the input chooses: s and c are bytes that a server or a client
// reads from a stranger, S and C what a good client or server sends with the input's bytes added (exclusive or), so
// that nothing but zeros may pass. No more is taken than belongs to a proof, and a refusal has a printable sentence.
#include "fuzz.h"
#include "net/proof.h"
#include <string.h>

static const Secret secret = {{9}};
static const ProofTerms terms = {.secret = &secret, .purpose = "fuzz", .words = {1, 2, 3, 4}, .version = "1.2"};

static void check_end(const Proof *p) {
  if (proof_state(p) != PROOF_REFUSED) return;
  Error error = {0};
  error_set(&error, PLAIT_BAD_INPUT, "what came %s", proof_reason(p));
  fuzz_check(error.code, &error);
  CHECK(*proof_reason(p) && p->refusal != REFUSAL_NONE && strlen(proof_reason(p)) < PROOF_REASON - 1);
}

static void skip_output(Proof *p) {
  size_t bytes;
  if (proof_state(p) == PROOF_WRITES) proof_output(p, &bytes), proof_sent(p, bytes);
}

static void read_stranger(const uint8_t *data, size_t size, bool is_server) {
  Proof p;
  size_t taken = 0, room;
  proof_begin(&p, &terms, is_server);
  skip_output(&p);
  while (proof_state(&p) == PROOF_READS && size) {
    void *where = proof_input(&p, &room);
    size_t n = 1 + data[0] % 16;
    n = n < size ? n : size;
    n = n < room ? n : room;
    memcpy(where, data, n);
    proof_received(&p, n);
    skip_output(&p);
    data += n, size -= n, taken += n;
  }
  CHECK(taken <= PROOF_MOST && proof_state(&p) != PROOF_DONE);
  if (proof_state(&p) == PROOF_READS) proof_ended(&p);
  check_end(&p);
}

// Whether anything was added to what has moved.
static bool pass(Proof *from, Proof *to, bool adds, const uint8_t **data, size_t *size) {
  size_t bytes, room;
  bool added = false;
  const unsigned char *sent = proof_output(from, &bytes);
  unsigned char *where = proof_input(to, &room);
  bytes = bytes < room ? bytes : room;
  for (size_t i = 0; i < bytes; i++) {
    unsigned char more = adds ? (unsigned char)fuzz_byte(data, size) : 0;
    where[i] = sent[i] ^ more;
    added |= more != 0;
  }
  proof_sent(from, bytes);
  proof_received(to, bytes);
  return added;
}

static void read_changed(const uint8_t *data, size_t size, bool of_server) {
  Proof server, client;
  bool changed = false, moved = true;
  proof_begin(&server, &terms, true);
  proof_begin(&client, &terms, false);
  while (moved) {
    moved = false;
    if (proof_state(&server) == PROOF_WRITES && proof_state(&client) == PROOF_READS)
      moved = true, changed |= pass(&server, &client, of_server, &data, &size);
    else if (proof_state(&client) == PROOF_WRITES && proof_state(&server) == PROOF_READS)
      moved = true, changed |= pass(&client, &server, !of_server, &data, &size);
  }
  CHECK((proof_state(of_server ? &client : &server) == PROOF_DONE) == !changed);
  check_end(&server);
  check_end(&client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  switch (fuzz_byte(&data, &size)) {
  case 's': read_stranger(data, size, true); break;
  case 'c': read_stranger(data, size, false); break;
  case 'S': read_changed(data, size, true); break;
  default: read_changed(data, size, false);
  }
  return 0;
}
